"""Commits and evaluations: what made each, what it read, what it changed, what it cost; and faults of queries.

Commits are numbered from 1, in the order in which they became visible. An evaluation is a commit that takes a query's
results to a later instant, or corrects them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from errata.model.time import LOWEST, Interval


@dataclass(frozen=True, slots=True)
class Cause:
    """What made a commit: the flow, and what is known about the process that ran it."""

    flow: str
    user: str = ""
    host: str = ""
    dag_id: str = ""
    run_id: str = ""
    task_id: str = ""
    try_number: int | None = None
    spark_app: str = ""

    @property
    def owner(self) -> str:
        """The Airflow task, `dag/run/task/try`; empty for work by hand."""
        if not self.dag_id:
            return ""
        number = "" if self.try_number is None else self.try_number
        return f"{self.dag_id}/{self.run_id}/{self.task_id}/{number}"


@dataclass(frozen=True, slots=True)
class Commit:
    """A commit as the log records it."""

    commit_id: int
    at: int
    cause: Cause
    stream: str | None
    batch_id: str | None
    summary: Mapping[str, object] = field(default_factory=dict)
    """What it did, in counts and ranges, for people and scripts."""


@dataclass(frozen=True, slots=True)
class EvaluationSpan:
    """The instants that an evaluation answers, both ends included. Earlier ones are final; the last one is answered
    again by the next evaluation, since rows of that instant may still come."""

    since: int
    """LOWEST the first time."""
    until: int

    @property
    def first(self) -> bool:
        return self.since == LOWEST

    @property
    def instants(self) -> Interval:
        return Interval(self.since, self.until + 1)


@dataclass(frozen=True, slots=True)
class EvaluationCost:
    """What an evaluation cost, and how many results it published."""

    buckets: int = 0
    rows_read: int = 0
    """Rows in the buckets that were opened."""
    bytes_read: int = 0
    rows_asked: int | None = None
    """About how many of them lie where lineage needs rows."""
    rows: int = 0
    """Results that were published."""
    micros: int = 0
    route: str = ""
    engine: str = ""
    """`near`: the engine in a process on the same machine; `far`: Spark."""
    engine_why: str = ""
    """Why this engine was chosen."""

    def record(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class RefusedRevisions:
    """Revisions that could not be worked into a query's results, and why."""

    source: str
    first: int
    """The numbers of the first and the last of them; for a query as source, numbers of evaluations."""
    last: int
    count: int
    reason: str


def merge_refusals(some: Iterable[RefusedRevisions]) -> tuple[RefusedRevisions, ...]:
    """Merge the refusals with the same source and reason."""
    found: dict[tuple[str, str], RefusedRevisions] = {}
    for each in some:
        known = found.get((each.source, each.reason), replace(each, count=0))
        ends = min(known.first, each.first), max(known.last, each.last)
        found[each.source, each.reason] = RefusedRevisions(each.source, *ends, known.count + each.count, each.reason)
    return tuple(found.values())


@dataclass(frozen=True, slots=True)
class SweepSummary:
    """What a correction of published results has done."""

    technique: str
    why: str
    """Why this technique was chosen, in words."""
    revisions: Mapping[str, tuple[int, int]]
    """For each source the revisions that were worked in: after the first number, up to the second."""
    regions: int = 0
    """The number of regions of the results that were computed again."""
    compared: int = 0
    """The number of results in them."""
    changed: int = 0
    """How many of these were different."""
    refused: Sequence[RefusedRevisions] = ()

    @property
    def refusals(self) -> int:
        """The number of revisions that were refused."""
        return sum(each.count for each in self.refused)

    def record(self) -> dict[str, Any]:
        return {**asdict(self), "revisions": {name: list(ends) for name, ends in self.revisions.items()}}

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> SweepSummary:
        revisions = {name: (ends[0], ends[1]) for name, ends in record["revisions"].items()}
        refused = tuple(RefusedRevisions(**each) for each in record["refused"])
        return cls(**{**record, "revisions": revisions, "refused": refused})


@dataclass(frozen=True, slots=True)
class Evaluation:
    """A committed evaluation: the state of a query's results from then on."""

    number: int
    commit_id: int
    data_commit: int
    """The commit of the streams that it read."""
    step: EvaluationSpan
    revisions: Mapping[str, int]
    """For each stream and relation, the last revision that is worked in."""
    cause: Mapping[str, Any]
    measures: EvaluationCost = field(default_factory=EvaluationCost)
    begins: int = LOWEST
    """Answers are complete from this instant on: rows for earlier ones had been aged out."""
    inputs: Mapping[str, int] = field(default_factory=dict)
    """For each query that is read, the number of its last evaluation that is worked in."""
    correction: SweepSummary | None = None
    """What a correction did; None for an evaluation that goes on to later instants."""

    @property
    def frontier(self) -> int:
        """The last instant that is answered."""
        return self.step.until

    @property
    def is_part(self) -> bool:
        """Whether it answered only a part of the instants that its streams allow; the next one has the same cause."""
        return bool(self.cause.get("part"))


@dataclass(frozen=True, slots=True)
class Fault:
    """Why a query stopped: an expression that cannot be computed for a row."""

    reason: str
    expression: str = ""
    where: str = ""
    """The place of the expression in the query's text, if known."""
    row: Mapping[str, str] = field(default_factory=dict)
    """The key of the row, as text."""
    values: Mapping[str, str] = field(default_factory=dict)
    """The values of the row that the expression reads, as text."""
    vs: int | None = None
    source: str = ""
    """The stream, relation or query of the row, if it is of one."""
    kind: str = ""
    """Which of the three the source is."""

    @property
    def place(self) -> tuple[object, ...]:
        """What tells it from another fault: where and at which row. Faults of which nobody knows that are the same: how
        Spark puts the reason may differ from try to try."""
        if not self.expression:
            return ()
        return (self.expression, self.where, self.source, tuple(sorted(self.row.items())))

    def record(self) -> dict[str, Any]:
        return {**asdict(self), "row": dict(self.row), "values": dict(self.values)}

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Fault:
        return cls(**record)
