"""Negation: of v1 rows of a value on the left and v2 on the right, the v1 - v2 youngest remain (Golab and Özsu, 2005,
equation 1). So a row remains at an instant if and only if at least as many rows of its value rank before it on the left
as there are on the right.

Where rows of the left end in the order in which they begin, as those of a stream do, the rows of a value that remain
are those from one number up to another. Both depend only on how many have begun, have ended and are on the right, which
one pass over a value's beginnings and ends counts.

In any other order `standing_intervals` finds them. At each instant as many rows of a value are removed as there are on
the right: the first ones in order. The last of them is the *border*. Beginnings and ends are processed one after the
other. Each changes a count by one, so besides the row that begins or ends, at most one row changes sides: the former
border, or the new one.

The border is the k-th in order of the rows that count at a moment. It is found for all moments together, digit by digit
of its number, as in a wavelet tree (Grossi, Gupta and Vitter, 2003): a running sum over the beginnings and ends so far
counts the rows with a lower digit, which gives the digit, and the rest of k for the next one.

    numbers that count    5      9      14     20      k = 3: three begin with 0, so the border does, too;
    to the base of 4    0.1.1  0.2.1  0.3.2  1.1.0     one goes on with 1, one with 2: it is the first with 3, 14

The cost is one sort per digit, of twice the beginnings and ends; rows are not joined with each other. Only for lineage
each row is joined with all that count while it does, which costs the square of their number; no lineage is stored for
queries with a negation (`route.why_no_stored_lineage`).
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
"""The interval in which a row remains."""

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
"""Bits of a digit. Twice as many would halve the sorts, but need five times the sums in each; the near engine is
fastest with this."""


def standing_intervals(left: DataFrame, right: DataFrame, by: Sequence[str]) -> DataFrame:
    """The intervals in which rows remain, by value and number, from `_begin` to `_end`.

    Both sides have the columns `by`, which make the value, and lifetimes; the left also has the number.
    """
    turns = _standing_changes(_numbered_borders(_border_moments(left, right, by), by), by)
    line = window_sql([*by, NUMBER_COLUMN], [_TIME])
    # Of several changes at one instant the last one counts, and only if the row then is on another side than before.
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
    """A value's beginnings and ends in order, and the position of the border after each; 0: no row is removed."""
    both = union_by_position(
        _count_changes(left, by, NUMBER_COLUMN, added=1, against=0), _count_changes(right, by, "0", added=0, against=1)
    )
    # Those of one instant have a deterministic order; which one makes no difference.
    line = window_sql(by, [_TIME, NUMBER_COLUMN, _LEFT_CHANGE, _RIGHT_CHANGE])
    placed = select_columns(both.filter(f"{_TIME} < {OPEN_END}"), ["*"], **{_MOMENT: f"row_number() {line}"})
    upto = window_sql(by, [_MOMENT], ROWS_UP_TO_NOW)
    fallen = f"least(sum({_LEFT_CHANGE}) {upto}, sum({_RIGHT_CHANGE}) {upto})"
    return select_columns(placed, [*by, _MOMENT, _TIME, NUMBER_COLUMN, _LEFT_CHANGE], **{_SOUGHT_ROW: fallen})


def _count_changes(frame: DataFrame, by: Sequence[str], number: str, *, added: int, against: int) -> DataFrame:
    """The changes that a row's beginning and end make to the counts on the left and on the right."""
    marks = (
        f"struct({at} AS {_TIME}, {sign * added} AS {_LEFT_CHANGE}, {sign * against} AS {_RIGHT_CHANGE})"
        for at, sign in ((VS, 1), (VE, -1))
    )
    return select_sql(
        frame.filter(f"{VS} < {VE}"), *by, f"{number} AS {NUMBER_COLUMN}", f"inline(array({', '.join(marks)}))"
    )


def _numbered_borders(moments: DataFrame, by: Sequence[str]) -> DataFrame:
    """The moments with the number of the border."""
    # Each moment occurs twice: as the row that it adds, which goes down the tree by its own number, and as the border
    # that it asks for.
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
    # The number of counting rows with a lower digit, for each digit.
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
    """The rows that begin, end or change sides at each moment, and whether they remain then."""
    known = select_columns(
        borders, ["*"], **{_WAS_STANDING: f"coalesce(lag({_BORDER}) {window_sql(by, [_MOMENT])}, 0)"}
    )
    rows = (
        # The row that begins or ends; then the former border, unless it is the row that has ended; then the new one.
        (f"IF({_LEFT_CHANGE} != 0, {NUMBER_COLUMN}, 0)", f"{_LEFT_CHANGE} = 1 AND {NUMBER_COLUMN} > {_BORDER}"),
        (f"IF({_BORDER} < {_WAS_STANDING} AND {NUMBER_COLUMN} != {_WAS_STANDING}, {_WAS_STANDING}, 0)", "TRUE"),
        (f"IF({_BORDER} > {_WAS_STANDING} AND {NUMBER_COLUMN} != {_BORDER}, {_BORDER}, 0)", "FALSE"),
    )
    turns = ", ".join(f"struct({number} AS {NUMBER_COLUMN}, {stands} AS {_IS_STANDING})" for number, stands in rows)
    return select_sql(known, *by, _MOMENT, _TIME, f"inline(array({turns}))").filter(f"{NUMBER_COLUMN} > 0")


