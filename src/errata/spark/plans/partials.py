"""Groups carried on from partial aggregates: what rows that come add to them, and rows that cease to count take out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from errata.language.nodes import TimeWindow
from errata.language.partial import PartialGroup
from errata.language.plan import PlanError
from errata.model.interval import LOWEST
from errata.spark.plans.advanced import Advanced
from errata.spark.plans.compile import named, rows_of, upon
from errata.spark.plans.grouping import finished
from errata.spark.plans.partial_extremes import AT, Extremes
from errata.spark.plans.partial_extremes import ORDER as ORDER_OF_BLOCKS
from errata.spark.plans.partial_kept import OWN, Kept, cleared
from errata.spark.plans.partial_sums import kept_of
from errata.spark.plans.rows import OPEN, VE, VS, Rows, quoted
from errata.spark.plans.windows import WINDOW, in_time_windows

TURNS = "_turns"
"""Of the state of sums in which taking away may leave traces: how many evaluations have carried a group's on since it
was made of the rows themselves."""
_NEXT, _SIGN, _SIZE = "_next", "_sign", "_size"

Frames = Mapping[str, DataFrame]
"""What the group's input reads, as `compile_plan` takes it."""


def advance_group(
    found: PartialGroup,
    arriving: Frames,
    leaving: Frames | None,
    state: DataFrame | None,
    since: int,
    until: int,
    scope: Sequence[str] = (),
) -> Advanced:
    """The group's results at the instants `[since, until]`.

    Over `arriving` the group's input yields all rows with an own time in `[since, until]`, over `leaving` all with one
    in `[since - span, until - span]`; where rows count for ever none leaves. The results are all those that count at an
    instant from `since` on; of final windows those that end in `[since, until]`, of early ones those that end after
    `since`, since no others can change.
    """
    step = _Step(found, kept_of(found), tuple(scope), since, until)
    came = step.read(arriving, since, until)
    brought = step.brought(came.frame, OWN, "")
    if found.span is not None:
        if leaving is None:
            raise PlanError("rows that cease to count have to be read again", where="Group")
        gone = step.read(leaving, since - found.span, until - found.span)
        brought = brought.unionAll(step.brought(gone.frame, f"{OWN} + {found.span}L", "-"))
    events = step.events(brought, state)
    rows = step.changes(events, came.frame, state) if found.covering else step.closed(events)
    result = named(upon(found.above, finished(found.node, came.below, step.by, rows)), scope)
    if state is not None and since == until:
        return Advanced(result, state)
    return Advanced(result, step.state(events, came.frame, state))


def rebuild(found: PartialGroup, live: Frames, since: int, scope: Sequence[str] = ()) -> DataFrame:
    """The state with which `since` is gone on from, made anew. Over `live` the group's input yields all rows with an
    own time before it that count just before it, or, of windows, those of windows that end no earlier."""
    step = _Step(found, kept_of(found), tuple(scope), LOWEST, since)
    low = LOWEST if found.span is None else since - found.span
    came = step.read(live, low, since - 1)
    return step.state(step.events(step.brought(came.frame, OWN, ""), None), came.frame, None)


@dataclass(frozen=True)
class _Read:
    """Rows of the group's input: the group, the own time, what the aggregates are of."""

    below: Rows
    frame: DataFrame


