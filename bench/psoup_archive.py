"""Two streams of the paper's values in an archive, and three others that answer the same questions from its files:
near, Spark, and DuckDB.

Rows are ordered by a number, so that a window of 2^k numbers is a window of 2^k rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from bench.duck import connect
from bench.psoup_workload import ATTRIBUTES, VALUES, rows
from errata.archive.ingest.batch import IngestRequest, ingest_batch
from errata.archive.scan_plan import ArchiveScan, candidate_buckets
from errata.catalog import commits, streams
from errata.catalog.migration import prepare_catalog
from errata.declare.apply import apply_plan, plan_apply
from errata.declare.project import FILE_NAME, load_project
from errata.declare.site import Site
from errata.declare.warehouse import Warehouse
from errata.engine.near import near_session
from errata.model.time import EVERYTHING

BUCKET_ROWS = 65_536
BATCH_ROWS = 4 * BUCKET_ROWS
_COLUMNS = ", ".join(["n: bigint", *(f"{name}: int" for name in ATTRIBUTES)])
_DECLARATION = """\
project: bench
catalog: sqlite:///errata.db
warehouse: ./warehouse
spark: {{master: "local[*]", conf: {{spark.driver.memory: 2g}}}}
streams:
{streams}"""
_STREAM = """\
  {name}:
    columns: {{{columns}}}
    key: [n]
    order: n
    bucket_rows: {bucket_rows}
"""

Contender = Callable[[str], pa.Table]
"""Answers a plain query over the files of the archive."""


@dataclass(frozen=True, slots=True)
class RegisteredArchive:
    """The project, and how many rows each of its streams has."""

    site: Site
    rows: Mapping[str, int]

    def files(self, stream: str) -> list[str]:
        """The Parquet files of a stream's buckets."""
        newest = commits.newest_commit(self.site.catalog)
        scan = ArchiveScan(streams.stream_state(self.site.catalog, stream, newest), newest, EVERYTHING)
        paths = [each.path for each in candidate_buckets(self.site.catalog, scan).base]
        if None in paths:
            raise RuntimeError("a bucket lies in the catalog, where others cannot read it")
        return [self.site.warehouse.spark_path(each).removeprefix("file://") for each in paths if each is not None]


def make_archive(folder: Path, amounts: Mapping[str, int]) -> RegisteredArchive:
    """Declare the streams and take their rows in."""
    folder.mkdir(parents=True)
    declared = [_STREAM.format(name=name, columns=_COLUMNS, bucket_rows=BUCKET_ROWS) for name in amounts]
    file = folder / FILE_NAME
    file.write_text(_DECLARATION.format(streams="".join(declared)))
    project = load_project(file)
    catalog = prepare_catalog(project.catalog)
    apply_plan(plan_apply(project))
    site = Site(project, catalog, Warehouse(project.warehouse))
    for number, (name, count) in enumerate(amounts.items()):
        made = rows(count, seed=number).rename_columns(["n", *ATTRIBUTES])
        for first in range(0, count, BATCH_ROWS):
            _take_in(site, name, made.slice(first, BATCH_ROWS), folder / f"{name}-{first}.parquet")
    return RegisteredArchive(site, amounts)


def _take_in(site: Site, name: str, made: pa.Table, landed: Path) -> None:
    pq.write_table(made, landed)
    report = ingest_batch(site, IngestRequest(name, (str(landed),)))
    if report.counts.appended != made.num_rows:
        raise RuntimeError(f"{made.num_rows} rows are taken in, these were: {report.counts}")


@contextmanager
def contenders(archive: RegisteredArchive) -> Iterator[Mapping[str, Contender]]:
    """Spark far and near, and DuckDB, each with the streams' files as views."""
    duck = connect()
    for name in archive.rows:
        duck.execute(f"CREATE VIEW {name} AS SELECT * FROM read_parquet({archive.files(name)})")
    with near_session() as near:
        far = archive.site.session()
        for session in (near, far):
            for name in archive.rows:
                session.read.parquet(*archive.files(name)).createOrReplaceTempView(name)
        yield {
            "far": _on_spark(far),
            "near": _on_spark(near),
            "duckdb": lambda text: duck.execute(text).to_arrow_table(),
        }
    duck.close()


def _on_spark(session: SparkSession) -> Contender:
    return lambda text: session.sql(text).toArrow()


# Questions: what is registered, and the same as a plain query at NOW.


@dataclass(frozen=True, slots=True)
class Question:
    """A query without its window."""

    items: str
    sources: Mapping[str, str]
    """The stream of each alias."""
    conditions: Sequence[str]

    def registered(self, window: int) -> str:
        """The text that is registered, over the youngest so many numbers."""
        return f"{self._select(self.conditions)} BEGIN (NOW - {window}) END (NOW)"

    def plain(self, window: int, now: int) -> str:
        """The same at a time, for others."""
        within = [f"{alias}.n > {now - window} AND {alias}.n <= {now}" for alias in self.sources]
        return self._select([*self.conditions, *within])

    def _select(self, conditions: Sequence[str]) -> str:
        listed = ", ".join(f"{stream} {alias}" for alias, stream in self.sources.items())
        return f"SELECT {self.items} FROM {listed} WHERE {' AND '.join(conditions)}"


def interval_question(draw: Random, attributes: int, width: int | None = None) -> Question:
    """A selection by an interval over each of so many attributes, of a width, or of any."""
    conditions = []
    for name in draw.sample(ATTRIBUTES, attributes):
        size = draw.randrange(VALUES) if width is None else width
        low = draw.randrange(VALUES if width is None else VALUES - width)
        conditions += [f"x.{name} >= {low}", f"x.{name} <= {low + size}"]
    return Question("*", {"x": "r"}, conditions)


def equality_question(draw: Random, attributes: int) -> Question:
    """A selection by one value of each of so many attributes."""
    conditions = [f"x.{name} = {draw.randrange(VALUES)}" for name in draw.sample(ATTRIBUTES, attributes)]
    return Question("*", {"x": "r"}, conditions)


def inequality_join(draw: Random) -> Question:
    """The paper's join of two streams: one inequality between them, and one of each."""
    conditions = [f"x.a > y.b + {draw.randrange(VALUES)}", f"x.c < {draw.randrange(8, 64)}"]
    return Question("x.n, y.n AS m", {"x": "r", "y": "s"}, [*conditions, f"y.d < {draw.randrange(8, 64)}"])


def equality_join(draw: Random) -> Question:
    """A join by an equality, of few rows of each stream."""
    conditions = [f"x.a = y.b + {draw.randrange(8)}", f"x.c = {draw.randrange(VALUES)}"]
    return Question("x.n, y.n AS m", {"x": "r", "y": "s"}, [*conditions, f"y.d = {draw.randrange(VALUES)}"])


def aggregate_question(draw: Random) -> Question:
    """Aggregates of half the rows."""
    items = "count(*) AS rows, sum(x.a) AS total, min(x.b) AS least, max(x.c) AS most"
    return Question(items, {"x": "r"}, [f"x.d >= {draw.randrange(VALUES // 2)}"])
