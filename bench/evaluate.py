"""Keeping queries answered: a batch on top of a day, for a fixed mix of queries, beside recomputing their results.

The batches are the feed going on. Taking one in is not timed; `run` is, which evaluates all queries and commits them.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from matplotlib.axes import Axes

from bench import errata_under_test as errata
from bench.evaluate_day import KEPT, Following, Stretch, all_done, answered, as_texts, frontier_of, relations
from bench.evaluate_fixed import FixedAmounts, fixed_figures
from bench.evaluate_plain import Plain
from bench.evaluate_planning import planning_figures
from bench.evaluate_queries import MIX, Mixed
from bench.evaluate_reads import Amounts as Reads
from bench.evaluate_reads import Reading
from bench.evaluate_windows import PAIRS, WindowAmounts, window_figures
from bench.measure import Grid, Metric, Outcome, Picture, Scale, Timings, talk
from bench.report import bars
from errata.answer.evaluation_commit import EvaluationOutcome
from errata.answer.runs import RunReport, run
from errata.declare.site import Site
from errata.engine.session import open_session


@dataclass(frozen=True, slots=True)
class Amounts:
    """How much of everything is measured."""

    day: int
    bucket_rows: int
    rounds: int
    batch: int = 10_000
    few: int = 200
    """Rows of a batch that is next to nothing."""
    idle: int = 15
    """Runs in which nothing is due."""
    warm_up: int = 2
    beside_spark: float = 15
    """So many times as long as a run a recompute by Spark should take, at least."""
    beside_duckdb: float = 8
    """The same of DuckDB."""


AMOUNTS = {
    Scale.SMALL: Amounts(day=1_728_000, bucket_rows=150_000, rounds=3, beside_spark=5, beside_duckdb=1.5),
    Scale.PAPER: Amounts(day=17_280_000, bucket_rows=500_000, rounds=7),
}
WINDOWS = {
    Scale.SMALL: WindowAmounts(end=1_680_000, bucket_rows=150_000, rounds=5),
    Scale.PAPER: WindowAmounts(end=17_280_000, bucket_rows=500_000, rounds=9),
}


@dataclass(slots=True)
class Round:
    """What one batch brought."""

    run: float = 0
    """Seconds in which all queries were taken further, over the whole archive."""
    tenth: float = 0
    """The same over a tenth of it."""
    evaluated: Mapping[str, EvaluationOutcome] = field(default_factory=dict)
    reads: Mapping[str, Reads] = field(default_factory=dict)
    spark: Mapping[str, float] = field(default_factory=dict)
    duckdb: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Found:
    """What was measured of the mix."""

    rounds: Sequence[Round]
    idle: Sequence[float]
    """Seconds of runs in which nothing was due."""
    each: Sequence[float]
    """Seconds for each query that had something to do, of runs after a batch of a few rows."""


PARTS: Mapping[str, Callable[[Scale, Path], Outcome]] = {
    "mix": lambda scale, folder: mix_figures(AMOUNTS[scale], MIX, folder),
    "windows": lambda scale, folder: window_figures(WINDOWS[scale], PAIRS, folder),
    "fixed": lambda _, folder: fixed_figures(FixedAmounts(), folder),
    "planning": lambda _, folder: planning_figures(folder),
}


def measure(scale: Scale, folder: Path, only: Sequence[str] = ()) -> Outcome:
    """All figures at a scale, or only those of some parts."""
    found = together([PARTS[name](scale, folder / name) for name in only or PARTS])
    open_session(None, None, {}, "bench").stop()
    return found


def together(parts: Sequence[Outcome]) -> Outcome:
    """The figures of several parts."""
    return Outcome(
        [metric for part in parts for metric in part.metrics],
        [picture for part in parts for picture in part.pictures],
        [grid for part in parts for grid in part.grids],
    )


def mix_figures(amounts: Amounts, mix: Sequence[Mixed], folder: Path) -> Outcome:
    """The mix kept answered, beside recomputing it."""
    found = measured(amounts, mix, folder)
    return Outcome(mix_metrics(amounts, found), [picture(amounts, found)], [grid(mix, found)])


# Measuring


def measured(amounts: Amounts, mix: Sequence[Mixed], folder: Path) -> Found:
    """The same batches over the day, and over its last tenth."""
    day = Stretch(0, amounts.day, amounts.bucket_rows)
    tenth = Stretch(amounts.day - amounts.day // 10, amounts.day, amounts.bucket_rows)
    sites = {}
    for name, stretch in (("whole", day), ("tenth", tenth)):
        talk.print(f"{stretch.end - stretch.first:,} quotes, and the first answers of {len(mix)} queries …")
        sites[name] = answered(folder / name, stretch, as_texts(mix))
    following = Following(folder / "batches", amounts.day)
    rounds = []
    for number in range(amounts.warm_up + amounts.rounds):
        talk.print(f"a batch of {amounts.batch:,} rows, round {number + 1} …")
        rounds.append(one_round(number, amounts, day, sites, following, mix))
    talk.print("runs with nothing or little to do …")
    whole = sites["whole"]
    idle = [_timed(whole, 0)[0] for _ in range(amounts.idle)]
    few = []
    for _ in range(amounts.warm_up + amounts.rounds):
        errata.take_in(whole, [following.batch(amounts.few)])
        few.append(_timed(whole, len(mix))[0] / len(mix))
    for site in sites.values():
        site.catalog.close()
    return Found(rounds[amounts.warm_up :], idle, few[amounts.warm_up :])


def one_round(
    number: int, amounts: Amounts, day: Stretch, sites: Mapping[str, Site], following: Following, mix: Sequence[Mixed]
) -> Round:
    """A batch taken in by all, and then each in turn; who goes first changes from round to round."""
    batch = following.batch(amounts.batch)
    for site in sites.values():
        errata.take_in(site, [batch])
    whole, found = sites["whole"], Round()

    def ours() -> None:
        found.run, report = _timed(whole, len(mix))
        found.evaluated = {each.name: each for each in report.evaluated}
        reading = Reading(whole)
        found.reads = {each.name: reading.of(each) for each in report.evaluated}

    def tenth() -> None:
        found.tenth, _ = _timed(sites["tenth"], len(mix))

    plain = Plain(whole, following.folder / "plain", relations(whole, day), frontier_of(whole))

    def spark() -> None:
        found.spark = plain.spark(mix)

    def duckdb() -> None:
        found.duckdb = plain.duckdb(mix)

    turn = [ours, tenth, spark, duckdb]
    for contender in turn if number % 2 == 0 else reversed(turn):
        contender()
    for query in mix:
        plain.check(query, day.ends - KEPT)
    return found


def _timed(site: Site, due: int) -> tuple[float, RunReport]:
    """A run that has to take so many queries further: its seconds, and what it tells."""
    began = time.perf_counter()
    report = run(site, take=False)
    took = time.perf_counter() - began
    return took, all_done(report, due)


# What is told


def mix_metrics(amounts: Amounts, found: Found) -> list[Metric]:
    times = timings(found.rounds)
    reads = [sum(one.reads.values(), Reads()) for one in found.rounds]
    opened = [[each.measures for each in one.evaluated.values()] for one in found.rounds]
    return [
        Metric(
            f"{amounts.batch:,} rows: recomputing with Spark, beside a run",
            times.ratio("spark", "run"),
            "times",
            f">= {amounts.beside_spark:g}",
        ),
        Metric(
            f"{amounts.batch:,} rows: recomputing with DuckDB, beside a run",
            times.ratio("duckdb", "run"),
            "times",
            f">= {amounts.beside_duckdb:g}",
        ),
        Metric(f"{amounts.batch:,} rows: a run of all queries", 1_000 * times.median("run"), "ms"),
        Metric("recomputing all queries with Spark", 1_000 * times.median("spark"), "ms"),
        Metric("recomputing all queries with DuckDB", 1_000 * times.median("duckdb"), "ms"),
        Metric("a run over ten times the archive", times.ratio("run", "tenth"), "times as long", "<= 1.2"),
        Metric("a run in which nothing is due", 1_000 * statistics.median(found.idle), "ms", "< 300"),
        Metric(f"{amounts.few:,} rows: a run, for each query", 1_000 * statistics.median(found.each), "ms", "< 25"),
        Metric("rows that lineage asks for in a run", _median(each.asked.rows for each in reads), "rows"),
        Metric("rows in the row groups that meet it", _median(each.read.rows for each in reads), "rows"),
        Metric("rows in the buckets opened", _median(sum(one.rows_read for one in each) for each in opened), "rows"),
        Metric(
            "rows read beside those asked for",
            _median(one.read.rows / one.asked.rows for one in reads),
            "times",
            "<= 2",
        ),
        Metric(
            "bytes read beside those asked for",
            _median(one.read.size / one.asked.size for one in reads),
            "times",
            "<= 2",
        ),
        Metric("bytes read in a run", _median(one.read.size for one in reads) / 2**20, "MiB"),
    ]


def timings(rounds: Sequence[Round]) -> Timings:
    """Seconds by contender, of whole rounds."""
    return Timings(
        {
            "run": [each.run for each in rounds],
            "tenth": [each.tenth for each in rounds],
            "spark": [sum(each.spark.values()) for each in rounds],
            "duckdb": [sum(each.duckdb.values()) for each in rounds],
        }
    )


def grid(mix: Sequence[Mixed], found: Found) -> Grid:
    """Each query by itself. Several are evaluated at once, so that their milliseconds are more than the run's."""
    columns = ["run ms", "Spark ms", "DuckDB ms", "results", "rows asked", "rows read", "KiB asked", "KiB read"]
    return Grid("queries", "Each query, medians", columns, {each.name: _line(each.name, found.rounds) for each in mix})


def _line(name: str, rounds: Sequence[Round]) -> list[float]:
    reads = [each.reads[name] for each in rounds]
    measures = [each.evaluated[name].measures for each in rounds]
    return [
        _median(each.micros / 1_000 for each in measures),
        _median(1_000 * each.spark[name] for each in rounds),
        _median(1_000 * each.duckdb[name] for each in rounds),
        _median(each.rows for each in measures),
        _median(each.asked.rows for each in reads),
        _median(each.read.rows for each in reads),
        _median(each.asked.size / 1_024 for each in reads),
        _median(each.read.size / 1_024 for each in reads),
    ]


def picture(amounts: Amounts, found: Found) -> Picture:
    times = timings(found.rounds)

    def draw(axes: Axes) -> None:
        seconds = {"a run": times.median("run"), "Spark": times.median("spark"), "DuckDB": times.median("duckdb")}
        bars(axes, seconds, "seconds, median", goal=times.median("spark") / 10)

    title = f"{len(found.rounds[0].spark)} queries after {amounts.batch:,} rows more: kept answered, and recomputed"
    return Picture("mix", title, draw)


def _median(values: Iterable[float]) -> float:
    return float(statistics.median(values))
