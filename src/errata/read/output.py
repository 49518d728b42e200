"""Rows of a DataFrame or of an Arrow table, sorted, and written as table, CSV, JSON lines or Parquet.

Large results are encoded by the engine, one block per Arrow batch, and the blocks are fetched one after the other: this
process never holds Python rows or the whole result.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from itertools import chain
from pathlib import Path
from typing import BinaryIO, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame
from rich.table import Table
from rich.text import Text

from errata.archive.tables import sort_by_columns
from errata.engine.frames import fetch_rows
from errata.errors import ErrataError
from errata.intake.encoding import BatchEncoder, csv_header, csv_lines, json_lines, plain_text
from errata.read.tables import TableField, format_table
from errata.read.wording import ExportFormat

FrameOrTable: TypeAlias = DataFrame | pa.Table
"""The far engine's DataFrame, or an Arrow table if the rows are in memory."""

LOCAL_ENCODE_ROWS = 10_000
"""Rows up to which a limited result is fetched whole and encoded here, which saves the start of Python workers."""


def fetch_all(rows: FrameOrTable) -> pa.Table:
    """All of the rows, in memory."""
    return rows if isinstance(rows, pa.Table) else fetch_rows(rows)


def sort_rows(rows: FrameOrTable, columns: Sequence[str], limit: int | None) -> FrameOrTable:
    """The first `limit` rows in the order of some columns."""
    if isinstance(rows, pa.Table):
        return sort_by_columns(rows, columns).slice(0, limit)
    ordered = rows.orderBy(*columns)
    return ordered if limit is None else ordered.limit(limit)


def write_rows(rows: FrameOrTable, kind: ExportFormat, out: BinaryIO, limit: int | None = None) -> None:
    """Write CSV or JSON lines, at most `limit` rows."""
    csv = kind is ExportFormat.CSV
    if csv:
        out.write(csv_header(_column_names(rows)))
    out.writelines(encode_blocks(rows, csv_lines if csv else json_lines, limit))
    out.flush()


def write_row_objects(some: Iterable[tuple[Mapping[str, object], FrameOrTable]], out: BinaryIO) -> None:
    """Write several results, each as one JSON object in a line: its head, and its `rows`."""
    for head, rows in some:
        out.write(json.dumps(dict(head), ensure_ascii=False, separators=(",", ":"))[:-1].encode() + b',"rows":[')
        between = b""
        for block in encode_blocks(rows, json_lines):
            # Line breaks within strings are escaped, so every line break ends a row.
            out.write(between + block.rstrip(b"\n").replace(b"\n", b","))
            between = b","
        out.write(b"]}\n")
    out.flush()


def write_file(rows: FrameOrTable, kind: ExportFormat, out: Path, limit: int | None, check: Callable[[], None]) -> None:
    """Write one file. It has a temporary name until it is complete and `check` has not failed."""
    unfinished = out.with_name(f"_{out.name}.tmp")
    try:
        with unfinished.open("wb") as file:
            if kind is ExportFormat.PARQUET:
                _write_parquet(rows, file, limit)
            else:
                write_rows(rows, kind, file, limit)
        check()
        unfinished.replace(out)
    except OSError as error:
        raise ErrataError(f"cannot write {out}: {error.strerror}", how="name a file that can be written") from error
    finally:
        unfinished.unlink(missing_ok=True)


def _write_parquet(rows: FrameOrTable, out: BinaryIO, limit: int | None) -> None:
    streams = (pa.ipc.open_stream(block) for block in encode_blocks(rows, _ipc_block, limit))
    batches = chain.from_iterable(streams)
    first = next(batches, None)
    schema = first.schema if first is not None else _fetch_first(rows, 0).schema
    with closing(pq.ParquetWriter(out, schema, compression="zstd")) as writer:
        for batch in batches if first is None else chain([first], batches):
            writer.write_batch(batch)


def format_first_rows(rows: FrameOrTable, limit: int, width: int) -> tuple[Table | Text, bool]:
    """The first rows as a table that fits the width, and whether there are more."""
    found = _fetch_first(rows, limit + 1)
    shown = found.slice(0, limit)
    fields = [_table_field(column.name, column.type) for column in shown.schema]
    texts = [_display_column(column) for column in shown.columns]
    records = [dict(zip(shown.column_names, values, strict=True)) for values in zip(*texts, strict=True)]
    return format_table(fields, records, width), bool(found.num_rows > limit)


def encode_blocks(rows: FrameOrTable, encode: BatchEncoder, limit: int | None = None) -> Iterator[bytes]:
    """The rows, encoded in blocks, in their order."""
    if isinstance(rows, pa.Table) or (limit is not None and limit <= LOCAL_ENCODE_ROWS):
        yield from (encode(batch) for batch in fetch_all(rows).to_batches() if batch.num_rows)
        return

    def encoded(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if batch.num_rows:
                yield pa.RecordBatch.from_arrays([pa.array([encode(batch)], pa.binary())], ["block"])

    for row in rows.mapInArrow(encoded, "block binary").toLocalIterator(prefetchPartitions=True):
        yield bytes(row.block)


def _column_names(rows: FrameOrTable) -> list[str]:
    return list(rows.column_names if isinstance(rows, pa.Table) else rows.columns)


def _fetch_first(rows: FrameOrTable, limit: int) -> pa.Table:
    return rows.slice(0, limit) if isinstance(rows, pa.Table) else fetch_rows(rows.limit(limit))


def _table_field(name: str, kind: pa.DataType) -> TableField:
    number = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    return TableField(name, name, right=number, fold=pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _ipc_block(batch: pa.RecordBatch) -> bytes:
    block = io.BytesIO()
    with pa.ipc.new_stream(block, batch.schema) as stream:
        stream.write_batch(batch)
    return block.getvalue()


def _display_column(column: pa.ChunkedArray) -> list[str]:
    texts = chain.from_iterable(plain_text(chunk).to_pylist() for chunk in column.chunks)
    return ["NULL" if text is None else text for text in texts]
