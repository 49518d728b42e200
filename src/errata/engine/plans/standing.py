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

from errata.engine.frames import selected, stacked
from errata.engine.plans.rows import OPEN, UP_TO_NOW, VE, VS, chosen, over

NUMBER = "_no"
"""The number of a row of the left among those of its value, from 1 on, the oldest first."""
BEGIN, END = "_begin", "_end"
"""From when to when a row stands."""

_AT, _MOMENT, _ADDED, _AGAINST, _ASKED, _SOUGHT = "_p", "_moment", "_added", "_against", "_asked", "_sought"
_NODE, _BORDER, _WAS, _STANDS, _NEXT = "_node", "_border", "_was", "_stands", "_next"

_BITS = 31
"""Bits of a row's number."""
_DIGIT = 2
"""Bits of a digit. Twice as many are half the sorts, but five times the sums of each; the near engine is fastest so."""


def standing(left: DataFrame, right: DataFrame, by: Sequence[str]) -> DataFrame:
    """The intervals in which rows stand, by value and number, from `_begin` to `_end`.

    Both sides have the columns `by`, which tell the value, and lifetimes, the left also the number.
    """
    turns = _turns(_borders(_moments(left, right, by), by), by)
    line = over([*by, NUMBER], [_AT])
    # Of several turns at one instant the last one counts, and only if it is another side than before.
    latest = over([*by, NUMBER], [_MOMENT])
    last = chosen(turns, ["*"], **{_NEXT: f"lead({_AT}) {latest}"}).filter(f"{_NEXT} IS NULL OR {_NEXT} > {_AT}")
    sides = chosen(last, [*by, NUMBER, _AT, _STANDS], **{_WAS: f"coalesce(lag({_STANDS}) {line}, FALSE)"})
    changed = chosen(sides.filter(f"{_WAS} != {_STANDS}"), ["*"], **{END: f"coalesce(lead({_AT}) {line}, {OPEN})"})
    return chosen(changed.filter(_STANDS), [*by, NUMBER, END], **{BEGIN: _AT})


def _moments(left: DataFrame, right: DataFrame, by: Sequence[str]) -> DataFrame:
    """A value's beginnings and ends, one after the other, and the place of the border after each; 0: nothing has
    fallen."""
    both = stacked(_steps(left, by, NUMBER, added=1, against=0), _steps(right, by, "0", added=0, against=1))
    # Those of one instant come in an order that is the same whenever it is asked for; which one makes no difference.
    line = over(by, [_AT, NUMBER, _ADDED, _AGAINST])
    placed = chosen(both.filter(f"{_AT} < {OPEN}"), ["*"], **{_MOMENT: f"row_number() {line}"})
    upto = over(by, [_MOMENT], UP_TO_NOW)
    fallen = f"least(sum({_ADDED}) {upto}, sum({_AGAINST}) {upto})"
    return chosen(placed, [*by, _MOMENT, _AT, NUMBER, _ADDED], **{_SOUGHT: fallen})


def _steps(frame: DataFrame, by: Sequence[str], number: str, *, added: int, against: int) -> DataFrame:
    """What a row's beginning and end add to how many count on the left and on the right."""
    marks = (
        f"struct({at} AS {_AT}, {sign * added} AS {_ADDED}, {sign * against} AS {_AGAINST})"
        for at, sign in ((VS, 1), (VE, -1))
    )
    return selected(frame.filter(f"{VS} < {VE}"), *by, f"{number} AS {NUMBER}", f"inline(array({', '.join(marks)}))")


def _borders(moments: DataFrame, by: Sequence[str]) -> DataFrame:
    """The moments with the number of the border."""
    # Each moment is there as what it adds, which goes down the tree by its own number, and as what it asks.
    twice = selected(moments, "*", f"explode(array(TRUE, FALSE)) AS {_ASKED}", f"0 AS {_NODE}")
    found = twice.filter(f"{_ASKED} OR {_ADDED} != 0")
    top = -(-_BITS // _DIGIT) * _DIGIT
    for shift in range(top - _DIGIT, -1, -_DIGIT):
        found = _next_digit(found, by, shift)
    return chosen(found.filter(_ASKED), [*by, _MOMENT, _AT, NUMBER, _ADDED], **{_BORDER: _NODE})


def _next_digit(found: DataFrame, by: Sequence[str], shift: int) -> DataFrame:
    base = 1 << _DIGIT
    own = f"(shiftright({NUMBER}, {shift}) & {base - 1})"
    upto = over([*by, _NODE], [_MOMENT], UP_TO_NOW)
    # How many count whose digit is lower than each that there is.
    lower = {f"_c{digit}": f"sum(IF(NOT {_ASKED} AND {own} < {digit}, {_ADDED}, 0)) {upto}" for digit in range(1, base)}
    counted = chosen(found, ["*"], **lower)
    digit = " + ".join(f"IF({name} < {_SOUGHT}, 1, 0)" for name in lower)
    passed = ", ".join(f"IF({name} < {_SOUGHT}, {name}, 0)" for name in lower)
    columns = [*by, _MOMENT, _AT, NUMBER, _ADDED, _ASKED]
    node = f"{_NODE} * {base} + IF({_ASKED}, {digit}, {own})"
    return chosen(counted, columns, **{_SOUGHT: f"{_SOUGHT} - greatest({passed})", _NODE: node})


def _turns(borders: DataFrame, by: Sequence[str]) -> DataFrame:
    """The rows that begin, end or change sides at each moment, and whether they stand then."""
    known = chosen(borders, ["*"], **{_WAS: f"coalesce(lag({_BORDER}) {over(by, [_MOMENT])}, 0)"})
    rows = (
        # What begins or ends itself; then the former border, unless that is what has ended; then the new one.
        (f"IF({_ADDED} != 0, {NUMBER}, 0)", f"{_ADDED} = 1 AND {NUMBER} > {_BORDER}"),
        (f"IF({_BORDER} < {_WAS} AND {NUMBER} != {_WAS}, {_WAS}, 0)", "TRUE"),
        (f"IF({_BORDER} > {_WAS} AND {NUMBER} != {_BORDER}, {_BORDER}, 0)", "FALSE"),
    )
    turns = ", ".join(f"struct({number} AS {NUMBER}, {stands} AS {_STANDS})" for number, stands in rows)
    return selected(known, *by, _MOMENT, _AT, f"inline(array({turns}))").filter(f"{NUMBER} > 0")
