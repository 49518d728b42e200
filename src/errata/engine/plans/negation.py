"""Which rows of the left of a negation stand, whatever their order and their lifetimes are.

At each instant as many rows of a value have fallen as there are on the right: the first ones in order. The last of them
is the *border*. Beginnings and ends are looked at one after the other. Each changes how many rows there are by one, so
beside the row that begins or ends itself one row at most changes sides: the former border, or the new one.

The border is the k-th in order of the rows that count at a moment. It is found for all moments together, digit by digit
of its number, as in a wavelet tree (Grossi, Gupta and Vitter, 2003): a running sum over the beginnings and ends so far
tells how many rows with a lower digit count, from which follow the digit, and what of k is left for the next one.

    numbers that count    5      9      14     20      k = 3: three begin with 0, so the border does, too;
    to the base of 4    0.1.1  0.2.1  0.3.2  1.1.0     one goes on with 1, one with 2: it is the first with 3, 14

The cost is one sort for each digit, of twice the beginnings and ends. No row is met with others.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame

from errata.engine.frames import group_sql, join_sql, select_sql, union_by_position, with_columns
from errata.engine.plans.node_rows import (
    OPEN_END,
    RIGHT_PREFIX,
    ROWS_UP_TO_NOW,
    TS,
    VALUE_COLUMN,
    VE,
    VS,
    NodeRows,
    merged_lineage,
    null_sql,
    select_columns,
    struct_sql,
    window_sql,
)
from errata.language.nodes import Negation
from errata.language.times import OwnTime

NUMBER_COLUMN = "_no"
"""The number of a row of the left among those of its value, from 1 on, the oldest first."""
BEGIN_COLUMN, END_COLUMN = "_begin", "_end"
"""From when to when a row stands."""

_TIME, _MOMENT, _LEFT_CHANGE, _RIGHT_CHANGE, _SEARCHED_BORDER, _SOUGHT_ROW = (
    "_p",
    "_moment",
    "_added",
    "_against",
    "_asked",
    "_sought",
)
_TREE_NODE, _BORDER, _WAS_STANDING, _IS_STANDING, _NEXT_TIME = "_node", "_border", "_was", "_stands", "_next"

_NUMBER_BITS = 31
"""Bits of a row's number."""
_BITS_PER_STEP = 2
"""Bits of a digit. Twice as many are half the sorts, but five times the sums of each; the near engine is fastest so."""


def standing_intervals(left: DataFrame, right: DataFrame, by: Sequence[str]) -> DataFrame:
    """The intervals in which rows stand, by value and number, from `_begin` to `_end`.

    Both sides have the columns `by`, which tell the value, and lifetimes, the left also the number.
    """
    turns = _standing_changes(_numbered_borders(_border_moments(left, right, by), by), by)
    line = window_sql([*by, NUMBER_COLUMN], [_TIME])
    # Of several turns at one instant the last one counts, and only if it is another side than before.
    latest = window_sql([*by, NUMBER_COLUMN], [_MOMENT])
    last = select_columns(turns, ["*"], **{_NEXT_TIME: f"lead({_TIME}) {latest}"}).filter(
        f"{_NEXT_TIME} IS NULL OR {_NEXT_TIME} > {_TIME}"
    )
    sides = select_columns(
        last,
        [*by, NUMBER_COLUMN, _TIME, _IS_STANDING],
        **{_WAS_STANDING: f"coalesce(lag({_IS_STANDING}) {line}, FALSE)"},
    )
    changed = select_columns(
        sides.filter(f"{_WAS_STANDING} != {_IS_STANDING}"),
        ["*"],
        **{END_COLUMN: f"coalesce(lead({_TIME}) {line}, {OPEN_END})"},
    )
    return select_columns(changed.filter(_IS_STANDING), [*by, NUMBER_COLUMN, END_COLUMN], **{BEGIN_COLUMN: _TIME})


