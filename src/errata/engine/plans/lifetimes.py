"""Lifetimes: where some that meet become one."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame

from errata.engine.frames import grouped_by, selected
from errata.engine.plans.rows import EARLIER, UP_TO_NOW, VE, VS, chosen, lineage_of, over

_ISLAND, _BEFORE = "_island", "_before"


def islands(frame: DataFrame, by: Sequence[str], lineage: Sequence[str] = ()) -> DataFrame:
    """For each value the maximal intervals in which any row with it counts."""
    begun = chosen(frame, [*by, VS, VE, *lineage], **{_BEFORE: f"max({VE}) {over(by, [VS], EARLIER)}"})
    # Rows that begin together are in the same island whatever their order, so an island is known by its beginning.
    begins = f"CASE WHEN {_BEFORE} IS NULL OR {VS} > {_BEFORE} THEN {VS} END"
    marked = chosen(begun, [*by, VE, *lineage], **{_ISLAND: f"max({begins}) {over(by, [VS], UP_TO_NOW)}"})
    merged = [f"{text} AS {name}" for name, text in lineage_of(lineage).items()]
    whole = grouped_by(marked, [*by, _ISLAND], [f"max({VE}) AS {VE}", *merged])
    return selected(whole, *by, f"{_ISLAND} AS {VS}", VE, *lineage)
