"""What an evaluation has to read of each stream, relation and query, told by lineage."""

from __future__ import annotations

from collections.abc import Mapping

from errata.language.lineage import QueryPath, backward, reads_through_queries
from errata.language.nodes import TimeWindow, scans_of
from errata.language.plan import Plan, Source
from errata.language.route import Route, RouteKind
from errata.model.commit import EvaluationSpan
from errata.model.extent import NO_ROWS, Extent, ExtentAxis
from errata.model.time import EVERYTHING, HIGHEST, LOWEST, Interval

SourceExtents = Mapping[str, Extent]
"""By the names of the sources."""


def source_extents(plan: Plan, axis: ExtentAxis, interval: Interval) -> dict[str, Extent]:
    """What makes the rows of a plan that begin in an interval, or count at an instant of it; of what is not needed an
    empty interval."""
    read = scans_of(plan)
    found: dict[str, Extent] = {}
    for place, region in backward(plan, Extent(axis, interval)).items():
        scan = read[place]
        if region.empty:
            continue
        reach = region.renamed(scan.of_source)
        name = scan.source.name
        found[name] = found[name] | reach if name in found else reach
    return {scan.source.name: found.get(scan.source.name, NO_ROWS) for scan in read}


# What must be read for one step of a query, by the strategy that takes it.

WHOLE, ARRIVING, LEAVING, STATE_SOURCE = "whole", "arriving", "leaving", "kept"
"""The parts of what is read: all that makes the results; what comes; what ceases to count; what was kept and is not
there any more, so that it has to be made anew."""


def first_step(route: Route, begins: int, until: int) -> EvaluationSpan:
    """The first step of a query whose answers are kept from an instant on. Where results never end, all of them count
    at that instant, and so it is from the beginning."""
    ends = route.covering or route.kind is RouteKind.APPENDED
    return EvaluationSpan(begins if ends else LOWEST, until)


def reads_of_step(
    plan: Plan, route: Route, step: EvaluationSpan, *, state_lost: bool = False, beginning: bool = False
) -> dict[str, SourceExtents]:
    """What has to be read for a step, by its parts. `state_lost` tells that the strategy has to go on from a state that
    is not there, `beginning` that no result has been published yet."""
    match route.kind:
        case RouteKind.APPENDED:
            axis = ExtentAxis.INSTANT if beginning and not step.first else ExtentAxis.START
            return {WHOLE: source_extents(plan, axis, step.instants)}
        case RouteKind.RECOMPUTED:
            return {WHOLE: source_extents(plan, ExtentAxis.INSTANT, step.instants)}
    found: dict[str, SourceExtents] = {ARRIVING: source_extents(route.input, ExtentAxis.START, step.instants)}
    span = None if route.partial is None else route.partial.span
    if span is not None:
        found[LEAVING] = source_extents(route.input, ExtentAxis.START, _shifted_back(step.instants, span))
    if state_lost:
        found[STATE_SOURCE] = source_extents(
            route.input, ExtentAxis.START, Interval(_state_start(route, step.since), step.since)
        )
    return found


def _state_start(route: Route, since: int) -> int:
    """Where the rows begin that a state is made of: those that still count, or whose windows have not closed."""
    if route.partial is None:
        return LOWEST
    span, window = route.partial.span, route.partial.node.window
    if isinstance(window, TimeWindow):
        span = window.size
    return LOWEST if span is None or since == LOWEST else max(LOWEST, since - span)


def _shifted_back(interval: Interval, span: int) -> Interval:
    """What expires in an interval began so much earlier."""
    start = interval.start if interval.start == LOWEST else max(LOWEST, interval.start - span)
    return Interval(start, max(LOWEST, interval.end - span) if interval.end < HIGHEST else HIGHEST)


# Where the rows of streams lie that an answer is made of, told from lineage.

MAX_PATHS = 1_000
"""Ways from a query to its streams, through other queries; where there are more, everything is read."""


def base_reads_at(plan: Plan, at: int) -> dict[str, Interval]:
    """For each stream and relation that a plan reads, also through queries, where the rows that make its answer at an
    instant begin."""
    until = at + 1
    if _count_paths(plan, {}) > MAX_PATHS:
        return dict.fromkeys(base_inputs(plan), Interval(LOWEST, until))
    found = dict.fromkeys(base_inputs(plan), Interval(until, until))
    for path, region in reads_through_queries(
        plan, backward(plan, Extent(ExtentAxis.INSTANT, Interval(at, until)))
    ).items():
        name = _path_source(plan, path).name
        start = _start_interval(region).start
        found[name] = Interval(min(start, found[name].start), until)
    return found


def _start_interval(region: Extent) -> Interval:
    """Where rows begin. Those that count at an instant may have begun at any time before."""
    return region.interval if region.axis is ExtentAxis.START else EVERYTHING


def _path_source(plan: Plan, path: QueryPath) -> Source:
    """The stream or relation to which a path leads."""
    source = scans_of(plan)[path[0]].source
    return source if source.plan is None else _path_source(source.plan, path[1:])


