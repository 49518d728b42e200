"""Where the rows of streams lie that an answer is made of, told from lineage."""

from __future__ import annotations

from errata.language.lineage import Axis, Path, Region, backward, through
from errata.language.nodes import scans
from errata.language.plan import Plan, Source
from errata.model.interval import EVERYTHING, LOWEST, Interval

MANY = 1_000
"""Ways from a query to its streams, through other queries; where there are more, everything is read."""


def needed(plan: Plan, at: int) -> dict[str, Interval]:
    """For each stream and relation that a plan reads, also through queries, where the rows that make its answer at an
    instant begin."""
    until = at + 1
    if _ways(plan, {}) > MANY:
        return dict.fromkeys(base_names(plan), Interval(LOWEST, until))
    found = dict.fromkeys(base_names(plan), Interval(until, until))
    for path, region in through(plan, backward(plan, Region(Axis.INSTANT, Interval(at, until)))).items():
        name = _end(plan, path).name
        start = _beginning(region).start
        found[name] = Interval(min(start, found[name].start), until)
    return found


def _beginning(region: Region) -> Interval:
    """Where rows begin. Those that count at an instant may have begun at any time before."""
    return region.interval if region.axis is Axis.START else EVERYTHING


def _end(plan: Plan, path: Path) -> Source:
    """The stream or relation to which a path leads."""
    source = scans(plan)[path[0]].source
    return source if source.plan is None else _end(source.plan, path[1:])


def base_names(plan: Plan) -> list[str]:
    """The streams and relations that a plan reads, also through queries."""
    found: dict[str, None] = {}
    waiting, seen = [plan], set()
    while waiting:
        for scan in scans(waiting.pop()):
            source = scan.source
            if source.plan is None:
                found[source.name] = None
            elif source.name not in seen:
                seen.add(source.name)
                waiting.append(source.plan)
    return list(found)


def _ways(plan: Plan, known: dict[str, int]) -> int:
    """How many ways lead from a plan to streams and relations, each queries' counted once."""
    count = 0
    for scan in scans(plan):
        source = scan.source
        if source.plan is not None and source.name not in known:
            known[source.name] = _ways(source.plan, known)
        count += known.get(source.name, 1)
    return count
