"""What there is to do for a query: how far its streams reach, and how it is taken there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from errata.answer.inputs import RunInputs
from errata.answer.progress import input_watermark, is_behind, limit_to_upstream, revision_to_read
from errata.answer.step_parts import StepPart, first_part
from errata.answer.unread_changes import unread_corrections
from errata.catalog.queries import RecordedQuery
from errata.catalog.result_archives import ResultArchive
from errata.catalog.streams import StreamState
from errata.engine.budget import EngineDemand
from errata.language.near_support import near_hash_obstacle, near_obstacle
from errata.language.nodes import scans_of
from errata.language.patterns import update_pattern
from errata.language.plan import Plan
from errata.language.plan_text import has_timestamps
from errata.language.rewrite import rewritten_plan
from errata.language.route import Route, RouteKind, choose_route, closing_column
from errata.language.source_reads import base_inputs, first_step, first_whole_instant, first_whole_result, reads_of_step
from errata.model.commit import EvaluationSpan
from errata.model.extent import Extent
from errata.model.query import LineageMode
from errata.model.results import ResultShape, make_shape
from errata.model.time import LOWEST


@dataclass(frozen=True)
class EvaluationTask:
    """A query that is behind, and what taking it further needs."""

    query: RecordedQuery
    plan: Plan
    """As it was read."""
    rewritten: Plan
    route: Route
    step: EvaluationSpan
    basis: ResultArchive | None
    """Its results so far; None where this form of the query has none."""
    replaces: ResultArchive | None
    """The results of the form that it had before."""
    revisions: Mapping[str, int]
    shape: ResultShape
    begins: int
    """Its answers are whole from this instant on."""
    inputs: Mapping[str, int] = field(default_factory=dict)
    """Of each query that is read, the number of its last evaluation that has a say."""
    results_from: int = LOWEST
    """Results that begin earlier may be made of a part of their rows only, and are left out."""
    rows_left: int = 0
    """About how many rows lie behind the step, to which the streams reach already."""

    @property
    def name(self) -> str:
        return self.query.checked.name

    @property
    def number(self) -> int:
        """Of the evaluation that it will be."""
        return 1 if self.basis is None else self.basis.last.number + 1

    @property
    def kept_names(self) -> dict[str, str]:
        """By the fields of the plan, the names under which results keep them."""
        return dict(zip((each.name for each in self.plan.fields), self.shape.names, strict=True))

    @property
    def anew(self) -> bool:
        """Whether it takes the place of results that this very form of the query has."""
        return self.replaces is not None and self.replaces.query_id == self.query.query_id

    @property
    def closes(self) -> tuple[str, int] | None:
        """What of the results is final once it has closed."""
        return closing_column(self.plan, self.route, self.shape)

    def size(self, inputs: RunInputs) -> int:
        """About how many rows it reads."""
        return sum(inputs.size(name, reach, self.step.until) for name, reach in self.reads)

    @cached_property
    def reads(self) -> Sequence[tuple[str, Extent]]:
        """The rows that it reads of each source, one time for each part of the step."""
        parts = reads_of_step(self.rewritten, self.route, self.step, beginning=self.basis is None).values()
        return [each for part in parts for each in part.items()]

    def demand(self, inputs: RunInputs) -> EngineDemand:
        """What the step asks of an engine."""
        known = self.basis.rows if self.basis is not None and self.route.kind is RouteKind.NEW_VALUES else 0
        return EngineDemand(self.size(inputs) + known, obstacle=self.obstacle)

    @property
    def obstacle(self) -> str | None:
        """Why the near engine cannot be asked, whatever the size."""
        hashed = self.query.checked.query.lineage is LineageMode.STORED and self.route.kind is RouteKind.ROW_WINDOWS
        return near_obstacle(self.rewritten) or (near_hash_obstacle(self.route.input) if hashed else None)


def task_for(query: RecordedQuery, plan: Plan, inputs: RunInputs, *, anew: bool = False) -> EvaluationTask | None:
    """What there is to do for a query; None where it is as far as its streams reach. `anew`: from the beginning, for an
    archive that takes the place of the one there is."""
    bases = {name: inputs.standings[name] for name in base_inputs(plan)}
    until = limit_to_upstream(input_watermark(bases.values()), upstream_results(inputs, plan))
    if until is None:
        return None
    there = inputs.published.get(query.checked.name)
    ours = there is not None and there.query_id == query.query_id and not anew
    basis = there if ours and not upstream_was_replaced(inputs, plan, there) else None
    revisions = _revisions_to_read(inputs, plan, bases, basis)
    if basis is not None and not _is_due(basis, bases, until, revisions, inputs):
        return None
    rewritten = rewritten_plan(plan)
    begins = _first_instant(query, plan, inputs) if basis is None else basis.last.begins
    if begins is None or begins > until:
        return None
    chosen = choose_route(rewritten)
    step = first_step(chosen, begins, until) if basis is None else EvaluationSpan(basis.frontier, until)
    replaces = there if basis is None else None
    # What takes the place of other results is no part: what they say of later instants would be withdrawn.
    part = StepPart(step)
    if replaces is None:
        part = first_part(rewritten, chosen, step, begins, inputs, beginning=basis is None)
    return EvaluationTask(
        query,
        plan,
        rewritten,
        chosen,
        part.step,
        basis,
        replaces,
        revisions,
        result_shape(plan),
        begins,
        {each.name: last_evaluation_read(inputs, each, basis) for each in upstream_results(inputs, plan)},
        first_whole_result(plan, _age_limits(plan, inputs)) if basis is None else LOWEST,
        part.rows_left,
    )


def last_evaluation_read(inputs: RunInputs, of: ResultArchive, basis: ResultArchive | None) -> int:
    """Up to which evaluation the results of a query that is read have a say: all, unless some have been corrected since
    and the results that were made of them have not."""
    unread = [] if basis is None else unread_corrections(of, basis, inputs)
    return unread[0].number - 1 if unread else of.last.number


def upstream_results(inputs: RunInputs, plan: Plan) -> list[ResultArchive]:
    """The results of the queries that a plan reads itself."""
    return [inputs.published[name] for name in sorted(_upstream_queries(plan)) if name in inputs.published]


def _upstream_queries(plan: Plan) -> set[str]:
    """The queries that a plan reads itself."""
    return {scan.source.name for scan in scans_of(plan) if scan.source.plan is not None}


def upstream_was_replaced(inputs: RunInputs, plan: Plan, there: ResultArchive | None) -> bool:
    """Whether other results have taken the place of those that ours were made of: who goes on would mix the two."""
    return there is not None and any(each.added_in > there.last.commit_id for each in upstream_results(inputs, plan))


def _first_instant(query: RecordedQuery, plan: Plan, inputs: RunInputs) -> int | None:
    """The first instant that is to be answered: not before those that are read answer; None where one of these does not
    yet."""
    read = upstream_results(inputs, plan)
    if len(read) < len(_upstream_queries(plan)):
        return None
    declared = query.checked.query.begins(timed=has_timestamps(plan))
    aged = _age_limits(plan, inputs)
    return max(
        [
            LOWEST if declared is None else declared,
            *(each.last.begins for each in read),
            first_whole_instant(plan, aged),
        ]
    )


def _age_limits(plan: Plan, inputs: RunInputs) -> dict[str, int | None]:
    """Where the streams now begin that a plan reads itself."""
    names = {scan.source.name for scan in scans_of(plan)}
    return {name: inputs.standings[name].aged_to for name in names if name in inputs.standings}


def result_shape(plan: Plan) -> ResultShape:
    """How the results of a plan are kept."""
    fields = [(each.name, each.type, each.hidden) for each in plan.fields]
    return make_shape(fields, plan.key, update_pattern(plan), timed=has_timestamps(plan))


def _is_due(
    basis: ResultArchive, bases: Mapping[str, StreamState], until: int, revisions: Mapping[str, int], inputs: RunInputs
) -> bool:
    """Whether anything has come, or been corrected, that the answer does not contain and that it can go on to."""
    came = {stream_id for stream_id, _, _ in inputs.batches_since(basis.last.data_commit)}
    return is_behind(basis, bases.values(), until, came) or revisions != basis.last.revisions


def _revisions_to_read(
    inputs: RunInputs, plan: Plan, bases: Mapping[str, StreamState], basis: ResultArchive | None
) -> dict[str, int]:
    """Up to which revision each stream is read: no further than by the queries that are read, or two pasts would be
    mixed."""
    queries = upstream_results(inputs, plan)
    read = {scan.source.name for scan in scans_of(plan)}
    waits = basis is not None and any(unread_corrections(each, basis, inputs) for each in queries)
    found = {}
    for name, each in bases.items():
        told = [other.last.revisions[name] for other in queries if name in other.last.revisions]
        # What is read through queries alone is known as far as they know it, once their corrections are taken up.
        through = name not in read and bool(told) and not waits
        own = (
            []
            if through
            else [_stream_revision(inputs, each, None if basis is None else basis.last.revisions.get(name), basis)]
        )
        found[name] = min([*own, *told])
    return found


def _stream_revision(inputs: RunInputs, of: StreamState, known: int | None, basis: ResultArchive | None) -> int:
    """Up to which revision a stream could be read."""
    if basis is None or known is None or known >= of.applied:
        return of.applied if known is None else known
    return revision_to_read(of, inputs.overlays(of), known, basis.frontier)
