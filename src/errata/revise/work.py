"""What revisions invalidate of a query's results, and what has to be read to work it out again: the replay sequence
(replay-revisions, 2008, section 3)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from errata.evaluate.ageing import AgedTo
from errata.evaluate.needs import KEPT, needs
from errata.evaluate.reads import Reach
from errata.evaluate.route import Kind, Route
from errata.evaluate.sameness import Flags
from errata.language.lineage import Axis, Change, Reads, Region, backward, replay
from errata.language.lineage.reach import axis, instants, lags
from errata.language.nodes import Scan, scans
from errata.language.plan import Plan
from errata.model.evaluation import Refusal, Step
from errata.model.interval import HIGHEST, LOWEST, Interval
from errata.model.results import VS
from errata.revise.regions import disjoint, joined
from errata.revise.revised import GROUPS, Cluster, Revised, clusters


@dataclass(frozen=True, slots=True)
class Answered:
    """What of a query is published: where its results begin and end, and how they are kept."""

    plan: Plan
    """Rewritten."""
    route: Route
    begins: int
    """Nothing is answered of earlier instants."""
    aged_to: int | None
    """What is answered of earlier instants is no longer whole."""
    until: int
    """The last instant that is answered."""
    by_key: bool = False
    """Whether regions are told by columns of the key alone, since that is what is known of results beside them."""

    @property
    def axis(self) -> Axis:
        """How regions of the results lie in time. Where results replace each other, they are told by instants."""
        return Axis.INSTANT if self.route.covering else axis(self.plan)

    @property
    def from_its_beginning(self) -> bool:
        """Whether nothing is published of instants before those that are answered; results that last for ever are, from
        whenever they began."""
        return self.route.covering or self.route.kind is Kind.APPENDED

    @property
    def span(self) -> Interval:
        """Where regions can lie."""
        low = self.begins if self.from_its_beginning and self.axis is Axis.INSTANT else LOWEST
        low = low if self.aged_to is None else max(low, self.aged_to)
        return Interval(low, HIGHEST if self.axis is Axis.INSTANT else self.until + 1)


@dataclass(frozen=True, slots=True)
class Work:
    """What there is to be worked out again."""

    regions: tuple[Region, ...]
    """Of the results, by the names of the plan."""
    reads: Mapping[str, tuple[Reach, ...]]
    """Of each source, what makes the results in the regions."""
    refused: tuple[Refusal, ...] = ()
    least: Work | None = None
    """If more is worked out again than has to be: what has to be."""
    stored: Stored | None = None
    """Where stored lineage tells a part of it."""


@dataclass(frozen=True, slots=True)
class Stored:
    """What stored lineage tells of results that changes in place touch."""

    rest: Work
    """What the other changes take, as derived lineage tells it."""
    rows: pa.Table
    """The lineage of the results."""
    regions: tuple[Region, ...]
    """One for each result."""
    reads: Mapping[str, tuple[Reach, ...]]
    """Of each source the rows that the results were made of."""
    changes: tuple[tuple[Cluster, Flags], ...]
    """The changes, and of the results those that each of them touches."""


def minimal(of: Answered, revised: Iterable[Revised], aged_to: AgedTo) -> Work:
    """What makes the results that revisions touch, as little as lineage can tell."""
    return following(of, [cluster for each in revised for cluster in clusters(each)], aged_to)


def following(of: Answered, changes: Iterable[Cluster], aged_to: AgedTo) -> Work:
    """What makes the results that changes touch."""
    regions, reads, refused = [], [], []
    for cluster in changes:
        found = list(_touched(of, cluster))
        if too_old := _too_old(of.plan, [needed for _, needed in found], aged_to):
            refused.append(refusal(cluster, too_old))
            continue
        regions += [region for region, _ in found]
        reads += [needed for _, needed in found]
    # No wider than what is read for them: of regions that overlap, each is worked out by itself.
    return Work(tuple(joined(regions)), _gathered(of.plan, reads), tuple(as_one(refused)))


def everything(of: Answered, work: Work, aged_to: AgedTo, *, narrowed: bool = True) -> Work:
    """All that makes the results there are, of the groups that are touched if they are few; `work` is the minimum, and
    all there is where rows have been aged out that results are made of."""
    if not work.regions or any(place is not None for place in aged_to.values()):
        return work
    timed = lags(of.plan)
    groups = [{name: value for name, value in each.values.items() if name not in timed} for each in work.regions]
    if not narrowed or len(groups) > GROUPS or not all(groups):
        groups = [{}]
    regions = disjoint([Region(of.axis, of.span, values) for values in groups])
    reads = [backward(of.plan, _as_plan_has_it(of, each)) for each in regions]
    return Work(tuple(regions), _gathered(of.plan, reads), work.refused, work)


def between(of: Answered, interval: Interval, aged_to: AgedTo) -> Work:
    """What makes the results of an interval."""
    region = as_kept(of, Region(of.axis, interval))
    if region.empty:
        return Work((), {})
    reads = backward(of.plan, _as_plan_has_it(of, region))
    if why := _too_old(of.plan, [reads], aged_to):
        return Work((), {}, (Refusal("", 0, 0, 0, why),))
    return Work((region,), _gathered(of.plan, [reads]))


def touches_state(of: Answered, revised: Iterable[Revised]) -> bool:
    """Whether what the strategy keeps is made of rows that have been revised."""
    if not of.route.keeps_state:
        return False
    kept = needs(of.plan, of.route, Step(of.until, of.until), state_lost=True)[KEPT]
    return any(_has_begun(each, kept.get(each.source), of.until) for each in revised)


def _has_begun(revised: Revised, reach: Reach | None, until: int) -> bool:
    """Whether rows that are kept, or have a say in them, are among those that have been revised."""
    if reach is None or reach.interval.empty:
        return False
    begins = revised.rows[VS]
    start = LOWEST if reach.axis is Axis.INSTANT else reach.interval.start
    inside = pc.and_(pc.greater_equal(begins, start), pc.less(begins, min(reach.interval.end, until)))
    return bool(pc.any(inside).as_py())


def rereading(of: Answered, regions: Iterable[Region], aged_to: AgedTo) -> Work:
    """What makes the results of some regions, which lie apart."""
    known = tuple(regions)
    reads = [backward(of.plan, _as_plan_has_it(of, each)) for each in known]
    if why := _too_old(of.plan, reads, aged_to):
        return Work((), {}, (Refusal("", 0, 0, len(known), why),))
    return Work(known, _gathered(of.plan, reads))


def _touched(of: Answered, cluster: Cluster) -> Iterator[tuple[Region, Reads]]:
    """The regions that a change touches through each scan of its source, and what makes them."""
    for place, scan in enumerate(scans(of.plan)):
        if scan.source.name != cluster.source:
            continue
        values = {scan.column(name): value for name, value in cluster.values.items()}
        found = replay(of.plan, Change(place, cluster.interval, cluster.until, values), whole=True)
        if found is None:
            continue
        region = as_kept(of, found.touched)
        if region.empty:
            continue
        if of.by_key:
            region = replace(region, values={name: each for name, each in region.values.items() if name in of.plan.key})
        whole = region == found.touched
        yield region, found.reads if whole else backward(of.plan, _as_plan_has_it(of, region))


def as_kept(of: Answered, region: Region) -> Region:
    """A region of the plan's rows as the results are kept, as far as something is published of it."""
    if region.axis is not of.axis:
        region = Region(of.axis, instants(of.plan, region), region.values)
    span = of.span
    interval = Interval(max(region.interval.start, span.start), min(region.interval.end, span.end))
    if interval.start > of.until:
        interval = Interval(0, 0)
    elif interval.end > of.until + 1:
        # Nothing is published of later instants, but what is foreseen of them.
        interval = Interval(interval.start, span.end)
    return replace(region, interval=interval)


