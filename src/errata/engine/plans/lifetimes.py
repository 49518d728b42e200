"""Lifetimes: where some that meet become one, and the normal form of a result."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame

from errata.engine.frames import grouped_by
from errata.engine.plans.rows import EARLIER, UP_TO_NOW, VE, VS, chosen, lineage_of, over, quoted

_ISLAND, _BEFORE = "_island", "_before"


def islands(frame: DataFrame, by: Sequence[str], lineage: Sequence[str] = ()) -> DataFrame:
    """For each value the maximal intervals in which any row with it counts."""
    begun = chosen(frame, [*by, VS, VE, *lineage], **{_BEFORE: f"max({VE}) {over(by, [VS], EARLIER)}"})
    # Rows that begin together are in the same island whatever their order, so an island is known by its beginning.
    begins = f"CASE WHEN {_BEFORE} IS NULL OR {VS} > {_BEFORE} THEN {VS} END"
    marked = chosen(begun, [*by, VE, *lineage], **{_ISLAND: f"max({begins}) {over(by, [VS], UP_TO_NOW)}"})
    merged = [f"{text} AS {name}" for name, text in lineage_of(lineage).items()]
    whole = grouped_by(marked, [*by, _ISLAND], [f"max({VE}) AS {VE}", *merged])
    return whole.selectExpr(*by, f"{_ISLAND} AS {VS}", VE, *lineage)


def normal_form(frame: DataFrame, key: Sequence[str], payload: Sequence[str], scope: Sequence[str] = ()) -> DataFrame:
    """A result with lifetimes of equal payload that touch made one: the scope, key and other columns, and the lifetime.

    Two readers who say the same have the same normal form, however they cut the lifetimes.
    """
    columns = [quoted(name) for name in (*scope, *key, *(name for name in payload if name not in key))]
    begins = f"IF(coalesce(lag({VE}) {over(columns, [VS, VE])} != {VS}, TRUE), {VS}, NULL)"
    begun = chosen(frame, [*columns, VS, VE], **{_BEFORE: begins})
    marked = chosen(begun, ["*"], **{_ISLAND: f"count({_BEFORE}) {over(columns, [VS, VE], UP_TO_NOW)}"})
    whole = grouped_by(marked, [*columns, _ISLAND], [f"min({VS}) AS {VS}", f"max({VE}) AS {VE}"])
    return whole.select(*columns, VS, VE)
