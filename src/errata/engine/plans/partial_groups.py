"""Groups advanced from kept state: arriving rows are added to the parts, expiring rows are subtracted.

Rows of the group's input become events: at its own time a row adds to the parts of its group, and where it expires it
subtracts. The state of the step before is an event at the beginning. Results at each instant are running sums over the
events of a group; extremes come from `partial_state.ExtremeWork`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from pyspark.sql import DataFrame

from errata.engine.frames import group_sql, select_sql, union_by_position
from errata.engine.near import is_near
from errata.engine.plans.compile import apply_operators, compile_rows, named_frame
from errata.engine.plans.grouping import WINDOW_COLUMN, assign_time_windows, group_columns
from errata.engine.plans.node_rows import (
    OPEN_END,
    VE,
    VS,
    AdvanceResult,
    InputFrames,
    NodeRows,
    equal_nans,
    instant_sql,
    null_sql,
    quote_name,
)
from errata.engine.plans.partial_state import BLOCK_ORDER as ORDER_OF_BLOCKS
from errata.engine.plans.partial_state import OWN_TIME, TIME_COLUMN, ExtremeWork, GroupState, clean_state
from errata.engine.plans.partial_sums import group_state_of
from errata.language.incremental import PartialGroup
from errata.language.nodes import TimeWindow
from errata.language.plan import PlanError
from errata.model.commit import EvaluationSpan
from errata.model.time import LOWEST

CARRIED_COUNT = "_turns"
"""Column of a state whose removals may leave rounding errors: how many steps have advanced it since it was built from
the rows."""
SIGN_COLUMN, SIZE_COLUMN = "_sign", "_size"

_NO_ROW = f"{VS} > {OPEN_END}"
"""A condition that no row fulfils. Not FALSE: where that is the first part of a union, the near engine loses its column
names."""


@dataclass(frozen=True)
class GroupInput:
    """Rows of the group's input: the group, the own time, and the arguments of the aggregates."""

    below: NodeRows
    frame: DataFrame


