"""What a scan reads, by version of its buckets, beside what it would read without reduction: for reports, and for the
choice of an engine.

The figures are those of the bucket index: exact for whole files, and for the first blocks of randomised ones in
proportion to the rate up to which they are read.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from errata.archive.blocks import read_rate
from errata.archive.sampling import near_sampling_obstacle
from errata.archive.scan_plan import ArchiveScan, ScanBuckets
from errata.engine.budget import EngineDemand
from errata.model.bucket import Bucket
from errata.model.reduction import rate_text

MAX_BLOCK_VALUES = 4_000_000
"""Values (rows times columns) in blocks of randomised buckets up to which the near engine is handed them. It would read
the files whole, and of a sample no more is to be read than belongs to it."""

ORIGINAL, BLOCKS, OVERLAYS, REMAINS = "originals", "blocks", "overlays", "remains"


@dataclass(frozen=True, slots=True)
class VersionReading:
    """What is read of the buckets of one version."""

    version: str
    """`originals`, `blocks to 10%`, `copies at 10%`, `overlays`, or `remains at 10%` of purged originals."""
    buckets: int
    rows: int
    size: int
    """Bytes."""


@dataclass(frozen=True, slots=True)
class ScanReading:
    """What scans read, and what they would read without reduction."""

    versions: tuple[VersionReading, ...]
    exact_rows: int
    exact_size: int
    """Bytes."""

    @property
    def rows(self) -> int:
        return sum(each.rows for each in self.versions)

    @property
    def size(self) -> int:
        """Bytes."""
        return sum(each.size for each in self.versions)

    @property
    def saved_nothing(self) -> bool:
        return self.size >= self.exact_size


def scan_reading(found: Iterable[ScanBuckets]) -> ScanReading:
    """What scans read, together; `found` are their candidate buckets."""
    some = list(found)
    by_version: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
    for each in some:
        for bucket in each.base:
            by_version[_version(bucket, each)].append(_amount(bucket, each))
        for overlay in each.overlays:
            by_version[OVERLAYS].append((overlay.rows, overlay.size))
        for bucket in each.remains:
            by_version[f"{REMAINS} at {rate_text(bucket.resolution.rate)}"].append((bucket.rows, bucket.size))
    versions = tuple(
        VersionReading(version, len(of), sum(rows for rows, _ in of), sum(size for _, size in of))
        for version, of in by_version.items()
    )
    exact = [bucket for each in some for bucket in (*(each.originals or each.base), *each.overlays, *each.remains)]
    return ScanReading(versions, sum(each.rows for each in exact), sum(each.size for each in exact))


def scan_demand(scan: ArchiveScan, found: ScanBuckets, obstacle: str | None = None) -> EngineDemand:
    """What a scan demands of an engine: what it really reads."""
    reading = scan_reading([found])
    sampled = None if scan.sampled is None else near_sampling_obstacle(scan.state.stream)
    return EngineDemand(reading.rows, reading.size, obstacle or sampled or _blocks_obstacle(scan, found))


def _blocks_obstacle(scan: ArchiveScan, found: ScanBuckets) -> str | None:
    """Why the near engine, which reads files whole, cannot have blocks of files."""
    rows = sum(_amount(each, found)[0] for each in found.base if each.bucket_id in found.prefixes)
    values = rows * len(scan.state.stream.columns)
    return f"{values:,} values in blocks are more than near is handed" if values > MAX_BLOCK_VALUES else None


def _version(bucket: Bucket, of: ScanBuckets) -> str:
    if (rate := of.prefixes.get(bucket.bucket_id)) is not None:
        return f"{BLOCKS} to {rate_text(read_rate(rate, bucket.rows))}"
    return f"copies at {rate_text(bucket.resolution.rate)}" if bucket.original is not None else ORIGINAL


def _amount(bucket: Bucket, of: ScanBuckets) -> tuple[int, int]:
    """Rows and bytes that are read of a bucket."""
    rate = of.prefixes.get(bucket.bucket_id)
    share = 1.0 if rate is None else read_rate(rate, bucket.rows)
    return round(bucket.rows * share), round(bucket.size * share)
