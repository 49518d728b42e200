"""The rows that an evaluation has to read of each stream, relation and query, and what ageing leaves of them.

`reads_of_step` is the entry point for one step of a query by its route; it asks lineage (`backward`). `base_reads_at`
follows reads down to streams and relations, and the last section says which answers are still whole when sources have
been aged out.
"""

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
"""By name of a source: the rows needed of it."""


def source_extents(plan: Plan, axis: ExtentAxis, interval: Interval) -> dict[str, Extent]:
    """By source: the rows that make the plan's rows that begin in an interval, or count at an instant of it. Sources of
    which nothing is needed have an empty extent."""
    read = scans_of(plan)
    found: dict[str, Extent] = {}
    for place, extent in backward(plan, Extent(axis, interval)).items():
        scan = read[place]
        if extent.empty:
            continue
        name, read_extent = scan.source.name, extent.renamed(scan.of_source)
        found[name] = found[name] | read_extent if name in found else read_extent
    return {scan.source.name: found.get(scan.source.name, NO_ROWS) for scan in read}


# The reads of one step of a query, by its route.

WHOLE, ARRIVING, LEAVING, STATE_SOURCE = "whole", "arriving", "leaving", "kept"
"""The parts of a step's reads: all rows that make the results; rows that arrive; rows that cease to count; rows from
which lost state is rebuilt."""


def first_step(route: Route, begins: int, until: int) -> EvaluationSpan:
    """The first step of a query whose answers are kept from an instant on. Where results never end, all of them count
    at that instant, and the step begins at the beginning of time."""
    ends = route.covering or route.kind is RouteKind.APPENDED
    return EvaluationSpan(begins if ends else LOWEST, until)


def reads_of_step(
    plan: Plan, route: Route, step: EvaluationSpan, *, state_lost: bool = False, beginning: bool = False
) -> dict[str, SourceExtents]:
    """The reads of a step, by part. `state_lost`: the state that the route continues from is missing. `beginning`: no
    result has been published yet."""
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
    """Where the rows of a state begin: those that still count, or whose windows have not closed."""
    if route.partial is None:
        return LOWEST
    span, window = route.partial.span, route.partial.node.window
    if isinstance(window, TimeWindow):
        span = window.size
    return LOWEST if span is None or since == LOWEST else max(LOWEST, since - span)


def _shifted_back(interval: Interval, span: int) -> Interval:
    """Where rows that expire in an interval began."""
    start = interval.start if interval.start == LOWEST else max(LOWEST, interval.start - span)
    return Interval(start, max(LOWEST, interval.end - span) if interval.end < HIGHEST else HIGHEST)


# The rows of streams and relations that an answer is made of, also through queries.

MAX_PATHS = 1_000
"""Paths from a query to its streams, through other queries, above which all rows of each stream are read."""


def base_reads_at(plan: Plan, at: int) -> dict[str, Interval]:
    """By stream and relation that a plan reads, also through queries: where the rows that make its answer at an instant
    begin."""
    until = at + 1
    if _count_paths(plan, {}) > MAX_PATHS:
        return dict.fromkeys(base_inputs(plan), Interval(LOWEST, until))
    found = dict.fromkeys(base_inputs(plan), Interval(until, until))
    for path, extent in reads_through_queries(
        plan, backward(plan, Extent(ExtentAxis.INSTANT, Interval(at, until)))
    ).items():
        name = _path_source(plan, path).name
        start = _start_interval(extent).start
        found[name] = Interval(min(start, found[name].start), until)
    return found


def _start_interval(extent: Extent) -> Interval:
    """Where rows begin. Those that count at an instant may have begun at any time before."""
    return extent.interval if extent.axis is ExtentAxis.START else EVERYTHING


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
    """The number of paths from a plan to streams and relations; each query's are counted once."""
    count = 0
    for scan in scans_of(plan):
        source = scan.source
        if source.plan is not None and source.name not in known:
            known[source.name] = _count_paths(source.plan, known)
        count += known.get(source.name, 1)
    return count


