"""Parquet: runs of row groups, whose columns have types already."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from errata.intake.convert import convert
from errata.intake.parsed import Parsed
from errata.intake.source import opened
from errata.model.batch import SourceFile, Split
from errata.model.columns import ColumnType, Kind
from errata.model.instants import format_instant


@contextmanager
def opened_parquet(file: SourceFile) -> Iterator[pq.ParquetFile]:
    """The file, open for its metadata and row groups."""
    with opened(file) as stream, pq.ParquetFile(stream) as parquet:
        yield parquet


def read_groups(split: Split) -> pa.Table:
    """The split's rows as they were written."""
    with opened_parquet(split.file) as parquet:
        return parquet.read_row_groups(range(split.start, split.end), use_threads=False)


def parse_parquet(table: pa.Table) -> Parsed:
    columns = {name: table.column(name).combine_chunks() for name in table.column_names}
    return Parsed(columns, np.arange(table.num_rows, dtype=np.int64), table.num_rows)


def row_text(table: pa.Table, row: int, kinds: Mapping[str, ColumnType]) -> str:
    """A row as a line of JSON, from which the rules for text read the values that Parquet's types had."""
    values = table.slice(row, 1)
    members = {name: _member(values.column(name), kinds.get(name)) for name in table.column_names}
    return json.dumps(members, default=str)


def _member(value: pa.ChunkedArray, kind: ColumnType | None) -> object:
    """A value of the declared type as it would be written for it; one that cannot be of the type as it is shown."""
    if kind is None:
        return shown(value, 0)
    typed, wrong = convert(value, kind)
    if wrong is not None:
        return shown(value, 0)
    if kind.kind is Kind.TIMESTAMP and typed[0].is_valid:
        return format_instant(typed.view(pa.int64())[0].as_py())
    return typed[0].as_py()


def shown(values: pa.Array | pa.ChunkedArray, row: int) -> object:
    """A value as a person reads it, even if it is text in a broken encoding."""
    if pa.types.is_string(values.type) or pa.types.is_large_string(values.type) or pa.types.is_binary(values.type):
        try:
            value = values[row].as_py()
        except UnicodeDecodeError:
            value = values.slice(row, 1).cast(pa.binary())[0].as_py()
        return value.decode("utf-8", errors="backslashreplace") if isinstance(value, bytes) else value
    if pa.types.is_timestamp(values.type):
        # Nanoseconds and years beyond Python's have no datetime.
        return values.slice(row, 1).cast(pa.string())[0].as_py()
    return values[row].as_py()
