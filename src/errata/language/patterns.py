"""The update pattern of each edge of a plan, and the operator and state that suit each node (Golab and Özsu, 2005, 5.2
and 5.3).

The paper leaves out what never expires and takes every group-by for weak. Here streams without a window are monotonic,
and a group-by whose results end whenever the next one of their key comes is keyed: operators above it, other than
another group-by, cannot foresee these ends, and are strict.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import singledispatch
from typing import assert_never

from errata.language.nodes import (
    Distinct,
    Filter,
    Group,
    Intersect,
    Join,
    Negation,
    Projection,
    RelationJoin,
    RowWindow,
    Scan,
    Sliding,
    SlidingRows,
    TimeWindow,
    Union,
)
from errata.language.plan import Plan, PlanError, SourceKind, cached_fact
from errata.language.times import row_times
from errata.model.results import UpdatePattern

_PREDICTABLE = (UpdatePattern.MONOTONIC, UpdatePattern.WEAKEST, UpdatePattern.WEAK)


@cached_fact
def update_pattern(plan: Plan) -> UpdatePattern:
    """The update pattern of the node's results."""
    return _node_pattern(plan)


@singledispatch
def _node_pattern(plan: Plan) -> UpdatePattern:
    raise PlanError(f"the update pattern of {type(plan).__name__} is not known")


@_node_pattern.register
def _(plan: Scan) -> UpdatePattern:
    source = plan.source
    if source.plan is not None:
        return update_pattern(source.plan)
    # A version of a relation's row ends when the next one of its key comes.
    return UpdatePattern.KEYED if source.kind.is_relation else UpdatePattern.MONOTONIC


@_node_pattern.register
def _(plan: Projection) -> UpdatePattern:
    return update_pattern(plan.input)


@_node_pattern.register
def _(plan: Filter) -> UpdatePattern:
    # A new value that is filtered out ends the old one, without an output row that says so.
    return _order_preserving(update_pattern(plan.input))


@_node_pattern.register
def _(plan: Sliding) -> UpdatePattern:
    return _order_preserving(_most_complex((update_pattern(plan.input), UpdatePattern.WEAKEST)))


@_node_pattern.register(SlidingRows)
@_node_pattern.register(Negation)
def _(_plan: Plan) -> UpdatePattern:
    return UpdatePattern.STRICT


@_node_pattern.register
def _(plan: RelationJoin) -> UpdatePattern:
    return UpdatePattern.STRICT if plan.retroactive else _order_preserving(update_pattern(plan.left))


@_node_pattern.register(Join)
@_node_pattern.register(Intersect)
@_node_pattern.register(Distinct)
def _(plan: Plan) -> UpdatePattern:
    return _order_breaking(plan.inputs)


@_node_pattern.register
def _(plan: Union) -> UpdatePattern:
    patterns = {update_pattern(branch) for branch in plan.branches}
    # Windows of different sizes side by side do not expire in the order in which their rows came.
    if patterns == {UpdatePattern.WEAKEST} and row_times(plan).exact:
        return UpdatePattern.WEAKEST
    return _order_breaking(plan.branches)


@_node_pattern.register
def _(plan: Group) -> UpdatePattern:
    match plan.window:
        case RowWindow():
            return UpdatePattern.STRICT
        case TimeWindow(early=False) if row_times(plan.input).for_ever:
            return UpdatePattern.MONOTONIC
        case TimeWindow() | None:
            return UpdatePattern.KEYED
    assert_never(plan.window)


def _most_complex(patterns: Iterable[UpdatePattern]) -> UpdatePattern:
    """The most complex of them."""
    return max(patterns, key=lambda each: each.rank)


def _order_preserving(below: UpdatePattern) -> UpdatePattern:
    """Rule 1: operators that keep no state and delay no row. They do not improve an input whose ends are
    unforeseeable."""
    return below if below in _PREDICTABLE else UpdatePattern.STRICT


def _order_breaking(inputs: Iterable[Plan]) -> UpdatePattern:
    """Rules 2 and 3: operators that may emit rows in another order than that of their ends, where there are ends."""
    most = _most_complex(update_pattern(each) for each in inputs)
    return UpdatePattern.WEAK if most is UpdatePattern.WEAKEST else _order_preserving(most)


