"""From selected rows to an answer: joined, projected, distinct or aggregated.

An answer's rows are in the order of event time and key of its first source, then of the second, and so on, so that
pages of it fit together; with DISTINCT each stands where it comes first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from errata.archive.tables import key_numbers
from errata.intake.types import arrow_type
from errata.model.registered import AnswerRoute, OutputItem, RegisteredPlan
from errata.model.stream import Stream
from errata.model.time import Interval
from errata.psoup.joins import join_rows
from errata.psoup.measures import measure_for


@dataclass(frozen=True, slots=True)
class Invocation:
    """The answer of a registered query."""

    handle: str
    commit_id: int
    """The commit that it is as of."""
    now: int
    """The event time that it is for."""
    timed: bool
    """Whether event times are instants; else they are numbers."""
    windows: tuple[Interval, ...]
    """Of each source, the interval of its order field."""
    matched: int
    """Rows of the sources that satisfy the conjunctions in the windows."""
    rows: pa.Table
    route: AnswerRoute
    """How it was come by."""
    micros: int = 0
    """Microseconds that it took."""


@dataclass(frozen=True, slots=True)
class StrategyAnswer:
    """An answer, and how it was come by."""

    rows: pa.Table
    matched: int
    """Rows of the sources that satisfy the conjunctions in the windows."""
    windows: tuple[Interval, ...]
    route: AnswerRoute


def needed_columns(plan: RegisteredPlan, source: int) -> list[str]:
    """The columns of a source that its relations and items read."""
    read: dict[str, None] = {}
    for each in plan.relations:
        read |= {each.left: None} if each.left_source == source else {}
        read |= {each.right: None} if each.right_source == source else {}
    for item in plan.items:
        if item.source == source and item.column is not None:
            read[item.column] = None
    return list(read)


def output_schema(plan: RegisteredPlan) -> pa.Schema:
    """The Arrow schema of an answer."""
    return pa.schema([pa.field(each.output.name, arrow_type(each.output.type)) for each in plan.items])


def answer_rows(plan: RegisteredPlan, streams: Sequence[Stream], selected: Sequence[pa.Table]) -> pa.Table:
    """The answer over the selected rows of each source."""
    if len(selected) == 1:
        return combined_rows(plan, streams, selected, selected[0].num_rows)
    combinations = join_rows(selected, plan.relations)
    together = [rows.take(pa.array(places)) for rows, places in zip(selected, combinations, strict=True)]
    return combined_rows(plan, streams, together, len(combinations[0]))


def combined_rows(
    plan: RegisteredPlan, streams: Sequence[Stream], together: Sequence[pa.Table], count: int
) -> pa.Table:
    """The answer over joined rows, side by side: so many rows of each source."""
    if plan.aggregates:
        return aggregate_row(plan, [_aggregate(item, streams, together, count) for item in plan.items])
    answer = pa.table([_column(item, together) for item in plan.items], schema=output_schema(plan))
    return first_of_each(answer) if plan.distinct else answer


def aggregate_row(plan: RegisteredPlan, values: Sequence[object]) -> pa.Table:
    """The one row of an answer of aggregates."""
    schema = output_schema(plan)
    return pa.table([pa.array([value], field.type) for value, field in zip(values, schema, strict=True)], schema=schema)


def _aggregate(item: OutputItem, streams: Sequence[Stream], rows: Sequence[pa.Table], count: int) -> object:
    if item.function is None or item.column is None:
        return count
    kind = streams[item.source].column(item.column).type
    measure = measure_for(item.function, kind, item.output.type, item.output.name)
    return measure.result(measure.lift(measure.leaves(rows[item.source][item.column])))


def _column(item: OutputItem, sources: Sequence[pa.Table]) -> pa.ChunkedArray:
    column = sources[item.source][item.column or ""]
    wanted = arrow_type(item.output.type)
    return column if column.type == wanted else column.cast(wanted)


def first_of_each(rows: pa.Table) -> pa.Table:
    """The rows without those that equal an earlier one: NULL equals NULL, NaN equals NaN, and -0.0 equals 0.0."""
    if rows.num_rows < 2:
        return rows
    _, first = np.unique(key_numbers(rows), return_index=True)
    return rows if len(first) == rows.num_rows else rows.take(pa.array(np.sort(first)))
