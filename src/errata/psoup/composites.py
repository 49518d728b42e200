"""Composite tuples (PSoup, section 5.4): what many probes of a join have in common is done once for all of them.

A query's probe of a source with one row of another is a *hybrid*: the query's relation with the row's value put in, and
the query's own conditions on the source probed. Hybrids of one query share these conditions; hybrids of one row for
many queries share the relation. Probing with each hybrid alone repeats what they share. A composite applies the shared
condition once, and looks up the rest at once, in sorted rows.

    many rows, one query     shared: conditions on the probed source      `composite_probe`
    many queries, one join   shared: the join itself                      `join_for_queries`
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa

from errata.language.registered.conditions import mirrored
from errata.model.registered import Comparison, Relation
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


# The experiment of figure 11.


@dataclass(frozen=True, slots=True)
class ProbeTimes:
    """The time to probe a source with the hybrids of one query, apart and together."""

    hybrids: int
    pairs: int
    separate_seconds: float
    composite_seconds: float


def measure_probes(
    values: np.ndarray, probed: np.ndarray, relation: Comparison, shared: Comparison, constant: int
) -> ProbeTimes:
    """Probe for the query (R.a relation S.b) AND (S.b shared constant), where the values of R.a are given, and S is
    indexed by b: with each value alone, and with all as one composite. Both find the same number of pairs."""
    index = np.sort(probed)
    begun = time.perf_counter()
    apart = separate_probe(values, index, relation, shared, constant)
    between = time.perf_counter()
    together = composite_probe(values, index, relation, shared, constant)
    ended = time.perf_counter()
    if apart != together:
        raise AssertionError(f"the probes found {apart} and {together} pairs")
    return ProbeTimes(len(values), together, between - begun, ended - between)


def separate_probe(
    values: np.ndarray, index: np.ndarray, relation: Comparison, shared: Comparison, constant: int
) -> int:
    """The number of pairs, by two look-ups for each value: its relation, and the condition that all values share."""
    pairs = 0
    for value in values.tolist():
        low, high = _range(index, value, mirrored(relation))
        shared_low, shared_high = _range(index, constant, shared)
        pairs += len(index[max(low, shared_low) : min(high, shared_high)])
    return pairs


def composite_probe(
    values: np.ndarray, index: np.ndarray, relation: Comparison, shared: Comparison, constant: int
) -> int:
    """The number of pairs, where the condition is applied once, and all values are looked up in what it leaves."""
    low, high = _range(index, constant, shared)
    left = index[low:high]
    places = np.searchsorted(left, values, side="left"), np.searchsorted(left, values, side="right")
    match relation:
        case Comparison.EQUAL:
            counts = places[1] - places[0]
        case Comparison.LESS:
            counts = len(left) - places[1]
        case Comparison.AT_MOST:
            counts = len(left) - places[0]
        case Comparison.GREATER:
            counts = places[0]
        case Comparison.AT_LEAST:
            counts = places[1]
    return int(counts.sum())


def _range(index: np.ndarray, value: int, comparison: Comparison) -> tuple[int, int]:
    """The places of what compares so with a value."""
    first, last = int(np.searchsorted(index, value, side="left")), int(np.searchsorted(index, value, side="right"))
    match comparison:
        case Comparison.EQUAL:
            return first, last
        case Comparison.LESS:
            return 0, first
        case Comparison.AT_MOST:
            return 0, last
        case Comparison.GREATER:
            return last, len(index)
        case Comparison.AT_LEAST:
            return first, len(index)
