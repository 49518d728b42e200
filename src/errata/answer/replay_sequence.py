"""Which results revisions invalidate, and which source rows have to be read to recompute them: the replay sequence
(replay-revisions, 2008, section 3).

Derived lineage follows each cluster of revisions forward through the plan to an extent of the results (a region), and
each region backward to the extents of all sources that make it. A cluster whose region is made of rows that have been
aged out is refused whole. Pure: it takes the plan and the clusters, and reads no rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from errata.answer.extents import disjoint_extents, merge_extents
from errata.answer.row_comparison import BoolArray
from errata.answer.source_revisions import MAX_GROUPS, RevisionCluster, SourceRevisions, cluster_revisions
from errata.language.lineage import InputChange, ScanExtents, backward, replay_scope
from errata.language.lineage.extents import extent_axis, instants_of, time_lags
from errata.language.nodes import scans_of
from errata.language.plan import Plan
from errata.language.route import Route, RouteKind
from errata.language.source_reads import STATE_SOURCE, AgeLimits, reads_of_step
from errata.model.commit import EvaluationSpan, RefusedRevisions
from errata.model.extent import Extent, ExtentAxis
from errata.model.results import VS
from errata.model.time import HIGHEST, LOWEST, Interval


@dataclass(frozen=True, slots=True)
class ResultScope:
    """Which results of a query are published: where they begin and end, and how they are kept."""

    plan: Plan
    """Rewritten."""
    route: Route
    begins: int
    """The first instant that is answered."""
    aged_to: int | None
    """Results of earlier instants have been aged out in part."""
    until: int
    """The last instant that is answered."""
    by_key: bool = False
    """Whether regions have constants of key columns alone, since stored lineage has no other columns."""

    @property
    def axis(self) -> ExtentAxis:
        """By what regions of the results lie in time: by instants where results replace each other."""
        return ExtentAxis.INSTANT if self.route.covering else extent_axis(self.plan)

    @property
    def from_its_beginning(self) -> bool:
        """Whether no result is published that ended before the first instant. Results that last for ever are, wherever
        they began."""
        return self.route.covering or self.route.kind is RouteKind.APPENDED

    @property
    def span(self) -> Interval:
        """Where regions can lie."""
        low = self.begins if self.from_its_beginning and self.axis is ExtentAxis.INSTANT else LOWEST
        low = low if self.aged_to is None else max(low, self.aged_to)
        return Interval(low, HIGHEST if self.axis is ExtentAxis.INSTANT else self.until + 1)


@dataclass(frozen=True, slots=True)
class ReplaySequence:
    """Results that are recomputed, and the rows that are read for it."""

    regions: tuple[Extent, ...]
    """Extents of the results, by the names of the plan's fields."""
    reads: Mapping[str, tuple[Extent, ...]]
    """For each source the extents of the rows that make the results in the regions."""
    refused: tuple[RefusedRevisions, ...] = ()
    least: ReplaySequence | None = None
    """The minimal sequence, where more is recomputed than has to be."""
    stored: StoredLineageMatch | None = None
    """The part that stored lineage tells."""


@dataclass(frozen=True, slots=True)
class StoredLineageMatch:
    """Results that revisions in place touch, told by stored lineage."""

    rest: ReplaySequence
    """The sequence for all other revisions, by derived lineage."""
    rows: pa.Table
    """The lineage of the results."""
    regions: tuple[Extent, ...]
    """One for each result."""
    reads: Mapping[str, tuple[Extent, ...]]
    """For each source the extents of the rows that the results were made of."""
    changes: tuple[tuple[RevisionCluster, BoolArray], ...]
    """The clusters of revisions, each with flags for the results that it touches."""


def minimal_sequence(of: ResultScope, revised: Iterable[SourceRevisions], aged_to: AgeLimits) -> ReplaySequence:
    """The sequence for revisions, as small as derived lineage can tell."""
    return sequence_for_changes(of, [cluster for each in revised for cluster in cluster_revisions(each)], aged_to)


def sequence_for_changes(of: ResultScope, changes: Iterable[RevisionCluster], aged_to: AgeLimits) -> ReplaySequence:
    """The sequence for clusters of revisions."""
    regions, reads, refused = [], [], []
    for cluster in changes:
        found = list(_touched_extents(of, cluster))
        if too_old := _why_aged_out(of.plan, [needed for _, needed in found], aged_to):
            refused.append(cluster_refusal(cluster, too_old))
            continue
        regions += [region for region, _ in found]
        reads += [needed for _, needed in found]
    # Regions that overlap are not widened to disjoint ones: no more would be read for these.
    return ReplaySequence(
        tuple(merge_extents(regions)), _reads_by_source(of.plan, reads), tuple(merge_refusals(refused))
    )


def full_sequence(
    of: ResultScope, work: ReplaySequence, aged_to: AgeLimits, *, narrowed: bool = True
) -> ReplaySequence:
    """The sequence for all results, or for those of the groups that are touched where these are few (`narrowed`).
    `work` is the minimal sequence; it is returned where rows that results are made of have been aged out."""
    if not work.regions or any(place is not None for place in aged_to.values()):
        return work
    timed = time_lags(of.plan)
    groups = [{name: value for name, value in each.values.items() if name not in timed} for each in work.regions]
    if not narrowed or len(groups) > MAX_GROUPS or not all(groups):
        groups = [{}]
    regions = disjoint_extents([Extent(of.axis, of.span, values) for values in groups])
    reads = [backward(of.plan, _extent_for_plan(of, each)) for each in regions]
    return ReplaySequence(tuple(regions), _reads_by_source(of.plan, reads), work.refused, work)


