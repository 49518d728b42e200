"""Negation: of v1 rows of a value on the left and v2 on the right the v1 - v2 youngest stand.

So a row stands at an instant if and only if at least as many rows of its value rank before it on the left as there are
on the right (Golab and Özsu, 2005, equation 1).

Where rows of the left end in the order that they begin in, as those of a stream do, the rows of a value that stand are
always those from one number up to another. Both only go by how many have begun, have ended and are on the right, which
one pass over a value's beginnings and ends counts; a step of either brings in or out as many rows as it is long. In any
other order each row is met with all that count while it does: this costs the square of how many do.
"""

from __future__ import annotations

from pyspark.sql import DataFrame

from errata.engine.frames import grouped_by, having, joined, stacked
from errata.engine.plans.rows import (
    ALL,
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
    over,
    value,
)
from errata.language.nodes import Negation
from errata.language.times import Own

_NO, _DELTA, _AT, _NEXT, _COUNT, _WAS, _STANDS = "_no", "_delta", "_p", "_next", "_count", "_was", "_stands"
_CAME, _GONE, _UP_TO, _FIRST, _LAST = "_came", "_gone", "_upto", "_first", "_last"


def negated(plan: Negation, left: Rows, right: Rows) -> Rows:
    """The rows that stand, each for as long as it does."""
    whole = Rows(plan, left.frame, left.way, range(left.scans.start, right.scans.stop))
    ranked = _ranked(plan, left)
    others = chosen(right.frame, ["*"], **{VALUE: value(right.keys(name for _, name in plan.columns))})
    in_line = left.timing.happened and left.timing.exact and not plan.rank and not whole.lineage
    if left.way.at is None and in_line:
        return whole.over(plan, _standing_in_line(whole, left, ranked, others))
    if left.way.at is None:
        return whole.over(plan, _standing(whole, left, right, ranked, others))
    return whole.over(plan, _standing_now(whole, left, right, ranked, others))


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
    return chosen(chosen(left.frame, ["*"], **mine), ["*"], **{_NO: f"row_number() {line}"})


def _standing_in_line(whole: Rows, left: Rows, ranked: DataFrame, others: DataFrame) -> DataFrame:
    by = [*whole.way.scope, VALUE]
    steps = [_steps(ranked, by, came=1, gone=0, ended=1), _steps(others, by, came=0, gone=1, ended=-1)]
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
    changed = run.selectExpr(*by, _AT, f"inline(array({', '.join(stretches)}))").filter(f"{_FIRST} <= {_LAST}")
    each = changed.selectExpr(*by, _AT, _STANDS, f"explode(sequence({_FIRST}, {_LAST}, 1L)) AS {_NO}")
    line = over([*by, _NO], [_AT])
    told = chosen(each, [*by, _NO, _AT, _STANDS], **{_NEXT: f"lead({_AT}) {line}"}).filter(_STANDS)
    renamed = {f"{OTHER}{name}": name for name in (*by, _NO)}
    kept = [*left.columns, *([TS] if TS in whole.times else [])]
    same = " AND ".join(f"{name} = {OTHER}{name}" for name in (*by, _NO))
    found = joined(chosen(ranked, [*by, _NO, *kept]), chosen(told, [_AT, _NEXT], **renamed), same)
    return chosen(found, [*whole.way.scope, *kept], **{VS: _AT, VE: f"coalesce({_NEXT}, {OPEN})"})


def _steps(frame: DataFrame, by: list[str], *, came: int, gone: int, ended: int) -> DataFrame:
    """What a row's beginning and end add to how many came and how many are gone."""
    begins = f"struct({VS} AS {_AT}, {came} AS {_CAME}, {gone} AS {_GONE})"
    return frame.selectExpr(*by, f"inline(array({begins}, struct({VE} AS {_AT}, 0 AS {_CAME}, {ended} AS {_GONE})))")


