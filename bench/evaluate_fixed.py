"""A table of today's size, corrected every day: what a day costs when next to nothing of it is work on rows.

A city publishes counts by day and area, and corrects thousands of them afterwards. Each day brings its new rows and its
corrections in one file. Taking that in, correcting what is published and going on is timed together, in a process that
has been at work. Beside it DuckDB works out every answer anew from the table as it is then, and compares it with the
former one, as a team does that wants to know which published numbers changed.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bench import duck
from bench.evaluate_day import all_done, frontier_of
from bench.evaluate_fixed_queries import QUERIES
from bench.evaluate_plain import differs
from bench.evaluate_queries import Engine, Mixed
from bench.measure import Grid, Metric, Outcome, talk
from errata.answer.runs import run, sweep
from errata.archive.ingest.batch import IngestRequest, ingest_batch
from errata.catalog.database import open_catalog
from errata.declare.apply import apply_plan, plan_apply
from errata.declare.project import FILE_NAME, Project, load_project
from errata.declare.site import Site
from errata.declare.warehouse import Warehouse
from errata.model.time import DAY
from errata.read.results import ResultsRequest, open_results

START = 1_672_531_200_000_000
"""The first day, 2023-01-01."""

BACK = 60
"""Corrections are of rows of so many days."""

_DECLARATION = """\
project: fixed
catalog: sqlite:///errata.db
warehouse: ./warehouse
streams:
  cases:
    columns: {day: timestamp, area: string, tested: int, positive: int}
    key: [day, area]
    order: day
    group: [area]
    on_duplicate: replace
    slack: 0 seconds
    max_ahead: 36500 days
relations:
  areas:
    kind: nrr
    columns: {area: string, district: string, since: timestamp}
    key: [area]
    order: since
    max_ahead: 36500 days
queries:
"""


@dataclass(frozen=True, slots=True)
class FixedAmounts:
    """How much is measured."""

    areas: int = 100
    history: int = 400
    """Days that are there at the beginning."""
    corrections: int = 2_000
    days: int = 20
    warm_up: int = 2


@dataclass(slots=True)
class City:
    """The counts as they are now, and what is published of them each day."""

    amounts: FixedAmounts
    folder: Path
    chance: np.random.Generator = field(default_factory=lambda: np.random.default_rng(7))
    counts: np.ndarray = field(init=False)
    """By day and area what was tested, and what of it was positive."""

    def __post_init__(self) -> None:
        self.counts = self._drawn(self.amounts.history * self.amounts.areas).reshape(-1, self.amounts.areas, 2)

    def history(self) -> Path:
        """The file of all that is there at the beginning."""
        days, areas = np.divmod(np.arange(self.amounts.history * self.amounts.areas), self.amounts.areas)
        return self._file("history", days, areas)

    def day(self) -> Path:
        """The file of one more day: its rows, and corrections of former ones."""
        last, areas = len(self.counts), self.amounts.areas
        self.counts = np.concatenate([self.counts, self._drawn(areas).reshape(1, areas, 2)])
        places = self.chance.choice(BACK * areas, self.amounts.corrections, replace=False)
        days, where = last - BACK + places // areas, places % areas
        self.counts[days, where] = self._drawn(self.amounts.corrections)
        return self._file(f"day-{last}", np.append(days, np.full(areas, last)), np.append(where, np.arange(areas)))

    def districts(self) -> Path:
        """The file of the relation."""
        names = [self._name(number) for number in range(self.amounts.areas)]
        districts = [f"district {number % 10}" for number in range(self.amounts.areas)]
        since = pa.array([START - DAY] * len(names)).cast(pa.timestamp("us", "UTC"))
        return self._written("areas", pa.table({"area": names, "district": districts, "since": since}))

    def _drawn(self, count: int) -> np.ndarray:
        tested = self.chance.integers(50, 400, count)
        return np.column_stack([tested, self.chance.binomial(tested, self.chance.uniform(0, 0.6, count))])

    @staticmethod
    def _name(number: int) -> str:
        return f"area {number:03}"

    def _file(self, name: str, days: np.ndarray, areas: np.ndarray) -> Path:
        counts = self.counts[days, areas]
        moments = pa.array(START + days.astype(np.int64) * DAY).cast(pa.timestamp("us", "UTC"))
        tested, positive = (pa.array(counts[:, each].astype(np.int32)) for each in (0, 1))
        names = [self._name(each) for each in areas]
        return self._written(name, pa.table({"day": moments, "area": names, "tested": tested, "positive": positive}))

    def _written(self, name: str, rows: pa.Table) -> Path:
        self.folder.mkdir(parents=True, exist_ok=True)
        file = self.folder / f"{name}.parquet"
        pq.write_table(rows, file)
        return file


class Recomputing:
    """DuckDB, which keeps the table and every answer, and works each out anew."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, city: City, history: Path) -> None:
        self._connection, self._rounds = connection, 0
        connection.execute(f"CREATE TABLE areas AS SELECT * FROM '{city.districts()}'")
        connection.execute(f"CREATE TABLE cases AS SELECT * FROM '{history}'")

    def day(self, file: Path, queries: Sequence[Mixed], frontier: int) -> int:
        """Take a file in, recompute, compare; how many results came, went, or are others."""
        ask = self._connection.execute
        ask(f"DELETE FROM cases USING '{file}' AS new WHERE cases.day = new.day AND cases.area = new.area")
        ask(f"INSERT INTO cases SELECT * FROM '{file}'")
        self._rounds += 1
        changed = 0
        for query in queries:
            now, before = (f"{query.name}_{number % 2}" for number in (self._rounds, self._rounds - 1))
            ask(f"CREATE OR REPLACE TABLE {now} AS {query.recomputed(Engine.DUCKDB, frontier)}")
            if self._rounds > 1:
                for one, other in ((now, before), (before, now)):
                    found = ask(f"SELECT count(*) FROM (FROM {one} EXCEPT ALL FROM {other})").fetchone()
                    changed += found[0] if found else 0
        return changed

    def result(self, query: Mixed) -> pa.Table:
        """A query's answer as it was recomputed last."""
        return self._connection.execute(f"FROM {query.name}_{self._rounds % 2}").to_arrow_table()


