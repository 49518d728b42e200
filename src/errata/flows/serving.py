"""Result tables of queries, brought up to date in the commit of an evaluation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from errata.archive.masks import sources
from errata.archive.result_rows import feed_schema, result_schema
from errata.archive.results import ANSWER, buckets_counting, live_at, read_new
from errata.archive.wire import conformed
from errata.catalog.published import Serves
from errata.catalog.result_columns import ServedTable
from errata.flows.inputs import Inputs
from errata.flows.task import Task
from errata.model.bucket import NewBucket, Role
from errata.model.interval import Interval
from errata.model.results import OP, RUN, Shape


def serving(task: Task, inputs: Inputs, made: Sequence[NewBucket], *, whole: bool) -> Serves | None:
    """What the query's result table is to be told in the commit; None if it has none. `whole` tells that the feed has
    all change records."""
    table = task.query.checked.query.serve
    if table is None:
        return None
    changes = partial(_changes, task, inputs, made, whole=whole)
    return Serves(ServedTable(table, task.shape), changes, partial(_current, task, inputs, made))


def _changes(task: Task, inputs: Inputs, made: Sequence[NewBucket], *, whole: bool) -> Iterator[pa.RecordBatch]:
    """The change records of the evaluation."""
    warehouse = inputs.site.warehouse
    for each in made:
        if each.role is Role.FEED:
            rows = conformed(read_new(warehouse, each), feed_schema(task.shape))
            yield from rows.filter(pc.equal(rows[RUN], task.number)).to_batches()
        elif each.role in ANSWER and not whole:
            rows = conformed(read_new(warehouse, each), result_schema(task.shape))
            yield from inserts(rows.filter(pc.equal(rows[RUN], task.number)), task.shape).to_batches()


def _current(task: Task, inputs: Inputs, made: Sequence[NewBucket]) -> Iterator[pa.RecordBatch]:
    """What counts at the frontier, as if all of it had just come."""
    warehouse, frontier, schema = inputs.site.warehouse, task.step.until, result_schema(task.shape)
    fresh = (read_new(warehouse, each) for each in made if each.role in ANSWER)
    former = () if task.basis is None else _settled(task, inputs, Interval(frontier, frontier + 1))
    for rows in (*former, *fresh):
        yield from inserts(live_at(conformed(rows, schema), frontier), task.shape).to_batches()


def _settled(task: Task, inputs: Inputs, instants: Interval) -> Iterator[pa.Table]:
    """Results from before that are not replaced by the evaluation."""
    if task.basis is None:
        return
    catalog = inputs.site.catalog
    some = buckets_counting(catalog, task.basis, task.basis.last.commit_id, instants)
    for each in sources(catalog, [bucket for bucket in some if bucket.role is Role.BASE]):
        yield each.read(inputs.site.warehouse)


def inserts(rows: pa.Table, shape: Shape) -> pa.Table:
    """Results as the records of a feed by which they come."""
    named = {name: rows[name] for name in rows.column_names}
    ops = pa.repeat("insert", rows.num_rows)
    columns = [
        ops if each.name == OP else named.get(each.name, pa.nulls(rows.num_rows, each.type))
        for each in feed_schema(shape)
    ]
    return pa.table(columns, schema=feed_schema(shape))
