"""What rows bring to the parts of their groups, or take away: the rows of a group's input as events."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from pyspark.sql import DataFrame

from errata.engine.frames import selected
from errata.engine.near import is_near
from errata.engine.plans.compile import rows_of
from errata.engine.plans.partial_extremes import AT
from errata.engine.plans.partial_kept import OWN, Kept
from errata.engine.plans.rows import OPEN, VS, Rows, instant, missing, quoted
from errata.engine.plans.spelling import one_nan
from errata.engine.plans.windows import WINDOW, in_time_windows
from errata.language.nodes import TimeWindow
from errata.language.partial import PartialGroup
from errata.language.plan import PlanError
from errata.model.interval import LOWEST

TURNS = "_turns"
"""Of the state of sums in which taking away may leave traces: how many evaluations have carried a group's on since it
was made of the rows themselves."""
SIGN, SIZE = "_sign", "_size"

_NONE = f"{VS} > {OPEN}"
"""Of no row. Not plainly FALSE: where such is the first part of a union, the near engine loses its columns' names."""

Frames = Mapping[str, DataFrame]
"""What the group's input reads, as `compile_plan` takes it."""


@dataclass(frozen=True)
class Read:
    """Rows of the group's input: the group, the own time, what the aggregates are of."""

    below: Rows
    frame: DataFrame


@dataclass(frozen=True)
class GroupEvents:
    """A group, and what is kept of it."""

    found: PartialGroup
    kept: Kept
    scope: tuple[str, ...]
    near: bool
    """Whether the near engine works it out."""
    correcting: ClassVar[bool] = False
    """Whether rows that are taken away were wrong, and have not just ended: the extremes may have been theirs."""

    @property
    def signed(self) -> bool:
        """Whether events tell what they are: 1 of rows, -1 of rows that are taken away, 0 of what was kept."""
        return self.correcting or bool(self.kept.centres)

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

    @property
    def of_state(self) -> list[str]:
        """The columns that make a group, from a state."""
        outer = [f"{quoted(name)} AS {inner}" for name, inner in zip(self.scope, self.inner_scope, strict=True)]
        return [*outer, *self.group[len(outer) :]]

    @property
    def to_state(self) -> list[str]:
        """The columns that make a group, for a state."""
        outer = [f"{inner} AS {quoted(name)}" for name, inner in zip(self.scope, self.inner_scope, strict=True)]
        return [*outer, *self.group[len(outer) :]]

    @property
    def beside(self) -> list[str]:
        """What an event has beside its group, its instant and the parts."""
        return [*self.kept.centres, *self.kept.extremes, *([TURNS] if self.found.drifts else [])]

    @property
    def window_end(self) -> str:
        """When a window closes."""
        window = self.found.node.window
        if not isinstance(window, TimeWindow):
            raise PlanError("only windows of time end", where="Group")
        return f"{WINDOW} + {window.size}L"

    @property
    def results(self) -> list[str]:
        """The aggregates."""
        return [f"{text} AS {name}" for name, text in self.kept.results.items()]

    def read(self, frames: Frames, first: int, last: int) -> Read:
        """The rows of the group's input whose own time is from `first` to `last`, both included."""
        below = rows_of(self.found.node.input, frames, self.scope)
        low = f"{VS} >= {instant(first)} AND " if first > LOWEST else ""
        rows = below.frame.filter(f"{low}{VS} <= {instant(last)}" if last >= LOWEST else _NONE)
        columns = [f"{below.key(expr)} AS {name}" for name, expr in zip(self.by, self.found.node.by, strict=True)]
        columns += [
            f"{one_nan(below.sql(expr), str(expr.type), near=self.near)} AS {name}"
            for name, expr in self.kept.arguments.items()
        ]
        columns += [f"{text} AS {name}" for name, text in zip(self.kept.order, below.order, strict=True)]
        frame = selected(rows, *self.inner_scope, *columns, f"{VS} AS {OWN}")
        if isinstance(self.found.node.window, TimeWindow):
            frame = in_time_windows(frame, replace(self.found.node.window, early=True), OWN, None)
        return Read(below, frame)

    def brought(self, rows: DataFrame, at: str, sign: str) -> DataFrame:
        """What rows add at their own time, or with a sign take away when they end."""
        columns = [self._brought_part(name, sign) for name in self.kept.parts]
        columns += [f"{missing('DOUBLE')} AS {name}" for name in self.kept.centres]
        columns += [f"{missing(each.type) if sign else each.of} AS {name}" for name, each in self.kept.extremes.items()]
        columns += [f"0L AS {TURNS}"] if self.found.drifts else []
        columns += [f"{sign}1 AS {SIGN}"] if self.signed else []
        columns += [*self.kept.arguments] if self.kept.centres else []
        return selected(rows, *self.group, f"{at} AS {AT}", *columns)

    def _brought_part(self, name: str, sign: str) -> str:
        part = self.kept.parts[name]
        if part.centred or (sign and not part.signed and not self.correcting):
            return f"{missing(part.type)} AS {name}"
        return f"{part.taken if sign else part.row} AS {name}"

    def known(self, state: DataFrame, at: int) -> DataFrame:
        """What was kept, as events of an instant."""
        columns = [f"{one_nan(name, part.type, near=self.near)} AS {name}" for name, part in self.kept.parts.items()]
        columns += self.beside
        columns += [f"0 AS {SIGN}"] if self.signed else []
        arguments = self.kept.arguments if self.kept.centres else {}
        columns += [f"{missing(str(each.type))} AS {name}" for name, each in arguments.items()]
        return selected(state, *self.of_state, f"{instant(at)} AS {AT}", *columns)

    def centred(self, events: DataFrame) -> DataFrame:
        """With the number that each group's values are taken from: the one that is kept, or else one among them."""
        if not self.kept.centres:
            return events
        over = f"OVER ({partition_by(self.group)})"
        known = {
            name: f"coalesce(max({name}) {over}, {self.kept.nearest(of, over)}, 0D) AS {name}"
            for name, of in self.kept.centres.items()
        }
        columns = [*self.group, AT, *self.kept.parts, *self.beside, SIGN]
        near = selected(events, *(known.get(name, name) for name in (*columns, *self.kept.arguments)))
        near = with_layers(near, self.kept.near)
        made = {
            name: f"CASE {SIGN} WHEN 0 THEN {name} WHEN 1 THEN {part.row} ELSE {part.taken} END AS {name}"
            for name, part in self.kept.parts.items()
            if part.centred
        }
        return selected(near, *(made.get(name, name) for name in columns if name != SIGN or self.correcting))


def any_near(frames: Frames) -> bool:
    """Whether the near engine has what is read."""
    return any(is_near(frame.sparkSession) for frame in frames.values())


def with_layers(frame: DataFrame, layers: Sequence[Mapping[str, str]]) -> DataFrame:
    """With more columns, each layer over those before it."""
    for layer in layers:
        frame = selected(frame, "*", *(f"{text} AS {name}" for name, text in layer.items())) if layer else frame
    return frame


def partition_by(group: Sequence[str]) -> str:
    """Of a window in SQL, the part that keeps groups apart."""
    return f"PARTITION BY {', '.join(group)} " if group else ""
