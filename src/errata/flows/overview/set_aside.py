"""What is in quarantine: rows and landed files, why each is there, and how many of a stream."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from errata.catalog import held_files, quarantine, streams
from errata.catalog.held_files import HeldFile
from errata.catalog.quarantine import Held
from errata.errors import unknown
from errata.flows.site import Site

MOST = 200
"""So many rows are shown; the command line tells of all."""


@dataclass(frozen=True, slots=True)
class SetAside:
    """Rows and files in quarantine, the newest first."""

    stream: str | None
    """Only of this stream; None: of all."""
    counts: Mapping[str, int]
    """How many rows of each stream."""
    rows: Sequence[Held]
    file_counts: Mapping[str, int]
    """How many files of each stream."""
    files: Sequence[HeldFile]

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
        return Counter(_kind(each.row.reason) for each in self.rows).most_common(5)


def set_aside(site: Site, stream: str | None = None, most: int = MOST) -> SetAside:
    """What is in quarantine, of all streams or of one."""
    if stream is not None:
        there = {each.stream.name for each in streams.standings(site.catalog)}
        if stream not in there:
            raise unknown("stream", stream, there)
    counts, rows = quarantine.counts(site.catalog), quarantine.held(site.catalog, stream=stream, last=most)
    files = held_files.held(site.catalog, stream=stream)[-most:]
    return SetAside(stream, counts, rows[::-1], held_files.counts(site.catalog), files[::-1])


def _kind(reason: str) -> str:
    """What reasons of one kind have in common: what stands before the particulars."""
    return reason.partition(":")[0]
