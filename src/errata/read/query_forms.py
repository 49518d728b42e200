"""The forms that a query has had: the plan of each, and the extents of its inputs that make a result of it. Each
form is planned once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from errata.catalog import queries, streams
from errata.catalog.database import Catalog
from errata.catalog.result_archives import ResultArchive
from errata.declare.query_plans import read_plans, with_inputs
from errata.language.lineage import InputChange, backward, forward
from errata.language.lineage.constants import merged_values
from errata.language.lineage.extents import extent_axis, instants_of, normalized_extent
from errata.language.nodes import Scan, scans_of
from errata.language.plan import Plan
from errata.language.rewrite import rewritten_plan
from errata.language.route import Route, choose_route
from errata.model.extent import Extent, ExtentAxis, Value
from errata.model.time import EVERYTHING, Interval


@dataclass(frozen=True)
class QueryForm:
    """A query as it was when some results of it were published."""

    of: ResultArchive
    """The archive of those results."""
    plan: Plan
    rewritten: Plan
    route: Route

    @property
    def by_beginnings(self) -> bool:
        """Whether a result is identified by when it begins, and not by when it counts."""
        return not self.route.covering and extent_axis(self.rewritten) is ExtentAxis.START

    @property
    def fields(self) -> dict[str, str]:
        """By field of the plan, the name of its column in the archive."""
        return dict(zip((each.name for each in self.plan.fields), self.of.shape.names, strict=True))

    @property
    def scans(self) -> tuple[Scan, ...]:
        """Its scans; a source may be scanned more than once."""
        return tuple(scans_of(self.rewritten))

    @property
    def sources(self) -> list[str]:
        """The streams, relations and queries that it reads directly."""
        return list(dict.fromkeys(scan.source.name for scan in self.scans))

    def region(self, key: Mapping[str, Value], vs: int, at: int) -> Extent:
        """The extent of a result that began at `vs` and counts at `at`; the key is given by column of the archive."""
        values = self._values(key)
        if self.by_beginnings:
            return Extent(ExtentAxis.START, Interval(vs, vs + 1), values)
        return Extent(ExtentAxis.INSTANT, Interval(at, at + 1), values)

    def beginnings(self, key: Mapping[str, Value]) -> Interval:
        """The interval in which results of a key can begin."""
        if not self.by_beginnings:
            return EVERYTHING
        region = normalized_extent(self.rewritten, Extent(ExtentAxis.START, EVERYTHING, self._values(key)))
        return Interval(0, 0) if region is None else region.interval

    def reads(self, region: Extent) -> dict[str, list[Extent]]:
        """The extents of each source whose rows make the results of an extent."""
        found: dict[str, list[Extent]] = {name: [] for name in self.sources}
        for place, each in backward(self.rewritten, region).items():
            if not each.empty:
                scan = self.scans[place]
                found[scan.source.name].append(each.renamed(scan.of_source))
        return found

    def touches(self, change: InputChange, region: Extent) -> bool:
        """Whether a change of input rows can affect results of an extent."""
        found = forward(self.rewritten, change)
        if found is None:
            return False
        interval = found.interval if found.axis is region.axis else instants_of(self.rewritten, found)
        met = max(interval.start, region.interval.start) < min(interval.end, region.interval.end)
        return met and merged_values(found.values, region.values) is not None

    def _values(self, key: Mapping[str, Value]) -> dict[str, Value]:
        names = {kept: name for name, kept in self.fields.items()}
        return {names[name]: value for name, value in key.items()}


@dataclass
class QueryForms:
    """The forms of queries, each planned once."""

    catalog: Catalog
    _known: dict[int, QueryForm] = field(default_factory=dict)

    def of(self, of: ResultArchive) -> QueryForm:
        """The form that the results of an archive are of."""
        if of.stream_id not in self._known:
            self._known[of.stream_id] = self._read(of)
        return self._known[of.stream_id]

    def _read(self, of: ResultArchive) -> QueryForm:
        # A form that is no longer declared has no evaluations after its last one.
        then = of.last.commit_id
        checked = {name: each.checked for name, each in queries.recorded_queries(self.catalog, then).items()}
        declared = {each.stream.name: each.stream for each in streams.stream_states(self.catalog, then)}
        names = with_inputs([of.name], {name: each.reads for name, each in checked.items()})
        plan = read_plans(declared, {name: each.query for name, each in checked.items()}, names)[of.name]
        rewritten = rewritten_plan(plan)
        return QueryForm(of, plan, rewritten, choose_route(rewritten))