def _as_plan_has_it(of: Answered, region: Region) -> Region:
    """A region of the results for the plan; nothing after the last instant is worked out."""
    return replace(region, interval=Interval(region.interval.start, min(region.interval.end, of.until + 1)))


def _too_old(plan: Plan, reads: Sequence[Reads], aged_to: AgedTo) -> str | None:
    """Why a region cannot be worked out again: rows that it is made of are no longer there."""
    for found in reads:
        for place, region in found.items():
            name = scans(plan)[place].source.name
            gone = aged_to.get(name)
            if gone is not None and not region.empty and region.interval.start < gone:
                return f"the results are made of rows of {name} that have been aged out"
    return None


def refusal(cluster: Cluster, why: str) -> Refusal:
    return Refusal(cluster.source, cluster.first, cluster.last, cluster.count, why)


def as_one(refused: Iterable[Refusal]) -> Iterator[Refusal]:
    """Refusals for one reason as one."""
    by_reason: dict[tuple[str, str], Refusal] = {}
    for each in refused:
        known = by_reason.get((each.source, each.reason))
        numbers = (each.first, each.last, each.count)
        if known is not None:
            # The version that was and the one that is are of one revision.
            count = max(known.count, each.count) if known.last == each.last else known.count + each.count
            numbers = (min(known.first, each.first), max(known.last, each.last), count)
        by_reason[each.source, each.reason] = Refusal(each.source, *numbers, each.reason)
    yield from by_reason.values()


def _gathered(plan: Plan, reads: Iterable[Reads]) -> dict[str, tuple[Reach, ...]]:
    """What is read of each source, whatever for."""
    read = scans(plan)
    found: dict[str, list[Reach]] = {scan.source.name: [] for scan in read}
    for some in reads:
        for place, region in some.items():
            if not region.empty:
                found[read[place].source.name].append(_reach(read[place], region))
    return {name: tuple(some) for name, some in found.items()}


def _reach(scan: Scan, region: Region) -> Reach:
    values = {scan.of_source(name): value for name, value in region.values.items()}
    return Reach(region.axis, region.interval, values)