@dataclass(frozen=True)
class _Step:
    """Results of the instants `[since, until]`."""

    found: PartialGroup
    kept: Kept
    scope: tuple[str, ...]
    since: int
    until: int

    @property
    def by(self) -> list[str]:
        return [f"_g{number}" for number in range(len(self.found.node.by))]

    @property
    def inner_scope(self) -> list[str]:
        return [f"_s{number}" for number in range(len(self.scope))]

    @property
    def group(self) -> list[str]:
        """The columns that make a group, or a group's window."""
        return [*self.inner_scope, *self.by, *([] if self.found.node.window is None else [WINDOW])]

    def _of_state(self) -> list[str]:
        """The columns that make a group, from a state."""
        outer = [f"{quoted(name)} AS {inner}" for name, inner in zip(self.scope, self.inner_scope, strict=True)]
        return [*outer, *self.group[len(outer) :]]

    @property
    def beside(self) -> list[str]:
        """What an event has beside its group, its instant and the parts."""
        return [*self.kept.centres, *self.kept.extremes, *([TURNS] if self.found.drifts else [])]

    def read(self, frames: Frames, first: int, last: int) -> _Read:
        """The rows of the group's input whose own time is from `first` to `last`, both included."""
        below = rows_of(self.found.node.input, frames, self.scope)
        low = f"{VS} >= {first}L AND " if first > LOWEST else ""
        rows = below.frame.filter(f"{low}{VS} <= {last}L" if last >= LOWEST else "FALSE")
        columns = [f"{below.sql(expr)} AS {name}" for name, expr in zip(self.by, self.found.node.by, strict=True)]
        columns += [f"{below.sql(expr)} AS {name}" for name, expr in self.kept.arguments.items()]
        columns += [f"{text} AS {name}" for name, text in zip(self.kept.order, below.order, strict=True)]
        frame = rows.selectExpr(*self.inner_scope, *columns, f"{VS} AS {OWN}")
        if isinstance(self.found.node.window, TimeWindow):
            frame = in_time_windows(frame, replace(self.found.node.window, early=True), OWN, None)
        return _Read(below, frame)

    def brought(self, rows: DataFrame, at: str, sign: str) -> DataFrame:
        """What rows add at their own time, or with a sign take away when they end."""
        columns = [self._brought_part(name, sign) for name in self.kept.parts]
        columns += [f"CAST(NULL AS DOUBLE) AS {name}" for name in self.kept.centres]
        columns += [f"{'NULL' if sign else of} AS {name}" for name, (_, of) in self.kept.extremes.items()]
        columns += [f"0L AS {TURNS}"] if self.found.drifts else []
        columns += [f"{sign}1 AS {_SIGN}", *self.kept.arguments] if self.kept.centres else []
        return rows.selectExpr(*self.group, f"{at} AS {AT}", *columns)

    def _brought_part(self, name: str, sign: str) -> str:
        part = self.kept.parts[name]
        unknown = part.centred or (sign and not part.signed)
        return f"NULL AS {name}" if unknown else f"{sign}({part.row}) AS {name}"

    def events(self, brought: DataFrame, state: DataFrame | None) -> DataFrame:
        """What is added to each group, and when; what was kept of it is added at the beginning."""
        if state is not None:
            groups = state.filter(f"{OWN} IS NULL") if self.kept.extremes else state
            columns = [*self.kept.parts, *self.beside]
            if self.kept.centres:
                columns += [f"0 AS {_SIGN}", *(f"NULL AS {name}" for name in self.kept.arguments)]
            brought = groups.selectExpr(*self._of_state(), f"{self.since}L AS {AT}", *columns).unionAll(brought)
        return self._centred(brought) if self.kept.centres else brought

    def _centred(self, events: DataFrame) -> DataFrame:
        """With the number that each group's values are taken from: the one that is kept, or else one among them."""
        over = f"OVER ({_by(self.group)})"
        known = {
            name: f"coalesce(max({name}) {over}, {self.kept.nearest(of, over)}, 0D) AS {name}"
            for name, of in self.kept.centres.items()
        }
        columns = [*self.group, AT, *self.kept.parts, *self.beside]
        near = events.selectExpr(*(known.get(name, name) for name in (*columns, _SIGN, *self.kept.arguments)))
        near = _with(near, self.kept.near)
        made = {
            name: f"CASE {_SIGN} WHEN 0 THEN {name} WHEN 1 THEN {part.row} ELSE -({part.row}) END AS {name}"
            for name, part in self.kept.parts.items()
            if part.centred
        }
        return near.selectExpr(*(made.get(name, name) for name in columns))

    def changes(self, events: DataFrame, came: DataFrame, state: DataFrame | None) -> DataFrame:
        """Each group's results from each instant on at which something is added or taken away."""
        order, extremes = AT, self._extremes()
        if extremes is not None:
            others = [*self.kept.parts, *self.kept.centres]
            events, order = extremes.swept(events, others, self._late(came, state)), ORDER_OF_BLOCKS
        over = f"OVER ({_by(self.group)}ORDER BY {order})"
        totals = [f"{text} {over} AS {name}" for name, text in self._totals().items()]
        following = f"lead({AT}) {over} AS {_NEXT}"
        found = [] if extremes is None else extremes.found()
        run = events.selectExpr(*self.group, AT, following, *totals, *found)
        last = run.filter(f"{_NEXT} IS NULL OR {_NEXT} > {AT}")
        alive = last.filter(f"{self.kept.live} > 0") if self.kept.live else last
        alive = _with(alive, self.kept.told)
        return alive.selectExpr(*self.group, *self._results(), f"{AT} AS {VS}", f"coalesce({_NEXT}, {OPEN}) AS {VE}")

    def closed(self, events: DataFrame) -> DataFrame:
        """The windows that have ended by `until`."""
        whole = _with(self._at_once(events.filter(f"{self._window_end()} <= {self.until}L")), self.kept.told)
        return whole.selectExpr(*self.group, *self._results(), f"{self._window_end()} AS {VS}", f"{OPEN} AS {VE}")

    def state(self, events: DataFrame, came: DataFrame, state: DataFrame | None) -> DataFrame:
        """What is to be kept of rows with an own time before `until`."""
        before = events.filter(f"{AT} < {self.until}L")
        if not self.found.covering:
            before = before.filter(f"{self._window_end()} >= {self.until}L")
        elif self.found.closes is not None:
            # The rows of the last instant are of windows that end after it.
            before = before.filter(f"{self._window_end()} > {self.until}L")
        kept = [f"{cleared(name, part)} AS {name}" for name, part in self.kept.parts.items()] + [*self.kept.centres]
        turns = [f"{TURNS} + 1 AS {TURNS}"] if self.found.drifts else []
        outer = [f"{inner} AS {quoted(name)}" for name, inner in zip(self.scope, self.inner_scope, strict=True)]
        columns = [*outer, *self.group[len(outer) :]]
        groups = self._at_once(before)
        extremes = self._extremes()
        if extremes is None:
            return groups.selectExpr(*columns, *kept, *turns)
        others = [*self.kept.parts, *self.kept.centres, *([TURNS] if turns else [])]
        none = [f"NULL AS {name}" for name in others]
        live = f"{OWN} < {self.until}L AND {OWN} >= {max(self.until - extremes.span, LOWEST)}L"
        rows = extremes.undone(self._candidates(came, state).filter(live))
        none_best = [f"NULL AS {name}" for name in self.kept.extremes]
        sums = groups.selectExpr(*columns, f"CAST(NULL AS BIGINT) AS {OWN}", *kept, *turns, *none_best)
        return sums.unionAll(rows.selectExpr(*columns, OWN, *none, *extremes.functions))

    def _at_once(self, events: DataFrame) -> DataFrame:
        """All that is added to each group together; groups that have no rows left are none."""
        turns = [f"max({TURNS}) AS {TURNS}"] if self.found.drifts else []
        totals = [f"{text} AS {name}" for name, text in self._totals().items()]
        whole = events.groupBy(*self.group).agg(*map(sf.expr, [*totals, *turns, f"count(1) AS {_SIZE}"]))
        return whole.filter(f"{self.kept.live or _SIZE} > 0")

    def _totals(self) -> dict[str, str]:
        parts = {name: f"{part.total}({name})" for name, part in self.kept.parts.items()}
        return {**parts, **{name: f"max({name})" for name in self.kept.centres}}

    def _results(self) -> list[str]:
        return [f"{text} AS {name}" for name, text in self.kept.results.items()]

    def _window_end(self) -> str:
        window = self.found.node.window
        if not isinstance(window, TimeWindow):
            raise PlanError("only windows of time end", where="Group")
        return f"{WINDOW} + {window.size}L"

    def _extremes(self) -> Extremes | None:
        if self.found.span is None or not self.kept.extremes:
            return None
        functions = {name: function for name, (function, _) in self.kept.extremes.items()}
        return Extremes(functions, self.group, self.found.span, self.since)

    def _candidates(self, came: DataFrame, state: DataFrame | None) -> DataFrame:
        """Rows that may be the greatest or the least: those that were kept, and those that came."""
        values = [f"{of} AS {name}" for name, (_, of) in self.kept.extremes.items()]
        new = came.selectExpr(*self.group, OWN, *values)
        return new if state is None else self._kept_candidates(state).unionAll(new)

    def _kept_candidates(self, state: DataFrame) -> DataFrame:
        kept = state.filter(f"{OWN} IS NOT NULL")
        return kept.selectExpr(*self._of_state(), OWN, *self.kept.extremes)

    def _late(self, came: DataFrame, state: DataFrame | None) -> DataFrame | None:
        """Rows that may count in the block after their own; those of a short step cannot before it is over."""
        if self.found.span is not None and self.until - self.since >= self.found.span:
            return self._candidates(came, state)
        return None if state is None else self._kept_candidates(state)


def _with(frame: DataFrame, layers: Sequence[Mapping[str, str]]) -> DataFrame:
    """With more columns, each layer over those before it."""
    for layer in layers:
        frame = frame.selectExpr("*", *(f"{text} AS {name}" for name, text in layer.items())) if layer else frame
    return frame


def _by(group: Sequence[str]) -> str:
    return f"PARTITION BY {', '.join(group)} " if group else ""