def sequence_for_interval(of: ResultScope, interval: Interval, aged_to: AgeLimits) -> ReplaySequence:
    """The sequence for all results of an interval."""
    region = extent_in_scope(of, Extent(of.axis, interval))
    if region.empty:
        return ReplaySequence((), {})
    reads = backward(of.plan, _extent_for_plan(of, region))
    if why := _why_aged_out(of.plan, [reads], aged_to):
        return ReplaySequence((), {}, (RefusedRevisions("", 0, 0, 0, why),))
    return ReplaySequence((region,), _reads_by_source(of.plan, [reads]))


def touches_kept_state(of: ResultScope, revised: Iterable[SourceRevisions]) -> bool:
    """Whether the route's state is made of rows that have been revised."""
    if not of.route.keeps_state:
        return False
    kept = reads_of_step(of.plan, of.route, EvaluationSpan(of.until, of.until), state_lost=True)[STATE_SOURCE]
    return any(_reaches_kept_rows(each, kept.get(each.source), of.until) for each in revised)


def _reaches_kept_rows(revised: SourceRevisions, extent: Extent | None, until: int) -> bool:
    """Whether revised rows lie in the extent that the state is made of."""
    if extent is None or extent.interval.empty:
        return False
    begins = revised.rows[VS]
    start = LOWEST if extent.axis is ExtentAxis.INSTANT else extent.interval.start
    inside = pc.and_(pc.greater_equal(begins, start), pc.less(begins, min(extent.interval.end, until)))
    return bool(pc.any(inside).as_py())


def sequence_for_extents(of: ResultScope, regions: Iterable[Extent], aged_to: AgeLimits) -> ReplaySequence:
    """The sequence for some regions, which lie apart."""
    known = tuple(regions)
    reads = [backward(of.plan, _extent_for_plan(of, each)) for each in known]
    if why := _why_aged_out(of.plan, reads, aged_to):
        return ReplaySequence((), {}, (RefusedRevisions("", 0, 0, len(known), why),))
    return ReplaySequence(known, _reads_by_source(of.plan, reads))


def _touched_extents(of: ResultScope, cluster: RevisionCluster) -> Iterator[tuple[Extent, ScanExtents]]:
    """The regions that a cluster touches through each scan of its source, each with what makes it."""
    for place, scan in enumerate(scans_of(of.plan)):
        if scan.source.name != cluster.source:
            continue
        found = replay_scope(of.plan, InputChange(place, cluster.rows.renamed(scan.column)), whole=True)
        if found is None:
            continue
        region = extent_in_scope(of, found.touched)
        if region.empty:
            continue
        if of.by_key:
            region = replace(region, values={name: each for name, each in region.values.items() if name in of.plan.key})
        whole = region == found.touched
        yield region, found.reads if whole else backward(of.plan, _extent_for_plan(of, region))


def extent_in_scope(of: ResultScope, region: Extent) -> Extent:
    """A region of the plan's rows by the axis of the results, clipped to what is published."""
    if region.axis is not of.axis:
        region = Extent(of.axis, instants_of(of.plan, region), region.values)
    span = of.span
    interval = region.interval & span
    if interval.start > of.until:
        interval = Interval(0, 0)
    elif interval.end > of.until + 1:
        # No result begins later, but ends that are published may lie there.
        interval = Interval(interval.start, span.end)
    return replace(region, interval=interval)


def _extent_for_plan(of: ResultScope, region: Extent) -> Extent:
    """A region clipped to the last instant that is answered, for the plan."""
    return region.clipped(Interval(end=of.until + 1))


def _why_aged_out(plan: Plan, reads: Sequence[ScanExtents], aged_to: AgeLimits) -> str | None:
    """Why a region cannot be recomputed: rows that it is made of have been aged out."""
    for found in reads:
        for place, region in found.items():
            name = scans_of(plan)[place].source.name
            gone = aged_to.get(name)
            if gone is not None and not region.empty and region.interval.start < gone:
                return f"the results are made of rows of {name} that have been aged out"
    return None


def cluster_refusal(cluster: RevisionCluster, why: str) -> RefusedRevisions:
    return RefusedRevisions(cluster.source, cluster.first, cluster.last, cluster.count, why)


def merge_refusals(refused: Iterable[RefusedRevisions]) -> Iterator[RefusedRevisions]:
    """Refusals of one source for one reason, merged."""
    by_reason: dict[tuple[str, str], RefusedRevisions] = {}
    for each in refused:
        known = by_reason.get((each.source, each.reason))
        numbers = (each.first, each.last, each.count)
        if known is not None:
            # The former version and the current one are of one revision, and counted once.
            count = max(known.count, each.count) if known.last == each.last else known.count + each.count
            numbers = (min(known.first, each.first), max(known.last, each.last), count)
        by_reason[each.source, each.reason] = RefusedRevisions(each.source, *numbers, each.reason)
    yield from by_reason.values()


def _reads_by_source(plan: Plan, reads: Iterable[ScanExtents]) -> dict[str, tuple[Extent, ...]]:
    """For each source all extents that are read."""
    read = scans_of(plan)
    found: dict[str, list[Extent]] = {scan.source.name: [] for scan in read}
    for some in reads:
        for place, region in some.items():
            if not region.empty:
                found[read[place].source.name].append(region.renamed(read[place].of_source))
    return {name: tuple(some) for name, some in found.items()}
