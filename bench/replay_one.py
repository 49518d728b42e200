"""One correction, and many at once, beside plain Spark that recomputes the query and Spark that reads just the windows
which the correction touches."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from matplotlib.axes import Axes
from pyspark.sql import functions as sf

from bench import errata_under_test as errata
from bench.corrections import FEED, Corrections, write_corrections
from bench.evaluate_day import frontier_of
from bench.evaluate_queries import Engine
from bench.measure import Grid, Metric, Outcome, Picture, Timings, talk
from bench.replay_day import (
    Archives,
    Contender,
    Stretch,
    base_files,
    check_same,
    in_turns,
    one_by_one,
    published,
    recomputed,
    swept,
)
from bench.replay_queries import QUERIES, Asked
from bench.report import bars
from errata.answer.evaluation_commit import EvaluationOutcome
from errata.declare.site import Site
from errata.model.technique import Technique
from errata.model.time import Interval


@dataclass(frozen=True, slots=True)
class OneAmounts:
    """How much of everything is measured."""

    day: Stretch
    tenth: Stretch
    """Its last tenth."""
    rounds: int
    warm_up: int = 1
    queries: Sequence[Asked] = QUERIES


@dataclass(frozen=True, slots=True)
class ManyAmounts:
    """The same for a sweep of many corrections."""

    day: Stretch
    corrections: int
    rounds: int
    warm_up: int = 1


# One correction


@dataclass
class Correcting:
    """A copy of an archive in which one correction after the other is swept."""

    site: Site
    asked: Asked
    corrections: Sequence[Corrections]
    technique: Technique
    done: list[EvaluationOutcome] = field(default_factory=list)

    def contender(self) -> Contender:
        return Contender(self._sweep, self._take_in)

    def _take_in(self, number: int) -> None:
        errata.take_in_corrections(self.site, self.corrections[number].file)

    def _sweep(self, _: int) -> None:
        narrowed = self.technique is not Technique.ALL
        self.done.append(swept(self.site, self.asked.name, self.technique, narrowed=narrowed))


def one_figures(amounts: OneAmounts, archives: Archives, folder: Path) -> Outcome:
    """All figures of one correction."""
    times: dict[str, Timings] = {}
    measures: dict[str, list[EvaluationOutcome]] = {}
    for asked in amounts.queries:
        talk.print(f"{asked.label}: one correction …")
        times[asked.label], measures[asked.label] = one_times(amounts, archives, asked, folder / asked.label)
    metrics = [metric for asked in amounts.queries for metric in one_metrics(asked, times[asked.label])]
    return Outcome(metrics, grids=[one_grid(times, measures)])


def one_times(
    amounts: OneAmounts, archives: Archives, asked: Asked, folder: Path
) -> tuple[Timings, list[EvaluationOutcome]]:
    """Seconds of one correction by whom it is dealt with, and what replay-minimal tells of itself."""
    count = amounts.warm_up + amounts.rounds
    # All of the last tenth, so that the small archive has the same rows to correct.
    some = one_by_one(asked, amounts.tenth.picked(count), folder / "corrections")
    replaying = {
        "all": Correcting(archives.copy(amounts.day), asked, some, Technique.ALL),
        "minimal": Correcting(archives.copy(amounts.day), asked, some, Technique.MINIMAL),
        "tenth": Correcting(archives.copy(amounts.tenth), asked, some, Technique.MINIMAL),
    }
    whole = replaying["minimal"].site
    contenders = {name: each.contender() for name, each in replaying.items()}
    contenders["recompute"] = Contender(recompute(whole, asked, folder / "recomputed"))
    contenders["windows"] = windows(whole, asked, some)
    times = in_turns(amounts.rounds, contenders, warm_up=amounts.warm_up)
    right = recomputed(whole, asked, frontier_of(whole), some)
    for name in ("all", "minimal"):
        check_same(asked.name, published(replaying[name].site, asked.name), right)
    archives.clear()
    return times, replaying["minimal"].done[amounts.warm_up :]


def recompute(site: Site, asked: Asked, out: Path) -> Callable[[int], None]:
    """Plain Spark that reads the archive's files and writes the query's whole result."""
    files, text = base_files(site), asked.query.recomputed(Engine.SPARK, frontier_of(site))

    def work(number: int) -> None:
        session = site.session()
        session.read.schema(errata.SPARK_SCHEMA).parquet(*files).createOrReplaceTempView("quotes")
        session.sql(text).write.parquet(str(out / str(number)))
        shutil.rmtree(out)

    return work


def windows(site: Site, asked: Asked, some: Sequence[Corrections]) -> Contender:
    """Plain Spark that is told which files hold the rows of the windows which a correction touches, and answers the
    query of these rows."""
    text = asked.query.recomputed(Engine.SPARK, frontier_of(site))
    files: list[str] = []

    def prepare(number: int) -> None:
        interval, symbol = _place(asked, some[number])
        files[:] = errata.files_of(site, errata.look_up(site, interval, symbol))

    def work(number: int) -> None:
        interval, symbol = _place(asked, some[number])
        session = site.session()
        rows = session.read.schema(errata.SPARK_SCHEMA).parquet(*files)
        at = sf.unix_micros("time")
        within = (at >= interval.start) & (at < interval.end)
        first, last = (sf.timestamp_micros(sf.lit(each)) for each in (interval.start, interval.end - 1))
        # Said of the column itself, too, so that statistics of the files tell what need not be read.
        rows.where(sf.col("time").between(first, last) & within & (sf.col("symbol") == symbol)).createOrReplaceTempView(
            "quotes"
        )
        if not session.sql(text).toArrow().num_rows:
            raise AssertionError("the windows that a correction touches have results")

    return Contender(work, prepare)


def _place(asked: Asked, correction: Corrections) -> tuple[Interval, str]:
    return asked.window(int(correction.rows.time[0])), FEED.names[int(correction.rows.symbol[0])]


def one_metrics(asked: Asked, times: Timings) -> list[Metric]:
    label = asked.label
    return [
        Metric(
            f"{label}: replay-all of one, beside a plain Spark recompute",
            times.ratio("all", "recompute"),
            "times",
            "<= 1.2",
        ),
        Metric(
            f"{label}: replay-minimal of one, beside Spark that reads just its windows",
            times.ratio("minimal", "windows"),
            "times",
            "<= 4",
        ),
        Metric(
            f"{label}: replay-minimal of one, ten times the archive",
            times.ratio("minimal", "tenth"),
            "times as long",
            "<= 1.2",
        ),
        Metric(f"{label}: replay-minimal of one", 1_000 * times.median("minimal"), "ms", "< 80"),
    ]


def one_grid(times: dict[str, Timings], measures: dict[str, list[EvaluationOutcome]]) -> Grid:
    names = {
        "all": "replay-all ms",
        "recompute": "Spark recompute ms",
        "minimal": "replay-minimal ms",
        "windows": "Spark windows ms",
        "tenth": "minimal, a tenth, ms",
    }
    rows = {}
    for label, each in times.items():
        last = measures[label][-1]
        told = [float(last.measures.rows_read), float(0 if last.swept is None else last.swept.compared)]
        rows[label] = [*(1_000 * each.median(name) for name in names), *told]
    columns = [*names.values(), "rows in buckets opened", "results compared"]
    return Grid("one", "One correction, medians", columns, rows)


# Many at once


def many_figures(amounts: ManyAmounts, archives: Archives, folder: Path) -> Outcome:
    """A sweep of many corrections scattered over the day, beside recomputing Q1."""
    asked, count = QUERIES[0], amounts.corrections
    talk.print(f"{count:,} corrections swept at once …")
    many = write_corrections(amounts.day.picked(count), folder / "many.jsonl")
    made: dict[int, Site] = {}

    def prepare(number: int) -> None:
        made[number] = archives.copy(amounts.day)
        errata.take_in_corrections(made[number], many.file)

    techniques: list[str] = []

    def sweep(number: int) -> None:
        told = swept(made[number], asked.name, Technique.AUTO).swept
        techniques.append("" if told is None else told.technique)

    plain = archives.copy(amounts.day)
    contenders = {
        "sweep": Contender(sweep, prepare),
        "recompute": Contender(recompute(plain, asked, folder / "recomputed")),
    }
    times = in_turns(amounts.rounds, contenders, warm_up=amounts.warm_up)
    last = made[max(made)]
    check_same(asked.name, published(last, asked.name), recomputed(last, asked, frontier_of(last), [many]))
    archives.clear()
    metrics = [
        Metric(
            f"{count:,} corrections in one sweep of Q1, beside a plain Spark recompute",
            times.ratio("sweep", "recompute"),
            "times",
            "<= 1.5",
        ),
        Metric(f"the sweep, by {techniques[-1]}", times.median("sweep"), "s"),
        Metric("the recompute", times.median("recompute"), "s"),
    ]
    return Outcome(metrics, [many_picture(amounts, times)])


def many_picture(amounts: ManyAmounts, times: Timings) -> Picture:
    def draw(axes: Axes) -> None:
        seconds = {"sweep": times.median("sweep"), "Spark recompute": times.median("recompute")}
        bars(axes, seconds, "seconds, median", goal=1.5 * times.median("recompute"))

    return Picture("many", f"{amounts.corrections:,} corrections of {amounts.day.rows:,} quotes", draw)
