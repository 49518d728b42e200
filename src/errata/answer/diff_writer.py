"""Compares recomputed results with published ones and writes the difference as buckets: in this process, or in Spark's
tasks where results may be many. A task then has all rows of some keys, published and recomputed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame

from errata.answer.result_diff import DiffContext, ResultDiff, diff_results
from errata.answer.result_sink import beside_published, read_beside_published
from errata.archive.results import ResultWriter
from errata.archive.task_reports import BUCKET_ROW_SCHEMA, bucket_from_row, bucket_to_row
from errata.engine.frames import arrow_ddl, fetch_rows
from errata.engine.plans.node_rows import quote_name
from errata.model.bucket import NewBucket, Role
from errata.model.extent import Extent
from errata.model.results import ResultShape

_CHANGED, _COMPARED = "_changed", "_compared"
_TASK_SCHEMA = pa.schema([*BUCKET_ROW_SCHEMA, pa.field(_CHANGED, pa.int64()), pa.field(_COMPARED, pa.int64())])


@dataclass(frozen=True, slots=True)
class WrittenDiff:
    """The buckets of a difference, and how many results were compared and are different."""

    buckets: list[NewBucket]
    changed: int
    compared: int


@dataclass(frozen=True, slots=True)
class DiffWriter:
    """Writes differences of one query's results. It crosses to Spark's workers."""

    writer: ResultWriter
    shape: ResultShape
    context: DiffContext
    regions: Sequence[Extent]

    def write_local(self, new: pa.Table, before: pa.Table) -> WrittenDiff:
        """Compare tables, and write in this process."""
        done = diff_results(new, before, self.regions, self.context, self.shape)
        return WrittenDiff(list(_write_diff(self.writer, done)), done.changed, done.compared)

    def write_in_tasks(self, new: DataFrame, before: DataFrame, tasks: int) -> WrittenDiff:
        """Compare frames, and write in `tasks` Spark tasks."""
        whole = beside_published(new, before)
        key = list(map(quote_name, self.shape.key))
        whole = whole.repartition(tasks, *key) if key else whole.coalesce(1)
        found = fetch_rows(whole.mapInArrow(self._task, arrow_ddl(_TASK_SCHEMA))).to_pylist()
        changed, compared = (sum(each.pop(name) or 0 for each in found) for name in (_CHANGED, _COMPARED))
        made = [bucket_from_row(each) for each in found if each["role"] is not None]
        return WrittenDiff(made, changed, compared)

    def _task(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for new, before in read_beside_published(batches, self.shape):
            done = diff_results(new, before, self.regions, self.context, self.shape)
            made = [{**bucket_to_row(each), _CHANGED: 0, _COMPARED: 0} for each in _write_diff(self.writer, done)]
            counts = {_CHANGED: done.changed, _COMPARED: done.compared}
            yield from pa.Table.from_pylist([*made, counts], _TASK_SCHEMA).to_batches()


def _write_diff(writer: ResultWriter, amended: ResultDiff) -> Iterator[NewBucket]:
    """The buckets of all that the difference adds."""
    yield from writer.write(Role.BASE, amended.base)
    yield from writer.write(Role.OPEN, amended.open)
    yield from writer.write(Role.TIP, amended.tip)
    yield from writer.write(Role.MASK, amended.masks)
    yield from writer.write(Role.FEED, amended.feed)