# What is left of a query when its sources have been aged out: from when its answers are whole, and what it still has to
# read.
#
# `aged_to` gives for each source, by name, the place before which nothing is left: of a stream, how far it has been
# aged; of a query, the first instant whose answer is whole. None: everything is there.

AgeLimits = Mapping[str, int | None]


def first_whole_instant(plan: Plan, aged_to: AgeLimits) -> int:
    """The first instant from which answers are made of nothing that has been aged out; LOWEST where nothing has.

    Where an answer is made of all rows there ever were, none is whole any more. If at least each single result is made
    of rows that lie close together, it is the first instant from which all results that begin are whole; earlier ones
    are left out, whole or not (`first_whole_result`). Otherwise it is where the source begins now: the answers are
    those over the rows that are left.
    """
    return max(
        (_first_instant_without(plan, name, place) for name, place in _aged_sources_read(plan, aged_to).items()),
        default=LOWEST,
    )


def first_whole_result(plan: Plan, aged_to: AgeLimits) -> int:
    """Results that begin earlier are not published: they may be made of a part of their rows, and yet count at instants
    that are answered. LOWEST where there are no such results, because all that count then are whole."""
    piecemeal = {
        name: place
        for name, place in _aged_sources_read(plan, aged_to).items()
        if _read_start(plan, ExtentAxis.INSTANT, name, place) == LOWEST
    }
    return max((_first_instant_without(plan, name, place) for name, place in piecemeal.items()), default=LOWEST)


def oldest_places_read(plan: Plan, route: Route, frontier: int) -> dict[str, int]:
    """By source: the place from which later evaluations still read it; LOWEST where they read all of it each time.
    `plan` has been rewritten; `frontier` is the last answered instant."""
    found: dict[str, int] = {}
    for part in reads_of_step(plan, route, EvaluationSpan(frontier, frontier)).values():
        for name, extent in part.items():
            if not extent.interval.empty:
                found[name] = min(found.get(name, HIGHEST), extent.interval.start)
    return found


def sources_only_in_state(plan: Plan, route: Route, frontier: int, aged_to: AgeLimits) -> list[str]:
    """The sources whose aged rows survive only in the kept state: if that were lost, it could not be rebuilt."""
    if not route.keeps_state:
        return []
    kept: SourceExtents = reads_of_step(plan, route, EvaluationSpan(frontier, frontier), state_lost=True).get(
        STATE_SOURCE, {}
    )
    return [
        name
        for name, extent in kept.items()
        if not extent.interval.empty and (place := aged_to.get(name)) is not None and extent.interval.start < place
    ]


def _aged_sources_read(plan: Plan, aged_to: AgeLimits) -> dict[str, int]:
    """By source that is read and has been aged: the place before which nothing is left."""
    read = source_extents(plan, ExtentAxis.INSTANT, Interval(LOWEST))
    places = {name: aged_to.get(name) for name, extent in read.items() if not extent.interval.empty}
    return {name: place for name, place in places.items() if place is not None and place > LOWEST}


def _first_instant_without(plan: Plan, name: str, place: int) -> int:
    """The first instant from which nothing of a source before a place is needed."""
    for axis in (ExtentAxis.INSTANT, ExtentAxis.START):
        if (
            _read_start(plan, axis, name, place) > LOWEST
            and (found := _bisect_instant(plan, axis, name, place)) is not None
        ):
            return found
    return place


def _bisect_instant(plan: Plan, axis: ExtentAxis, name: str, place: int) -> int | None:
    """Finds the instant by bisection: rows that later instants need never begin earlier."""
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
    """Where the rows of a source begin that an instant and all later ones need."""
    extent: Extent = source_extents(plan, axis, Interval(since)).get(name, NO_ROWS)
    return HIGHEST if extent.interval.empty else extent.interval.start
