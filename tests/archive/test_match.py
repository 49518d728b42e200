"""Matching against two nested loops."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from errata.archive import tables as matching
from errata.archive.tables import is_among, is_in_sorted, match_rows

NAMES = ("a", "b", "c")

DOMAINS: list[tuple[pa.DataType, list[object]]] = [
    (pa.string(), ["", "x", "y", "xy"]),
    (pa.int32(), [-1, 0, 1]),
    (pa.int64(), [-(2**63), 0, 2**63 - 1]),
    (pa.bool_(), [False, True]),
    (pa.binary(), [b"", b"\0", b"\xff"]),
    (pa.date32(), [date(1969, 12, 31), date(2026, 11, 18)]),
    (pa.timestamp("us", "UTC"), [datetime(2026, 11, 18, 2, tzinfo=UTC), datetime(1, 1, 1, tzinfo=UTC)]),
    (pa.decimal128(38, 2), [Decimal("-1.25"), Decimal("1.25"), Decimal(10) ** 35]),
    (pa.dictionary(pa.int32(), pa.string()), ["x", "y", "z"]),
]


@st.composite
def two_tables(draw: st.DrawFn) -> tuple[pa.Table, pa.Table]:
    domains = draw(st.lists(st.sampled_from(DOMAINS), min_size=1, max_size=len(NAMES)))
    sizes = draw(st.sampled_from([(30, 3), (3, 30), (8, 8), (0, 5), (5, 0)]))

    def table(size: int) -> pa.Table:
        values = (st.sampled_from(values) for _, values in domains)
        rows = st.lists(st.tuples(*values), min_size=size // 2, max_size=size)
        columns = list(zip(*drawn, strict=True)) if (drawn := draw(rows)) else [()] * len(domains)
        cut = draw(st.integers(0, size))
        arrays = [pa.array(column, kind) for column, (kind, _) in zip(columns, domains, strict=True)]
        chunked = [pa.chunked_array([array[:cut], array[cut:]]) for array in arrays]
        return pa.table(chunked, names=NAMES[: len(domains)])

    return table(sizes[0]), table(sizes[1])


@given(two_tables(), st.sampled_from([0, 2, 1_000]))
def test_pairs_are_those_of_two_loops(tables: tuple[pa.Table, pa.Table], joined_as_they_are: int) -> None:
    left, right = tables
    expected = [
        (number, other)
        for number, row in enumerate(left.to_pylist())
        for other, candidate in enumerate(right.to_pylist())
        if row == candidate
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(matching, "DIRECT_JOIN_ROWS", joined_as_they_are)
        of_left, of_right = match_rows(left, right, left.column_names)
    assert list(zip(of_left.tolist(), of_right.tolist(), strict=True)) == expected


def test_numbers_of_many_columns_do_not_overflow() -> None:
    names = [f"c{number}" for number in range(12)]
    rows = 2_000
    generator = np.random.default_rng(1)
    table = pa.table({name: generator.permutation(rows) for name in names})
    shuffled = generator.permutation(rows)
    of_left, of_right = match_rows(table, table.take(pa.array(shuffled)), names)
    assert of_left.tolist() == list(range(rows))
    assert shuffled[of_right].tolist() == list(range(rows))


@given(st.lists(st.integers(-5, 5)), st.lists(st.integers(-5, 5)))
def test_membership(values: list[int], wanted: list[int]) -> None:
    expected = [value in wanted for value in values]
    array = np.array(values, dtype=np.int64)
    assert is_in_sorted(array, np.array(sorted(wanted), dtype=np.int64)).tolist() == expected
    assert is_among(pa.array(values, pa.int64()), pa.array(wanted, pa.int64())).tolist() == expected
    words = pa.array(map(str, values), pa.string()).dictionary_encode()
    assert is_among(words, pa.array(map(str, wanted), pa.string())).tolist() == expected
