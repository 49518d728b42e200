"""Archives of quotes with the paper's three queries answered, corrections of their past, and sweeps.

An archive is made and answered once for each stretch of the feed; whoever measures takes copies of it.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from bench import duck
from bench import errata_under_test as errata
from bench.corrections import RATE, Corrections, spread, write_corrections
from bench.evaluate_day import all_done
from bench.evaluate_plain import differs
from bench.evaluate_queries import Engine
from bench.measure import Timings, talk
from bench.replay_queries import EITHER, QUERIES, Asked
from errata.answer.evaluation_commit import EvaluationOutcome
from errata.answer.runs import run, sweep
from errata.catalog.database import open_catalog
from errata.declare.apply import apply_plan, plan_apply
from errata.declare.project import FILE_NAME, load_project
from errata.declare.site import Site
from errata.declare.warehouse import Warehouse
from errata.generate.feed import IntArray
from errata.generate.quotes import QuoteSpec, generate_quotes
from errata.model.batch import FileFormat
from errata.model.technique import Technique
from errata.read.results import ResultsRequest, open_results

DAY = 24 * 60 * 60 * RATE
"""The rows of a day."""

OPEN = (5 * 60 + 10) * RATE
"""The last rows of a stretch may be in windows that have not closed yet: a correction of them corrects no answer."""

# Archives


@dataclass(frozen=True, slots=True)
class Stretch:
    """Rows of the feed that lie in an archive."""

    first: int
    end: int

    @property
    def rows(self) -> int:
        return self.end - self.first

    def last(self, rows: int) -> Stretch:
        """Its last rows."""
        return Stretch(self.end - rows, self.end)

    def picked(self, count: int, seed: int = 1) -> IntArray:
        """So many different rows scattered over the last 23 hours of it, all in windows that have closed."""
        oldest = max(self.first, self.end - DAY * 23 // 24)
        return spread(count, oldest, self.end - OPEN, seed)


@dataclass
class Archives:
    """Archives of stretches of the feed with the three queries answered, made when they are first asked for."""

    folder: Path
    bucket_rows: int
    memory: str = "2g"
    """How much Spark has, whoever uses it."""
    opened: list[Site] = field(default_factory=list)
    _made: dict[Stretch, Path] = field(default_factory=dict)
    _copies: int = 0

    def of(self, stretch: Stretch) -> Path:
        """The folder of the archive, which is left closed."""
        if stretch not in self._made:
            talk.print(f"{stretch.rows:,} quotes, and the answers of {len(QUERIES)} queries …")
            folder = self.folder / f"archive-{len(self._made)}"
            answered(folder, stretch, self.bucket_rows, self.memory).catalog.close()
            self._made[stretch] = folder
        return self._made[stretch]

    def copy(self, of: Stretch | Path) -> Site:
        """A copy of an archive, open. Its files are links."""
        self._copies += 1
        folder = of if isinstance(of, Path) else self.of(of)
        site = errata.copy_site(folder, self.folder / f"copy-{self._copies}")
        self.opened.append(site)
        return site

    def close(self, site: Site) -> None:
        """Close a copy and remove it."""
        self.opened.remove(site)
        site.catalog.close()
        shutil.rmtree(site.project.root)

    def clear(self) -> None:
        """Remove all copies."""
        for site in list(self.opened):
            self.close(site)


def answered(folder: Path, stretch: Stretch, bucket_rows: int, memory: str) -> Site:
    """A project of this stretch of the feed with the three queries, all answered up to its end."""
    (folder / "queries").mkdir(parents=True)
    declared = [errata.declaration(bucket_rows, memory), "queries:\n"]
    for asked in QUERIES:
        (folder / "queries" / f"{asked.name}.sql").write_text(asked.query.text)
        declared.append(f"  {asked.name}: {{sql: queries/{asked.name}.sql}}\n")
    file = folder / FILE_NAME
    file.write_text("".join(declared))
    project = load_project(file)
    apply_plan(plan_apply(project))
    site = Site(project, open_catalog(project.catalog), Warehouse(project.warehouse))
    for first in range(stretch.first, stretch.end, DAY):
        rows = min(DAY, stretch.end - first)
        files = generate_quotes(QuoteSpec(rows, after=first, format=FileFormat.PARQUET), folder / "files").files
        errata.take_in(site, files)
        shutil.rmtree(folder / "files")
    all_done(run(site, take=False), len(QUERIES))
    return site


@dataclass(frozen=True)
class Coming:
    """The rows that come after a stretch, in batches of which each is a file."""

    folder: Path
    after: int
    rows: int
    batch: int

    @cached_property
    def files(self) -> Sequence[Path]:
        spec = QuoteSpec(self.rows, after=self.after, format=FileFormat.PARQUET, rows_per_file=self.batch)
        return generate_quotes(spec, self.folder).files


# Sweeping


def one_by_one(asked: Asked, numbers: IntArray, folder: Path) -> list[Corrections]:
    """A file for each of so many corrections."""
    rows = asked.rows(numbers)
    return [
        write_corrections(rows[place : place + 1], folder / f"{asked.label}-{place}.jsonl")
        for place in range(len(rows))
    ]


def swept(site: Site, name: str, technique: Technique, *, narrowed: bool = True) -> EvaluationOutcome:
    """Sweep one query, of which something has to be corrected, by the technique that is asked for."""
    report = sweep(site, [name], technique=technique, narrowed=narrowed)
    if len(report.swept) != 1 or report.stopped or report.held or report.busy:
        raise AssertionError(f"query {name} has something to correct, and this came of it: {report}")
    (done,) = report.swept
    told = done.swept
    if told is None or not told.compared or told.refused or technique not in (Technique.AUTO, told.technique):
        raise AssertionError(f"a sweep of query {name} by {technique} did something else: {told}")
    return done


def published(site: Site, name: str) -> pa.Table:
    """What a query has answered."""
    with open_results(site, ResultsRequest(name)) as opened:
        found = opened.answers[0].rows
        return found if isinstance(found, pa.Table) else found.toArrow()


def check_same(name: str, ours: pa.Table, theirs: pa.Table) -> None:
    """That two ways to correct an answer lead to the same."""
    theirs = theirs.select(ours.column_names)
    if ours.num_rows == theirs.num_rows:
        ours, theirs = _decided(ours, theirs)
    difference = differs(ours, theirs)
    if difference is not None:
        raise AssertionError(f"the answers of {name} are not the same: {difference}")


def _decided(ours: pa.Table, theirs: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Both without signals of which the other says that they may be either."""
    if "signal" not in theirs.column_names:
        return ours, theirs
    open_yet = pc.equal(theirs["signal"], EITHER)
    moments = theirs["time"].filter(open_yet).cast(pa.timestamp("us", "UTC"))
    left = pc.invert(pc.is_in(ours["time"].cast(pa.timestamp("us", "UTC")), value_set=moments))
    return ours.filter(left), theirs.filter(pc.invert(open_yet))


