"""Writing buckets: rows in order are cut, encoded, and described for the bucket index in the same pass.

A bucket is one immutable Parquet file, or an Arrow stream stored inline in the catalog if it is small. Its description,
a `NewBucket`, has all that a reader needs to leave it out: the ranges of the order field and of the groups. Within a
file, row groups with statistics, and Bloom filters where the key does not tell the place of a row, narrow it further.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from errata.archive.bloom import bloom_options
from errata.declare.warehouse import Warehouse
from errata.intake.convert import canonical_text
from errata.model.bucket import MAX_INLINE_BYTES, MAX_LISTED_GROUPS, Bounds, Groups, Layout, NewBucket, Role
from errata.model.stream import Stream
from errata.model.time import HIGHEST, LOWEST

MAX_ROW_GROUP_ROWS = 16_384
"""Rows of a Parquet row group, at most. Readers skip row groups by their statistics."""

ROW_GROUPS_PER_BUCKET = 8
"""Row groups of a bucket that is not large, about: a reader of its last rows need not read all of it."""

MIN_ROW_GROUP_ROWS = 2_048
"""Rows of a row group, at least: smaller ones cost more in statistics than they save."""

SPLINTER_DIVISOR = 128
"""A remainder below this part of a bucket's rows becomes a bucket of its own instead of half of an evenly cut pair."""

NOT_INLINE = -1
"""Bytes that no bucket has so few of: all are stored as files."""

POS = "_pos"
"""The hidden column of base buckets with a row's position in its batch (`model.batch.row_position`)."""

_SMALL_WRITES = pa.ipc.IpcWriteOptions(compression="zstd", use_threads=False)
"""Inline buckets are small: handing their columns to other threads takes longer than writing them."""


@dataclass(frozen=True, slots=True)
class BucketWriter:
    """Writes the buckets of one stream, on whatever machine a task runs."""

    stream: Stream
    warehouse: Warehouse
    inline: bool
    """Whether small buckets may be stored in the catalog."""

    def write(self, rows: pa.Table, role: Role) -> NewBucket:
        """One bucket of these rows, which are sorted already."""
        low, high = self._range(rows)
        if role is not Role.BASE:
            return self.store(rows, role, low, high, Groups())
        stream = self.stream
        if stream.layout is Layout.GROUPED:
            rows = rows.sort_by([(name, "ascending") for name in dict.fromkeys((*stream.group, stream.order))])
        stored = self.store(rows, role, low, high, groups_in(rows, stream.group))
        return replace(stored, layout=stream.layout)

    def store(self, rows: pa.Table, role: Role, low: int, high: int, groups: Groups) -> NewBucket:
        """One bucket of rows whose ranges are known."""
        layout = self.stream.layout if role is Role.BASE else Layout.BUCKETS
        return store_rows(
            self.warehouse,
            partial(self.warehouse.new_name, self.stream, low, role.value),
            rows,
            partial(NewBucket, role, rows.num_rows, vs_min=low, vs_max=high, groups=groups),
            MAX_INLINE_BYTES if self.inline else NOT_INLINE,
            partial(parquet_bytes, filtered=self._filtered(role), layout=layout),
        )

    def _filtered(self, role: Role) -> tuple[str, ...]:
        """The columns that get Bloom filters: the key, if it does not tell the place of its row."""
        return self.stream.key if role is Role.BASE and not self.stream.key_has_order else ()

    def _range(self, rows: pa.Table) -> Bounds:
        """The least and greatest order field; everything, if a correction does not give it."""
        column = rows[self.stream.order]
        return (None if column.null_count else value_range(column)) or (LOWEST, HIGHEST)


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


def cut_into_buckets(tables: Iterator[pa.Table], bucket_rows: int) -> Iterator[pa.Table]:
    """Cut a sequence of rows into buckets: full ones, and at the end two of even size instead of a full and a short
    one. A very short remainder stays alone: it is stored inline until it is merged."""
    held: list[pa.Table] = []
    rows = 0
    for table in tables:
        held.append(table)
        rows += table.num_rows
        while rows >= bucket_rows + bucket_rows // 2 + 1:
            whole = pa.concat_tables(held)
            yield whole.slice(0, bucket_rows)
            held, rows = [whole.slice(bucket_rows)], rows - bucket_rows
    if not rows:
        return
    whole = pa.concat_tables(held)
    if rows <= bucket_rows:
        yield whole
    else:
        splinter = rows - bucket_rows <= bucket_rows // SPLINTER_DIVISOR
        first = bucket_rows if splinter else (rows + 1) // 2
        yield whole.slice(0, first)
        yield whole.slice(first)


def cut_evenly(rows: pa.Table, bucket_rows: int) -> Iterator[pa.Table]:
    """The rows in as few buckets as hold them, of even size, so that none is small."""
    pieces = -(-rows.num_rows // bucket_rows)
    cuts = np.linspace(0, rows.num_rows, pieces + 1).astype(int).tolist()
    for low, high in pairwise(cuts):
        yield rows.slice(low, high - low)


def groups_in(rows: pa.Table, names: tuple[str, ...]) -> Groups:
    if not names:
        return Groups()
    members = rows.select(names).group_by(list(names)).aggregate([])
    if members.num_rows <= MAX_LISTED_GROUPS:
        texts = [canonical_text(members[name]).to_pylist() for name in names]
        return Groups(members=frozenset(zip(*texts, strict=True)))
    first = canonical_text(members[names[0]])
    if first.null_count:
        return Groups()
    ends = pc.min_max(first)
    return Groups(ends["min"].as_py(), ends["max"].as_py())


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
    dictionary = [name for name in rows.column_names if name not in {*encoding, *_columns_with(rows, _is_minus_zero)}]
    telling = [name for name in rows.column_names if name not in _columns_with(rows, np.isnan)]
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
        bloom_filter_options=bloom_options(rows, filtered, row_group) or None,
    )
    data: bytes = sink.getvalue().to_pybytes()
    return data


def _columns_with(rows: pa.Table, some: Callable[[np.ndarray], np.ndarray]) -> set[str]:
    """The floating columns that have some value of a kind."""
    floating = [name for name in rows.column_names if pa.types.is_floating(rows[name].type)]
    return {name for name in floating if some(rows[name].drop_null().to_numpy()).any()}


def _is_minus_zero(values: np.ndarray) -> np.ndarray:
    found: np.ndarray = (values == 0) & np.signbit(values)
    return found


def checksum(data: bytes) -> str:
    """The hash by which a bucket's content is checked."""
    return "sha256:" + hashlib.sha256(data).hexdigest()


def order_values(column: pa.ChunkedArray | pa.Array) -> np.ndarray:
    """The order field as integers: microseconds, or the bigint itself."""
    values: np.ndarray = column.cast(pa.int64()).to_numpy(zero_copy_only=False)
    return values


def value_range(column: pa.ChunkedArray | pa.Array) -> Bounds | None:
    """The least and greatest value of a column of integers or times, as integers; None if it has no values."""
    ends = pc.min_max(column.cast(pa.int64()))
    low, high = ends["min"].as_py(), ends["max"].as_py()
    return None if low is None else (low, high)