# The operator and the state that suit each node when it is evaluated continuously (5.3).
#
# The state depends on how the inputs come and go: rows that expire in the order in which they came need only a list,
# rows with ends in another order are kept by their end, and only rows that can end without notice must be found by
# their value.

NO_STATE = ""
APPEND_ONLY_LIST = "append-only list"
FIFO_LIST = "FIFO list"
PARTITIONED_BY_EXPIRY = "partitioned by expiry"
BY_GROUP = "array indexed by group label"
SCANNED_PARTITIONS = "partitioned by expiry, scanned for negative tuples"
HASH_TABLE = "hash table, negative tuples for every end"


@dataclass(frozen=True, slots=True)
class OperatorChoice:
    """The operator and the state for a node."""

    operator: str
    """Its sign in the algebra, and its name."""
    state: str
    """The state that it keeps; `NOTHING` for an operator without state."""
    why: str


@dataclass(frozen=True, slots=True)
class _StateStore:
    name: str
    reason: str


_STATE_STORES = {
    UpdatePattern.MONOTONIC: _StateStore(APPEND_ONLY_LIST, "nothing of it ever ends"),
    UpdatePattern.WEAKEST: _StateStore(
        FIFO_LIST, "it ends in the order in which it came: added behind, taken away in front"
    ),
    UpdatePattern.WEAK: _StateStore(
        PARTITIONED_BY_EXPIRY, "each end is known when a row comes, but they are not in order"
    ),
    UpdatePattern.KEYED: _StateStore(BY_GROUP, "the next result of a group takes the place of the one before"),
}
_RARE_RETRACTIONS = _StateStore(
    SCANNED_PARTITIONS, "ends without notice are rare, and worth a scan of all partitions each"
)
_FREQUENT_RETRACTIONS = _StateStore(
    HASH_TABLE, "most ends come without notice, so each is told by a negative tuple and found by its value"
)


def state_store(of: UpdatePattern, premature_often: bool = False) -> tuple[str, str]:
    """The state for rows of a pattern, and why. For strict ones it depends on how many end without notice."""
    chosen = (
        (_FREQUENT_RETRACTIONS if premature_often else _RARE_RETRACTIONS)
        if of is UpdatePattern.STRICT
        else _STATE_STORES[of]
    )
    return chosen.name, chosen.reason


def result_choice(plan: Plan, premature_often: bool = False) -> OperatorChoice:
    """The state that keeps the final answer of a whole query."""
    name, because = state_store(update_pattern(plan), premature_often)
    return OperatorChoice("answer", name, because)


def choose_operator(plan: Plan, premature_often: bool = False) -> OperatorChoice:
    """The operator and the state for a node. `premature_often`: most results of negations and other strict operators
    end early, so that strict inputs are better kept by their value."""
    return _choose_for_node(plan, premature_often)


@singledispatch
def _choose_for_node(plan: Plan, _often: bool) -> OperatorChoice:
    raise PlanError(f"no operator is known for {type(plan).__name__}")


def _without_state(operator: str, why: str) -> Callable[[Plan, bool], OperatorChoice]:
    return lambda _plan, _often: OperatorChoice(operator, NO_STATE, why)


_choose_for_node.register(Filter, _without_state("σ selection", "a row passes or does not, whatever else there is"))
_choose_for_node.register(
    Projection, _without_state("π projection", "each row becomes one row, whatever else there is")
)
_choose_for_node.register(
    Union, _without_state("∪ merge union", "rows of all branches pass in the order of their times")
)
_SOURCE_WORDS = {
    SourceKind.STREAM: "stream",
    SourceKind.QUERY: "results of a query",
    SourceKind.RETROACTIVE: "retroactive relation",
    SourceKind.NRR: "non-retroactive relation",
}


@_choose_for_node.register
def _(plan: Scan, _often: bool) -> OperatorChoice:
    kind = plan.source.kind
    what = "its versions are in the archive" if kind.is_relation else "its rows are in the archive"
    return OperatorChoice(f"scan of a {_SOURCE_WORDS[kind]}", NO_STATE, what)


