"""Composite tuples (PSoup, section 5.4) for joins: queries whose joins have the same relations share one.

Hybrids of one row for many queries share the relation; probing with each alone would repeat it. The rows that any query
selects are joined once, and each combination of rows is then given to the queries that have all of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
import pyarrow as pa

from errata.model.registered import Relation
from errata.psoup.joins import Combinations, in_order, join_blocks
from errata.psoup.row_sets import RowSet

_BITS_AT_ONCE = 1 << 27
"""Bits of pairs and queries that are told apart at once: a few tens of megabytes."""


def join_for_queries(
    tables: Sequence[pa.Table], relations: Sequence[Relation], selected: Sequence[Sequence[RowSet]]
) -> list[Combinations]:
    """The joins of many queries with the same relations, made as one: for each query, which has a set of rows of each
    table, its combinations of rows.

    The rows that any query selects are joined once. Each combination then belongs to the queries that have all of its
    rows, which is a bitwise AND of words with a bit for each query."""
    queries = len(selected)
    by_source = list(zip(*selected, strict=True)) or [()] * len(tables)
    chosen = [np.flatnonzero(_union(sets, table.num_rows)) for sets, table in zip(by_source, tables, strict=True)]
    narrowed = [table.take(pa.array(rows)) for table, rows in zip(tables, chosen, strict=True)]
    members = [_members(sets, rows) for sets, rows in zip(by_source, chosen, strict=True)]
    parts: list[list[Combinations]] = [[] for _ in range(queries)]
    for block in join_blocks(narrowed, relations):
        for query, places in _told_apart(members, block, queries):
            parts[query].append(tuple(rows[each[places]] for rows, each in zip(chosen, block, strict=True)))
    return [_ordered(each, [table.num_rows for table in tables]) for each in parts]


def _union(sets: Sequence[RowSet], rows: int) -> np.ndarray:
    found = np.zeros(rows, dtype=bool)
    for each in sets:
        found |= each.mask()
    return found


def _members(sets: Sequence[RowSet], rows: np.ndarray) -> np.ndarray:
    """For each row, bytes with a bit for each query that has it."""
    bits = np.zeros((len(sets), len(rows)), dtype=bool)
    for at, each in enumerate(sets):
        bits[at] = each.mask()[rows]
    return np.packbits(bits, axis=0).T


def _told_apart(members: Sequence[np.ndarray], block: Combinations, queries: int) -> Iterator[tuple[int, np.ndarray]]:
    """The queries of a block's combinations, each with the places of its own."""
    step = max(1, _BITS_AT_ONCE // max(queries, 1))
    for low in range(0, len(block[0]), step):
        owners = members[0][block[0][low : low + step]]
        for own, rows in zip(members[1:], block[1:], strict=True):
            owners = owners & own[rows[low : low + step]]
        places, numbers = np.nonzero(np.unpackbits(owners, axis=1, count=queries))
        order = np.argsort(numbers, kind="stable")
        ends = np.flatnonzero(np.diff(numbers[order], prepend=-1, append=queries))
        for start, end in pairwise(ends):
            yield int(numbers[order[start]]), low + places[order[start:end]]


def _ordered(parts: Sequence[Combinations], sizes: Sequence[int]) -> Combinations:
    if not parts:
        return tuple(np.zeros(0, dtype=np.int64) for _ in sizes)
    return in_order(tuple(np.concatenate(each) for each in zip(*parts, strict=True)), sizes)
