"""What must be read for one step of a query, by the strategy that takes it."""

from __future__ import annotations

from errata.evaluate.reads import Reaches, reaches
from errata.evaluate.route import Kind, Route
from errata.language.lineage import Axis
from errata.language.nodes import TimeWindow
from errata.language.plan import Plan
from errata.model.evaluation import Step
from errata.model.interval import HIGHEST, LOWEST, Interval

WHOLE, ARRIVING, LEAVING, KEPT = "whole", "arriving", "leaving", "kept"
"""The parts of what is read: all that makes the results; what comes; what ceases to count; what was kept and is not
there any more, so that it has to be made anew."""


def first_step(route: Route, begins: int, until: int) -> Step:
    """The first step of a query whose answers are kept from an instant on. Where results never end, all of them count
    at that instant, and so it is from the beginning."""
    ends = route.covering or route.kind is Kind.APPENDED
    return Step(begins if ends else LOWEST, until)


def needs(
    plan: Plan, route: Route, step: Step, *, state_lost: bool = False, beginning: bool = False
) -> dict[str, Reaches]:
    """What has to be read for a step, by its parts. `state_lost` tells that the strategy has to go on from a state that
    is not there, `beginning` that no result has been published yet."""
    match route.kind:
        case Kind.APPENDED:
            axis = Axis.INSTANT if beginning and not step.first else Axis.START
            return {WHOLE: reaches(plan, axis, step.instants)}
        case Kind.RECOMPUTED:
            return {WHOLE: reaches(plan, Axis.INSTANT, step.instants)}
    found: dict[str, Reaches] = {ARRIVING: reaches(route.input, Axis.START, step.instants)}
    span = None if route.partial is None else route.partial.span
    if span is not None:
        found[LEAVING] = reaches(route.input, Axis.START, _earlier(step.instants, span))
    if state_lost:
        found[KEPT] = reaches(route.input, Axis.START, Interval(_kept_from(route, step.since), step.since))
    return found


def _kept_from(route: Route, since: int) -> int:
    """Where the rows begin that a state is made of: those that still count, or whose windows have not closed."""
    if route.partial is None:
        return LOWEST
    span, window = route.partial.span, route.partial.node.window
    if isinstance(window, TimeWindow):
        span = window.size
    return LOWEST if span is None or since == LOWEST else max(LOWEST, since - span)


def _earlier(interval: Interval, span: int) -> Interval:
    """What expires in an interval began so much earlier."""
    start = interval.start if interval.start == LOWEST else max(LOWEST, interval.start - span)
    return Interval(start, max(LOWEST, interval.end - span) if interval.end < HIGHEST else HIGHEST)
