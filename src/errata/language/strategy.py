"""Which operator and which state serve each node when it is evaluated continuously (Golab and Özsu, 2005, 5.3).

What an operator keeps depends on how its inputs come and go: what expires in the order in which it came needs no more
than a list, what has an end in some other order is kept by its end, and only what can end without notice needs to be
found by its value.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import singledispatch

from errata.language.nodes import (
    Distinct,
    Filter,
    Group,
    Intersect,
    Join,
    Negation,
    Project,
    RelationJoin,
    RowWindow,
    Scan,
    Sliding,
    SlidingRows,
    TimeWindow,
    Union,
)
from errata.language.patterns import pattern
from errata.language.plan import Plan, PlanError, SourceKind
from errata.language.times import timing
from errata.model.pattern import Pattern

NOTHING = ""
APPENDED = "append-only list"
FIFO = "FIFO list"
PARTITIONED = "partitioned by expiry"
BY_GROUP = "array indexed by group label"
SCANNED = "partitioned by expiry, scanned for negative tuples"
HASHED = "hash table, negative tuples for every end"


@dataclass(frozen=True, slots=True)
class Choice:
    """How a node is evaluated continuously."""

    operator: str
    """Its sign and what it is."""
    state: str
    """What it keeps; `NOTHING` for an operator without state."""
    why: str


@dataclass(frozen=True, slots=True)
class _Store:
    name: str
    because: str


_STORES = {
    Pattern.MONOTONIC: _Store(APPENDED, "nothing of it ever ends"),
    Pattern.WEAKEST: _Store(FIFO, "it ends in the order in which it came: added behind, taken away in front"),
    Pattern.WEAK: _Store(PARTITIONED, "each end is known when a row comes, but they are not in order"),
    Pattern.KEYED: _Store(BY_GROUP, "the next result of a group takes the place of the one before"),
}
_RARELY = _Store(SCANNED, "ends without notice are rare, and worth a scan of all partitions each")
_OFTEN = _Store(HASHED, "most ends come without notice, so each is told by a negative tuple and found by its value")


def store(of: Pattern, premature_often: bool = False) -> tuple[str, str]:
    """What keeps rows that come and go so, and why; of strict ones it depends on how many end without notice."""
    chosen = (_OFTEN if premature_often else _RARELY) if of is Pattern.STRICT else _STORES[of]
    return chosen.name, chosen.because


def result(plan: Plan, premature_often: bool = False) -> Choice:
    """What keeps the final answer of a whole query."""
    name, because = store(pattern(plan), premature_often)
    return Choice("answer", name, because)


def choose(plan: Plan, premature_often: bool = False) -> Choice:
    """The operator and the state for a node. `premature_often` tells that most results of negations (and of what else
    is strict) end before their time, so that strict inputs are better kept by their value."""
    return _choose(plan, premature_often)


@singledispatch
def _choose(plan: Plan, _often: bool) -> Choice:
    raise PlanError(f"no operator is known for {type(plan).__name__}")


def _without_state(operator: str, why: str) -> Callable[[Plan, bool], Choice]:
    return lambda _plan, _often: Choice(operator, NOTHING, why)


_choose.register(Filter, _without_state("σ selection", "a row passes or does not, whatever else there is"))
_choose.register(Project, _without_state("π projection", "each row becomes one row, whatever else there is"))
_choose.register(Union, _without_state("∪ merge union", "rows of all branches pass in the order of their times"))
_READ = {
    SourceKind.STREAM: "stream",
    SourceKind.QUERY: "results of a query",
    SourceKind.RETROACTIVE: "retroactive relation",
    SourceKind.NRR: "non-retroactive relation",
}


@_choose.register
def _(plan: Scan, _often: bool) -> Choice:
    kind = plan.source.kind
    what = "its versions are in the archive" if kind.is_relation else "its rows are in the archive"
    return Choice(f"scan of a {_READ[kind]}", NOTHING, what)


@_choose.register
def _(_plan: Sliding, _often: bool) -> Choice:
    return Choice("ω window over time", NOTHING, "a row's end is its beginning and the span: no state tells it")


@_choose.register
def _(plan: SlidingRows, _often: bool) -> Choice:
    return Choice("ω window over rows", f"{FIFO} of {plan.rows} rows", "each row that comes ends the oldest one")


@_choose.register(Join)
@_choose.register(Intersect)
def _(plan: Join | Intersect, often: bool) -> Choice:
    operator = "⋈ join" if isinstance(plan, Join) else "∩ intersection"
    return Choice(operator, *_sides(plan, often))


def _sides(plan: Join | Intersect | Negation, often: bool) -> tuple[str, str]:
    """Both inputs are kept, each as it comes and goes."""
    left, right = (store(pattern(each), often) for each in plan.inputs)
    if left == right:
        return f"both sides: {left[0]}", f"of both sides: {left[1]}"
    return f"left: {left[0]}; right: {right[0]}", f"of the left: {left[1]}; of the right: {right[1]}"


@_choose.register
def _(plan: RelationJoin, often: bool) -> Choice:
    if plan.retroactive:
        name, because = store(pattern(plan.left), often)
        why = f"a change of the relation looks for the rows it meets; {because}"
        return Choice("⋈ᴿ join with a relation", f"left: {name}; right: the relation itself", why)
    why = "only a row that comes looks up the relation, as it was at the row's own time: no row is kept"
    return Choice("⋈ᴺᴿᴿ join with a non-retroactive relation", NOTHING, why)


@_choose.register
def _(plan: Distinct, often: bool) -> Choice:
    below = pattern(plan.input)
    if below in (Pattern.MONOTONIC, Pattern.WEAKEST, Pattern.WEAK):
        state = f"output: {store(pattern(plan))[0]}"
        if below is Pattern.MONOTONIC:
            return Choice("δ* duplicate elimination", state, "nothing ends, so the values seen are all that is kept")
        why = "all ends are known, so of each value the row shown and the youngest are enough: at most twice the output"
        return Choice("δ* duplicate elimination", f"{state}; auxiliary: the youngest row of each value", why)
    name, because = store(below, often)
    why = f"rows can end without notice, so the input is kept to find another row of the value; of it: {because}"
    return Choice("δ duplicate elimination", f"input: {name}; output: hash table by value", why)


@_choose.register
def _(plan: Negation, often: bool) -> Choice:
    state, because = _sides(plan, often)
    why = f"the counters tell v1 - v2 rows of a value to stand, the youngest of the left; {because}"
    return Choice("− negation", f"{state}; counters of rows for each value", why)


@_choose.register
def _(plan: Group, often: bool) -> Choice:
    labels = f"aggregates: {BY_GROUP}"
    match plan.window:
        case RowWindow(size=size, step=step):
            why = f"a window is published with the row that fills it; the next begins {step} rows after it began"
            return Choice("γ group-by over row windows", f"{labels}; the last {size} rows of each group", why)
        case TimeWindow(early=early) if timing(plan.input).for_ever:
            when = "from its first row on" if early else "when it closes"
            why = f"rows only come, so open windows need their partial aggregates alone; one is published {when}"
            return Choice("γ group-by over time windows", f"{labels} and window", why)
    name, because = store(pattern(plan.input), often)
    if pattern(plan.input) is Pattern.MONOTONIC:
        return Choice("γ group-by", labels, "rows only come, so the aggregates are brought up to date without them")
    what = "γ group-by" if plan.window is None else "γ group-by over time windows"
    why = f"a row changes its group when it comes and when it ends, so the input is kept; of it: {because}"
    return Choice(what, f"input: {name}; {labels}", why)
