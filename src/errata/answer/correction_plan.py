"""Which technique works out again what revisions touch of a query's results."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

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
from errata.answer.task import EvaluationTask, upstream_results
from errata.answer.unread_changes import has_newer_rows
from errata.archive.upkeep.retention import unrecoverable_sources
from errata.catalog.queries import RecordedQuery
from errata.catalog.result_archives import ResultArchive
from errata.engine.budget import EngineDemand
from errata.language.incremental import adjustment_obstacle
from errata.language.nodes import scans_of
from errata.language.plan import Plan
from errata.model.commit import RefusedRevisions
from errata.model.extent import Extent, ExtentAxis
from errata.model.results import VS
from errata.model.stream import RevisionPolicy
from errata.model.technique import Technique
from errata.model.time import HIGHEST, Interval

MIN_CLUSTERS = 8
"""Changes of a source that are told apart however few rows there are."""

ROWS_PER_CLUSTER = 2_000
"""Rows for each change that is told apart. To follow one through a plan of ten operators takes some 0.3 ms, in which
either engine reads about as many."""


def choose_technique(
    of: ResultScope,
    revised: Sequence[SourceRevisions],
    inputs: RunInputs,
    technique: Technique,
    aged: Mapping[str, int | None],
    wanted: LineageRequest | None,
    *,
    narrowed: bool,
) -> tuple[Technique, ReplaySequence, str]:
    """The technique, what it reads, and why it is this one. `wanted`: what can be asked of stored lineage."""
    changes = clusters_to_follow(revised, inputs, aged)
    no_direct = why_not_direct(of, revised)
    return technique_for_changes(of, changes, inputs, technique, aged, no_direct, wanted, narrowed=narrowed)


def clusters_to_follow(
    revised: Iterable[SourceRevisions], inputs: RunInputs, aged: Mapping[str, int | None]
) -> list[RevisionCluster]:
    """The changes that lineage follows. Where few rows lie between the first and the last, they are few: to follow one
    through a plan takes longer than to read some thousands of rows. Where rows have been aged out they are many, since
    a change that reaches behind that is refused whole."""
    is_aged = any(place is not None for place in aged.values())

    def gathered(each: SourceRevisions) -> tuple[SourceRevisions, list[RevisionCluster]]:
        return each, cluster_revisions(each, MAX_CLUSTERS if is_aged else _cluster_limit(each, inputs))

    # With what they were made of, or another one could come to have its id.
    return [one for each in revised for one in inputs.once((id(each), is_aged), partial(gathered, each))[1]]


def _cluster_limit(revised: SourceRevisions, inputs: RunInputs) -> int:
    """How many changes are told apart."""
    if revised.rows.num_rows <= MAX_SINGLE_VERSIONS:
        return MAX_CLUSTERS
    begins = pc.min_max(revised.rows[VS])
    hull = Interval(begins["min"].as_py(), begins["max"].as_py() + 1)
    rows = inputs.size(revised.source, Extent(ExtentAxis.START, hull), HIGHEST - 1)
    return min(MAX_CLUSTERS, max(MIN_CLUSTERS, rows // ROWS_PER_CLUSTER))


def why_not_direct(of: ResultScope, revised: Iterable[SourceRevisions]) -> str | None:
    """Why results cannot be adjusted by what was revised; None: they can."""
    if of.route.partial is None or not of.route.keeps_parts:
        why = None if of.route.partial is None else adjustment_obstacle(of.route.partial)
        return why or "its results are no sums, counts or extremes of windows that have closed"
    if any(each.after is None for each in revised) or any(each.source.plan is not None for each in scans_of(of.plan)):
        return "it reads results of another query"
    return None


def technique_for_changes(
    of: ResultScope,
    changes: Sequence[RevisionCluster],
    inputs: RunInputs,
    technique: Technique,
    aged: Mapping[str, int | None],
    no_direct: str | None,
    wanted: LineageRequest | None = None,
    *,
    narrowed: bool = True,
) -> tuple[Technique, ReplaySequence, str]:
    """The same for changes that are known; `no_direct`: why results cannot be adjusted, if they cannot."""
    found = _by_derived_lineage(of, changes, inputs, technique, aged, no_direct, narrowed=narrowed)
    if wanted is None or technique not in (Technique.AUTO, Technique.MINIMAL):
        return found
    less = cheaper_sequence(of, wanted, inputs, found[1], aged)
    return found if less is None else (Technique.MINIMAL, *less)


def _by_derived_lineage(
    of: ResultScope,
    changes: Sequence[RevisionCluster],
    inputs: RunInputs,
    technique: Technique,
    aged: Mapping[str, int | None],
    no_direct: str | None,
    *,
    narrowed: bool,
) -> tuple[Technique, ReplaySequence, str]:
    """The same by derived lineage alone."""
    if technique in (Technique.AUTO, Technique.DIRECT) and no_direct is None:
        asked = "it was asked for" if technique is Technique.DIRECT else "it reads no rows"
        return Technique.DIRECT, replay_sequence.sequence_for_changes(of, changes, aged), asked
    least = replay_sequence.sequence_for_changes(of, changes, aged)
    if technique is Technique.ALL:
        whole = replay_sequence.full_sequence(of, least, aged, narrowed=narrowed)
        if whole is least and least.regions:
            return Technique.MINIMAL, least, "rows of earlier results have been aged out, so not all can be replayed"
        return Technique.ALL, whole, "it was asked for"
    if technique is Technique.MINIMAL:
        return Technique.MINIMAL, least, "it was asked for"
    whole = replay_sequence.full_sequence(of, least, aged, narrowed=narrowed)
    some, every = (rows_to_read(inputs, each, of.until) for each in (least, whole))
    if technique is Technique.AUTO and whole is not least and some >= every > 0:
        return Technique.ALL, whole, "what is touched is made of all rows"
    return Technique.MINIMAL, least, f"not direct: {no_direct}"


# What a query's results have still to take up of what has been revised: which rows, which of its results these touch,
# and what working them out again takes.


@dataclass(frozen=True)
class CorrectionPlan:
    """Revisions that a query's results take up."""

    task: EvaluationTask
    """The query, where it stands, and the revisions up to which it will have read its streams."""
    basis: ResultArchive
    inputs: Mapping[str, int]
    """Of each query that is read, the evaluation up to which its results have a say."""
    revisions: Sequence[SourceRevisions]
    scope: ResultScope
    sequence: ReplaySequence
    technique: Technique
    why: str
    keeps_state: bool
    data_commit: int
    aged: Mapping[str, int | None] = field(default_factory=dict)
    """Where the sources now begin that are read."""
    patches_state: bool = False
    """Whether rows of what the strategy kept are put right in it."""

    @property
    def name(self) -> str:
        return self.task.name

    @property
    def cannot_wait(self) -> bool:
        """Whether the query would go on from rows that it has not seen: results that another query has corrected, and
        versions of relations that came late, are there for whoever reads, and cannot be left out as revisions are."""
        return any(each.after is None or each.came_late for each in self.revisions)

    def size(self, inputs: RunInputs) -> int:
        """About how many rows it reads."""
        return rows_to_read(inputs, self.sequence, self.task.step.until)

    def demand(self, inputs: RunInputs) -> EngineDemand:
        """What the correction asks of an engine."""
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
    """What there is to correct of a query's results; None where nothing is. `narrowed`: to replay all means all rows of
    the groups that are touched."""
    stands = QueryState.of(query, plan, inputs)
    revised = list(unread_revisions(stands, inputs))
    basis = stands.basis
    if basis is None or not revised:
        return None
    task = stands.task(inputs)
    of = scope_of_results(task, basis, inputs)
    aged = stands.age_limits(inputs)
    if query.checked.on_revision is RevisionPolicy.RESULTS:
        wanted = lineage_request(task, basis, revised)
        technique, needed, why = choose_technique(of, revised, inputs, technique, aged, wanted, narrowed=narrowed)
    else:
        needed, technique = ReplaySequence((), {}), Technique.NONE
        why = f"the query declares on_revision: {query.checked.on_revision.value}: what was published stays"
    becomes = state_impact(of, task, basis, inputs, revised)
    if is_lost := becomes.wrong and _is_state_unrecoverable(task, basis, inputs):
        needed = replace(needed, refused=(*needed.refused, *_state_refusals(revised, needed.refused)))
    # What is made anew needs no patching.
    patches = becomes.patched and (is_lost or not becomes.wrong)
    return CorrectionPlan(
        task,
        basis,
        {each.name: each.last.number for each in upstream_results(inputs, plan)},
        revised,
        of,
        needed,
        technique,
        why,
        (is_lost or not becomes.wrong) and not patches,
        basis.last.data_commit if has_newer_rows(basis, inputs) else inputs.commit_id,
        aged,
        patches,
    )


