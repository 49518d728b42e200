"""The correction of one query as data: which changes its results take up, by which technique, from which rows, and why.

A plan is made from the catalog and the bucket index; rows of the sources are not read for it, only those of the
changes. The techniques are those of replay-revisions, 2008, sections 2.1 and 3.2. See `answer.correction` for how a
plan is carried out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import assert_never

import pyarrow.compute as pc

from errata.answer import replay_sequence
from errata.answer.inputs import RunInputs
from errata.answer.lineage_lookup import LineageRequest, cheaper_sequence, lineage_request, rows_to_read
from errata.answer.query_state import QueryState, scope_of_results, state_impact, unread_revisions
from errata.answer.replay_sequence import ReplaySequence, ResultScope
from errata.answer.source_revisions import (
    MAX_CLUSTERS,
    MAX_SINGLE_VERSIONS,
    RevisionCluster,
    SourceRevisions,
    cluster_revisions,
)
from errata.answer.task import EvaluationTask
from errata.answer.unread_changes import has_newer_rows, upstream_archives
from errata.archive.upkeep.retention import unrecoverable_sources
from errata.catalog.queries import RecordedQuery
from errata.catalog.result_archives import ResultArchive
from errata.engine.budget import EngineDemand
from errata.language.incremental import adjustment_obstacle
from errata.language.nodes import scans_of
from errata.language.plan import Plan
from errata.language.source_reads import AgeLimits
from errata.model.commit import RefusedRevisions
from errata.model.extent import Extent, ExtentAxis
from errata.model.results import VS
from errata.model.stream import RevisionPolicy
from errata.model.technique import Technique
from errata.model.time import HIGHEST, Interval

MIN_CLUSTERS = 8
"""Clusters of a source's revisions that are followed apart even where few rows lie between them."""

ROWS_PER_CLUSTER = 2_000
"""Rows of a source for each cluster of its revisions that is followed apart. Following one through a plan of ten
operators takes about 0.3 ms, in which either engine reads about as many rows."""


@dataclass(frozen=True)
class TechniqueChoice:
    """How results are recomputed, from which rows, and why so."""

    technique: Technique
    sequence: ReplaySequence
    why: str


@dataclass(frozen=True)
class TechniqueRequest:
    """What decides about the technique, beside the revisions."""

    scope: ResultScope
    inputs: RunInputs
    aged: AgeLimits
    no_direct: str | None
    """Why results cannot be adjusted directly; None where they can."""
    lineage: LineageRequest | None = None
    """What stored lineage can be asked, where it is kept."""
    technique: Technique = Technique.AUTO
    """The technique that was asked for."""
    narrowed: bool = True
    """Whether to replay all means all rows of the groups that are touched, and not all rows."""


def choose_technique(request: TechniqueRequest, changes: Sequence[RevisionCluster]) -> TechniqueChoice:
    """The technique for some changes: stored lineage is used where it asks for fewer rows than derived lineage."""
    found = _by_derived_lineage(request, changes)
    if request.lineage is None or request.technique not in (Technique.AUTO, Technique.MINIMAL):
        return found
    less = cheaper_sequence(request.scope, request.lineage, request.inputs, found.sequence, request.aged)
    return found if less is None else TechniqueChoice(Technique.MINIMAL, *less)


def _by_derived_lineage(request: TechniqueRequest, changes: Sequence[RevisionCluster]) -> TechniqueChoice:
    least = replay_sequence.sequence_for_changes(request.scope, changes, request.aged)
    match request.technique:
        case Technique.AUTO:
            return _cheapest(request, least)
        case Technique.ALL:
            return _all_rows(request, least)
        case Technique.MINIMAL:
            return TechniqueChoice(Technique.MINIMAL, least, "it was asked for")
        case Technique.DIRECT:
            if request.no_direct is None:
                return TechniqueChoice(Technique.DIRECT, least, "it was asked for")
            return TechniqueChoice(Technique.MINIMAL, least, f"not direct: {request.no_direct}")
        case Technique.NONE:
            raise AssertionError("results that are not corrected need no technique")
        case _:
            assert_never(request.technique)


