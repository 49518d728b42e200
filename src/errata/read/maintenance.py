"""What is in quarantine: rows and landed files, why each is there, and how many of a stream."""

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
"""So many rows are shown; the command line tells of all."""


@dataclass(frozen=True, slots=True)
class QuarantineContents:
    """Rows and files in quarantine, the newest first."""

    stream: str | None
    """Only of this stream; None: of all."""
    counts: Mapping[str, int]
    """How many rows of each stream."""
    rows: Sequence[QuarantineRow]
    file_counts: Mapping[str, int]
    """How many files of each stream."""
    files: Sequence[QuarantineFile]

    @property
    def total(self) -> int:
        return sum(self.counts.values())

    @property
    def all_counts(self) -> Mapping[str, int]:
        """How many rows and files of each stream that has any."""
        return dict(Counter(self.counts) + Counter(self.file_counts))

    @property
    def of_these(self) -> int:
        """How many there are where only those of one stream are shown."""
        return self.total if self.stream is None else self.counts.get(self.stream, 0)

    @property
    def kinds(self) -> list[tuple[str, int]]:
        """Why the rows shown are here, what is most frequent first."""
        return Counter(_reason_kind(each.row.reason) for each in self.rows).most_common(5)


def quarantine_contents(site: Site, stream: str | None = None, most: int = MAX_QUARANTINE_ROWS) -> QuarantineContents:
    """What is in quarantine, of all streams or of one."""
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


def _reason_kind(reason: str) -> str:
    """What reasons of one kind have in common: what stands before the particulars."""
    return reason.partition(":")[0]


# What keeps the archives fit: what ran last, what is due, who is at work, and how much room all takes.

FLOW_TEXTS: Mapping[str, str] = {
    "append": "takes in what has landed",
    "run": "takes the answers further",
    "revise": "makes corrections part of history",
    "sweep": "corrects published results",
    "compact": "works corrections into buckets, and puts small ones together",
    "age-out": "drops what is past its retention",
    "vacuum": "removes files that nobody needs any more",
    "doctor": "mends what it has found wrong",
}
"""What each flow that commits does."""


@dataclass(frozen=True, slots=True)
class ArchiveUsage:
    """How much an archive holds."""

    name: str
    query: bool
    live: ArchiveSize
    """What counts now."""
    overlays: ArchiveSize
    """Corrections beside it: of a query, the results that were taken back, and what was told of changes."""
    superseded: tuple[int, int]
    """Buckets kept for readers of old states, and their bytes."""
    due: bool = False
    """Whether compaction is worth it."""

    @property
    def bytes(self) -> int:
        return self.live.bytes + self.overlays.bytes + self.superseded[1]


@dataclass(frozen=True, slots=True)
class MaintenanceStatus:
    """How fit the archives are."""

    last: Sequence[tuple[str, str, Commit | None]]
    """Of each flow what it does, and its last commit."""
    archives: Sequence[ArchiveUsage]
    """The largest first."""
    leases: Sequence[LeaseHolder]
    pins: Sequence[PinRecord]

    @property
    def due(self) -> list[str]:
        """The streams of which compaction is due."""
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
    """How much each stream and the results of each query hold."""
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
