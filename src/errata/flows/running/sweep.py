"""Sweeping: what is pending is applied to history, and the results that it invalidates are corrected."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from errata.catalog import commits, pins, queries, streams
from errata.catalog.leases import Patience
from errata.catalog.streams import Standing
from errata.flows.answering.evaluate import Evaluated
from errata.flows.correcting.deferrals import Deferrals
from errata.flows.declaring.check import with_inputs
from errata.flows.running.report import Report
from errata.flows.running.rounds import OnStep, Rounds, Wanted, wanted_queries
from errata.flows.site import Site
from errata.flows.taking.revise import RevisedReport, revise_stream
from errata.revise.technique import Technique


@dataclass(frozen=True)
class SweepReport(Report):
    """What a sweep has done."""

    @property
    def swept(self) -> Sequence[Evaluated]:
        """The evaluations that took corrections up."""
        return self.evaluated


def sweep(
    site: Site,
    names: Sequence[str] = (),
    *,
    technique: Technique = Technique.AUTO,
    narrowed: bool = True,
    due: bool = False,
    on_step: OnStep = lambda _: None,
    patience: Patience | None = None,
) -> SweepReport:
    """Apply what is pending, and correct the results of the queries named and of those that they read; without names,
    of all. `due`: leave what the project or a query defers. `patience`: how long queries are waited for that another
    runner is at work on."""
    known = queries.recorded(site.catalog)
    wanted = wanted_queries(known, names)
    reads = {name: each.checked.reads for name, each in known.items()}
    some = _streams_of(site, reads, names)
    deferrals = Deferrals(site) if due else None
    if deferrals is not None:
        ripe = set(deferrals.streams_due())
        some = [name for name in some if name in ripe]
    revised = apply_pending(site, some, on_step)
    with pins.pinned(site.catalog, commits.newest(site.catalog), "sweep") as pin:
        if not wanted:
            return SweepReport(revised=revised)
        sweeps = Wanted(evaluates=False, technique=technique, narrowed=narrowed, patience=patience or Patience())
        if deferrals is not None:
            sweeps = replace(sweeps, sweeps=lambda each: deferrals.due(each.name, each.revised))
        rounds = Rounds(site, pin.commit_id, wanted, on_step, sweeps)
        rounds.go()
    return SweepReport(revised=revised, **rounds.told)


def apply_pending(site: Site, names: Iterable[str], on_step: OnStep) -> list[RevisedReport]:
    """Make what is pending of some streams part of their history."""
    reports = [revise_stream(site, name, on_step) for name in names]
    return [each for each in reports if each.commits]


def pending(some: Iterable[Standing]) -> list[str]:
    """The streams of which anything is pending."""
    return [each.stream.name for each in some if each.revisions > each.applied]


def _streams_of(site: Site, reads: Mapping[str, Sequence[str]], names: Sequence[str]) -> list[str]:
    """The streams with anything pending that these queries read; without names, all."""
    some = pending(streams.standings(site.catalog))
    if not names:
        return some
    read = {other for name in with_inputs(names, reads) for other in reads[name]}
    return [name for name in some if name in read]
