"""Which of the rows at hand lineage asks for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from errata.archive.match import matches
from errata.engine.frames import selected
from errata.engine.plans.rows import quoted
from errata.evaluate.reads import Reach
from errata.language.expr import BIGINT, Lit, literal
from errata.language.lineage import Axis
from errata.model.columns import ColumnType, Kind
from errata.model.interval import HIGHEST, LOWEST
from errata.model.results import VE, VS
from errata.model.stream import Stream


def with_times(rows: pa.Table, stream: Stream | None) -> pa.Table:
    """Rows of a stream with their lifetimes, of which nobody knows the ends; results have theirs."""
    if stream is None:
        return rows
    begins = rows[stream.order].cast(pa.int64())
    ends = pa.repeat(pa.scalar(HIGHEST, pa.int64()), rows.num_rows)
    return rows.append_column(VS, begins).append_column(VE, ends)


def frame_with_times(rows: DataFrame, stream: Stream) -> DataFrame:
    """The same as a frame."""
    order = quoted(stream.order)
    begins = f"unix_micros({order})" if stream.timed else order
    return selected(rows, "*", f"{begins} AS {VS}", f"{HIGHEST}L AS {VE}")


def asked(rows: DataFrame, reads: Iterable[Reach], kinds: Mapping[str, ColumnType]) -> DataFrame:
    """The rows, with their lifetimes, that one of several asks for; `kinds` are the types of their columns."""
    return rows.where(" OR ".join(f"({_wanted(each, kinds)})" for each in reads) or "false")


def _wanted(reach: Reach, kinds: Mapping[str, ColumnType]) -> str:
    span = reach.interval
    found = [] if span.end == HIGHEST else [f"{VS} < {span.end}L"]
    if span.start > LOWEST:
        found.append(
            f"{VS if reach.axis is Axis.START else VE} {'>=' if reach.axis is Axis.START else '>'} {span.start}L"
        )
    for name, value in reach.values.items():
        timed = kinds[name].kind is Kind.TIMESTAMP
        column = f"unix_micros({quoted(name)})" if timed else quoted(name)
        found.append(f"{column} <=> {literal(Lit(value, BIGINT if timed else kinds[name]))}")
    return " AND ".join(found) or "true"


def reached(rows: pa.Table, reach: Reach) -> np.ndarray:
    """Which rows, with their lifetimes, are asked for."""
    begins = _plain(pc.fill_null(rows[VS], HIGHEST))
    if reach.axis is Axis.START:
        found = (begins >= reach.interval.start) & (begins < reach.interval.end)
    else:
        ends = _plain(pc.fill_null(rows[VE], HIGHEST))
        found = (begins < reach.interval.end) & (ends > reach.interval.start)
    for name, value in reach.values.items():
        if name in rows.column_names:
            found &= _same(rows[name], value)
    return np.asarray(found, np.bool_)


def _same(column: pa.ChunkedArray, value: object) -> np.ndarray:
    if value is None:
        return _plain(pc.is_null(column))
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.int64())
    return _plain(pc.fill_null(pc.equal(column, pa.scalar(value).cast(column.type)), False))


def _plain(column: pa.ChunkedArray) -> np.ndarray:
    values: np.ndarray = column.combine_chunks().to_numpy(zero_copy_only=False)
    return values


def valid(rows: pa.Table, stream: Stream, reads: Sequence[Reach]) -> pa.Table:
    """Versions of a relation's rows that are valid at some instant that is asked for: of each key those that begin
    there, and the last one before."""
    since = min((each.interval.start for each in reads), default=HIGHEST)
    names = list(stream.key)
    before = rows.filter(pc.less_equal(rows[VS], since))
    last = before.group_by(names).aggregate([(VS, "max")]).rename_columns([*names, VS])
    stays = rows[VS].to_numpy() > since
    stays[matches(rows.select([*names, VS]), last, [*names, VS])[0]] = True
    return rows.filter(pa.array(stays))
