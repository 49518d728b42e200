"""The join of the selected rows of several sources (PSoup, section 3.2.2), in memory and in blocks.

Sources are joined one after the other. Those joined so far are *combinations*: a row number of each. The next source is
sorted once, by what its relations with them have in common, so that the rows which can go with a combination lie side
by side:

    rows of the source, sorted by (equal keys, range key)      . . . [ x x x x ] . . . .
    of a combination: equal keys, first and last range key           ^first    ^last

All equalities, and all inequalities of one column, are answered by two look-ups in that order; other inequalities are
verified on the candidates. The next source is the one with the fewest candidates for a combination, as the number of
distinct keys lets expect; without a relation it is the product, and comes last.

Candidates are made in blocks of at most `BLOCK_ROWS`, and each block goes through all remaining sources before the next
is made: the memory is that of the sorted sources, one block for each, and the result.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
import pyarrow as pa

from errata.errors import RefusedError
from errata.model.registered import Comparison, Relation
from errata.psoup.join_keys import KeyedRelation, KeySide, compare, keyed_relation

BLOCK_ROWS = 1 << 18
"""Candidates that are made at once: some megabytes. Fewer cost more calls; more are not faster."""
MAX_JOINED_ROWS = 1 << 22
"""Rows of a join's result at most, unless the caller says otherwise. A result is held in memory as a whole."""
_RANGE_SHARE = {0: 1.0, 1: 0.3, 2: 0.05}
"""Share of a source's rows that none, one or two and more inequalities of a column are expected to keep."""

Combinations = tuple[np.ndarray, ...]
"""Row numbers in each source, side by side; an empty array where a source is not joined yet."""


@dataclass(frozen=True, slots=True)
class _RangeEnd:
    """One inequality that the sorted rows of a source answer."""

    ordered_keys: np.ndarray
    """The keys of the source's rows, in the order of the range column."""
    comparison: Comparison
    """With the source on the left."""
    other: KeySide


@dataclass(frozen=True, slots=True)
class _EqualKey:
    """One equality that the sorted rows of a source answer."""

    distinct: np.ndarray
    other: KeySide


@dataclass(frozen=True, slots=True)
class JoinStep:
    """A source, sorted for look-ups by the sources before it."""

    source: int
    rows: np.ndarray
    """The rows that can match, in the order of their places."""
    places: np.ndarray
    """For each of them: the number of its equal keys times the number of rows, plus its place in the range order."""
    equal_keys: tuple[_EqualKey, ...]
    equal_codes: tuple[np.ndarray, ...]
    """After each equal key: the combined codes that there are, sorted; the place of one is its number."""
    ranges: tuple[_RangeEnd, ...]
    verified: tuple[tuple[KeySide, Comparison, KeySide], ...]
    """Relations that are checked on candidates: the source's side, the comparison, and the other side."""

    def bounds(self, joined: Combinations) -> tuple[np.ndarray, np.ndarray]:
        """For each combination the candidates, as a range of places in `rows`."""
        count = max(map(len, joined))
        number, there = np.zeros(count, dtype=np.int64), np.ones(count, dtype=bool)
        for at, (equal, codes) in enumerate(zip(self.equal_keys, self.equal_codes, strict=True)):
            number, found = _number_of(equal, codes, number, joined, first=at == 0)
            there &= found
        low = np.zeros(count, dtype=np.int64)
        high = np.full(count, len(self.rows), dtype=np.int64)
        for each in self.ranges:
            chosen = joined[each.other.source]
            there &= each.other.present[chosen]
            self._narrow(each, each.other.keys[chosen], low, high)
        there &= low < high
        base = number * len(self.rows)
        first = np.searchsorted(self.places, base + low, side="left")
        last = np.searchsorted(self.places, base + high, side="left")
        return np.where(there, first, 0), np.where(there, last, 0)

    @staticmethod
    def _narrow(end: _RangeEnd, keys: np.ndarray, low: np.ndarray, high: np.ndarray) -> None:
        match end.comparison:
            case Comparison.LESS | Comparison.AT_MOST:
                side = "left" if end.comparison is Comparison.LESS else "right"
                np.minimum(high, _places(end.ordered_keys, keys, side), out=high)
            case Comparison.GREATER | Comparison.AT_LEAST:
                side = "right" if end.comparison is Comparison.GREATER else "left"
                np.maximum(low, _places(end.ordered_keys, keys, side), out=low)
            case Comparison.EQUAL:
                raise ValueError("an equality is no end of a range")


