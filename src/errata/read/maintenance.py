"""What needs upkeep: the contents of quarantine, when each job last ran, due compaction, leases, pins, and the size of
each archive.

Only the catalog is read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from errata.catalog import activity, leases, quarantine, streams
from errata.catalog.activity import ArchiveSize, PinRecord
from errata.catalog.leases import LeaseHolder
from errata.catalog.quarantine import QuarantineFile, QuarantineRow
from errata.catalog.result_archives import read_archives
from errata.declare.site import Site
from errata.errors import unknown_name_error
from errata.model.bucket import Role
from errata.model.commit import Commit
from errata.read.status import stream_statuses

MAX_QUARANTINE_ROWS = 200
"""Rows in quarantine that are returned; the command line lists all."""


@dataclass(frozen=True, slots=True)
class QuarantineContents:
    """Rows and files in quarantine, the newest first."""

    stream: str | None
    """The stream whose contents these are; None for all streams."""
    counts: Mapping[str, int]
    """Rows by stream."""
    rows: Sequence[QuarantineRow]
    file_counts: Mapping[str, int]
    """Files by stream."""
    files: Sequence[QuarantineFile]

    @property
    def total(self) -> int:
        return sum(self.counts.values())

    @property
    def all_counts(self) -> Mapping[str, int]:
        """Rows and files by stream."""
        return dict(Counter(self.counts) + Counter(self.file_counts))

    @property
    def shown_total(self) -> int:
        """The number of rows of the stream that is shown, or of all."""
        return self.total if self.stream is None else self.counts.get(self.stream, 0)


def quarantine_contents(site: Site, stream: str | None = None, most: int = MAX_QUARANTINE_ROWS) -> QuarantineContents:
    """The contents of quarantine, of all streams or of one."""
    if stream is not None:
        there = {each.stream.name for each in streams.stream_states(site.catalog)}
        if stream not in there:
            raise unknown_name_error("stream", stream, there)
    counts, rows = (
        quarantine.quarantined_row_counts(site.catalog),
        quarantine.quarantined_rows(site.catalog, stream=stream, last=most),
    )
    files = quarantine.quarantined_files(site.catalog, stream=stream)[-most:]
    return QuarantineContents(stream, counts, rows[::-1], quarantine.quarantined_file_counts(site.catalog), files[::-1])


# Upkeep of the archives.

FLOW_TEXTS: Mapping[str, str] = {
    "append": "takes in what has landed",
    "run": "takes the answers further",
    "revise": "makes corrections part of history",
    "sweep": "corrects published results",
    "compact": "works corrections into buckets, and puts small ones together",
    "age-out": "drops what is past its retention",
    "vacuum": "keeps copies as readers ask, and removes files that nobody needs any more",
    "doctor": "mends what it has found wrong",
}
"""What each job that commits does, by the name of its flow."""


@dataclass(frozen=True, slots=True)
class ArchiveUsage:
    """The size of an archive."""

    name: str
    query: bool
    live: ArchiveSize
    """Live rows."""
    overlays: ArchiveSize
    """Overlays; of a query, masked results and its changelog."""
    superseded: tuple[int, int]
    """Buckets kept for readers of earlier commits, and their bytes."""
    due: bool = False
    """Whether compaction is due."""

    @property
    def bytes(self) -> int:
        return self.live.bytes + self.overlays.bytes + self.superseded[1]


@dataclass(frozen=True, slots=True)
class MaintenanceStatus:
    """How fit the archives are."""

    last: Sequence[tuple[str, str, Commit | None]]
    """Each flow, what it does, and its last commit."""
    archives: Sequence[ArchiveUsage]
    """Archives, the largest first."""
    leases: Sequence[LeaseHolder]
    pins: Sequence[PinRecord]

    @property
    def due(self) -> list[str]:
        """Streams whose compaction is due."""
        return sorted(each.name for each in self.archives if each.due)

    @property
    def bytes(self) -> int:
        return sum(each.bytes for each in self.archives)


def maintenance_status(site: Site) -> MaintenanceStatus:
    """How fit the archives are."""
    last = activity.last_commits_of_flows(site.catalog)
    done = [(flow, does, last.get(flow)) for flow, does in FLOW_TEXTS.items()]
    return MaintenanceStatus(
        done, archive_usage(site), leases.list_holders(site.catalog), activity.living_pins(site.catalog)
    )


def archive_usage(site: Site) -> list[ArchiveUsage]:
    """The size of each stream's archive and of each query's results."""
    sizes, old = activity.archive_sizes(site.catalog), activity.superseded_sizes(site.catalog)
    due = {each.stream.name for each in stream_statuses(site) if each.compaction_due}
    names = [(each.stream.name, each.stream_id, False) for each in streams.stream_states(site.catalog)]
    names += [(name, each.stream_id, True) for name, each in read_archives(site.catalog).items()]
    found = []
    for name, stream_id, query in names:
        roles = [role for of, role in sizes if of == stream_id]
        live = _total_sizes(sizes[stream_id, role] for role in roles if role in _LIVE_ROLES)
        beside = _total_sizes(sizes[stream_id, role] for role in roles if role not in _LIVE_ROLES)
        found.append(ArchiveUsage(name, query, live, beside, old.get(stream_id, (0, 0)), not query and name in due))
    return sorted(found, key=lambda each: -each.bytes)


_LIVE_ROLES = (Role.BASE, Role.OPEN, Role.TIP)


def _total_sizes(some: Iterable[ArchiveSize]) -> ArchiveSize:
    found = list(some)
    return ArchiveSize(
        sum(each.buckets for each in found),
        sum(each.rows for each in found),
        sum(each.bytes for each in found),
        sum(each.inline for each in found),
    )
