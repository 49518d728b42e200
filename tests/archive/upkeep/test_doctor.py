"""The doctor finds nothing in a healthy archive, just what is wrong in a damaged one, and mends what it says."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import delete, insert, select, text, update

from errata.archive.bucket_writer import BucketWriter
from errata.archive.revisions.apply import apply_revisions
from errata.archive.schemas import overlay_schema
from errata.archive.upkeep import bucket_checks as reading
from errata.archive.upkeep.ageing import age_out
from errata.archive.upkeep.compaction import compact_streams
from errata.archive.upkeep.doctor import DoctorOptions, DoctorReport, run_doctor
from errata.archive.upkeep.inspection import is_ordered
from errata.archive.upkeep.vacuum import run_vacuum
from errata.catalog import declarations, streams
from errata.catalog import tables as t
from errata.catalog.database import open_catalog
from errata.catalog.repair import ArchiveRepair, commit_repair
from errata.catalog.transaction import BasisConflict
from errata.declare.site import Site
from errata.declare.warehouse import Warehouse
from errata.errors import ErrataError, UsageError
from errata.model.batch import Op
from errata.model.bucket import Bucket, Layout, Role
from errata.model.commit import Cause
from errata.model.findings import Finding, FindingKind, Severity
from errata.model.stream import Retention, Stream
from errata.model.time import DAY, HIGHEST, SECOND
from fixtures.catalog import NOW
from fixtures.clock import FixedClock
from fixtures.flows import Builder, House, a_feed, a_project
from fixtures.layers import Layers, layers, plain
from fixtures.oracle.revision import Row
from fixtures.sources import Line, Source

INSERT, REPLACE, DELETE = Op.INSERT, Op.REPLACE, Op.DELETE
DEEP, QUICK, FIX = DoctorOptions(), DoctorOptions(deep=False), DoctorOptions(fix=True)

FEED = plain("feed", bucket_rows=4, slack=4, retention=Retention(span=14))
WHO = plain("who", bucket_rows=4, key=("who",))
SORTED = plain("sorted", layout=Layout.CLUSTERED)


def a_row(at: int, who: str = "a", price: float = 1.0, note: str | None = None) -> Row:
    return {"at": at, "who": who, "price": price, "note": note}


def key(at: int, who: str = "a") -> Row:
    return {"at": at, "who": who}


def run(*places: int, who: str = "a") -> list[Row]:
    return [a_row(at, who) for at in places]


@dataclass
class Body:
    """A house in which everything has happened once."""

    house: House

    def layer(self, stream: Stream = FEED, *, inline: bool = False) -> Layers:
        return Layers(self.house, stream, inline, count(100))

    def base(self, low: int, stream: Stream = FEED) -> Bucket:
        """The live base bucket that begins at a place."""
        (found,) = [each for each in self.layer(stream).stored() if each.vs_min == low]
        return found

    @property
    def overlay(self) -> Bucket:
        """The first one."""
        return min(self.layer().stored(Role.OVERLAY), key=lambda each: each.bucket_id)

    @property
    def pending(self) -> Bucket:
        (found,) = self.layer().stored(Role.PENDING)
        return found

    def path(self, bucket: Bucket) -> Path:
        assert bucket.path is not None
        return Path(self.house.site.warehouse.path(bucket.path))

    def sql(self, statement: Any) -> None:
        with self.house.catalog.writing() as connection:
            assert connection.execute(statement).rowcount == 1

    def note(self, bucket: Bucket, **values: object) -> None:
        """Change what the index says of a bucket."""
        self.sql(update(t.buckets).where(t.buckets.c.bucket_id == bucket.bucket_id).values(**values))

    def stand(self, **values: object) -> None:
        """Change what the stream's own row says."""
        self.sql(update(t.streams).where(t.streams.c.name == "feed").values(**values))

    def rewrite(self, bucket: Bucket, table: pa.Table, **values: object) -> None:
        """Another content, of which the index knows."""
        sink = pa.BufferOutputStream()
        pq.write_table(table, sink)
        self.replace(bucket, sink.getvalue().to_pybytes(), **values)

    def replace(self, bucket: Bucket, data: bytes, **values: object) -> None:
        self.path(bucket).write_bytes(data)
        self.note(bucket, checksum=f"sha256:{hashlib.sha256(data).hexdigest()}", bytes=len(data), **values)

    def content(self, bucket: Bucket) -> pa.Table:
        return self.house.content(bucket)

    def again(self, bucket: Bucket, **values: object) -> None:
        """An index row a second time, with other values."""
        query = select(t.buckets).where(t.buckets.c.bucket_id == bucket.bucket_id)
        with self.house.catalog.writing() as connection:
            row = dict(connection.execute(query).one()._mapping)
            del row["bucket_id"]
            connection.execute(insert(t.buckets).values(row | values))

    def examined(self, orders: DoctorOptions = DEEP) -> list[DoctorReport]:
        return run_doctor(self.house.site, (), orders)

    def findings(self, orders: DoctorOptions = DEEP) -> list[Finding]:
        return [finding for each in self.examined(orders) for finding in each.findings]

    def kinds(self, orders: DoctorOptions = DEEP) -> list[FindingKind]:
        return sorted(each.kind for each in self.findings(orders))


