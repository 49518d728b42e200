"""Vacuum of everything: copies and summaries are built and dropped, originals purged, and then what nobody needs any
more is removed from the index and from the disk.

    1. copies      `reduce.copies`: what is declared, and what readers asked for
    2. summaries   `reduce.summary_builds`
    3. purge       `reduce.purge`, which needs the copies
    4. removal     `archive.upkeep.vacuum`, also of what the first three left behind

Each stream is done by itself: one whose bucket cannot be read does not keep the others, nor the removal, from being
done.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

import pyarrow as pa

from errata.archive.upkeep import vacuum as removal
from errata.archive.upkeep.vacuum import DEFAULT_GRACE, VacuumReport
from errata.catalog import reduction_requests, streams
from errata.catalog.vacuum import RecordCounts
from errata.declare.site import ProgressCallback, Site
from errata.errors import ErrataError
from errata.reduce.copies import vacuum_copies
from errata.reduce.copy_plan import CopyReport, plan_copies, planned_report
from errata.reduce.purge import PurgeReport, plan_purge, purge_originals
from errata.reduce.summary_builds import SummaryBuildReport, build_summaries, plan_summaries

T = TypeVar("T")

NOTHING_REMOVED = VacuumReport((), (), 0, 0, 0, RecordCounts(), ())


@dataclass
class FullVacuumReport:
    """What a vacuum has done, or what its plan would do."""

    copies: list[CopyReport] = field(default_factory=list)
    """Of each stream whose copies change."""
    summaries: list[SummaryBuildReport] = field(default_factory=list)
    purged: list[PurgeReport] = field(default_factory=list)
    removed: VacuumReport = NOTHING_REMOVED
    errors: list[str] = field(default_factory=list)
    """What could not be done, by stream; the rest was."""

    @property
    def failed(self) -> list[str]:
        """All that failed."""
        return [*self.errors, *(f"cannot be removed: {line}" for line in self.removed.failed)]


def vacuum_everything(
    site: Site, names: Sequence[str] = (), grace: int = DEFAULT_GRACE, on_step: ProgressCallback = lambda _: None
) -> FullVacuumReport:
    """Vacuum the archives named, or all."""
    report = FullVacuumReport()
    for name in _live_streams(site, names):
        copies = _tried(report, name, partial(vacuum_copies, site, name, on_step))
        summaries = _tried(report, name, partial(build_summaries, site, name, on_step))
        purged = _tried(report, name, partial(purge_originals, site, name, on_step))
        report.copies += [copies] if copies and copies.commits else []
        report.summaries += [summaries] if summaries and summaries.commits else []
        report.purged += [purged] if purged and purged.commits else []
    if not names:
        reduction_requests.forget_requests(site.catalog)
    report.removed = removal.run_vacuum(site, names, grace, on_step)
    return report


def plan_everything(
    site: Site, names: Sequence[str] = (), grace: int = DEFAULT_GRACE, on_step: ProgressCallback = lambda _: None
) -> FullVacuumReport:
    """What vacuum would do now; nothing is changed. What it would remove is as of now: what it would first replace is
    not among it."""
    report = FullVacuumReport()
    for name in _live_streams(site, names):
        on_step(f"planning copies of {name}")
        copies, purged = planned_report(plan_copies(site, name)), plan_purge(site, name)
        summaries = planned_summaries(site, name)
        report.copies += [copies] if copies.changes else []
        report.summaries += [summaries] if summaries.built or summaries.dropped else []
        report.purged += [purged] if purged.buckets else []
    report.removed = removal.plan_vacuum(site, names, grace, on_step)
    return report


def planned_summaries(site: Site, name: str) -> SummaryBuildReport:
    """What vacuum would do for the summaries of a stream."""
    plan = plan_summaries(site, name)
    return SummaryBuildReport(
        name,
        built=sum(len(each.missing) for each in plan.work),
        bytes_read=sum(each.bytes_read for each in plan.work),
        dropped=len(plan.undeclared),
    )


def _live_streams(site: Site, names: Sequence[str]) -> list[str]:
    """The streams to look at; archives of results, and streams that have ended, have no copies."""
    there = [each.stream.name for each in streams.stream_states(site.catalog)]
    return [name for name in there if not names or name in names]


def _tried(report: FullVacuumReport, name: str, work: Callable[[], T]) -> T | None:
    """What a part of the work returns; None if it failed, which is noted."""
    try:
        return work()
    except ErrataError as error:
        report.errors.append(f"{name}: {error}")
    except (FileNotFoundError, pa.ArrowInvalid) as error:
        how = "`errata doctor` tells what else is damaged, and what can be done"
        report.errors.append(f"{name}: {ErrataError('a bucket cannot be read', why=str(error), how=how)}")
    return None