def _cheapest(request: TechniqueRequest, least: ReplaySequence) -> TechniqueChoice:
    if request.no_direct is None:
        return TechniqueChoice(Technique.DIRECT, least, "it reads no rows")
    whole = _full_sequence(request, least)
    some, every = (rows_to_read(request.inputs, each, request.scope.until) for each in (least, whole))
    if whole is not least and some >= every > 0:
        return TechniqueChoice(Technique.ALL, whole, "what is touched is made of all rows")
    return TechniqueChoice(Technique.MINIMAL, least, f"not direct: {request.no_direct}")


def _all_rows(request: TechniqueRequest, least: ReplaySequence) -> TechniqueChoice:
    whole = _full_sequence(request, least)
    if whole is least and least.regions:
        why = "rows of earlier results have been aged out, so not all can be replayed"
        return TechniqueChoice(Technique.MINIMAL, least, why)
    return TechniqueChoice(Technique.ALL, whole, "it was asked for")


def _full_sequence(request: TechniqueRequest, least: ReplaySequence) -> ReplaySequence:
    return replay_sequence.full_sequence(request.scope, least, request.aged, narrowed=request.narrowed)


def clusters_to_follow(revised: Iterable[SourceRevisions], inputs: RunInputs, aged: AgeLimits) -> list[RevisionCluster]:
    """The clusters of revisions that lineage follows. They are few where few rows lie between the first and the last,
    since following one takes as long as reading some thousands of rows. They are many where rows have been aged out,
    since a cluster that reaches behind these is refused whole."""
    is_aged = any(place is not None for place in aged.values())

    def clusters_of(each: SourceRevisions) -> tuple[SourceRevisions, list[RevisionCluster]]:
        return each, cluster_revisions(each, MAX_CLUSTERS if is_aged else _cluster_limit(each, inputs))

    # The revisions are kept with their clusters, so that their id is not used again.
    return [one for each in revised for one in inputs.once((id(each), is_aged), partial(clusters_of, each))[1]]


