"""Closed windows, corrected from their kept parts: corrected rows are subtracted as they were and added as they are
now, without reading the windows' other rows.

Where the parts do not decide (an extreme was removed, a sum lost digits), the window is undecided and must be computed
from its rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from pyspark.sql import DataFrame

from errata.engine.frames import group_sql, materialize_small, select_sql, union_by_position
from errata.engine.plans.compile import apply_operators, named_frame
from errata.engine.plans.grouping import group_columns
from errata.engine.plans.node_rows import OPEN_END, VE, VS, InputFrames, instant_sql
from errata.engine.plans.partial_groups import (
    SIGN_COLUMN,
    PartialGroupWork,
    is_any_near,
    with_column_layers,
)
from errata.engine.plans.partial_state import OWN_TIME, StatePart, clean_state
from errata.engine.plans.partial_sums import group_state_of
from errata.language.incremental import PartialGroup, adjustment_obstacle
from errata.language.plan import PlanError
from errata.model.time import LOWEST

VERDICT = "_fate"
UNCHANGED, REMOVED, UNDECIDED = "stands", "gone", "undecided"
_TAKEN_COUNT, _ADDED_COUNT, _KNOWN_COUNT, _TOUCHED_COUNT = "_taken", "_brought", "_known", "_touched"


@dataclass(frozen=True)
class WindowAdjustment:
    """The outcome of corrections for windows."""

    rows: DataFrame
    """The corrected results of touched windows that are decided and have rows, in the form of `compile_plan`."""
    windows: DataFrame
    """One row for each touched window: the columns of a state, `_vs`, and `_fate`. It stands, with these parts; or it
    is gone, since no rows are left; or it is undecided, and must be computed from its rows."""

    @property
    def parts(self) -> DataFrame:
        """The new parts of windows that stand."""
        return self.windows.filter(f"{VERDICT} = '{UNCHANGED}'").drop(VERDICT)

    @property
    def undecided(self) -> DataFrame:
        """The windows that the parts do not decide; their parts mean nothing."""
        return self.windows.filter(f"{VERDICT} = '{UNDECIDED}'").drop(VERDICT)


@dataclass(frozen=True)
class CorrectedRows:
    """The rows that a correction removes and adds, as the frames of a group's sources. Each row is in either at most
    once; a row that is the same in both does no harm."""

    gone: InputFrames
    """Over these the group's input yields the rows as the results contain them."""
    came: InputFrames
    """Over these, the rows as the results shall contain them."""


def adjust_windows(
    found: PartialGroup,
    corrected: CorrectedRows,
    parts: DataFrame,
    until: int,
    scope: Sequence[str] = (),
    state: DataFrame | None = None,
) -> WindowAdjustment:
    """The windows that have closed by `until` and that rows are removed from or added to.

    `parts` are those of the windows of these rows, and may be more; a window that is missing has no rows. With `state`,
    which covers rows before `until`, windows that are still open are adjusted, too: then `windows` also has all of the
    state, those with `_vs >= until`, as long as none of them is undecided; otherwise the state has to be rebuilt.
    """
    gone, came = corrected.gone, corrected.came
    if (why := adjustment_obstacle(found)) is not None:
        raise PlanError(why, where="Group")
    work = _WindowAdjuster(found, group_state_of(found), tuple(scope), is_any_near(came), until, open=state is not None)
    new, old = (work.read(frames, LOWEST, until - 1) for frames in (came, gone))
    events = union_by_position(work.row_events(new.frame, OWN_TIME, ""), work.row_events(old.frame, OWN_TIME, "-"))
    if state is not None:
        # A window that ends at `until` is in both.
        events = union_by_position(events, work.state_events(state, until))
        parts = parts.filter(f"{VS} < {instant_sql(until)}")
    windows = materialize_small(work.decided_windows(union_by_position(events, work.state_events(parts, until))))
    rows = named_frame(
        apply_operators(found.above, group_columns(found.node, new.below, work.by, work.corrected_results(windows))),
        scope,
    )
    return WindowAdjustment(rows, work.new_state(windows))


