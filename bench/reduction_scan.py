"""A count over a sample of the stream, as a reader asks it, and the bytes of the archive that it needs.

Bytes are counted twice. `needed_bytes` adds up what a reader of the files has to open: footers, and of the row groups
that the sample touches the columns that are read. `RunningReads` tells how many bytes the engine's processes did read,
from the disk or from its cache, with whatever else they read meanwhile.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from bench.reduction_workload import STREAM
from errata.archive.blocks import BLOCK, wanted_row_groups
from errata.archive.scan import scan_rows
from errata.archive.scan_plan import ArchiveScan, ScanBuckets, candidate_buckets
from errata.archive.scan_reading import scan_demand
from errata.catalog import buckets, commits, streams
from errata.declare.site import Site
from errata.engine.frames import fetch_rows, select_sql
from errata.model.bucket import Bucket, Role
from errata.model.reduction import FULL_RATE, SamplingRates, uniform_rates
from errata.reduce import requests

_FOOTER_END = 8
"""Bytes behind a footer: its length and the mark of the format."""


@dataclass(frozen=True, slots=True)
class SampleCount:
    """A count over a sample."""

    rows: int
    """Rows of the sample."""
    total: int
    """The sum of their attribute."""


def sample_scan(site: Site, reduction: float, stream: str = STREAM) -> tuple[ArchiveScan, ScanBuckets]:
    """A scan of the whole stream at a reduction, and what it opens."""
    newest = commits.newest_commit(site.catalog)
    scan = ArchiveScan(streams.stream_state(site.catalog, stream, newest), newest, rates=rates_of(reduction))
    return scan, candidate_buckets(site.catalog, scan)


def rates_of(reduction: float) -> SamplingRates:
    """The rates of a reduction; rounded, since 1 - 0.9 is not 0.1."""
    return uniform_rates(round(FULL_RATE - reduction, 9))


def count_sample(site: Site, reduction: float, stream: str = STREAM, *, total: bool = False) -> SampleCount:
    """Count the rows of a sample, and sum up their attribute if that is wanted; what was asked for is recorded."""
    scan, found = sample_scan(site, reduction, stream)
    columns = ["count(*) AS rows", "sum(userattr) AS total" if total else "0 AS total"]
    made, _ = site.engines().read(
        scan_demand(scan, found),
        lambda session: select_sql(scan_rows(session, site.catalog, site.warehouse, scan, found), *columns),
    )
    if scan.rates is not None:
        requests.record(site, scan.state.stream_id, scan.rates)
    rows = made if isinstance(made, pa.Table) else fetch_rows(made)
    return SampleCount(rows["rows"][0].as_py(), rows["total"][0].as_py())


def needed_bytes(site: Site, reduction: float, columns: Collection[str] = ("time", "userattr")) -> int:
    """Bytes of the archive that a count over a sample has to read: its key's columns, of which the hash is made."""
    _, found = sample_scan(site, reduction)
    return sum(_needed_of(site, each, found.prefixes.get(each.bucket_id), columns) for each in found.base)


def _needed_of(site: Site, bucket: Bucket, rate: float | None, columns: Collection[str]) -> int:
    if bucket.path is None:
        return bucket.size
    path = local_path(site, bucket.path)
    metadata = pq.read_metadata(path)
    groups = range(metadata.num_row_groups) if rate is None else wanted_row_groups(metadata, rate)
    read = {*columns, BLOCK} if rate is not None else {*columns}
    data: int = sum(
        metadata.row_group(group).column(place).total_compressed_size
        for group in groups
        for place in range(metadata.num_columns)
        if metadata.row_group(group).column(place).path_in_schema in read
    )
    footer: int = metadata.serialized_size + _FOOTER_END
    return data + footer


def stored_bytes(site: Site, stream: str = STREAM) -> int:
    """Bytes of all versions of a stream's buckets, in files and in the catalog."""
    newest = commits.newest_commit(site.catalog)
    found = streams.stream_state(site.catalog, stream, newest).stream_id
    kinds = (Role.BASE, Role.OVERLAY, Role.COPY)
    return sum(each.size for role in kinds for each in buckets.visible_buckets(site.catalog, found, newest, role=role))


def local_path(site: Site, path: str) -> str:
    """The file of a bucket on this machine."""
    return site.warehouse.spark_path(path).removeprefix("file://")


class RunningReads:
    """Bytes that this process and those that it started have read since it was made."""

    def __init__(self) -> None:
        self._before = self._now()

    def size(self) -> int:
        """Bytes, of the processes that are still running."""
        return sum(read - self._before.get(process, 0) for process, read in self._now().items())

    @staticmethod
    def _now() -> dict[int, int]:
        return {process: _bytes_read(process) for process in _family(os.getpid())}


def _family(process: int) -> list[int]:
    """A process and all that it has started."""
    parents = {int(each.parent.name): _parent(each) for each in Path("/proc").glob("[0-9]*/stat")}
    found, waiting = [], [process]
    while waiting:
        found.append(waiting.pop())
        waiting += [child for child, parent in parents.items() if parent == found[-1]]
    return found


def _parent(status: Path) -> int:
    try:
        return int(status.read_text().rpartition(")")[2].split()[1])
    except (FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
        return 0


def _bytes_read(process: int) -> int:
    try:
        lines = Path(f"/proc/{process}/io").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return next(int(line.split()[1]) for line in lines if line.startswith("rchar:"))
