"""Files of buckets opened by either engine, wherever the warehouse lies."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from errata.archive.bucket_frames import split_by_access
from errata.archive.results import ResultWriter, new_buckets_frame
from errata.declare.warehouse import Warehouse
from errata.engine.frames import fetch_rows
from errata.model.bucket import NewBucket, Role
from errata.model.results import EVALUATION, VE, VS

ROWS = 40_000
TABLE = pa.table(
    {
        "name": pa.array([f"name {number * 7_919 % ROWS}" for number in range(ROWS)]),
        VS: np.arange(ROWS),
        VE: np.arange(ROWS) + 1,
        EVALUATION: np.ones(ROWS, np.int64),
    }
)


def written(warehouse: Warehouse) -> list[NewBucket]:
    found = ResultWriter(warehouse, "query", timed=False, bucket_rows=ROWS // 2).write(Role.BASE, TABLE)
    assert len(found) == 2
    assert all(each.path is not None for each in found)
    return found


@pytest.mark.parametrize(
    "folder",
    ["plain", "with space", "br[a]cket", "cur{l}y", "st*r", "qu?stion", "per%20cent", "ha#sh", "ümlaut", "a=b"],
)
@pytest.mark.parametrize("form", ["{}", "file://{}"])
def test_any_folder(near: SparkSession, tmp_path: Path, folder: str, form: str) -> None:
    warehouse = Warehouse(form.format(tmp_path / folder))
    frame = new_buckets_frame(near, warehouse, TABLE.schema, written(warehouse))
    assert fetch_rows(frame.where(f"{VS} >= 10 AND name <> 'name 0'").orderBy(VS)).equals(TABLE.slice(10))


@pytest.mark.parametrize("uri", ["memory://warehouse", "memory://other/place"])
def test_what_only_fsspec_reaches(near: SparkSession, uri: str) -> None:
    warehouse = Warehouse(uri)
    found = written(warehouse)
    assert split_by_access(near, warehouse, found) == ([], found)
    assert fetch_rows(new_buckets_frame(near, warehouse, TABLE.schema, found).orderBy(VS)).equals(TABLE)


def test_a_file_that_is_not_there_whole_is_not_taken_for_one_without_rows(near: SparkSession, tmp_path: Path) -> None:
    warehouse = Warehouse(str(tmp_path))
    first, second = written(warehouse)
    assert split_by_access(near, warehouse, [first, second]) == ([first, second], [])
    assert split_by_access(near, warehouse, [first, replace(second, size=second.size + 1)])[0] == [first]
    warehouse.remove(first.path or "")
    with pytest.raises(FileNotFoundError):
        new_buckets_frame(near, warehouse, TABLE.schema, [first, second])


def test_columns_that_came_later_are_null(either: SparkSession, tmp_path: Path) -> None:
    warehouse = Warehouse(str(tmp_path))
    schema = TABLE.schema.append(pa.field("later", pa.decimal128(10, 2)))
    rows = fetch_rows(new_buckets_frame(either, warehouse, schema, written(warehouse)).where("later IS NULL"))
    assert rows.num_rows == ROWS
