"""All that the benchmarks call of Errata to declare, take in, correct and scan on Spark, in one place."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from pyspark.sql import DataFrame

from bench.bucket_index import STREAM, declare, newest_commit
from errata.archive.ingest.batch import IngestRequest, ingest_batch
from errata.archive.revisions.apply import apply_stream_revisions
from errata.archive.scan import scan_rows
from errata.archive.scan_plan import ArchiveScan, candidate_buckets
from errata.archive.upkeep.compaction import CompactionReport, compact_streams
from errata.catalog import commits, streams
from errata.catalog.database import open_catalog
from errata.catalog.migration import prepare_catalog
from errata.declare.project import FILE_NAME, load_project
from errata.declare.site import Site
from errata.declare.warehouse import Warehouse
from errata.model.batch import Op
from errata.model.bucket import Bucket
from errata.model.commit import Cause
from errata.model.time import EVERYTHING, Interval

SPARK_SCHEMA = "time timestamp, symbol string, price double"

# Places are relative to the folder, so that a copy of it is a project of its own.
_DECLARATION = """\
project: bench
catalog: sqlite:///errata.db
warehouse: ./warehouse
spark: {{master: "local[*]", conf: {{spark.driver.memory: {memory}}}}}
streams:
  quotes:
    columns: {{time: timestamp, symbol: string, price: double}}
    key: [time, symbol]
    order: time
    group: [symbol]
    bucket_rows: {bucket_rows}
    slack: 5 seconds
    max_ahead: 36500 days
"""


def declaration(bucket_rows: int, memory: str = "2g") -> str:
    """The project and its stream of quotes, in errata.yaml; more may follow. The first project whose session is opened
    says how much memory Spark has for all."""
    return _DECLARATION.format(bucket_rows=bucket_rows, memory=memory)


def make_site(folder: Path, bucket_rows: int, declared: Mapping[str, str] | None = None) -> Site:
    """A new project in the folder, its stream declared, with what else is to be; all projects share one session."""
    folder.mkdir(parents=True)
    more = "".join(f"    {name}: {value}\n" for name, value in (declared or {}).items())
    file = folder / FILE_NAME
    file.write_text(declaration(bucket_rows) + more)
    project = load_project(file)
    catalog = prepare_catalog(project.catalog)
    declare(catalog, project.streams[STREAM])
    return Site(project, catalog, Warehouse(project.warehouse))


def copy_site(folder: Path, to: Path) -> Site:
    """A project like the one in the folder, which must be closed. Buckets never change, so their files are linked."""
    shutil.copytree(folder / "warehouse", to / "warehouse", copy_function=os.link)
    for name in (FILE_NAME, "errata.db"):
        shutil.copy(folder / name, to / name)
    project = load_project(to / FILE_NAME)
    return Site(project, open_catalog(project.catalog), Warehouse(project.warehouse))


def take_in(site: Site, files: Sequence[Path]) -> None:
    report = ingest_batch(site, IngestRequest(STREAM, tuple(map(str, files))))
    if report.commit_id is None or report.counts.appended != report.counts.read:
        raise AssertionError(f"a batch without faults goes in whole, this one did not: {report}")


def take_in_corrections(site: Site, file: Path) -> int:
    """Number the corrections of a file; how many they are."""
    report = ingest_batch(site, IngestRequest(STREAM, (str(file),), default_op=Op.REPLACE))
    if report.counts.pending != report.counts.read:
        raise AssertionError(f"corrections are pending until they are applied, these are not: {report}")
    return report.counts.pending


def apply_corrections(site: Site, count: int) -> None:
    """Apply what is pending: as many corrections, none of them wrong."""
    report = apply_stream_revisions(site, STREAM)
    if report.counts.replaced != count:
        raise AssertionError(f"{count} corrections of rows that are there are all applied, these were not: {report}")


def correct(site: Site, file: Path) -> None:
    """What `errata revise STREAM FILE` does."""
    apply_corrections(site, take_in_corrections(site, file))


def compact_all(site: Site) -> CompactionReport:
    (report,) = compact_streams(site, [STREAM], everything=True)
    return report


def commit_nothing(site: Site) -> None:
    """A commit that says nothing: the least that every flow has to wait for at its end."""
    with site.catalog.writing() as connection:
        commits.record_commit(connection, site.catalog.clock.now(), Cause("bench"), summary={})


def buckets_of(site: Site) -> list[Bucket]:
    """The base buckets, in stream order."""
    return list(candidate_buckets(site.catalog, asked(site)).base)


def files_of(site: Site, buckets: Sequence[Bucket]) -> list[str]:
    """Buckets' files as plain Spark reads them; of inline ones there are none."""
    return [site.warehouse.spark_path(bucket.path) for bucket in buckets if bucket.path is not None]


def look_up(site: Site, interval: Interval, symbol: str) -> list[Bucket]:
    """The buckets that a scan of the symbol's rows of the interval opens."""
    return candidate_buckets(site.catalog, asked(site, interval, symbol)).all


def scanned(
    site: Site, interval: Interval = EVERYTHING, symbol: str | None = None, as_of: int | None = None
) -> DataFrame:
    """Rows of the interval, of one symbol or all, as of the newest commit or an old one: what a person waits for."""
    return scan_rows(site.session(), site.catalog, site.warehouse, asked(site, interval, symbol, as_of))


def asked(
    site: Site, interval: Interval = EVERYTHING, symbol: str | None = None, as_of: int | None = None
) -> ArchiveScan:
    commit_id = newest_commit(site.catalog) if as_of is None else as_of
    groups = None if symbol is None else frozenset({(symbol,)})
    return ArchiveScan(streams.stream_state(site.catalog, STREAM, commit_id), commit_id, interval, groups)
