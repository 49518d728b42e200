"""Grouping of equal rows, compared with Python's own equality of whole rows."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from errata.merge.row_codes import group_rows, key_hashes, sort_equal, table_words

TYPES: dict[pa.DataType, list[Any]] = {
    pa.string(): ["", "a", "b", "ab", "ä", "\0", "a\0", None],
    pa.float64(): [0.0, -0.0, 1.5, math.nan, -math.nan, math.inf, -math.inf, None],
    pa.float32(): [0.0, -0.0, 1.5, math.nan, None],
    pa.int64(): [0, -1, 2**63 - 1, -(2**63), None],
    pa.int32(): [0, -1, 2**31 - 1, None],
    pa.bool_(): [True, False, None],
    pa.decimal128(38, 2): [Decimal("0.00"), Decimal("-0.01"), Decimal(10) ** 30, Decimal(10) ** 35, None],
    pa.timestamp("us", "UTC"): [0, 1, -1, None],
    pa.date32(): [0, 1, -1, None],
}


def _same(value: Any) -> Any:
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value + 0.0
    return value


def _random_table(chance: random.Random, rows: int) -> pa.Table:
    kinds = chance.sample(list(TYPES), chance.randint(1, 4))
    columns = [[chance.choice(TYPES[kind]) for _ in range(rows)] for kind in kinds]
    cut = chance.randint(0, rows)
    parts = [
        pa.table(
            {
                str(at): pa.array(column[part], kind)
                for at, (kind, column) in enumerate(zip(kinds, columns, strict=True))
            }
        )
        for part in (slice(0, cut), slice(cut, rows))
    ]
    return pa.concat_tables(parts)


def _expected(rows: pa.Table) -> tuple[list[int], list[int]]:
    seen: dict[tuple[Any, ...], int] = {}
    codes, firsts = [], []
    for at, row in enumerate(rows.to_pylist()):
        values = tuple(_same(value) for value in row.values())
        if values not in seen:
            seen[values] = len(seen)
            firsts.append(at)
        codes.append(seen[values])
    return codes, firsts


@pytest.mark.parametrize("rows", [0, 1, 2, 7, 60])
def test_rows_are_grouped_as_python_groups_them(rows: int, chance: random.Random) -> None:
    for _ in range(40):
        table = _random_table(chance, rows)
        groups = group_rows(table_words(table, table.column_names))
        assert (groups.codes.tolist(), groups.firsts.tolist()) == _expected(table)


@pytest.mark.parametrize(
    "hashes",
    [
        pytest.param(lambda words: np.zeros(len(words[0]), dtype=np.uint64), id="all alike"),
        pytest.param(lambda words: (words[0].view(np.uint64) % np.uint64(3)) << np.uint64(60), id="three hashes"),
        pytest.param(lambda words: words[0].view(np.uint64) << np.uint64(1), id="lost among the places"),
    ],
)
def test_rows_that_share_a_hash_are_told_apart(
    hashes: Callable[[list[np.ndarray]], np.ndarray], chance: random.Random
) -> None:
    for _ in range(40):
        words = [np.array([chance.randint(-4, 4) for _ in range(50)]) for _ in range(2)]
        order, starts = sort_equal(words, hashes(words))
        rows = list(zip(*(word.tolist() for word in words), strict=True))
        groups: list[list[int]] = []
        for place, begins in zip(order.tolist(), starts.tolist(), strict=True):
            groups = [*groups, []] if begins else groups
            groups[-1].append(place)
        expected: dict[tuple[int, ...], list[int]] = {}
        for place, row in enumerate(rows):
            expected.setdefault(row, []).append(place)
        assert sorted(groups) == sorted(expected.values())


def test_the_hash_of_a_key_depends_on_its_values_alone(chance: random.Random) -> None:
    for _ in range(40):
        table = _random_table(chance, 30)
        places = [chance.randrange(30) for _ in range(50)]
        taken = table.take(places).slice(3).combine_chunks()
        whole, part = key_hashes(table, table.column_names), key_hashes(taken, table.column_names)
        assert part.tolist() == whole[places[3:]].tolist()


def test_different_texts_have_different_hashes(chance: random.Random) -> None:
    texts = [f"{chance.random()}" for _ in range(5000)] + ["a" * length for length in range(200)]
    assert len(set(key_hashes(pa.table({"key": texts}), ["key"]).tolist())) == len(set(texts))


def test_a_text_has_one_hash_whatever_the_width_of_its_offsets() -> None:
    texts = ["", "a", None, "äb"]
    narrow, wide = (pa.table({"key": pa.array(texts, kind)}) for kind in (pa.string(), pa.large_string()))
    assert key_hashes(narrow, ["key"]).tolist() == key_hashes(wide, ["key"]).tolist()
