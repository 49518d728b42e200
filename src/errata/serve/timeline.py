"""Small drawings in text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

LEVELS = " ▁▂▃▄▅▆▇█"
STABLE = "┃"


@dataclass(frozen=True, slots=True)
class Stretch:
    """Rows from low to high on an axis, both included."""

    low: int
    high: int
    rows: int


def timeline(stretches: Sequence[Stretch], stable: int | None, width: int) -> str:
    """Where rows lie between the least and the greatest place, as a line of blocks that are higher where more lie.

    The stable point stands where it is, at the edge when it is beyond. Nothing is drawn of nothing.
    """
    if not stretches or width < 1:
        return ""
    low, high = min(each.low for each in stretches), max(each.high for each in stretches)
    density = [0.0] * width

    length = high + 1 - low
    for each in stretches:
        # In units of 1/width of the axis, so that a cell is as long as the axis and the sums stay whole.
        start, end = (each.low - low) * width, (each.high + 1 - low) * width
        for index in range(start // length, (end - 1) // length + 1):
            here = min(end, (index + 1) * length) - max(start, index * length)
            density[index] += each.rows * here / (end - start)
    most = max(density)
    line = [_level(share / most) for share in density]
    if stable is not None:
        line[min(width - 1, max(0, (stable - low) * width // length))] = STABLE
    return "".join(line)


def _level(share: float) -> str:
    """Whatever has a row shows; the fullest stands highest."""
    return LEVELS[0] if share <= 0 else LEVELS[max(1, round(share * (len(LEVELS) - 1)))]