def join_blocks(tables: Sequence[pa.Table], relations: Sequence[Relation]) -> Iterator[Combinations]:
    """The combinations of rows that satisfy all relations, in blocks and in no particular order: for each source the
    row numbers in its table. NULL joins with nothing."""
    steps, start = plan_join(tables, relations)
    unjoined = tuple(np.zeros(0, dtype=np.int64) for _ in tables)
    for low in range(0, tables[start].num_rows, BLOCK_ROWS):
        rows = np.arange(low, min(low + BLOCK_ROWS, tables[start].num_rows))
        yield from _extended((*unjoined[:start], rows, *unjoined[start + 1 :]), steps)


def join_rows(
    tables: Sequence[pa.Table], relations: Sequence[Relation], *, limit: int = MAX_JOINED_ROWS
) -> Combinations:
    """All combinations of rows that satisfy all relations, ordered by the rows of the first source, then the next."""
    blocks, count = [], 0
    for block in join_blocks(tables, relations):
        blocks.append(block)
        count += len(block[0])
        check_joined(count, limit)
    if not blocks:
        return tuple(np.zeros(0, dtype=np.int64) for _ in tables)
    whole = tuple(np.concatenate(parts) for parts in zip(*blocks, strict=True))
    return in_order(whole, [each.num_rows for each in tables])


def in_order(joined: Combinations, sizes: Sequence[int]) -> Combinations:
    """Combinations, each there once, ordered by the rows of the first source, then the next; `sizes` are the numbers of
    rows of the sources. Where it can be, a combination is sorted as one number, which is several times faster."""
    if prod(sizes) >= 1 << 63:
        order = np.lexsort(joined[::-1])
        return tuple(each[order] for each in joined)
    numbers = np.zeros(len(joined[0]), dtype=np.int64)
    for each, size in zip(joined, sizes, strict=True):
        numbers = numbers * size + each
    numbers.sort()
    found = []
    for size in reversed(sizes[1:]):
        numbers, rows = np.divmod(numbers, size)
        found.append(rows)
    return (numbers, *reversed(found))


def check_joined(count: int, limit: int = MAX_JOINED_ROWS) -> None:
    """Refuse a join of so many rows."""
    if count > limit:
        raise RefusedError(
            f"the join has more than {limit:,} rows",
            why="the rows of a join are put together in memory before the first is shown, also for an answer in pages",
            how="ask for a smaller window, or add a condition or a relation between the sources",
        )


def plan_join(tables: Sequence[pa.Table], relations: Sequence[Relation]) -> tuple[list[JoinStep], int]:
    """The steps of a join, and the source that it begins with."""
    keyed = [_keyed(tables, each) for each in relations]
    counts = [each.num_rows for each in tables]
    start = min(range(len(tables)), key=lambda source: (not _related(source, keyed), counts[source]))
    joined, steps = {start}, []
    while len(joined) < len(tables):
        waiting = [source for source in range(len(tables)) if source not in joined]
        prepared = [(source, _between(source, joined, keyed)) for source in waiting]
        source, own = min(prepared, key=lambda each: _expected_candidates(counts[each[0]], each[0], each[1]))
        steps.append(_prepare(source, counts[source], own))
        joined.add(source)
    return steps, start


def _keyed(tables: Sequence[pa.Table], relation: Relation) -> KeyedRelation:
    left, right = tables[relation.left_source], tables[relation.right_source]
    return keyed_relation(relation, left[relation.left], right[relation.right])


def _related(source: int, keyed: Sequence[KeyedRelation]) -> bool:
    return any(source in (each.left.source, each.right.source) for each in keyed)


def _between(source: int, joined: set[int], keyed: Sequence[KeyedRelation]) -> list[KeyedRelation]:
    """The relations of a source with those that are joined."""
    pairs = [(each, each.left.source, each.right.source) for each in keyed]
    return [each for each, a, b in pairs if (a == source and b in joined) or (b == source and a in joined)]


def _expected_candidates(count: int, source: int, own: Sequence[KeyedRelation]) -> tuple[bool, float]:
    """Whether a source is joined by nothing, and the number of its rows that go with a combination."""
    expected = float(count)
    seen = [each.seen_from(source) for each in own]
    for mine, comparison, _ in seen:
        if comparison is Comparison.EQUAL and len(mine.keys):
            expected /= len(np.unique(mine.keys))
    inequalities = [mine.column for mine, comparison, _ in seen if comparison is not Comparison.EQUAL]
    most = max(map(inequalities.count, inequalities), default=0)
    return not own, expected * _RANGE_SHARE[min(most, 2)]


