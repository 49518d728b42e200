"""The segments that the bounds of all queries cut the keys of an attribute into, and the segment of each row.

    ranges            [10, 20]        [15, 99]
    cuts         10        15        21            100
    segments   0 |    1    |    2    |      3       |  4        NULL: 5

Within a segment every range is true of all keys or of none, so a range is a run of segments, known when the index is
built, and a row needs one look-up for each attribute, however many queries there are. A look-up is one reading of a
grid of equal cells over the keys, and as many steps as there are cuts in the fullest cell; where cuts crowd into few
cells, and for a few rows, it is a bisection.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from errata.psoup.columns import GREATEST, LEAST, KeyRange, Keys
from errata.psoup.row_sets import Mask

Segments = npt.NDArray[np.int32]

_CELLS_PER_CUT = 8
"""Cells of the grid for each cut: with cuts that lie evenly, hardly a cell has two."""

_FEWEST_CELLS, _MOST_CELLS = 1 << 12, 1 << 18
"""Cells of a grid, four bytes each."""

_MOST_STEPS = 6
"""Steps from which on bisection is faster."""

_FEW_ROWS = 512
"""Rows up to which bisection is faster, since it is a single call."""


class ValueSegments:
    """The segments of one attribute."""

    def __init__(self, ranges: Iterable[KeyRange]) -> None:
        lows, highs = set(), set()
        for low, high in ranges:
            lows.add(low)
            highs.add(high)
        cuts = (lows | {high + 1 for high in highs if high < GREATEST}) - {LEAST}
        self._cuts = np.array(sorted(cuts), np.int64)
        self._grid: Segments | None = None
        if len(self._cuts):
            self._lay_grid()

    @property
    def null(self) -> int:
        """The segment of NULL, behind those of the keys."""
        return len(self._cuts) + 1

    @property
    def boundaries(self) -> int:
        """How many boundaries there are: before each segment, that of NULL too, and after the last."""
        return len(self._cuts) + 3

    def boundaries_of(self, lows: Keys, highs: Keys) -> tuple[Segments, Segments]:
        """For each of the ranges that the segments were made for, its first segment and the one after its last."""
        first = np.searchsorted(self._cuts, lows, "right").astype(np.int32)
        return first, np.searchsorted(self._cuts, highs, "right").astype(np.int32) + np.int32(1)

    def locate(self, keys: Keys, present: Mask | None) -> Segments:
        """The segment of each key; rows that are not present are NULL."""
        if self._grid is None or len(keys) <= _FEW_ROWS:
            found = np.searchsorted(self._cuts, keys, "right").astype(np.int32)
        else:
            found = self._look_up(keys, self._grid)
        if present is not None:
            found[~present] = self.null
        return found

    def _lay_grid(self) -> None:
        """A grid over the cuts; none where they lie too unevenly for it."""
        self._origin = self._cuts[0]
        span = int(self._cuts[-1]) - int(self._origin) + 1
        wanted = min(max(_FEWEST_CELLS, _CELLS_PER_CUT * len(self._cuts)), _MOST_CELLS)
        self._shift = np.uint64(max(0, (span - 1).bit_length() - (wanted - 1).bit_length()))
        cells = ((span - 1) >> int(self._shift)) + 1
        offsets = (self._cuts - self._origin).view(np.uint64)
        starts = np.arange(cells + 1, dtype=np.uint64) << self._shift
        first = np.searchsorted(offsets, starts, "right")
        lasts = starts[1:] - np.uint64(1)  # the end of the last cell can be 2**64, which wraps around
        inside = np.searchsorted(offsets, lasts, "right") - first[:-1]
        self._steps = int(inside.max())
        if self._steps <= _MOST_STEPS:
            first[-1] = len(self._cuts)
            self._grid = first.astype(np.int32)
            self._next = np.append(self._cuts, [GREATEST] * (self._steps + 1))

    def _look_up(self, keys: Keys, grid: Segments) -> Segments:
        cells = (keys - self._origin).view(np.uint64)
        cells >>= self._shift
        np.minimum(cells, np.uint64(len(grid) - 1), out=cells)
        found = grid[cells.view(np.int64)]
        for _ in range(self._steps):
            found += self._next[found] <= keys
        if self._steps:
            np.minimum(found, np.int32(len(self._cuts)), out=found)
        found *= keys >= self._origin
        return found