@dataclass(slots=True)
class Spent:
    """Seconds of each day, by what they were spent on."""

    ingest: list[float] = field(default_factory=list)
    sweep: list[float] = field(default_factory=list)
    run: list[float] = field(default_factory=list)
    duckdb: list[float] = field(default_factory=list)

    @property
    def days(self) -> list[float]:
        return [sum(each) for each in zip(self.ingest, self.sweep, self.run, strict=True)]


def fixed_figures(amounts: FixedAmounts, folder: Path, queries: Sequence[Mixed] = QUERIES) -> Outcome:
    """A day's corrections of a small table, and DuckDB beside."""
    spent = measured(amounts, folder, queries)
    beside = statistics.median(theirs / ours for ours, theirs in zip(spent.days, spent.duckdb, strict=True))
    rows = {
        name: [1_000 * statistics.median(each), 1_000 * max(each)]
        for name, each in (
            ("taking in", spent.ingest),
            ("sweep", spent.sweep),
            ("run", spent.run),
            ("together", spent.days),
            ("DuckDB", spent.duckdb),
        )
    }
    return Outcome(
        [
            Metric("fixed: a day's ingest, sweep and run", statistics.median(spent.days), "s", "< 1.0"),
            Metric("fixed: DuckDB recomputes and compares all", statistics.median(spent.duckdb), "s"),
            Metric("fixed: DuckDB, beside Errata", beside, "times"),
        ],
        grids=[Grid("fixed", f"{len(queries)} queries, a day's corrections", ["median ms", "longest ms"], rows)],
    )


def measured(amounts: FixedAmounts, folder: Path, queries: Sequence[Mixed]) -> Spent:
    """Day after day, each checked: what is published is what DuckDB recomputes."""
    city = City(amounts, folder / "files")
    talk.print(f"{amounts.history * amounts.areas:,} rows, and the first answers of {len(queries)} queries …")
    history = city.history()
    site = _site(folder / "project", queries)
    ingest_batch(site, IngestRequest("areas", (str(city.districts()),)))
    ingest_batch(site, IngestRequest("cases", (str(history),)))
    all_done(run(site, take=False), len(queries))
    spent = Spent()
    with duck.connect() as connection:
        plain = Recomputing(connection, city, history)
        for number in range(amounts.warm_up + amounts.days):
            one = _day(site, plain, city.day(), queries)
            if number >= amounts.warm_up:
                for name, seconds in one.items():
                    getattr(spent, name).append(seconds)
    site.catalog.close()
    return spent


def _day(site: Site, plain: Recomputing, file: Path, queries: Sequence[Mixed]) -> dict[str, float]:
    times = [time.perf_counter()]

    def done() -> float:
        times.append(time.perf_counter())
        return times[-1] - times[-2]

    ingest_batch(site, IngestRequest("cases", (str(file),)))
    found = {"ingest": done()}
    sweep(site)
    found["sweep"] = done()
    run(site, take=False)
    found["run"] = done()
    frontier = frontier_of(site)
    done()
    plain.day(file, queries, frontier)
    found["duckdb"] = done()
    for query in queries:
        with open_results(site, ResultsRequest(query.name)) as opened:
            rows = opened.answers[0].rows
            ours = rows if isinstance(rows, pa.Table) else rows.toArrow()
        theirs = plain.result(query)
        difference = differs(ours, theirs.select(ours.column_names))
        if difference is not None:
            raise AssertionError(f"the published answer of {query.name} is not what DuckDB recomputes: {difference}")
    return found


def _site(folder: Path, queries: Sequence[Mixed]) -> Site:
    project = fixed_project(folder, queries)
    apply_plan(plan_apply(project))
    return Site(project, open_catalog(project.catalog), Warehouse(project.warehouse))


def fixed_project(folder: Path, queries: Sequence[Mixed]) -> Project:
    """Its declarations; nothing is applied yet."""
    (folder / "queries").mkdir(parents=True)
    for query in queries:
        (folder / "queries" / f"{query.name}.sql").write_text(query.text)
    file = folder / FILE_NAME
    file.write_text(_DECLARATION + "".join(_declared(queries)))
    return load_project(file)


def _declared(queries: Sequence[Mixed]) -> Iterator[str]:
    for query in queries:
        yield f"  {query.name}: {{sql: queries/{query.name}.sql}}\n"
