"""The partial aggregates of final windows: what corrections of their results start from."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from errata.evaluate.sameness import lanes, steps
from errata.model.evaluation import Step
from errata.model.interval import LOWEST
from errata.model.results import RUN, VS

EMPTY = "_empty"
"""Of a window without rows any more: what was kept of it before does not count."""


def closed_and_open(windows: pa.Table, step: Step, run: int) -> tuple[pa.Table, pa.Table]:
    """Of windows with the parts of each those that have closed in a step, as they are kept, and those that are open:
    the state. One that ends at the step's last instant is both."""
    ends = windows[VS]
    closed = pc.less_equal(ends, step.until)
    if step.since > LOWEST:
        closed = pc.and_(closed, pc.greater(ends, step.since))
    state = windows.filter(pc.greater_equal(ends, step.until)).drop_columns([VS])
    return as_kept(windows.filter(closed), run), state


def as_kept(windows: pa.Table, run: int, *, empty: bool = False) -> pa.Table:
    """The parts of windows as they are kept: with the evaluation that worked them out."""
    rows = windows.append_column(EMPTY, pa.repeat(pa.scalar(empty), windows.num_rows))
    return rows.append_column(RUN, pa.repeat(pa.scalar(run, pa.int64()), rows.num_rows))


def latest(parts: pa.Table) -> pa.Table:
    """Of each window what was kept last; without the windows that have no rows any more."""
    if not parts.num_rows:
        return parts
    names = [*group_columns(parts), VS]
    told = lanes(parts, names)
    order = np.lexsort((parts[RUN].to_numpy(), *reversed(told)))
    fresh = steps([lane[order] for lane in told], parts.num_rows)
    lasts = np.append(np.flatnonzero(fresh)[1:], len(order)) - 1
    newest = parts.take(pa.array(order[lasts]))
    return newest.filter(pc.invert(newest[EMPTY]))


def vanished(before: pa.Table, now: pa.Table, run: int) -> pa.Table:
    """Windows that were there and are not any more, as they are to be kept."""
    names = [*group_columns(before), VS]
    both = pa.concat_tables([before.select(names), now.select(names)])
    told = lanes(both, names)
    order = np.lexsort(told[::-1])
    number = np.empty(both.num_rows, np.int64)
    number[order] = np.cumsum(steps([lane[order] for lane in told], both.num_rows))
    gone = ~np.isin(number[: before.num_rows], number[before.num_rows :])
    return as_kept(before.filter(pa.array(gone)).drop_columns([EMPTY, RUN]), run, empty=True)


def group_columns(parts: pa.Table) -> list[str]:
    """The columns that tell groups apart."""
    return [name for name in parts.column_names if name.startswith("_g") and name[2:].isdigit()]
