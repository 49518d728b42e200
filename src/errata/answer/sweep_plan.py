"""What the steps of a sweep would cost (`errata sweep --plan`). Nothing is applied, and Spark is not started.

Applied revisions are planned as a sweep plans them. Pending ones are planned from what they say of their rows, since
former versions are looked up only when they are applied; those that do not say where their rows lie are counted as
unplaced. Queries are planned after those that they read, whose results that would change are revisions for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa
import pyarrow.compute as pc

from errata.answer.catalog_view import CatalogView
from errata.answer.correction_plan import TechniqueRequest, choose_technique, clusters_to_follow, why_not_direct
from errata.answer.inputs import RunInputs
from errata.answer.lineage_lookup import lineage_request, rows_to_read
from errata.answer.query_state import QueryState, scope_of_results, unread_revisions
from errata.answer.replay_sequence import ReplaySequence
from errata.answer.source_revisions import OLD_VERSION, REVISION, RevisionCluster, SourceRevisions
from errata.answer.steps import Step, StepKind, StepList, StepRequest
from errata.archive.revisions.decide import CorrectionContext, claim_pending, read_pending
from errata.archive.revisions.pending import NUMBER, RevisionFlags
from errata.catalog import commits, pins
from errata.catalog.streams import StreamState
from errata.declare.site import Site
from errata.engine.budget import EngineChoice, EngineDemand
from errata.model.commit import RefusedRevisions
from errata.model.extent import rows_starting_in
from errata.model.results import VE, VS, old_column
from errata.model.stream import RevisionPolicy, Stream
from errata.model.technique import Technique
from errata.model.time import HIGHEST


@dataclass(frozen=True, slots=True)
class PlannedCorrection:
    """What a sweep would do for a query."""

    query: str
    revisions: int
    """Corrections and late rows that its results do not contain."""
    technique: Technique
    why: str
    regions: int
    """Regions of its results that would be recomputed."""
    rows: int
    """Rows that would be read, about."""
    all_rows: int
    """Rows that a replay of everything would read, about."""
    refused: Sequence[RefusedRevisions] = ()
    waits: str | None = None
    """What `errata run` would wait for, if it would leave them for now."""
    choice: EngineChoice | None = None
    """The engine that would be used, where there is anything to compute."""


@dataclass(frozen=True, slots=True)
class SweepPlan:
    """What a sweep would do."""

    pending: Mapping[str, int]
    """For each stream the number of pending revisions."""
    unplaced: Mapping[str, int] = field(default_factory=dict)
    """The number of these that do not say where their rows lie, and are not planned."""
    queries: Sequence[PlannedCorrection] = ()


def plan_sweep(
    site: Site, names: Sequence[str] = (), *, technique: Technique = Technique.AUTO, narrowed: bool = True
) -> SweepPlan:
    """What a sweep of these queries and of those that they read would do; of all, if none is named."""
    with pins.hold_pin(site.catalog, commits.newest_commit(site.catalog), "sweep plan") as pin:
        view = CatalogView(site, pin.commit_id)
        due = StepList(view, StepRequest(names, evaluates=False))
        inputs, steps = RunInputs.open(view, due.queries.values()), due.steps()
        counts = {each.name: each.revisions for each in steps if each.kind is StepKind.APPLY}
        waiting = {name: _pending_revisions(site, view.standings[name]) for name in counts}
        planner = _SweepPlanner(inputs, waiting, technique, narrowed)
        found = [planner.plan(each) for each in steps if each.kind is StepKind.CORRECT]
    unplaced = {name: counts[name] - each.count for name, each in waiting.items() if counts[name] > each.count}
    return SweepPlan(counts, unplaced, found)


@dataclass
class _SweepPlanner:
    inputs: RunInputs
    pending: Mapping[str, SourceRevisions]
    technique: Technique
    narrowed: bool
    sequences: dict[str, ReplaySequence] = field(default_factory=dict)

    def plan(self, step: Step) -> PlannedCorrection:
        """What a step would take; those of queries that it reads have been planned."""
        name = step.name
        query, plan = self.inputs.view.queries[name], self.inputs.plans[name]
        state = QueryState.of(query, plan, self.inputs)
        if state.basis is None:
            raise AssertionError("a query without results has nothing to correct")
        revised = list(unread_revisions(state, self.inputs))
        revised += [self.pending[each] for each in step.after if each in self.pending]
        below = {each: self.sequences[each] for each in step.after if each in self.sequences}
        task = state.task(self.inputs)
        scope = scope_of_results(task, state.basis, self.inputs)
        count = sum(each.count for each in revised)
        if query.checked.on_revision is not RevisionPolicy.RESULTS:
            why = f"the query declares on_revision: {query.checked.on_revision.value}"
            return PlannedCorrection(name, count, Technique.NONE, why, 0, 0, 0, waits=step.waits)
        changed_below = [each for other, work in below.items() for each in _result_changes(other, work)]
        aged, no_direct = state.age_limits(self.inputs), why_not_direct(scope, revised)
        changes = [*clusters_to_follow(revised, self.inputs, aged), *changed_below]
        request = TechniqueRequest(
            scope,
            self.inputs,
            aged,
            "results of another query" if below else no_direct,
            lineage_request(task, state.basis, revised, changed_below),
            self.technique,
            self.narrowed,
        )
        chosen = choose_technique(request, changes)
        every = choose_technique(replace(request, lineage=None, technique=Technique.ALL, narrowed=False), changes)
        self.sequences[name] = chosen.sequence
        rows, all_rows = (rows_to_read(self.inputs, each.sequence, scope.until) for each in (chosen, every))
        rows = 0 if chosen.technique is Technique.DIRECT else rows
        regions, refused = len(chosen.sequence.regions), chosen.sequence.refused
        choice = self.inputs.choice(EngineDemand(rows + count, obstacle=task.obstacle))
        return PlannedCorrection(
            name, count, chosen.technique, chosen.why, regions, rows, all_rows, refused, step.waits, choice
        )


def _result_changes(query: str, work: ReplaySequence) -> list[RevisionCluster]:
    """The results of a query that would be recomputed, as clusters of revisions for its readers."""
    return [
        RevisionCluster(query, rows_starting_in(each.interval, each.values, last_end=each.interval.end), 0, 0, 0)
        for each in work.regions
    ]


def _pending_revisions(site: Site, standing: StreamState) -> SourceRevisions:
    """The pending revisions of a stream that say where their rows lie."""
    place = CorrectionContext(site.session, site.catalog, site.warehouse, standing)
    stream = standing.stream
    claimed = claim_pending(place, HIGHEST)
    rows = read_pending(place, claimed)
    names = list(stream.key)
    parts = []
    for column, gone in ((stream.order, False), (old_column(stream.order), True)):
        some = rows.filter(pc.is_valid(rows[column]))
        begins = some[column].cast(pa.int64())
        columns = [*(some[name] for name in names), begins, pa.repeat(HIGHEST, some.num_rows), some[NUMBER]]
        parts.append(pa.table([*columns, pa.repeat(gone, some.num_rows)], [*names, VS, VE, REVISION, OLD_VERSION]))
    came = min((each.added_in for each in claimed), default=standing.changed_in)
    numbers = (standing.applied, standing.revisions, came)
    whole = pa.concat_tables(parts)
    return SourceRevisions(
        stream.name, whole, *numbers, tuple(stream.group), rows, rows, gives=_columns_given(stream, rows)
    )


def _columns_given(stream: Stream, rows: pa.Table) -> dict[int, frozenset[str]]:
    """For the numbers of replacements the columns that they may change."""
    flags = RevisionFlags.by(stream, rows)
    # Columns that only identify the row stay as they are.
    identifying = set(stream.key) | ({stream.order} if stream.key_has_order else set())
    found = {}
    for at, number in enumerate(rows[NUMBER].to_pylist()):
        if not (flags.inserts[at] or flags.deletes[at]):
            columns = zip(stream.names, flags.given[at], flags.claimed[at], strict=True)
            found[number] = frozenset(
                name for name, given, was in columns if given and (was or name not in identifying)
            )
    return found
