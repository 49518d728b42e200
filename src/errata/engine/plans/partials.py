"""Groups carried on from partial aggregates: what rows that come add to them, and rows that cease to count take out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame

from errata.engine.frames import grouped_by, selected, stacked
from errata.engine.near import is_near
from errata.engine.plans.advanced import Advanced
from errata.engine.plans.compile import named, upon
from errata.engine.plans.grouping import finished
from errata.engine.plans.partial_events import SIZE, TURNS, Frames, GroupEvents, any_near, partition_by, with_layers
from errata.engine.plans.partial_extremes import AT, Extremes
from errata.engine.plans.partial_extremes import ORDER as ORDER_OF_BLOCKS
from errata.engine.plans.partial_kept import OWN, cleared
from errata.engine.plans.partial_sums import kept_of
from errata.engine.plans.rows import OPEN, VE, VS, instant, missing
from errata.engine.plans.spelling import one_nan
from errata.language.partial import PartialGroup
from errata.language.plan import PlanError
from errata.model.interval import LOWEST

__all__ = ["TURNS", "Frames", "advance_group", "rebuild", "results_of"]

_NEXT = "_next"


def advance_group(
    found: PartialGroup,
    arriving: Frames,
    leaving: Frames | None,
    state: DataFrame | None,
    since: int,
    until: int,
    scope: Sequence[str] = (),
    *,
    parts: bool = False,
) -> Advanced:
    """The group's results at the instants `[since, until]`.

    Over `arriving` the group's input yields all rows with an own time in `[since, until]`, over `leaving` all with one
    in `[since - span, until - span]`; where rows count for ever none leaves. The results are all those that count at an
    instant from `since` on; of final windows those that end in `[since, until]`, of early ones those that end after
    `since`, since no others can change. With `parts` what is kept of final windows is told of those that have ended,
    too, by the same pass over the rows.
    """
    if parts and found.covering:
        raise PlanError("only what is kept of final windows is told when they close", where="Group")
    step = _Step(found, kept_of(found), tuple(scope), any_near(arriving), since, until)
    came = step.read(arriving, since, until)
    brought = step.brought(came.frame, OWN, "")
    if found.span is not None:
        if leaving is None:
            raise PlanError("rows that cease to count have to be read again", where="Group")
        gone = step.read(leaving, since - found.span, until - found.span)
        brought = stacked(brought, step.brought(gone.frame, f"{OWN} + {found.span}L", "-"))
    events = step.events(brought, state)
    rows = step.changes(events, came.frame, state) if found.covering else step.closed(events)
    result = named(upon(found.above, finished(found.node, came.below, step.by, rows)), scope)
    if state is not None and since == until:
        return Advanced(result, state, selected(state, "*", f"{step.window_end} AS {VS}") if parts else None)
    if not parts:
        return Advanced(result, step.state(events, came.frame, state))
    windows = step.windows(events)
    return Advanced(result, windows.filter(f"{VS} >= {instant(until)}").drop(VS), windows)


def results_of(
    found: PartialGroup, reads: Frames, windows: DataFrame, until: int, scope: Sequence[str] = ()
) -> DataFrame:
    """The results of final windows that have ended by `until`, from what is kept of them as `Advanced.windows` tells
    it: where the rows are many, they need be added up but once. Of `reads`, what the group's input reads, no row is
    looked at."""
    step = _Step(found, kept_of(found), tuple(scope), is_near(windows.sparkSession), LOWEST, until)
    below = step.read(reads, LOWEST, until).below
    rows = step.closed(step.centred(step.known(windows, until)))
    return named(upon(found.above, finished(found.node, below, step.by, rows)), scope)


def rebuild(found: PartialGroup, live: Frames, since: int, scope: Sequence[str] = ()) -> DataFrame:
    """The state with which `since` is gone on from, made anew. Over `live` the group's input yields all rows with an
    own time before it that count just before it, or, of windows, those of windows that end no earlier."""
    step = _Step(found, kept_of(found), tuple(scope), any_near(live), LOWEST, since)
    low = LOWEST if found.span is None else since - found.span
    came = step.read(live, low, since - 1)
    return step.state(step.events(step.brought(came.frame, OWN, ""), None), came.frame, None)


@dataclass(frozen=True)
class _Step(GroupEvents):
    """Results of the instants `[since, until]`."""

    since: int
    until: int

    def events(self, brought: DataFrame, state: DataFrame | None) -> DataFrame:
        """What is added to each group, and when; what was kept of it is added at the beginning."""
        if state is not None:
            groups = state.filter(f"{OWN} IS NULL") if self.kept.extremes else state
            brought = stacked(brought, self.known(groups, self.since))
        return self.centred(brought)

    def changes(self, events: DataFrame, came: DataFrame, state: DataFrame | None) -> DataFrame:
        """Each group's results from each instant on at which something is added or taken away."""
        order, extremes = AT, self._extremes()
        if extremes is not None:
            events, order = extremes.swept(events, self.kept.types, self._late(came, state)), ORDER_OF_BLOCKS
        over = f"OVER ({partition_by(self.group)}ORDER BY {order})"
        totals = [f"{text} {over} AS {name}" for name, text in self._totals().items()]
        following = f"lead({AT}) {over} AS {_NEXT}"
        found = [] if extremes is None else extremes.found()
        run = selected(events, *self.group, AT, following, *totals, *found)
        last = run.filter(f"{_NEXT} IS NULL OR {_NEXT} > {AT}")
        alive = last.filter(f"{self.kept.live} > 0") if self.kept.live else last
        alive = with_layers(alive, self.kept.told)
        return selected(alive, *self.group, *self.results, f"{AT} AS {VS}", f"coalesce({_NEXT}, {OPEN}) AS {VE}")

    def closed(self, events: DataFrame) -> DataFrame:
        """The windows that have ended by `until`."""
        whole = with_layers(self._at_once(events.filter(f"{self.window_end} <= {instant(self.until)}")), self.kept.told)
        return selected(whole, *self.group, *self.results, f"{self.window_end} AS {VS}", f"{OPEN} AS {VE}")

    def windows(self, events: DataFrame) -> DataFrame:
        """What is kept of final windows that end from `since` on: of those that have ended by `until`, all; of others,
        what the next step needs, and that is what is kept of those that end just then, too."""
        # No row of the last instant is of a window that has ended.
        whole = self._at_once(events.filter(f"{AT} < {instant(self.until)}"))
        return selected(whole, *self.to_state, *cleared(self.kept), f"{self.window_end} AS {VS}")

    def state(self, events: DataFrame, came: DataFrame, state: DataFrame | None) -> DataFrame:
        """What is to be kept of rows with an own time before `until`."""
        if not self.found.covering:
            return self.windows(events).filter(f"{VS} >= {instant(self.until)}").drop(VS)
        before = events.filter(f"{AT} < {instant(self.until)}")
        if self.found.closes is not None:
            # The rows of the last instant are of windows that end after it.
            before = before.filter(f"{self.window_end} > {instant(self.until)}")
        turns = [f"{TURNS} + 1 AS {TURNS}"] if self.found.drifts else []
        groups, left = self._at_once(before), cleared(self.kept)
        extremes = self._extremes()
        if extremes is None:
            return selected(groups, *self.to_state, *left, *turns)
        others = {**self.kept.types, **dict.fromkeys([TURNS] if turns else [], "BIGINT")}
        none = [f"{missing(kind)} AS {name}" for name, kind in others.items()]
        live = f"{OWN} < {instant(self.until)} AND {OWN} >= {instant(max(self.until - extremes.span, LOWEST))}"
        rows = extremes.undone(self._candidates(came, state).filter(live))
        none_best = [f"{missing(each.type)} AS {name}" for name, each in self.kept.extremes.items()]
        sums = selected(
            groups, *self.to_state, f"{missing('BIGINT')} AS {OWN}", *cleared(self.kept), *turns, *none_best
        )
        return stacked(sums, selected(rows, *self.to_state, OWN, *none, *extremes.extremes))

    def _at_once(self, events: DataFrame) -> DataFrame:
        """All that is added to each group together; groups that have no rows left are none."""
        turns = [f"max({TURNS}) AS {TURNS}"] if self.found.drifts else []
        totals = [f"{text} AS {name}" for name, text in self._totals().items()]
        whole = grouped_by(events, self.group, [*totals, *turns, f"count(1) AS {SIZE}"])
        return whole.filter(f"{self.kept.live or SIZE} > 0")

    def _totals(self) -> dict[str, str]:
        parts = {name: part.together(name, near=self.near) for name, part in self.kept.parts.items()}
        return {**parts, **{name: f"max({name})" for name in self.kept.centres}}

    def _extremes(self) -> Extremes | None:
        if self.found.span is None or not self.kept.extremes:
            return None
        return Extremes(self.kept.extremes, self.group, self.found.span, self.since, self.near)

    def _candidates(self, came: DataFrame, state: DataFrame | None) -> DataFrame:
        """Rows that may be the greatest or the least: those that were kept, and those that came."""
        values = [f"{each.of} AS {name}" for name, each in self.kept.extremes.items()]
        new = selected(came, *self.group, OWN, *values)
        return new if state is None else stacked(self._kept_candidates(state), new)

    def _kept_candidates(self, state: DataFrame) -> DataFrame:
        kept = state.filter(f"{OWN} IS NOT NULL")
        values = [f"{one_nan(name, each.type, near=self.near)} AS {name}" for name, each in self.kept.extremes.items()]
        return selected(kept, *self.of_state, OWN, *values)

    def _late(self, came: DataFrame, state: DataFrame | None) -> DataFrame | None:
        """Rows that may count in the block after their own; those of a short step cannot before it is over."""
        if self.found.span is not None and self.until - self.since >= self.found.span:
            return self._candidates(came, state)
        return None if state is None else self._kept_candidates(state)
