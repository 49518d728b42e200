"""Amending, and writing what comes of it: here, or in Spark's tasks where results may be many. Then each task has all
that is said of some keys, old and new."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from errata.archive.result_rows import result_schema
from errata.archive.results import ResultWriter
from errata.archive.wire import conformed
from errata.engine.frames import selected
from errata.engine.plans.rows import quoted
from errata.engine.types import arrow_ddl
from errata.engine.values import fetch
from errata.evaluate.deposit import TOLD, as_told, from_told
from errata.language.lineage import Region
from errata.model.bucket import NewBucket, Role
from errata.model.results import RUN, Shape
from errata.revise.amend import Amended, Amending, amend

_BEFORE, _CHANGED, _COMPARED = "_before", "_changed", "_compared"
_FOUND = pa.schema([*TOLD, pa.field(_CHANGED, pa.int64()), pa.field(_COMPARED, pa.int64())])


@dataclass(frozen=True, slots=True)
class Laid:
    """What has been written of results that were worked out again, and how many came out different."""

    buckets: list[NewBucket]
    changed: int
    compared: int


@dataclass(frozen=True, slots=True)
class Amender:
    """Amends results of one query. It crosses to Spark's workers."""

    writer: ResultWriter
    shape: Shape
    told: Amending
    regions: Sequence[Region]

    def in_memory(self, new: pa.Table, before: pa.Table) -> Laid:
        """Lay results that have been worked out anew against the published ones."""
        done = amend(new, before, self.regions, self.told, self.shape)
        return Laid(list(_written(self.writer, done)), done.changed, done.compared)

    def in_tasks(self, new: DataFrame, before: DataFrame, tasks: int) -> Laid:
        """The same in so many tasks."""
        whole = selected(new, "*", f"0L AS {RUN}", f"FALSE AS {_BEFORE}")
        whole = whole.unionByName(selected(before, "*", f"TRUE AS {_BEFORE}"))
        key = list(map(quoted, self.shape.key))
        whole = whole.repartition(tasks, *key) if key else whole.coalesce(1)
        found = fetch(whole.mapInArrow(self._task, arrow_ddl(_FOUND))).to_pylist()
        changed, compared = (sum(each.pop(name) or 0 for each in found) for name in (_CHANGED, _COMPARED))
        made = [from_told(each) for each in found if each["role"] is not None]
        return Laid([self._numbered(each) for each in made], changed, compared)

    def _numbered(self, bucket: NewBucket) -> NewBucket:
        run = self.told.run
        return replace(bucket, revisions=(run, run)) if bucket.role is Role.MASK else bucket

    def _task(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        schema = result_schema(self.shape).append(pa.field(_BEFORE, pa.bool_()))
        read = [conformed(pa.Table.from_batches([each]), schema) for each in batches if each.num_rows]
        if not read:
            return
        rows = pa.concat_tables(read)
        flags = rows[_BEFORE]
        rows = rows.drop_columns([_BEFORE])
        new, before = rows.filter(pc.invert(flags)).drop_columns([RUN]), rows.filter(flags)
        done = amend(new, before, self.regions, self.told, self.shape)
        made = [{**as_told(each), _CHANGED: 0, _COMPARED: 0} for each in _written(self.writer, done)]
        counts = {_CHANGED: done.changed, _COMPARED: done.compared}
        yield from pa.Table.from_pylist([*made, counts], _FOUND).to_batches()


def _written(writer: ResultWriter, amended: Amended) -> Iterator[NewBucket]:
    """The buckets of what is to be added."""
    yield from writer.write(Role.BASE, amended.base)
    yield from writer.write(Role.OPEN, amended.open)
    yield from writer.write(Role.TIP, amended.tip)
    yield from writer.write(Role.MASK, amended.masks)
    yield from writer.write(Role.FEED, amended.feed)
