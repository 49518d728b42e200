"""Change records of a query's results, made from the changelog that the archive keeps: op, key, lifetime, the values
before and after, cause and commit.

The same function makes them from Arrow tables and, batch by batch, in an engine.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema
from rich.table import Table
from rich.text import Text

from errata.archive.result_changes import FORGOTTEN_CAUSE, ChangeCause
from errata.archive.schemas import conform, feed_schema
from errata.engine.frames import fetch_rows, sql_column
from errata.intake.encoding import plain_text
from errata.intake.types import arrow_type
from errata.model.results import EVALUATION, OLD_VE, OP, VE, VS, ArchiveColumn, ResultShape, old_column
from errata.model.time import HIGHEST
from errata.read.output import FrameOrTable
from errata.read.tables import TableField, format_table
from errata.read.wording import short_batch_id

CHANGE_COLUMNS = ("op", "key", "vs", "ve", "old", "new", "old_ve", "cause", "commit")
"""The columns of change records, the same for every query."""

_TABLE_FIELDS = (
    TableField("commit", "commit", right=True),
    TableField("op", "change"),
    TableField("key", "key", fold=True),
    TableField("vs", "from"),
    TableField("ve", "until"),
    TableField("old", "was", fold=True),
    TableField("new", "is", fold=True),
    TableField("cause", "cause"),
)
_CAUSE_TYPE = pa.struct([pa.field("type", pa.string()), pa.field("id", pa.string())])


def change_schema(shape: ResultShape) -> pa.Schema:
    """The columns of change records, with their types."""
    time = pa.timestamp("us", "UTC") if shape.timed else pa.int64()
    values = _struct_type(_payload_columns(shape))
    fields = {"op": pa.string(), "key": _struct_type(_key_columns(shape)), "vs": time, "ve": time}
    fields |= {"old": values, "new": values, "old_ve": time, "cause": _CAUSE_TYPE, "commit": pa.int64()}
    return pa.schema([pa.field(name, kind) for name, kind in fields.items()])


def changes_from_records(
    records: pa.Table, shape: ResultShape, told: Mapping[int, ChangeCause], into: ResultShape | None = None
) -> pa.Table:
    """Change records from rows of the changelog, in their order. `into` is the present shape of the results, if it
    is another: columns that the rows lack are NULL, and those that it lacks are left out."""
    records = conform(records, feed_schema(shape))
    if into is not None:
        shape, records = into, conform(records, feed_schema(into))
    records = records.combine_chunks()
    schema, op = change_schema(shape), records[OP]
    gone, new = pc.equal(op, "delete"), pc.equal(op, "insert")
    payload, causes = _payload_columns(shape), _cause_columns(records[EVALUATION], told)
    columns = {
        "op": op,
        "key": _struct_array(records, _key_columns(shape), [each.name for each in _key_columns(shape)], None),
        "vs": records[VS],
        # A deleted result counts at no instant.
        "ve": _known_ends(pc.if_else(gone, records[VS], records[VE])),
        "old": _struct_array(records, payload, [old_column(each.name) for each in payload], new),
        "new": _struct_array(records, payload, [each.name for each in payload], gone),
        "old_ve": _known_ends(records[OLD_VE]),
        "cause": causes["cause"],
        "commit": causes["commit"],
    }
    return pa.table([columns[field.name].cast(field.type) for field in schema], schema=schema)


def change_records_frame(
    records: DataFrame, shape: ResultShape, told: Mapping[int, ChangeCause], into: ResultShape | None = None
) -> DataFrame:
    """The same for a DataFrame."""
    schema = from_arrow_schema(change_schema(into or shape))
    return records.mapInArrow(partial(_map_batches, shape=shape, told=dict(told), into=into), schema)


def empty_change_records_frame(session: SparkSession, shape: ResultShape) -> DataFrame:
    """A frame without change records."""
    return session.createDataFrame([], from_arrow_schema(change_schema(shape)))


def last_changes(some: FrameOrTable, most: int) -> pa.Table:
    """The last change records."""
    if isinstance(some, pa.Table):
        return some.slice(max(0, some.num_rows - most))
    order = ("commit", "vs", "key")
    last = some.orderBy(*(sql_column(some, name).desc() for name in order)).limit(most)
    return fetch_rows(last.orderBy(*order))


def last_rows_of_tables(some: Sequence[pa.Table], most: int) -> tuple[list[pa.Table], bool]:
    """The last change records of several tables, those of one schema together; and whether there are more."""
    kept: list[pa.Table] = []
    room = most
    for table in reversed(some):
        last = table.slice(max(0, table.num_rows - room))
        room -= last.num_rows
        if kept and kept[0].schema.equals(last.schema):
            kept[0] = pa.concat_tables([last, kept[0]])
        elif last.num_rows:
            kept.insert(0, last)
    return kept, sum(each.num_rows for each in some) > most


def format_changes(some: pa.Table, width: int) -> Table | Text:
    """Change records as a table that fits the width, with times to the millisecond."""
    columns = {name: _column_texts(some[name]) for name in ("commit", "op", "key", "vs", "ve", "old", "new")}
    columns["cause"] = [f"{each['type']} {short_batch_id(each['id'])}" for each in some["cause"].to_pylist()]
    records = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    return format_table(_TABLE_FIELDS, records, width)


def _column_texts(column: pa.ChunkedArray) -> list[str]:
    whole = _single_array(column)
    if not pa.types.is_struct(whole.type):
        kept = [text or "" for text in plain_text(whole).to_pylist()]
        return [text[:23] for text in kept] if pa.types.is_timestamp(whole.type) else kept
    names = [field.name for field in whole.type]
    children = [plain_text(child).to_pylist() for child in whole.flatten()]
    rows = zip(*children, strict=True) if children else ([] for _ in range(len(whole)))
    told = (", ".join(f"{n}={'NULL' if v is None else v}" for n, v in zip(names, row, strict=True)) for row in rows)
    return [text if there else "" for text, there in zip(told, whole.is_valid().to_pylist(), strict=True)]


def _map_batches(
    batches: Iterable[pa.RecordBatch], shape: ResultShape, told: Mapping[int, ChangeCause], into: ResultShape | None
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        if batch.num_rows:
            yield from changes_from_records(pa.Table.from_batches([batch]), shape, told, into).to_batches()


def _key_columns(shape: ResultShape) -> list[ArchiveColumn]:
    return [each for each in shape.columns if each.key]


def _payload_columns(shape: ResultShape) -> list[ArchiveColumn]:
    """The visible columns that are not part of the key."""
    return [each for each in shape.columns if not each.key and not each.hidden]


def _struct_type(columns: Sequence[ArchiveColumn]) -> pa.DataType:
    return pa.struct([pa.field(each.shown, arrow_type(each.type)) for each in columns])


def _struct_array(
    records: pa.Table, columns: Sequence[ArchiveColumn], names: Sequence[str], missing: pa.ChunkedArray | None
) -> pa.Array:
    kind = _struct_type(columns)
    mask = None if missing is None else _single_array(missing)
    if not columns:
        there = pa.array([{}] * records.num_rows, kind)
        return there if mask is None else pc.if_else(mask, pa.scalar(None, kind), there)
    values = [_single_array(records[name]) for name in names]
    return pa.StructArray.from_arrays(values, fields=list(kind), mask=mask)


def _known_ends(ends: pa.ChunkedArray) -> pa.ChunkedArray:
    """Ends of lifetimes; an open end is NULL."""
    return pc.if_else(pc.equal(ends, HIGHEST), pa.scalar(None, pa.int64()), ends)


def _cause_columns(runs: pa.ChunkedArray, told: Mapping[int, ChangeCause]) -> dict[str, pa.Array]:
    """The commit and the cause of each record, by the number of its evaluation."""
    numbers, wanted = np.array(sorted(told), np.int64), runs.to_numpy()
    known = [told[int(each)] for each in numbers]
    places = np.searchsorted(numbers, wanted)
    forgotten = np.flatnonzero(~np.isin(wanted, numbers))
    of_cause = places.copy()
    of_cause[forgotten] = len(known)
    causes = pa.array(
        [*({"type": each.type, "id": each.id} for each in known), {"type": FORGOTTEN_CAUSE, "id": ""}], _CAUSE_TYPE
    )
    return {
        "commit": pa.array([each.commit_id for each in known], pa.int64()).take(pa.array(places)),
        "cause": causes.take(pa.array(of_cause)),
    }


def _single_array(column: pa.ChunkedArray) -> pa.Array:
    whole = column.combine_chunks()
    return whole.chunk(0) if isinstance(whole, pa.ChunkedArray) else whole
