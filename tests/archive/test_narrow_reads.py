"""Of a bucket of which a scan wants a small part the near engine is handed the row groups that meet it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from errata.archive import bucket_frames
from errata.archive.scan import scan_rows
from errata.archive.scan_plan import ArchiveScan, candidate_buckets
from errata.catalog import commits, streams
from errata.errors import ErrataError
from errata.model.time import Interval
from fixtures.runs import Answering

ROWS = 60_000


@pytest.fixture(scope="module")
def there(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Answering]:
    answering = Answering.begin(tmp_path_factory.mktemp("narrow"), {}, {})
    answering.take(quotes=[f"{at},{'abc'[at % 3]},{at % 7}" for at in range(ROWS)])
    yield answering
    answering.close()


@pytest.mark.parametrize(
    ("start", "end", "handed"),
    [(0, 10, True), (59_990, 70_000, True), (30_000, 30_000, True), (100, 59_000, False), (70_000, 70_001, None)],
)
def test_both_ways_have_the_same_rows(
    there: Answering,
    spark: SparkSession,
    near: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
    start: int,
    end: int,
    handed: bool | None,
) -> None:
    site = there.site
    asked = ArchiveScan(
        streams.stream_state(site.catalog, "quotes"), commits.newest_commit(site.catalog), Interval(start, end)
    )
    found = candidate_buckets(site.catalog, asked)
    assert all(each.path is not None for each in found.base), "a file, and not a row of the catalog"
    opened: list[int] = []
    monkeypatch.setattr(bucket_frames, "read_buckets", counting(bucket_frames.read_buckets, opened))

    def rows(session: SparkSession) -> list[object]:
        read = scan_rows(session, site.catalog, site.warehouse, asked, found).toArrow()
        return sorted(read.to_pylist(), key=repr)

    mine = rows(near)
    assert handed is None or bool(opened and opened[0] < ROWS) is handed
    assert mine == rows(spark)
    assert len(mine) == max(0, min(end, ROWS) - start)


def counting(rows_in: Callable[..., pa.Table], opened: list[int]) -> Callable[..., pa.Table]:
    def counted(*given: object) -> pa.Table:
        read = rows_in(*given)
        opened.append(read.num_rows)
        return read

    return counted


def test_a_file_that_is_gone_is_told(there: Answering, near: SparkSession, tmp_path: Path) -> None:
    site = there.site
    asked = ArchiveScan(
        streams.stream_state(site.catalog, "quotes"), commits.newest_commit(site.catalog), Interval(0, 10)
    )
    (bucket,) = candidate_buckets(site.catalog, asked).base
    file = Path(site.warehouse.spark_path(bucket.path or "").removeprefix("file://"))
    file.rename(tmp_path / "away")
    try:
        with pytest.raises(ErrataError, match="cannot be read"):
            scan_rows(near, site.catalog, site.warehouse, asked).toArrow()
    finally:
        (tmp_path / "away").rename(file)
