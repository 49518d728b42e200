"""Quotes under Airflow, one query over them kept answered, and corrections that land one after the other."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from deploy.services import Here

from bench.airflow_moments import Way
from bench.airflow_rounds import awaited
from bench.bucket_index import STREAM
from bench.corrections import Corrections
from bench.evaluate_day import frontier_of
from bench.replay_day import Stretch, check_same, one_by_one, published, recomputed
from bench.replay_queries import QUERIES
from errata.catalog import commits
from errata.catalog.commits import listen
from errata.catalog.database import Catalog, open_catalog
from errata.catalog.result_archives import read_archive as standing
from errata.declare.project import FILE_NAME, load_project
from errata.declare.site import Site
from errata.declare.warehouse import Warehouse
from errata.generate.quotes import QuoteSpec, generate_quotes
from errata.model.batch import FileFormat

ASKED = QUERIES[0]

# Files appear whole, by a rename, so that they need not settle.
_DECLARATION = """\
project: bench
catalog: ${ERRATA_CATALOG}
warehouse: ./warehouse
streams:
  quotes:
    columns: {time: timestamp, symbol: string, price: double}
    key: [time, symbol]
    order: time
    group: [symbol]
    slack: 5 seconds
    max_ahead: 36500 days
    landing: {path: ./landing/quotes, settle: 0 seconds, then: move}
queries:
"""


@dataclass(frozen=True)
class Quotes:
    """A project in a folder: a stretch of quotes, one query, and a correction for each round. Nothing of it runs."""

    folder: Path
    stretch: Stretch
    rounds: int

    @property
    def project(self) -> Path:
        return self.folder / FILE_NAME

    @cached_property
    def base(self) -> Path:
        """The file of the quotes."""
        rows = self.stretch.rows
        spec = QuoteSpec(rows, after=self.stretch.first, format=FileFormat.PARQUET, rows_per_file=rows)
        return generate_quotes(spec, self.folder / "files").files[0]

    @cached_property
    def corrections(self) -> list[Corrections]:
        """A file of one correction for each round."""
        return one_by_one(ASKED, self.stretch.picked(self.rounds), self.folder / "corrections")

    def declare(self) -> None:
        for name in ("queries", f"landing/{STREAM}"):
            (self.folder / name).mkdir(parents=True)
        (self.folder / "queries" / f"{ASKED.name}.sql").write_text(ASKED.query.text)
        self.project.write_text(f"{_DECLARATION}  {ASKED.name}: {{sql: queries/{ASKED.name}.sql}}\n")

    def land(self, file: Path) -> tuple[float, float]:
        """Let a copy of a file appear, all at once; when that was, by the clock and by the stop-watch."""
        coming = self.folder / file.name
        coming.write_bytes(file.read_bytes())
        moments = time.time(), time.perf_counter()
        coming.rename(self.folder / "landing" / STREAM / file.name)
        return moments


@dataclass
class Corrected:
    """The same under an Airflow that runs."""

    quotes: Quotes
    here: Here
    name: str = "corrections"
    append: str = "append"
    revisions: str = "revisions"
    asset: str = "errata.landed"
    _came: list[Corrections] = field(default_factory=list)

    def begin(self) -> None:
        """Let the quotes land, and wait until the query is answered."""
        self._landed(self.quotes.base)

    def land(self, number: int) -> Way:
        newest = commits.newest_commit(self._catalog)
        self._came.append(self.quotes.corrections[number])
        way = self._landed(self._came[-1].file)
        by = [each.cause for each in commits.list_commits(self._catalog, since=newest) if each.cause.flow == "sweep"]
        if [(each.dag_id, each.task_id) for each in by] != [(self.revisions, "sweep")]:
            raise AssertionError(f"corrections are swept by the DAG that waits for them, and here it was {by}")
        return way

    def close(self) -> None:
        """Let go of the catalog."""
        self._catalog.close()

    def check_answer(self) -> None:
        """That what is published is what DuckDB makes of the quotes and of the corrections that have come."""
        project = load_project(self.quotes.project, self.here.environ)
        site = Site(project, self._catalog, Warehouse(project.warehouse))
        check_same(ASKED.name, published(site, ASKED.name), recomputed(site, ASKED, frontier_of(site), self._came))

    def _landed(self, file: Path) -> Way:
        """Let a file appear, and wait until a commit publishes something."""
        before = self._published()
        with listen(self._catalog) as word:
            landed, began = self.quotes.land(file)
            while self._published() == before:
                awaited(self.here, began, "something new is published")
                word.wait(1)
            return Way(landed, time.perf_counter() - began)

    @cached_property
    def _catalog(self) -> Catalog:
        return open_catalog(self.here.environ["ERRATA_CATALOG"])

    def _published(self) -> int:
        """The number of the query's last evaluation."""
        found = standing(self._catalog, ASKED.name)
        return 0 if found is None else found.last.number