def _cluster_limit(revised: SourceRevisions, inputs: RunInputs) -> int:
    """How many clusters of a source are followed apart."""
    if revised.rows.num_rows <= MAX_SINGLE_VERSIONS:
        return MAX_CLUSTERS
    begins = pc.min_max(revised.rows[VS])
    hull = Interval(begins["min"].as_py(), begins["max"].as_py() + 1)
    rows = inputs.size(revised.source, Extent(ExtentAxis.START, hull), HIGHEST - 1)
    return min(MAX_CLUSTERS, max(MIN_CLUSTERS, rows // ROWS_PER_CLUSTER))


def why_not_direct(scope: ResultScope, revised: Iterable[SourceRevisions]) -> str | None:
    """Why results cannot be adjusted by what was revised; None where they can."""
    route, plan = scope.route, scope.plan
    if route.partial is None or not route.keeps_parts:
        why = None if route.partial is None else adjustment_obstacle(route.partial)
        return why or "its results are no sums, counts or extremes of windows that have closed"
    if any(each.after is None for each in revised) or any(each.source.plan is not None for each in scans_of(plan)):
        return "it reads results of another query"
    return None


@dataclass(frozen=True)
class CorrectionPlan:
    """What a query's results take up, and how."""

    task: EvaluationTask
    """The query, its results so far, and the revisions up to which it will have read its streams."""
    basis: ResultArchive
    inputs: Mapping[str, int]
    """For each query that is read, the last of its evaluations that is taken into account."""
    revisions: Sequence[SourceRevisions]
    scope: ResultScope
    sequence: ReplaySequence
    technique: Technique
    why: str
    keeps_state: bool
    data_commit: int
    aged: Mapping[str, int | None] = field(default_factory=dict)
    """Before which place rows of the sources have been aged out."""
    patches_state: bool = False
    """Whether rows in the route's state are corrected there."""

    @property
    def name(self) -> str:
        return self.task.name

    def size(self, inputs: RunInputs) -> int:
        """About how many rows are read."""
        return rows_to_read(inputs, self.sequence, self.task.step.until)

    def demand(self, inputs: RunInputs) -> EngineDemand:
        """What the correction demands of an engine."""
        revised = sum(each.rows.num_rows for each in self.revisions)
        return EngineDemand(self.size(inputs) + revised, obstacle=self.task.obstacle)


def plan_correction(
    query: RecordedQuery,
    plan: Plan,
    inputs: RunInputs,
    technique: Technique = Technique.AUTO,
    *,
    narrowed: bool = True,
) -> CorrectionPlan | None:
    """What there is to correct of a query's results; None where nothing is. `narrowed`: see `TechniqueRequest`."""
    state = QueryState.of(query, plan, inputs)
    revised = list(unread_revisions(state, inputs))
    basis = state.basis
    if basis is None or not revised:
        return None
    task = state.task(inputs)
    scope = scope_of_results(task, basis, inputs)
    aged = state.age_limits(inputs)
    if query.checked.on_revision is RevisionPolicy.RESULTS:
        lineage, no_direct = lineage_request(task, basis, revised), why_not_direct(scope, revised)
        request = TechniqueRequest(scope, inputs, aged, no_direct, lineage, technique, narrowed)
        chosen = choose_technique(request, clusters_to_follow(revised, inputs, aged))
    else:
        why = f"the query declares on_revision: {query.checked.on_revision.value}: what was published stays"
        chosen = TechniqueChoice(Technique.NONE, ReplaySequence((), {}), why)
    sequence = chosen.sequence
    impact = state_impact(scope, task, basis, inputs, revised)
    if is_lost := impact.wrong and _is_state_unrecoverable(task, basis, inputs):
        sequence = replace(sequence, refused=(*sequence.refused, *_state_refusals(revised, sequence.refused)))
    # State that is rebuilt needs no patching.
    patches = impact.patched and (is_lost or not impact.wrong)
    return CorrectionPlan(
        task,
        basis,
        {each.name: each.last.number for each in upstream_archives(state.read, inputs.view)},
        revised,
        scope,
        sequence,
        chosen.technique,
        chosen.why,
        (is_lost or not impact.wrong) and not patches,
        basis.last.data_commit if has_newer_rows(basis, inputs.view) else inputs.commit_id,
        aged,
        patches,
    )


def _is_state_unrecoverable(task: EvaluationTask, basis: ResultArchive, inputs: RunInputs) -> bool:
    """Whether the route's state could not be rebuilt, since rows that it was made of have been aged out. It then stays
    as it is, as do the results that were made of these rows."""
    return bool(unrecoverable_sources(inputs.site.catalog, task.rewritten, task.route, basis))


def _state_refusals(
    revised: Iterable[SourceRevisions], known: Iterable[RefusedRevisions]
) -> Iterator[RefusedRevisions]:
    """Refusals of revisions that the route's state cannot take up: rows that it was made of have been aged out."""
    refused = {each.source for each in known}
    for each in revised:
        if each.source not in refused:
            why = "what is kept for later answers is made of rows that have been aged out, too, and stays as it is"
            yield RefusedRevisions(each.source, each.since + 1, each.up_to, each.count, why)


def plan_replay(
    query: RecordedQuery, plan: Plan, inputs: RunInputs, interval: Interval, technique: Technique
) -> CorrectionPlan:
    """A range of a query's results recomputed from the rows that they were made of."""
    state = QueryState.of(query, plan, inputs)
    basis = state.basis
    if basis is None:
        raise AssertionError("a query without results has nothing to replay")
    task = replace(state.task(inputs), revisions=basis.last.revisions)
    scope, aged = scope_of_results(task, basis, inputs), state.age_limits(inputs)
    least = replay_sequence.sequence_for_interval(scope, interval, aged)
    chosen = TechniqueChoice(Technique.MINIMAL, least, "only the range is read")
    if technique is Technique.ALL:
        # All rows are read, and only the results of the range are compared.
        whole = replay_sequence.full_sequence(scope, least, aged, narrowed=False)
        chosen = TechniqueChoice(Technique.ALL, replace(least, reads=whole.reads), "it was asked for")
    # Where results come out different, the state may be wrong, too.
    keeps_state = _is_state_unrecoverable(task, basis, inputs)
    return CorrectionPlan(
        task,
        basis,
        basis.last.inputs,
        (),
        scope,
        chosen.sequence,
        chosen.technique,
        chosen.why,
        keeps_state,
        basis.last.data_commit,
    )
