"""Commits: the axis of what Errata knew, and what made each step on it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from errata.model.time import LOWEST, Interval


@dataclass(frozen=True, slots=True)
class Cause:
    """What made a commit: the flow, and everything known about who ran it."""

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
        """The task of a scheduler that does it, `dag/run/task/try`; empty where somebody does it by hand."""
        if not self.dag_id:
            return ""
        number = "" if self.try_number is None else self.try_number
        return f"{self.dag_id}/{self.run_id}/{self.task_id}/{number}"


@dataclass(frozen=True, slots=True)
class Commit:
    """One numbered step of knowledge."""

    commit_id: int
    at: int
    cause: Cause
    stream: str | None
    batch_id: str | None
    summary: Mapping[str, object] = field(default_factory=dict)
    """What it did, in counts and ranges, for people and scripts."""


# Evaluations: how far a query has been answered, from what, and what came of it.


@dataclass(frozen=True, slots=True)
class EvaluationSpan:
    """The instants that an evaluation works out, both ends included. Those before were answered for good; the last one
    is worked out again by the next evaluation, since rows of that instant may still come."""

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
    """What an evaluation cost, and what it brought."""

    buckets: int = 0
    rows_read: int = 0
    """The rows in the buckets that were opened."""
    bytes_read: int = 0
    rows_asked: int | None = None
    """About how many of them lie where lineage asks for rows."""
    rows: int = 0
    """Results that were published."""
    micros: int = 0
    route: str = ""
    engine: str = ""
    """The engine that did the work: `near`, beside the process that ran it, or `far`, Spark."""
    engine_why: str = ""
    """Why that one."""

    def record(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class RefusedRevisions:
    """Revisions that a query's results cannot take up, and why."""

    source: str
    first: int
    """The first of them and the last, by their numbers; of a query that is read, those of its evaluations."""
    last: int
    count: int
    reason: str


def merge_refusals(some: Iterable[RefusedRevisions]) -> tuple[RefusedRevisions, ...]:
    """Refusals of different revisions, those of one source for one reason as one."""
    found: dict[tuple[str, str], RefusedRevisions] = {}
    for each in some:
        known = found.get((each.source, each.reason), replace(each, count=0))
        ends = min(known.first, each.first), max(known.last, each.last)
        found[each.source, each.reason] = RefusedRevisions(each.source, *ends, known.count + each.count, each.reason)
    return tuple(found.values())


@dataclass(frozen=True, slots=True)
class SweepSummary:
    """What an evaluation that corrects what was published has done."""

    technique: str
    why: str
    """Why this technique was taken, in words."""
    revisions: Mapping[str, tuple[int, int]]
    """Of each source the revisions that were taken up: after the one number, up to the other."""
    regions: int = 0
    """How many stretches of the results were worked out again."""
    compared: int = 0
    """How many results lie in them."""
    changed: int = 0
    """How many of these came out different."""
    refused: Sequence[RefusedRevisions] = ()

    @property
    def refusals(self) -> int:
        """How many revisions were refused."""
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
    """An evaluation that has been committed: the query's position from then on."""

    number: int
    commit_id: int
    data_commit: int
    """The state of the streams that it read."""
    step: EvaluationSpan
    revisions: Mapping[str, int]
    """For each stream and relation, the last revision that has a say."""
    cause: Mapping[str, Any]
    measures: EvaluationCost = field(default_factory=EvaluationCost)
    begins: int = LOWEST
    """Answers are whole from this instant on: what would be needed for earlier ones had been aged out."""
    inputs: Mapping[str, int] = field(default_factory=dict)
    """Of each query that is read, the number of its last evaluation that has a say."""
    swept: SweepSummary | None = None
    """Of one that corrects: what it did. Others go on to later instants."""

    @property
    def frontier(self) -> int:
        """The last instant that is answered."""
        return self.step.until

    @property
    def is_part(self) -> bool:
        """Whether it went only a part of the way that its streams reached, and the next one has the same cause."""
        return bool(self.cause.get("part"))


@dataclass(frozen=True, slots=True)
class Fault:
    """Why a query stopped: an expression that cannot be computed for some row."""

    reason: str
    expression: str = ""
    where: str = ""
    """Its place in the query's text, if that is known."""
    row: Mapping[str, str] = field(default_factory=dict)
    """What tells the row from others, as text."""
    values: Mapping[str, str] = field(default_factory=dict)
    """What the expression reads of the row, as text."""
    vs: int | None = None
    source: str = ""
    """The stream, relation or query that the row is of, if it is of one."""
    kind: str = ""
    """Which of the three that is."""

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
