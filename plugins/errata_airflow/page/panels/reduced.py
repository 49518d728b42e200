"""Panel of reduced archives: the smaller versions of each stream, where they lie, who asked for what, and what vacuum
did and would do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from errata.model.reduction import rate_text
from errata.model.time import EVERYTHING, Interval
from errata.read.vacuum_wording import copy_lines, purge_line
from errata.reduce.overview import ORIGINALS, ReductionOverview, VersionSize, reduction_overviews
from errata_airflow.page.panel import Page, Panel

PLAIN = (
    "Smaller versions of archives: samples that are kept beside the rows, and summaries. A query that asks for a part "
    "of the rows reads these, and its answer says so; exact answers never do."
)


@dataclass(frozen=True, slots=True)
class VersionLane:
    """One version of a stream's archive, along the stream's axis."""

    name: str
    version: VersionSize
    share: float | None
    """Its bytes as a share of those of the originals."""


@dataclass(frozen=True, slots=True)
class ReducedStream:
    """What the page shows of a stream."""

    overview: ReductionOverview
    lanes: Sequence[VersionLane]
    low: int
    high: int
    planned: Sequence[str]
    """What the next vacuum would do, in words."""

    @property
    def saved(self) -> int:
        """Bytes that readers were spared, about: what exact readings of the same places would read of the originals
        that there are now, less what was read."""
        read = sum(each.from_copies + each.from_originals for each in self.overview.asked)
        exact = sum(each.all_readers * self._original_bytes(each.asked.interval) for each in self.overview.asked)
        return max(0, exact - read)

    def _original_bytes(self, interval: Interval) -> int:
        """Bytes of the originals that have places of an interval, as if all buckets were of one size."""
        found = 0
        for each in self.overview.versions:
            if each.kind == ORIGINALS and each.spans:
                met = sum(interval == EVERYTHING or interval.meets(*span) for span in each.spans)
                found += each.bytes * met // len(each.spans)
        return found


def _reduced_stream(of: ReductionOverview) -> ReducedStream:
    whole = sum(each.bytes for each in of.versions if each.kind == ORIGINALS)
    spans = [span for each in of.versions for span in each.spans]
    lanes = [
        VersionLane(
            each.kind if each.rate is None or each.kind == ORIGINALS else f"{each.kind} at {rate_text(each.rate)}",
            each,
            each.bytes / whole if whole else None,
        )
        for each in of.versions
    ]
    planned = list(copy_lines(of.next_copies, plan=True))
    if of.next_purge.purged_to is not None:
        planned.append(purge_line(of.next_purge, plan=True))
    low, high = min((low for low, _ in spans), default=0), max((high for _, high in spans), default=0)
    return ReducedStream(of, lanes, low, high, planned)


PANEL = Panel(
    25,
    Page(
        "reduced",
        "Reduced archives",
        PLAIN,
        lambda site, _: [_reduced_stream(each) for each in reduction_overviews(site)],
        "reduced.html",
    ),
)
