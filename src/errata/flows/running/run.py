"""All that is due: what has landed is taken in, and every query that is behind is brought up to it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from errata.catalog import commits, pins, queries
from errata.catalog.leases import Patience
from errata.errors import ErrataError, UsageError
from errata.flows.correcting.deferrals import Deferrals
from errata.flows.running.report import Report
from errata.flows.running.rounds import OnStep, Rounds, Wanted, wanted_queries
from errata.flows.running.sweep import apply_pending
from errata.flows.site import Site
from errata.flows.taking.append import AppendReport, Batch, append


@dataclass(frozen=True)
class RunReport(Report):
    """What a run has done."""

    batches: Sequence[AppendReport] = ()
    """Batches of landed files: what was taken in, and what was set aside."""
    not_taken: Sequence[tuple[str, ErrataError]] = ()
    """Streams of which nothing that has landed could be taken in, or not all of it put away, and why."""


def run(
    site: Site,
    names: Sequence[str] = (),
    *,
    take: bool = True,
    anew: bool = False,
    on_step: OnStep = lambda _: None,
    patience: Patience | None = None,
) -> RunReport:
    """Do all that is due; with names, evaluate only these queries and those that they read. `anew`: those named from
    the beginning, into archives that take the place of theirs. `patience`: how long queries are waited for that another
    runner is at work on."""
    if anew and not names:
        raise UsageError("no query is named that is to be worked out anew", how="name it: errata run --anew QUERY")
    taken = _landed(site, on_step) if take else _Taken()
    deferrals = Deferrals(site)
    revised = apply_pending(site, deferrals.streams_due(), on_step)
    # Pinned first and looked up behind the pin: what is found then stays.
    with pins.pinned(site.catalog, commits.newest(site.catalog), "run") as pin:
        known = wanted_queries(queries.recorded(site.catalog), names)
        if not known:
            return RunReport(taken.batches, taken.failed, revised=revised)
        wanted = Wanted(
            sweeps=lambda each: deferrals.due(each.name, each.revised),
            anew=frozenset(names) if anew else frozenset(),
            patience=patience or Patience(),
        )
        rounds = Rounds(site, pin.commit_id, known, on_step, wanted)
        rounds.go()
    return RunReport(taken.batches, taken.failed, revised=revised, **rounds.told)


@dataclass(frozen=True)
class _Taken:
    batches: list[AppendReport] = field(default_factory=list)
    failed: list[tuple[str, ErrataError]] = field(default_factory=list)


def _landed(site: Site, on_step: OnStep) -> _Taken:
    """Take in what has landed, stream by stream: what is wrong with one holds up no other, and no query."""
    taken = _Taken()
    for name, each in site.project.streams.items():
        if each.landing is None:
            continue
        try:
            report = append(site, Batch(name, landed=True), on_step)
        except ErrataError as error:
            taken.failed.append((name, error))
            continue
        if report.commit_id is not None or report.set_aside:
            taken.batches.append(report)
        if report.trouble is not None:
            taken.failed.append((name, report.trouble))
    return taken
