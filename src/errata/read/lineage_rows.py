"""Rows that lie in an extent: lineage gives intervals of lifetimes and constants of columns, and these functions
filter rows by them, as SQL conditions on frames and as masks on Arrow tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from errata.archive.tables import match_rows
from errata.engine.frames import select_sql
from errata.engine.plans.node_rows import quote_name
from errata.language.expr import BIGINT, Lit, literal_sql
from errata.model.columns import ColumnType, TypeKind
from errata.model.extent import Extent, ExtentAxis
from errata.model.results import VE, VS
from errata.model.stream import Stream
from errata.model.time import HIGHEST, LOWEST


def with_lifetimes(rows: pa.Table, stream: Stream | None) -> pa.Table:
    """Rows of a stream with their lifetimes, whose ends are open. Results have lifetimes already."""
    if stream is None:
        return rows
    begins = rows[stream.order].cast(pa.int64())
    ends = pa.repeat(pa.scalar(HIGHEST, pa.int64()), rows.num_rows)
    return rows.append_column(VS, begins).append_column(VE, ends)


def frame_with_lifetimes(rows: DataFrame, stream: Stream) -> DataFrame:
    """The same for a DataFrame."""
    order = quote_name(stream.order)
    begins = f"unix_micros({order})" if stream.timed else order
    return select_sql(rows, "*", f"{begins} AS {VS}", f"{HIGHEST}L AS {VE}")


def filter_frame(rows: DataFrame, reads: Iterable[Extent], kinds: Mapping[str, ColumnType]) -> DataFrame:
    """The rows, with their lifetimes, that lie in one of several extents; `kinds` are the types of their columns."""
    return rows.where(" OR ".join(f"({_reach_condition(each, kinds)})" for each in reads) or "false")


def _reach_condition(reach: Extent, kinds: Mapping[str, ColumnType]) -> str:
    span = reach.interval
    found = [] if span.end == HIGHEST else [f"{VS} < {span.end}L"]
    if span.start > LOWEST:
        found.append(
            f"{VS if reach.axis is ExtentAxis.START else VE} "
            f"{'>=' if reach.axis is ExtentAxis.START else '>'} {span.start}L"
        )
    for name, value in reach.values.items():
        timed = kinds[name].kind is TypeKind.TIMESTAMP
        column = f"unix_micros({quote_name(name)})" if timed else quote_name(name)
        found.append(f"{column} <=> {literal_sql(Lit(value, BIGINT if timed else kinds[name]))}")
    return " AND ".join(found) or "true"


def rows_in_reach(rows: pa.Table, reach: Extent) -> np.ndarray:
    """A mask of the rows, with their lifetimes, that lie in an extent."""
    begins = _as_numpy(pc.fill_null(rows[VS], HIGHEST))
    if reach.axis is ExtentAxis.START:
        found = (begins >= reach.interval.start) & (begins < reach.interval.end)
    else:
        ends = _as_numpy(pc.fill_null(rows[VE], HIGHEST))
        found = (begins < reach.interval.end) & (ends > reach.interval.start)
    for name, value in reach.values.items():
        if name in rows.column_names:
            found &= _equals(rows[name], value)
    return np.asarray(found, np.bool_)


def _equals(column: pa.ChunkedArray, value: object) -> np.ndarray:
    if value is None:
        return _as_numpy(pc.is_null(column))
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.int64())
    return _as_numpy(pc.fill_null(pc.equal(column, pa.scalar(value).cast(column.type)), False))


def _as_numpy(column: pa.ChunkedArray) -> np.ndarray:
    values: np.ndarray = column.combine_chunks().to_numpy(zero_copy_only=False)
    return values


def valid_versions(rows: pa.Table, stream: Stream, reads: Sequence[Extent]) -> pa.Table:
    """Versions of a relation's rows that are valid at some instant of the extents: of each key those that begin
    there, and the last one before."""
    since = min((each.interval.start for each in reads), default=HIGHEST)
    names = list(stream.key)
    before = rows.filter(pc.less_equal(rows[VS], since))
    last = before.group_by(names).aggregate([(VS, "max")]).rename_columns([*names, VS])
    stays = rows[VS].to_numpy() > since
    stays[match_rows(rows.select([*names, VS]), last, [*names, VS])[0]] = True
    return rows.filter(pa.array(stays))
