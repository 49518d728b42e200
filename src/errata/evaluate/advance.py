"""One step of a query: the frame of the results that it makes of what has been read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pyspark.sql import DataFrame

from errata.engine.plans import tails
from errata.engine.plans.advanced import Advanced
from errata.engine.plans.compile import compile_plan
from errata.engine.plans.partials import advance_group, rebuild
from errata.evaluate.needs import ARRIVING, KEPT, LEAVING, WHOLE
from errata.evaluate.route import Kind, Route
from errata.language.plan import Plan
from errata.model.evaluation import Step


@dataclass(frozen=True)
class Given:
    """What has been read for a step."""

    frames: Mapping[str, Mapping[str, DataFrame]]
    """Of each part, the sources by name."""
    state: DataFrame | None = None
    """What the strategy kept the last time."""
    known: DataFrame | None = None
    """Published results under the names of the plan, for a strategy that asks for them."""
    scope: Sequence[str] = field(default=())
    """Columns that keep data sets apart."""
    beginning: bool = False
    """Whether no result has been published yet."""
    parts: bool = False
    """Whether the partial aggregates of windows that close are wanted, where the strategy has such."""


def advance(plan: Plan, route: Route, step: Step, given: Given) -> Advanced:
    """The results of a step."""
    if route.partial is None and route.tail is None:
        # Of what is only added all is needed, ended or not; at the beginning, what counts then.
        whole = step.first or (route.kind is Kind.APPENDED and not given.beginning)
        since = None if whole else step.since
        return Advanced(compile_plan(plan, given.frames[WHOLE], scope=given.scope, since=since), None)
    since, until, scope, arriving = step.since, step.until, given.scope, given.frames[ARRIVING]
    state = _remade(route, step, given) if KEPT in given.frames else given.state
    if route.partial is not None:
        leaving = given.frames.get(LEAVING)
        parts = route.keeps_parts and given.parts
        return advance_group(route.partial, arriving, leaving, state, since, until, scope, parts=parts)
    if route.tail is None:
        raise AssertionError(route.kind)
    match route.kind:
        case Kind.ROW_WINDOWS:
            return tails.advance_row_windows(route.tail, arriving, state, since, until, scope)
        case Kind.LAST_ROWS:
            return tails.advance_last_rows(route.tail, arriving, state, since, until, scope)
    return tails.advance_new_values(route.tail, arriving, given.known, since, until, scope)


def _remade(route: Route, step: Step, given: Given) -> DataFrame:
    """The state from which the step goes on, made anew."""
    frames = given.frames[KEPT]
    if route.partial is not None:
        return rebuild(route.partial, frames, step.since, given.scope)
    if route.tail is None:
        raise AssertionError(route.kind)
    make = tails.kept_for_row_windows if route.kind is Kind.ROW_WINDOWS else tails.kept_for_last_rows
    return make(route.tail, frames, step.since, given.scope)