@dataclass(frozen=True)
class PartialGroupWork:
    """A group and its state."""

    partial_group: PartialGroup
    group_state: GroupState
    scope: tuple[str, ...]
    near: bool
    """Whether the near engine computes it."""
    correcting: ClassVar[bool] = False
    """Whether removed rows were wrong, and have not just expired: then an extreme may have been theirs."""

    @property
    def signed(self) -> bool:
        """Whether events have a sign: 1 for rows, -1 for removed rows, 0 for the kept state."""
        return self.correcting or bool(self.group_state.centres)

    @property
    def by(self) -> list[str]:
        return [f"_g{number}" for number in range(len(self.partial_group.node.by))]

    @property
    def inner_scope(self) -> list[str]:
        return [f"_s{number}" for number in range(len(self.scope))]

    @property
    def group(self) -> list[str]:
        """The columns that identify a group, or a group's window."""
        return [*self.inner_scope, *self.by, *([] if self.partial_group.node.window is None else [WINDOW_COLUMN])]

    @property
    def columns_from_state(self) -> list[str]:
        """The columns of a group, read from a state."""
        outer = [f"{quote_name(name)} AS {inner}" for name, inner in zip(self.scope, self.inner_scope, strict=True)]
        return [*outer, *self.group[len(outer) :]]

    @property
    def columns_to_state(self) -> list[str]:
        """The columns of a group, written to a state."""
        outer = [f"{inner} AS {quote_name(name)}" for name, inner in zip(self.scope, self.inner_scope, strict=True)]
        return [*outer, *self.group[len(outer) :]]

    @property
    def extra_columns(self) -> list[str]:
        """The columns of an event besides its group, its instant and the parts."""
        return [
            *self.group_state.centres,
            *self.group_state.extremes,
            *([CARRIED_COUNT] if self.partial_group.accumulates_rounding else []),
        ]

    @property
    def window_end(self) -> str:
        """The instant at which a window closes."""
        window = self.partial_group.node.window
        if not isinstance(window, TimeWindow):
            raise PlanError("only windows of time end", where="Group")
        return f"{WINDOW_COLUMN} + {window.size}L"

    @property
    def results(self) -> list[str]:
        """The aggregates."""
        return [f"{text} AS {name}" for name, text in self.group_state.results.items()]

    def read(self, frames: InputFrames, first: int, last: int) -> GroupInput:
        """The rows of the group's input whose own time is from `first` to `last`, both included."""
        below = compile_rows(self.partial_group.node.input, frames, self.scope)
        low = f"{VS} >= {instant_sql(first)} AND " if first > LOWEST else ""
        rows = below.frame.filter(f"{low}{VS} <= {instant_sql(last)}" if last >= LOWEST else _NO_ROW)
        columns = [
            f"{below.key(expr)} AS {name}" for name, expr in zip(self.by, self.partial_group.node.by, strict=True)
        ]
        columns += [
            f"{equal_nans(below.sql(expr), str(expr.type), near=self.near)} AS {name}"
            for name, expr in self.group_state.arguments.items()
        ]
        columns += [f"{text} AS {name}" for name, text in zip(self.group_state.order, below.order, strict=True)]
        frame = select_sql(rows, *self.inner_scope, *columns, f"{VS} AS {OWN_TIME}")
        if isinstance(self.partial_group.node.window, TimeWindow):
            frame = assign_time_windows(frame, replace(self.partial_group.node.window, early=True), OWN_TIME, None)
        return GroupInput(below, frame)

    def row_events(self, rows: DataFrame, at: str, sign: str) -> DataFrame:
        """Events of rows: additions at their own time, or with a sign removals at their end."""
        columns = [self._event_part(name, sign) for name in self.group_state.parts]
        columns += [f"{null_sql('DOUBLE')} AS {name}" for name in self.group_state.centres]
        columns += [
            f"{null_sql(each.type) if sign else each.of} AS {name}" for name, each in self.group_state.extremes.items()
        ]
        columns += [f"0L AS {CARRIED_COUNT}"] if self.partial_group.accumulates_rounding else []
        columns += [f"{sign}1 AS {SIGN_COLUMN}"] if self.signed else []
        columns += [*self.group_state.arguments] if self.group_state.centres else []
        return select_sql(rows, *self.group, f"{at} AS {TIME_COLUMN}", *columns)

    def _event_part(self, name: str, sign: str) -> str:
        part = self.group_state.parts[name]
        if part.centred or (sign and not part.subtractable and not self.correcting):
            return f"{null_sql(part.type)} AS {name}"
        return f"{part.removal if sign else part.addition} AS {name}"

    def state_events(self, state: DataFrame, at: int) -> DataFrame:
        """The kept state as events of one instant."""
        columns = [
            f"{equal_nans(name, part.type, near=self.near)} AS {name}" for name, part in self.group_state.parts.items()
        ]
        columns += self.extra_columns
        columns += [f"0 AS {SIGN_COLUMN}"] if self.signed else []
        arguments = self.group_state.arguments if self.group_state.centres else {}
        columns += [f"{null_sql(str(each.type))} AS {name}" for name, each in arguments.items()]
        return select_sql(state, *self.columns_from_state, f"{instant_sql(at)} AS {TIME_COLUMN}", *columns)

    def with_centres(self, events: DataFrame) -> DataFrame:
        """The events with each group's centre: the kept one, or else one of the group's values."""
        if not self.group_state.centres:
            return events
        over = f"OVER ({partition_clause(self.group)})"
        known = {
            name: f"coalesce(max({name}) {over}, {self.group_state.nearest_to_zero(of, over)}, 0D) AS {name}"
            for name, of in self.group_state.centres.items()
        }
        columns = [*self.group, TIME_COLUMN, *self.group_state.parts, *self.extra_columns, SIGN_COLUMN]
        near = select_sql(events, *(known.get(name, name) for name in (*columns, *self.group_state.arguments)))
        near = with_column_layers(near, self.group_state.row_layers)
        made = {
            name: f"CASE {SIGN_COLUMN} WHEN 0 THEN {name} WHEN 1 THEN {part.addition} ELSE {part.removal} END AS {name}"
            for name, part in self.group_state.parts.items()
            if part.centred
        }
        return select_sql(near, *(made.get(name, name) for name in columns if name != SIGN_COLUMN or self.correcting))


def is_any_near(frames: InputFrames) -> bool:
    """Whether the frames belong to the near engine."""
    return any(is_near(frame.sparkSession) for frame in frames.values())


def with_column_layers(frame: DataFrame, layers: Sequence[Mapping[str, str]]) -> DataFrame:
    """The frame with more columns, each layer computed over the ones before it."""
    for layer in layers:
        frame = select_sql(frame, "*", *(f"{text} AS {name}" for name, text in layer.items())) if layer else frame
    return frame


def partition_clause(group: Sequence[str]) -> str:
    """The PARTITION BY of a group in SQL."""
    return f"PARTITION BY {', '.join(group)} " if group else ""


# Advancing, finishing and rebuilding groups.

_NEXT_TIME = "_next"


@dataclass(frozen=True)
class MovingRows:
    """The rows that a step of a group reads, as the frames of its sources."""

    arriving: InputFrames
    """Over these the group's input yields all rows with an own time in `[since, until]`."""
    leaving: InputFrames | None = None
    """Over these, all rows with an own time in `[since - span, until - span]`; None where rows count for ever."""


