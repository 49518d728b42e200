"""Negation: of v1 rows of a value on the left and v2 on the right the v1 - v2 youngest stand.

So a row stands at an instant if and only if at least as many rows of its value rank before it on the left as there are
on the right (Golab and Özsu, 2005, equation 1).

Where rows of the left end in the order that they begin in, as those of a stream do, the rows of a value that stand are
always those from one number up to another. Both only go by how many have begun, have ended and are on the right, which
one pass over a value's beginnings and ends counts; a step of either brings in or out as many rows as it is long. In any
other order `standing` finds them. Only for lineage each row is met with all that count while it does, which costs the
square of how many do: no lineage is stored of queries with a negation (`evaluate.storing`).
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame

from errata.engine.frames import grouped_by, having, joined, selected, stacked
from errata.engine.plans.rows import (
    OPEN,
    OTHER,
    TS,
    UP_TO_NOW,
    VALUE,
    VE,
    VS,
    Rows,
    chosen,
    lineage_of,
    missing,
    over,
    value,
)
from errata.engine.plans.standing import BEGIN, END, NUMBER, standing
from errata.language.nodes import Negation
from errata.language.times import Own

_AT, _NEXT, _COUNT, _STANDS = "_p", "_next", "_count", "_stands"
_CAME, _GONE, _UP_TO, _FIRST, _LAST = "_came", "_gone", "_upto", "_first", "_last"


def negated(plan: Negation, left: Rows, right: Rows) -> Rows:
    """The rows that stand, each for as long as it does."""
    whole = Rows(plan, left.frame, left.way, range(left.scans.start, right.scans.stop))
    ranked = _ranked(plan, left)
    others = chosen(right.frame, ["*"], **{VALUE: value(right.keys(name for _, name in plan.columns))})
    if left.way.at is not None:
        return whole.over(plan, _standing_now(whole, left, right, ranked, others))
    in_line = left.timing.happened and left.timing.exact and not plan.rank
    by = [*whole.way.scope, VALUE]
    intervals = (_standing_in_line if in_line else standing)(ranked, others, by)
    kept = [*left.columns, *([TS] if TS in whole.times else [])]
    found = _with(chosen(ranked, [*by, NUMBER, *kept]), kept, intervals, [BEGIN, END], by)
    if whole.lineage:
        lineage = _lineage(whole, left, right, ranked, others)
        found = _with(found, [*kept, BEGIN, END], lineage, whole.lineage, by)
    return whole.over(plan, chosen(found, [*whole.way.scope, *kept, *whole.lineage], **{VS: BEGIN, VE: END}))


def _ranked(plan: Negation, left: Rows) -> DataFrame:
    """The left rows with their value and their number within it, the oldest first."""
    mine = {VALUE: value(left.keys(name for name, _ in plan.columns))}
    told = [left.column(name) for name in plan.rank or ()]
    order = [*told, *(name for name in left.order if name not in told)]
    order += [VS] if left.way.at is None and VS not in order else []
    # Without any order there is one row at most.
    line = over([*left.way.scope, VALUE], order or ["0"])
    if left.timing.own is Own.START:
        mine[TS] = VS
    return chosen(chosen(left.frame, ["*"], **mine), ["*"], **{NUMBER: f"row_number() {line}"})


def _standing_in_line(left: DataFrame, right: DataFrame, by: Sequence[str]) -> DataFrame:
    """What `standing` gives, of rows that end in the order in which they begin and are numbered."""
    steps = [_steps(left, by, came=1, gone=0, ended=1), _steps(right, by, came=0, gone=1, ended=-1)]
    met = grouped_by(stacked(*steps), [*by, _AT], [f"sum({name}) AS {name}" for name in (_CAME, _GONE)])
    upto = {f"{_UP_TO}{name}": f"sum({name}) {over(by, [_AT], UP_TO_NOW)}" for name in (_CAME, _GONE)}
    came, gone = upto
    run = chosen(met.filter(f"{_AT} < {OPEN}"), ["*"], **upto)
    # Before, those from `gone - _gone` up to `came - _came` stood; now those from `gone` up to `came`.
    first, last = f"{gone} - {_GONE} + 1L", f"{came} - {_CAME}"
    stretches = (
        f"struct({gone} + 1L AS {_FIRST}, least({first} - 1L, {last}) AS {_LAST}, TRUE AS {_STANDS})",
        f"struct(greatest({last}, {gone}) + 1L AS {_FIRST}, {came} AS {_LAST}, TRUE AS {_STANDS})",
        f"struct({first} AS {_FIRST}, least({gone}, {last}) AS {_LAST}, FALSE AS {_STANDS})",
    )
    changed = selected(run, *by, _AT, f"inline(array({', '.join(stretches)}))").filter(f"{_FIRST} <= {_LAST}")
    each = selected(changed, *by, _AT, _STANDS, f"explode(sequence({_FIRST}, {_LAST}, 1L)) AS {NUMBER}")
    line = over([*by, NUMBER], [_AT])
    told = chosen(each, [*by, NUMBER, _AT, _STANDS], **{_NEXT: f"lead({_AT}) {line}"}).filter(_STANDS)
    return chosen(told, [*by, NUMBER], **{BEGIN: _AT, END: f"coalesce({_NEXT}, {OPEN})"})


def _steps(frame: DataFrame, by: Sequence[str], *, came: int, gone: int, ended: int) -> DataFrame:
    """What a row's beginning and end add to how many came and how many are gone."""
    begins = f"struct({VS} AS {_AT}, {came} AS {_CAME}, {gone} AS {_GONE})"
    return selected(frame, *by, f"inline(array({begins}, struct({VE} AS {_AT}, 0 AS {_CAME}, {ended} AS {_GONE})))")


