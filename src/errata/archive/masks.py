"""What overlays do to rows, for those who hold both in memory: tasks that compact, and writers that compare.

The same as the joins in scan.py, on Arrow tables.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from errata.archive.match import matches
from errata.archive.overlay import LIVE, MASKS, REVISION, overlay_schema
from errata.archive.warehouse import Warehouse
from errata.archive.wire import conformed, old_column, unpacked
from errata.archive.written import order_values
from errata.catalog import buckets
from errata.catalog.open import Catalog
from errata.model.bucket import Bucket
from errata.model.interval import HIGHEST, LOWEST
from errata.model.stream import Stream

BUCKET = "_bucket"
"""Added to a row of an overlay that is at work: the bucket that it lies in."""


@dataclass(frozen=True, slots=True)
class Source:
    """Where a bucket's rows are: its file, or its data. It crosses to Spark's workers."""

    bucket: Bucket
    data: bytes | None

    def read(self, warehouse: Warehouse, columns: Sequence[str] | None = None) -> pa.Table:
        """All rows, as they were written."""
        if self.data is not None:
            table = unpacked(self.data)
            return table if columns is None else table.select([name for name in columns if name in table.column_names])
        content = pa.BufferReader(warehouse.read(self.bucket.path or ""))
        return pq.read_table(content, columns=None if columns is None else list(columns), use_threads=False)

    def read_where(self, warehouse: Warehouse, only: pc.Expression) -> pa.Table:
        """The rows for which something is true. Of a file only those row groups are read that can have such."""
        if self.data is not None:
            return unpacked(self.data).filter(only)
        with warehouse.opened(self.bucket.path or "") as file:
            return pq.read_table(file, filters=only, use_threads=False)

    def read_between(self, warehouse: Warehouse, columns: Sequence[str], order: str, low: int, high: int) -> pa.Table:
        """The rows whose order field may lie from `low` to `high`, both included. Of a file only those row groups are
        read that can have such."""
        if self.data is not None:
            return self.read(warehouse, columns)
        with warehouse.opened(self.bucket.path or "") as file:
            parquet = pq.ParquetFile(file)
            place = parquet.schema_arrow.get_field_index(order)
            wanted = [
                number
                for number in range(parquet.num_row_groups)
                if _may_have(parquet.metadata.row_group(number).column(place).statistics, low, high)
            ]
            present = [name for name in columns if name in parquet.schema_arrow.names]
            return parquet.read_row_groups(wanted, columns=present, use_threads=False)


def _may_have(statistics: pq.Statistics | None, low: int, high: int) -> bool:
    """Whether a row group can have values from low to high; times are told in microseconds."""
    if statistics is None or not statistics.has_min_max:
        return True
    least, greatest = (pa.scalar(each).cast(pa.int64()).as_py() for each in (statistics.min, statistics.max))
    return bool(least <= high and greatest >= low)


def sources(catalog: Catalog, found: Iterable[Bucket]) -> list[Source]:
    """The same for many: one look into the catalog for all that is inline."""
    wanted = list(found)
    data = buckets.inline_data(catalog, [bucket.bucket_id for bucket in wanted if bucket.inline])
    return [Source(bucket, data.get(bucket.bucket_id)) for bucket in wanted]


def read_overlays(
    stream: Stream, warehouse: Warehouse, found: Iterable[Source], columns: Sequence[str] | None = None
) -> pa.Table:
    """The rows of overlays, with the bucket that each lies in; only some of their columns, if told."""
    whole = overlay_schema(stream)
    schema = whole if columns is None else pa.schema([field for field in whole if field.name in set(columns)])
    tables = [schema.append(pa.field(BUCKET, pa.int64())).empty_table()]
    for source in found:
        rows = conformed(source.read(warehouse, columns), schema)
        tables.append(rows.append_column(BUCKET, pa.repeat(pa.scalar(source.bucket.bucket_id), rows.num_rows)))
    return pa.concat_tables(tables)


class Overlays:
    """Overlays in memory, read with the revisions up to a number."""

    def __init__(self, stream: Stream, rows: pa.Table, up_to: int = HIGHEST) -> None:
        self._stream = stream
        self._rows = rows.filter(pc.less_equal(rows[REVISION], up_to)) if up_to < HIGHEST else rows
        masks = self._rows.filter(self._rows[MASKS])
        columns = {name: masks[old_column(name)] for name in self._places}
        self._masks = pa.table(columns)
        self._numbers = masks[REVISION].to_numpy()

    def up_to(self, number: int) -> Overlays:
        """Only what revisions up to a number say."""
        return Overlays(self._stream, self._rows, number)

    def reaching(self, start: int) -> Overlays:
        """Only what they say of places from `start` on."""
        order = self._stream.order
        ends = [pc.fill_null(self._rows[name].cast(pa.int64()), LOWEST) for name in (order, old_column(order))]
        reach = np.maximum(*(each.to_numpy() for each in ends))
        return Overlays(self._stream, self._rows.filter(pa.array(reach >= start)))

    @property
    def _places(self) -> list[str]:
        return list(dict.fromkeys([*self._stream.key, self._stream.order]))

    def masked(self, rows: pa.Table, above: int | np.ndarray) -> np.ndarray:
        """Which of the rows a revision masks whose number is above theirs: a floor, or one for each row."""
        result = np.zeros(rows.num_rows, dtype=bool)
        if self._masks.num_rows and rows.num_rows:
            left, right = matches(rows.select(self._places), self._masks, self._places)
            floors = above if isinstance(above, int) else above[left]
            result[left[self._numbers[right] > floors]] = True
        return result

    def stands(self, rows: pa.Table) -> np.ndarray:
        """Which rows of overlays bring something that no later one masks."""
        live = np.flatnonzero(rows[LIVE].to_numpy())
        some = rows.take(pa.array(live))
        result = np.zeros(rows.num_rows, dtype=bool)
        result[live] = ~self.masked(some, some[REVISION].to_numpy())
        return result

    def surviving(self, aged_to: int | None = None) -> pa.Table:
        """The rows of the overlays, as they are kept, that no later one masks and that have not been aged out."""
        live = self._rows.filter(self._rows[LIVE])
        if aged_to is not None and live.num_rows:
            live = live.filter(pa.array(order_values(live[self._stream.order]) >= aged_to))
        return live.filter(pa.array(~self.masked(live, live[REVISION].to_numpy())))
