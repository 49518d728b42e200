"""The bucket index at its largest: look-ups and commits beside a million bucket rows, on both databases."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.fixtures.postgres import running_postgres

from bench.measure import Metric, Picture, Timings, interleaved
from bench.report import bars
from errata.catalog import bucket_writes, buckets, declarations, streams
from errata.catalog import commits as commits_of
from errata.catalog.database import Catalog
from errata.catalog.migration import prepare_catalog
from errata.catalog.stream_commits import commit_append
from errata.model.batch import Batch, BatchCounts, FileFormat, SourceFile
from errata.model.bucket import Bucket, Groups, NewBucket, Role
from errata.model.columns import Column, ColumnType, TypeKind
from errata.model.commit import Cause
from errata.model.stream import Stream
from errata.model.time import MINUTE, SECOND, Interval

STREAM = "quotes"
SYMBOL = "IBM"
_CAUSE = Cause("bench")


def quotes_stream() -> Stream:
    """The stream of the paper's experiments, with buckets of 500,000 rows."""
    kinds = {"time": TypeKind.TIMESTAMP, "symbol": TypeKind.STRING, "price": TypeKind.DOUBLE}
    return Stream(
        name=STREAM,
        columns=tuple(Column(name, ColumnType(kind)) for name, kind in kinds.items()),
        key=("time", "symbol"),
        order="time",
        group=("symbol",),
        slack=5 * SECOND,
    )


def declare(catalog: Catalog, stream: Stream) -> None:
    """Record the stream, as `errata apply` does."""
    declarations.apply_changes(catalog, _CAUSE, write=[stream], drop=[], summary={})


def look_up_buckets(catalog: Catalog, stream_id: int, interval: Interval, symbol: str, commit_id: int) -> list[Bucket]:
    """The buckets that the index says can hold the symbol's rows of the interval."""
    return buckets.visible_buckets(catalog, stream_id, commit_id, interval, frozenset({(symbol,)}), Role.BASE)


def newest_commit(catalog: Catalog) -> int:
    return commits_of.newest_commit(catalog)


@dataclass(frozen=True, slots=True)
class Loaded:
    """A catalog with many bucket rows of one stream."""

    catalog: Catalog
    stream_id: int
    newest: int
    end: int
    """Where the archive's order field ends; it begins at 0."""


BUCKET_SPAN = 2_500 * SECOND
"""What 500,000 rows at 200 a second span."""

_NUMBERS = "WITH RECURSIVE number(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM number WHERE i + 1 < {count}) "
_BUCKETS_PER_COMMIT = 35

# One bucket in a hundred spans eight times as much, as one of late rows does; one in fifty has been removed since.
_BUCKET_ROWS = (
    "INSERT INTO buckets (stream_id, role, layout, path, rows, bytes, vs_min, vs_max, span_class, group_low,"
    " group_high, sampling_rate, checksum, batch_no, added_in, removed_in) "
    + _NUMBERS
    + "SELECT {stream_id}, 'base', 'buckets', 'streams/quotes/' || i || '.parquet', 500000, 6000000, {span} * i,"
    " {span} * i + CASE WHEN i % 100 = 0 THEN {wide} ELSE {narrow} END,"
    " CASE WHEN i % 100 = 0 THEN {wide_class} ELSE {narrow_class} END,"
    " 'A', 'ZBH', 1.0, 'sha256:0', NULL, {first} + i / {per_commit},"
    " CASE WHEN i % 50 = 0 THEN {first} + i / {per_commit} + 1 END FROM number"
)
_COMMIT_ROWS = (
    "INSERT INTO commits (commit_id, at, flow, stream_id, user_name, host, dag_id, run_id, task_id, spark_app,"
    " summary) " + _NUMBERS + "SELECT {first} + i, i, 'append', {stream_id}, '', '', '', '', '', '', '{{}}' FROM number"
)


