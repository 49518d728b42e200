"""The glance over files, and the cuts that follow from it."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from upath import UPath

from errata.intake.files import inspect_file
from errata.intake.layout import read_layout
from errata.intake.order_sample import OrderSample, range_bounds, sample_order
from errata.model.batch import SourceFile
from errata.model.columns import Column, ColumnType
from errata.model.stream import Stream

Write = Callable[[str, bytes], SourceFile]
ROWS = 40_000
STREAM = Stream(
    "s", tuple(Column(n, ColumnType.parse(t)) for n, t in (("id", "bigint"), ("x", "string"))), ("id",), "id"
)


def content(name: str) -> bytes:
    noise = random.Random(7)
    rows = [(n, "x" * noise.randint(1, 9)) for n in range(ROWS)]
    if "csv" in name:
        return ("id,x\n" + "".join(f"{n},{x}\n" for n, x in rows)).encode()
    return "".join(json.dumps({"id": n, "x": x}) + "\n" for n, x in rows).encode()


def check(file: SourceFile, tolerance: float) -> None:
    sample = sample_order([file], [read_layout(file, STREAM)], STREAM)
    assert sample.rows == pytest.approx(ROWS, rel=tolerance)
    assert sample.weights.sum() == pytest.approx(sample.rows, rel=0.01)
    assert (np.diff(sample.values) >= 0).all()
    edges = [0, *range_bounds(sample, 5_000), ROWS]
    assert len(edges) == 10
    assert max(np.diff(edges)) <= 5_000 * 1.1


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl"])
def test_blocks_of_text_tell_rows_and_spread(name: str, write: Write) -> None:
    check(write(name, content(name)), 0.03)


@pytest.mark.parametrize("groups", [2, 20])
def test_parquet_tells_its_rows_exactly(groups: int, tmp_path: Path) -> None:
    table = pa.table({"id": range(ROWS), "x": ["x"] * ROWS})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=ROWS // groups)
    check(inspect_file(UPath(tmp_path / "a.parquet")), 0)


@pytest.mark.parametrize("name", ["a.csv.gz", "a.jsonl.gz"])
def test_the_beginning_of_a_gzip_tells_about_how_many_rows(name: str, write: Write) -> None:
    file = write(name, content(name))
    sample = sample_order([file], [read_layout(file, STREAM)], STREAM)
    assert sample.rows == pytest.approx(ROWS, rel=0.5)
    assert len(sample.values) >= 500


@pytest.mark.parametrize(("name", "text"), [("a.csv", b"id,x\n"), ("a.jsonl", b""), ("a.csv.gz", b"id,x\n")])
def test_files_without_rows_give_no_values(name: str, text: bytes, write: Write) -> None:
    file = write(name, text)
    sample = sample_order([file], [read_layout(file, STREAM)], STREAM)
    assert (sample.rows, len(sample.values), range_bounds(sample, 1)) == (0, 0, [])


def test_values_that_cannot_be_read_are_left_out(write: Write) -> None:
    files = [write("a.csv", b'id,x\n1,a\nx,b\n"2,c\n3\n,\n4,d'), write("b.jsonl", b'{"id": 9}\n[]\n{"id": null}\n{')]
    sample = sample_order(files, [read_layout(file, STREAM) for file in files], STREAM)
    assert sample.values.tolist() == [1, 4, 9]


@settings(deadline=None)
@given(
    values=st.lists(st.integers(0, 50), max_size=60),
    bucket_rows=st.integers(1, 40),
    weight=st.integers(1, 100),
)
def test_cuts_ascend_and_leave_no_range_empty(values: list[int], bucket_rows: int, weight: int) -> None:
    ordered = np.array(sorted(values), dtype=np.int64)
    sample = OrderSample(len(values) * weight, ordered, np.full(len(values), float(weight)))
    cuts = range_bounds(sample, bucket_rows)
    assert cuts == sorted(set(cuts))
    assert len(cuts) < 4096
    assert all(min(values) < cut <= max(values) for cut in cuts)
    if sample.rows <= bucket_rows:
        assert cuts == []


def test_at_most_4096_ranges() -> None:
    values = np.arange(100_000)
    cuts = range_bounds(OrderSample(100_000, values, np.ones(100_000)), 1)
    assert len(cuts) == 4095
