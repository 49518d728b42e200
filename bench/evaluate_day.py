"""Projects whose queries `errata bench evaluate` keeps answered: a stretch of the feed of quotes, two relations, and
queries that have been brought up to its end before anything is timed."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from bench import errata_under_test as errata
from bench.corrections import FEED, RATE
from bench.evaluate_queries import Mixed
from errata.answer.progress import input_watermark
from errata.answer.runs import RunReport, run
from errata.archive.ingest.batch import IngestRequest, ingest_batch
from errata.catalog import streams
from errata.catalog.database import open_catalog
from errata.declare.apply import apply_plan, plan_apply
from errata.declare.project import FILE_NAME, Project, load_project
from errata.declare.site import Site
from errata.declare.warehouse import Warehouse
from errata.generate.quotes import DEFAULT_START, QuoteSpec, generate_quotes
from errata.intake.types import arrow_schema
from errata.model.batch import FileFormat
from errata.model.query import EmitMode
from errata.model.time import HOUR, MINUTE, SECOND, format_instant

KEPT = 10 * MINUTE
"""Answers are kept from so long before the end of the feed on."""

# Places are relative to the folder, so that a copy of it is a project of its own.
_DECLARATION = """\
project: bench
catalog: sqlite:///errata.db
warehouse: ./warehouse
spark: {{master: "local[*]", conf: {{}}}}
streams:
  quotes:
    columns: {{time: timestamp, symbol: string, price: double}}
    key: [time, symbol]
    order: time
    group: [symbol]
    bucket_rows: {bucket_rows}
    slack: 5 seconds
    max_ahead: 36500 days
relations:
  companies:
    kind: nrr
    columns: {{symbol: string, name: string, sector: string, since: timestamp}}
    key: [symbol]
    order: since
    max_ahead: 36500 days
  watched:
    kind: retroactive
    columns: {{symbol: string, reason: string, since: timestamp, gone: boolean}}
    key: [symbol]
    order: since
    deleted: gone
    max_ahead: 36500 days
queries:
"""

_SECTORS = ("energy", "health", "banks", "chips", "food", "rails", "retail", "power", "metals", "media")


@dataclass(frozen=True, slots=True)
class Stretch:
    """Which rows of the feed are in an archive."""

    first: int
    end: int
    bucket_rows: int

    @property
    def ends(self) -> int:
        """The instant at which the feed goes on."""
        return DEFAULT_START + self.end // RATE * SECOND


def as_texts(queries: Sequence[Mixed]) -> dict[str, tuple[str, EmitMode]]:
    """Of each query the text, and when it is published."""
    return {each.name: (each.text, each.emit) for each in queries}


def answered(folder: Path, stretch: Stretch, queries: Mapping[str, tuple[str, EmitMode]]) -> Site:
    """A project of this stretch of the feed with these queries, all answered up to its end."""
    project = declared_project(folder, stretch, queries)
    apply_plan(plan_apply(project))
    site = Site(project, open_catalog(project.catalog), Warehouse(project.warehouse))
    spec = QuoteSpec(stretch.end - stretch.first, after=stretch.first, format=FileFormat.PARQUET)
    errata.take_in(site, generate_quotes(spec, folder / "files").files)
    for name, rows in relations(site, stretch).items():
        file = folder / "files" / f"{name}.parquet"
        pq.write_table(rows, file)
        report = ingest_batch(site, IngestRequest(name, (str(file),)))
        if report.counts.appended != rows.num_rows:
            raise AssertionError(f"versions without faults go in whole, these did not: {report}")
    shutil.rmtree(folder / "files")
    all_done(run(site, take=False), len(queries))
    return site


def declared_project(folder: Path, stretch: Stretch, queries: Mapping[str, tuple[str, EmitMode]]) -> Project:
    """Its declarations; nothing is applied yet."""
    (folder / "queries").mkdir(parents=True)
    declared = [_DECLARATION.format(bucket_rows=stretch.bucket_rows)]
    for name, (text, emit) in queries.items():
        (folder / "queries" / f"{name}.sql").write_text(text)
        since = format_instant(stretch.ends - KEPT)
        declared.append(f'  {name}: {{sql: queries/{name}.sql, emit: {emit}, since: "{since}"}}\n')
    file = folder / FILE_NAME
    file.write_text("".join(declared))
    return load_project(file)


def relations(site: Site, stretch: Stretch) -> dict[str, pa.Table]:
    """The versions of both relations."""
    said = {"companies": _companies(), "watched": _watched(stretch.ends)}
    schemas = {name: arrow_schema(site.project.streams[name]) for name in said}
    return {
        name: pa.table(
            {each.name: pa.array([row[each.name] for row in rows]).cast(each.type) for each in schemas[name]}
        )
        for name, rows in said.items()
    }


def _companies() -> list[dict[str, object]]:
    """What the symbols stand for: every tenth is renamed in the course of the day."""
    found: list[dict[str, object]] = [
        {"symbol": name, "name": f"{name} Inc", "sector": _SECTORS[number % 10], "since": DEFAULT_START - HOUR}
        for number, name in enumerate(FEED.names)
    ]
    return found + [{**each, "name": f"{each['name']} Group", "since": DEFAULT_START + HOUR} for each in found[::10]]


def _watched(ends: int) -> list[dict[str, object]]:
    """Symbols that are under suspicion: of 20 a half no longer, and of five the reason changes while rows come."""
    names = FEED.names[:20]
    found: list[dict[str, object]] = [
        {"symbol": name, "reason": "volume", "since": DEFAULT_START - HOUR, "gone": None} for name in names
    ]
    found += [{"symbol": name, "reason": None, "since": ends - 5 * MINUTE, "gone": True} for name in names[::2]]
    later = enumerate(names[1::4])
    return found + [
        {"symbol": name, "reason": "spread", "since": ends + (number * 60 + 20) * SECOND, "gone": None}
        for number, name in later
    ]


def all_done(report: RunReport, count: int) -> RunReport:
    """The report, if so many queries were taken as far as can be, in however many parts, and none was stopped."""
    done = [each.name for each in report.evaluated if not each.published.last.is_part]
    others = {"stopped": report.stopped, "held": report.held, "busy": report.busy}
    if len(done) != count or any(others.values()):
        raise AssertionError(f"{count} queries had something to do; {done} have done it, and {others}")
    return report


def frontier_of(site: Site) -> int:
    """The last instant up to which the feed is stable."""
    stable = input_watermark(streams.stream_states(site.catalog))
    if stable is None:
        raise AssertionError("a feed that has been taken in is stable up to somewhere")
    return stable


@dataclass(slots=True)
class Following:
    """The rows that come after a stretch, in batches; every project is given the same."""

    folder: Path
    next: int

    def batch(self, rows: int) -> Path:
        """The file of so many rows more."""
        spec = QuoteSpec(rows, after=self.next, format=FileFormat.PARQUET, rows_per_file=rows)
        self.next += rows
        return generate_quotes(spec, self.folder).files[0]
