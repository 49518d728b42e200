"""Parquet: runs of row groups, whose columns have types already."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from errata.intake.parsed import Parsed
from errata.intake.source import opened
from errata.model.batch import SourceFile, Split


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


def row_text(table: pa.Table, row: int) -> str:
    """A row as a line of JSON."""
    values = table.slice(row, 1)
    return json.dumps({name: shown(values.column(name), 0) for name in table.column_names}, default=str)


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