def advance_group(
    found: PartialGroup,
    moving: MovingRows,
    state: DataFrame | None,
    span: EvaluationSpan,
    scope: Sequence[str] = (),
    *,
    parts: bool = False,
) -> AdvanceResult:
    """The group's results at the instants `[since, until]` of a span.

    The results are all those that count at an instant from `since` on; of final windows those that end in `[since,
    until]`, of early ones those that end after `since`, since no others can change. With `parts` the state of final
    windows that have ended is returned, too, from the same pass over the rows.
    """
    arriving, leaving, since, until = moving.arriving, moving.leaving, span.since, span.until
    if parts and found.covering:
        raise PlanError("only what is kept of final windows is told when they close", where="Group")
    step = _GroupAdvance(found, group_state_of(found), tuple(scope), is_any_near(arriving), since, until)
    came = step.read(arriving, since, until)
    brought = step.row_events(came.frame, OWN_TIME, "")
    if found.span is not None:
        if leaving is None:
            raise PlanError("rows that cease to count have to be read again", where="Group")
        gone = step.read(leaving, since - found.span, until - found.span)
        brought = union_by_position(brought, step.row_events(gone.frame, f"{OWN_TIME} + {found.span}L", "-"))
    events = step.events(brought, state)
    rows = step.changes(events, came.frame, state) if found.covering else step.closed_windows(events)
    result = named_frame(apply_operators(found.above, group_columns(found.node, came.below, step.by, rows)), scope)
    if state is not None and since == until:
        return AdvanceResult(result, state, select_sql(state, "*", f"{step.window_end} AS {VS}") if parts else None)
    if not parts:
        return AdvanceResult(result, step.state(events, came.frame, state))
    windows = step.windows(events)
    return AdvanceResult(result, windows.filter(f"{VS} >= {instant_sql(until)}").drop(VS), windows)


def final_results(
    found: PartialGroup, reads: InputFrames, windows: DataFrame, until: int, scope: Sequence[str] = ()
) -> DataFrame:
    """The results of final windows that have ended by `until`, from their state in `AdvanceResult.windows`: where rows
    are many, they are added up only once. No row of `reads`, the group's inputs, is read."""
    step = _GroupAdvance(found, group_state_of(found), tuple(scope), is_near(windows.sparkSession), LOWEST, until)
    below = step.read(reads, LOWEST, until).below
    rows = step.closed_windows(step.with_centres(step.state_events(windows, until)))
    return named_frame(apply_operators(found.above, group_columns(found.node, below, step.by, rows)), scope)


def rebuild_state(found: PartialGroup, live: InputFrames, since: int, scope: Sequence[str] = ()) -> DataFrame:
    """The state at `since`, rebuilt. Over `live` the group's input yields all rows with an earlier own time that count
    just before `since`; for windows, those of windows that end at `since` or later."""
    step = _GroupAdvance(found, group_state_of(found), tuple(scope), is_any_near(live), LOWEST, since)
    low = LOWEST if found.span is None else since - found.span
    came = step.read(live, low, since - 1)
    return step.state(step.events(step.row_events(came.frame, OWN_TIME, ""), None), came.frame, None)


