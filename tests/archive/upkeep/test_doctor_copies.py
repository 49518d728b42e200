"""The doctor's view of what follows from other buckets: copies, summaries, and rows in blocks."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sqlalchemy import insert, select, update

from errata.archive.upkeep.doctor import DoctorOptions, run_doctor
from errata.catalog import tables as t
from errata.catalog.vacuum import spent_buckets
from errata.model.batch import Op
from errata.model.bucket import Bucket, Layout, Role
from errata.model.findings import FindingKind
from errata.model.reduction import ReducedArchives, SummaryDeclaration
from fixtures.flows import Builder
from fixtures.layers import Layers, a_row, compacted, key, layers, plain

HOURLY = SummaryDeclaration("hourly", 60, ("who",), {"n": "count(*)"})
KEPT = ReducedArchives((0.5, 0.2), summaries=(HOURLY,))
DEEP, QUICK, FIX = DoctorOptions(), DoctorOptions(deep=False), DoctorOptions(fix=True)


@pytest.fixture
def feed(tmp_path: Path) -> Iterator[Layers]:
    """A stream in files, with copies, corrected and compacted, and some that are removed already."""
    builder = Builder(tmp_path)
    house = builder(plain("first"))
    made = layers(house, plain("feed", reduced=KEPT, bucket_rows=100), inline=False)
    made.bring([a_row(at) for at in range(90)], [a_row(at) for at in range(90, 180)])
    made.correct((Op.REPLACE, key(5) | {"price": 2.0}, {}))
    with pytest.MonkeyPatch.context() as patch:
        for module in ("bucket_writer", "summary_parts"):
            patch.setattr(f"errata.archive.{module}.MAX_INLINE_BYTES", 0)
        compacted(made)
    yield made
    builder.close()


def kinds(feed: Layers, orders: DoctorOptions = DEEP) -> list[FindingKind]:
    return sorted(finding.kind for each in run_doctor(feed.house.site, (), orders) for finding in each.findings)


def path(feed: Layers, bucket: Bucket) -> Path:
    return Path(feed.house.site.warehouse.path(bucket.path or ""))


def a_copy(feed: Layers, rate: float = 0.5) -> Bucket:
    return next(each for each in feed.stored(Role.COPY) if each.resolution.rate == rate)


def note(feed: Layers, bucket: Bucket, **values: object) -> None:
    with feed.house.catalog.writing() as connection:
        connection.execute(update(t.buckets).where(t.buckets.c.bucket_id == bucket.bucket_id).values(**values))


def rewrite(feed: Layers, bucket: Bucket, rows: pa.Table) -> None:
    """Another content, of which the index knows."""
    sink = pa.BufferOutputStream()
    pq.write_table(rows, sink)
    data = sink.getvalue().to_pybytes()
    path(feed, bucket).write_bytes(data)
    checksum = f"sha256:{hashlib.sha256(data).hexdigest()}"
    note(feed, bucket, checksum=checksum, bytes=len(data), rows=rows.num_rows)


def test_copies_and_summaries_are_healthy(feed: Layers) -> None:
    assert len(feed.stored(Role.COPY)) == 2 * len(feed.stored()) == 4
    assert len(feed.stored(Role.SUMMARY)) == 2
    feed.check_index()
    assert kinds(feed) == kinds(feed, QUICK) == []


@pytest.mark.parametrize("role", [Role.COPY, Role.SUMMARY])
def test_a_lost_copy_is_dropped_and_nothing_is_lost(feed: Layers, role: Role) -> None:
    lost, before = feed.stored(role)[0], feed.seen()
    path(feed, lost).unlink()
    assert kinds(feed) == kinds(feed, QUICK) == [FindingKind.MISSING]
    (report,) = [each for each in run_doctor(feed.house.site, (), FIX) if each.stream == "feed"]
    assert [each.kind for each in report.mended] == [FindingKind.MISSING]
    assert kinds(feed) == []
    assert lost.bucket_id not in [each.bucket_id for each in feed.stored(role)]
    assert feed.seen() == before
    feed.check_index()


def test_a_copy_that_only_readers_of_the_past_need_is_dropped_too(feed: Layers) -> None:
    removed = [each for each in spent_like(feed) if each.role is Role.COPY]
    assert removed
    path(feed, removed[0]).write_bytes(b"")
    assert kinds(feed) == [FindingKind.CHECKSUM]
    kinds(feed, FIX)
    assert kinds(feed) == []


def spent_like(feed: Layers) -> list[Bucket]:
    """The buckets that are removed and still in the index."""
    first = feed.standing.changed_in - 1
    live = {each.bucket_id for role in (Role.BASE, Role.COPY) for each in feed.stored(role)}
    found = [each for role in (Role.BASE, Role.COPY) for each in feed.stored(role, first)]
    assert spent_buckets(feed.house.catalog, feed.standing.stream_id) == []
    return [each for each in found if each.bucket_id not in live]


def test_rows_that_are_not_of_the_sample_are_damage(feed: Layers) -> None:
    copy = a_copy(feed, 0.2)
    wrong = feed.house.content(a_copy(feed, 0.5))
    rewrite(feed, copy, wrong)
    assert kinds(feed) == [FindingKind.UNREADABLE]
    kinds(feed, FIX)
    assert kinds(feed) == []


def test_wrong_figures_of_a_copy_are_mended(feed: Layers) -> None:
    copy = a_copy(feed)
    note(feed, copy, rows=copy.rows + 1, vs_min=copy.vs_max)
    assert FindingKind.FIGURES in kinds(feed)
    kinds(feed, FIX)
    assert kinds(feed) == []
    assert a_copy(feed).rows == copy.rows


def test_a_copy_without_its_original_and_one_twice_are_dropped(feed: Layers) -> None:
    copy = a_copy(feed)
    query = select(t.buckets).where(t.buckets.c.bucket_id == copy.bucket_id)
    with feed.house.catalog.writing() as connection:
        row = dict(connection.execute(query).one()._mapping)
        del row["bucket_id"]
        for number, values in enumerate([{}, {"original": 10_000}]):
            again = f"feed/copy/all/again{number}.parquet"
            shutil.copy(path(feed, copy), path(feed, replace(copy, path=again)))
            connection.execute(insert(t.buckets).values(row | values | {"path": again}))
    assert kinds(feed) == [FindingKind.COPIES] * 2
    kinds(feed, FIX)
    assert kinds(feed) == []


def test_rows_in_blocks_are_checked(tmp_path: Path) -> None:
    builder = Builder(tmp_path)
    house = builder(plain("first"))
    feed = layers(house, plain("feed", layout=Layout.RANDOMIZED), inline=False)
    feed.bring([a_row(at) for at in range(300)])
    assert kinds(feed) == []
    (bucket,) = feed.stored()
    rows = feed.house.content(bucket)
    assert "_block" in rows.column_names
    for wrong in (
        rows.set_column(rows.column_names.index("_block"), "_block", pa.array([0] * 300, pa.int16())),
        rows.sort_by("at"),
    ):
        rewrite(feed, bucket, wrong)
        assert FindingKind.UNREADABLE in kinds(feed)
    builder.close()