def _is_state_unrecoverable(task: EvaluationTask, basis: ResultArchive, inputs: RunInputs) -> bool:
    """Whether what the strategy keeps could not be made anew, since rows that it was made of have been aged out: then
    it stays as it is, as the results do that were made of them."""
    return bool(unrecoverable_sources(inputs.site.catalog, task.rewritten, task.route, basis))


def _state_refusals(
    revised: Iterable[SourceRevisions], known: Iterable[RefusedRevisions]
) -> Iterator[RefusedRevisions]:
    """Revisions that reach what is kept for answers to come, of which rows have been aged out."""
    told = {each.source for each in known}
    for each in revised:
        if each.source not in told:
            why = "what is kept for later answers is made of rows that have been aged out, too, and stays as it is"
            yield RefusedRevisions(each.source, each.since + 1, each.up_to, each.count, why)


def plan_replay(
    query: RecordedQuery, plan: Plan, inputs: RunInputs, interval: Interval, technique: Technique
) -> CorrectionPlan:
    """A range of a query's results to be worked out again from what they were made of."""
    stands = QueryState.of(query, plan, inputs)
    basis = stands.basis
    if basis is None:
        raise AssertionError("what has no results has nothing to replay")
    task = replace(stands.task(inputs), revisions=basis.last.revisions)
    of = scope_of_results(task, basis, inputs)
    needed, by, why = (
        replay_sequence.sequence_for_interval(of, interval, stands.age_limits(inputs)),
        Technique.MINIMAL,
        "only the range is read",
    )
    if technique is Technique.ALL:
        # All rows are read, and the results of the range are looked at.
        whole = replay_sequence.full_sequence(of, needed, stands.age_limits(inputs), narrowed=False)
        needed, by, why = replace(needed, reads=whole.reads), Technique.ALL, "it was asked for"
    # Where results come out different, what is kept may be wrong, too.
    is_kept = _is_state_unrecoverable(task, basis, inputs)
    return CorrectionPlan(task, basis, basis.last.inputs, (), of, needed, by, why, is_kept, basis.last.data_commit)