@dataclass(frozen=True)
class _GroupAdvance(PartialGroupWork):
    """Results of the instants `[since, until]`."""

    since: int
    until: int

    def events(self, brought: DataFrame, state: DataFrame | None) -> DataFrame:
        """The events of each group; the kept state is added at the beginning."""
        if state is not None:
            groups = state.filter(f"{OWN_TIME} IS NULL") if self.group_state.extremes else state
            brought = union_by_position(brought, self.state_events(groups, self.since))
        return self.with_centres(brought)

    def changes(self, events: DataFrame, came: DataFrame, state: DataFrame | None) -> DataFrame:
        """Each group's results, from each instant at which something is added or removed."""
        order, extremes = TIME_COLUMN, self._extremes()
        if extremes is not None:
            events, order = extremes.sweep(events, self.group_state.types, self._late(came, state)), ORDER_OF_BLOCKS
        over = f"OVER ({partition_clause(self.group)}ORDER BY {order})"
        totals = [f"{text} {over} AS {name}" for name, text in self._totals().items()]
        following = f"lead({TIME_COLUMN}) {over} AS {_NEXT_TIME}"
        found = [] if extremes is None else extremes.extreme_columns()
        run = select_sql(events, *self.group, TIME_COLUMN, following, *totals, *found)
        last = run.filter(f"{_NEXT_TIME} IS NULL OR {_NEXT_TIME} > {TIME_COLUMN}")
        alive = last.filter(f"{self.group_state.row_count} > 0") if self.group_state.row_count else last
        alive = with_column_layers(alive, self.group_state.result_layers)
        return select_sql(
            alive, *self.group, *self.results, f"{TIME_COLUMN} AS {VS}", f"coalesce({_NEXT_TIME}, {OPEN_END}) AS {VE}"
        )

    def closed_windows(self, events: DataFrame) -> DataFrame:
        """The windows that have ended by `until`."""
        whole = with_column_layers(
            self._group_totals(events.filter(f"{self.window_end} <= {instant_sql(self.until)}")),
            self.group_state.result_layers,
        )
        return select_sql(whole, *self.group, *self.results, f"{self.window_end} AS {VS}", f"{OPEN_END} AS {VE}")

    def windows(self, events: DataFrame) -> DataFrame:
        """The state of final windows that end from `since` on: of those that have ended by `until`, everything; of
        others what the next step needs, which is also kept of those that end exactly then."""
        # No row of the last instant belongs to a window that has ended.
        whole = self._group_totals(events.filter(f"{TIME_COLUMN} < {instant_sql(self.until)}"))
        return select_sql(whole, *self.columns_to_state, *clean_state(self.group_state), f"{self.window_end} AS {VS}")

    def state(self, events: DataFrame, came: DataFrame, state: DataFrame | None) -> DataFrame:
        """The state of rows with an own time before `until`."""
        if not self.partial_group.covering:
            return self.windows(events).filter(f"{VS} >= {instant_sql(self.until)}").drop(VS)
        before = events.filter(f"{TIME_COLUMN} < {instant_sql(self.until)}")
        if self.partial_group.closing_column is not None:
            # The rows of the last instant belong to windows that end after it.
            before = before.filter(f"{self.window_end} > {instant_sql(self.until)}")
        turns = [f"{CARRIED_COUNT} + 1 AS {CARRIED_COUNT}"] if self.partial_group.accumulates_rounding else []
        groups, left = self._group_totals(before), clean_state(self.group_state)
        extremes = self._extremes()
        if extremes is None:
            return select_sql(groups, *self.columns_to_state, *left, *turns)
        others = {**self.group_state.types, **dict.fromkeys([CARRIED_COUNT] if turns else [], "BIGINT")}
        none = [f"{null_sql(kind)} AS {name}" for name, kind in others.items()]
        live = (
            f"{OWN_TIME} < {instant_sql(self.until)} AND {OWN_TIME} >= "
            f"{instant_sql(max(self.until - extremes.span, LOWEST))}"
        )
        rows = extremes.unexceeded_rows(self._candidates(came, state).filter(live))
        none_best = [f"{null_sql(each.type)} AS {name}" for name, each in self.group_state.extremes.items()]
        sums = select_sql(
            groups,
            *self.columns_to_state,
            f"{null_sql('BIGINT')} AS {OWN_TIME}",
            *clean_state(self.group_state),
            *turns,
            *none_best,
        )
        return union_by_position(sums, select_sql(rows, *self.columns_to_state, OWN_TIME, *none, *extremes.extremes))

    def _group_totals(self, events: DataFrame) -> DataFrame:
        """The totals of each group; groups without rows are dropped."""
        turns = [f"max({CARRIED_COUNT}) AS {CARRIED_COUNT}"] if self.partial_group.accumulates_rounding else []
        totals = [f"{text} AS {name}" for name, text in self._totals().items()]
        whole = group_sql(events, self.group, [*totals, *turns, f"count(1) AS {SIZE_COLUMN}"])
        return whole.filter(f"{self.group_state.row_count or SIZE_COLUMN} > 0")

    def _totals(self) -> dict[str, str]:
        parts = {name: part.merge_sql(name, near=self.near) for name, part in self.group_state.parts.items()}
        return {**parts, **{name: f"max({name})" for name in self.group_state.centres}}

    def _extremes(self) -> ExtremeWork | None:
        if self.partial_group.span is None or not self.group_state.extremes:
            return None
        return ExtremeWork(self.group_state.extremes, self.group, self.partial_group.span, self.since, self.near)

    def _candidates(self, came: DataFrame, state: DataFrame | None) -> DataFrame:
        """Rows that may be an extreme: kept ones and arriving ones."""
        values = [f"{each.of} AS {name}" for name, each in self.group_state.extremes.items()]
        new = select_sql(came, *self.group, OWN_TIME, *values)
        return new if state is None else union_by_position(self._kept_candidates(state), new)

    def _kept_candidates(self, state: DataFrame) -> DataFrame:
        kept = state.filter(f"{OWN_TIME} IS NOT NULL")
        values = [
            f"{equal_nans(name, each.type, near=self.near)} AS {name}"
            for name, each in self.group_state.extremes.items()
        ]
        return select_sql(kept, *self.columns_from_state, OWN_TIME, *values)

    def _late(self, came: DataFrame, state: DataFrame | None) -> DataFrame | None:
        """Rows that may count in the block after their own; those of a short step cannot before it is over."""
        if self.partial_group.span is not None and self.until - self.since >= self.partial_group.span:
            return self._candidates(came, state)
        return None if state is None else self._kept_candidates(state)