@dataclass(frozen=True)
class _WindowAdjuster(PartialGroupWork):
    """Windows with rows before `until`."""

    until: int
    open: bool
    """Whether windows that have not closed by then are among them."""
    correcting: ClassVar[bool] = True

    def decided_windows(self, events: DataFrame) -> DataFrame:
        """The remaining parts of each window, and whether they decide."""
        closed = events if self.open else events.filter(f"{self.window_end} <= {instant_sql(self.until)}")
        totals: dict[str, str] = {}
        for name, part in self.group_state.parts.items():
            totals |= _part_totals(name, part, near=self.near)
        totals |= {name: f"max({name})" for name in self.group_state.centres}
        totals |= {name: f"count_if({SIGN_COLUMN} {sign})" for name, sign in _COUNT_CONDITIONS.items()}
        sums = group_sql(self.with_centres(closed), self.group, [f"{text} AS {name}" for name, text in totals.items()])
        touched = f"{_TAKEN_COUNT} + {_ADDED_COUNT} > 0"
        sums = sums.filter(f"{touched} OR {self.window_end} >= {instant_sql(self.until)}" if self.open else touched)
        extremes = {name: part for name, part in self.group_state.parts.items() if not part.subtractable}
        gone = (f"{_extreme_is_lost(name, part, near=self.near)} AS _x{name}" for name, part in extremes.items())
        lost = select_sql(sums, "*", *gone)
        left = {name: f"IF(_x{name} OR {self._all_new}, _b{name}, {name})" for name in extremes}
        others = [name for name in (*self.group, *totals, *(f"_x{name}" for name in extremes)) if name not in left]
        whole = select_sql(lost, *others, *(f"{text} AS {name}" for name, text in left.items()))
        return with_column_layers(
            whole, [*self.group_state.result_layers, {VERDICT: self._fate(extremes), _TOUCHED_COUNT: touched}]
        )

    @property
    def _all_new(self) -> str:
        """Whether all remaining rows were added by this correction."""
        return f"{self.group_state.row_count} <= {_ADDED_COUNT}"

    def _fate(self, extremes: dict[str, StatePart]) -> str:
        doubts = [
            f"_x{name} AND NOT ({self._all_new}) AND NOT {_is_as_extreme(name, part, '_b', '_l', near=self.near)}"
            for name, part in extremes.items()
        ]
        taken = [*self.group_state.doubts, *doubts, f"{_KNOWN_COUNT} = 0"]
        # Rows can only be removed from a window that has them. Where more are removed, the parts are not of this
        # window's rows.
        rows = self.group_state.row_count
        return (
            f"CASE WHEN {rows} < 0 THEN '{UNDECIDED}' WHEN {rows} = 0 THEN '{REMOVED}' "
            f"WHEN {_TAKEN_COUNT} > 0 AND {_any_of(taken)} OR {_any_of(self.group_state.worn)} THEN '{UNDECIDED}' "
            f"ELSE '{UNCHANGED}' END"
        )

    def corrected_results(self, windows: DataFrame) -> DataFrame:
        """The aggregates of windows that have closed."""
        stand = windows.filter(
            f"{VERDICT} = '{UNCHANGED}' AND {_TOUCHED_COUNT} AND {self.window_end} <= {instant_sql(self.until)}"
        )
        return select_sql(stand, *self.group, *self.results, f"{self.window_end} AS {VS}", f"{OPEN_END} AS {VE}")

    def new_state(self, windows: DataFrame) -> DataFrame:
        """The new state of the windows."""
        return select_sql(
            windows, *self.columns_to_state, *clean_state(self.group_state), f"{self.window_end} AS {VS}", VERDICT
        )


_COUNT_CONDITIONS = {_TAKEN_COUNT: "< 0", _ADDED_COUNT: "> 0", _KNOWN_COUNT: "= 0"}
"""Events by their sign."""


def _any_of(conditions: Sequence[str]) -> str:
    return f"({' OR '.join(f'({each})' for each in conditions) or 'FALSE'})"


def _part_totals(name: str, part: StatePart, *, near: bool) -> dict[str, str]:
    """The total of a part; of an extreme the kept, the removed and the added one separately."""
    if part.subtractable:
        return {name: f"sum({name})"}
    signs = {"": ">= 0", "_l": "< 0", "_b": "> 0"}
    whole = part.merge_sql(name, near=near)
    return {f"{which}{name}": f"{whole} FILTER (WHERE {SIGN_COLUMN} {sign})" for which, sign in signs.items()}


def _extreme_is_lost(name: str, part: StatePart, *, near: bool) -> str:
    """Whether the extreme was removed. Then it is the best of the added ones, or unknown."""
    return _is_as_extreme(name, part, "_l", "", near=near)


def _is_as_extreme(name: str, part: StatePart, one: str, other: str, *, near: bool) -> str:
    """Whether the one exists and is at least as extreme as the other."""
    left, right = (part.rank(f"{which}{name}", near=near) for which in (one, other))
    sign = "<=" if part.total == "min" else ">="
    return f"({one}{name} IS NOT NULL AND coalesce({left} {sign} {right}, TRUE))"
