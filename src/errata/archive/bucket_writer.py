"""Writing buckets: rows in order are cut, encoded, and described for the bucket index in the same pass.

A bucket is one immutable Parquet file, or an Arrow stream stored inline in the catalog if it is small. Its description,
a `NewBucket`, has all that a reader needs to leave it out: the ranges of the order field and of the groups. A base
bucket comes with its copies at the declared rates, which are made of the same rows in the same pass.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from errata.archive.bucket_files import NOT_INLINE, parquet_bytes, store_rows
from errata.declare.warehouse import Warehouse
from errata.intake.convert import canonical_text
from errata.model.bucket import (
    MAX_INLINE_BYTES,
    MAX_LISTED_GROUPS,
    Bounds,
    Bucket,
    Groups,
    Layout,
    NewBucket,
    Resolution,
    Role,
)
from errata.model.reduction import sampling_span
from errata.model.stream import Stream
from errata.model.time import HIGHEST, LOWEST

SPLINTER_DIVISOR = 128
"""A remainder below this part of a bucket's rows becomes a bucket of its own instead of half of an evenly cut pair."""


@dataclass(frozen=True, slots=True)
class BucketWriter:
    """Writes the buckets of one stream, on whatever machine a task runs."""

    stream: Stream
    warehouse: Warehouse
    inline: bool
    """Whether small buckets may be stored in the catalog."""

    def write(self, rows: pa.Table, role: Role) -> NewBucket:
        """One bucket of these rows, which are sorted already; a base bucket with its copies and summaries."""
        low, high = self._range(rows)
        if role is not Role.BASE:
            return self.store(rows, role, low, high, Groups())
        stream = self.stream
        if stream.layout is Layout.GROUPED:
            rows = rows.sort_by([(name, "ascending") for name in dict.fromkeys((*stream.group, stream.order))])
        stored = replace(self.store(rows, role, low, high, groups_in(rows, stream.group)), layout=stream.layout)
        copies = self.copies(rows, stored, stream.reduced.copies)
        return replace(stored, reduced=[*copies, *self._summaries(rows, stored)])

    def _summaries(self, rows: pa.Table, original: NewBucket) -> list[NewBucket]:
        if not self.stream.reduced.summaries:
            return []
        from errata.archive.summary_parts import eager_summaries  # noqa: PLC0415 - most streams have no summaries

        return eager_summaries(self.stream, self.warehouse, rows, original, inline=self.inline)

    def store(self, rows: pa.Table, role: Role, low: int, high: int, groups: Groups) -> NewBucket:
        """One bucket of rows whose ranges are known."""
        described = partial(NewBucket, role, rows.num_rows, vs_min=low, vs_max=high, groups=groups)
        return self._store(rows, described)

    def copies(self, rows: pa.Table, original: NewBucket | Bucket, rates: Sequence[float]) -> list[NewBucket]:
        """Copies of a base bucket at some rates, of its rows. A copy has the ranges of its original, so that the index
        finds both or neither; it may be without rows."""
        if not rates:
            return []
        from errata.archive.sampling import rows_of_sample, sampling_hashes  # noqa: PLC0415 - most streams have no copies

        hashes = sampling_hashes(rows, self.stream.key)
        here = (original.vs_min, original.vs_max, original.groups)
        return [self._copy(rows_of_sample(rows, hashes, rate), here, rate) for rate in rates]

    def _copy(self, rows: pa.Table, here: tuple[int, int, Groups], rate: float) -> NewBucket:
        low, high, groups = here
        described = partial(NewBucket, Role.COPY, rows.num_rows, vs_min=low, vs_max=high, groups=groups)
        return self._store(rows, partial(described, resolution=Resolution(rate, sampling_span(rate))))

    def _store(self, rows: pa.Table, described: partial[NewBucket]) -> NewBucket:
        role, low = described.args[0], described.keywords["vs_min"]
        return store_rows(
            self.warehouse,
            partial(self.warehouse.new_name, self.stream, low, role.value),
            rows,
            described,
            MAX_INLINE_BYTES if self.inline else NOT_INLINE,
            partial(self._encode, role),
        )

    def _encode(self, role: Role, rows: pa.Table) -> bytes:
        layout = self.stream.layout if role is Role.BASE else Layout.BUCKETS
        if layout is Layout.RANDOMIZED:
            from errata.archive.blocks import randomized_bytes  # noqa: PLC0415 - most archives have no blocks
            from errata.archive.sampling import sampling_hashes  # noqa: PLC0415

            return randomized_bytes(rows, self._filtered(role), sampling_hashes(rows, self.stream.key))
        return parquet_bytes(rows, self._filtered(role), layout)

    def _filtered(self, role: Role) -> tuple[str, ...]:
        """The columns that get Bloom filters: the key, if it does not tell the place of its row."""
        return self.stream.key if role is Role.BASE and not self.stream.key_has_order else ()

    def _range(self, rows: pa.Table) -> Bounds:
        """The least and greatest order field; everything, if a correction does not give it."""
        column = rows[self.stream.order]
        return (None if column.null_count else value_range(column)) or (LOWEST, HIGHEST)


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


def order_values(column: pa.ChunkedArray | pa.Array) -> np.ndarray:
    """The order field as integers: microseconds, or the bigint itself."""
    values: np.ndarray = column.cast(pa.int64()).to_numpy(zero_copy_only=False)
    return values


def value_range(column: pa.ChunkedArray | pa.Array) -> Bounds | None:
    """The least and greatest value of a column of integers or times, as integers; None if it has no values."""
    ends = pc.min_max(column.cast(pa.int64()))
    low, high = ends["min"].as_py(), ends["max"].as_py()
    return None if low is None else (low, high)
