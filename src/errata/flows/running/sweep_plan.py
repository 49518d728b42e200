"""What a sweep would do: which results it would work out again, by which technique, and at what cost. Nothing is
applied, and Spark is not started."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from graphlib import TopologicalSorter

import pyarrow as pa
import pyarrow.compute as pc

from errata.archive.correct import Place, claim, read_pending
from errata.archive.keys import NUMBER, Said
from errata.archive.wire import old_column
from errata.catalog import commits, pins, queries, streams
from errata.catalog.published import all_published
from errata.catalog.queries import RecordedQuery
from errata.catalog.streams import Standing
from errata.engine.engines import Demand, EngineChoice
from errata.flows.answering.inputs import Inputs
from errata.flows.answering.late_session import LateSession
from errata.flows.correcting.deferrals import Deferrals
from errata.flows.correcting.lineage_asked import asked
from errata.flows.correcting.stands import Stands, answered, revised_of
from errata.flows.correcting.techniques import by_technique, changes_of, no_adjusting, rows_to_read
from errata.flows.declaring.check import read
from errata.flows.running.rounds import wanted_queries
from errata.flows.running.sweep import pending
from errata.flows.site import Site
from errata.language.plan import Plan
from errata.model.evaluation import Refusal
from errata.model.interval import HIGHEST
from errata.model.results import VE, VS
from errata.model.stream import OnRevision, Stream
from errata.revise.revised import GONE, REVISION, Cluster, Revised
from errata.revise.technique import Technique
from errata.revise.work import Work


@dataclass(frozen=True, slots=True)
class Planned:
    """What a sweep would do for a query."""

    query: str
    revisions: int
    """So many corrections and late rows its results do not contain."""
    technique: Technique
    why: str
    regions: int
    """So many stretches of its results would be worked out again."""
    rows: int
    """About so many rows would be read for it."""
    all_rows: int
    """About so many would be to replay everything."""
    refused: Sequence[Refusal] = ()
    waits: str | None = None
    """Why `errata run` would leave them for now, if it would."""
    choice: EngineChoice | None = None
    """The engine that would do it, where there is anything to do."""


@dataclass(frozen=True, slots=True)
class SweepPlan:
    """What a sweep would do."""

    pending: Mapping[str, int]
    """Of each stream what waits to become history."""
    unplaced: Mapping[str, int] = field(default_factory=dict)
    """Of these, corrections that do not say where their rows lie, and are not in the plan."""
    queries: Sequence[Planned] = ()
    current: Sequence[str] = ()


def plan_sweep(
    site: Site, names: Sequence[str] = (), *, technique: Technique = Technique.AUTO, narrowed: bool = True
) -> SweepPlan:
    """What a sweep of these queries and of those that they read would do; without names, of all."""
    known = wanted_queries(queries.recorded(site.catalog), names)
    with pins.pinned(site.catalog, commits.newest(site.catalog), "sweep plan") as pin:
        standings = {each.stream.name: each for each in streams.standings(site.catalog, pin.commit_id)}
        waiting = {name: _pending_of(site, standings[name]) for name in pending(standings.values())}
        declared = {name: each.stream for name, each in standings.items()}
        plans = read(declared, {name: each.checked.query for name, each in known.items()}, list(known))
        inputs = Inputs(site, pin.commit_id, standings, all_published(site.catalog), plans, LateSession(site))
        found = _Plans(inputs, waiting, Deferrals(site), technique, narrowed)
        for name in _in_order(known):
            found.add(known[name], plans[name])
    counts = {name: standings[name].revisions - standings[name].applied for name in waiting}
    unplaced = {name: counts[name] - each.count for name, each in waiting.items() if counts[name] > each.count}
    return SweepPlan(counts, unplaced, found.planned, found.current)


@dataclass
class _Plans:
    inputs: Inputs
    pending: Mapping[str, Revised]
    deferrals: Deferrals
    technique: Technique
    narrowed: bool
    works: dict[str, Work] = field(default_factory=dict)
    planned: list[Planned] = field(default_factory=list)
    current: list[str] = field(default_factory=list)

    def add(self, query: RecordedQuery, plan: Plan) -> None:
        """What would be done for a query; those that it reads are known."""
        name, stands = query.checked.name, Stands.of(query, plan, self.inputs)
        if stands.basis is None:
            return
        revised = list(revised_of(stands, self.inputs))
        revised += [self.pending[each] for each in stands.read if each in self.pending]
        below = {each: self.works[each] for each in stands.read if each in self.works}
        if not revised and not below:
            self.current.append(name)
            return
        task = stands.task(self.inputs)
        of = answered(task, stands.basis, self.inputs)
        count = sum(each.count for each in revised)
        waits = self.deferrals.waits_for(name, revised)
        if query.checked.on_revision is not OnRevision.RESULTS:
            why = f"the query declares on_revision: {query.checked.on_revision.value}"
            self.planned.append(Planned(name, count, Technique.NONE, why, 0, 0, 0, waits=waits))
            return
        changed_below = [each for other, work in below.items() for each in _changes(other, work)]
        aged, no_direct = stands.aged(self.inputs), "results of another query" if below else no_adjusting(of, revised)
        changes = [*changes_of(revised, self.inputs, aged), *changed_below]
        wanted = asked(task, stands.basis, revised, changed_below)
        chosen, needed, why = by_technique(
            of, changes, self.inputs, self.technique, aged, no_direct, wanted, narrowed=self.narrowed
        )
        _, whole, _ = by_technique(of, changes, self.inputs, Technique.ALL, aged, no_direct, narrowed=False)
        self.works[name] = needed
        rows, all_rows = (rows_to_read(self.inputs, each, of.until) for each in (needed, whole))
        rows = 0 if chosen is Technique.DIRECT else rows
        regions = len(needed.regions)
        choice = self.inputs.choice(Demand(rows + count, obstacle=task.obstacle))
        self.planned.append(Planned(name, count, chosen, why, regions, rows, all_rows, needed.refused, waits, choice))


def _changes(query: str, work: Work) -> list[Cluster]:
    """The results of a query that would be worked out again, as changes for those that read it."""
    return [Cluster(query, each.interval, each.interval.end, dict(each.values), 0, 0, 0) for each in work.regions]


def _pending_of(site: Site, standing: Standing) -> Revised:
    """What is pending, as far as it says of which rows it is."""
    place = Place(site.session, site.catalog, site.warehouse, standing)
    stream = standing.stream
    claimed = claim(place, HIGHEST)
    rows = read_pending(place, claimed)
    names = list(stream.key)
    parts = []
    for column, gone in ((stream.order, False), (old_column(stream.order), True)):
        some = rows.filter(pc.is_valid(rows[column]))
        begins = some[column].cast(pa.int64())
        columns = [*(some[name] for name in names), begins, pa.repeat(HIGHEST, some.num_rows), some[NUMBER]]
        parts.append(pa.table([*columns, pa.repeat(gone, some.num_rows)], [*names, VS, VE, REVISION, GONE]))
    came = min((each.added_in for each in claimed), default=standing.changed_in)
    numbers = (standing.applied, standing.revisions, came)
    whole = pa.concat_tables(parts)
    return Revised(stream.name, whole, *numbers, tuple(stream.group), rows, rows, gives=_given(stream, rows))


def _given(stream: Stream, rows: pa.Table) -> dict[int, frozenset[str]]:
    """By the numbers of replacements the columns that they may change."""
    said = Said.by(stream, rows)
    # What only tells which row is meant stays as it is.
    telling = set(stream.key) | ({stream.order} if stream.key_has_order else set())
    found = {}
    for at, number in enumerate(rows[NUMBER].to_pylist()):
        if not (said.inserts[at] or said.deletes[at]):
            told = zip(stream.names, said.given[at], said.claimed[at], strict=True)
            found[number] = frozenset(name for name, given, was in told if given and (was or name not in telling))
    return found


def _in_order(known: Mapping[str, RecordedQuery]) -> Iterable[str]:
    reads = {name: [other for other in each.checked.reads if other in known] for name, each in known.items()}
    return TopologicalSorter(reads).static_order()
