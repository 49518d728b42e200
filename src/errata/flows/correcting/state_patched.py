"""What becomes of what a strategy keeps when rows that it is made of are corrected.

For windows of rows it is rows: one that is corrected in place is put right there. Everything else would have to be made
anew, from all that came before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from errata.archive.masked_results import spelled
from errata.archive.match import matches
from errata.catalog.published import Published
from errata.engine.plans.compile import compile_plan
from errata.engine.types import ddl
from errata.engine.values import as_frame, fetch
from errata.evaluate.route import Kind
from errata.evaluate.storing import spans_below
from errata.flows.answering.inputs import Inputs
from errata.flows.answering.lineage_kept import stores
from errata.flows.answering.standing_results import state_of
from errata.flows.answering.task import Task
from errata.language.nodes import scans
from errata.language.plan import Plan
from errata.model.results import VS
from errata.revise import work
from errata.revise.in_place import parted
from errata.revise.revised import Revised
from errata.revise.work import Answered


@dataclass(frozen=True, slots=True)
class Fate:
    """What becomes of it."""

    wrong: bool = False
    """Whether it is made of rows that have been revised otherwise than in place, and is to be made anew."""
    patched: bool = False
    """Whether rows in it are to be put right."""


def fate(of: Answered, task: Task, basis: Published, inputs: Inputs, revised: Sequence[Revised]) -> Fate:
    """What becomes of what is kept of a query whose sources have been revised."""
    if not stores(task) or task.route.kind is not Kind.ROW_WINDOWS:
        return Fate(work.touches_state(of, revised))
    parts = [parted(task.rewritten, each) for each in revised]
    wrong = work.touches_state(of, [each for _, each in parts if each is not None])
    state = state_of(inputs.site, basis)
    if state is None:
        return Fate(wrong=True)
    among = [each for each, _ in parts if each is not None and _among(task, state, each)]
    if not among:
        return Fate(wrong)
    # A row that is kept is a row of the stream then, and not made of several.
    if len(scans(task.route.input)) == 1 and all(each.after is not None for each in among):
        return Fate(wrong, patched=True)
    return Fate(wrong=True)


def _among(task: Task, state: pa.Table, revised: Revised) -> bool:
    """Whether rows that are kept may be made of revised ones."""
    kept, moments = np.sort(state[VS].to_numpy()), pc.unique(revised.rows[VS]).to_numpy()
    read = scans(task.route.input)
    for scan, span in zip(read, spans_below(task.route.input), strict=True):
        if scan.source.name == revised.source:
            low = np.searchsorted(kept, moments + span.low)
            if (low < np.searchsorted(kept, moments + span.high, side="right")).any():
                return True
    return False


def patched(task: Task, basis: Published, inputs: Inputs, revised: Sequence[Revised]) -> pa.Table:
    """What is kept, with the rows in it as they are now."""
    state, below = state_of(inputs.site, basis), task.route.input
    if state is None:
        raise AssertionError("what is not there is not patched")
    (scan,) = scans(below)
    (rows,) = (each.after for each in revised if each.source == scan.source.name)
    frame = as_frame(inputs.session, rows, ddl(inputs.standings[scan.source.name].stream))
    fields = [f"c{place}" for place in range(len(below.fields))]
    now = fetch(compile_plan(below, {scan.source.name: frame}).toDF(*fields, VS, "_ve").drop("_ve"))
    now = now.cast(pa.schema([state.schema.field(name) for name in now.column_names]))
    names = [VS, *_key_columns(below)]
    mine, theirs = matches(spelled(state, names), spelled(now, names), names)
    place = np.arange(state.num_rows)
    place[mine] = state.num_rows + theirs
    for name in fields:
        column = pa.chunked_array([*state[name].chunks, *now[name].chunks], state.schema.field(name).type)
        state = state.set_column(state.column_names.index(name), state.schema.field(name), column.take(pa.array(place)))
    return state


def _key_columns(plan: Plan) -> list[str]:
    names = [each.name for each in plan.fields]
    return [f"c{names.index(name)}" for name in plan.key]