def _border_moments(left: DataFrame, right: DataFrame, by: Sequence[str]) -> DataFrame:
    """A value's beginnings and ends, one after the other, and the place of the border after each; 0: nothing has
    fallen."""
    both = union_by_position(
        _count_changes(left, by, NUMBER_COLUMN, added=1, against=0), _count_changes(right, by, "0", added=0, against=1)
    )
    # Those of one instant come in an order that is the same whenever it is asked for; which one makes no difference.
    line = window_sql(by, [_TIME, NUMBER_COLUMN, _LEFT_CHANGE, _RIGHT_CHANGE])
    placed = select_columns(both.filter(f"{_TIME} < {OPEN_END}"), ["*"], **{_MOMENT: f"row_number() {line}"})
    upto = window_sql(by, [_MOMENT], ROWS_UP_TO_NOW)
    fallen = f"least(sum({_LEFT_CHANGE}) {upto}, sum({_RIGHT_CHANGE}) {upto})"
    return select_columns(placed, [*by, _MOMENT, _TIME, NUMBER_COLUMN, _LEFT_CHANGE], **{_SOUGHT_ROW: fallen})


def _count_changes(frame: DataFrame, by: Sequence[str], number: str, *, added: int, against: int) -> DataFrame:
    """What a row's beginning and end add to how many count on the left and on the right."""
    marks = (
        f"struct({at} AS {_TIME}, {sign * added} AS {_LEFT_CHANGE}, {sign * against} AS {_RIGHT_CHANGE})"
        for at, sign in ((VS, 1), (VE, -1))
    )
    return select_sql(
        frame.filter(f"{VS} < {VE}"), *by, f"{number} AS {NUMBER_COLUMN}", f"inline(array({', '.join(marks)}))"
    )


