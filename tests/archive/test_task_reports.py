"""A bucket crosses the boundary between a task and its driver whole."""

from __future__ import annotations

from dataclasses import fields

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from errata.archive.task_reports import (
    BUCKET_ROW_SCHEMA,
    ReportKind,
    bucket_batches,
    bucket_from_row,
    bucket_report,
    report_row,
)
from errata.model.bucket import Groups, Layout, NewBucket, Resolution, Role
from errata.model.time import Interval

NUMBERS = st.integers(-(2**63), 2**63 - 1)
BOUNDS = st.none() | st.tuples(NUMBERS, NUMBERS)
TEXTS = st.text(max_size=5)
GROUPS = st.builds(Groups, st.none() | TEXTS, st.none() | TEXTS) | st.builds(
    Groups, members=st.frozensets(st.tuples(st.none() | TEXTS, TEXTS), max_size=3)
)


@st.composite
def written_buckets(draw: st.DrawFn, depth: int = 1) -> NewBucket:
    place = {"path": draw(TEXTS)} if draw(st.booleans()) else {"data": draw(st.binary(max_size=5))}
    numbers = {name: draw(NUMBERS) for name in ("rows", "size", "vs_min", "vs_max", "folded", "masked")}
    bounds = {name: draw(BOUNDS) for name in ("revisions", "masks", "content", "ends")}
    kinds = {"role": draw(st.sampled_from(Role)), "layout": draw(st.sampled_from(Layout)), "groups": draw(GROUPS)}
    resolution = Resolution(draw(st.floats(0.001, 1)), Interval(draw(NUMBERS), draw(NUMBERS)))
    rest = {"checksum": draw(TEXTS), "floor": draw(st.none() | NUMBERS), "resolution": resolution}
    reduced = tuple(draw(st.lists(written_buckets(depth - 1), max_size=2))) if depth else ()
    values = kinds | rest | place | numbers | bounds | {"reduced": reduced}
    assert set(values) | {"path", "data"} == {each.name for each in fields(NewBucket)}, "a field is not tried"
    return NewBucket(**values)


@given(st.lists(written_buckets(), max_size=3))
def test_buckets_come_back_as_they_were_written(buckets: list[NewBucket]) -> None:
    rows = pa.Table.from_batches(bucket_batches(buckets), BUCKET_ROW_SCHEMA).to_pylist()
    assert [bucket_from_row(row) for row in rows] == buckets


@given(written_buckets())
def test_a_report_of_a_bucket_tells_its_slot_and_all_of_it(bucket: NewBucket) -> None:
    (row,) = bucket_report(7, bucket).to_pylist()
    assert (row["slot"], row["said"]) == (7, "base" if bucket.role is Role.BASE else "pending")
    assert bucket_from_row(row) == bucket


def test_a_report_without_a_bucket_leaves_its_columns_empty() -> None:
    (row,) = report_row(ReportKind.COUNT, slot=2, rows=5).to_pylist()
    assert {name: value for name, value in row.items() if value is not None} == {"said": "count", "slot": 2, "rows": 5}
