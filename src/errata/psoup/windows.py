"""From a registered window and an event time to rows: where a window begins and ends, and what it may not reach.

NOW is the end of the instant t, so `NOW - d` is the place t + 1 - d, and `END (NOW)` takes in what happened at t. What
happens later than t is in no window, also where a window's end is a constant.

    BEGIN (NOW - '10 minutes') END (NOW) at 12:00    [11:50:00.000001, 12:00:00.000001)
"""

from __future__ import annotations

from collections.abc import Sequence

from errata.catalog.streams import StreamState
from errata.errors import ErrataError, UsageError
from errata.model.registered import RegisteredPlan, RegisteredWindow
from errata.model.stream import Stream
from errata.model.time import EVERYTHING, Interval, format_instant, parse_event_time


def window_interval(window: RegisteredWindow, now: int) -> Interval:
    """The interval of the order field that a window is at an event time; of one that counts rows up to its end."""
    return window.interval(now) & EVERYTHING


def order_text(stream: Stream, place: int) -> str:
    """A place of the order field in words."""
    return format_instant(place) if stream.timed else str(place)


def check_retention(plan: RegisteredPlan, states: Sequence[StreamState], where: str) -> None:
    """Refuse a plan with a window that its stream does not keep."""
    for state, window in zip(states, plan.windows, strict=True):
        _check_window_kept(state.stream, window, where)


def _check_window_kept(stream: Stream, window: RegisteredWindow, where: str) -> None:
    kept = stream.retention
    if kept is None:
        return
    reach = window.begin.value if window.begin is not None and window.begin.relative else None
    if kept.span is not None and reach is not None and reach > kept.span:
        said, holds = stream.span_text(reach), stream.span_text(kept.span)
    elif kept.rows is not None and window.rows is not None and window.rows > kept.rows:
        said, holds = f"{window.rows:,} rows", f"{kept.rows:,} rows"
    else:
        return
    raise UsageError(
        f"the window of {stream.name} reaches back {said}, and {holds} are kept",
        where=where,
        why="older rows are aged out, so the answer would lack them",
        how="take a smaller window, or declare a longer `retention`",
    )


def check_not_aged(state: StreamState, interval: Interval, *, complete: bool) -> None:
    """Refuse a window that reaches behind what has been aged out. `complete` tells whether a window that counts rows
    has found them all."""
    aged_to = state.aged_to
    if aged_to is None or interval.empty:
        return
    if complete and (interval.start >= aged_to):
        return
    raise ErrataError(
        f"the window reaches back further than stream {state.stream.name} is kept",
        why=f"rows before {order_text(state.stream, aged_to)} have been aged out",
        how="ask for a later time with --at, or register a smaller window",
    )


def resolve_now(states: Sequence[StreamState], at: str | int | None, commit_id: int) -> int:
    """The event time that is meant: not later than the least stable point of the sources, which is the default."""
    for state in states:
        if state.stable is None:
            raise ErrataError(
                f"nothing can be answered yet: stream {state.stream.name} has no rows as of commit {commit_id}",
                why="what a query says is certain up to the least stable point of the streams that it reads",
                how=f"take rows in: errata ingest {state.stream.name} FILES",
            )
    slowest = min(states, key=lambda state: (state.stable or 0, state.stream.name))
    frontier = slowest.stable or 0
    if at is None:
        return frontier
    moment = parse_event_time(at, timed=slowest.stream.timed)
    if moment > frontier:
        shown = order_text(slowest.stream, frontier)
        raise UsageError(
            f"{at} is later than what can be answered as of commit {commit_id}",
            why=f"stream {slowest.stream.name} is stable only up to {shown}: what it says of later times may change",
            how=f"ask for {shown} or earlier, or leave the time out for that",
        )
    return moment
