"""Corrections of generated quotes: a row's number tells its price, so each correction can quote what it replaces."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from errata.generate.faults import ExtraLine
from errata.generate.feed import IntArray, QuoteFeed, QuoteRows
from errata.generate.files import json_line
from errata.generate.quotes import DEFAULT_START

RATE = 200
"""Quotes a second: each of as many symbols reports once."""

FEED = QuoteFeed(seed=1, symbols=RATE, start=DEFAULT_START)
"""The feed that `generate_quotes` writes when it is told nothing else."""

_TOGETHER = 1_000
"""Prices are made from walks of a thousand steps: of so many at a time, lest they fill the memory."""


@dataclass(frozen=True, slots=True)
class Corrections:
    """A file of corrections, each with the price that it replaces, and what they say."""

    file: Path
    rows: QuoteRows
    """The rows as they are corrected."""
    old: IntArray
    """Their prices before, in cents."""

    @property
    def change(self) -> float:
        """By how much the sum of all prices changes."""
        return float((self.rows.cents - self.old).sum()) / 100


def spread(count: int, first: int, end: int, seed: int = 1) -> IntArray:
    """Numbers of so many rows from `first` up to and without `end`: one at a random place of each equal part."""
    edges = np.linspace(first, end, count + 1).astype(np.int64)
    return np.random.default_rng(seed).integers(edges[:-1], edges[1:])


def write_corrections(rows: IntArray, file: Path) -> Corrections:
    """Correct the price of each of the rows, as JSON lines."""
    old = QuoteRows.empty()
    for start in range(0, len(rows), _TOGETHER):
        old = old.append(FEED.rows_at(rows[start : start + _TOGETHER]))
    new = QuoteRows(old.time, old.symbol, old.cents + 1 + rows % 97)
    columns = (new.time, new.symbol, new.cents, old.cents)
    said = zip(*(column.tolist() for column in columns), strict=True)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(b"".join(json_line(ExtraLine(0, *values), FEED) for values in said))
    return Corrections(file, new, old.cents)
