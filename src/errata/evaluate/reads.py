"""What an evaluation has to read of each stream, relation and query, told by lineage."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from errata.language.lineage import Axis, Region, backward
from errata.language.lineage.equalities import Values
from errata.language.nodes import scans
from errata.language.plan import Plan
from errata.model.interval import Interval


@dataclass(frozen=True, slots=True)
class Reach:
    """The rows of a source that are needed."""

    axis: Axis
    """Whether the interval tells where rows begin, or at which instants they count."""
    interval: Interval
    values: Values = field(default_factory=dict)
    """Constants that columns have in all of them, by the source's names."""

    def __or__(self, other: Reach) -> Reach:
        """All that either needs, and perhaps more."""
        if self.interval.empty or other.interval.empty:
            return other if self.interval.empty else self
        axis = Axis.START if self.axis is other.axis is Axis.START else Axis.INSTANT
        hull = _hull(self.interval, other.interval)
        same = {
            name: value for name, value in self.values.items() if name in other.values and other.values[name] == value
        }
        return Reach(axis, hull, same)


NOTHING = Reach(Axis.START, Interval(0, 0))

Reaches = Mapping[str, Reach]
"""By the names of the sources."""


def reaches(plan: Plan, axis: Axis, interval: Interval) -> dict[str, Reach]:
    """What makes the rows of a plan that begin in an interval, or count at an instant of it; of what is not needed an
    empty interval."""
    read = scans(plan)
    found: dict[str, Reach] = {}
    for place, region in backward(plan, Region(axis, interval)).items():
        scan = read[place]
        if region.empty:
            continue
        reach = Reach(
            region.axis,
            region.interval,
            {scan.of_source(name): value for name, value in region.values.items()},
        )
        name = scan.source.name
        found[name] = found[name] | reach if name in found else reach
    return {scan.source.name: found.get(scan.source.name, NOTHING) for scan in read}


def _hull(one: Interval, other: Interval) -> Interval:
    return Interval(min(one.start, other.start), max(one.end, other.end))
