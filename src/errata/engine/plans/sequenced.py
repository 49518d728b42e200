"""Aggregates over rows with lifetimes: for each group a row for each stretch of time in which the same rows count.

Floating point numbers are always added up anew from the rows that count: taking away what was added would leave traces.
Neighbouring results that happen to be equal stay two; readers compare normal forms.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame

from errata.engine.frames import grouped_by, having, selected
from errata.engine.plans.rows import OPEN, UP_TO_NOW, VE, VS, chosen, over

_AT, _NEXT, _ALIVE, _LIVE = "_p", "_next", "_alive", "_live"
_ROW, _POINT, _MET = "_row", "_point", "_met"


@dataclass(frozen=True)
class Grouping:
    """Rows that are to be aggregated."""

    frame: DataFrame
    """Its columns: the group, the values, and the lifetime if there is one."""
    group: tuple[str, ...]
    """The columns that make the group."""
    values: tuple[str, ...]
    """The columns that the aggregates read."""
    results: Mapping[str, str]
    """The aggregates, by name."""
    once: frozenset[str]
    """The values that count once, however often they are there."""


def at_once(given: Grouping, more: Mapping[str, str]) -> DataFrame:
    """All rows of a group together, whatever their lifetimes; of no rows at all there may be a row."""
    return grouped_by(given.frame, given.group, _aggregates(given, more))


def _aggregates(given: Grouping, more: Mapping[str, str]) -> list[str]:
    texts = {**{name: _distinct(given, text) for name, text in given.results.items()}, **more}
    return [f"{text} AS {name}" for name, text in texts.items()] or [f"count(1) AS {_LIVE}"]


def _distinct(given: Grouping, text: str) -> str:
    function, _, argument = text.partition("(")
    return f"{function}(DISTINCT {argument}" if argument.removesuffix(")") in given.once else text


def growing(given: Grouping) -> DataFrame:
    """Of rows that count for ever: a running aggregate in one pass over each group's rows."""
    frame = given.frame
    # A value counts where it is there for the first time.
    if given.once and given.group:
        frame = frame.repartition(*given.group)
    for name in sorted(given.once):
        first = f"row_number() {over([*given.group, name], [VS])} = 1"
        frame = having(frame, {name: f"IF({first}, {name}, NULL)"})
    upto = over(given.group, [VS], UP_TO_NOW)
    results = {name: f"{text} {upto}" for name, text in given.results.items()}
    run = chosen(frame, given.group, **{_AT: VS, _NEXT: f"lead({VS}) {over(given.group, [VS])}"}, **results)
    return _stretches(run, [*given.group, *given.results])


def sliding(given: Grouping, span: int, *, timed: bool) -> DataFrame:
    """Of rows that all count for the same span: at each beginning and end the rows of the span up to there."""
    marks = f"inline(array(struct({VS} AS {_AT}, TRUE AS {_ALIVE}), struct({VE} AS {_AT}, FALSE AS {_ALIVE})))"
    marked = selected(given.frame, *given.group, *given.values, marks).filter(f"{_AT} < {OPEN}")
    # A mark of an end only says that there is something to work out again.
    values = {name: f"IF({_ALIVE}, {name}, NULL)" for name in given.values}
    points = chosen(marked, [*given.group, _AT], **values, **{_ALIVE: f"IF({_ALIVE}, 1, NULL)"})
    # Near the lowest number a span would reach below it; decimals have room. Times never come near.
    order = _AT if timed else f"CAST({_AT} AS DECIMAL(20,0))"
    live = over(given.group, [order], f"RANGE BETWEEN {span - 1}{'L' if timed else 'BD'} PRECEDING AND CURRENT ROW")
    aggregates = {**given.results, _LIVE: f"count({_ALIVE})"}
    results = {name: f"{text} {live}" for name, text in aggregates.items()}
    run = chosen(points, [*given.group, _AT], **{_NEXT: f"lead({_AT}) {over(given.group, [_AT])}"}, **results)
    return _stretches(run, [*given.group, *aggregates]).filter(f"{_LIVE} > 0")


def _stretches(run: DataFrame, kept: Sequence[str]) -> DataFrame:
    """From what holds at each row's instant, what holds from each instant to the next."""
    last = run.filter(f"{_NEXT} IS NULL OR {_NEXT} > {_AT}")
    return chosen(last, kept, **{VS: _AT, VE: f"coalesce({_NEXT}, {OPEN})"})


def changing(given: Grouping) -> DataFrame:
    """Of rows with any lifetimes: at each beginning and end the rows that count there.

    A group's beginnings and ends are numbered, and each row is there once for each of them that it counts at: no row is
    met with others, or read twice.
    """
    columns = [*given.group, *given.values]
    rows = chosen(given.frame, [*columns, VS, VE], **{_ROW: f"row_number() {over(given.group, [VS])}"})
    marks = f"inline(array(struct({VS} AS {_AT}, TRUE AS {_ALIVE}), struct({VE} AS {_AT}, FALSE AS {_ALIVE})))"
    marked = selected(rows.filter(f"{VS} < {VE}"), *columns, _ROW, marks)
    numbered = chosen(marked, ["*"], **{_POINT: f"dense_rank() {over(given.group, [_AT])}"})
    # The mark after a row's beginning is its end, and after that comes none.
    until = chosen(numbered, ["*"], **{_NEXT: f"lead({_POINT}) {over([*given.group, _ROW], [_AT])}"})
    values = {name: f"IF({_ALIVE}, {name}, NULL)" for name in given.values}
    own = {_AT: f"IF({_MET} = {_POINT}, {_AT}, NULL)", _ALIVE: f"IF({_ALIVE}, 1, NULL)"}
    each = chosen(until, ["*"], **{_MET: f"explode(sequence({_POINT}, coalesce({_NEXT} - 1, {_POINT})))"})
    there = chosen(each, [*given.group, _MET], **values, **own)
    aggregates = _aggregates(given, {_AT: f"max({_AT})", _ALIVE: f"count({_ALIVE})"})
    found = grouped_by(there, [*given.group, _MET], aggregates).filter(f"{_AT} < {OPEN}")
    times = {VS: _AT, VE: f"coalesce(lead({_AT}) {over(given.group, [_AT])}, {OPEN})"}
    whole = chosen(found, [*given.group, *given.results, _ALIVE], **times)
    return whole.filter(f"{_ALIVE} > 0").drop(_ALIVE)
