"""Duplicates and cuts, against plain Python that looks at one row after the other."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from errata.archive.bucket_files import POS
from errata.archive.bucket_writer import cut_into_buckets
from errata.archive.ingest.duplicates import deduplicate
from errata.intake.types import arrow_schema
from errata.model.stream import DuplicatePolicy, Stream
from fixtures.flows import a_feed
from fixtures.oracle.revision import identical, key_of

KEYED = a_feed(moment="bigint", key=("who",))
PLACED = a_feed(moment="bigint")

ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "at": st.integers(0, 3),
            "who": st.sampled_from(["", "a", "b"]),
            "price": st.sampled_from([0.0, -0.0, 1.0, math.nan, None]),
            "note": st.sampled_from([None, "", "x"]),
        }
    ),
    max_size=25,
)

Row = dict[str, Any]


def a_table(stream: Stream, rows: Sequence[Row]) -> pa.Table:
    schema = arrow_schema(stream).append(pa.field(POS, pa.int64()))
    return pa.Table.from_pylist(list(rows), schema=schema)


def placed(stream: Stream, rows: Sequence[Row], archived: int) -> list[Row]:
    """The rows as settling gets them: of the first `archived` one for each key is in the archive; sorted."""
    known = {key_of(stream, row): {**row, POS: -1} for row in rows[:archived]}
    told = [*known.values(), *({**row, POS: pos} for pos, row in enumerate(rows[archived:]))]
    if not stream.key_has_order:
        return sorted(told, key=lambda row: (row["who"], row[POS]))
    return sorted(told, key=lambda row: (row["at"], row["who"], row[POS]))


def pieces(rows: list[Row], cuts: Sequence[int]) -> list[list[Row]]:
    """The rows in several tables, some of them empty."""
    ends = sorted(min(cut, len(rows)) for cut in cuts)
    return [rows[start:end] for start, end in zip([0, *ends], [*ends, len(rows)], strict=True)]


@dataclass
class Outcome:
    """What became of rows, told by their positions."""

    fresh: list[int] = field(default_factory=list)
    replacing: list[int] = field(default_factory=list)
    conflicts: list[tuple[int, int]] = field(default_factory=list)
    dropped: int = 0
    replaced: int = 0


def one_by_one(stream: Stream, rows: Sequence[Row]) -> Outcome:
    outcome = Outcome()
    for key in dict.fromkeys(key_of(stream, row) for row in rows):
        mine = [row for row in rows if key_of(stream, row) == key]
        there = mine.pop(0) if mine[0][POS] < 0 else None
        judge = first_stands if stream.on_duplicate is DuplicatePolicy.QUARANTINE else last_stands
        judge(outcome, stream, there, mine)
    return outcome


def first_stands(outcome: Outcome, stream: Stream, first: Row | None, rows: Sequence[Row]) -> None:
    for row in rows:
        if first is None:
            first = row
            outcome.fresh.append(row[POS])
        elif identical(stream, first, row):
            outcome.dropped += 1
        else:
            outcome.conflicts.append((row[POS], first[POS]))


def last_stands(outcome: Outcome, stream: Stream, there: Row | None, rows: Sequence[Row]) -> None:
    for row, following in pairwise(rows):
        if identical(stream, row, following):
            outcome.dropped += 1
        else:
            outcome.replaced += 1
    if not rows:
        return
    last = rows[-1]
    if there is None:
        outcome.fresh.append(last[POS])
    elif identical(stream, there, last):
        outcome.dropped += 1
    else:
        outcome.replacing.append(last[POS])


@pytest.mark.parametrize("policy", DuplicatePolicy)
@pytest.mark.parametrize("key", [("at", "who"), ("who",)])
@given(rows=ROWS, archived=st.integers(0, 8), cuts=st.lists(st.integers(0, 25), max_size=5))
def test_settling_is_looking_at_one_row_after_the_other(
    policy: DuplicatePolicy, key: tuple[str, ...], rows: list[Row], archived: int, cuts: list[int]
) -> None:
    stream = a_feed(moment="bigint", key=key, on_duplicate=policy)
    told = placed(stream, rows, archived)
    found = list(deduplicate((a_table(stream, piece) for piece in pieces(told, cuts)), stream))
    fresh = [pos for each in found for pos in each.new[POS].to_pylist()]
    replacing = [pos for each in found for pos in each.replacing[POS].to_pylist()]
    conflicts = [tuple(pair) for each in found for pair in each.conflicts.tolist()]
    dropped, replaced = sum(each.dropped for each in found), sum(each.replaced for each in found)
    assert Outcome(fresh, replacing, conflicts, dropped, replaced) == one_by_one(stream, told)
    values = {row[POS]: row for row in told}
    for each in found:
        for row in (*each.new.to_pylist(), *each.replacing.to_pylist()):
            assert identical(stream, row, values[row[POS]])


@pytest.mark.parametrize("stream", [KEYED, PLACED], ids=["key alone", "key with order"])
def test_a_key_that_fills_whole_tables(stream: Stream) -> None:
    rows = [{"at": 1, "who": "a", "price": 1.0, "note": None, POS: pos} for pos in range(7)]
    found = list(deduplicate((a_table(stream, [row]) for row in rows), stream))
    assert sum(each.dropped for each in found) == 6
    assert [each.new[POS].to_pylist() for each in found if each.new.num_rows] == [[0]]


def test_nothing_settles_to_nothing() -> None:
    assert list(deduplicate(iter([]), PLACED)) == []
    assert list(deduplicate(iter([a_table(PLACED, [])]), PLACED)) == []


@given(sizes=st.lists(st.integers(0, 20), max_size=8), bucket_rows=st.integers(1, 9))
def test_cutting_keeps_all_in_order_and_leaves_no_splinters(sizes: list[int], bucket_rows: int) -> None:
    numbers = np.arange(sum(sizes))
    tables = [pa.table({"n": piece}) for piece in np.split(numbers, np.cumsum(sizes)[:-1])] if sizes else []
    found = [table["n"].to_pylist() for table in cut_into_buckets(iter(tables), bucket_rows)]
    assert [number for piece in found for number in piece] == numbers.tolist()
    assert all(len(piece) <= bucket_rows for piece in found)
    # Plain Python: full buckets while more than one and a half remain, then all if they fit, else two halves.
    expected, rest = [], len(numbers)
    while rest > bucket_rows + bucket_rows // 2:
        expected.append(bucket_rows)
        rest -= bucket_rows
    expected += [rest] if 0 < rest <= bucket_rows else [(rest + 1) // 2, rest // 2] if rest else []
    assert [len(piece) for piece in found] == expected
