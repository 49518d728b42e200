"""What a scan asks of an archive, and the buckets that can hold it, looked up in the index.

Nothing is read here but the catalog: `archive.scan` reads the rows with an engine, `archive.overlays` without one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from errata.catalog import buckets
from errata.catalog.database import Catalog
from errata.catalog.streams import StreamState, aged_to_as_of
from errata.errors import ErrataError
from errata.model.bucket import Bucket, Role
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

    @property
    def last_revision(self) -> int:
        return HIGHEST if self.revisions_up_to is None else self.revisions_up_to

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

    @property
    def all(self) -> list[Bucket]:
        return [*self.base, *self.overlays]


def candidate_buckets(catalog: Catalog, scan: ArchiveScan, *, indexed: bool = False) -> ScanBuckets:
    """What the index has of the interval and the groups at the commit. Pieces of one table are all opened, as if there
    were no index, unless `indexed` tells otherwise."""
    _check_not_folded(scan)
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
