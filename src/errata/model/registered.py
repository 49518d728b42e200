"""Registered queries: a standing part, which says which rows belong to the answer, and a window, applied when asked.

A statement is a query's text with its constants taken out; queries that differ only in constants share one. For each
source a statement has a conjunction of factors over one row, which the predicate index matches as rows arrive, and
factors that relate two sources, by which matching rows are joined.

    SELECT a.sym, b.price FROM a, b WHERE a.price > 5 AND a.sym = b.sym BEGIN (NOW - '10 minutes') END (NOW)
           ~~~~~~~~~~~~~~ items           ~ factor      ~ relation      ~ windows

A window is half-open, and NOW is the end of the instant that is asked for: `BEGIN (NOW - '10 minutes') END (NOW)` at t
holds the rows whose order field is greater than t less ten minutes, and at most t, as sliding windows do elsewhere.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from errata.model.columns import Column
from errata.model.time import LOWEST, Interval

Constant = int | float | str | bool | object
"""A constant in the type of the column it is compared with: times as microseconds, dates as days, decimals as
`decimal.Decimal`."""


class Comparison(StrEnum):
    """The comparisons of a factor. NULL compares with nothing; NaN equals NaN and is greater than every number."""

    LESS = "<"
    AT_MOST = "<="
    EQUAL = "="
    AT_LEAST = ">="
    GREATER = ">"


@dataclass(frozen=True, slots=True)
class ConstantFactor:
    """A column compared with a constant."""

    column: str
    comparison: Comparison
    constant: Constant


@dataclass(frozen=True, slots=True)
class MemberFactor:
    """A column that equals one of some constants."""

    column: str
    constants: tuple[Constant, ...]


@dataclass(frozen=True, slots=True)
class NullFactor:
    """A column that is NULL, or is not."""

    column: str
    is_null: bool


@dataclass(frozen=True, slots=True)
class ColumnFactor:
    """A column compared with another one of the same row, plus a constant: `left op right + offset`."""

    left: str
    comparison: Comparison
    right: str
    offset: Constant = 0


Factor = ConstantFactor | MemberFactor | NullFactor | ColumnFactor

Conjunction = tuple[Factor, ...]
"""Factors over the rows of one stream, all of which must be true, in a fixed order; empty: every row."""


@dataclass(frozen=True, slots=True)
class Relation:
    """A factor that relates two sources: `left op right + offset`. Sources are named by their place in FROM."""

    left_source: int
    left: str
    comparison: Comparison
    right_source: int
    right: str
    offset: Constant = 0


@dataclass(frozen=True, slots=True)
class Bound:
    """One end of a window: an event time, or a distance before NOW."""

    relative: bool
    value: int
    """The event time, or the distance: microseconds, or units of a bigint order field."""

    def at(self, now: int) -> int:
        """The first instant that is not before the bound, where NOW is the end of the instant `now`."""
        return max(LOWEST, now + 1 - self.value) if self.relative else self.value


@dataclass(frozen=True, slots=True)
class RegisteredWindow:
    """The rows of one source that an answer is made of: `[begin, end)`, or the last rows before its end."""

    end: Bound
    begin: Bound | None = None
    rows: int | None = None
    """The number of rows of the stream, the youngest before the end, where the window counts rows; `begin` is then
    None."""

    def interval(self, now: int) -> Interval:
        """The window at an event time; what lies after `now` has not happened yet, and is in no window. Of a window
        that counts rows, all that may be counted."""
        return Interval(LOWEST if self.begin is None else self.begin.at(now), min(self.end.at(now), now + 1))


class AggregateFunction(StrEnum):
    COUNT = "count"
    SUM = "sum"
    AVG = "avg"
    MIN = "min"
    MAX = "max"


@dataclass(frozen=True, slots=True)
class OutputItem:
    """A column of the answer: a column of a source, or an aggregate of one."""

    output: Column
    """Its name and type in the answer."""
    source: int = 0
    column: str | None = None
    """None: `count(*)`."""
    function: AggregateFunction | None = None


@dataclass(frozen=True, slots=True)
class RegisteredSource:
    """A stream in FROM."""

    stream: str
    alias: str


@dataclass(frozen=True, slots=True)
class RegisteredPlan:
    """What a registered text says. All of its aggregates, or none of its items are."""

    sources: tuple[RegisteredSource, ...]
    conjunctions: tuple[Conjunction, ...]
    """One for each source."""
    relations: tuple[Relation, ...]
    windows: tuple[RegisteredWindow, ...]
    """One for each source."""
    items: tuple[OutputItem, ...]
    distinct: bool
    statement: str
    """The text without its constants: `?` stands for each."""
    parameters: tuple[Constant, ...]
    """The constants, in the order of the text."""

    @property
    def aggregates(self) -> bool:
        return any(each.function is not None for each in self.items)


class ResultStrategy(StrEnum):
    """How the results of a registered query are kept between invocations."""

    NONE = "none"
    """Not at all: they are computed when asked for."""
    PARTIAL = "partial"
    """Which rows match is kept; the window is applied when asked for."""
    COMPLETE = "complete"
    """The rows of the present window are kept."""


class AnswerRoute(StrEnum):
    """How an answer was come by."""

    SCAN = "scan"
    """Rows were matched on the spot."""
    WINDOW = "window"
    """The window was applied to the rows that are known to match."""
    TREE = "tree"
    """The window was applied to a ranked tree."""
    JOINT = "joint"
    """The window was applied to the rows that are known to match, and the join was made for several queries at once."""
    KEPT = "kept"
    """The present answer had been kept, or was carried on to the newest commit."""


HANDLE = re.compile(r"[a-z2-7]{16}")
"""A handle: 80 random bits, so that nobody finds one by trying."""


@dataclass(frozen=True, slots=True)
class QueryCost:
    """What a registered query has cost so far."""

    rows: int = 0
    """Matching rows in the match segments."""
    size: int = 0
    """Bytes of the match segments; of conjunctions that several queries share, the whole for each."""
    matching_micros: int = 0
    """Microseconds that its conjunctions have been matched for, in the background."""
    invocations: int = 0
    invocation_micros: int = 0
    last_asked: int | None = None

    @property
    def micros(self) -> int:
        """Microseconds of matching and of invocations."""
        return self.matching_micros + self.invocation_micros


@dataclass(frozen=True, slots=True)
class RegisteredQuery:
    """A query that has been registered."""

    handle: str
    number: int
    """Consecutive: a query that became visible later has a greater one."""
    owner: str
    text: str
    plan: RegisteredPlan
    statement_id: int
    streams: tuple[int, ...]
    """The id of each source's stream: one that is dropped and declared again is another one."""
    conjunctions: tuple[int, ...]
    """The number of each source's conjunction."""
    strategy: ResultStrategy
    registered_in: int
    """The commit by which it became visible."""
    registered_at: int
    cost: QueryCost = QueryCost()