def load_bucket_rows(catalog_url: str, stream: Stream, count: int) -> Loaded:
    """A catalog whose index has `count` bucket rows, and as many commits as would have made them."""
    catalog = prepare_catalog(catalog_url)
    declare(catalog, stream)
    stream_id = streams.stream_state(catalog, STREAM).stream_id
    first = newest_commit(catalog) + 1
    made = -(-count // _BUCKETS_PER_COMMIT)
    narrow, wide = BUCKET_SPAN - 1, 8 * BUCKET_SPAN - 1
    words = {
        "stream_id": stream_id,
        "first": first,
        "span": BUCKET_SPAN,
        "narrow": narrow,
        "wide": wide,
        "narrow_class": bucket_writes.span_class(0, narrow),
        "wide_class": bucket_writes.span_class(0, wide),
        "per_commit": _BUCKETS_PER_COMMIT,
    }
    last, end = first + made, count * BUCKET_SPAN
    with catalog.writing() as connection:
        for sql, rows in ((_BUCKET_ROWS, count), (_COMMIT_ROWS, made)):
            connection.exec_driver_sql(_driver_safe(sql.format(count=rows, **words), connection.dialect.name))
        connection.exec_driver_sql(f"UPDATE head SET commit_id = {last}")
        connection.exec_driver_sql(
            f"UPDATE streams SET stable = {end}, vs_max = {end}, rows = {count * 500_000}, changed_in = {last}"
        )
    with catalog.writing() as connection:
        connection.exec_driver_sql("ANALYZE")
    return Loaded(catalog, stream_id, last, end)


def _driver_safe(sql: str, dialect: str) -> str:
    """The PostgreSQL driver reads % as the beginning of a parameter."""
    return sql.replace("%", "%%") if dialect == "postgresql" else sql


def commit_one(loaded: Loaded, number: int) -> None:
    """Commit a batch of one million rows in two buckets that have been written, as an append does last."""
    basis = streams.stream_state(loaded.catalog, STREAM)
    low = loaded.end + number * 2 * BUCKET_SPAN + basis.stream.slack
    sha = f"{number:064x}"
    written = [
        NewBucket(
            Role.BASE,
            500_000,
            6_000_000,
            low + half * BUCKET_SPAN,
            low + (half + 1) * BUCKET_SPAN - 1,
            Groups("A", "ZBH"),
            f"sha256:{sha}",
            f"streams/quotes/{sha}-{half}.parquet",
        )
        for half in (0, 1)
    ]
    file = SourceFile(f"quotes-{number}.csv", FileFormat.CSV, False, 60_000_000, sha)
    counts = BatchCounts(read=1_000_000, appended=1_000_000)
    commit_append(loaded.catalog, basis, Batch(sha, sha, [file], counts=counts, buckets=written), _CAUSE)


@contextmanager
def database_url(database: str, folder: Path) -> Iterator[str]:
    """An empty database with the settings it comes with: commits reach the disk."""
    if database == "sqlite":
        yield f"sqlite:///{folder}/index.db"
        return
    with running_postgres("") as url:
        yield url


def index_times(url: str, rows: int, look_ups: int, commits: int) -> tuple[Timings, Timings]:
    """Look-ups of random ten minutes, and commits, beside many bucket rows."""
    loaded = load_bucket_rows(url, quotes_stream(), rows)
    place = random.Random(1)

    def look_up(_: int) -> None:
        start = place.randrange(loaded.end - 10 * MINUTE)
        interval = Interval(start, start + 10 * MINUTE)
        found = look_up_buckets(loaded.catalog, loaded.stream_id, interval, SYMBOL, loaded.newest)
        if len(found) > 4:
            raise AssertionError(f"ten minutes are in one bucket or two, and seldom in a wide one; found {len(found)}")

    found = interleaved(look_ups, warm_up=20, look_up=look_up)
    committed = interleaved(commits, warm_up=3, commit=lambda number: commit_one(loaded, number))
    loaded.catalog.close()
    return found, committed


def index_metrics(database: str, look_ups: Timings, commits: Timings) -> list[Metric]:
    def at(times: Timings, what: str, share: float) -> float:
        return 1_000 * times.percentile(what, share)

    return [
        Metric(f"index look-up on {database}, median", at(look_ups, "look_up", 0.5), "ms", "< 5"),
        Metric(f"index look-up on {database}, 95 of 100", at(look_ups, "look_up", 0.95), "ms"),
        Metric(f"commit on {database}, median", at(commits, "commit", 0.5), "ms", "< 30"),
        Metric(f"commit on {database}, 95 of 100", at(commits, "commit", 0.95), "ms"),
    ]


def index_picture(metrics: list[Metric]) -> Picture:
    wanted = {
        metric.metric: metric.value
        for metric in metrics
        if metric.metric.startswith(("index", "commit")) and metric.metric.endswith("median")
    }
    return Picture("index", "The catalog beside a million bucket rows", lambda axes: bars(axes, wanted, "milliseconds"))
