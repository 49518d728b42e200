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

from errata.psoup.index.keys import GREATEST, LEAST, KeyRange, Keys
from errata.psoup.row_sets import Mask

Segments = npt.NDArray[np.int32]

_CELLS_PER_CUT = 16
"""Cells of the grid for each cut: with cuts that lie evenly, hardly a cell has two. Chosen by `errata bench psoup`, the
rows that concern nobody."""

_FEWEST_CELLS, _MOST_CELLS = 1 << 12, 1 << 19
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
        self.last_begin = max(lows, default=LEAST)
        """The key at which the last of the ranges begins."""
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

    def open_cells(self, open_segments: Mask) -> Mask | None:
        """For each cell of the grid, whether one of these segments is in it; None without a grid. The last cell is all
        that is outside."""
        if self._grid is None:
            return None
        before = np.concatenate(([0], np.cumsum(open_segments)))
        last = np.append(self._cell_ends(len(self._grid) - 1), len(self._cuts))
        found: Mask = before[last + 1] > before[self._grid]
        found[-1] = open_segments[0] or open_segments[len(self._cuts)]
        return found

    def in_cells(self, cells: Mask, keys: Keys) -> Mask:
        """Which keys are in one of these cells."""
        found: Mask = cells[self._cells(keys, len(cells))]
        return found

    def _lay_grid(self) -> None:
        """A grid over the cuts; none where they lie too unevenly for it."""
        self._origin = self._cuts[0]
        span = int(self._cuts[-1]) - int(self._origin) + 1
        wanted = min(max(_FEWEST_CELLS, _CELLS_PER_CUT * len(self._cuts)), _MOST_CELLS)
        self._shift = np.uint64(max(0, (span - 1).bit_length() - (wanted - 1).bit_length()))
        cells = ((span - 1) >> int(self._shift)) + 1
        starts = np.arange(cells, dtype=np.uint64) << self._shift
        first = np.append(np.searchsorted(self._offsets(), starts, "right"), len(self._cuts)).astype(np.int32)
        self._steps = int((self._cell_ends(cells) - first[:-1]).max())
        if self._steps <= _MOST_STEPS:
            self._grid = first
            self._next = np.append(self._cuts, [GREATEST] * (self._steps + 1))

    def _offsets(self) -> npt.NDArray[np.uint64]:
        offsets: npt.NDArray[np.uint64] = (self._cuts - self._origin).view(np.uint64)
        return offsets

    def _cell_ends(self, cells: int) -> Segments:
        """The segment at the end of each cell."""
        ends = np.arange(1, cells + 1, dtype=np.uint64) << self._shift  # 2**64 wraps around to 0, and back
        return np.searchsorted(self._offsets(), ends - np.uint64(1), "right").astype(np.int32)

    def _look_up(self, keys: Keys, grid: Segments) -> Segments:
        found = grid[self._cells(keys, len(grid))]
        for _ in range(self._steps):
            found += self._next[found] <= keys
        if self._steps:
            np.minimum(found, np.int32(len(self._cuts)), out=found)
        found *= keys >= self._origin
        return found

    def _cells(self, keys: Keys, count: int) -> Keys:
        """The cell of each key among so many."""
        cells = (keys - self._origin).view(np.uint64)
        cells >>= self._shift
        np.minimum(cells, np.uint64(count - 1), out=cells)
        numbers: Keys = cells.view(np.int64)
        return numbers
