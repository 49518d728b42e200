"""Timelines as shapes in the drawing's own units (x in cells, y from 0 at the top to 100). The template turns them
into SVG."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from errata.catalog.activity import TimelineStrip
from errata.model.bucket import Role
from errata.read.details import StreamTimeline

HEIGHT = 100
LOWEST_BAR = 8
"""Least height of a bucket's bar."""

AGED = 0.03
"""Share of the width that stands for everything that was aged out, whose length is unknown."""

CORRECTED, PENDING = 18, 14
"""Heights of the bands for overlays, from the top, and pending revisions, from the foot. The bars behind them stay
visible."""


@dataclass(frozen=True, slots=True)
class Drawing:
    """The shapes of a timeline. Paths are SVG's; x is in cells, y from 0 at the top to 100."""

    left: float
    width: float
    bars: str
    corrected: str
    pending: str
    stable: float | None
    aged: float
    """The width of the aged-out part, left of 0."""
    ticks: Sequence[int]
    """Places of labels, at equal distances."""


def timeline_drawing(of: StreamTimeline, ticks: int = 2) -> Drawing:
    """The drawing of a timeline, with `ticks` labels."""
    aged = of.cells * AGED if of.aged_to is not None else 0.0
    bars = of.strips_of(Role.BASE)
    most = max((each.rows for each in bars), default=1) or 1
    return Drawing(
        -aged,
        of.cells + aged,
        "".join(_bar(each, max(LOWEST_BAR, HEIGHT * each.rows / most)) for each in bars),
        "".join(_band(first, last, 0, CORRECTED) for first, last in _joined(of.strips_of(Role.OVERLAY))),
        "".join(_band(first, last, HEIGHT - PENDING, PENDING) for first, last in _joined(of.strips_of(Role.PENDING))),
        None if of.stable is None else of.cell(of.stable),
        aged,
        _ticks(of, ticks),
    )


def sparkline_path(amounts: Sequence[int]) -> str:
    """Bars beside each other, one cell wide and as high as their amounts are of the greatest."""
    most = max(amounts, default=0) or 1
    return "".join(
        f"M{at + 0.1:g} {HEIGHT}V{HEIGHT - max(LOWEST_BAR, HEIGHT * each / most):.4g}H{at + 0.9:g}V{HEIGHT}z"
        for at, each in enumerate(amounts)
        if each
    )


def coverage_path(spans: Iterable[tuple[int, int]], low: int, high: int, width: int, rate: float | None) -> str:
    """Where spans (ends included) lie on the axis from `low` to `high`, `width` units wide: bars as high as the rate,
    merged where they touch."""
    length = high + 1 - low
    height = max(LOWEST_BAR, HEIGHT * (1.0 if rate is None else rate))
    merged: list[tuple[int, int]] = []
    for start, last in sorted(spans):
        if merged and start <= merged[-1][1] + 1:
            merged[-1] = merged[-1][0], max(merged[-1][1], last)
        else:
            merged.append((start, last))
    ends = ((width * (start - low) / length, width * (last + 1 - low) / length) for start, last in merged)
    # A span of no visible length is drawn one unit wide.
    return "".join(
        f"M{left:g} {HEIGHT}V{HEIGHT - height:.4g}H{max(right, left + 1):g}V{HEIGHT}z" for left, right in ends
    )


def _bar(each: TimelineStrip, height: float) -> str:
    # Neighbours touch the same cell: each gets half of it, less a gap.
    left, right = (
        (each.first + 0.75, each.last + 0.25) if each.last > each.first else (each.first + 0.1, each.first + 0.9)
    )
    return f"M{left:g} {HEIGHT}V{HEIGHT - height:.4g}H{right:g}V{HEIGHT}z"


def _band(first: int, last: int, top: int, height: int) -> str:
    return f"M{first} {top}H{last + 1}V{top + height}H{first}z"


def _joined(some: Iterable[TimelineStrip]) -> list[tuple[int, int]]:
    """The cells that strips touch, with neighbours merged, so that shades do not add up."""
    found: list[tuple[int, int]] = []
    for each in sorted(some, key=lambda each: each.first):
        if found and each.first <= found[-1][1] + 1:
            found[-1] = found[-1][0], max(found[-1][1], each.last)
        else:
            found.append((each.first, each.last))
    return found


def _ticks(of: StreamTimeline, count: int) -> list[int]:
    span = of.high - of.low
    return list(dict.fromkeys(of.low + span * number // (count - 1) for number in range(count)))
