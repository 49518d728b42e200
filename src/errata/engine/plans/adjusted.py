"""Windows that have closed, corrected by what corrected rows take out of their partial aggregates and put into them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from pyspark.sql import DataFrame

from errata.engine.frames import grouped_by, selected, stacked
from errata.engine.plans.compile import named, upon
from errata.engine.plans.grouping import finished
from errata.engine.plans.partial_events import SIGN, Frames, GroupEvents, any_near, with_layers
from errata.engine.plans.partial_kept import OWN, Part, cleared
from errata.engine.plans.partial_sums import kept_of
from errata.engine.plans.rows import OPEN, VE, VS, instant
from errata.engine.values import made_once
from errata.language.partial import PartialGroup, adjustable
from errata.language.plan import PlanError
from errata.model.interval import LOWEST

FATE = "_fate"
STANDS, GONE, UNDECIDED = "stands", "gone", "undecided"
_TAKEN, _BROUGHT, _KNOWN, _TOUCHED = "_taken", "_brought", "_known", "_touched"


@dataclass(frozen=True)
class Adjusted:
    """What corrections make of windows."""

    rows: DataFrame
    """The right results of touched windows that are decided and have rows, as `compile_plan` gives them."""
    windows: DataFrame
    """One row for each touched window: the columns of a state, `_vs`, and `_fate`. It stands, and these are its parts;
    or it is gone, for no rows are left; or it is undecided, and has to be worked out from its rows."""

    @property
    def parts(self) -> DataFrame:
        """The new parts of windows that stand."""
        return self.windows.filter(f"{FATE} = '{STANDS}'").drop(FATE)

    @property
    def undecided(self) -> DataFrame:
        """The windows for which the parts do not decide; what the parts say of them means nothing."""
        return self.windows.filter(f"{FATE} = '{UNDECIDED}'").drop(FATE)


def adjust_group(
    found: PartialGroup,
    gone: Frames,
    came: Frames,
    parts: DataFrame,
    until: int,
    scope: Sequence[str] = (),
    state: DataFrame | None = None,
) -> Adjusted:
    """The windows that have closed by `until` and that rows are taken from or brought into.

    Over `gone` the group's input yields the rows as the results contain them, over `came` as they shall contain them,
    each row at most once in either; a row that is alike in both does no harm. `parts` are those of the windows that
    these rows are in, and may be more; a window that is not there has no rows. With `state`, which is of rows before
    `until`, windows that are still open are adjusted, too: then `windows` also has all of the state, those with
    `_vs >= until`, as long as none of them is undecided; else the state has to be made anew.
    """
    if (why := adjustable(found)) is not None:
        raise PlanError(why, where="Group")
    work = _Adjusting(found, kept_of(found), tuple(scope), any_near(came), until, open=state is not None)
    new, old = (work.read(frames, LOWEST, until - 1) for frames in (came, gone))
    events = stacked(work.brought(new.frame, OWN, ""), work.brought(old.frame, OWN, "-"))
    if state is not None:
        # A window that ends at `until` is in both.
        events = stacked(events, work.known(state, until))
        parts = parts.filter(f"{VS} < {instant(until)}")
    windows = made_once(work.judged(stacked(events, work.known(parts, until))))
    rows = named(upon(found.above, finished(found.node, new.below, work.by, work.right(windows))), scope)
    return Adjusted(rows, work.kept_on(windows))


@dataclass(frozen=True)
class _Adjusting(GroupEvents):
    """Windows with rows before `until`."""

    until: int
    open: bool
    """Whether windows that have not closed by then are among them."""
    correcting: ClassVar[bool] = True

    def judged(self, events: DataFrame) -> DataFrame:
        """What is left of each window, and whether that decides."""
        closed = events if self.open else events.filter(f"{self.window_end} <= {instant(self.until)}")
        totals: dict[str, str] = {}
        for name, part in self.kept.parts.items():
            totals |= _totals(name, part, near=self.near)
        totals |= {name: f"max({name})" for name in self.kept.centres}
        totals |= {name: f"count_if({SIGN} {sign})" for name, sign in _COUNTS.items()}
        sums = grouped_by(self.centred(closed), self.group, [f"{text} AS {name}" for name, text in totals.items()])
        touched = f"{_TAKEN} + {_BROUGHT} > 0"
        sums = sums.filter(f"{touched} OR {self.window_end} >= {instant(self.until)}" if self.open else touched)
        extremes = {name: part for name, part in self.kept.parts.items() if not part.signed}
        lost = selected(sums, "*", *(f"{_is_lost(name, part)} AS _x{name}" for name, part in extremes.items()))
        left = {name: f"IF(_x{name} OR {self._all_new}, _b{name}, {name})" for name in extremes}
        others = [name for name in (*self.group, *totals, *(f"_x{name}" for name in extremes)) if name not in left]
        whole = selected(lost, *others, *(f"{text} AS {name}" for name, text in left.items()))
        return with_layers(whole, [*self.kept.told, {FATE: self._fate(extremes), _TOUCHED: touched}])

    @property
    def _all_new(self) -> str:
        """Whether all rows that are left have just come."""
        return f"{self.kept.live} <= {_BROUGHT}"

    def _fate(self, extremes: dict[str, Part]) -> str:
        doubts = [
            f"_x{name} AND NOT ({self._all_new}) AND NOT {_as_good(name, part, '_b', '_l')}"
            for name, part in extremes.items()
        ]
        taken = [*self.kept.doubts, *doubts, f"{_KNOWN} = 0"]
        # Rows can be taken only from what is there; where more are taken, the parts are not of this window's rows.
        return (
            f"CASE WHEN {self.kept.live} < 0 THEN '{UNDECIDED}' WHEN {self.kept.live} = 0 THEN '{GONE}' "
            f"WHEN {_TAKEN} > 0 AND {_any(taken)} OR {_any(self.kept.worn)} THEN '{UNDECIDED}' ELSE '{STANDS}' END"
        )

    def right(self, windows: DataFrame) -> DataFrame:
        """The aggregates of windows that have closed."""
        stand = windows.filter(f"{FATE} = '{STANDS}' AND {_TOUCHED} AND {self.window_end} <= {instant(self.until)}")
        return selected(stand, *self.group, *self.results, f"{self.window_end} AS {VS}", f"{OPEN} AS {VE}")

    def kept_on(self, windows: DataFrame) -> DataFrame:
        """What is kept of the windows from now on."""
        return selected(windows, *self.to_state, *cleared(self.kept), f"{self.window_end} AS {VS}", FATE)


_COUNTS = {_TAKEN: "< 0", _BROUGHT: "> 0", _KNOWN: "= 0"}
"""Events by their sign."""


def _any(conditions: Sequence[str]) -> str:
    return f"({' OR '.join(f'({each})' for each in conditions) or 'FALSE'})"


def _totals(name: str, part: Part, *, near: bool) -> dict[str, str]:
    """All of a part together; of an extreme what is there, what was taken and what was brought, each for itself."""
    if part.signed:
        return {name: f"sum({name})"}
    signs = {"": ">= 0", "_l": "< 0", "_b": "> 0"}
    whole = part.together(name, near=near)
    return {f"{which}{name}": f"{whole} FILTER (WHERE {SIGN} {sign})" for which, sign in signs.items()}


def _is_lost(name: str, part: Part) -> str:
    """Whether the extreme is one that was taken away. Then it is either the best that was brought, or nobody knows."""
    return _as_good(name, part, "_l", "")


def _as_good(name: str, part: Part, one: str, other: str) -> str:
    """Whether there is the one, and it is no less extreme than the other."""
    left, right = (_rank(f"{which}{name}", part) for which in (one, other))
    sign = "<=" if part.total == "min" else ">="
    return f"({one}{name} IS NOT NULL AND coalesce({left} {sign} {right}, TRUE))"


def _rank(name: str, part: Part) -> str:
    """What an extreme is compared by."""
    if not part.ranked:
        return name
    fields = (f"'v{place}', {name}.v{place}" for place in range(part.ranked))
    return f"named_struct({', '.join(fields)})"
