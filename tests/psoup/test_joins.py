"""Joins equal nested loops over the same rows, compared value by value."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from itertools import product

import numpy as np
import pyarrow as pa
import pytest

from errata.errors import RefusedError
from errata.model.registered import Comparison, RegisteredPlan, Relation
from errata.psoup import joins
from errata.psoup.joins import in_order, join_blocks, join_rows, plan_join
from fixtures.registered.oracle import related
from fixtures.registered.streams import STREAMS, Row, random_rows, table_of
from fixtures.registered.texts import random_plan

EQUAL, LESS, AT_LEAST, AT_MOST = Comparison.EQUAL, Comparison.LESS, Comparison.AT_LEAST, Comparison.AT_MOST


def nested_loops(plan: RegisteredPlan, rows: Sequence[Sequence[Row]]) -> list[tuple[int, ...]]:
    declared = [STREAMS[each.stream] for each in plan.sources]
    places = product(*(range(len(each)) for each in rows))
    return [
        place
        for place in places
        if all(
            related(declared, [own[at] for own, at in zip(rows, place, strict=True)], each) for each in plan.relations
        )
    ]


def joined(tables: Sequence[pa.Table], relations: Sequence[Relation], **options: int) -> list[tuple[int, ...]]:
    return list(zip(*(each.tolist() for each in join_rows(tables, relations, **options)), strict=True))


def in_two_chunks(table: pa.Table) -> pa.Table:
    half = table.num_rows // 2
    return pa.concat_tables([table.slice(0, half), table.slice(half)])


@pytest.mark.parametrize(("sources", "count", "times"), [(2, 40, 120), (3, 14, 60)])
def test_any_join_equals_nested_loops(
    chance: random.Random, monkeypatch: pytest.MonkeyPatch, sources: int, count: int, times: int
) -> None:
    monkeypatch.setattr(joins, "BLOCK_ROWS", chance.choice([7, 1 << 18]))
    found = 0
    for _ in range(times):
        plan = random_plan(chance, sources=sources)
        rows = [random_rows(chance, STREAMS[each.stream], chance.randrange(count)) for each in plan.sources]
        tables = [
            in_two_chunks(table_of(STREAMS[each.stream], own)) for each, own in zip(plan.sources, rows, strict=True)
        ]
        expected = nested_loops(plan, rows)
        assert joined(tables, plan.relations) == expected, plan.relations
        found += len(expected)
    assert found > 100


def test_every_pair_of_types_is_compared_as_the_oracle_does(chance: random.Random) -> None:
    """All comparable columns of two streams, by all comparisons."""
    left, right = STREAMS["trades"], STREAMS["quotes"]
    rows = [random_rows(chance, left, 30), random_rows(chance, right, 30)]
    tables = [table_of(left, rows[0]), table_of(right, rows[1])]
    checked = 0
    for mine, theirs in product(left.columns, right.columns):
        if not joins_types(mine.type.kind.value, theirs.type.kind.value):
            continue
        for comparison in Comparison:
            relation = Relation(0, mine.name, comparison, 1, theirs.name)
            expected = [
                (a, b)
                for a, b in product(range(30), range(30))
                if related([left, right], [rows[0][a], rows[1][b]], relation)
            ]
            assert joined(tables, [relation]) == expected, relation
            checked += 1
    assert checked > 200


NUMBERS, TIMES = {"int", "bigint", "float", "double", "decimal"}, {"date", "timestamp"}


def joins_types(one: str, other: str) -> bool:
    return one == other or {one, other} <= NUMBERS or {one, other} <= TIMES


def numbers(**columns: list[object]) -> pa.Table:
    return pa.table({name: pa.array(values) for name, values in columns.items()})


def test_null_joins_nothing_nan_joins_nan_and_the_zeros_are_one() -> None:
    left = numbers(x=[None, math.nan, 0.0, math.inf])
    right = numbers(y=[-0.0, math.nan, None, 1.0])
    assert joined([left, right], [Relation(0, "x", EQUAL, 1, "y")]) == [(1, 1), (2, 0)]
    assert joined([left, right], [Relation(0, "x", Comparison.GREATER, 1, "y")]) == [(1, 0), (1, 3), (3, 0), (3, 3)]


def test_bigints_beside_doubles_are_doubles_and_beside_decimals_exact() -> None:
    large = numbers(x=[2**53, 2**53 + 1, 2**63 - 1])
    assert joined([large, numbers(y=[2.0**53])], [Relation(0, "x", EQUAL, 1, "y")]) == [(0, 0), (1, 0)]
    exact = pa.table({"y": pa.array([2**53 + 1], pa.decimal128(38, 0))})
    assert joined([large, exact], [Relation(0, "x", EQUAL, 1, "y")]) == [(1, 0)]


def test_an_offset_at_the_end_of_a_bigint_does_not_wrap() -> None:
    sides = [numbers(x=[-(2**63), 0, 2**63 - 1]), numbers(y=[2**63 - 1, -(2**63)])]
    assert joined(sides, [Relation(0, "x", LESS, 1, "y", 1)]) == [(0, 0), (0, 1), (1, 0), (2, 0)]
    assert joined(sides, [Relation(0, "x", EQUAL, 1, "y", 1)]) == []


def test_a_band_of_two_types_of_order_is_not_missed() -> None:
    """Two relations of one column, one compared as doubles, where both numbers are one, and one exactly."""
    sides = [numbers(d=[2.0**53], b=[2**53]), numbers(y=[2**53 + 1, 2**53, 2**53 + 2])]
    relations = [Relation(0, "d", AT_LEAST, 1, "y"), Relation(0, "b", AT_LEAST, 1, "y")]
    assert joined(sides, relations) == [(0, 1)]


def test_equalities_and_a_range_of_one_column_are_look_ups_and_the_rest_is_verified() -> None:
    sides = [numbers(s=["a", "b"] * 50, t=list(range(100)), v=[1.0] * 100)]
    sides.append(numbers(s=["a", "b", "c"] * 100, t=list(range(300)), v=[2.0] * 300))
    relations = [
        Relation(0, "s", EQUAL, 1, "s"),
        Relation(0, "t", AT_LEAST, 1, "t", -5),
        Relation(0, "t", AT_MOST, 1, "t", 5),
        Relation(0, "v", LESS, 1, "v"),
    ]
    (step,), start = plan_join(sides, relations)
    assert (start, step.source) == (0, 1)
    assert (len(step.equal_keys), len(step.ranges), len(step.verified)) == (1, 2, 1)
    places = np.arange(100)
    first, last = step.bounds((places, np.zeros(0, dtype=np.int64)))
    assert (last - first).max() <= 4  # of the 11 rows in reach, those with the same text


def test_sources_are_joined_in_the_order_of_their_expected_candidates() -> None:
    """The large source that is joined by a key comes before the small one that nothing joins."""
    tables = [numbers(k=list(range(10))), numbers(x=list(range(20))), numbers(k=list(range(5_000)))]
    steps, start = plan_join(tables, [Relation(0, "k", EQUAL, 2, "k")])
    assert [start, *(each.source for each in steps)] == [0, 2, 1]


def test_a_join_with_too_many_rows_is_refused_before_they_are_made() -> None:
    tables = [numbers(x=list(range(100_000)))] * 2
    with pytest.raises(RefusedError, match="more than 1,000 rows") as refused:
        join_rows(tables, [], limit=1_000)
    assert "smaller window" in str(refused.value.how)


def test_a_large_product_goes_through_memory_block_by_block() -> None:
    tables = [numbers(x=list(range(2_000))), numbers(y=list(range(1_500)))]
    sizes = [len(block[0]) for block in join_blocks(tables, [])]
    assert sum(sizes) == 3_000_000
    assert max(sizes) <= joins.BLOCK_ROWS


def test_sources_without_rows_join_nothing() -> None:
    tables = [numbers(x=[1, 2]), pa.table({"y": pa.array([], pa.int64())})]
    for order in (tables, tables[::-1]):
        assert joined(order, []) == []
        names = [each.column_names[0] for each in order]
        assert joined(order, [Relation(0, names[0], LESS, 1, names[1])]) == []


def test_combinations_are_ordered_also_where_they_are_no_single_number() -> None:
    joined_rows = tuple(np.array(each) for each in ([2, 0, 2, 0], [1, 5, 0, 5], [7, 9, 8, 3]))
    expected = [(0, 5, 3), (0, 5, 9), (2, 0, 8), (2, 1, 7)]
    for sizes in ([3, 6, 10], [2**30, 2**30, 2**30]):
        assert list(zip(*(each.tolist() for each in in_order(joined_rows, sizes)), strict=True)) == expected
