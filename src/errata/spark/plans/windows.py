"""Which windows a row is in, by integer arithmetic. A window is known by its number, or by the instant it begins at."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as sf

from errata.language.nodes import RowWindow, TimeWindow
from errata.spark.plans.rows import VE, VS

WINDOW = "_w"
_INTO, _BACK, _NUMBER = "_into", "_back", "_n"


def in_time_windows(frame: DataFrame, window: TimeWindow, own: str, at: int | None) -> DataFrame:
    """The rows, once for each window that their own time is in. Unless results are early, they count from the window's
    end on, and not at all if they have ended by then."""
    placed = _back(frame, own, window.size, window.slide)
    # A window that would begin before all numbers, or end after them, is none.
    starts = placed.withColumn(WINDOW, sf.expr(f"try_subtract({own}, {_BACK})")).drop(_BACK)
    starts = starts.filter(f"try_add({WINDOW}, {window.size}L) IS NOT NULL")
    if window.early:
        return starts
    end = f"{WINDOW} + {window.size}L"
    if at is not None:
        return starts.filter(f"{end} <= {at}L")
    return starts.withColumn(VS, sf.expr(f"greatest({VS}, {end})")).filter(f"{VS} < {VE}")


def in_row_windows(frame: DataFrame, window: RowWindow, group: Sequence[str], order: Sequence[str]) -> DataFrame:
    """The rows, once for each window of their group's rows that they are in, full or not."""
    line = Window.partitionBy(*group).orderBy(*order)
    numbered = frame.withColumn(_NUMBER, sf.row_number().over(line).cast("bigint") - 1)
    placed = _back(numbered, _NUMBER, window.size, window.step).filter(f"{_BACK} <= {_NUMBER}")
    return placed.withColumn(WINDOW, sf.expr(f"({_NUMBER} - {_BACK}) DIV {window.step}L")).drop(_BACK, _NUMBER)


def _back(frame: DataFrame, moment: str, size: int, step: int) -> DataFrame:
    """How far before the row the windows begin that it is in; rows that are in none are gone."""
    into = f"pmod({moment}, {step}L)"
    if step >= size:
        return frame.withColumn(_BACK, sf.expr(into)).filter(f"{_BACK} < {size}L")
    return frame.withColumn(_BACK, sf.expr(f"explode(sequence({into}, {size - 1}L, {step}L))"))
