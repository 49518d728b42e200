"""What footers tell of the order field: the truth or nothing, since rows are brought to their buckets by it."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from upath import UPath

from errata.intake.files import inspect_file
from errata.intake.layout import plan_splits, read_layout
from errata.intake.order_sample import OrderRange, order_ranges, sample_order
from errata.intake.split_reader import read_split
from errata.model.batch import SourceFile
from errata.model.columns import Column, ColumnType
from errata.model.stream import Stream

SECOND = 1_700_000_000
MICROS = SECOND * 1_000_000
BIGINT, TIMED = (Stream("s", (Column("t", ColumnType.parse(kind)),), ("t",), "t") for kind in ("bigint", "timestamp"))


def moments(values: list[int], unit: str, zone: str | None = None) -> pa.Array:
    return pa.array(values, pa.int64()).cast(pa.timestamp(unit, zone))


def a_file(folder: Path, values: pa.Array, **how: object) -> SourceFile:
    pq.write_table(pa.table({"t": values}), folder / "a.parquet", **how)
    return inspect_file(UPath(folder / "a.parquet"))


def spans_of(file: SourceFile, stream: Stream) -> dict[int, OrderRange] | None:
    layout = read_layout(file, stream)
    splits = plan_splits([file], [layout], most_rows=1)
    return order_ranges(splits, [layout] * len(splits), stream)


TOLD = {
    "integers": (BIGINT, pa.array([9, 10, 100]), (9, 100)),
    "short integers": (BIGINT, pa.array([-3, 5], pa.int32()), (-3, 5)),
    "tiny integers": (BIGINT, pa.array([-3, 5], pa.int8()), (-3, 5)),
    "integers of a dictionary": (BIGINT, pa.array([5, 3]).dictionary_encode(), (3, 5)),
    "microseconds": (TIMED, moments([MICROS, MICROS + 5], "us", "UTC"), (MICROS, MICROS + 5)),
    "microseconds without a zone": (TIMED, moments([MICROS, MICROS + 5], "us"), (MICROS, MICROS + 5)),
    "microseconds of New York": (TIMED, moments([MICROS], "us", "America/New_York"), (MICROS, MICROS)),
    "milliseconds": (TIMED, moments([SECOND * 1000, SECOND * 1000 + 1], "ms"), (MICROS, MICROS + 1000)),
    "nanoseconds": (TIMED, moments([MICROS * 1000, MICROS * 1000 + 5000], "ns", "UTC"), (MICROS, MICROS + 5)),
    "seconds": (TIMED, moments([SECOND, SECOND + 1], "s"), (MICROS, MICROS + 1_000_000)),
    "beyond the year 9999": (TIMED, moments([MICROS, 10**18], "us"), (MICROS, 10**18)),
    "before the year 1": (TIMED, moments([-(10**18), MICROS], "us"), (-(10**18), MICROS)),
}


@pytest.mark.parametrize("case", TOLD)
def test_what_is_stored_as_signed_integers_is_told_exactly(case: str, tmp_path: Path) -> None:
    stream, values, span = TOLD[case]
    assert spans_of(a_file(tmp_path, values), stream) == {0: span}


NOT_TOLD = {
    "text of numbers": (BIGINT, pa.array(["9", "10", "100"])),
    "text of a dictionary": (BIGINT, pa.array(["9", "10"]).dictionary_encode()),
    "text of moments": (TIMED, pa.array(["2024-01-01 00:00:00", "2024-01-01T05:00:00+09:00"])),
    "unsigned beyond": (BIGINT, pa.array([1, 2**63 + 5], pa.uint64())),
    "unsigned short": (BIGINT, pa.array([1, 2**32 - 1], pa.uint32())),
    "decimals": (BIGINT, pa.array([Decimal(1), Decimal(300)], pa.decimal128(9, 0))),
    "doubles": (BIGINT, pa.array([1.0, float("nan"), 300.0])),
    "halves": (BIGINT, pa.array(np.array([1, 2], np.float16))),
    "a NULL": (BIGINT, pa.array([1, None, 3])),
    "nothing but NULL": (BIGINT, pa.nulls(3)),
    "days": (TIMED, pa.array([dt.date(2020, 1, 1)])),
    "more milliseconds than there are microseconds": (TIMED, moments([SECOND * 1000, 10**17], "ms")),
}


@pytest.mark.parametrize("case", NOT_TOLD)
def test_what_is_stored_otherwise_is_not_told(case: str, tmp_path: Path) -> None:
    stream, values = NOT_TOLD[case]
    assert spans_of(a_file(tmp_path, values), stream) is None


def test_files_that_keep_no_statistics_or_old_moments_do_not_tell(tmp_path: Path) -> None:
    assert spans_of(a_file(tmp_path, pa.array([1, 2]), write_statistics=False), BIGINT) is None
    old = a_file(tmp_path, moments([MICROS * 1000], "ns"), use_deprecated_int96_timestamps=True)
    assert spans_of(old, TIMED) is None


@pytest.mark.parametrize("case", [*TOLD, *NOT_TOLD])
def test_no_row_lies_outside_what_is_told_and_all_can_be_looked_at(case: str, tmp_path: Path) -> None:
    """Six row groups are too many for the glance to read: it goes by the same statistics."""
    stream, values = (TOLD | NOT_TOLD)[case][:2]
    plain = values.dictionary_decode() if pa.types.is_dictionary(values.type) else values
    file = a_file(tmp_path, pa.concat_arrays([plain] * 6), row_group_size=len(values))
    layout = read_layout(file, stream)
    assert sample_order([file], [layout], stream).rows == 6 * len(values)
    splits = plan_splits([file], [layout], most_rows=len(values))
    spans = order_ranges(splits, [layout] * len(splits), stream)
    for split in splits:
        found = read_split(split, layout, stream)
        assert found.rows.num_rows + len(found.bad) == len(values)
        order = found.rows["t"].cast(pa.int64()).to_pylist()
        assert spans is None or all(spans[split.number][0] <= each <= spans[split.number][1] for each in order)
