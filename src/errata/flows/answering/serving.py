"""Result tables of queries, brought up to date in the commit of an evaluation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import chain

import pyarrow as pa
import pyarrow.compute as pc

from errata.archive.masked_results import masks_in, parted, without_masked
from errata.archive.masks import sources
from errata.archive.result_rows import feed_schema, mask_schema, result_schema
from errata.archive.results import ANSWER, buckets_counting, live_at, read_new
from errata.archive.wire import conformed
from errata.catalog.published import Published, Serves
from errata.catalog.result_columns import ServedTable
from errata.flows.answering.inputs import Inputs
from errata.flows.answering.task import Task
from errata.model.bucket import NewBucket, Role
from errata.model.interval import Interval
from errata.model.results import OP, RUN, Shape


def serving(
    task: Task, inputs: Inputs, made: Sequence[NewBucket], *, whole: bool, corrects: bool = False
) -> Serves | None:
    """What the query's result table is to be told in the commit; None if it has none. `whole` tells that the feed has
    all change records, `corrects` that what has been published stays, but for what is masked."""
    table = task.query.checked.query.serve
    if table is None:
        return None
    changes = partial(_changes, task, inputs, made, whole=whole)
    current = partial(_current, task, inputs, made, corrects=corrects)
    return Serves(ServedTable(table, task.shape), changes, current)


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


def _current(task: Task, inputs: Inputs, made: Sequence[NewBucket], *, corrects: bool) -> Iterator[pa.RecordBatch]:
    """What counts at the frontier, as if all of it had just come."""
    warehouse, frontier, schema = inputs.site.warehouse, task.step.until, result_schema(task.shape)
    instants = Interval(frontier, frontier + 1)
    fresh = (conformed(read_new(warehouse, each), schema) for each in made if each.role in ANSWER)
    former = () if task.basis is None else _staying(task, task.basis, inputs, made, instants, corrects=corrects)
    for rows in chain(former, fresh):
        yield from inserts(live_at(rows, frontier), task.shape).to_batches()


def _staying(
    task: Task, basis: Published, inputs: Inputs, made: Sequence[NewBucket], instants: Interval, *, corrects: bool
) -> Iterator[pa.Table]:
    """Results from before that the evaluation neither replaces nor masks."""
    catalog, warehouse, shape = inputs.site.catalog, inputs.site.warehouse, task.shape
    results, masks = parted(buckets_counting(catalog, basis, basis.last.commit_id, instants))
    schema = mask_schema(shape)
    fresh = [conformed(read_new(warehouse, each), schema) for each in made if each.role is Role.MASK]
    told = pa.concat_tables([masks_in(catalog, warehouse, shape, masks), *fresh])
    stay = ANSWER if corrects else (Role.BASE,)
    for each in sources(catalog, [bucket for bucket in results if bucket.role in stay]):
        yield without_masked(conformed(each.read(warehouse), result_schema(shape)), told, shape)


def inserts(rows: pa.Table, shape: Shape) -> pa.Table:
    """Results as the records of a feed by which they come."""
    named = {name: rows[name] for name in rows.column_names}
    ops = pa.repeat("insert", rows.num_rows)
    columns = [
        ops if each.name == OP else named.get(each.name, pa.nulls(rows.num_rows, each.type))
        for each in feed_schema(shape)
    ]
    return pa.table(columns, schema=feed_schema(shape))