def _with(
    rows: DataFrame, kept: Sequence[str], others: DataFrame, columns: Sequence[str], by: Sequence[str]
) -> DataFrame:
    """Rows of the left with columns that others have for their value and number."""
    names = [*by, NUMBER]
    renamed = chosen(others, columns, **{f"{OTHER}{name}": name for name in names})
    found = joined(rows, renamed, " AND ".join(f"{name} = {OTHER}{name}" for name in names))
    return chosen(found, [*names, *kept, *columns])


def _lineage(whole: Rows, left: Rows, right: Rows, ranked: DataFrame, others: DataFrame) -> DataFrame:
    """By value and number what a row's standing depends on: the rows of both sides that count while it does, and of the
    left only those up to itself in order."""
    by = [*whole.way.scope, VALUE]
    before = _counting(ranked, by, NUMBER, left.lineage, whole.lineage)
    theirs = stacked(before, _counting(others, by, "0", right.lineage, whole.lineage))
    parts = [f"{name} = {OTHER}{name}" for name in by]
    parts += [f"{OTHER}{NUMBER} <= {NUMBER}", f"{OTHER}{VS} < {VE}", f"{VS} < {OTHER}{VE}"]
    met = joined(chosen(ranked, [*by, NUMBER, VS, VE]), theirs, " AND ".join(parts))
    merged = lineage_of(whole.lineage).items()
    return grouped_by(met, [*by, NUMBER], [f"{text.replace('(', f'({OTHER}', 1)} AS {name}" for name, text in merged])


def _counting(
    frame: DataFrame, by: Sequence[str], number: str, own: Sequence[str], all_lineage: Sequence[str]
) -> DataFrame:
    """Rows that others are met with, their columns called as the other's."""
    made = {f"{OTHER}{name}": name for name in (*by, VS, VE)}
    lineage = {f"{OTHER}{name}": name if name in own else missing("BIGINT") for name in all_lineage}
    return chosen(frame, [], **made, **{f"{OTHER}{NUMBER}": number}, **lineage)


def _standing_now(whole: Rows, left: Rows, right: Rows, ranked: DataFrame, others: DataFrame) -> DataFrame:
    by = [*whole.way.scope, VALUE]
    merged = [f"{text} AS {name}" for name, text in lineage_of(right.lineage).items()]
    counts = grouped_by(others, by, [f"count(1) AS {_COUNT}", *merged])
    theirs = chosen(counts, [_COUNT, *right.lineage], **{f"{OTHER}{name}": name for name in by})
    on = " AND ".join(f"{name} = {OTHER}{name}" for name in by)
    if left.lineage:
        upto = {name: f"{text} {over(by, [NUMBER])}" for name, text in lineage_of(left.lineage).items()}
        ranked = having(ranked, upto)
    met = joined(ranked, theirs, on, "left").filter(f"{NUMBER} > coalesce({_COUNT}, 0)")
    return met.select(*left.columns, *whole.beside)
