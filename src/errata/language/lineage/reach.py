"""Regions of a node's rows, and how far in time rows are from those that they were made of.

A change or an output has its place in time in one of two ways. Where rows happened and their ends follow from their
beginnings, it is told by the beginnings of whole rows. Elsewhere rows may begin, end or differ at some instants because
of others, and it is told by these instants.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from errata.language.expr import EQUAL, SAME, Call, Expr, conjuncts, sql
from errata.language.lineage.equalities import Values, merged, whole_number
from errata.language.nodes import (
    Distinct,
    Filter,
    Group,
    Intersect,
    Join,
    Negation,
    Project,
    RelationJoin,
    Scan,
    Sliding,
    SlidingRows,
    Union,
)
from errata.language.plan import Plan, PlanError, fact
from errata.language.times import timing
from errata.model.interval import EVERYTHING, HIGHEST, LOWEST, Interval


class Axis(StrEnum):
    """How a region lies in time."""

    START = "start"
    """Whole rows, by where they begin."""
    INSTANT = "instant"
    """What the answer says at instants: rows, as far as they count then."""


@dataclass(frozen=True, slots=True)
class Region:
    """Rows of a node: those in an interval whose columns have certain constants, NULL being a constant too."""

    axis: Axis
    interval: Interval = EVERYTHING
    values: Values = field(default_factory=dict)
    during: Interval = EVERYTHING
    """Of whole rows, while a region is followed through a plan: they count at no instants but these."""

    @property
    def empty(self) -> bool:
        return self.interval.empty or self.during.empty

    @property
    def told(self) -> Region:
        """The region for those who only ask where its rows lie."""
        return replace(self, during=EVERYTHING)


@dataclass(frozen=True, slots=True)
class Span:
    """How much later one time is than another, from low to high, both included; LOWEST and HIGHEST are no bounds."""

    low: int = LOWEST
    high: int = HIGHEST

    def __add__(self, other: Span) -> Span:
        return Span(plus(self.low, other.low), plus(self.high, other.high))

    def __neg__(self) -> Span:
        return Span(_opposite(self.high), _opposite(self.low))

    def __and__(self, other: Span) -> Span:
        return Span(max(self.low, other.low), min(self.high, other.high))

    def __or__(self, other: Span) -> Span:
        return Span(min(self.low, other.low), max(self.high, other.high))

    @property
    def empty(self) -> bool:
        return self.low > self.high

    @property
    def not_before(self) -> Span:
        """How much later than the one time the later one of the two is."""
        return Span(max(0, self.low), max(0, self.high))

    def after(self, interval: Interval) -> Interval:
        """The times so much later than any in the interval."""
        return Interval(plus(interval.start, self.low), plus(interval.end, self.high))

    def before(self, interval: Interval) -> Interval:
        """The times so much earlier than any in the interval."""
        return (-self).after(interval)


NEVER = Span(HIGHEST, LOWEST)


def plus(moment: int, by: int) -> int:
    """A sum in which LOWEST and HIGHEST stand for no bound."""
    for each in (moment, by):
        if each in (LOWEST, HIGHEST):
            return each
    return max(LOWEST, min(HIGHEST, moment + by))


def _opposite(moment: int) -> int:
    return {LOWEST: HIGHEST, HIGHEST: LOWEST}.get(moment, -moment)


def common(one: Interval, other: Interval) -> Interval:
    """What lies in both intervals."""
    return Interval(max(one.start, other.start), min(one.end, other.end))


@fact
def axis(plan: Plan) -> Axis:
    """How regions of the node's rows lie in time."""
    match plan:
        case Scan() | Group():
            return Axis.START if timing(plan).happened else Axis.INSTANT
        case Sliding() | Filter() | Project():
            return axis(plan.input)
        case RelationJoin(retroactive=False):
            return axis(plan.left)
        case Join() | Union():
            starts = all(axis(each) is Axis.START for each in plan.inputs)
            return Axis.START if starts else Axis.INSTANT
        case RelationJoin() | SlidingRows() | Distinct() | Intersect() | Negation():
            return Axis.INSTANT
    raise PlanError(f"how rows of {type(plan).__name__} lie in time is not known")


def row_by_row(plan: Plan) -> bool:
    """Whether each row of the node is made of one row of each input, or of some."""
    match plan:
        case Sliding() | Filter() | Project() | Join() | RelationJoin() | Union():
            return True
        case Scan() | SlidingRows() | Distinct() | Intersect() | Negation() | Group():
            return False
    raise PlanError(f"of which rows a row of {type(plan).__name__} is made is not known")


def alive(plan: Plan) -> Span:
    """How much later than its own time a row can count."""
    longest = timing(plan).longest
    return Span(0, HIGHEST if longest is None else longest - 1)


