"""Lifetimes: where some that meet become one, and the normal form of a result."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as sf

from errata.engine.plans.rows import VE, VS, lineage_of, quoted

_ISLAND, _BEFORE = "_island", "_before"


def islands(frame: DataFrame, by: Sequence[str], lineage: Sequence[str] = ()) -> DataFrame:
    """For each value the maximal intervals in which any row with it counts."""
    line = Window.partitionBy(*by).orderBy(VS)
    reached = sf.max(VE).over(line.rowsBetween(Window.unboundedPreceding, -1))
    begun = frame.select(*by, VS, VE, *lineage, reached.alias(_BEFORE))
    # Rows that begin together are in the same island whatever their order, so an island is known by its beginning.
    begins = sf.expr(f"CASE WHEN {_BEFORE} IS NULL OR {VS} > {_BEFORE} THEN {VS} END")
    upto = line.rangeBetween(Window.unboundedPreceding, Window.currentRow)
    marked = begun.select(*by, VE, *lineage, sf.max(begins).over(upto).alias(_ISLAND))
    merged = [sf.expr(text).alias(name) for name, text in lineage_of(lineage).items()]
    whole = marked.groupBy(*by, _ISLAND).agg(sf.max(VE).alias(VE), *merged)
    return whole.select(*by, sf.col(_ISLAND).alias(VS), VE, *lineage)


def normal_form(frame: DataFrame, key: Sequence[str], payload: Sequence[str], scope: Sequence[str] = ()) -> DataFrame:
    """A result with lifetimes of equal payload that touch made one: the scope, key and other columns, and the lifetime.

    Two readers who say the same have the same normal form, however they cut the lifetimes.
    """
    names = [*scope, *key, *(name for name in payload if name not in key)]
    columns = [sf.col(quoted(name)) for name in names]
    line = Window.partitionBy(*columns).orderBy(VS, VE)
    begins = sf.when(sf.coalesce(sf.lag(VE).over(line) != sf.col(VS), sf.lit(True)), sf.col(VS))
    begun = frame.select(*columns, VS, VE, begins.alias(_BEFORE))
    number = sf.count(_BEFORE).over(line.rowsBetween(Window.unboundedPreceding, Window.currentRow))
    marked = begun.select(*columns, VS, VE, number.alias(_ISLAND))
    whole = marked.groupBy(*columns, _ISLAND).agg(sf.min(VS).alias(VS), sf.max(VE).alias(VE))
    return whole.select(*columns, VS, VE)