@_choose_for_node.register
def _(_plan: Sliding, _often: bool) -> OperatorChoice:
    return OperatorChoice(
        "ω window over time", NO_STATE, "a row's end is its beginning and the span: no state tells it"
    )


@_choose_for_node.register
def _(plan: SlidingRows, _often: bool) -> OperatorChoice:
    return OperatorChoice(
        "ω window over rows", f"{FIFO_LIST} of {plan.rows} rows", "each row that comes ends the oldest one"
    )


@_choose_for_node.register(Join)
@_choose_for_node.register(Intersect)
def _(plan: Join | Intersect, often: bool) -> OperatorChoice:
    operator = "⋈ join" if isinstance(plan, Join) else "∩ intersection"
    return OperatorChoice(operator, *_both_inputs(plan, often))


def _both_inputs(plan: Join | Intersect | Negation, often: bool) -> tuple[str, str]:
    """Both inputs are kept, each as it comes and goes."""
    left, right = (state_store(update_pattern(each), often) for each in plan.inputs)
    if left == right:
        return f"both sides: {left[0]}", f"of both sides: {left[1]}"
    return f"left: {left[0]}; right: {right[0]}", f"of the left: {left[1]}; of the right: {right[1]}"


@_choose_for_node.register
def _(plan: RelationJoin, often: bool) -> OperatorChoice:
    if plan.retroactive:
        name, because = state_store(update_pattern(plan.left), often)
        why = f"a change of the relation looks for the rows it meets; {because}"
        return OperatorChoice("⋈ᴿ join with a relation", f"left: {name}; right: the relation itself", why)
    why = "only a row that comes looks up the relation, as it was at the row's own time: no row is kept"
    return OperatorChoice("⋈ᴺᴿᴿ join with a non-retroactive relation", NO_STATE, why)


@_choose_for_node.register
def _(plan: Distinct, often: bool) -> OperatorChoice:
    below = update_pattern(plan.input)
    if below in (UpdatePattern.MONOTONIC, UpdatePattern.WEAKEST, UpdatePattern.WEAK):
        state = f"output: {state_store(update_pattern(plan))[0]}"
        if below is UpdatePattern.MONOTONIC:
            return OperatorChoice(
                "δ* duplicate elimination", state, "nothing ends, so the values seen are all that is kept"
            )
        why = "all ends are known, so of each value the row shown and the youngest are enough: at most twice the output"
        return OperatorChoice("δ* duplicate elimination", f"{state}; auxiliary: the youngest row of each value", why)
    name, because = state_store(below, often)
    why = f"rows can end without notice, so the input is kept to find another row of the value; of it: {because}"
    return OperatorChoice("δ duplicate elimination", f"input: {name}; output: hash table by value", why)


@_choose_for_node.register
def _(plan: Negation, often: bool) -> OperatorChoice:
    state, because = _both_inputs(plan, often)
    why = f"the counters tell v1 - v2 rows of a value to stand, the youngest of the left; {because}"
    return OperatorChoice("− negation", f"{state}; counters of rows for each value", why)


@_choose_for_node.register
def _(plan: Group, often: bool) -> OperatorChoice:
    labels = f"aggregates: {BY_GROUP}"
    match plan.window:
        case RowWindow(size=size, step=step):
            why = f"a window is published with the row that fills it; the next begins {step} rows after it began"
            return OperatorChoice("γ group-by over row windows", f"{labels}; the last {size} rows of each group", why)
        case TimeWindow(early=early) if row_times(plan.input).for_ever:
            when = "from its first row on" if early else "when it closes"
            why = f"rows only come, so open windows need their partial aggregates alone; one is published {when}"
            return OperatorChoice("γ group-by over time windows", f"{labels} and window", why)
    name, because = state_store(update_pattern(plan.input), often)
    if update_pattern(plan.input) is UpdatePattern.MONOTONIC:
        return OperatorChoice(
            "γ group-by", labels, "rows only come, so the aggregates are brought up to date without them"
        )
    what = "γ group-by" if plan.window is None else "γ group-by over time windows"
    why = f"a row changes its group when it comes and when it ends, so the input is kept; of it: {because}"
    return OperatorChoice(what, f"input: {name}; {labels}", why)