def instants(plan: Plan, region: Region) -> Interval:
    """The instants at which rows of a region count."""
    if region.axis is Axis.INSTANT:
        return region.interval
    return common(alive(plan).after(region.interval), region.during)


def settled(plan: Plan, region: Region | None) -> Region | None:
    """A region as the node's rows lie in time, no wider than the constants let it be; None if there is nothing in it.

    Of a relation only constants of its key stay: when a version goes, another one of the key takes its place, and that
    one may differ in everything else.
    """
    if region is None or region.empty:
        return None
    interval, values = region.interval, region.values
    if isinstance(plan, Scan) and plan.source.kind.is_relation:
        values = {name: value for name, value in values.items() if plan.of_source(name) in plan.source.key}
    during = instants(plan, region)
    if during.empty:
        return None
    if axis(plan) is Axis.INSTANT:
        return Region(Axis.INSTANT, during, values)
    within = alive(plan).before(during)
    interval = within if region.axis is Axis.INSTANT else common(interval, within)
    for name, lag in lags(plan).items():
        value = values.get(name)
        if isinstance(value, int):
            interval = common(interval, lag.after(Interval(value, value + 1)))
    return None if interval.empty else Region(Axis.START, interval, values, during)


def meet(one: Region | None, other: Region | None) -> Region | None:
    """What lies in both regions of a node."""
    if one is None or other is None:
        return None
    values = merged(one.values, other.values)
    met = replace(one, interval=common(one.interval, other.interval), during=common(one.during, other.during))
    return None if values is None or met.empty else replace(met, values=values)


@fact
def lags(plan: Plan) -> Mapping[str, Span]:
    """By column, or text of an expression: how much later than its value the row's own time is, where rows happened."""
    if axis(plan) is not Axis.START:
        return {}
    exactly = {text: Span(offset, offset) for text, offset in timing(plan).columns.items()}
    return {**dict(_lags(plan)), **exactly}


def _lags(plan: Plan) -> Iterator[tuple[str, Span]]:
    match plan:
        case Sliding() | Filter():
            yield from lags(plan.input).items()
        case RelationJoin():
            yield from lags(plan.left).items()
        case Project():
            below = lags(plan.input)
            yield from ((name, below[name]) for name in plan.carried if name in below)
            for output in plan.outputs:
                if (lag := lag_of(output.expr, below)) is not None:
                    yield output.name, lag
        case Join():
            between = apart(plan)
            for side, later in ((plan.left, between), (plan.right, -between)):
                yield from ((name, lag + later.not_before) for name, lag in lags(side).items())
        case Union():
            yield from _union_lags(plan)
        case Scan() | Group():
            # Their columns tell it exactly, or not at all.
            return
        case _:
            raise PlanError(f"what columns of {type(plan).__name__} tell of its rows' times is not known")


def _union_lags(plan: Union) -> Iterator[tuple[str, Span]]:
    for place, column in enumerate(plan.branches[0].visible):
        found = [lags(branch).get(branch.visible[place].name) for branch in plan.branches]
        whole = found[0]
        for lag in found[1:]:
            whole = None if whole is None or lag is None else whole | lag
        if whole is not None:
            yield column.name, whole


def lag_of(expr: Expr, below: Mapping[str, Span]) -> Span | None:
    """How much later than the expression's value the row's own time is, if that can be told."""
    if (lag := below.get(sql(expr))) is not None:
        return lag
    match expr:
        case Call(name="shift" | "+" | "-" as name, args=(moved, by)):
            lag, number = lag_of(moved, below), whole_number(by)
            if lag is not None and number is not None:
                return lag + Span(*[number if name == "-" else -number] * 2)
    return None


def apart(plan: Join) -> Span:
    """How much later than the left row the right one happened, of those that can be a pair: both count at the same
    time, and the condition may compare their times."""
    span = Span(_opposite(alive(plan.right).high), alive(plan.left).high)
    for part in conjuncts(plan.condition):
        if isinstance(part, Call) and part.name in _BOUNDS:
            span &= _bound(plan, part)
    return span


_BOUNDS: dict[str, tuple[int | None, int | None]] = {
    EQUAL: (0, 0),
    SAME: (0, 0),
    "<=": (0, None),
    "<": (1, None),
    ">=": (None, 0),
    ">": (None, -1),
}
"""From left OP right follows that the right is so much greater at least, and at most."""


def _bound(plan: Join, part: Call) -> Span:
    one, other = part.args
    for sign, (left, right) in ((1, (one, other)), (-1, (other, one))):
        mine, theirs = lag_of(left, lags(plan.left)), lag_of(right, lags(plan.right))
        if mine is None or theirs is None:
            continue
        least, most = _BOUNDS[part.name]
        greater = Span(LOWEST if least is None else least, HIGHEST if most is None else most)
        # The right's time is its value and its lag, the left's likewise.
        return (greater if sign == 1 else -greater) + theirs + -mine
    return Span()
