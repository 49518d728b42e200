"""The rules of taking in: what is refused, what is said of it, and that nothing has changed then."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from errata.archive.ingest import batch_writer as arranging
from errata.archive.ingest.batch import IngestRequest, ingest_batch
from errata.catalog import commits, ledger, quarantine, streams
from errata.declare.apply import apply_plan, plan_apply
from errata.declare.site import Site
from errata.errors import ErrataError, RefusedError, UsageError
from errata.model.columns import Column, ColumnType
from errata.model.stream import DuplicatePolicy, Stream
from errata.model.time import DAY, SECOND, format_instant
from fixtures.catalog import NOW
from fixtures.flows import Builder, House, a_feed, a_project
from fixtures.sources import NO_NUMBER, Line, Source

FEED = a_feed(slack=5 * SECOND)


def a_line(seconds: int, who: str = "a", price: float | str | None = 1.0, **values: object) -> Line:
    return Line({"at": NOW - 3_600 * SECOND + seconds * SECOND, "who": who, "price": price, "note": None, **values})


def state(house: House, stream: str = "feed") -> tuple[object, ...]:
    """Everything that a refusal may not change."""
    standing = streams.stream_state(house.catalog, stream)
    return (
        standing,
        commits.newest_commit(house.catalog),
        house.rows(stream),
        house.pending(stream),
        quarantine.quarantined_rows(house.catalog),
        house.files(),
    )


def test_the_same_batch_id_again_changes_nothing_and_says_so(a_house: Builder) -> None:
    house = a_house(FEED)
    source = Source("monday.csv", [a_line(1), a_line(2), a_line(3, price=NO_NUMBER)])
    first = house.append([source], batch_id="monday")
    before = state(house)
    again = house.append([source], batch_id="monday")
    assert (first.already_ingested, again.already_ingested) == (False, True)
    assert (again.commit_id, again.counts, again.stable) == (first.commit_id, first.counts, first.stable)
    # Its content is what it is known by, not where it lies.
    house.write(source, folder="elsewhere")
    moved = ingest_batch(house.site, IngestRequest("feed", [str(house.folder / "elsewhere")], batch_id="monday"))
    assert moved.already_ingested
    assert state(house) == before


def test_a_batch_without_an_id_is_known_by_the_names_and_contents_of_its_files(a_house: Builder) -> None:
    house = a_house(FEED)
    sources = [Source("1.csv", [a_line(1)]), Source("2.csv", [a_line(2)])]
    first = house.append(sources)
    again = house.append(sources[::-1])
    assert (again.already_ingested, again.batch_id) == (True, first.batch_id)
    other = house.append([Source("b.csv", [a_line(1)]), Source("a.csv", [a_line(2)])])
    assert (other.already_ingested, other.counts.dropped) == (False, 2)


def test_the_same_batch_id_with_other_content_is_refused(a_house: Builder) -> None:
    house = a_house(FEED)
    house.append([Source("1.csv", [a_line(1)])], batch_id="monday")
    before = state(house)
    with pytest.raises(RefusedError, match="batch monday was taken in before, with other content"):
        house.append([Source("1.csv", [a_line(2)])], batch_id="monday")
    with pytest.raises(RefusedError, match="with other content"):
        house.append([Source("1.csv", [a_line(2)])], batch_id="monday", again=True)
    assert state(house) == before


@pytest.mark.parametrize("how", [{"batch_id": "tuesday"}, {"again": True}])
def test_a_file_taken_in_before_is_taken_in_again_under_another_id(a_house: Builder, how: dict[str, object]) -> None:
    house = a_house(FEED)
    source = Source("1.csv", [a_line(0), a_line(10), a_line(12)])
    house.append([source], batch_id="monday")
    before = state(house)
    both = house.append([source, Source("2.csv", [a_line(20)])])
    assert (both.files, [each.batch_id for each in both.skipped_files]) == (1, ["monday"])
    again = house.append([source], **how)
    # The stable point is at 15 by now: all three are late insertions.
    assert (again.counts.read, again.counts.pending, again.counts.dropped) == (3, 3, 0)
    assert house.rows()[:3] == before[2]


@pytest.mark.parametrize("bucket_rows", [2, 100])
def test_a_strict_batch_with_a_bad_row_fails_whole(a_house: Builder, bucket_rows: int) -> None:
    house = a_house(a_feed(bucket_rows=bucket_rows))
    note = "x" * 200_000  # too large to live in the catalog
    house.append([Source("0.csv", [a_line(0, note=note)])], batch_id="b0")
    before = state(house)
    good = [a_line(number, note=f"{number}{note}") for number in range(1, 6)]
    with pytest.raises(RefusedError, match="2 of 7 rows are bad, and the batch is strict") as refusal:
        house.append([Source("1.csv", [*good, a_line(7, price=NO_NUMBER), a_line(1, price=2.0)])], strict=True)
    assert "line 7: price: 'no number' is not a double" in str(refusal.value)
    assert "line 8: duplicate key" in str(refusal.value)
    assert state(house) == before
    assert house.append([Source("1.csv", good)], strict=True).counts.appended == 5
    assert len(house.files()) > len(before[5])


def _cut_off(folder: Path) -> Path:
    text = "at,who\n" + "".join(f"2024-01-01T00:00:00,{number}\n" for number in range(5_000))
    path = folder / "cut.csv.gz"
    path.write_bytes(gzip.compress(text.encode())[:-200])
    return path


def _no_gzip(folder: Path) -> Path:
    path = folder / "plain.jsonl.gz"
    path.write_text('{"at": "2024-01-01T00:00:00", "who": "a"}\n')
    return path


def _no_parquet(folder: Path) -> Path:
    path = folder / "text.parquet"
    path.write_text("at,who\n")
    return path


def _torn_parquet(folder: Path) -> Path:
    """Its footer is whole and its pages are not."""
    path = folder / "torn.parquet"
    moments = pa.array(range(1000), pa.timestamp("us", "UTC"))
    pq.write_table(pa.table({"at": moments, "who": [str(n) for n in range(1000)]}), path, use_dictionary=False)
    content = bytearray(path.read_bytes())
    content[4:2_000] = b"\xff" * 1_996
    path.write_bytes(content)
    return path


def _without_key(folder: Path) -> Path:
    path = folder / "keyless.csv"
    path.write_text("at,price\n2024-01-01T00:00:00,1\n")
    return path


def _stranger(folder: Path) -> Path:
    path = folder / "stranger.csv"
    path.write_text("at,who,prise\n2024-01-01T00:00:00,a,1\n")
    return path


@pytest.mark.parametrize("spoilt", [_cut_off, _no_gzip, _no_parquet, _torn_parquet, _without_key, _stranger])
@pytest.mark.parametrize("key", [("at", "who"), ("who",)], ids=["key with order", "key alone"])
def test_an_unreadable_file_fails_the_batch_whole(
    a_house: Builder, spoilt: Callable[[Path], Path], key: tuple[str, ...]
) -> None:
    house = a_house(a_feed(key=key, bucket_rows=2))
    house.append([Source("0.csv", [a_line(0)])], batch_id="b0")
    before = state(house)
    good = [a_line(number, note="x" * 200_000 + str(number)) for number in range(3)]
    house.write(Source("good.csv", good), folder="mixed")
    path = spoilt(house.folder / "mixed")
    with pytest.raises(ErrataError) as failure:
        ingest_batch(house.site, IngestRequest("feed", [str(house.folder / "mixed")]))
    assert failure.value.where is not None
    assert failure.value.where.endswith(path.name)
    assert "Traceback" not in str(failure.value)
    assert state(house) == before
    path.unlink()
    assert ingest_batch(house.site, IngestRequest("feed", [str(house.folder / "mixed")])).counts.read == 3


def test_streams_that_are_not_there(a_house: Builder) -> None:
    house = a_house(FEED)
    with pytest.raises(UsageError, match="unknown stream 'feet'") as unknown:
        ingest_batch(house.site, IngestRequest("feet", ["x.csv"]))
    assert "feed" in str(unknown.value)
    with pytest.raises(UsageError, match="there is no file"):
        ingest_batch(house.site, IngestRequest("feed", [str(house.folder / "x.csv")]))
    with pytest.raises(UsageError, match="one of the two"):
        ingest_batch(house.site, IngestRequest("feed"))


def test_what_is_not_applied_is_not_taken_in(a_house: Builder) -> None:
    house = a_house(FEED)
    house.site = _redeclared(house, FEED, a_feed("quotes"))
    with pytest.raises(ErrataError, match="stream quotes is not in the catalog yet"):
        ingest_batch(house.site, IngestRequest("quotes", ["x.csv"]))
    house.site = _redeclared(house, a_feed(slack=SECOND))
    with pytest.raises(ErrataError, match=r"stream feed has changed in errata\.yaml"):
        ingest_batch(house.site, IngestRequest("feed", ["x.csv"]))


def _redeclared(house: House, *declared: Stream) -> Site:
    return replace(house.site, project=a_project(house.folder, house.site.project.catalog, *declared))


def test_files_with_nothing_in_them_make_a_commit(a_house: Builder) -> None:
    house = a_house(FEED)
    report = house.append([Source("1.csv"), Source("2.jsonl"), Source("3.parquet"), Source("4.csv.gz")], batch_id="b")
    assert (report.commit_id, report.counts.read, report.files, report.stable) == (2, 0, 4, None)
    taken = ledger.find_batch(house.catalog, 1, "b")
    assert taken is not None
    assert taken.commit_id == 2


def test_a_batch_id_that_no_log_could_bear_is_refused(a_house: Builder) -> None:
    house = a_house(FEED)
    with pytest.raises(UsageError, match="cannot be a batch id"):
        house.append([Source("1.csv", [a_line(1)])], batch_id="two\nlines")
    assert house.files() == set()


def test_small_buckets_live_in_the_catalog_and_large_ones_in_files(a_house: Builder) -> None:
    house = a_house(a_feed(bucket_rows=4))
    small = [a_line(number) for number in range(8)]
    house.append([Source("1.csv", small)])
    assert all(bucket.inline for bucket in house.stored())
    assert house.files() == set()
    standing = streams.stream_state(house.catalog, "feed")
    assert standing.inline_bytes == sum(bucket.size for bucket in house.stored())
    large = [a_line(10 + number, note=format(number, "x") * 300_000) for number in range(3)]
    second = house.append([Source("2.csv", large)])
    assert {bucket.inline for bucket in house.stored() if bucket.added_in == second.commit_id} == {False}
    assert house.files() == {bucket.path for bucket in house.stored() if bucket.path}
    assert house.scan() == house.rows()


@pytest.mark.parametrize(("spare", "inline"), [(0, [True, False]), (-1, [False, False])])
def test_a_stream_with_much_inline_goes_on_in_files(
    a_house: Builder, monkeypatch: pytest.MonkeyPatch, spare: int, inline: list[bool]
) -> None:
    sources = [Source(f"{number}.csv", [a_line(number)]) for number in (1, 2)]
    measured, house = a_house(FEED), a_house(FEED)
    measured.append(sources[:1])
    [bucket] = measured.stored()
    monkeypatch.setattr("errata.archive.ingest.batch.MAX_INLINE_STREAM_BYTES", bucket.size + spare)
    for source in sources:
        house.append([source])
    assert [bucket.inline for bucket in house.stored()] == inline
    assert len(house.scan()) == 2


def test_many_small_buckets_of_a_batch_keep_to_the_limit(a_house: Builder, monkeypatch: pytest.MonkeyPatch) -> None:
    feed = a_feed(bucket_rows=2)
    batch = [Source("1.csv", [a_line(number) for number in range(10)])]
    measured, house = a_house(feed), a_house(feed)
    measured.append(batch)
    limit = sum(bucket.size for bucket in measured.stored()[:3])
    monkeypatch.setattr("errata.archive.ingest.batch.MAX_INLINE_STREAM_BYTES", limit)
    house.append(batch)
    assert [bucket.inline for bucket in house.stored()] == [True] * 3 + [False] * (len(measured.stored()) - 3)
    assert streams.stream_state(house.catalog, "feed").inline_bytes == limit
    assert house.files() == {bucket.path for bucket in house.stored() if bucket.path}
    assert house.scan() == house.rows() == measured.rows()


@pytest.mark.parametrize(
    ("name", "limit", "stream"),
    [
        ("1.csv", {}, FEED),
        ("1.csv", {"SMALL_BYTES": 20}, FEED),
        ("1.csv.gz", {"SMALL_BYTES": 400}, FEED),
        ("1.parquet", {"SMALL_ROWS": 1}, FEED),
        ("1.csv", {"MAX_LOCAL_ARCHIVE_ROWS": 1}, FEED),
        ("1.csv", {}, replace(FEED, key=("who",))),
        ("1.csv", {"SMALL_BYTES": 20, "LOCAL_FACTOR": 16}, FEED),
    ],
    ids=[
        "small",
        "bytes",
        "zipped bytes",
        "rows",
        "rows that it may repeat",
        "rows that it may repeat anywhere",
        "not so small",
    ],
)
def test_only_a_small_batch_is_taken_in_without_spark(
    a_house: Builder,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    limit: dict[str, int],
    stream: Stream,
    request: pytest.FixtureRequest,
) -> None:
    house = a_house(stream)
    house.append([Source("0.csv", [a_line(1, "b"), a_line(2, "b")])])
    for each, value in {"LOCAL_FACTOR": 1, **limit}.items():
        monkeypatch.setattr(arranging, each, value)
    house.append([Source(name, [a_line(1), a_line(2)])])
    by_spark = bool(commits.list_commits(house.catalog)[-1].cause.spark_app)
    assert by_spark == (request.node.callspec.id not in ("small", "not so small"))
    assert len(house.scan()) == (4 if stream is FEED else 2)


def test_a_column_that_is_added_is_null_in_older_rows(a_house: Builder) -> None:
    """Inline and in files, read and taken in again."""
    house = a_house(a_feed(on_duplicate=DuplicatePolicy.REPLACE))
    house.append([Source("1.csv", [a_line(1), a_line(2, note="x" * 500_000)])])
    house.append([Source("2.csv", [a_line(3)])])
    before = commits.newest_commit(house.catalog)
    feed = house.site.project.streams["feed"]
    wider = replace(feed, columns=(*feed.columns, Column("more", ColumnType.parse("bigint"))))
    assert house.declare(wider) == before + 1
    assert [row["more"] for row in house.scan()] == [None, None, None]
    assert all("more" not in row for row in house.scan(as_of=before))
    report = house.append([Source("3.csv", [a_line(3), a_line(4, more=7)])])
    assert (report.counts.dropped, report.counts.appended) == (1, 1)
    assert [row["more"] for row in house.scan()] == [None, None, None, 7]
    report = house.append([Source("4.csv", [a_line(4, more=8)])])
    assert report.counts.pending == 1
    assert [revision.values["more"] for revision in house.pending()] == [8]
    assert apply_plan(plan_apply(house.site.project), clock=house.clock) is None


def test_scans_as_of_a_commit_and_a_moment(a_house: Builder) -> None:
    house = a_house(a_feed(horizon=100 * SECOND))
    house.clock.advance(10 * SECOND)
    first = house.append([Source("1.csv", [a_line(1)])])
    house.clock.advance(10 * SECOND)
    second = house.append([Source("2.csv", [a_line(2)])])
    house.clock.advance(1 * SECOND)
    assert (first.commit_id, second.commit_id) == (2, 3)
    assert [len(house.scan(as_of=commit)) for commit in (1, 2, 3)] == [0, 1, 2]
    moments = [format_instant(NOW + seconds * SECOND) for seconds in (0, 9, 10, 19, 20)]
    assert [len(house.scan(as_of=moment)) for moment in moments] == [0, 0, 1, 1, 2]
    for wrong in (0, 4, format_instant(NOW - 1), format_instant(NOW + DAY)):
        with pytest.raises(UsageError):
            house.scan(as_of=wrong)
    # Commit 1 was the newest until 10 and commit 2 until 20, seconds after NOW.
    house.clock.advance(100 * SECOND - 11 * SECOND)
    assert len(house.scan(as_of=2)) == 1
    with pytest.raises(ErrataError, match="commit 1 lies behind the horizon of stream feed"):
        house.scan(as_of=1)
    assert len(house.scan()) == 2