def base_inputs(plan: Plan) -> list[str]:
    """The streams and relations that a plan reads, also through queries."""
    found: dict[str, None] = {}
    waiting, seen = [plan], set()
    while waiting:
        for scan in scans_of(waiting.pop()):
            source = scan.source
            if source.plan is None:
                found[source.name] = None
            elif source.name not in seen:
                seen.add(source.name)
                waiting.append(source.plan)
    return list(found)


def _count_paths(plan: Plan, known: dict[str, int]) -> int:
    """How many ways lead from a plan to streams and relations, each queries' counted once."""
    count = 0
    for scan in scans_of(plan):
        source = scan.source
        if source.plan is not None and source.name not in known:
            known[source.name] = _count_paths(source.plan, known)
        count += known.get(source.name, 1)
    return count


# What it means for a query that its sources age: from when on its answers are whole, and what it has still to read.
#
# `aged_to` tells of each source, by name, before which place nothing is left: of a stream, how far it has been aged; of
# a query that is read, the first instant whose answer is whole. None: all is there.

AgeLimits = Mapping[str, int | None]


def first_whole_instant(plan: Plan, aged_to: AgeLimits) -> int:
    """The first instant from which on answers are made of nothing that has been aged out; LOWEST where nothing has.

    Where an answer is made of all rows there ever were, none is whole any more. If at least each result by itself is
    made of rows that lie close together, it is the first instant from which on all results that begin are whole; those
    of before, whole or not, are to be left out: see `results_from`. Otherwise it is where the source begins now: the
    answers are those over the rows that are left.
    """
    return max(
        (_first_instant_without(plan, name, place) for name, place in _aged_sources_read(plan, aged_to).items()),
        default=LOWEST,
    )


def first_whole_result(plan: Plan, aged_to: AgeLimits) -> int:
    """Results that begin earlier are not to be published: they may be made of a part of their rows, and yet count at
    instants that are answered. LOWEST where there are none such, since all that count then are whole."""
    piecemeal = {
        name: place
        for name, place in _aged_sources_read(plan, aged_to).items()
        if _read_start(plan, ExtentAxis.INSTANT, name, place) == LOWEST
    }
    return max((_first_instant_without(plan, name, place) for name, place in piecemeal.items()), default=LOWEST)


def oldest_places_read(plan: Plan, route: Route, frontier: int) -> dict[str, int]:
    """Of each source, the place from which on the next evaluations have still to read it; LOWEST where they read all
    of it each time. `plan` has been rewritten, and `frontier` is how far it has been answered."""
    found: dict[str, int] = {}
    for part in reads_of_step(plan, route, EvaluationSpan(frontier, frontier)).values():
        for name, reach in part.items():
            if not reach.interval.empty:
                found[name] = min(found.get(name, HIGHEST), reach.interval.start)
    return found


def sources_only_in_state(plan: Plan, route: Route, frontier: int, aged_to: AgeLimits) -> list[str]:
    """The sources of which rows have been aged out that are known only from what the strategy keeps: were that lost, it
    could not be made anew."""
    if not route.keeps_state:
        return []
    kept: SourceExtents = reads_of_step(plan, route, EvaluationSpan(frontier, frontier), state_lost=True).get(
        STATE_SOURCE, {}
    )
    return [
        name
        for name, reach in kept.items()
        if not reach.interval.empty and (place := aged_to.get(name)) is not None and reach.interval.start < place
    ]


def _aged_sources_read(plan: Plan, aged_to: AgeLimits) -> dict[str, int]:
    """The sources of which something is needed and something is gone."""
    read = source_extents(plan, ExtentAxis.INSTANT, Interval(LOWEST))
    places = {name: aged_to.get(name) for name, reach in read.items() if not reach.interval.empty}
    return {name: place for name, place in places.items() if place is not None and place > LOWEST}


def _first_instant_without(plan: Plan, name: str, place: int) -> int:
    """The first instant from which on nothing of a source is needed that lies before a place."""
    for axis in (ExtentAxis.INSTANT, ExtentAxis.START):
        if (
            _read_start(plan, axis, name, place) > LOWEST
            and (found := _bisect_instant(plan, axis, name, place)) is not None
        ):
            return found
    return place


def _bisect_instant(plan: Plan, axis: ExtentAxis, name: str, place: int) -> int | None:
    """What later instants need never begins earlier: the least instant is looked for by halving."""
    step = 1
    while _read_start(plan, axis, name, place + step - 1) < place:
        step *= 2
        if place + step > HIGHEST:
            return None
    low, high = place - 1, place + step - 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if _read_start(plan, axis, name, middle) >= place else (middle, high)
    return high


def _read_start(plan: Plan, axis: ExtentAxis, name: str, since: int) -> int:
    """Where that begins which a source has for an instant and all later ones."""
    reach: Extent = source_extents(plan, axis, Interval(since)).get(name, NO_ROWS)
    return HIGHEST if reach.interval.empty else reach.interval.start
