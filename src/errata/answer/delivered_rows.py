"""Change records of a query as rows of a feed.

    op       row
    insert   the result
    replace  the result as it is now; left out if no column of the stream has changed
    delete   the result as it was
    stable   the query's frontier, behind which only corrections come

A change record tells no end that the next result of the key tells by its beginning. A stream with a column for the end
needs it: where a result was inserted, the one that ends there is said again (`followed_results`). Pure.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from errata.answer.row_comparison import equal_values
from errata.archive.results import normalize_floats
from errata.archive.schemas import conform, feed_schema
from errata.archive.tables import match_rows
from errata.intake.layout import OP as ROW_OP
from errata.intake.types import arrow_schema
from errata.model.results import OLD_VE, OP, VE, VS, ResultShape, UpdatePattern, old_column
from errata.model.stream import Stream
from errata.model.time import HIGHEST

STABLE_OP = "stable"
"""The operation of a row that says how far a feed is stable."""

_PLACE = "_place"


def delivery_schema(stream: Stream) -> pa.Schema:
    """The columns of a delivery: the stream's, and the operation."""
    declared = arrow_schema(stream)
    occurrence = stream.merged.occurrence
    kept = [pa.field(each.name, each.type) for each in declared if each.name != occurrence]
    return pa.schema([*kept, pa.field(ROW_OP, pa.string())])


def delivered_rows(records: pa.Table, shape: ResultShape, stream: Stream, lag: int) -> pa.Table:
    """The rows of a feed that say what change records say. `lag`: see `order_lag`."""
    named = {each.name: each for each in shape.columns if not each.hidden}
    gone = pc.equal(records[OP], "delete")
    columns, changed = {}, np.zeros(records.num_rows, np.bool_)
    for field in delivery_schema(stream):
        name = field.name
        if name == stream.order:
            columns[name] = pc.subtract(records[VS], lag).cast(field.type)
        elif name in named and named[name].key:
            columns[name] = records[name]
        elif name in named:
            columns[name] = pc.if_else(gone, records[old_column(name)], records[name])
            changed |= ~equal_values(_whole(records[name]), _whole(records[old_column(name)]))
        elif name == stream.merged.end:
            ends = pc.if_else(gone, records[OLD_VE], records[VE])
            columns[name] = pc.if_else(pc.equal(ends, HIGHEST), pa.scalar(None, pa.int64()), ends).cast(field.type)
            changed |= ~equal_values(_whole(records[VE]), _whole(records[OLD_VE]))
        elif name == ROW_OP:
            columns[name] = records[OP]
    schema = delivery_schema(stream)
    rows = pa.table([columns[field.name].cast(field.type) for field in schema], schema=schema)
    idle = pc.and_(pc.equal(records[OP], "replace"), pa.array(~changed))
    return rows.filter(pc.invert(idle))


def _whole(column: pa.ChunkedArray) -> pa.Array:
    whole = column.combine_chunks()
    return whole.chunk(0) if isinstance(whole, pa.ChunkedArray) and whole.num_chunks else whole


def stable_row(stream: Stream, at: int) -> pa.Table:
    """The row that says how far a feed is stable."""
    schema = delivery_schema(stream)
    told = {stream.order: pa.array([at], pa.int64()), ROW_OP: pa.array([STABLE_OP])}
    arrays = [told[each.name].cast(each.type) if each.name in told else pa.nulls(1, each.type) for each in schema]
    return pa.table(arrays, schema=schema)


def tells_ends(shape: ResultShape, stream: Stream) -> bool:
    """Whether rows have ends that results of the same key decide."""
    own = {each.name for each in shape.columns if not each.hidden}
    return stream.merged.end not in {None, *own} and shape.pattern in (UpdatePattern.KEYED, UpdatePattern.STRICT)


def beginnings(records: pa.Table, shape: ResultShape) -> pa.Table:
    """Key and beginning of the results that records insert."""
    return records.filter(pc.equal(records[OP], "insert")).select([*shape.key, VS])


def followed_results(results: pa.Table, begun: pa.Table, shape: ResultShape) -> pa.Table:
    """The results that end where one of their key has begun, as change records."""
    names = [*shape.key, _PLACE]
    ends = results.select([*shape.key, VE]).rename_columns(names)
    places = begun.select([*shape.key, VS]).rename_columns(names)
    found, _ = match_rows(normalize_floats(ends, names), normalize_floats(places, names), names)
    rows = results.take(pa.array(np.unique(found)))
    return conform(rows.append_column(OP, pa.repeat("replace", rows.num_rows)), feed_schema(shape))
