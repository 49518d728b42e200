"""The adviser: which strategy costs a registered query least, by what has been observed of it.

    strategy   microseconds an hour
    NONE       invocations × (an invocation + the matching of the rows in the window's reach)
    PARTIAL    arriving rows × the matching of one + invocations × an invocation
    COMPLETE   arriving rows × the matching of one + commits × an invocation + invocations × handing it out

So NONE is for queries that hardly anybody invokes, COMPLETE for those that are invoked more often than commits come,
and PARTIAL for what lies between (PSoup, section 5.3). A commit is taken to cost what an invocation costs: less, where
it changes little of the window. Storage decides where time does not: what is never asked for keeps nothing, and an
answer too large for memory is not kept. The adviser changes nothing; `errata query strategy` does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from errata.catalog import activity, commits, streams
from errata.declare.site import Site
from errata.model.bucket import Role
from errata.model.registered import RegisteredQuery, RegisteredWindow, ResultStrategy
from errata.model.time import HOUR

SPOT_MICROS = 0.05
"""Microseconds to match a row on the spot with one conjunction: 20 million rows a second and core."""

KEPT_MICROS = 100.0
"""Microseconds to hand a kept answer out."""

LEAST_MICROS = 500.0
"""Microseconds that an invocation is taken to cost where it has not been measured by the strategy in question."""

MAX_KEPT_ROWS = 1_000_000
"""Matching rows in a window's reach up to which an answer is kept: about 100 MB in memory."""

WORTHWHILE = 1.25
"""Times the least cost up to which a strategy is left as it is."""

_FEW_INVOCATIONS = 10
_QUIET_HOURS = 24.0


@dataclass(frozen=True, slots=True)
class ObservedRates:
    """What has been observed of a query since it was registered."""

    hours: float
    invocations: int
    invocation_micros: int
    commits: int
    arrived: int
    """Rows that its streams have taken in."""
    matching_micros: int
    """Its share of the matching of all rows there are."""
    rows: int
    """Rows that its streams hold."""
    reach: int
    """Of these, about so many lie in its windows."""
    matches: int
    """Rows that satisfy its conjunctions."""
    size: int
    """Bytes that are kept of its matches."""


@dataclass(frozen=True, slots=True)
class Advice:
    """A recommended strategy, and why."""

    strategy: ResultStrategy
    reason: str


def advise(present: ResultStrategy, observed: ObservedRates) -> Advice:
    """The strategy that costs least by what has been observed."""
    if observed.hours < 1 and observed.invocations < _FEW_INVOCATIONS:
        return Advice(present, "too little has been observed: less than an hour, and hardly an invocation")
    if observed.invocations == 0:
        if observed.hours < _QUIET_HOURS:
            return Advice(present, "nobody has invoked it yet, and it is not a day old")
        kept = f"; {observed.size:,} bytes are kept for nobody" if observed.size else ""
        return Advice(ResultStrategy.NONE, f"nobody has invoked it in {_duration_text(observed.hours)}{kept}")
    costs = _costs(present, observed)
    best = min(costs, key=lambda each: costs[each])
    rates = (
        f"{_rate_text(observed.invocations, observed.hours)} invocations and "
        f"{_rate_text(observed.commits, observed.hours)} commits an hour"
    )
    if costs[present] <= WORTHWHILE * costs[best]:
        return Advice(present, f"at {rates} no other costs much less")
    times = costs[present] / costs[best]
    saved = (
        f"it costs about {times:,.1f} times less than {present.value}" if times < 1e6 else "it costs next to nothing"
    )
    return Advice(best, f"at {rates} {_WHY[best]}; {saved}")


_WHY = {
    ResultStrategy.NONE: "matching the few answers on the spot is cheaper than matching every row beforehand",
    ResultStrategy.PARTIAL: "what matches is worth keeping, and an answer for every commit is not",
    ResultStrategy.COMPLETE: "it is asked for more often than it changes",
}


def _costs(present: ResultStrategy, observed: ObservedRates) -> dict[ResultStrategy, float]:
    """Microseconds an hour of each strategy."""
    hours = max(observed.hours, 1e-3)
    invocations, changes = observed.invocations / hours, observed.commits / hours
    spot = observed.reach * SPOT_MICROS
    matching = observed.arrived / hours * observed.matching_micros / max(observed.rows, 1)
    asked = max(_invocation_micros(present, observed, spot), 1.0)
    costs = {
        ResultStrategy.NONE: invocations * (asked + spot),
        ResultStrategy.PARTIAL: matching + invocations * asked,
    }
    if observed.matches <= MAX_KEPT_ROWS or present is ResultStrategy.COMPLETE:
        costs[ResultStrategy.COMPLETE] = matching + changes * asked + invocations * KEPT_MICROS
    return costs


def _invocation_micros(present: ResultStrategy, observed: ObservedRates, spot: float) -> float:
    """Microseconds of an invocation by which the window is applied to what matches."""
    measured = observed.invocation_micros / observed.invocations
    match present:
        case ResultStrategy.PARTIAL:
            return measured
        case ResultStrategy.NONE:
            return max(measured - spot, LEAST_MICROS)
        case ResultStrategy.COMPLETE:
            return max(measured, LEAST_MICROS)


def _rate_text(count: int, hours: float) -> str:
    rate = count / max(hours, 1e-3)
    return f"{rate:,.0f}" if rate >= 10 else f"{rate:,.2g}"


def _duration_text(hours: float) -> str:
    return f"{hours / 24:,.0f} days" if hours >= 2 * _QUIET_HOURS else f"{hours:,.0f} hours"


def advised(site: Site, queries: Sequence[RegisteredQuery]) -> list[Advice]:
    """Advice for queries with their costs (`costs.with_costs`)."""
    newest, now = commits.newest_commit(site.catalog), site.catalog.clock.now()
    states = {each.stream.name: each for each in streams.stream_states(site.catalog, newest)}
    sizes = activity.archive_sizes(site.catalog)
    earlier: dict[int, dict[str, int]] = {}
    found = []
    for query in queries:
        since = query.registered_in
        if since not in earlier:
            earlier[since] = {each.stream.name: each.rows for each in streams.stream_states(site.catalog, since)}
        rows = arrived = reach = 0
        for source, window in zip(query.plan.sources, query.plan.windows, strict=True):
            state = states[source.stream]
            size = sizes.get((state.stream_id, Role.BASE), activity.ArchiveSize())
            rows += size.rows
            arrived += max(0, state.rows - earlier[since].get(source.stream, 0))
            reach += _rows_in_reach(window, size)
        cost = query.cost
        observed = ObservedRates(
            hours=(now - query.registered_at) / HOUR,
            invocations=cost.invocations,
            invocation_micros=cost.invocation_micros,
            commits=newest - since,
            arrived=arrived,
            matching_micros=cost.matching_micros,
            rows=rows,
            reach=reach,
            matches=cost.rows,
            size=cost.size,
        )
        found.append(advise(query.strategy, observed))
    return found


def _rows_in_reach(window: RegisteredWindow, size: activity.ArchiveSize) -> int:
    """About how many of a stream's rows lie in a window."""
    if window.rows is not None:
        return min(window.rows, size.rows)
    span = (size.vs_max or 0) - (size.vs_min or 0) + 1
    if window.begin is None or not window.begin.relative:
        return size.rows
    return int(size.rows * min(1.0, window.begin.value / max(span, 1)))
