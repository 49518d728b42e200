"""A query's turn in a round: what there is to do for it, how large that is, and what came of it.

Turns of similar size are worked on together, since Spark is set up differently for large and for small work: see
`batches_by_size`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from errata.answer.correction_plan import CorrectionPlan
from errata.answer.evaluation import LOCAL_STEP_ROWS
from errata.answer.evaluation_commit import EvaluationOutcome
from errata.answer.inputs import RunInputs
from errata.answer.task import EvaluationTask
from errata.catalog.leases import LeaseHolder
from errata.catalog.queries import RecordedQuery
from errata.engine.budget import EngineKind
from errata.errors import ErrataError
from errata.language.route import RouteKind
from errata.model.commit import Fault
from errata.model.extent import Extent
from errata.model.technique import Technique

SMALL_JOB_SETTINGS: Mapping[str, str] = {"spark.sql.adaptive.enabled": "false"}
"""Spark settings for small work: adaptive planning of each stage takes longer than the stages themselves."""

TINY_ROWS = 50_000
"""Rows read by a step up to which it is interpreted, by one task: see `TINY_JOB_SETTINGS`."""

TINY_JOB_SETTINGS: Mapping[str, str] = {
    **SMALL_JOB_SETTINGS,
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
"""Spark settings for tiny work. Generating and compiling Java takes longer than it saves, and is never reused: the
instants in the code differ in each step."""


@dataclass
class QueryTurn:
    """The steps that are due for a query."""

    query: RecordedQuery
    correction: CorrectionPlan | None
    task: EvaluationTask | None
    """The evaluation, as planned before the correction is made."""

    @property
    def name(self) -> str:
        return self.query.checked.name

    @property
    def idle(self) -> bool:
        return self.correction is None and self.task is None

    def needs_spark(self, inputs: RunInputs) -> bool:
        """Whether a step is certain to need the far engine."""
        demands = [] if self.task is None else [self.task.demand(inputs)]
        if self.correction is not None and self.correction.technique is not Technique.NONE:
            demands.append(self.correction.demand(inputs))
        return any(inputs.choice(each).engine is EngineKind.FAR for each in demands)

    @property
    def reads(self) -> Iterator[tuple[str, Sequence[Extent], int]]:
        """The sources that are read, their extents, and the last instant of the step."""
        if self.correction is not None and self.correction.technique not in (Technique.NONE, Technique.DIRECT):
            yield from (
                (name, some, self.correction.task.step.until) for name, some in self.correction.sequence.reads.items()
            )
        if self.task is not None:
            yield from ((name, [extent], self.task.step.until) for name, extent in self.task.reads)

    def size(self, inputs: RunInputs) -> int:
        """About how many rows the larger step reads."""
        return max(each.size(inputs) for each in (self.correction, self.task) if each is not None)

    @property
    def compares_many(self) -> bool:
        """Whether many rows may be compared with many, however few are read."""
        task = self.task if self.correction is None else self.correction.task
        return task is not None and task.route.kind is RouteKind.RECOMPUTED


@dataclass
class TurnOutcome:
    """The outcome of a turn."""

    evaluations: list[EvaluationOutcome] = field(default_factory=list)
    fault: Fault | None = None
    error: ErrataError | None = None
    """Why a step failed for another reason than its rows: a retry may succeed."""
    busy: bool = False
    holder: LeaseHolder | None = None
    """The other runner that works on the query."""

    @property
    def halted(self) -> bool:
        """Whether no further step can be taken now."""
        return self.busy or self.fault is not None or self.error is not None


def lease_name(turn: QueryTurn) -> str:
    """The name of the lease on a turn's query."""
    return f"query {turn.name}"


def batches_by_size(turns: Sequence[QueryTurn], inputs: RunInputs) -> list[tuple[list[QueryTurn], Mapping[str, str]]]:
    """Turns of like size, each with Spark's settings for it: large ones first, for which Spark plans adaptively."""
    sizes = {each.name: each.size(inputs) for each in turns}
    large = [each for each in turns if sizes[each.name] > LOCAL_STEP_ROWS]
    tiny = [each for each in turns if sizes[each.name] <= TINY_ROWS and not each.compares_many]
    small = [each for each in turns if each not in large and each not in tiny]
    classes: list[tuple[list[QueryTurn], Mapping[str, str]]] = [
        (large, {}),
        (small, SMALL_JOB_SETTINGS),
        (tiny, TINY_JOB_SETTINGS),
    ]
    return [(some, conf) for some, conf in classes if some]
