"""Taking in and finding again, in the amounts of the paper: a day of quotes, 200 a second, then a million rows more."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from matplotlib.axes import Axes
from pyspark.sql import SparkSession

from bench import errata_under_test as errata
from bench.bucket_index import SYMBOL, database_url, index_metrics, index_picture, index_times
from bench.corrections import RATE
from bench.measure import Metric, Outcome, Picture, Scale, Timings, interleaved, peak_memory, talk
from bench.report import bars
from errata.declare.site import Site
from errata.generate.quotes import DEFAULT_START, QuoteSpec, generate_quotes
from errata.model.batch import FileFormat
from errata.model.time import MINUTE, SECOND, Interval

MEGABYTE = 2**20


@dataclass(frozen=True, slots=True)
class Amounts:
    """How much of everything a scale means."""

    day: int
    more: int
    bucket_rows: int
    rounds: int
    scans: int
    bucket_index: int
    look_ups: int
    commits: int
    little: int
    much: int


AMOUNTS = {
    # Even cut at half of bucket_rows, buckets hold ten minutes (120,000 rows); the paper's hold four times that.
    Scale.SMALL: Amounts(
        day=1_000_000,
        more=1_000_000,
        bucket_rows=250_000,
        rounds=3,
        scans=11,
        bucket_index=1_000_000,
        look_ups=300,
        commits=30,
        little=500_000,
        much=2_000_000,
    ),
    Scale.PAPER: Amounts(
        day=17_280_000,
        more=1_000_000,
        bucket_rows=500_000,
        rounds=7,
        scans=31,
        bucket_index=1_000_000,
        look_ups=2_000,
        commits=100,
        little=1_000_000,
        much=10_000_000,
    ),
}


def measure(scale: Scale, folder: Path) -> Outcome:
    """All figures; the scans come before the appends, while the day is the archive's only content."""
    amounts = AMOUNTS[scale]
    metrics: list[Metric] = []
    pictures: list[Picture] = []
    talk.print("memory of the driver's Python …")
    metrics += memory_metrics(memory(amounts, folder / "memory"), amounts)
    for database in ("sqlite", "postgresql"):
        talk.print(f"look-ups and commits beside {amounts.bucket_index:,} bucket rows on {database} …")
        with database_url(database, folder) as url:
            index = index_times(url, amounts.bucket_index, amounts.look_ups, amounts.commits)
            metrics += index_metrics(database, *index)
    talk.print(f"a day of {amounts.day:,} quotes …")
    day = archive(folder / "day", amounts.day, amounts)
    talk.print("ten times as much …")
    tenfold = archive(folder / "tenfold", 10 * amounts.day, amounts)
    talk.print("scans of ten minutes …")
    metrics += scan_metrics(scan_buckets(day, amounts), scan_times(day, tenfold, amounts))
    shutil.rmtree(folder / "tenfold")
    for kind in (FileFormat.CSV, FileFormat.PARQUET):
        talk.print(f"appends of {amounts.more:,} rows from {kind} …")
        times = append_times(day, amounts, kind, folder / f"more-{kind}")
        metrics += append_metrics(kind, times)
        pictures.append(append_picture(kind, times))
    day.session().stop()
    pictures.append(index_picture(metrics))
    return Outcome(metrics, pictures)


# Appends


def archive(folder: Path, rows: int, amounts: Amounts) -> Site:
    """An archive of the first so many quotes."""
    site = errata.make_site(folder, amounts.bucket_rows)
    files = generate_quotes(QuoteSpec(rows=rows, format=FileFormat.PARQUET), folder / "files").files
    errata.take_in(site, files)
    shutil.rmtree(folder / "files")
    return site


def append_times(site: Site, amounts: Amounts, kind: FileFormat, folder: Path) -> Timings:
    """Errata and plain Spark each with the same million rows, round by round, each round's rows new."""
    already = amounts.day if kind is FileFormat.CSV else amounts.day + (amounts.rounds + 1) * amounts.more

    def files(number: int) -> list[Path]:
        return [folder / f"round-{number}" / file.name for file in (folder / f"round-{number}").iterdir()]

    for number in range(amounts.rounds + 1):
        spec = QuoteSpec(rows=amounts.more, after=already + number * amounts.more, format=kind, rows_per_file=500_000)
        generate_quotes(spec, folder / f"round-{number}")
    times = interleaved(
        amounts.rounds,
        errata=lambda number: errata.take_in(site, files(number)),
        spark=lambda number: plain_spark(site.session(), folder / f"round-{number}", kind, folder / f"plain-{number}"),
    )
    shutil.rmtree(folder)
    return times


