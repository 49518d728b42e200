"""What is due for one query as a value: the step, the route, and the revisions and upstream evaluations that it reads.

A task is planned from what is due (`answer.steps`) and the bucket index, without reading rows. Its `basis` is the
results that it continues. It has none where the query has no results, or where others replace them: the query was
edited, results that it reads were replaced, or a person asked for it. The step then begins at the first instant that
can be answered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from errata.answer.due_evaluation import DueEvaluation
from errata.answer.feedback import skipped_to, step_after_skip
from errata.answer.inputs import RunInputs
from errata.answer.step_parts import StepPart, first_part
from errata.answer.unread_changes import unread_corrections, upstream_archives
from errata.catalog.queries import RecordedQuery
from errata.catalog.result_archives import ResultArchive
from errata.engine.budget import EngineDemand
from errata.language.near_support import near_hash_obstacle, near_obstacle
from errata.language.nodes import scans_of
from errata.language.patterns import update_pattern
from errata.language.plan import Plan
from errata.language.plan_text import has_timestamps
from errata.language.rewrite import rewritten_plan
from errata.language.route import Route, RouteKind, choose_route, closing_column
from errata.language.source_reads import first_step, first_whole_instant, first_whole_result, reads_of_step
from errata.model.commit import EvaluationSpan
from errata.model.extent import Extent
from errata.model.query import LineageMode
from errata.model.results import ResultShape, make_shape
from errata.model.time import LOWEST


@dataclass(frozen=True)
class EvaluationTask:
    """One evaluation of a query."""

    query: RecordedQuery
    plan: Plan
    """As it was read."""
    rewritten: Plan
    route: Route
    step: EvaluationSpan
    basis: ResultArchive | None
    """Its results so far, which the step continues; None where there are none."""
    replaces: ResultArchive | None
    """The results of the form that it had before."""
    revisions: Mapping[str, int]
    shape: ResultShape
    begins: int
    """The first instant that is answered."""
    inputs: Mapping[str, int] = field(default_factory=dict)
    """For each query that is read, the last of its evaluations that is taken into account."""
    results_from: int = LOWEST
    """Results that begin earlier may be made of a part of their rows only, and are left out."""
    rows_left: int = 0
    """About how many rows lie behind the step, to which the streams reach already."""
    skips_to: int | None = None
    """Where it continues results that are a feed, and leaves out what the merged stream needs no longer: the first
    instant at which results begin again. See `answer.feedback`."""

    @property
    def span(self) -> EvaluationSpan:
        """The instants from the last one that was answered on, with those that it skips."""
        if self.skips_to is None or self.basis is None:
            return self.step
        return EvaluationSpan(self.basis.frontier, self.step.until)

    @property
    def name(self) -> str:
        return self.query.checked.name

    @property
    def number(self) -> int:
        """Of the evaluation that it will be."""
        return 1 if self.basis is None else self.basis.last.number + 1

    @property
    def kept_names(self) -> dict[str, str]:
        """For the fields of the plan, their names in the results."""
        return dict(zip((each.name for each in self.plan.fields), self.shape.names, strict=True))

    @property
    def anew(self) -> bool:
        """Whether it replaces results of the same form of the query."""
        return self.replaces is not None and self.replaces.query_id == self.query.query_id

    @property
    def closes(self) -> tuple[str, int] | None:
        """A column that holds a beginning, and the span after which a result that has it is final."""
        return closing_column(self.plan, self.route, self.shape)

    def size(self, inputs: RunInputs) -> int:
        """About how many rows it reads."""
        return sum(inputs.size(name, extent, self.step.until) for name, extent in self.reads)

    @cached_property
    def reads(self) -> Sequence[tuple[str, Extent]]:
        """The extents that it reads of each source, one for each part of the read."""
        parts = reads_of_step(self.rewritten, self.route, self.step, beginning=self.basis is None).values()
        return [each for part in parts for each in part.items()]

    def demand(self, inputs: RunInputs) -> EngineDemand:
        """What the step demands of an engine."""
        known = self.basis.rows if self.basis is not None and self.route.kind is RouteKind.NEW_VALUES else 0
        return EngineDemand(self.size(inputs) + known, obstacle=self.obstacle)

    @property
    def obstacle(self) -> str | None:
        """Why the near engine cannot do it, whatever the size; None where it can."""
        hashed = self.query.checked.query.lineage is LineageMode.STORED and self.route.kind is RouteKind.ROW_WINDOWS
        return near_obstacle(self.rewritten) or (near_hash_obstacle(self.route.input) if hashed else None)


def task_for(query: RecordedQuery, plan: Plan, inputs: RunInputs, due: DueEvaluation) -> EvaluationTask | None:
    """The evaluation that is due for a query, planned. None where no instant can be answered, since rows have been
    aged out."""
    rewritten = rewritten_plan(plan)
    aged, basis = _age_limits(plan, inputs), due.basis
    begins = due.begins if basis is not None else max(due.begins, first_whole_instant(plan, aged))
    if begins > due.until:
        return None
    chosen = choose_route(rewritten)
    step = first_step(chosen, begins, due.until) if basis is None else EvaluationSpan(basis.frontier, due.until)
    skips = None if basis is None else skipped_to(query, rewritten, chosen, basis, due.until, inputs)
    if skips is not None:
        step = step_after_skip(skips, due.until)
    # A replacement is one commit: after a part of it the replaced results of later instants would be withdrawn.
    part = StepPart(step)
    if due.replaces is None:
        part = first_part(rewritten, chosen, step, begins, inputs, beginning=basis is None)
    return EvaluationTask(
        query,
        plan,
        rewritten,
        chosen,
        part.step,
        basis,
        due.replaces,
        due.revisions,
        result_shape(plan),
        begins,
        {
            each.name: last_evaluation_read(inputs, each, basis)
            for each in upstream_archives(query.checked.reads, inputs.view)
        },
        first_whole_result(plan, aged) if basis is None else LOWEST if skips is None else skips,
        part.rows_left,
        skips,
    )


def last_evaluation_read(inputs: RunInputs, of: ResultArchive, basis: ResultArchive | None) -> int:
    """The last evaluation of a query that is read that is taken into account: the newest, unless corrections have come
    that the results `basis` have not taken up."""
    unread = [] if basis is None else unread_corrections(of, basis, inputs.view)
    return unread[0].number - 1 if unread else of.last.number


def _age_limits(plan: Plan, inputs: RunInputs) -> dict[str, int | None]:
    """For each stream that a plan reads directly, the place before which rows have been aged out."""
    names = {scan.source.name for scan in scans_of(plan)}
    return {name: inputs.standings[name].aged_to for name in names if name in inputs.standings}


def result_shape(plan: Plan) -> ResultShape:
    """The columns and the kind of a plan's results."""
    fields = [(each.name, each.type, each.hidden) for each in plan.fields]
    return make_shape(fields, plan.key, update_pattern(plan), timed=has_timestamps(plan))
