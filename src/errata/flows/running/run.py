"""All that is due: what has landed is taken in, and every query that is behind is brought up to it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from errata.catalog import commits, pins, queries
from errata.errors import UsageError
from errata.flows.answering.evaluate import Evaluated
from errata.flows.correcting.deferrals import Deferrals
from errata.flows.correcting.sweeping import Sweeping
from errata.flows.running.rounds import OnStep, Rounds, Wanted, wanted_queries
from errata.flows.running.sweep import apply_pending
from errata.flows.site import Site
from errata.flows.taking.append import AppendReport, Batch, append
from errata.flows.taking.revise import RevisedReport
from errata.model.evaluation import Fault
from errata.spark.failures import loggers_quiet


@dataclass(frozen=True)
class RunReport:
    """What a run has done."""

    batches: Sequence[AppendReport] = ()
    evaluated: Sequence[Evaluated] = ()
    current: Sequence[str] = field(default=())
    """Queries that were as far as their streams reach."""
    stopped: Sequence[tuple[str, Fault]] = ()
    """Queries that cannot go on, and why."""
    held: Sequence[tuple[str, str]] = ()
    """Queries that wait for another one, and for which."""
    busy: Sequence[str] = ()
    """Queries that another runner is at work on, or has just taken further."""
    deferred: Sequence[Sweeping] = ()
    """Corrections that wait, as their queries declare."""
    revised: Sequence[RevisedReport] = ()
    """Streams to whose history pending corrections and late rows were applied."""


def run(
    site: Site,
    names: Sequence[str] = (),
    *,
    take: bool = True,
    anew: bool = False,
    on_step: OnStep = lambda _: None,
) -> RunReport:
    """Do all that is due; with names, evaluate only these queries and those that they read. `anew`: those named from
    the beginning, into archives that take the place of theirs."""
    if anew and not names:
        raise UsageError("no query is named that is to be worked out anew", how="name it: errata run --anew QUERY")
    batches = _landed(site, on_step) if take else []
    deferrals = Deferrals(site)
    revised = apply_pending(site, deferrals.streams_due(), on_step)
    # Pinned first and looked up behind the pin: what is found then stays.
    with pins.pinned(site.catalog, commits.newest(site.catalog), "run") as pin:
        known = wanted_queries(queries.recorded(site.catalog), names)
        if not known:
            return RunReport(batches, revised=revised)
        wanted = Wanted(
            sweeps=lambda each: deferrals.due(each.name, each.revised), anew=frozenset(names) if anew else frozenset()
        )
        rounds = Rounds(site, pin.commit_id, known, on_step, wanted)
        # Around all of them: one thread that ended its quiet would end that of the others.
        with loggers_quiet():
            rounds.go()
    return RunReport(
        batches,
        rounds.evaluated,
        rounds.current,
        list(rounds.stopped.items()),
        list(rounds.held.items()),
        rounds.busy,
        rounds.deferred,
        revised,
    )


def _landed(site: Site, on_step: OnStep) -> list[AppendReport]:
    """Take in what has landed."""
    landing = [name for name, each in site.project.streams.items() if each.landing is not None]
    reports = [append(site, Batch(name, landed=True), on_step) for name in landing]
    return [each for each in reports if each.commit_id is not None]