# The operator.

_EVENT_TIME, _NEXT_EVENT, _ROW_COUNT, _STANDING_ROWS = "_p", "_next", "_count", "_stands"
_ARRIVED_COUNT, _ENDED_COUNT, _UP_TO_TIME, _FIRST_TIME, _LAST_TIME = "_came", "_gone", "_upto", "_first", "_last"


def compile_negation(plan: Negation, left: NodeRows, right: NodeRows) -> NodeRows:
    """The rows that remain, each while it does."""
    whole = NodeRows(plan, left.frame, left.mode, range(left.scans.start, right.scans.stop))
    ranked = _rank_rows(plan, left)
    others = select_columns(
        right.frame, ["*"], **{VALUE_COLUMN: struct_sql(right.keys(name for _, name in plan.columns))}
    )
    if left.mode.at is not None:
        return whole.for_node(plan, _standing_at_instant(whole, left, right, ranked, others))
    in_line = left.row_times.happened and left.row_times.exact and not plan.rank
    by = [*whole.mode.scope, VALUE_COLUMN]
    intervals = (_standing_in_order if in_line else standing_intervals)(ranked, others, by)
    kept = [*left.columns, *([TS] if TS in whole.times else [])]
    found = _with_columns_of(
        select_columns(ranked, [*by, NUMBER_COLUMN, *kept]), kept, intervals, [BEGIN_COLUMN, END_COLUMN], by
    )
    if whole.lineage:
        lineage = _negation_lineage(whole, left, right, ranked, others)
        found = _with_columns_of(found, [*kept, BEGIN_COLUMN, END_COLUMN], lineage, whole.lineage, by)
    return whole.for_node(
        plan, select_columns(found, [*whole.mode.scope, *kept, *whole.lineage], **{VS: BEGIN_COLUMN, VE: END_COLUMN})
    )


def _rank_rows(plan: Negation, left: NodeRows) -> DataFrame:
    """The left rows with their value and their number within it, the oldest first."""
    mine = {VALUE_COLUMN: struct_sql(left.keys(name for name, _ in plan.columns))}
    told = [left.column(name) for name in plan.rank or ()]
    order = [*told, *(name for name in left.order if name not in told)]
    order += [VS] if left.mode.at is None and VS not in order else []
    # Without an order there is at most one row.
    line = window_sql([*left.mode.scope, VALUE_COLUMN], order or ["0"])
    if left.row_times.own is OwnTime.START:
        mine[TS] = VS
    return select_columns(select_columns(left.frame, ["*"], **mine), ["*"], **{NUMBER_COLUMN: f"row_number() {line}"})


def _standing_in_order(left: DataFrame, right: DataFrame, by: Sequence[str]) -> DataFrame:
    """As `standing_intervals`, for numbered rows that end in the order in which they begin."""
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
    # Before, rows from `gone - _gone` up to `came - _came` remained; now rows from `gone` up to `came`.
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
    """The changes that a row's beginning and end make to the counts of rows that came and rows that are gone."""
    begins = f"struct({VS} AS {_EVENT_TIME}, {came} AS {_ARRIVED_COUNT}, {gone} AS {_ENDED_COUNT})"
    return select_sql(
        frame,
        *by,
        f"inline(array({begins}, struct({VE} AS {_EVENT_TIME}, 0 AS {_ARRIVED_COUNT}, {ended} AS {_ENDED_COUNT})))",
    )


def _with_columns_of(
    rows: DataFrame, kept: Sequence[str], others: DataFrame, columns: Sequence[str], by: Sequence[str]
) -> DataFrame:
    """Rows of the left, joined with other rows' columns by value and number."""
    names = [*by, NUMBER_COLUMN]
    renamed = select_columns(others, columns, **{f"{RIGHT_PREFIX}{name}": name for name in names})
    found = join_sql(rows, renamed, " AND ".join(f"{name} = {RIGHT_PREFIX}{name}" for name in names))
    return select_columns(found, [*names, *kept, *columns])


def _negation_lineage(
    whole: NodeRows, left: NodeRows, right: NodeRows, ranked: DataFrame, others: DataFrame
) -> DataFrame:
    """By value and number: the lineage of a row that remains. These are the rows of both sides that count while it
    does, and of the left only those up to itself in order."""
    by = [*whole.mode.scope, VALUE_COLUMN]
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
    """Rows to join others with, their columns named as the other's."""
    made = {f"{RIGHT_PREFIX}{name}": name for name in (*by, VS, VE)}
    lineage = {f"{RIGHT_PREFIX}{name}": name if name in own else null_sql("BIGINT") for name in all_lineage}
    return select_columns(frame, [], **made, **{f"{RIGHT_PREFIX}{NUMBER_COLUMN}": number}, **lineage)


def _standing_at_instant(
    whole: NodeRows, left: NodeRows, right: NodeRows, ranked: DataFrame, others: DataFrame
) -> DataFrame:
    by = [*whole.mode.scope, VALUE_COLUMN]
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
    return met.select(*left.columns, *whole.extra_columns)
