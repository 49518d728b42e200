"""Figure 8 of the paper drawn again (replay-revisions-2008, 4.3): what standard rows cost where no revision comes.

The same rows come after the same day to three flows: Errata, which archives rows and results and is ready for
revisions; the same without support for revisions; and Spark that computes and writes the answers from the files that
come, and keeps no archive at all.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from matplotlib.axes import Axes

from bench import duck
from bench import errata_under_test as errata
from bench.corrections import RATE
from bench.evaluate_queries import Engine
from bench.measure import Grid, Metric, Outcome, Picture, Timings, talk
from bench.replay_bare import without_revisions
from bench.replay_day import OPEN, Archives, Coming, Contender, Stretch, check_same, in_turns, published
from bench.replay_queries import QUERIES, Asked
from bench.replay_table import take_further
from bench.report import bars
from errata.declare.site import Site
from errata.generate.quotes import DEFAULT_START
from errata.model.time import MINUTE, SECOND, format_instant

FLOWS = {"revisions": "with revisions", "bare": "without", "stateless": "no archive"}

_SLACK = 5 * SECOND
"""As the stream declares it: rows may still come that are so much older than the newest."""

_NEW = {
    "Q1": "window_start >= {closed 300}",
    "Q2": "window_end > {closed 60}",
    "Q3": "time > {closed 60}",
}
"""Which results are new after an instant."""


@dataclass(frozen=True, slots=True)
class OverheadAmounts:
    """How much of everything is measured."""

    day: Stretch
    more: int
    batch: int
    rounds: int
    warm_up: int = 1
    queries: Sequence[Asked] = QUERIES


def overhead_figures(amounts: OverheadAmounts, archives: Archives, folder: Path) -> Outcome:
    """The figure, and the ratios."""
    batch = amounts.batch
    if batch < OPEN or amounts.more % batch:
        raise ValueError(f"batches of {batch:,} rows do not divide {amounts.more:,}, or are shorter than a window")
    coming = Coming(folder / "coming", amounts.day.end - batch, amounts.more + batch, batch)
    times: dict[str, Timings] = {}
    for asked in amounts.queries:
        # Told before anything is timed: the files are made when they are first asked for.
        talk.print(f"{asked.label}: {amounts.more:,} rows in {len(coming.files) - 1} files and no revision …")
        times[asked.label] = overhead_times(amounts, archives, asked, coming, folder / asked.label)
    metrics = [metric for label, each in times.items() for metric in overhead_metrics(label, each)]
    return Outcome(metrics, [picture(amounts, times)], [grid(times)])


def overhead_times(amounts: OverheadAmounts, archives: Archives, asked: Asked, coming: Coming, folder: Path) -> Timings:
    """Seconds of each flow for all the rows."""
    sites: dict[str, Site] = {}

    def prepare(name: str, _: int) -> None:
        if name in sites:
            archives.close(sites[name])
        sites[name] = archives.copy(amounts.day)

    def revisions(_: int) -> None:
        for file in coming.files[1:]:
            take_further(sites["revisions"], asked, file)

    def bare(_: int) -> None:
        with without_revisions():
            for file in coming.files[1:]:
                take_further(sites["bare"], asked, file)

    contenders = {
        "revisions": Contender(revisions, partial(prepare, "revisions")),
        "bare": Contender(bare, partial(prepare, "bare")),
        "stateless": stateless(archives.copy(amounts.day), asked, coming, folder),
    }
    times = in_turns(amounts.rounds, contenders, warm_up=amounts.warm_up)
    answers = [published(sites[name], asked.name) for name in ("revisions", "bare")]
    check_same(asked.name, *answers)
    check_same(asked.name, _new(asked, answers[0], _frontier(coming, 1)), _written(folder))
    archives.clear()
    return times


def stateless(site: Site, asked: Asked, coming: Coming, folder: Path) -> Contender:
    """Spark that answers from the file that has come and the one before it: windows that have closed since then."""

    def prepare(_: int) -> None:
        shutil.rmtree(folder, ignore_errors=True)

    def work(_: int) -> None:
        session = site.session()
        for number in range(1, len(coming.files)):
            files = [str(each) for each in coming.files[number - 1 : number + 1]]
            before, now = _frontier(coming, number), _frontier(coming, number + 1)
            rows = session.read.schema(errata.SPARK_SCHEMA).parquet(*files)
            since = format_instant(before - 10 * MINUTE).replace("T", " ").replace("Z", "+00:00")
            rows.where(f"time >= TIMESTAMP '{since}'").createOrReplaceTempView("quotes")
            fresh = replace(asked.query, plain=_NEW[asked.label]).recomputed(Engine.SPARK, before)
            text = f"SELECT * FROM ({asked.query.recomputed(Engine.SPARK, now)}) WHERE {fresh}"
            session.sql(text).write.parquet(str(folder / str(number)))

    return Contender(work, prepare)


def _frontier(coming: Coming, done: int) -> int:
    """The last instant that is answered after so many files."""
    return DEFAULT_START + (coming.after + done * coming.batch) // RATE * SECOND - _SLACK


def _new(asked: Asked, answer: pa.Table, since: int) -> pa.Table:
    """The results of an answer that are new after an instant."""
    fresh = replace(asked.query, plain=_NEW[asked.label], duckdb=None).recomputed(Engine.DUCKDB, since)
    with duck.connect() as connection:
        connection.register("answer", answer)
        return connection.execute(f"SELECT * FROM answer WHERE {fresh}").to_arrow_table()


def _written(folder: Path) -> pa.Table:
    """What Spark has written for all the files."""
    unit = "us"  # Spark's files are read in nanoseconds
    return pa.concat_tables(
        [pq.read_table(each, coerce_int96_timestamp_unit=unit) for each in sorted(folder.iterdir())]
    )


# What is told


def overhead_metrics(label: str, times: Timings) -> list[Metric]:
    return [
        Metric(
            f"{label}: rows without a revision, beside no support for revisions",
            times.ratio("revisions", "bare"),
            "times",
            "<= 1.2",
        ),
        Metric(
            f"{label}: the same beside Spark without an archive (the paper: more than 6)",
            times.ratio("revisions", "stateless"),
            "times",
        ),
    ]


def grid(times: Mapping[str, Timings]) -> Grid:
    rows = {label: [each.median(name) for name in FLOWS] for label, each in times.items()}
    return Grid("figure-8", "Figure 8: standard rows and no revision, seconds, medians", list(FLOWS.values()), rows)


def picture(amounts: OverheadAmounts, times: Mapping[str, Timings]) -> Picture:
    def draw(label: str, axes: Axes) -> None:
        bars(axes, {told: times[label].median(name) for name, told in FLOWS.items()}, "seconds, median")
        axes.set_title(label, loc="left", fontsize=10)

    title = f"{amounts.more:,} rows and no revision, after {amounts.day.rows:,}"
    return Picture("figure-8", title, [partial(draw, label) for label in times])
