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
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa

from errata.archive.upkeep import vacuum as removal
from errata.archive.upkeep.vacuum import DEFAULT_GRACE, VacuumReport
from errata.catalog import buckets, reduction_requests, streams
from errata.catalog.streams import StreamState
from errata.catalog.vacuum import RecordCounts
from errata.declare.site import ProgressCallback, Site
from errata.errors import ErrataError
from errata.model.bucket import Role
from errata.reduce import requests
from errata.reduce.copy_plan import CopyReport, plan_copies, planned_report
from errata.reduce.purge import PurgeReport, plan_purge, purge_originals

if TYPE_CHECKING:
    from errata.reduce.summary_builds import SummaryBuildReport

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
    for state in _live_streams(site, names):
        name = state.stream.name
        copies = _tried(report, name, partial(_keep_copies, site, name, on_step))
        summaries = _tried(report, name, partial(_keep_summaries, site, state, on_step))
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
    for state in _live_streams(site, names):
        name = state.stream.name
        on_step(f"planning copies of {name}")
        copies, purged = planned_report(plan_copies(site, name)), plan_purge(site, name)
        summaries = _planned_summaries(site, state)
        report.copies += [copies] if copies.changes else []
        report.summaries += [summaries] if summaries and (summaries.built or summaries.dropped) else []
        report.purged += [purged] if purged.buckets else []
    report.removed = removal.plan_vacuum(site, names, grace, on_step)
    return report


# What reads buckets imports PySpark, which takes a second. Where there is nothing to do, as with most streams, the
# catalog alone says so.


def _keep_copies(site: Site, name: str, on_step: ProgressCallback) -> CopyReport | None:
    """Build and drop copies, if there is something to do; readers are served in any case."""
    plan = plan_copies(site, name)
    if not plan.steps:
        requests.settle(site.catalog, plan.state.stream_id, plan.asked)
        return None
    from errata.reduce.copies import vacuum_copies  # noqa: PLC0415

    return vacuum_copies(site, name, on_step)


def _keep_summaries(site: Site, state: StreamState, on_step: ProgressCallback) -> SummaryBuildReport | None:
    """Build and drop parts of summaries, if there are summaries."""
    if not _has_summaries(site, state):
        return None
    from errata.reduce.summary_builds import build_summaries  # noqa: PLC0415

    return build_summaries(site, state.stream.name, on_step)


def _planned_summaries(site: Site, state: StreamState) -> SummaryBuildReport | None:
    """What vacuum would do for the summaries of a stream."""
    if not _has_summaries(site, state):
        return None
    from errata.reduce.summary_builds import SummaryBuildReport, plan_summaries  # noqa: PLC0415

    plan = plan_summaries(site, state.stream.name)
    return SummaryBuildReport(
        state.stream.name,
        built=sum(len(each.missing) for each in plan.work),
        bytes_read=sum(each.bytes_read for each in plan.work),
        dropped=len(plan.undeclared),
    )


def _has_summaries(site: Site, state: StreamState) -> bool:
    at = (site.catalog, state.stream_id, state.changed_in)
    return bool(state.stream.reduced.summaries or buckets.buckets_of_roles(*at, (Role.SUMMARY,)))


def _live_streams(site: Site, names: Sequence[str]) -> list[StreamState]:
    """The streams to look at; archives of results, and streams that have ended, have no copies."""
    return [each for each in streams.stream_states(site.catalog) if not names or each.stream.name in names]


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
