"""All that the benchmarks call of Errata to declare, take in and scan on Spark, in one place."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pyspark.sql import DataFrame

from bench.bucket_index import STREAM, declare, newest_commit
from errata.archive.scan import Scan, candidates, scan_rows
from errata.archive.warehouse import Warehouse
from errata.catalog import streams
from errata.catalog.open import prepare_catalog
from errata.declare.project import load_project
from errata.flows.append import Batch, append
from errata.flows.site import Site
from errata.model.bucket import Bucket
from errata.model.interval import Interval

SPARK_SCHEMA = "time timestamp, symbol string, price double"

_DECLARATION = """\
project: bench
catalog: {catalog}
warehouse: {warehouse}
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
"""


def make_site(folder: Path, bucket_rows: int) -> Site:
    """A new project in the folder, its stream declared; all projects share one session."""
    folder.mkdir(parents=True)
    file = folder / "errata.yaml"
    place = {"catalog": f"sqlite:///{folder}/errata.db", "warehouse": folder / "warehouse"}
    file.write_text(_DECLARATION.format(**place, bucket_rows=bucket_rows))
    project = load_project(file)
    catalog = prepare_catalog(project.catalog)
    declare(catalog, project.streams[STREAM])
    return Site(project, catalog, Warehouse(project.warehouse))


def take_in(site: Site, files: Sequence[Path]) -> None:
    report = append(site, Batch(STREAM, tuple(map(str, files))))
    if report.commit_id is None or report.counts.appended != report.counts.read:
        raise AssertionError(f"a batch without faults goes in whole, this one did not: {report}")


def look_up(site: Site, interval: Interval, symbol: str) -> list[Bucket]:
    """The buckets that a scan of the symbol's rows of the interval opens."""
    return candidates(site.catalog, _asked(site, interval, symbol))


def scanned(site: Site, interval: Interval, symbol: str) -> DataFrame:
    """One symbol's rows of the interval, as of the newest commit: what a person who asks for them waits for."""
    return scan_rows(site.session(), site.catalog, site.warehouse, _asked(site, interval, symbol))


def _asked(site: Site, interval: Interval, symbol: str) -> Scan:
    commit_id = newest_commit(site.catalog)
    return Scan(streams.standing(site.catalog, STREAM, commit_id), commit_id, interval, frozenset({(symbol,)}))
