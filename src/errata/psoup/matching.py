"""Which rows of a batch satisfy which conjunctions, for all of them at once, from the segments of the rows.

Two ways, chosen for each conjunction by how many rows its most selective range holds, which the rows' counts at the
boundaries tell beforehand; a conjunction with a range that holds none is out.

    few rows    `row_matching`: the rows of that range are verified one by one
    many rows   `bit_matching`: a bit for each row, and the AND of all ranges
"""

from __future__ import annotations

import numpy as np

from errata.psoup.bit_matching import match_bits
from errata.psoup.conjunction_table import (
    NO_MATCHES,
    BatchSegments,
    Compared,
    ConjunctionTable,
    DenseMatches,
    SparseMatches,
)
from errata.psoup.row_matching import match_rows
from errata.psoup.value_segments import Segments

_FEW = 400
"""A range with less than one row in so many is verified row by row. Chosen by `errata bench psoup`."""

_FEW_FROM_ROWS = 1024
"""Rows of a batch below which bits are always cheaper."""


def match_all(table: ConjunctionTable, batch: BatchSegments, compared: Compared) -> tuple[DenseMatches, SparseMatches]:
    """The rows that satisfy each conjunction; conjunctions that no row satisfies are left out."""
    fewest = _fewest_rows(table, batch)
    few = batch.rows // _FEW if batch.rows >= _FEW_FROM_ROWS else 0
    sparse = np.flatnonzero((fewest > 0) & (fewest <= few))
    dense = np.flatnonzero(fewest > few)
    found = match_rows(table, batch, sparse, compared) if len(sparse) else NO_MATCHES
    return match_bits(table, batch, dense, compared), found


def _fewest_rows(table: ConjunctionTable, batch: BatchSegments) -> Segments:
    """For each conjunction, how many rows its most selective range or set of ranges holds."""
    fewest = np.full(len(table.numbers), batch.rows, np.int32)
    for begins, ends in table.ranges:
        within = fewest[: len(begins)]
        np.minimum(within, batch.counts[ends] - batch.counts[begins], out=within)
    held = table.members.counts(batch)
    for places, numbers in table.sets:
        ranged = numbers < len(held)
        at = places[ranged]
        fewest[at] = np.minimum(fewest[at], held[numbers[ranged]])
    return fewest