def plain_spark(spark: SparkSession, files: Path, kind: FileFormat, out: Path) -> None:
    """What one would write without Errata: read with the declared schema, sort, write Parquet."""
    reader = spark.read.schema(errata.SPARK_SCHEMA)
    rows = reader.csv(str(files), header=True) if kind is FileFormat.CSV else reader.parquet(str(files))
    rows.sort("time").write.parquet(str(out))


def append_metrics(kind: FileFormat, times: Timings) -> list[Metric]:
    return [
        Metric(f"append from {kind}, beside plain Spark", times.ratio("errata", "spark"), "times", "<= 1.3"),
        Metric(f"append from {kind}, all in", times.median("errata"), "s"),
        Metric(f"plain Spark from {kind}: read, sort, write", times.median("spark"), "s"),
    ]


def append_picture(kind: FileFormat, times: Timings) -> Picture:
    def draw(axes: Axes) -> None:
        theirs = times.median("spark")
        bars(axes, {"Errata": times.median("errata"), "plain Spark": theirs}, "seconds, median", goal=1.3 * theirs)

    return Picture(f"append-{kind}", f"Appending to a day of quotes, from {kind}", draw)


# Scans


def ten_minutes(amounts: Amounts, number: int = 0) -> Interval:
    """Ten minutes somewhere in the day, another place each time."""
    length = 10 * MINUTE
    room = amounts.day // RATE * SECOND - length
    start = DEFAULT_START + random.Random(number).randrange(room)
    return Interval(start, start + length)


def scan_buckets(site: Site, amounts: Amounts) -> float:
    """The most buckets' bytes that the index names for ten minutes of a symbol, in bytes of the largest bucket."""
    everything = errata.look_up(site, Interval(), SYMBOL)
    largest = max(bucket.size for bucket in everything)
    intervals = [ten_minutes(amounts, number) for number in range(50)]
    read = [errata.look_up(site, interval, SYMBOL) for interval in intervals]
    return max(sum(bucket.size for bucket in found) for found in read) / largest


def scan_times(day: Site, tenfold: Site, amounts: Amounts) -> Timings:
    def contender(site: Site) -> Callable[[int], None]:
        def scan(number: int) -> None:
            rows = errata.scanned(site, ten_minutes(amounts, number), SYMBOL).agg({"price": "avg", "*": "count"})
            found = rows.collect()[0]["count(1)"]
            if not 599 <= found <= 601:
                raise AssertionError(f"ten minutes of one symbol have about 600 quotes, found {found}")

        return scan

    return interleaved(amounts.scans, warm_up=3, day=contender(day), tenfold=contender(tenfold))


def scan_metrics(read: float, times: Timings) -> list[Metric]:
    return [
        Metric("scan of 10 minutes of a symbol: bytes read", read, "buckets", "<= 2"),
        Metric("the same at ten times the archive", times.ratio("tenfold", "day"), "times as long", "<= 1.2"),
        Metric("scan of 10 minutes of a symbol from a day", 1_000 * times.median("day"), "ms"),
    ]


# Memory


def memory(amounts: Amounts, folder: Path) -> tuple[int, int]:
    """The most that the driver's Python holds when few rows are taken in and when many are."""
    held = []
    for rows in (amounts.little, amounts.much):
        spec = QuoteSpec(rows=rows, rows_per_file=500_000)
        files = generate_quotes(spec, folder / f"files-{rows}").files
        held.append(peak_memory("bench.ingest_alone", str(folder / f"site-{rows}"), *map(str, files)))
        shutil.rmtree(folder)
    return held[0], held[1]


def memory_metrics(held: tuple[int, int], amounts: Amounts) -> list[Metric]:
    few, many = held
    return [
        Metric(f"driver's peak memory, {amounts.much:,} rows beside {amounts.little:,}", many / few, "times", "<= 1.2"),
        Metric(f"driver's peak memory, {amounts.much:,} rows", many / MEGABYTE, "MiB"),
    ]
