"""The one row for which an expression fails, found with few jobs that are as small as can be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame

from errata.engine.failures import JOB_FAILURES
from errata.engine.frames import grouped_by, selected
from errata.engine.plans.rows import VE, VS, Rows, instant
from errata.engine.types import arrow_ddl
from errata.engine.values import as_frame, fetch
from errata.evaluate.fallible import Computed, Fallible, doubt, either, innermost
from errata.language.expr import Expr

_FEW = 1_000
"""So many rows are looked at here, without another job."""
_PARTS = 64
"""Into so many parts what is looked at is cut, of which one is kept."""


@dataclass(frozen=True)
class Culprit:
    """A row for which an expression fails."""

    computed: Computed
    row: pa.Table
    """The row alone, its columns called as those of the node are; `_vs` and `_ve` come last."""
    error: Exception


def fails(rows: Rows, found: Fallible) -> bool:
    """Whether any of the expressions fails for any of the rows."""
    return _job_fails(rows.frame, _probe(rows, [each.expr for each in found.all]))


def culprit(rows: Rows, found: Fallible) -> Culprit | None:
    """The first row, in order of time and key, for which any of the expressions fails, if it can be told."""
    probe = _probe(rows, [each.expr for each in found.all])
    doubts = [doubt(each.expr) for each in found.all]
    told = either([each for each in doubts if each is not None]) if None not in doubts else None
    if told is not None:
        suspects = _first(rows, rows.frame.filter(rows.sql(told)))
        if suspects.num_rows and (place := _first_failing(rows, suspects, probe)) is not None:
            return _explained(rows, found, suspects.slice(place, 1))
    suspects = _few(rows, probe)
    place = _first_failing(rows, suspects, probe)
    return None if place is None else _explained(rows, found, suspects.slice(place, 1))


def _probe(rows: Rows, exprs: Sequence[Expr]) -> str:
    """A number that takes all of the expressions to work out."""
    return f"xxhash64({', '.join(map(rows.sql, exprs))})"


def _job_fails(frame: DataFrame, probe: str) -> bool:
    try:
        grouped_by(frame, [], [f"max({probe})"]).collect()
    except JOB_FAILURES:
        return True
    return False


def _first(rows: Rows, frame: DataFrame) -> pa.Table:
    """The first rows in order of time and key; one more than are looked at tells that there are others."""
    columns = [*rows.columns, VS, VE]
    order = [VS, *map(rows.column, rows.plan.key)]
    return fetch(frame.select(*columns).orderBy(*order).limit(_FEW + 1))


def _few(rows: Rows, probe: str) -> pa.Table:
    """Few enough rows with one among them that fails: the first part of time that has one, and where too many rows
    begin at once, some of them by their key."""
    frame = rows.frame
    key = f"xxhash64({', '.join(map(rows.column, rows.plan.key)) or 0})"
    for position in (VS, VS, VS, key, key):
        suspects = _first(rows, frame)
        if suspects.num_rows <= _FEW or _first_failing(rows, suspects, probe) is not None:
            break
        frame = _first_part(frame, position, probe)
    return suspects


def _first_part(frame: DataFrame, position: str, probe: str) -> DataFrame:
    """Of as many parts by position, about equally large, the first in which the expression fails."""
    shares = ", ".join(f"{number / _PARTS}D" for number in range(1, _PARTS))
    cuts = grouped_by(frame, [], [f"approx_percentile({position}, array({shares}))"]).collect()[0][0]
    ends = sorted(set(cuts or ()))
    low, high = 0, len(ends)
    while low < high:
        middle = (low + high) // 2
        if _job_fails(frame.filter(f"{position} <= {instant(ends[middle])}"), probe):
            high = middle
        else:
            low = middle + 1
    if low < len(ends):
        frame = frame.filter(f"{position} <= {instant(ends[low])}")
    return frame.filter(f"{position} > {instant(ends[low - 1])}") if low else frame


def _first_failing(rows: Rows, suspects: pa.Table, probe: str) -> int | None:
    """The place of the first row that fails."""
    if _failure(rows, suspects, probe) is None:
        return None
    low, high = 0, suspects.num_rows - 1
    while low < high:
        middle = (low + high) // 2
        if _failure(rows, suspects.slice(low, middle - low + 1), probe) is not None:
            high = middle
        else:
            low = middle + 1
    return low


def _failure(rows: Rows, suspects: pa.Table, probe: str) -> Exception | None:
    """What becomes of rows that are here: no job is needed."""
    local = as_frame(rows.frame.sparkSession, suspects, arrow_ddl(suspects.schema))
    try:
        selected(local, probe).collect()
    except JOB_FAILURES as error:
        return error
    return None


def _explained(rows: Rows, found: Fallible, row: pa.Table) -> Culprit | None:
    """The smallest expression that fails for the row."""

    def failing(expr: Expr) -> bool:
        return _failure(rows, row, _probe(rows, [expr])) is not None

    computed = next((each for each in found.all if failing(each.expr)), None)
    if computed is None:
        return None
    smallest = innermost(computed.expr, failing)
    error = _failure(rows, row, _probe(rows, [smallest]))
    if error is None:
        return None
    named = row.rename_columns([*(each.name for each in rows.plan.fields), VS, VE])
    return Culprit(Computed(smallest, computed.where), named, error)
