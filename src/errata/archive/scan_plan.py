"""What a scan asks of an archive, and the buckets that can hold it, looked up in the index.

A scan at a reduced rate opens, for each base bucket, the smallest version that is fine enough: a copy, the first blocks
of a randomised bucket, or all of it. Which version that is changes what is opened, never what comes of it, since rows
are sampled by their hash in any case. A copy takes the place of its original with the original's ranges and floor, so
that overlays, ages and commits apply to it alike. What purging has left is beside all of these: no overlay concerns it,
and its rows have aged out for exact scans.

Nothing is read here but the catalog: `archive.scan` reads the rows with an engine, `archive.overlays` without one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from errata.catalog import buckets
from errata.catalog.database import Catalog
from errata.catalog.streams import StreamState, aged_to_as_of
from errata.errors import ErrataError
from errata.model.bucket import Bucket, Layout, Role
from errata.model.reduction import FULL_RATE, SamplingRates, hash_bound
from errata.model.time import EVERYTHING, HIGHEST, Interval

GroupKey = tuple[str | None, ...]


@dataclass(frozen=True, slots=True)
class ArchiveScan:
    """What to read of a stream's archive: as of a commit, an interval of the order field, and some groups."""

    state: StreamState
    """The stream and its state at the commit."""
    commit_id: int
    interval: Interval = EVERYTHING
    groups: frozenset[GroupKey] | None = None
    """Values of the group columns as text; None for all."""
    revisions_up_to: int | None = None
    """Only revisions up to this number are applied; None: all that had been applied at the commit."""
    rates: SamplingRates | None = None
    """The rates at which rows are sampled; None for all rows."""

    @property
    def last_revision(self) -> int:
        return HIGHEST if self.revisions_up_to is None else self.revisions_up_to

    @property
    def sampled(self) -> SamplingRates | None:
        """The rates, if they leave out anything."""
        return None if self.rates is None or self.rates.exact else self.rates

    @property
    def omits_revisions(self) -> bool:
        """Whether revisions that have been applied are left out."""
        return self.last_revision < self.state.applied


@dataclass(frozen=True, slots=True)
class ScanBuckets:
    """The buckets that can hold rows of a scan: all that it opens."""

    base: Sequence[Bucket]
    overlays: Sequence[Bucket] = ()
    aged_before: Mapping[int, int | None] = field(default_factory=dict)
    """How far the stream had been aged when a commit added a bucket, where it matters."""
    originals: Sequence[Bucket] = ()
    """Of a reduced scan: the base buckets that it would open without reduction."""
    prefixes: Mapping[int, float] = field(default_factory=dict)
    """By id: the rate up to which a randomised base bucket is read."""

    remains: Sequence[Bucket] = ()
    """Of a reduced scan: what purging has left of rows that have aged out."""

    @property
    def all(self) -> list[Bucket]:
        return [*self.base, *self.overlays, *self.remains]


def candidate_buckets(catalog: Catalog, scan: ArchiveScan, *, indexed: bool = False) -> ScanBuckets:
    """What the index has of the interval and the groups at the commit. Pieces of one table are all opened, as if there
    were no index, unless `indexed` tells otherwise."""
    _check_not_folded(scan)
    found = _exact_candidates(catalog, scan, indexed=indexed)
    return found if scan.sampled is None else _with_versions(catalog, scan, found, scan.sampled)


