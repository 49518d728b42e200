"""Evaluations: how far a query has been answered, from what, and what came of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from errata.model.interval import LOWEST, Interval


@dataclass(frozen=True, slots=True)
class Step:
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
class Measures:
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

    def record(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Evaluation:
    """An evaluation that has been committed: the query's position from then on."""

    number: int
    commit_id: int
    data_commit: int
    """The state of the streams that it read."""
    step: Step
    revisions: Mapping[str, int]
    """For each stream and relation, the last revision that has a say."""
    cause: Mapping[str, Any]
    measures: Measures = field(default_factory=Measures)
    begins: int = LOWEST
    """Answers are whole from this instant on: what would be needed for earlier ones had been aged out."""

    @property
    def frontier(self) -> int:
        """The last instant that is answered."""
        return self.step.until


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

    def record(self) -> dict[str, Any]:
        return {**asdict(self), "row": dict(self.row), "values": dict(self.values)}

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Fault:
        return cls(**record)
