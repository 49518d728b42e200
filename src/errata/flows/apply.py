"""Making the catalog agree with what is declared: first the plan, then, if it is wanted, one commit."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from errata.archive.warehouse import Warehouse
from errata.catalog import streams
from errata.catalog.open import newest_version, peek, prepare_catalog, shown
from errata.clock import SYSTEM, Clock
from errata.declare.differences import Changes, plan_changes
from errata.declare.project import Project
from errata.errors import ErrataError
from errata.flows.site import Site

TRIES = 8
"""So often appends may come between planning and recording."""


@dataclass(frozen=True, slots=True)
class ApplyPlan:
    """What applying would do."""

    project: Project
    tables: str | None
    """The catalog whose tables would be made or brought up to date; None when they are as they should be."""
    changes: Changes
    planned_on: Mapping[str, int] = field(default_factory=dict)
    """The streams there were, and the commit that had last moved each."""

    @property
    def nothing(self) -> bool:
        return self.tables is None and self.changes.nothing


def plan(project: Project, drop: Collection[str] = ()) -> ApplyPlan:
    """Compare what is declared with what is there; nothing is touched."""
    catalog = peek(project.catalog)
    if catalog is None:
        wanted = f"{shown(project.catalog)} (tables of version {newest_version()})"
        return ApplyPlan(project, wanted, plan_changes(project.streams, {}, {}, drop))
    try:
        recorded = {each.stream.name: each for each in streams.standings(catalog)}
        for name in drop:
            if name not in project.streams:
                streams.check_known(catalog, name)
    finally:
        catalog.close()
    rows = {name: each.rows + each.revisions for name, each in recorded.items()}
    changes = plan_changes(project.streams, {name: each.stream for name, each in recorded.items()}, rows, drop)
    return ApplyPlan(project, None, changes, {name: each.changed_in for name, each in recorded.items()})


def apply(planned: ApplyPlan, drop: Collection[str] = (), clock: Clock = SYSTEM) -> int | None:
    """Carry a plan out: the commit, or None when declarations and catalog agreed. Refusals raise before anything."""
    planned.changes.check()
    project = planned.project
    catalog = prepare_catalog(project.catalog, clock)
    try:
        for _ in range(TRIES):
            # Planned again on what is there now: tables may have been made, and streams moved, since it was shown.
            current = plan(project, drop)
            current.changes.check()
            if current.changes.nothing:
                return None
            try:
                return _record(Site(project, catalog, Warehouse(project.warehouse)), current)
            except streams.PlanMovedError:
                continue
        raise ErrataError("the streams are changing faster than they can be declared", how="run it again")
    finally:
        catalog.close()


def _record(site: Site, planned: ApplyPlan) -> int:
    changes = planned.changes
    summary = {
        "created": [each.stream.name for each in changes.creates],
        "changed": [each.after.name for each in changes.changes],
        "dropped": [each.name for each in changes.drops],
    }
    return streams.apply_changes(
        site.catalog,
        site.caused_by("apply"),
        write=[
            *(each.stream for each in changes.creates),
            *(each.after for each in changes.changes),
        ],
        drop=summary["dropped"],
        summary={name: names for name, names in summary.items() if names},
        planned_on=planned.planned_on,
    )
