"""Making the catalog agree with what is declared: first the plan, then, if it is wanted, one commit."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from errata.archive.warehouse import Warehouse
from errata.catalog import queries, streams
from errata.catalog.open import Catalog, newest_version, peek
from errata.catalog.open import shown as shown_url
from errata.catalog.prepare import prepare_catalog
from errata.catalog.queries import RecordedQuery
from errata.catalog.streams import Standing
from errata.clock import SYSTEM, Clock
from errata.declare.differences import Changes, plan_changes
from errata.declare.project import Project
from errata.declare.query_changes import QueryChanges, plan_query_changes
from errata.errors import ErrataError, UsageError
from errata.flows.declaring.places import check_places
from errata.flows.site import Site
from errata.model.query import CheckedQuery, Query
from errata.model.stream import Stream

TRIES = 8
"""So often appends may come between planning and recording."""

NAMED = 20
"""A commit names so many queries; of more it says how many they are."""


@dataclass(frozen=True, slots=True)
class ApplyPlan:
    """What applying would do."""

    project: Project
    tables: str | None
    """The catalog whose tables would be made or brought up to date; None when they are as they should be."""
    changes: Changes
    planned_on: Mapping[str, int] = field(default_factory=dict)
    """The streams there were, and the commit that had last moved each."""
    query_changes: QueryChanges = field(default_factory=QueryChanges)
    texts: Mapping[str, Query] = field(default_factory=dict)
    """The declared queries as they were read."""
    checked: Mapping[str, CheckedQuery] = field(default_factory=dict)
    """The same, checked."""
    queries_on: Mapping[str, int] = field(default_factory=dict)
    """The queries there were, and the commit that had recorded each."""

    @property
    def nothing(self) -> bool:
        return self.tables is None and self.agreed

    @property
    def agreed(self) -> bool:
        """Whether all that is declared is recorded."""
        return self.changes.nothing and self.query_changes.nothing


@dataclass(frozen=True, slots=True)
class _There:
    """What a catalog holds."""

    streams: Mapping[str, Standing] = field(default_factory=dict)
    queries: Mapping[str, RecordedQuery] = field(default_factory=dict)


def plan(project: Project, drop: Collection[str] = (), shown: ApplyPlan | None = None) -> ApplyPlan:
    """Compare what is declared with what is there; nothing is touched. `shown` is a plan that was made just before:
    the texts of the queries are taken from it."""
    check_places(project)
    catalog = peek(project.catalog)
    if catalog is None:
        tables, there = f"{shown_url(project.catalog)} (tables of version {newest_version()})", _There()
    else:
        tables = None
        try:
            there = _There({each.stream.name: each for each in streams.standings(catalog)}, queries.recorded(catalog))
            for name in drop:
                _check_droppable(project, catalog, there, name)
        finally:
            catalog.close()
    rows = {name: each.rows + each.revisions for name, each in there.streams.items()}
    recorded = {name: each.stream for name, each in there.streams.items()}
    changes = plan_changes(project.streams, recorded, rows, drop)
    applied = {name: each.checked for name, each in there.queries.items()}
    texts = _texts(project, refused=bool(changes.refusals)) if shown is None else shown.texts
    # What is refused anyway need not be understood.
    checked = (
        {} if changes.refusals else _check(project, texts, applied if shown is None else {**applied, **shown.checked})
    )
    return ApplyPlan(
        project,
        tables,
        changes,
        {name: each.changed_in for name, each in there.streams.items()},
        QueryChanges() if changes.refusals else plan_query_changes(checked, _comparable(applied, checked, recorded)),
        texts,
        checked,
        {name: each.added_in for name, each in there.queries.items()},
    )


def _check_droppable(project: Project, catalog: Catalog, there: _There, name: str) -> None:
    if name in there.queries or name in project.queries:
        raise UsageError(
            f"{name} is a query, and queries need no --drop",
            why="what a query says can be worked out again",
            how="take it out of errata.yaml and run `errata apply`",
        )
    if name not in project.streams:
        streams.check_known(catalog, name)


def _texts(project: Project, *, refused: bool) -> Mapping[str, Query]:
    """The declared queries. Where files cannot be read, the mistakes of the others are told, too, unless the streams
    are refused anyway."""
    texts, problems = project.readable_texts()
    try:
        problems.check()
    except UsageError as unread:
        if refused:
            raise
        from errata.flows.declaring.check import with_other_mistakes  # noqa: PLC0415

        raise with_other_mistakes(project, texts, unread) from None
    return texts


def _check(
    project: Project, texts: Mapping[str, Query], known: Mapping[str, CheckedQuery]
) -> Mapping[str, CheckedQuery]:
    if not texts:
        return {}
    # Whoever declares no queries need not load what reads them.
    from errata.flows.declaring.check import check  # noqa: PLC0415

    return check(project, texts, known)


def _comparable(
    applied: Mapping[str, CheckedQuery], checked: Mapping[str, CheckedQuery], recorded: Mapping[str, Stream]
) -> Mapping[str, CheckedQuery]:
    """The applied queries, with fingerprints where older versions have left none and they are to be compared."""
    wanted = [name for name, each in applied.items() if not each.fingerprint and name in checked]
    wanted = [name for name in wanted if checked[name].fingerprint]
    if not wanted:
        return applied
    from errata.flows.declaring.check import with_fingerprints  # noqa: PLC0415

    return {**applied, **with_fingerprints(applied, wanted, recorded)}


def apply(planned: ApplyPlan, drop: Collection[str] = (), clock: Clock = SYSTEM) -> int | None:
    """Carry a plan out: the commit, or None when declarations and catalog agreed. Refusals raise before anything."""
    planned.changes.check()
    project = planned.project
    catalog = prepare_catalog(project.catalog, clock)
    try:
        for _ in range(TRIES):
            # Planned again on what is there now: tables may have been made, and streams moved, since it was shown.
            current = plan(project, drop, planned)
            current.changes.check()
            if current.agreed:
                return None
            try:
                return _record(Site(project, catalog, Warehouse(project.warehouse)), current)
            except streams.PlanMovedError:
                continue
        raise ErrataError("the streams are changing faster than they can be declared", how="run it again")
    finally:
        catalog.close()


def _record(site: Site, planned: ApplyPlan) -> int:
    changes, of_queries = planned.changes, planned.query_changes
    summary = {
        "created": [each.stream.name for each in changes.creates],
        "changed": [each.after.name for each in changes.changes],
        "dropped": [each.name for each in changes.drops],
        "queries_created": _few([each.name for each in of_queries.creates]),
        "queries_changed": _few([each.after.name for each in of_queries.changes]),
        "queries_dropped": _few(of_queries.drops),
    }
    return streams.apply_changes(
        site.catalog,
        site.caused_by("apply"),
        write=[
            *(each.stream for each in changes.creates),
            *(each.after for each in changes.changes),
        ],
        drop=[each.name for each in changes.drops],
        summary={name: names for name, names in summary.items() if names},
        planned_on=planned.planned_on,
        query_writes=queries.QueryWrites(
            [*of_queries.creates, *(each.after for each in of_queries.changes)],
            of_queries.drops,
            planned.queries_on,
            keeps=[each.after.name for each in of_queries.changes if each.keeps_results],
        ),
    )


def _few(names: Sequence[str]) -> list[str] | int:
    """Names for a commit to bear, or how many there are."""
    return list(names) if len(names) <= NAMED else len(names)
