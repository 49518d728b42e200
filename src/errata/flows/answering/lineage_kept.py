"""Stored lineage of a query's results, written beside them: by steps that bring results, and by corrections."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame

from errata.archive.result_rows import lineage_schema
from errata.archive.results import ResultWriter
from errata.archive.wire import conformed
from errata.engine.frames import selected
from errata.engine.plans.rows import quoted
from errata.engine.types import arrow_ddl
from errata.engine.values import fetch
from errata.evaluate.advance import Given
from errata.evaluate.deposit import TOLD, as_told, from_told
from errata.evaluate.stored import lineage_columns, lineage_of_rows, lineage_of_step
from errata.evaluate.storing import why_not_stored
from errata.flows.answering.task import Task
from errata.language.lineage import Region
from errata.model.bucket import NewBucket, Role
from errata.model.interval import LOWEST
from errata.model.query import Lineage
from errata.model.results import RUN, VS
from errata.revise.regions import within


def stores(task: Task) -> bool:
    """Whether lineage is kept beside the query's results."""
    declared = task.query.checked.query.lineage is Lineage.STORED
    return declared and why_not_stored(task.rewritten, task.route) is None


def schema_of(task: Task) -> pa.Schema:
    """The lineage of a query's results as it is kept."""
    return lineage_schema(task.shape, lineage_columns(task.rewritten))


def of_step(task: Task, given: Given, since: int, writer: ResultWriter, tasks: int) -> list[NewBucket]:
    """The buckets of the lineage of a step's results, which begin from `since` on; written here, or in so many of
    Spark's tasks."""
    found = _as_kept(task, lineage_of_step(task.rewritten, task.route, task.step, given))
    since = max(since, task.results_from)
    after = f"{VS} <= {task.step.until}L" + (f" AND {VS} >= {since}L" if since > LOWEST else "")
    return _Lineage(writer, schema_of(task), task.number).written(found.where(after), tasks)


def of_regions(
    task: Task, frames: Mapping[str, DataFrame], regions: Sequence[Region], writer: ResultWriter, tasks: int
) -> list[NewBucket]:
    """The same of the results in regions, which are told by the names under which results are kept."""
    start, end = min(each.interval.start for each in regions), max(each.interval.end for each in regions)
    hull = f"{VS} < {min(end, task.step.until + 1)}L" + (f" AND {VS} >= {start}L" if start > LOWEST else "")
    found = _as_kept(task, lineage_of_rows(task.rewritten, task.route, frames)).where(hull)
    return _Lineage(writer, schema_of(task), task.number, tuple(regions)).written(found, tasks)


def _as_kept(task: Task, rows: DataFrame) -> DataFrame:
    """Lineage under the names by which results are kept."""
    key = [f"{quoted(name)} AS {quoted(task.kept_names[name])}" for name in task.plan.key]
    return selected(rows, *key, VS, *lineage_columns(task.rewritten))


@dataclass(frozen=True, slots=True)
class _Lineage:
    """Writes lineage. It crosses to Spark's workers."""

    writer: ResultWriter
    schema: pa.Schema
    run: int
    regions: tuple[Region, ...] | None = None
    """Only of results in here, if told."""

    def written(self, rows: DataFrame, tasks: int) -> list[NewBucket]:
        if not tasks:
            return list(self._buckets(fetch(rows)))
        made = fetch(rows.repartitionByRange(tasks, VS).mapInArrow(self._task, arrow_ddl(TOLD)))
        return [from_told(each) for each in made.to_pylist()]

    def _task(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        read = [pa.Table.from_batches([each]) for each in batches if each.num_rows]
        if read:
            made = [as_told(each) for each in self._buckets(pa.concat_tables(read))]
            yield from pa.Table.from_pylist(made, TOLD).to_batches()

    def _buckets(self, rows: pa.Table) -> list[NewBucket]:
        rows = conformed(
            rows.append_column(RUN, pa.repeat(pa.scalar(self.run, pa.int64()), rows.num_rows)), self.schema
        )
        if self.regions is not None:
            begins = rows[VS].to_numpy()
            rows = rows.take(pa.array(np.unique(within(rows, begins, begins + 1, self.regions).row)))
        return self.writer.write(Role.LINEAGE, rows)