def _standing(whole: Rows, left: Rows, right: Rows, ranked: DataFrame, others: DataFrame) -> DataFrame:
    by = [*whole.way.scope, VALUE]
    kept = [*left.columns, *([TS] if TS in whole.times else [])]
    mine = chosen(ranked, [*by, _NO, VS, VE, *kept])
    # A row of the left that ranks before adds one, a row of the right takes one away. The row itself, counted with
    # nothing, tells where it begins.
    before = _told(ranked, by, _NO, "1", left.lineage, whole.lineage)
    against = _told(others, by, "-1", "-1", right.lineage, whole.lineage)
    # Both are brought together by value, and a union of such stays so.
    theirs = stacked(before, against.repartition(*(f"{OTHER}{name}" for name in by)))
    parts = [f"{name} = {OTHER}{name}" for name in by]
    parts += [f"{OTHER}{_NO} <= {_NO}", f"{OTHER}{VS} < {VE}", f"{VS} < {OTHER}{VE}"]
    met = joined(mine, theirs, " AND ".join(parts))
    counted = f"IF({_NO} = {OTHER}{_NO}, 0, {_DELTA})"
    steps = (
        f"inline(array(struct(greatest({VS}, {OTHER}{VS}) AS {_AT}, {counted} AS {_COUNT}), "
        f"struct({OTHER}{VE} AS {_AT}, -{counted} AS {_COUNT})))"
    )
    their_lineage = [f"{OTHER}{name}" for name in whole.lineage]
    stepped = met.selectExpr(*by, _NO, VE, *kept, *their_lineage, steps).filter(f"{_AT} < {VE}")
    return _pieces(whole, stepped, [*by, _NO], kept)


def _told(
    frame: DataFrame, by: list[str], number: str, delta: str, own: list[str], all_lineage: list[str]
) -> DataFrame:
    """What is counted, its columns called as the other's."""
    made = {f"{OTHER}{name}": name for name in (*by, VS, VE)}
    lineage = {f"{OTHER}{name}": name if name in own else "CAST(NULL AS BIGINT)" for name in all_lineage}
    return chosen(frame, [], **made, **{f"{OTHER}{_NO}": f"CAST({number} AS INT)", _DELTA: delta}, **lineage)


def _pieces(whole: Rows, stepped: DataFrame, row: list[str], kept: list[str]) -> DataFrame:
    """From the steps of each row's count the intervals in which it is not below nothing."""
    line = over(row, [_AT])
    met = {
        f"{OTHER}{name}": f"{text.replace('(', f'({OTHER}', 1)} {over(row, [_AT], ALL)}"
        for name, text in lineage_of(whole.lineage).items()
    }
    columns = [*row, VE, *kept, _AT, *met]
    running = {_COUNT: f"sum({_COUNT}) {over(row, [_AT], UP_TO_NOW)}", _NEXT: f"lead({_AT}) {line}"}
    counted = chosen(stepped, columns[: -len(met) or None], **running, **met)
    last = chosen(counted.filter(f"{_NEXT} IS NULL OR {_NEXT} > {_AT}"), columns, **{_STANDS: f"{_COUNT} >= 0"})
    changed = chosen(last, ["*"], **{_WAS: f"lag({_STANDS}) {line}"}).filter(f"{_WAS} IS NULL OR {_WAS} != {_STANDS}")
    turns = chosen(changed, columns, **{_STANDS: _STANDS, _NEXT: f"lead({_AT}) {line}"}).filter(_STANDS)
    lineage = {name: f"{OTHER}{name}" for name in whole.lineage}
    return chosen(turns, [*whole.way.scope, *kept], **{VS: _AT, VE: f"coalesce({_NEXT}, {VE})"}, **lineage)


def _standing_now(whole: Rows, left: Rows, right: Rows, ranked: DataFrame, others: DataFrame) -> DataFrame:
    by = [*whole.way.scope, VALUE]
    merged = [f"{text} AS {name}" for name, text in lineage_of(right.lineage).items()]
    counts = grouped_by(others, by, [f"count(1) AS {_COUNT}", *merged])
    theirs = chosen(counts, [_COUNT, *right.lineage], **{f"{OTHER}{name}": name for name in by})
    on = " AND ".join(f"{name} = {OTHER}{name}" for name in by)
    if left.lineage:
        upto = {name: f"{text} {over(by, [_NO])}" for name, text in lineage_of(left.lineage).items()}
        ranked = having(ranked, upto)
    met = joined(ranked, theirs, on, "left").filter(f"{_NO} > coalesce({_COUNT}, 0)")
    return met.select(*left.columns, *whole.beside)