def _exact_candidates(catalog: Catalog, scan: ArchiveScan, *, indexed: bool) -> ScanBuckets:
    standing = scan.state
    at, asked = (catalog, standing.stream_id, scan.commit_id), (scan.interval, scan.groups)
    base = buckets.visible_buckets(*at, *(asked if indexed or not standing.stream.one_table else ()))
    # A stream that no revision has ever been applied to has no overlays to look for.
    if not standing.applied:
        return ScanBuckets(base)
    if scan.omits_revisions and not standing.stream.key_has_order:
        # A revision that is left out may have freed a key in one place, and its row have come in another.
        return ScanBuckets(base, buckets.visible_buckets(*at, role=Role.OVERLAY), _aged_before(catalog, scan, base))
    # A revision that is left out may have freed a key for a row of another group.
    groups = None if scan.omits_revisions else scan.groups
    overlays = buckets.visible_buckets(*at, scan.interval, groups, role=Role.OVERLAY)
    return ScanBuckets(base, [overlay for overlay in overlays if _overlay_meets(overlay, scan.interval)])


def _with_versions(catalog: Catalog, scan: ArchiveScan, found: ScanBuckets, rates: SamplingRates) -> ScanBuckets:
    """The versions that a scan at these rates opens in place of base buckets."""
    copies: defaultdict[int | None, list[Bucket]] = defaultdict(list)
    at = (catalog, scan.state.stream_id, scan.commit_id)
    for each in buckets.visible_buckets(*at, scan.interval, scan.groups, role=Role.COPY):
        copies[each.original].append(each)
    base, prefixes = [], {}
    for bucket in found.base:
        low, high = max(bucket.vs_min, scan.interval.start), min(bucket.vs_max, scan.interval.end - 1)
        rate = rates.ceiling(low, max(low, high))
        fine = [bucket, *(each for each in copies[bucket.bucket_id] if hash_bound(rate) <= each.resolution.hashes.end)]
        chosen = min(fine, key=lambda each: _read_bytes(each, rate))
        if in_blocks(chosen) and rate < FULL_RATE:
            prefixes[chosen.bucket_id] = rate
        base.append(bucket if chosen is bucket else _in_place_of(bucket, chosen))
    return replace(found, base=base, originals=found.base, prefixes=prefixes, remains=copies[None])


def in_blocks(bucket: Bucket) -> bool:
    """Whether a bucket is a file that can be read block by block."""
    return bucket.layout is Layout.RANDOMIZED and not bucket.inline


def _read_bytes(version: Bucket, rate: float) -> float:
    """About the bytes that are read of a version."""
    if not in_blocks(version):
        return version.size
    from errata.archive.blocks import read_rate  # noqa: PLC0415 - most archives have no blocks

    return version.size * read_rate(rate, version.rows)


def _in_place_of(original: Bucket, copy: Bucket) -> Bucket:
    """A copy as a base bucket of the scan."""
    return replace(
        original,
        bucket_id=copy.bucket_id,
        path=copy.path,
        rows=copy.rows,
        size=copy.size,
        checksum=copy.checksum,
        layout=copy.layout,
        resolution=copy.resolution,
        original=original.bucket_id,
    )


def _aged_before(catalog: Catalog, scan: ArchiveScan, base: Iterable[Bucket]) -> dict[int, int | None]:
    """How far the stream had been aged when each of these commits added a bucket."""
    wanted = {bucket.added_in for bucket in base if bucket.floor > scan.last_revision}
    with catalog.reading() as connection:
        return {commit_id: aged_to_as_of(connection, scan.state.stream_id, commit_id) for commit_id in wanted}


def _overlay_meets(overlay: Bucket, interval: Interval) -> bool:
    """Whether an overlay masks or brings rows there; the index knows the hull of both only."""
    return any(ends is not None and interval.meets(*ends) for ends in (overlay.masks, overlay.content))


def _check_not_folded(scan: ArchiveScan) -> None:
    # Of the stream, not of the buckets that are opened: where the last row was deleted there is none.
    folded = scan.state.folded
    if scan.last_revision < folded:
        raise ErrataError(
            f"revision {scan.revisions_up_to} can no longer be told apart as of commit {scan.commit_id}",
            where=f"stream {scan.state.stream.name}",
            why=f"compaction has worked revisions up to {folded} into the buckets",
            how=f"read up to revision {folded} or a later one, or as of a commit before the compaction",
        )