def _numbered_borders(moments: DataFrame, by: Sequence[str]) -> DataFrame:
    """The moments with the number of the border."""
    # Each moment is there as what it adds, which goes down the tree by its own number, and as what it asks.
    twice = select_sql(moments, "*", f"explode(array(TRUE, FALSE)) AS {_SEARCHED_BORDER}", f"0 AS {_TREE_NODE}")
    found = twice.filter(f"{_SEARCHED_BORDER} OR {_LEFT_CHANGE} != 0")
    top = -(-_NUMBER_BITS // _BITS_PER_STEP) * _BITS_PER_STEP
    for shift in range(top - _BITS_PER_STEP, -1, -_BITS_PER_STEP):
        found = _search_step(found, by, shift)
    return select_columns(
        found.filter(_SEARCHED_BORDER), [*by, _MOMENT, _TIME, NUMBER_COLUMN, _LEFT_CHANGE], **{_BORDER: _TREE_NODE}
    )


def _search_step(found: DataFrame, by: Sequence[str], shift: int) -> DataFrame:
    base = 1 << _BITS_PER_STEP
    own = f"(shiftright({NUMBER_COLUMN}, {shift}) & {base - 1})"
    upto = window_sql([*by, _TREE_NODE], [_MOMENT], ROWS_UP_TO_NOW)
    # How many count whose digit is lower than each that there is.
    lower = {
        f"_c{digit}": f"sum(IF(NOT {_SEARCHED_BORDER} AND {own} < {digit}, {_LEFT_CHANGE}, 0)) {upto}"
        for digit in range(1, base)
    }
    counted = select_columns(found, ["*"], **lower)
    digit = " + ".join(f"IF({name} < {_SOUGHT_ROW}, 1, 0)" for name in lower)
    passed = ", ".join(f"IF({name} < {_SOUGHT_ROW}, {name}, 0)" for name in lower)
    columns = [*by, _MOMENT, _TIME, NUMBER_COLUMN, _LEFT_CHANGE, _SEARCHED_BORDER]
    node = f"{_TREE_NODE} * {base} + IF({_SEARCHED_BORDER}, {digit}, {own})"
    return select_columns(counted, columns, **{_SOUGHT_ROW: f"{_SOUGHT_ROW} - greatest({passed})", _TREE_NODE: node})


def _standing_changes(borders: DataFrame, by: Sequence[str]) -> DataFrame:
    """The rows that begin, end or change sides at each moment, and whether they stand then."""
    known = select_columns(
        borders, ["*"], **{_WAS_STANDING: f"coalesce(lag({_BORDER}) {window_sql(by, [_MOMENT])}, 0)"}
    )
    rows = (
        # What begins or ends itself; then the former border, unless that is what has ended; then the new one.
        (f"IF({_LEFT_CHANGE} != 0, {NUMBER_COLUMN}, 0)", f"{_LEFT_CHANGE} = 1 AND {NUMBER_COLUMN} > {_BORDER}"),
        (f"IF({_BORDER} < {_WAS_STANDING} AND {NUMBER_COLUMN} != {_WAS_STANDING}, {_WAS_STANDING}, 0)", "TRUE"),
        (f"IF({_BORDER} > {_WAS_STANDING} AND {NUMBER_COLUMN} != {_BORDER}, {_BORDER}, 0)", "FALSE"),
    )
    turns = ", ".join(f"struct({number} AS {NUMBER_COLUMN}, {stands} AS {_IS_STANDING})" for number, stands in rows)
    return select_sql(known, *by, _MOMENT, _TIME, f"inline(array({turns}))").filter(f"{NUMBER_COLUMN} > 0")


# Negation: of v1 rows of a value on the left and v2 on the right the v1 - v2 youngest stand.
#
# So a row stands at an instant if and only if at least as many rows of its value rank before it on the left as there
# are on the right (Golab and Özsu, 2005, equation 1).
#
# Where rows of the left end in the order that they begin in, as those of a stream do, the rows of a value that stand
# are always those from one number up to another. Both only go by how many have begun, have ended and are on the right,
# which one pass over a value's beginnings and ends counts; a step of either brings in or out as many rows as it is
# long. In any other order `standing` finds them. Only for lineage each row is met with all that count while it does,
# which costs the square of how many do: no lineage is stored of queries with a negation (`evaluate.storing`).

_EVENT_TIME, _NEXT_EVENT, _ROW_COUNT, _STANDING_ROWS = "_p", "_next", "_count", "_stands"
_ARRIVED_COUNT, _ENDED_COUNT, _UP_TO_TIME, _FIRST_TIME, _LAST_TIME = "_came", "_gone", "_upto", "_first", "_last"


def compile_negation(plan: Negation, left: NodeRows, right: NodeRows) -> NodeRows:
    """The rows that stand, each for as long as it does."""
    whole = NodeRows(plan, left.frame, left.way, range(left.scans.start, right.scans.stop))
    ranked = _rank_rows(plan, left)
    others = select_columns(
        right.frame, ["*"], **{VALUE_COLUMN: struct_sql(right.keys(name for _, name in plan.columns))}
    )
    if left.way.at is not None:
        return whole.over(plan, _standing_at_instant(whole, left, right, ranked, others))
    in_line = left.timing.happened and left.timing.exact and not plan.rank
    by = [*whole.way.scope, VALUE_COLUMN]
    intervals = (_standing_in_order if in_line else standing_intervals)(ranked, others, by)
    kept = [*left.columns, *([TS] if TS in whole.times else [])]
    found = _with_columns_of(
        select_columns(ranked, [*by, NUMBER_COLUMN, *kept]), kept, intervals, [BEGIN_COLUMN, END_COLUMN], by
    )
    if whole.lineage:
        lineage = _negation_lineage(whole, left, right, ranked, others)
        found = _with_columns_of(found, [*kept, BEGIN_COLUMN, END_COLUMN], lineage, whole.lineage, by)
    return whole.over(
        plan, select_columns(found, [*whole.way.scope, *kept, *whole.lineage], **{VS: BEGIN_COLUMN, VE: END_COLUMN})
    )


def _rank_rows(plan: Negation, left: NodeRows) -> DataFrame:
    """The left rows with their value and their number within it, the oldest first."""
    mine = {VALUE_COLUMN: struct_sql(left.keys(name for name, _ in plan.columns))}
    told = [left.column(name) for name in plan.rank or ()]
    order = [*told, *(name for name in left.order if name not in told)]
    order += [VS] if left.way.at is None and VS not in order else []
    # Without any order there is one row at most.
    line = window_sql([*left.way.scope, VALUE_COLUMN], order or ["0"])
    if left.timing.own is OwnTime.START:
        mine[TS] = VS
    return select_columns(select_columns(left.frame, ["*"], **mine), ["*"], **{NUMBER_COLUMN: f"row_number() {line}"})


def _standing_in_order(left: DataFrame, right: DataFrame, by: Sequence[str]) -> DataFrame:
    """What `standing` gives, of rows that end in the order in which they begin and are numbered."""
    steps = [_running_counts(left, by, came=1, gone=0, ended=1), _running_counts(right, by, came=0, gone=1, ended=-1)]
    met = group_sql(
        union_by_position(*steps),
        [*by, _EVENT_TIME],
        [f"sum({name}) AS {name}" for name in (_ARRIVED_COUNT, _ENDED_COUNT)],
    )
    upto = {
        f"{_UP_TO_TIME}{name}": f"sum({name}) {window_sql(by, [_EVENT_TIME], ROWS_UP_TO_NOW)}"
        for name in (_ARRIVED_COUNT, _ENDED_COUNT)
    }
    came, gone = upto
    run = select_columns(met.filter(f"{_EVENT_TIME} < {OPEN_END}"), ["*"], **upto)
    # Before, those from `gone - _gone` up to `came - _came` stood; now those from `gone` up to `came`.
    first, last = f"{gone} - {_ENDED_COUNT} + 1L", f"{came} - {_ARRIVED_COUNT}"
    stretches = (
        f"struct({gone} + 1L AS {_FIRST_TIME}, least({first} - 1L, {last}) AS {_LAST_TIME}, TRUE AS {_STANDING_ROWS})",
        f"struct(greatest({last}, {gone}) + 1L AS {_FIRST_TIME}, {came} AS {_LAST_TIME}, TRUE AS {_STANDING_ROWS})",
        f"struct({first} AS {_FIRST_TIME}, least({gone}, {last}) AS {_LAST_TIME}, FALSE AS {_STANDING_ROWS})",
    )
    changed = select_sql(run, *by, _EVENT_TIME, f"inline(array({', '.join(stretches)}))").filter(
        f"{_FIRST_TIME} <= {_LAST_TIME}"
    )
    each = select_sql(
        changed,
        *by,
        _EVENT_TIME,
        _STANDING_ROWS,
        f"explode(sequence({_FIRST_TIME}, {_LAST_TIME}, 1L)) AS {NUMBER_COLUMN}",
    )
    line = window_sql([*by, NUMBER_COLUMN], [_EVENT_TIME])
    told = select_columns(
        each, [*by, NUMBER_COLUMN, _EVENT_TIME, _STANDING_ROWS], **{_NEXT_EVENT: f"lead({_EVENT_TIME}) {line}"}
    ).filter(_STANDING_ROWS)
    return select_columns(
        told, [*by, NUMBER_COLUMN], **{BEGIN_COLUMN: _EVENT_TIME, END_COLUMN: f"coalesce({_NEXT_EVENT}, {OPEN_END})"}
    )


def _running_counts(frame: DataFrame, by: Sequence[str], *, came: int, gone: int, ended: int) -> DataFrame:
    """What a row's beginning and end add to how many came and how many are gone."""
    begins = f"struct({VS} AS {_EVENT_TIME}, {came} AS {_ARRIVED_COUNT}, {gone} AS {_ENDED_COUNT})"
    return select_sql(
        frame,
        *by,
        f"inline(array({begins}, struct({VE} AS {_EVENT_TIME}, 0 AS {_ARRIVED_COUNT}, {ended} AS {_ENDED_COUNT})))",
    )


def _with_columns_of(
    rows: DataFrame, kept: Sequence[str], others: DataFrame, columns: Sequence[str], by: Sequence[str]
) -> DataFrame:
    """Rows of the left with columns that others have for their value and number."""
    names = [*by, NUMBER_COLUMN]
    renamed = select_columns(others, columns, **{f"{RIGHT_PREFIX}{name}": name for name in names})
    found = join_sql(rows, renamed, " AND ".join(f"{name} = {RIGHT_PREFIX}{name}" for name in names))
    return select_columns(found, [*names, *kept, *columns])


def _negation_lineage(
    whole: NodeRows, left: NodeRows, right: NodeRows, ranked: DataFrame, others: DataFrame
) -> DataFrame:
    """By value and number what a row's standing depends on: the rows of both sides that count while it does, and of the
    left only those up to itself in order."""
    by = [*whole.way.scope, VALUE_COLUMN]
    before = _countable_rows(ranked, by, NUMBER_COLUMN, left.lineage, whole.lineage)
    theirs = union_by_position(before, _countable_rows(others, by, "0", right.lineage, whole.lineage))
    parts = [f"{name} = {RIGHT_PREFIX}{name}" for name in by]
    parts += [
        f"{RIGHT_PREFIX}{NUMBER_COLUMN} <= {NUMBER_COLUMN}",
        f"{RIGHT_PREFIX}{VS} < {VE}",
        f"{VS} < {RIGHT_PREFIX}{VE}",
    ]
    met = join_sql(select_columns(ranked, [*by, NUMBER_COLUMN, VS, VE]), theirs, " AND ".join(parts))
    merged = merged_lineage(whole.lineage).items()
    return group_sql(
        met, [*by, NUMBER_COLUMN], [f"{text.replace('(', f'({RIGHT_PREFIX}', 1)} AS {name}" for name, text in merged]
    )


def _countable_rows(
    frame: DataFrame, by: Sequence[str], number: str, own: Sequence[str], all_lineage: Sequence[str]
) -> DataFrame:
    """Rows that others are met with, their columns called as the other's."""
    made = {f"{RIGHT_PREFIX}{name}": name for name in (*by, VS, VE)}
    lineage = {f"{RIGHT_PREFIX}{name}": name if name in own else null_sql("BIGINT") for name in all_lineage}
    return select_columns(frame, [], **made, **{f"{RIGHT_PREFIX}{NUMBER_COLUMN}": number}, **lineage)


def _standing_at_instant(
    whole: NodeRows, left: NodeRows, right: NodeRows, ranked: DataFrame, others: DataFrame
) -> DataFrame:
    by = [*whole.way.scope, VALUE_COLUMN]
    merged = [f"{text} AS {name}" for name, text in merged_lineage(right.lineage).items()]
    counts = group_sql(others, by, [f"count(1) AS {_ROW_COUNT}", *merged])
    theirs = select_columns(counts, [_ROW_COUNT, *right.lineage], **{f"{RIGHT_PREFIX}{name}": name for name in by})
    on = " AND ".join(f"{name} = {RIGHT_PREFIX}{name}" for name in by)
    if left.lineage:
        upto = {
            name: f"{text} {window_sql(by, [NUMBER_COLUMN])}" for name, text in merged_lineage(left.lineage).items()
        }
        ranked = with_columns(ranked, upto)
    met = join_sql(ranked, theirs, on, "left").filter(f"{NUMBER_COLUMN} > coalesce({_ROW_COUNT}, 0)")
    return met.select(*left.columns, *whole.beside)
