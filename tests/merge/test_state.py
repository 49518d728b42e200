"""The state of a merge as a table, and back; from archived rows; and in parts by key."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from errata.merge.elements import ABSENT, OPEN
from errata.merge.general import merge_general
from errata.merge.outcome import insert_schema
from errata.merge.state import (
    empty_state,
    part_of_key,
    state_from_rows,
    state_from_table,
    state_schema,
    state_to_table,
)
from errata.merge.step import BATCH, FeedTop, MergeState
from errata.model.feed import Feed
from errata.model.stream import Stream
from errata.model.time import HIGHEST
from fixtures.merges import COPIES, POINTS, SPANS, element_table, merged_stream, merging_at, statement

TWO = merged_stream(SPANS, 2)
ROW = {"symbol": "A", "at": 5, "price": 1.5, "version": 1, "until": 9}


def state_after(stream: Stream, *said: tuple[int, dict[str, object]]) -> MergeState:
    elements = element_table(stream, [statement(feed, values) for feed, values in said])
    return merge_general(stream, empty_state(stream), elements, merging_at(stream)).state


def with_feeds(stream: Stream, *names: str) -> Stream:
    return replace(stream, merged=replace(stream.merged, feeds=tuple(Feed(name) for name in names)))


def plain_state(state: MergeState) -> tuple[list[dict[str, object]], list[list[int]], list[int]]:
    return state.rows.to_pylist(), state.ends.tolist(), state.published.tolist()


def test_a_state_comes_back_as_it_was() -> None:
    state = state_after(TWO, (0, ROW), (1, {**ROW, "until": None}), (1, {**ROW, "symbol": "B", "price": None}))
    back = state_from_table(state_to_table(state, TWO), TWO, batch_no=7, tops={1: FeedTop(4, 2)})
    rows, ends, published = plain_state(state)
    assert plain_state(back) == ([{**row, BATCH: 7} for row in rows], ends, published)
    assert ends == [[9, OPEN], [ABSENT, 9]]
    assert back.tops == {1: FeedTop(4, 2)}


def test_rows_keep_the_number_of_the_batch_that_said_them_first() -> None:
    first = state_from_table(state_to_table(state_after(TWO, (0, ROW)), TWO), TWO, batch_no=3)
    more = element_table(TWO, [statement(1, ROW), statement(1, {**ROW, "symbol": "B"})])
    second = merge_general(TWO, first, more, merging_at(TWO)).state
    back = state_from_table(state_to_table(second, TWO), TWO, batch_no=4)
    assert dict(zip(back.rows["symbol"].to_pylist(), back.rows[BATCH].to_pylist(), strict=True)) == {"A": 3, "B": 4}


def test_the_empty_state_is_a_table_without_rows() -> None:
    table = state_to_table(empty_state(TWO), TWO)
    assert table.column_names == [*state_schema(TWO).names, "_end_nyse", "_end_mirror", "_published"]
    assert plain_state(state_from_table(table, TWO, batch_no=1)) == ([], [], [])


def test_feeds_are_known_by_name() -> None:
    table = state_to_table(state_after(TWO, (0, ROW), (1, {**ROW, "until": None})), TWO)
    turned = state_from_table(table, with_feeds(TWO, "mirror", "new", "nyse"), batch_no=1)
    assert turned.ends.tolist() == [[OPEN, ABSENT, 9]]


def test_what_only_a_removed_feed_said_goes_unless_it_is_published() -> None:
    held = {**ROW, "price": 2.5}
    state = state_after(TWO, (0, {**ROW, "symbol": "B"}), (1, ROW), (0, held))
    assert sorted(zip(state.rows["price"].to_pylist(), state.published.tolist(), strict=True)) == [
        (1.5, ABSENT),
        (1.5, 9),
        (2.5, 9),
    ]
    left = state_from_table(state_to_table(state, TWO), with_feeds(TWO, "mirror"), batch_no=1)
    assert sorted(
        zip(left.rows["symbol"].to_pylist(), left.ends[:, 0].tolist(), left.published.tolist(), strict=True)
    ) == [
        ("A", ABSENT, 9),
        ("A", 9, ABSENT),
        ("B", ABSENT, 9),
    ]


def test_archived_rows_are_published_and_known_to_feeds_that_came_further() -> None:
    rows = pa.Table.from_pylist(
        [{**ROW, "at": at, "until": until, "_batch": 2, "_pos": at} for at, until in ((4, 9), (6, None))],
        schema=insert_schema(TWO),
    )
    state = state_from_rows(TWO, rows, {0: 6, 1: HIGHEST})
    assert state.published.tolist() == [9, OPEN]
    assert state.ends.tolist() == [[9, 9], [ABSENT, OPEN]]
    assert state.rows.select([BATCH, "_pos"]).to_pylist() == [{"_batch": 2, "_pos": 4}, {"_batch": 2, "_pos": 6}]
    assert state_from_rows(TWO, rows).ends.tolist() == [[ABSENT, ABSENT]] * 2


@pytest.mark.parametrize("stream", [POINTS, SPANS, COPIES], ids=["points", "spans", "copies"])
def test_equal_keys_are_in_one_part_and_parts_are_merged_as_the_whole(stream: Stream, chance: random.Random) -> None:
    stream = merged_stream(stream, 3)
    said = []
    for feed in range(3):
        for _ in range(60):
            at = chance.randrange(8)
            values = {
                "symbol": chance.choice("ABCDE"),
                "at": at,
                "price": 1.0,
                "version": 1,
                "until": at + 3,
                "n": None,
            }
            said.append(statement(feed, {name: values[name] for name in stream.names}))
    elements = element_table(stream, said)
    parts = part_of_key(elements, stream, 4)
    assert len(set(parts.tolist())) == 4
    keys = [tuple(row.values()) for row in elements.select(stream.as_fed.key).to_pylist()]
    assert len(set(zip(keys, parts.tolist(), strict=True))) == len(set(keys))
    whole = merge_general(stream, empty_state(stream), elements, merging_at(stream, stable=4))
    pieces = [
        merge_general(
            stream, empty_state(stream), elements.filter(pa.array(parts == part)), merging_at(stream, stable=4)
        )
        for part in range(4)
    ]
    in_pieces = pa.concat_tables([each.inserts for each in pieces])
    assert sorted(map(repr, in_pieces.to_pylist())) == sorted(map(repr, whole.inserts.to_pylist()))
    for part, piece in enumerate(pieces):
        assert np.all(part_of_key(state_to_table(piece.state, stream), stream, 4) == part)
        assert np.all(part_of_key(piece.inserts, stream, 4) == part)
    assert sum(each.counts.repeats.get(2, 0) for each in pieces) == whole.counts.repeats.get(2, 0) > 0
