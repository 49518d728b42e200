"""Aggregates over rows with lifetimes: for each group a row for each stretch of time in which the same rows count.

Floating point numbers are always added up anew from the rows that count: taking away what was added would leave traces.
Neighbouring results that happen to be equal stay two; readers compare normal forms.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as sf

from errata.engine.plans.rows import OPEN, OTHER, VALUE, VE, VS, chosen, value

_AT, _NEXT, _ALIVE, _LIVE = "_p", "_next", "_alive", "_live"


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
    return given.frame.groupBy(*given.group).agg(*_aggregates(given, more))


def _aggregates(given: Grouping, more: Mapping[str, str]) -> list[Column]:
    texts = {**{name: _distinct(given, text) for name, text in given.results.items()}, **more}
    return [sf.expr(text).alias(name) for name, text in texts.items()] or [sf.count("*").alias(_LIVE)]


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
        first = sf.row_number().over(Window.partitionBy(*given.group, name).orderBy(VS)) == 1
        frame = frame.withColumn(name, sf.when(first, sf.col(name)))
    line = Window.partitionBy(*given.group).orderBy(VS)
    upto = line.rangeBetween(Window.unboundedPreceding, Window.currentRow)
    results = [sf.expr(text).over(upto).alias(name) for name, text in given.results.items()]
    run = frame.select(*given.group, VS, sf.lead(VS).over(line).alias(_NEXT), *results)
    return _stretches(run.withColumnRenamed(VS, _AT), [*given.group, *given.results])


def sliding(given: Grouping, span: int, *, timed: bool) -> DataFrame:
    """Of rows that all count for the same span: at each beginning and end the rows of the span up to there."""
    marks = f"inline(array(struct({VS} AS {_AT}, TRUE AS {_ALIVE}), struct({VE} AS {_AT}, FALSE AS {_ALIVE})))"
    marked = given.frame.select(*given.group, *given.values, sf.expr(marks)).filter(f"{_AT} < {OPEN}")
    # A mark of an end only says that there is something to work out again.
    values = {name: f"IF({_ALIVE}, {name}, NULL)" for name in given.values}
    points = chosen(marked, [*given.group, _AT], **values, **{_ALIVE: f"IF({_ALIVE}, 1, NULL)"})
    line = Window.partitionBy(*given.group).orderBy(_AT)
    # Near the lowest number a span would reach below it; decimals have room. Times never come near.
    wide = line if timed else Window.partitionBy(*given.group).orderBy(sf.col(_AT).cast("decimal(20,0)"))
    live = wide.rangeBetween(1 - span, Window.currentRow)
    aggregates = {**given.results, _LIVE: f"count({_ALIVE})"}
    results = [sf.expr(text).over(live).alias(name) for name, text in aggregates.items()]
    run = points.select(*given.group, _AT, sf.lead(_AT).over(line).alias(_NEXT), *results)
    return _stretches(run, [*given.group, *aggregates]).filter(f"{_LIVE} > 0")


def _stretches(run: DataFrame, kept: Sequence[str]) -> DataFrame:
    """From what holds at each row's instant, what holds from each instant to the next."""
    last = run.filter(f"{_NEXT} IS NULL OR {_NEXT} > {_AT}")
    return chosen(last, kept, **{VS: _AT, VE: f"coalesce({_NEXT}, {OPEN})"})


def changing(given: Grouping) -> DataFrame:
    """Of rows with any lifetimes: at each beginning and end the rows that count there."""
    keys = value(given.group) if given.group else "0"
    rows = chosen(given.frame, [*given.group, *given.values, VS, VE], **{VALUE: keys})
    ends = rows.select(VALUE, sf.explode(sf.array(VS, VE)).alias(_AT)).filter(f"{_AT} < {OPEN}")
    following = sf.lead(_AT).over(Window.partitionBy(VALUE).orderBy(_AT))
    points = ends.distinct().select(sf.col(VALUE).alias(f"{OTHER}{VALUE}"), _AT, following.alias(_NEXT))
    on = f"{VALUE} = {OTHER}{VALUE} AND {VS} <= {_AT} AND {_AT} < {VE}"
    met = rows.select(VALUE, *given.values, VS, VE).join(points, sf.expr(on))
    found = met.groupBy(VALUE, _AT, _NEXT).agg(*_aggregates(given, {}))
    groups = {name: f"{VALUE}.v{number}" for number, name in enumerate(given.group)}
    return chosen(found, [*given.results], **groups, **{VS: _AT, VE: f"coalesce({_NEXT}, {OPEN})"})
