from __future__ import annotations

from collections import defaultdict
from datetime import date
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from errata.archive.revisions.pending import keys_to_find, revision_keys
from errata.archive.tables import key_numbers, value_codes
from errata.model.columns import equality_value
from fixtures.claims import (
    ORDERS,
    QUOTES,
    STREAMS,
    Case,
    cases,
    claim,
    claimed_values,
    given_values,
    identity,
    micros,
    place_of,
    revision,
)

AMPLE = settings(max_examples=max(200, settings().max_examples))
"""Cases are small and many things must meet in one to matter."""


class TestIdentities:
    @AMPLE
    @given(cases())
    def test_of_any_claim(self, case: Case) -> None:
        stream = case.stream
        found = revision_keys(stream, claim(stream, case.revisions)).to_pylist()
        assert [tuple(row[name] for name in stream.key) for row in found] == [
            identity(stream, said) for said in case.revisions
        ]
        assert [row["_place"] for row in found] == [place_of(stream, said) for said in case.revisions]

    def test_a_key_may_be_given_as_old_alone(self) -> None:
        said = revision(5, "replace", {"price": 2.0, "time": 3}, {"symbol": "a"})
        assert revision_keys(QUOTES, claim(QUOTES, [said])).to_pylist() == [{"time": 3, "symbol": "a", "_place": 3}]

    def test_columns_may_be_named_that_are_there_no_more(self) -> None:
        said = revision(5, "delete", {"id": "a"}) | {"_given": "id,gone", "_claimed": "gone,day", "_old_day": 4}
        assert revision_keys(ORDERS, claim(ORDERS, [said])).to_pylist() == [{"id": "a", "_place": 4}]


class TestSought:
    @AMPLE
    @given(cases())
    def test_of_any_claim(self, case: Case) -> None:
        stream = case.stream
        places: dict[tuple[Any, ...], set[int | None]] = defaultdict(set)
        for said in case.revisions:
            key = identity(stream, said)
            claimed = claimed_values(stream, said)
            if stream.key_has_order:
                places[key].add(micros(key[stream.key.index(stream.order)]))
            else:
                places[key].add(micros(claimed.get(stream.order)))
            values = given_values(stream, said) if said["_op"] == "replace" else {}
            new = tuple(values.get(name, old) for name, old in zip(stream.key, key, strict=True))
            if new != key:
                places[new].add(micros(new[stream.key.index(stream.order)]) if stream.key_has_order else None)
        found = keys_to_find(stream, claim(stream, case.revisions)).to_pylist()
        keys = [tuple(row[name] for name in stream.key) for row in found]
        assert len(keys) == len(set(keys))
        expected = {key: None if len(some) > 1 else next(iter(some)) for key, some in places.items()}
        assert {key: row["_place"] for key, row in zip(keys, found, strict=True)} == expected

    def test_the_old_day_tells_where_to_look_and_a_new_one_does_not(self) -> None:
        revisions = [
            revision(1, "replace", {"id": "a", "day": 9}, {"day": 4}),
            revision(2, "replace", {"id": "b", "day": 9}),
            revision(3, "insert", {"id": "c", "day": 9}),
            revision(4, "replace", {"id": "e"}, {"id": "d", "day": 5}),
            revision(5, "replace", {"id": "f"}, {"id": "f", "day": 6}),
        ]
        assert sorted(
            map(tuple, (row.values() for row in keys_to_find(ORDERS, claim(ORDERS, revisions)).to_pylist()))
        ) == [
            ("a", 4),
            ("b", None),
            ("c", None),
            ("d", 5),
            ("e", None),
            ("f", 6),
        ]

    def test_those_who_disagree_about_the_place_are_not_believed(self) -> None:
        revisions = [revision(number, "delete", {"id": "a"}, {"day": day}) for number, day in enumerate((4, 5))]
        assert keys_to_find(ORDERS, claim(ORDERS, revisions)).to_pylist() == [{"id": "a", "_place": None}]

    def test_of_nothing(self) -> None:
        for stream in STREAMS:
            assert keys_to_find(stream, claim(stream, [])).column_names == [*stream.key, "_place"]


SAMPLES: list[tuple[pa.DataType, list[Any]]] = [
    (pa.string(), ["", "a", "A", None]),
    (pa.bool_(), [True, False, None]),
    (pa.int32(), [0, -1, None]),
    (pa.int64(), [2**62, 2**62 + 1, None]),
    (pa.float32(), [0.0, -0.0, float("nan"), -float("nan"), 1.5, None]),
    (pa.float64(), [0.0, -0.0, float("nan"), -float("nan"), 1e300, None]),
    (pa.decimal128(38, 2), [Decimal("1.20"), Decimal("1.21"), None]),
    (pa.date32(), [date(2026, 1, 1), date(1969, 1, 1), None]),
    (pa.timestamp("us", "UTC"), [0, 1, None]),
]


@pytest.mark.parametrize(
    ("kind", "values"), SAMPLES, ids=lambda each: str(each) if isinstance(each, pa.DataType) else ""
)
def test_values_are_equal_when_their_numbers_are(kind: pa.DataType, values: list[Any]) -> None:
    # The same values in two pieces, the second the other way round.
    column = pa.chunked_array([pa.array(values, kind), pa.array(values[::-1], kind)])
    numbers = value_codes(column).tolist()
    assert numbers.count(-1) == 2
    for one, first in zip([*values, *values[::-1]], numbers, strict=True):
        for other, second in zip([*values, *values[::-1]], numbers, strict=True):
            assert (first == second) == (equality_value(one) == equality_value(other))


@example([(None, 0, 0), ("a", 0, 0)])
@given(st.lists(st.tuples(st.sampled_from(["a", "b", None]), st.integers(0, 2), st.integers(0, 2)), max_size=20))
def test_keys_are_equal_when_their_numbers_are(keys: list[tuple[str | None, int, int]]) -> None:
    columns = {name: pa.array([key[at] for key in keys], kind) for at, (name, kind) in enumerate(TYPES)}
    numbers = key_numbers(pa.table(columns)).tolist()
    assert len(set(zip(keys, numbers, strict=True))) == len(set(keys)) == len(set(numbers))
    assert all(0 <= number < len(keys) for number in numbers)


TYPES = [("one", pa.string()), ("two", pa.int64()), ("three", pa.int32())]
