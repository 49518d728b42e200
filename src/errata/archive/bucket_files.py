"""How the rows of a bucket become bytes: an Arrow stream for the catalog, or a Parquet file of a new name.

Within a file, row groups with statistics, and Bloom filters where the key does not tell the place of a row, let a
reader skip what it does not need.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from errata.declare.warehouse import Warehouse
from errata.model.bucket import Layout, NewBucket

MAX_ROW_GROUP_ROWS = 16_384
"""Rows of a Parquet row group, at most. Readers skip row groups by their statistics."""

ROW_GROUPS_PER_BUCKET = 8
"""Row groups of a bucket that is not large, about: a reader of its last rows need not read all of it."""

MIN_ROW_GROUP_ROWS = 2_048
"""Rows of a row group, at least: smaller ones cost more in statistics than they save."""

NOT_INLINE = -1
"""Bytes that no bucket has so few of: all are stored as files."""

POS = "_pos"
"""The hidden column of base buckets with a row's position in its batch (`model.batch.row_position`)."""

_SMALL_WRITES = pa.ipc.IpcWriteOptions(compression="zstd", use_threads=False)
"""Inline buckets are small: handing their columns to other threads takes longer than writing them."""


def store_rows(
    warehouse: Warehouse,
    name: Callable[[], str],
    rows: pa.Table,
    described: partial[NewBucket],
    inline_bytes: int,
    encode: Callable[[pa.Table], bytes],
) -> NewBucket:
    """One bucket of these rows, of which everything else is known: inline if it has at most so many bytes, else a file
    of a new name."""
    data = arrow_bytes(rows) if rows.nbytes <= 4 * inline_bytes else None
    if data is not None and len(data) <= inline_bytes:
        return described(size=len(data), checksum=checksum(data), data=data)
    data, path = encode(rows), name()
    warehouse.write(path, data)
    return described(size=len(data), checksum=checksum(data), path=path)


def arrow_bytes(rows: pa.Table) -> bytes:
    """An Arrow stream, as inline buckets are stored."""
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, rows.schema, options=_SMALL_WRITES) as stream:
        stream.write_table(rows.combine_chunks())
    return sink.getvalue()


def row_group_rows(rows: int) -> int:
    """How many rows each row group of a bucket of so many rows gets."""
    return min(MAX_ROW_GROUP_ROWS, max(MIN_ROW_GROUP_ROWS, -(-rows // ROW_GROUPS_PER_BUCKET)))


def parquet_bytes(rows: pa.Table, filtered: tuple[str, ...] = (), layout: Layout = Layout.BUCKETS) -> bytes:
    """A Parquet file with Bloom filters on the `filtered` columns, and the statistics that its layout has."""
    row_group = row_group_rows(rows.num_rows)
    sink = pa.BufferOutputStream()
    encoding = {name: "DELTA_BINARY_PACKED" for name in rows.column_names if name == POS}
    # A search for 0.0 in a dictionary misses -0.0, and a search for values above a bound misses NaN, which statistics
    # leave out. Columns with such values get no dictionary, or no statistics.
    dictionary = [name for name in rows.column_names if name not in {*encoding, *columns_with(rows, is_minus_zero)}]
    telling = [name for name in rows.column_names if name not in columns_with(rows, np.isnan)]
    pq.write_table(
        rows,
        sink,
        row_group_size=row_group,
        compression="zstd",
        use_dictionary=dictionary,
        column_encoding=encoding or None,
        # A plain layout stands for one growing table without any index, so it has no statistics either.
        write_statistics=layout is not Layout.PLAIN and telling,
        write_page_index=layout is not Layout.PLAIN,
        bloom_filter_options=_bloom_options(rows, filtered, row_group),
    )
    data: bytes = sink.getvalue().to_pybytes()
    return data


def _bloom_options(rows: pa.Table, filtered: tuple[str, ...], row_group: int) -> dict[str, dict[str, float]] | None:
    """The options of Bloom filters on these columns, as pyarrow takes them."""
    if not filtered:
        return None
    from errata.archive.bloom import bloom_options  # noqa: PLC0415 - most keys have the order field, and need no filter

    return bloom_options(rows, filtered, row_group) or None


def columns_with(rows: pa.Table, some: Callable[[np.ndarray], np.ndarray]) -> set[str]:
    """The floating columns that have some value of a kind."""
    floating = [name for name in rows.column_names if pa.types.is_floating(rows[name].type)]
    return {name for name in floating if some(rows[name].drop_null().to_numpy()).any()}


def is_minus_zero(values: np.ndarray) -> np.ndarray:
    found: np.ndarray = (values == 0) & np.signbit(values)
    return found


def checksum(data: bytes) -> str:
    """The hash by which a bucket's content is checked."""
    return "sha256:" + hashlib.sha256(data).hexdigest()
