"""The Arrow type of each declared type."""

from __future__ import annotations

import pyarrow as pa

from errata.model.columns import ColumnType, Kind
from errata.model.stream import Stream

_PLAIN: dict[Kind, pa.DataType] = {
    Kind.STRING: pa.string(),
    Kind.BOOLEAN: pa.bool_(),
    Kind.INT: pa.int32(),
    Kind.BIGINT: pa.int64(),
    Kind.FLOAT: pa.float32(),
    Kind.DOUBLE: pa.float64(),
    Kind.DATE: pa.date32(),
    Kind.TIMESTAMP: pa.timestamp("us", "UTC"),
}


def arrow_type(kind: ColumnType) -> pa.DataType:
    """What values of a declared type are in Arrow."""
    if kind.kind is Kind.DECIMAL:
        return pa.decimal128(kind.precision, kind.scale)
    return _PLAIN[kind.kind]


def arrow_schema(stream: Stream) -> pa.Schema:
    """A stream's rows in Arrow, in the order of the declaration."""
    return pa.schema([pa.field(column.name, arrow_type(column.type)) for column in stream.columns])
