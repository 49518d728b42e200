"""Which of the rows at hand lineage asks for."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from functools import reduce
from operator import or_

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from errata.archive.match import matches
from errata.engine.plans.rows import quoted
from errata.evaluate.reads import Reach
from errata.language.lineage import Axis
from errata.model.interval import HIGHEST
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
    order = sf.unix_micros(stream.order) if stream.timed else sf.col(stream.order)
    return rows.select("*", order.alias(VS), sf.lit(HIGHEST).alias(VE))


def asked(rows: DataFrame, reads: Iterable[Reach]) -> DataFrame:
    """The rows, with their lifetimes, that one of several asks for."""
    times = {name for name, kind in rows.dtypes if kind == "timestamp"}
    return rows.where(reduce(or_, (_wanted(each, times) for each in reads), sf.lit(False)))


def _wanted(reach: Reach, times: Collection[str]) -> Column:
    vs, ve, span = sf.col(VS), sf.col(VE), reach.interval
    found = (vs < span.end) & ((vs >= span.start) if reach.axis is Axis.START else (ve > span.start))
    for name, value in reach.values.items():
        column = sf.col(quoted(name))
        found &= (sf.unix_micros(column) if name in times else column).eqNullSafe(sf.lit(value))
    return found


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