def _prepare(source: int, count: int, own: Sequence[KeyedRelation]) -> JoinStep:
    """Sort a source for its relations with those before it."""
    seen = [each.seen_from(source) for each in own]
    equal = [each for each in seen if each[1] is Comparison.EQUAL]
    others = [each for each in seen if each[1] is not Comparison.EQUAL]
    columns = [mine.column for mine, _, _ in others]
    chosen = max(columns, key=columns.count, default=None)
    ranges = [each for each in others if each[0].column == chosen]
    verified = [each for each in others if each[0].column != chosen]
    rows = np.arange(count)
    for mine, _, _ in (*equal, *ranges):
        rows = rows[mine.present[rows]]
    if ranges:
        rows = rows[np.argsort(ranges[0][0].keys[rows], kind="stable")]
    # Offsets and conversions to double keep the order, but may make one of what is two for another relation.
    ordered = [_ascending(mine.keys[rows]) for mine, _, _ in ranges]
    verified += [each for each, answered in zip(ranges, ordered, strict=True) if not answered]
    ranges = [each for each, answered in zip(ranges, ordered, strict=True) if answered]
    numbers = np.zeros(len(rows), dtype=np.int64)
    equal_keys, codes = [], []
    for at, (mine, _, other) in enumerate(equal):
        distinct, own_codes = np.unique(mine.keys[rows], return_inverse=True)
        combined = own_codes if at == 0 else numbers * len(distinct) + own_codes
        present, numbers = np.unique(combined, return_inverse=True)
        equal_keys.append(_EqualKey(distinct, other))
        codes.append(present)
    places = numbers * len(rows) + np.arange(len(rows))
    order = np.argsort(places)
    ends = tuple(_RangeEnd(mine.keys[rows], comparison, other) for mine, comparison, other in ranges)
    return JoinStep(source, rows[order], places[order], tuple(equal_keys), tuple(codes), ends, tuple(verified))


def _ascending(keys: np.ndarray) -> bool:
    return bool(np.all(keys[:-1] <= keys[1:]))


def _number_of(
    equal: _EqualKey, codes: np.ndarray, number: np.ndarray, joined: Combinations, *, first: bool
) -> tuple[np.ndarray, np.ndarray]:
    """The number of the equal keys so far, with one more, and whether the source has it."""
    chosen = joined[equal.other.source]
    code, there = _found(equal.distinct, equal.other.keys[chosen])
    number, known = _found(codes, code if first else number * len(equal.distinct) + code)
    return number, there & known & equal.other.present[chosen]


def _found(distinct: np.ndarray, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The place of each key among sorted ones, and whether it is there."""
    if len(distinct) == 0:
        return np.zeros(len(keys), dtype=np.int64), np.zeros(len(keys), dtype=bool)
    at = np.minimum(np.searchsorted(distinct, keys), len(distinct) - 1)
    return at, np.asarray(distinct[at] == keys, dtype=bool)


def _places(ordered: np.ndarray, keys: np.ndarray, side: str) -> np.ndarray:
    found: np.ndarray = np.searchsorted(ordered, keys, side="left" if side == "left" else "right")
    return found


def _extended(joined: Combinations, steps: Sequence[JoinStep]) -> Iterator[Combinations]:
    """The combinations of a block with all further sources, in blocks."""
    if not steps:
        yield joined
        return
    step, rest = steps[0], steps[1:]
    first, last = step.bounds(joined)
    ends = np.cumsum(last - first)
    total = int(ends[-1]) if len(ends) else 0
    for low in range(0, total, BLOCK_ROWS):
        block = _candidates(step, joined, (first, ends), (low, min(low + BLOCK_ROWS, total)))
        if len(block[step.source]):
            yield from _extended(block, rest)


def _candidates(
    step: JoinStep, joined: Combinations, ranges: tuple[np.ndarray, np.ndarray], numbers: tuple[int, int]
) -> Combinations:
    """The candidates of some numbers, counted through all combinations, that pass what has to be verified."""
    first, ends = ranges
    low, high = numbers
    begun, last = np.searchsorted(ends, (low, high - 1), side="right")
    # So many candidates of each combination are in the block.
    counts = np.diff(np.minimum(ends[begun : last + 1], high), prepend=low)
    combination = np.repeat(np.arange(begun, last + 1), counts)
    starts = np.append(0, ends)[begun : last + 1]
    rows = step.rows[np.arange(low, high) + np.repeat(first[begun : last + 1] - starts, counts)]
    for mine, comparison, other in step.verified:
        partner = joined[other.source][combination]
        kept = mine.present[rows] & other.present[partner] & compare(mine.keys[rows], comparison, other.keys[partner])
        rows, combination = rows[kept], combination[kept]
    return tuple(
        rows if source == step.source else each[combination] if len(each) else each
        for source, each in enumerate(joined)
    )
