"""The forms that a query has had: how each one read, and where the rows lie that make a result of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from errata.catalog import queries, streams
from errata.catalog.open import Catalog
from errata.catalog.published import Published
from errata.evaluate.reads import Reach
from errata.evaluate.route import Route, route
from errata.flows.declaring.check import read, with_inputs
from errata.language.expr import Value
from errata.language.lineage import Axis, Change, Region, backward, forward
from errata.language.lineage.equalities import merged
from errata.language.lineage.reach import axis, instants, settled
from errata.language.nodes import Scan, scans
from errata.language.plan import Plan
from errata.language.rewrite import rewritten_of
from errata.model.interval import EVERYTHING, Interval


@dataclass(frozen=True)
class Form:
    """A query as it read when some results of it were published."""

    of: Published
    """The archive of these results."""
    plan: Plan
    rewritten: Plan
    route: Route

    @property
    def by_beginnings(self) -> bool:
        """Whether a result is told by when it begins, and not by when it counts."""
        return not self.route.covering and axis(self.rewritten) is Axis.START

    @property
    def fields(self) -> dict[str, str]:
        """For each field of the plan the name by which it is kept."""
        return dict(zip((each.name for each in self.plan.fields), self.of.shape.names, strict=True))

    @property
    def scans(self) -> tuple[Scan, ...]:
        """What it reads, each source as often as it does."""
        return tuple(scans(self.rewritten))

    @property
    def sources(self) -> list[str]:
        """The streams, relations and queries that it reads itself."""
        return list(dict.fromkeys(scan.source.name for scan in self.scans))

    def region(self, key: Mapping[str, Value], vs: int, at: int) -> Region:
        """Where a result lies that began at `vs` and counts at `at`; the key by the names by which it is kept."""
        values = self._values(key)
        if self.by_beginnings:
            return Region(Axis.START, Interval(vs, vs + 1), values)
        return Region(Axis.INSTANT, Interval(at, at + 1), values)

    def beginnings(self, key: Mapping[str, Value]) -> Interval:
        """Where results of a key can begin."""
        if not self.by_beginnings:
            return EVERYTHING
        region = settled(self.rewritten, Region(Axis.START, EVERYTHING, self._values(key)))
        return Interval(0, 0) if region is None else region.interval

    def reads(self, region: Region) -> dict[str, list[Reach]]:
        """The rows of each source that make the results of a region."""
        found: dict[str, list[Reach]] = {name: [] for name in self.sources}
        for place, each in backward(self.rewritten, region).items():
            if not each.empty:
                scan = self.scans[place]
                values = {scan.of_source(name): value for name, value in each.values.items()}
                found[scan.source.name].append(Reach(each.axis, each.interval, values))
        return found

    def touches(self, change: Change, region: Region) -> bool:
        """Whether a change of rows that it reads can touch results in a region of its own."""
        found = forward(self.rewritten, change)
        if found is None:
            return False
        interval = found.interval if found.axis is region.axis else instants(self.rewritten, found)
        met = max(interval.start, region.interval.start) < min(interval.end, region.interval.end)
        return met and merged(found.values, region.values) is not None

    def _values(self, key: Mapping[str, Value]) -> dict[str, Value]:
        names = {kept: name for name, kept in self.fields.items()}
        return {names[name]: value for name, value in key.items()}


@dataclass
class Forms:
    """All forms that are asked for, each read once."""

    catalog: Catalog
    _known: dict[int, Form] = field(default_factory=dict)

    def of(self, of: Published) -> Form:
        """The form that an archive of results is of."""
        if of.stream_id not in self._known:
            self._known[of.stream_id] = self._read(of)
        return self._known[of.stream_id]

    def _read(self, of: Published) -> Form:
        # Nothing is evaluated in a form that is no longer declared.
        then = of.last.commit_id
        checked = {name: each.checked for name, each in queries.recorded(self.catalog, then).items()}
        declared = {each.stream.name: each.stream for each in streams.standings(self.catalog, then)}
        names = with_inputs([of.name], {name: each.reads for name, each in checked.items()})
        plan = read(declared, {name: each.query for name, each in checked.items()}, names)[of.name]
        rewritten = rewritten_of(plan)
        return Form(of, plan, rewritten, route(rewritten))
