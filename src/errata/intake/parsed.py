"""What a piece of a file says before its values have types."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Parsed:
    """Rows as they were written, and the lines that are no rows."""

    columns: dict[str, pa.Array]
    ordinals: np.ndarray
    """For each row, its line in the piece, from 0."""
    lines: int
    bad: dict[int, str] = field(default_factory=dict)
    """Lines that could not be taken apart, and why."""
    notes: dict[int, dict[str, str]] = field(default_factory=dict)
    """What is wrong with rows that could be taken apart, by row (not line) and column."""
    absent: dict[str, np.ndarray] = field(default_factory=dict)
    """The rows in which a column of `columns` is not given, for formats in which that differs by row."""


class Lines:
    """The lines of a piece, found when first asked for."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        content = np.frombuffer(data, np.uint8)
        newlines = np.flatnonzero(content == ord("\n"))
        self.content = content
        self.starts = np.concatenate(([0], newlines + 1)).astype(np.int64)
        self.ends = np.concatenate((newlines, [len(data)])).astype(np.int64)
        if self.starts[-1] == len(data):
            self.starts, self.ends = self.starts[:-1], self.ends[:-1]
        self.nexts = np.concatenate((self.starts[1:], [len(data)])).astype(np.int64)[: len(self.starts)]

    def __len__(self) -> int:
        return len(self.starts)

    def raw(self, ordinal: int) -> bytes:
        return self.data[self.starts[ordinal] : self.ends[ordinal]]

    def of(self, positions: np.ndarray) -> np.ndarray:
        """The line in which each byte position lies."""
        return np.searchsorted(self.starts, positions, side="right") - 1


def count_lines(data: bytes) -> int:
    """Physical lines; a last one without a newline counts."""
    return data.count(b"\n") + (1 if data and not data.endswith(b"\n") else 0)