def recomputed(site: Site, asked: Asked, frontier: int, corrections: Sequence[Corrections]) -> pa.Table:
    """What DuckDB makes of the archive's files and the corrections."""
    with duck.connect() as connection:
        corrected_quotes(connection, base_files(site), [each.file for each in corrections])
        return connection.execute(asked.query.recomputed(Engine.DUCKDB, frontier)).to_arrow_table()


def corrected_quotes(connection: duckdb.DuckDBPyConnection, files: Sequence[str], corrections: Sequence[Path]) -> None:
    """A view `quotes` of files with corrections, each of another row."""
    quotes = f"SELECT time, symbol, price FROM read_parquet({files!r})"
    if corrections:
        said = f"read_json({[str(each) for each in corrections]!r}, {_JSON_COLUMNS})"
        quotes = (
            f"SELECT q.time, q.symbol, coalesce(c.price, q.price) AS price FROM ({quotes}) AS q "
            f"LEFT JOIN {said} AS c ON q.time = c.time AND q.symbol = c.symbol"
        )
    connection.execute(f"CREATE OR REPLACE VIEW quotes AS {quotes}")


_JSON_COLUMNS = (
    "format = 'newline_delimited', columns = {time: 'TIMESTAMPTZ', symbol: 'VARCHAR', price: 'DOUBLE', _op: 'VARCHAR', "
    "_old_price: 'DOUBLE'}"
)


def base_files(site: Site) -> list[str]:
    """The archive's files, without corrections; all rows lie in files here."""
    found = errata.buckets_of(site)
    if any(each.path is None for each in found):
        raise AssertionError("a bucket is so small that it lies in the catalog, where no other engine finds it")
    return [file.removeprefix("file://") for file in errata.files_of(site, found)]


# Turns


@dataclass(frozen=True, slots=True)
class Contender:
    """Work to be timed, and what has to be done before it and is not."""

    work: Callable[[int], object]
    prepare: Callable[[int], object] = lambda _: None


def in_turns(rounds: int, contenders: Mapping[str, Contender], *, warm_up: int = 1) -> Timings:
    """Run the contenders in turn, each prepared and given the number of the round; who goes first changes."""
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for number in range(warm_up + rounds):
        turn = list(contenders.items())
        for name, contender in turn if number % 2 == 0 else reversed(turn):
            contender.prepare(number)
            began = time.perf_counter()
            contender.work(number)
            took = time.perf_counter() - began
            if number >= warm_up:
                seconds[name].append(took)
    return Timings(seconds)
