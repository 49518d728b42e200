"""Which windows a row is in, by integer arithmetic. A window is known by its number, or by the instant it begins at."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame

from errata.engine.frames import having, selected
from errata.engine.plans.rows import VE, VS, chosen, instant, over
from errata.language.nodes import RowWindow, TimeWindow

WINDOW, NUMBER = "_w", "_n"
_BACK, _FIRST, _COUNT = "_back", "_first", "_place"


def in_time_windows(frame: DataFrame, window: TimeWindow, own: str, at: int | None) -> DataFrame:
    """The rows, once for each window that their own time is in. Unless results are early, they count from the window's
    end on, and not at all if they have ended by then."""
    placed = _back(frame, own, window.size, window.slide)
    # A window that would begin before all numbers, or end after them, is none.
    starts = selected(placed, "*", f"try_subtract({own}, {_BACK}) AS {WINDOW}").drop(_BACK)
    starts = starts.filter(f"try_add({WINDOW}, {window.size}L) IS NOT NULL")
    if window.early:
        return starts
    end = f"{WINDOW} + {window.size}L"
    if at is not None:
        return starts.filter(f"{end} <= {instant(at)}")
    return having(starts, {VS: f"greatest({VS}, {end})"}).filter(f"{VS} < {VE}")


def in_row_windows(
    frame: DataFrame, window: RowWindow, group: Sequence[str], order: Sequence[str], known: str | None = None
) -> DataFrame:
    """The rows, once for each window of their group's rows that they are in, full or not. Windows that begin before the
    first row that is there are left out; see `numbered`."""
    placed = _back(numbered(frame, group, order, known), NUMBER, window.size, window.step)
    placed = placed.filter(f"{_BACK} <= {NUMBER} - {_FIRST}")
    return chosen(placed, ["*"], **{WINDOW: f"({NUMBER} - {_BACK}) DIV {window.step}L"}).drop(_BACK, NUMBER, _FIRST)


def numbered(frame: DataFrame, group: Sequence[str], order: Sequence[str], known: str | None = None) -> DataFrame:
    """The rows with their number among those of their group, from 0 on. `known` is the column of numbers that are known
    already: those of a group's first rows, where rows before them are not there."""
    so_far = over(group, order, "ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW")
    first = "0L" if known is None else f"coalesce(min({known}) {so_far}, 0L)"
    placed = chosen(frame, ["*"], **{_FIRST: first, _COUNT: f"row_number() {over(group, order)}"})
    return chosen(placed, ["*"], **{NUMBER: f"{_FIRST} + {_COUNT} - 1L"}).drop(_COUNT)


def _back(frame: DataFrame, moment: str, size: int, step: int) -> DataFrame:
    """How far before the row the windows begin that it is in; rows that are in none are gone."""
    into = f"pmod({moment}, {step}L)"
    if step >= size:
        return selected(frame, "*", f"{into} AS {_BACK}").filter(f"{_BACK} < {size}L")
    return selected(frame, "*", f"explode(sequence({into}, {size - 1}L, {step}L)) AS {_BACK}")
