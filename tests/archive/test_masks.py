"""Overlays in memory, and rows put into order, against the plainest way of saying what they are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from errata.archive.bucket_files import POS
from errata.archive.overlays import Overlays
from errata.archive.schemas import overlay_schema
from errata.archive.tables import sort_rows
from errata.archive.upkeep.rewrite import CompactionRun, _assign_places, _touched_runs
from errata.intake.types import arrow_schema
from errata.model.bucket import Bucket, Groups, Role
from errata.model.compaction import RewriteReason
from errata.model.time import HIGHEST, LOWEST
from fixtures.claims import ORDERS, QUOTES

PLACES = st.tuples(st.integers(0, 3), st.sampled_from("ab"))


@st.composite
def changes(draw: st.DrawFn) -> dict[str, Any]:
    """One correction: the row that it masks, if any, and the one that it brings, if any."""
    old, new = draw(st.none() | PLACES), draw(st.none() | PLACES)
    row = {"_masks": old is not None, "_live": new is not None}
    for prefix, place in (("_old_", old), ("", new)):
        if place is not None:
            row |= {f"{prefix}time": place[0], f"{prefix}symbol": place[1]}
    return row


@given(
    said=st.lists(changes(), max_size=8),
    rows=st.lists(PLACES, max_size=12),
    floor=st.integers(0, 9),
    up_to=st.integers(0, 9) | st.just(HIGHEST),
    aged_to=st.none() | st.integers(0, 3),
)
def test_masked_and_surviving(
    said: list[dict[str, Any]], rows: list[tuple[int, str]], floor: int, up_to: int, aged_to: int | None
) -> None:
    numbered = [row | {"_revision": number} for number, row in enumerate(said, start=1)]
    over = Overlays(QUOTES, pa.Table.from_pylist(numbered, schema=overlay_schema(QUOTES))).up_to(up_to)
    known = [row for row in numbered if row["_revision"] <= up_to]
    masks = [(row["_revision"], (row["_old_time"], row["_old_symbol"])) for row in known if row["_masks"]]

    table = pa.Table.from_pylist([{"time": at, "symbol": who} for at, who in rows], schema=arrow_schema(QUOTES))
    assert over.masked(table, floor).tolist() == [
        any(number > floor and place == row for number, place in masks) for row in rows
    ]
    expected = [
        row["_revision"]
        for row in known
        if row["_live"]
        and not any(number > row["_revision"] and place == (row["time"], row["symbol"]) for number, place in masks)
        and (aged_to is None or row["time"] >= aged_to)
    ]
    assert over.live_rows(aged_to)["_revision"].to_pylist() == expected


@given(st.lists(st.tuples(st.integers(0, 4), st.sampled_from("abc"), st.integers(0, 9)), max_size=20), st.booleans())
def test_in_order(rows: list[tuple[int, str, int]], split: bool) -> None:
    schema = pa.schema([*arrow_schema(ORDERS), pa.field(POS, pa.int64())])
    said = [{"day": day, "id": name, POS: pos} for day, name, pos in rows]
    table = pa.Table.from_pylist(said, schema=schema)
    if split:
        table = pa.concat_tables([table.slice(0, len(rows) // 2), table.slice(len(rows) // 2)])
    found = zip(*(sort_rows(table, ORDERS)[name].to_pylist() for name in ("day", "id", POS)), strict=True)
    assert list(found) == sorted(rows)


def a_run(*spans: tuple[int, int], floor: int = 5) -> CompactionRun:
    about = (Groups(), "", "", 1, None, None)
    buckets = tuple(Bucket(at, Role.BASE, "x", 1, 1, *span, *about) for at, span in enumerate(spans))
    return CompactionRun(buckets, RewriteReason.CORRECTED, floor)


RUNS = st.lists(st.tuples(st.integers(0, 20), st.integers(0, 10)).map(lambda each: (each[0], each[0] + each[1])))


@given(RUNS, st.lists(st.integers(-5, 35)))
def test_every_place_is_taken_by_one_run_that_spans_it_if_one_does(
    spans: list[tuple[int, int]], places: list[int]
) -> None:
    runs = _assign_places([a_run(span) for span in spans], 5)
    for place in [*places, LOWEST, HIGHEST - 1] if spans else []:
        takers = [
            span for span, run in zip(spans, runs, strict=True) if any(place in each for each in run.taken_places)
        ]
        assert len(takers) == 1
        ((low, high),) = takers
        before = [span for span in spans if span[0] <= place]
        assert low <= place or not before
        latest = max(before, default=None)
        if latest is not None and latest[1] >= place:
            assert low == latest[0], "of those that span it, one that begins last"
        elif before:
            assert high == max(end for _, end in before), "else what reaches nearest"


def test_runs_that_came_later_take_nothing() -> None:
    early, late = _assign_places([a_run((0, 9)), a_run((5, 20), floor=6)], 5)
    assert late.taken_places == ()
    assert all(place in early.taken_places[0] or place in early.taken_places[1] for place in (-9, 0, 9, 10, 99))


@pytest.mark.parametrize(
    ("masked", "brought", "met"),
    [([], [], [False, False]), ([10], [], [False, False]), ([9], [15], [True, False]), ([20], [20], [False, True])],
)
def test_which_runs_are_met(masked: list[int], brought: list[int], met: list[bool]) -> None:
    runs = _assign_places([a_run((0, 4), (5, 9)), a_run((20, 29))], 5)
    assert _touched_runs(runs, np.array(masked, dtype=np.int64), np.array(brought, dtype=np.int64)) == met