@pytest.fixture(scope="module")
def grown(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Batches in files and in the catalog, corrections of rows and of corrections, some that say nothing new, rows
    that have aged out of a bucket that stays, and pending ones."""
    builder = Builder(tmp_path_factory.mktemp("grown"))
    house = builder(FEED, WHO, SORTED)
    feed, inline = Layers(house, FEED, inline=False), Layers(house, FEED)
    feed.bring(run(0, 1, 2, 3), run(4, 5, 6, 7), run(8, 9, 10, 11))
    inline._batches = feed._batches
    inline.bring(run(2, 3, 8, 9, who="b"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("errata.archive.bucket_writer.MAX_INLINE_BYTES", 0)  # overlays in files, too
        feed.correct(
            (REPLACE, key(5) | {"price": 2.0}, {}),
            (DELETE, key(6), {}),
            (REPLACE, {"at": 10, "who": "c"}, key(9)),
            (INSERT, a_row(4, "z"), {}),
            (REPLACE, key(5) | {"price": 2.0}, {}),
        )
        feed.correct((REPLACE, key(5) | {"price": 3.0}, {}))
    feed.bring(run(20, 21, 22, 23))
    assert age_out(house.site, ["feed"])[0].rows == 6
    feed.pend((REPLACE, key(8) | {"price": 2.0}, {}), (DELETE, key(20), {}))
    Layers(house, WHO, inline=False).bring([a_row(1, "a"), a_row(2, "b")], [a_row(3, "c"), a_row(4, "d")])
    Layers(house, SORTED, inline=False).bring(run(0, 1, 2), run(2, 3, who="b"))
    assert house.stored()[0].masked == 2
    assert feed.standing.aged_to == 4
    builder.close()
    return house.folder


@contextmanager
def copied(grown: Path, folder: Path) -> Iterator[Body]:
    shutil.copytree(grown, folder)
    url = f"sqlite:///{folder}/errata.db"
    project = a_project(folder, url, FEED, WHO, SORTED)
    catalog = open_catalog(url, FixedClock(NOW))
    yield Body(House(folder, Site(project, catalog, Warehouse(project.warehouse), Cause(""))))
    catalog.close()


@pytest.fixture
def body(grown: Path, tmp_path: Path) -> Iterator[Body]:
    with copied(grown, tmp_path / "house") as body:
        yield body


@pytest.mark.parametrize("orders", [DEEP, QUICK, FIX])
def test_nothing_is_wrong_with_what_is_healthy(body: Body, orders: DoctorOptions) -> None:
    before = streams.stream_state(body.house.catalog, "feed").changed_in
    found = body.examined(orders)
    assert [(each.stream, each.buckets, each.overlays) for each in found] == [
        ("feed", 4, 2),
        ("sorted", 2, 0),
        ("who", 2, 0),
        (None, 0, 0),
    ]
    assert [finding for each in found for finding in (*each.findings, *each.mended)] == []
    assert {each.commit_id for each in found} == {None}
    assert streams.stream_state(body.house.catalog, "feed").changed_in == before


Damage = Callable[[Body], object]


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-7])


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))


def removed(body: Body) -> Bucket:
    """A base bucket that only old commits need."""
    (found,) = [each for each in body.layer().stored(commit=4) if each.vs_min == 0 and not each.inline]
    return found


def without_data(body: Body) -> None:
    body.sql(delete(t.bucket_data).where(t.bucket_data.c.bucket_id == body.base(2).bucket_id))


def other_type(body: Body) -> None:
    bucket = body.base(20)
    rows = body.content(bucket)
    body.rewrite(bucket, rows.set_column(rows.schema.get_field_index("price"), "price", rows["price"].cast("string")))


FILES: Mapping[str, tuple[Damage, FindingKind]] = {
    "a file is gone": (lambda body: body.path(body.base(8)).unlink(), FindingKind.MISSING),
    "a file of an old commit is gone": (lambda body: body.path(removed(body)).unlink(), FindingKind.MISSING),
    "a file of an overlay is gone": (lambda body: body.path(body.overlay).unlink(), FindingKind.MISSING),
    "a file of pending revisions is gone": (lambda body: body.path(body.pending).unlink(), FindingKind.MISSING),
    "rows in the catalog are gone": (without_data, FindingKind.MISSING),
    "a file was cut": (lambda body: cut(body.path(body.base(8))), FindingKind.CHECKSUM),
    "a bit has flipped": (lambda body: flip(body.path(body.base(8))), FindingKind.CHECKSUM),
    "it is no parquet": (lambda body: body.replace(body.base(20), b"nothing"), FindingKind.UNREADABLE),
    "a column is of another type": (other_type, FindingKind.UNREADABLE),
    "there is no key": (
        lambda body: body.rewrite(body.base(20), body.content(body.base(20)).drop(["who"])),
        FindingKind.UNREADABLE,
    ),
}


@pytest.mark.parametrize("name", FILES)
def test_files_that_are_damaged_are_named(body: Body, name: str) -> None:
    damage, kind = FILES[name]
    damage(body)
    (finding,) = body.findings()
    assert (finding.kind, finding.stream, finding.severity) == (kind, "feed", Severity.DAMAGE)
    assert not finding.mendable
    assert body.kinds(FIX) == [kind], "it is left"


@pytest.mark.parametrize(
    ("name", "kinds"),
    [
        ("a file is gone", [FindingKind.MISSING]),
        ("a file of an old commit is gone", [FindingKind.MISSING]),
        ("rows in the catalog are gone", [FindingKind.MISSING]),
        ("a file was cut", [FindingKind.SIZE]),
        ("a bit has flipped", []),
    ],
)
def test_without_reading_rows_existence_and_size_are_seen(body: Body, name: str, kinds: list[FindingKind]) -> None:
    FILES[name][0](body)
    assert body.kinds(QUICK) == kinds


def test_what_is_lost_is_told_with_what_is_whole_and_what_to_do(body: Body) -> None:
    bucket = body.base(8)
    body.path(bucket).unlink()
    (finding,) = body.findings()
    assert finding.what == "the file is missing"
    assert finding.where == f"bucket {bucket.bucket_id}, {bucket.path}"
    assert finding.why == (
        f"commits {bucket.added_in} on need its 4 rows of batch feed 0 from 8 to 11; "
        "6 live buckets of the stream are whole"
    )
    assert f"restore {bucket.path} ({bucket.size:,} bytes, {bucket.checksum}) from a backup" in finding.how
    assert f"from before commit {bucket.added_in} and take batch feed 0's files in again" in finding.how


def test_a_file_that_may_not_be_read_is_named(body: Body, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(self: Warehouse, relative: str) -> bytes:
        raise PermissionError(13, "Permission denied", relative)

    monkeypatch.setattr(Warehouse, "read", refused)
    found = body.findings()
    assert {each.kind for each in found} == {FindingKind.UNREADABLE}
    assert {each.what for each in found} == {"it cannot be read: Permission denied"}


def with_null(body: Body) -> None:
    bucket = body.base(20)
    rows = body.content(bucket)
    who = pa.array(["a", "a", "a", None])
    members = '[["a"],[null]]'
    body.rewrite(bucket, rows.set_column(rows.schema.get_field_index("who"), "who", who), group_members=members)


def without_order(body: Body) -> None:
    bucket = body.base(20)
    body.rewrite(bucket, body.content(bucket).take([1, 0, 2, 3]))


def row_twice(body: Body) -> None:
    bucket = body.base(20)
    body.rewrite(bucket, body.content(bucket).take([0, 1, 2, 2]), vs_max=22)


def key_twice(body: Body) -> None:
    bucket = body.base(3, WHO)
    rows = body.content(bucket)
    pq.write_table(rows, body.path(bucket), bloom_filter_options={"who": {"ndv": 2, "fpp": 0.01}})
    who = rows.set_column(rows.schema.get_field_index("who"), "who", pa.array(["b", "d"]))
    sink = pa.BufferOutputStream()
    pq.write_table(who, sink, bloom_filter_options={"who": {"ndv": 2, "fpp": 0.01}})
    body.replace(bucket, sink.getvalue().to_pybytes(), group_members='[["b"],["d"]]')


def ordinals(body: Body) -> None:
    bucket = body.pending
    rows = body.content(bucket)
    body.rewrite(bucket, rows.set_column(0, rows.schema.field(0), pc.add(rows["_ordinal"], 1)))


def revision_twice(body: Body) -> None:
    bucket = body.overlay
    rows = body.content(bucket)
    numbers = pa.array([1] * rows.num_rows)
    body.rewrite(bucket, rows.set_column(0, "_revision", numbers), revision_first=1, revision_last=1)


def lay(body: Body, place: int, **row: object) -> None:
    """One overlay more, of one row, in a commit that nobody made. Revision 5 said what was so already: no overlay has
    its number."""
    table = pa.Table.from_pylist([{"_revision": 5, **row}], schema=overlay_schema(FEED))
    written = BucketWriter(FEED, body.house.site.warehouse, inline=False)
    stored = written.store(table, Role.OVERLAY, place, place, body.overlay.groups)
    masks, content = (place if row[name] else None for name in ("_masks", "_live"))
    body.again(
        body.overlay,
        path=stored.path,
        rows=1,
        bytes=stored.size,
        checksum=stored.checksum,
        vs_min=place,
        vs_max=place,
        span_class=0,
        group_members='[["a"]]',
        revision_first=5,
        revision_last=5,
        mask_min=masks,
        mask_max=masks,
        content_min=content,
        content_max=content,
        masked=0,
    )


def count_rows(body: Body, more: int) -> None:
    now = body.layer().standing
    body.stand(rows=now.rows + more)
    position(body, now.changed_in, rows=now.rows + more)


def brought_twice(body: Body) -> None:
    lay(body, 21, _op="insert", at=21, who="a", _masks=False, _live=True)
    count_rows(body, 1)


def twice_where_nothing_counts(body: Body) -> None:
    """What has aged out counts no more, however often it is there."""
    lay(body, 1, _op="insert", at=1, who="a", _masks=False, _live=True)
    (bucket,) = [each for each in body.layer().stored(Role.OVERLAY) if each.revision_first == 5]
    body.note(bucket, masked=1)


def masks_nothing(body: Body) -> None:
    lay(body, 12, _op="delete", _old_at=12, _old_who="a", _masks=True, _live=False)


def masks_two(body: Body) -> None:
    bucket = body.base(4)
    body.rewrite(bucket, body.content(bucket).take([0, 1, 2, 2]), vs_max=6, masked=3)
    count_rows(body, -1)


def masked_aged(body: Body) -> None:
    """A mask of a row that has gone with its bucket is right."""
    lay(body, 1, _op="delete", _old_at=1, _old_who="a", _masks=True, _live=False)


def aged_row_twice(body: Body) -> None:
    bucket = body.base(2)
    rows = body.content(bucket).take([0, 0, 2, 3])
    body.note(bucket, path=a_file(body))
    body.stand(inline_bytes=body.layer().standing.inline_bytes - bucket.size)
    body.rewrite(body.base(2), rows)


ROWS: Mapping[str, tuple[Damage, list[FindingKind]]] = {
    "there is NULL in the key": (with_null, [FindingKind.NULLS]),
    "rows are not in order": (without_order, [FindingKind.DISORDER]),
    "a row is there twice": (row_twice, [FindingKind.DOUBLE]),
    "a key is there in two places": (key_twice, [FindingKind.DOUBLE]),
    "revisions are not numbered from 0": (ordinals, [FindingKind.DISORDER]),
    "a revision is there twice": (revision_twice, [FindingKind.NUMBERS]),
    "a correction masks nothing": (masks_nothing, [FindingKind.MASKS]),
    "a correction masks two rows": (masks_two, [FindingKind.MASKS]),
    "a correction masks what has aged out": (masked_aged, []),
    "a correction brings what is there": (brought_twice, [FindingKind.DOUBLE]),
    "rows that have aged out are there twice": (twice_where_nothing_counts, []),
    "a row that has aged out is there twice": (aged_row_twice, []),
    "a bucket has no filters": (
        lambda body: body.rewrite(body.base(1, WHO), body.content(body.base(1, WHO))),
        [FindingKind.FILTERS],
    ),
}


@pytest.mark.parametrize("name", ROWS)
def test_rows_that_do_not_agree_are_found_by_reading_them(body: Body, name: str) -> None:
    damage, kinds = ROWS[name]
    damage(body)
    assert body.kinds() == kinds
    assert not any(each.mendable for each in body.findings())
    assert body.kinds(QUICK) == []


def test_revisions_that_do_not_tell_their_place_may_be_of_any(body: Body) -> None:
    body.layer(WHO).pend((DELETE, {"who": "a"}, {}), (REPLACE, a_row(2, "b", 3.0), {}))
    assert body.kinds() == []


@pytest.mark.parametrize(
    ("rows", "layouts"),
    [
        ([(1, "a"), (2, "a"), (3, "b")], [Layout.BUCKETS, Layout.GROUPED]),
        ([(1, "a"), (2, "b"), (3, "a")], [Layout.BUCKETS]),
        ([(2, "a"), (3, "a"), (1, "b")], [Layout.GROUPED]),
        ([(3, "a"), (2, "a"), (1, "b")], []),
        ([(3, None), (1, "a"), (2, "a")], [Layout.GROUPED]),
        ([(1, "a")], [Layout.BUCKETS, Layout.GROUPED]),
    ],
)
def test_rows_lie_by_order_or_by_group_and_order(rows: list[tuple[int, str]], layouts: list[Layout]) -> None:
    table = pa.table({"at": [at for at, _ in rows], "who": [who for _, who in rows]})
    found = [layout for layout in (Layout.BUCKETS, Layout.GROUPED) if is_ordered(table, FEED, layout)]
    assert found == layouts
    assert is_ordered(table, FEED, Layout.PLAIN)


def test_double_keys_are_named(body: Body) -> None:
    key_twice(body)
    (finding,) = body.findings()
    assert (finding.stream, finding.what, finding.where) == ("who", "more than one row counts of 1 key", "who=b")


def test_masks_are_named_by_revision_and_place(body: Body) -> None:
    masks_nothing(body)
    (finding,) = body.findings()
    assert (finding.what, finding.where) == ("revisions 5 mask no row", "overlays, from 12 to 12")


INDEX: Mapping[str, tuple[Damage, FindingKind]] = {
    "rows": (lambda body: body.note(body.base(8), rows=3), FindingKind.FIGURES),
    "rows of an old commit": (lambda body: body.note(removed(body), rows=3), FindingKind.FIGURES),
    "bytes": (lambda body: body.note(body.base(8), bytes=3), FindingKind.FIGURES),
    "the first place": (lambda body: body.note(body.base(8), vs_min=9, span_class=2), FindingKind.FIGURES),
    "the last place": (lambda body: body.note(body.base(8), vs_max=HIGHEST, span_class=63), FindingKind.FIGURES),
    "groups": (lambda body: body.note(body.base(8), group_members='[["q"]]'), FindingKind.FIGURES),
    "the range of groups": (lambda body: body.note(body.base(8), group_low="b", group_high="c"), FindingKind.FIGURES),
    "the resolution": (lambda body: body.note(body.base(8), sampling_rate=0.5, hash_high=0), FindingKind.FIGURES),
    "the class of its span": (lambda body: body.note(body.base(8), span_class=0), FindingKind.FIGURES),
    "where an overlay masks": (lambda body: body.note(body.overlay, mask_max=7), FindingKind.FIGURES),
    "where an overlay brings": (lambda body: body.note(body.overlay, content_min=5), FindingKind.FIGURES),
    "the numbers of an overlay": (lambda body: body.note(body.overlay, revision_last=9), FindingKind.FIGURES),
    "what an overlay spans": (lambda body: body.note(body.overlay, vs_max=20, span_class=5), FindingKind.FIGURES),
    "where revisions lie": (lambda body: body.note(body.pending, vs_min=1, span_class=5), FindingKind.FIGURES),
    "what is masked": (lambda body: body.note(body.base(4), masked=0), FindingKind.MASKED),
    "what has aged out": (lambda body: body.note(body.base(2), masked=0), FindingKind.MASKED),
    "what an overlay has lost": (lambda body: body.note(body.overlay, masked=0), FindingKind.MASKED),
    "rows that count": (lambda body: body.stand(rows=7), FindingKind.COUNTER),
    "bytes in the catalog": (lambda body: body.stand(inline_bytes=7), FindingKind.COUNTER),
}


@pytest.mark.parametrize("name", INDEX)
def test_figures_that_rows_can_tell_are_mended_by_them(body: Body, name: str) -> None:
    before = index_of(body)
    damage, kind = INDEX[name]
    damage(body)
    assert index_of(body) != before
    (finding,) = body.findings()
    assert (finding.kind, finding.stream, finding.severity) == (kind, "feed", Severity.WRONG)
    assert finding.mendable
    basis = streams.stream_state(body.house.catalog, "feed").changed_in
    feed, *others = body.examined(FIX)
    assert (feed.findings, feed.mended, feed.commit_id) == ([], [finding], feed.commit_id)
    assert feed.commit_id is not None
    assert feed.commit_id > basis
    assert not any(each.mended for each in others)
    assert body.kinds() == []
    assert index_of(body) == before
    with body.house.catalog.reading() as connection:
        commit = connection.execute(select(t.commits).where(t.commits.c.commit_id == feed.commit_id)).one()
    assert (commit.flow, commit.stream_id) == ("doctor", 1)
    assert sum(commit.summary.values()) == 1
    now = body.layer().standing
    assert now.changed_in == feed.commit_id, "who decided on the wrong figures looks again"
    assert [each.commit_id for each in positions_of(body)][-1] == feed.commit_id
    assert streams.stream_state(body.house.catalog, "feed", feed.commit_id).rows == now.rows


def positions_of(body: Body) -> Sequence[Any]:
    query = select(t.positions).where(t.positions.c.stream_id == 1).order_by(t.positions.c.commit_id)
    with body.house.catalog.reading() as connection:
        return connection.execute(query).all()


def index_of(body: Body) -> tuple[object, ...]:
    with body.house.catalog.reading() as connection:
        rows = connection.execute(select(t.buckets).order_by(t.buckets.c.bucket_id)).all()
        counters = select(t.streams.c.rows, t.streams.c.inline_bytes).order_by(t.streams.c.stream_id)
        return (*rows, *connection.execute(counters).all())


def test_what_is_damaged_itself_mends_nothing(body: Body) -> None:
    flip(body.path(body.base(8)))
    body.note(body.base(8), rows=3, masked=2)
    assert FindingKind.FIGURES not in body.kinds(FIX)
    assert body.base(8).rows == 3


def test_a_size_in_the_catalog_is_mended_with_the_sum(body: Body) -> None:
    body.note(body.base(2), bytes=3)
    assert body.kinds() == [FindingKind.FIGURES]
    body.examined(FIX)
    assert body.kinds() == []


def test_quickly_a_wrong_count_is_seen_and_not_mended(body: Body) -> None:
    body.stand(rows=7)
    assert [(each.kind, each.mendable) for each in body.findings(QUICK)] == [(FindingKind.STANDING, False)]
    body.sql(update(t.streams).where(t.streams.c.name == "who").values(rows=7))
    found = [each for each in body.findings(QUICK) if each.stream == "who"]
    assert [(each.kind, each.mendable) for each in found] == [(FindingKind.COUNTER, False)]
    assert "--deep" in found[0].how
    body.examined(DoctorOptions(deep=False, fix=True))
    assert body.layer().standing.rows == 7
    body.examined(FIX)
    assert body.kinds() == []


def position(body: Body, commit: int, **values: object) -> None:
    where = (t.positions.c.stream_id == 1) & (t.positions.c.commit_id == commit)
    body.sql(update(t.positions).where(where).values(**values))


def pending_shifted(body: Body) -> None:
    bucket = body.pending
    body.note(bucket, revision_first=(bucket.revision_first or 0) + 1)


def without_pending(body: Body) -> None:
    body.sql(delete(t.buckets).where(t.buckets.c.bucket_id == body.pending.bucket_id))


def without_base(body: Body) -> None:
    body.sql(delete(t.buckets).where(t.buckets.c.bucket_id == removed(body).bucket_id))


def batch(body: Body, **values: object) -> None:
    body.sql(update(t.batches).where(t.batches.c.batch_no == 1).values(**values))


def counts(body: Body, **changed: int) -> None:
    with body.house.catalog.reading() as connection:
        known = connection.execute(select(t.batches.c.counts).where(t.batches.c.batch_no == 1)).scalar_one()
    batch(body, counts=known | changed)


def split(body: Body, **values: object) -> None:
    body.sql(update(t.batch_splits).where(t.batch_splits.c.batch_no == 1).values(**values))


def second_split(body: Body, **values: object) -> None:
    row = {"batch_no": 1, "split": 1, "file_number": 0, "first_line": 14, "lines": 3} | values
    body.sql(insert(t.batch_splits).values(row))


def commit(body: Body, commit_id: int, **values: object) -> None:
    body.sql(update(t.commits).where(t.commits.c.commit_id == commit_id).values(**values))


def overlapping_batch(body: Body) -> None:
    body.layer(WHO).bring([a_row(10, "p"), a_row(14, "q")], [a_row(12, "r"), a_row(13, "s")])


def overlapping_pieces(body: Body) -> None:
    body.layer(SORTED).bring(run(1, who="c"))


LEDGER: Mapping[str, tuple[Damage, list[FindingKind]]] = {
    "applied too high": (lambda body: body.stand(applied=7), [FindingKind.NUMBERS, FindingKind.STANDING]),
    "applied too low": (
        lambda body: body.stand(applied=5),
        [FindingKind.NUMBERS, FindingKind.NUMBERS, FindingKind.STANDING],
    ),
    "more applied than numbered": (
        lambda body: body.stand(applied=9),
        [FindingKind.NUMBERS, FindingKind.NUMBERS, FindingKind.STANDING],
    ),
    "revisions too low": (lambda body: body.stand(revisions=7), [FindingKind.NUMBERS]),
    "revisions too high": (lambda body: body.stand(revisions=9), [FindingKind.NUMBERS]),
    "numbers of pending ones": (pending_shifted, [FindingKind.NUMBERS, FindingKind.NUMBERS]),
    "pending ones twice": (lambda body: body.again(body.pending, batch_no=None), [FindingKind.NUMBERS]),
    "pending ones lost": (without_pending, [FindingKind.LEDGER, FindingKind.NUMBERS]),
    "the stable point": (lambda body: body.stand(stable=3), [FindingKind.STANDING]),
    "moved in a commit to come": (lambda body: body.stand(changed_in=99), [FindingKind.STANDING]),
    "moved long ago": (lambda body: body.stand(changed_in=2), [FindingKind.STANDING]),
    "a position that was never there": (lambda body: position(body, 4, folded=3), [FindingKind.STANDING]),
    "the commit of a batch": (lambda body: batch(body, commit_id=3), [FindingKind.LEDGER]),
    "a batch without commit": (lambda body: batch(body, commit_id=None), [FindingKind.LEDGER]),
    "a commit of another batch": (lambda body: commit(body, 2, batch_id="x"), [FindingKind.LEDGER]),
    "a commit of another stream": (lambda body: commit(body, 2, stream_id=2), [FindingKind.LEDGER]),
    "the rows of a batch": (lambda body: counts(body, appended=13, read=13), [FindingKind.LEDGER]),
    "rows unaccounted for": (lambda body: counts(body, read=13), [FindingKind.LEDGER]),
    "revisions that never came": (lambda body: counts(body, pending=1, read=13), [FindingKind.LEDGER]),
    "a bucket of a batch lost": (without_base, [FindingKind.LEDGER]),
    "a piece of no file": (lambda body: split(body, file_number=7), [FindingKind.LEDGER]),
    "a piece without the first": (lambda body: split(body, split=1), [FindingKind.LEDGER]),
    "pieces that follow": (second_split, []),
    "pieces that do not follow": (lambda body: second_split(body, first_line=15), [FindingKind.LEDGER]),
    "buckets of a batch that overlap": (overlapping_batch, [FindingKind.OVERLAP]),
    "pieces of a table that overlap": (overlapping_pieces, [FindingKind.OVERLAP]),
    "a commit is gone": (
        lambda body: body.sql(delete(t.commits).where(t.commits.c.commit_id == 1)),
        [FindingKind.COMMITS],
    ),
    "time goes back": (lambda body: commit(body, 3, at=5), [FindingKind.COMMITS]),
    "the head": (lambda body: body.sql(update(t.head).values(commit_id=t.head.c.commit_id + 1)), [FindingKind.COMMITS]),
    "the time of the head": (lambda body: body.sql(update(t.head).values(at=5)), [FindingKind.COMMITS]),
}


@pytest.mark.parametrize("name", LEDGER)
@pytest.mark.parametrize("orders", [DEEP, QUICK])
def test_what_does_not_hold_together_is_found_without_reading_rows(
    body: Body, name: str, orders: DoctorOptions
) -> None:
    damage, kinds = LEDGER[name]
    damage(body)
    assert body.kinds(orders) == kinds
    assert not any(each.mendable for each in body.findings(orders))


def test_what_vacuum_has_taken_is_not_missed(body: Body) -> None:
    body.house.clock.advance(30 * DAY)
    assert run_vacuum(body.house.site).freed
    assert body.kinds() == []
    body.path(body.base(8)).unlink()
    assert body.kinds() == [FindingKind.MISSING]


def test_what_nobody_needs_is_not_looked_at(body: Body) -> None:
    gone = removed(body)
    body.house.clock.advance(30 * DAY)
    body.path(gone).unlink()
    assert body.kinds() == []


def test_buckets_of_a_dropped_stream_have_to_be_whole(body: Body) -> None:
    bucket = body.base(3, WHO)
    site = body.house.site
    declarations.apply_changes(site.catalog, Cause("apply"), write=[], drop=["who"], summary={})
    assert body.kinds() == []
    body.note(bucket, rows=9)
    assert [each.stream for each in body.findings()] == ["who"]
    before = index_of(body)[-3:]
    assert body.kinds(FIX) == []
    assert index_of(body)[-3:] == before, "how much it held when it was dropped stays known"
    body.path(bucket).unlink()
    assert body.kinds() == [FindingKind.MISSING]


def test_what_was_withdrawn_is_not_missing(body: Body) -> None:
    """An undo takes pending revisions back: their numbers are never settled."""
    bucket = body.pending
    streams_head = body.layer().standing.changed_in
    body.sql(
        insert(t.commits).values(
            commit_id=streams_head + 50,
            at=NOW,
            flow="undo",
            stream_id=1,
            summary={"withdrawn": 2},
            **dict.fromkeys(("user_name", "host", "dag_id", "run_id", "task_id", "spark_app"), ""),
        )
    )
    body.note(bucket, removed_in=streams_head + 50)
    assert FindingKind.NUMBERS not in body.kinds()
    body.sql(update(t.streams).where(t.streams.c.name == "feed").values(vacuumed=streams_head + 50))
    body.sql(delete(t.buckets).where(t.buckets.c.bucket_id == bucket.bucket_id))
    assert FindingKind.NUMBERS not in body.kinds(), "as many have been withdrawn as are missing"
    body.stand(revisions=9)
    assert FindingKind.NUMBERS in body.kinds()


def doom(body: Body, path: str) -> str:
    body.sql(insert(t.doomed).values(path=path, bytes=3))
    return path


def a_pin(body: Body) -> None:
    body.sql(insert(t.pins).values(pin_id="x", commit_id=3, holder="somebody", expires_at=NOW))


def a_consumer(body: Body) -> None:
    declarations.apply_changes(body.house.catalog, Cause("apply"), write=[], drop=["who"], summary={})
    with body.house.catalog.reading() as connection:
        stream_id = connection.execute(select(t.streams.c.stream_id).where(t.streams.c.name == "who")).scalar_one()
    body.sql(insert(t.consumers).values(stream_id=stream_id, name="q", revision=0))


def a_file(body: Body) -> str:
    path = body.house.site.warehouse.new_name(FEED, 0)
    body.house.site.warehouse.write(path, b"abc")
    return path


TIDY: Mapping[str, tuple[Damage, FindingKind, Severity]] = {
    "a pin": (a_pin, FindingKind.PIN, Severity.LITTER),
    "a consumer": (a_consumer, FindingKind.CONSUMER, Severity.LITTER),
    "a file that is gone": (lambda body: doom(body, "feed/base/all/x.parquet"), FindingKind.DOOMED, Severity.LITTER),
    "a file that is to go": (lambda body: doom(body, a_file(body)), FindingKind.DOOMED, Severity.LITTER),
    "a file that is needed": (lambda body: doom(body, body.base(8).path or ""), FindingKind.DOOMED, Severity.DAMAGE),
}


@pytest.mark.parametrize("name", TIDY)
def test_what_lies_about_is_tidied(body: Body, name: str) -> None:
    damage, kind, severity = TIDY[name]
    damage(body)
    needed = body.house.files()
    (finding,) = body.findings()
    assert (finding.stream, finding.kind, finding.severity, finding.mendable) == (None, kind, severity, True)
    house = body.examined(FIX)[-1]
    assert (house.findings, house.mended) == ([], [finding])
    assert house.commit_id is not None
    assert body.kinds() == []
    assert needed - body.house.files() == ({finding.where} if name == "a file that is to go" else set())


def test_a_pin_that_holds_is_left(body: Body) -> None:
    body.sql(insert(t.pins).values(pin_id="x", commit_id=3, holder="somebody", expires_at=NOW + 1))
    assert body.kinds(FIX) == []
    with body.house.catalog.reading() as connection:
        assert connection.execute(select(t.pins.c.pin_id)).scalars().all() == ["x"]


def test_a_file_that_cannot_be_removed_stays_a_finding(body: Body, monkeypatch: pytest.MonkeyPatch) -> None:
    path = doom(body, a_file(body))

    def refused(self: Warehouse, relative: str) -> None:
        raise PermissionError(13, "Permission denied", relative)

    monkeypatch.setattr(Warehouse, "remove", refused)
    house = body.examined(FIX)[-1]
    assert [each.where for each in house.findings] == [path]
    assert (house.mended, house.commit_id) == ([], None)


def test_files_that_nobody_names_are_told_with_the_way_to_remove_them(body: Body) -> None:
    path = a_file(body)
    young = body.house.site.warehouse.new_name(FEED, 0)
    body.house.site.warehouse.write(young, b"young")
    os.utime(body.house.site.warehouse.path(path), (1, 1))
    soon = NOW / SECOND
    os.utime(body.house.site.warehouse.path(young), (soon, soon))
    (finding,) = body.findings()
    assert (finding.stream, finding.kind, finding.where) == ("feed", FindingKind.ORPHAN, "feed/base")
    assert finding.what == "1 file that no index row names (3 bytes)"
    assert finding.how == "errata archive vacuum feed"
    assert not finding.mendable
    assert len(run_doctor(body.house.site, ["who"])[-1].findings) == 0
    assert body.findings(DoctorOptions(grace=0))[0].what.startswith("2 files")


def test_an_unknown_stream_is_told_with_candidates(body: Body) -> None:
    with pytest.raises(UsageError, match="did you mean feed"):
        run_doctor(body.house.site, ["fed"])


def test_one_stream_is_looked_at_when_it_is_named(body: Body) -> None:
    body.stand(rows=7)
    assert [each.stream for each in run_doctor(body.house.site, ["who"])] == ["who", None]


def test_what_was_decided_before_another_writer_came_is_not_noted(body: Body) -> None:
    basis = body.layer().standing
    body.layer().bring(run(30))
    with pytest.raises(BasisConflict):
        commit_repair(body.house.catalog, basis, ArchiveRepair(rows=7), Cause("doctor"))
    assert body.kinds() == []


def test_it_looks_again_when_another_writer_came_first(body: Body) -> None:
    body.stand(rows=7)
    came: list[str] = []

    @contextmanager
    def bar(title: str, total: int) -> Iterator[Callable[[int], None]]:
        told: list[int] = []
        yield told.append
        assert sum(told) == total
        if not came:
            body.layer().bring(run(30))
        came.append(title)

    feed = run_doctor(body.house.site, ["feed"], FIX, bar=bar)[0]
    assert came == ["reading feed", "reading feed"]
    assert [each.kind for each in feed.mended] == [FindingKind.COUNTER]
    assert body.kinds() == []


def test_it_gives_up_when_others_always_come_first(body: Body) -> None:
    body.stand(rows=7)

    @contextmanager
    def bar(_title: str, _total: int) -> Iterator[Callable[[int], None]]:
        yield lambda _: None
        body.sql(text("update streams set changed_in = changed_in + 1 where name = 'feed'"))

    with pytest.raises(ErrataError, match="8 times another writer moved stream feed first"):
        run_doctor(body.house.site, ["feed"], FIX, bar=bar)


STEPS = st.one_of(
    st.tuples(st.just("bring"), st.integers(1, 6)),
    st.tuples(
        st.just("correct"),
        st.lists(st.tuples(st.sampled_from([INSERT, REPLACE, DELETE]), st.integers(0, 30)), min_size=1, max_size=4),
    ),
    st.tuples(st.just("compact"), st.booleans()),
    st.tuples(st.just("age"), st.none()),
    st.tuples(st.just("vacuum"), st.none()),
)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    builder = Builder(tmp_path_factory.mktemp("healthy"))
    yield builder(plain("first"))
    builder.close()


@given(
    by_who=st.booleans(),
    layout=st.sampled_from([Layout.BUCKETS, Layout.GROUPED]),
    inline=st.booleans(),
    steps=st.lists(STEPS, min_size=2, max_size=8),
)
def test_whatever_happens_leaves_an_archive_healthy(
    shared: House, by_who: bool, layout: Layout, inline: bool, steps: Sequence[tuple[str, Any]]
) -> None:
    names = ("who",) if by_who else ("at", "who")
    stream = plain(key=names, bucket_rows=3, slack=3, layout=layout, retention=Retention(span=6))
    done = layers(shared, stream, inline=inline)
    place = 0
    for step, what in [("bring", 5), *steps]:
        if step == "bring":
            fresh = [a_row(place + at, f"w{place + at}") for at in range(what)]
            place += what
            done.bring(*(fresh[start : start + 3] for start in range(0, what, 3)))
        elif step == "correct":
            done.correct(*(_revision(done, each, number) for number, each in enumerate(what)))
        elif step == "compact":
            compact_streams(shared.site, [done.name], everything=what)
        elif step == "age":
            age_out(shared.site, [done.name])
        else:
            shared.clock.advance(8 * DAY)
            run_vacuum(shared.site, [done.name])
        (found, _) = run_doctor(shared.site, [done.name])
        assert found.findings == []


def _revision(done: Layers, what: tuple[Op, int], number: int) -> tuple[Op, Row, Row]:
    op, which = what
    live = done.seen()
    if op is INSERT or not live:
        return INSERT, a_row(which, f"late{which}", number), {}
    row = live[which % len(live)]
    old = {name: row[name] for name in done.stream.key}
    return (DELETE, old, {}) if op is DELETE else (REPLACE, old | {"price": 7.0 + number, "at": row["at"]}, {})


def by_spark(body: Body, monkeypatch: pytest.MonkeyPatch) -> list[Finding]:
    monkeypatch.setattr("errata.engine.budget.LOCAL_TASK_BYTES", -1)
    monkeypatch.setattr("errata.declare.site.near_is_installed", lambda: False)
    monkeypatch.setattr(reading, "INSPECTION_TASK_BYTES", 1)
    monkeypatch.setattr(reading, "TASKS_PER_JOB", 3)
    return body.findings()


@pytest.mark.parametrize(
    "damage",
    [
        lambda _: None,
        row_twice,
        key_twice,
        masks_nothing,
        lambda body: body.note(body.overlay, masked=0, mask_max=9),
        lambda body: body.path(body.base(8)).unlink(),
    ],
)
def test_spark_finds_what_is_found_without_it(
    body: Body, spark: object, monkeypatch: pytest.MonkeyPatch, damage: Damage
) -> None:
    damage(body)
    here = body.findings()
    assert by_spark(body, monkeypatch) == here


FLOWS = (
    a_feed("by_time", bucket_rows=20, slack=5 * SECOND, retention=Retention(span=900 * SECOND)),
    a_feed("by_who", bucket_rows=20, slack=5 * SECOND, key=("who",), layout=Layout.GROUPED),
    a_feed("by_rows", bucket_rows=20, slack=5 * SECOND, retention=Retention(rows=30)),
)


def test_all_flows_leave_archives_healthy(a_house: Callable[..., House]) -> None:
    house = a_house(*FLOWS)

    def line(at: int, who: str, price: object = 1.0, op: Op | None = None) -> Line:
        return Line({"at": NOW - (1000 - at) * SECOND, "who": who, "price": price, "note": "x" * at * 50}, op)

    def check(when: str) -> None:
        assert [finding for each in run_doctor(house.site) for finding in each.findings] == [], when

    for stream in FLOWS:
        house.append([Source("0.csv", [line(at, f"w{at:03}") for at in range(0, 100, 2)])], stream.name)
        wrong = [line(900, "z", 2.0, REPLACE), line(6, "zz", 2.0, REPLACE), line(7, "x", "none")]
        right = [line(3, "late"), line(4, "w004", 9.0, REPLACE), line(40, "w040", op=DELETE)]
        house.append([Source("1.jsonl", [*right, *wrong])], stream.name)
    check("taken in")
    apply_revisions(house.site)
    check("corrected")
    for stream in FLOWS:
        house.append([Source("2.csv", [line(at, f"w{at:03}") for at in range(101, 960, 40)])], stream.name)
        house.append([Source("3.jsonl", [line(101, "w101", 5.0, REPLACE), line(4, "w004", op=DELETE)])], stream.name)
    apply_revisions(house.site)
    assert sum(each.rows for each in age_out(house.site)) > 0
    check("aged")
    assert any(each.commit_id for each in compact_streams(house.site, everything=True))
    check("compacted")
    house.clock.advance(30 * DAY)
    assert run_vacuum(house.site).freed
    check("vacuumed")
