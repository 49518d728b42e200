"""Results that corrections have taken back: which rows of a query's buckets count.

Buckets are never rewritten for a correction. It adds masks: a row counts if no mask has its key, its beginning and a
later evaluation's number. What a correction brings instead bears the correction's own number, so its masks leave it be.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession

from errata.archive.masks import sources
from errata.archive.match import matches
from errata.archive.result_rows import mask_schema
from errata.archive.tasks import LOCAL_ROWS, opened, rows_in
from errata.archive.warehouse import Warehouse
from errata.archive.wire import conformed
from errata.catalog.open import Catalog
from errata.engine.frames import broadcast, joined, selected
from errata.engine.plans.rows import quoted
from errata.engine.types import arrow_ddl
from errata.engine.values import as_frame
from errata.model.bucket import Bucket, Role
from errata.model.results import RUN, VE, VS, Shape

_MASK = "_masked_"


def parted(found: Iterable[Bucket]) -> tuple[list[Bucket], list[Bucket]]:
    """Buckets of results, and those of masks among them."""
    results: list[Bucket] = []
    masks: list[Bucket] = []
    for each in found:
        (masks if each.role is Role.MASK else results).append(each)
    return results, masks


def concerned(results: Iterable[Bucket], masks: Sequence[Bucket]) -> tuple[list[Bucket], list[Bucket]]:
    """Buckets in which some results may be masked, and those in which none is."""
    some: list[Bucket] = []
    free: list[Bucket] = []
    for each in results:
        (some if any(mask.may_mask(each) for mask in masks) else free).append(each)
    return some, free


def masks_in(catalog: Catalog, warehouse: Warehouse, shape: Shape, masks: Iterable[Bucket]) -> pa.Table:
    """The masks in some buckets."""
    return rows_in(catalog, warehouse, mask_schema(shape), masks)


def masks_between(
    catalog: Catalog, warehouse: Warehouse, shape: Shape, masks: Iterable[Bucket], low: int, high: int
) -> pa.Table:
    """Of the masks in some buckets those of results that begin from `low` to `high`, both included."""
    schema = mask_schema(shape)
    found = [schema.empty_table()]
    for each in sources(catalog, masks):
        rows = conformed(each.read_between(warehouse, schema.names, VS, low, high), schema)
        begins = rows[VS].to_numpy()
        found.append(rows.filter(pa.array((begins >= low) & (begins <= high))))
    return pa.concat_tables(found)


def without_masked(rows: pa.Table, masks: pa.Table, shape: Shape) -> pa.Table:
    """The rows that no mask takes back."""
    if not masks.num_rows or not rows.num_rows:
        return rows
    of_rows, of_masks = same_results(rows, masks, shape)
    later = masks[RUN].to_numpy()[of_masks] > rows[RUN].to_numpy()[of_rows]
    stays = np.ones(rows.num_rows, np.bool_)
    stays[of_rows[later]] = False
    return rows if stays.all() else rows.filter(pa.array(stays))


def same_results(
    one: pa.Table, other: pa.Table, shape: Shape, also: Sequence[str] = ()
) -> tuple[np.ndarray, np.ndarray]:
    """The index pairs of rows that are about the same result: NULL is NULL, NaN is NaN, and -0.0 is 0.0. `also`:
    further columns that must agree."""
    names = [*also, VS, *shape.key]
    return matches(spelled(one, names), spelled(other, names), names)


def spelled(rows: pa.Table, names: Sequence[str]) -> pa.Table:
    """Some columns, with every floating number in the one spelling that its value has."""
    columns = [rows[name] for name in names]
    return pa.table([_one_spelling(each) if pa.types.is_floating(each.type) else each for each in columns], names)


def _one_spelling(column: pa.ChunkedArray) -> pa.ChunkedArray:
    kind = column.type
    return pc.if_else(pc.is_nan(column), pa.scalar(float("nan"), kind), pc.add(column, pa.scalar(0.0, kind)))


def latest(masks: pa.Table, shape: Shape) -> pa.Table:
    """Masks with only the last of each result, which masks whatever the others do. It has the last end of theirs, so
    that it is found wherever they are."""
    masks, first = _last_first(masks, shape)
    ends = masks[VE].to_numpy().copy()
    np.maximum.at(ends, first, masks[VE].to_numpy())
    last = masks.set_column(masks.schema.get_field_index(VE), VE, pa.array(ends))
    return last.filter(pa.array(first == np.arange(masks.num_rows)))


def last_told(rows: pa.Table, shape: Shape) -> pa.Table:
    """Of what is told of results, by several evaluations, what was told last of each."""
    rows, first = _last_first(rows, shape)
    return rows.filter(pa.array(first == np.arange(rows.num_rows)))


def _last_first(rows: pa.Table, shape: Shape) -> tuple[pa.Table, np.ndarray]:
    """What is told of results, what was told last first, and for each row the first one about the same result."""
    rows = rows.take(pa.array(np.argsort(rows[RUN].to_numpy(), kind="stable")[::-1]))
    one, other = same_results(rows, rows, shape)
    first = np.full(rows.num_rows, rows.num_rows)
    np.minimum.at(first, one, other)
    return rows, first


def masks_frame(
    session: SparkSession, catalog: Catalog, warehouse: Warehouse, shape: Shape, masks: Sequence[Bucket]
) -> DataFrame:
    """The masks in some buckets for Spark."""
    schema = mask_schema(shape)
    if sum(each.rows for each in masks) > LOCAL_ROWS:
        return opened(session, catalog, warehouse, masks, schema, arrow_ddl(schema))
    return broadcast(as_frame(session, masks_in(catalog, warehouse, shape, masks), arrow_ddl(schema)))


def frame_without_masked(rows: DataFrame, masks: DataFrame, shape: Shape) -> DataFrame:
    """The rows that no mask takes back."""
    renamed = selected(masks, *(f"{quoted(name)} AS {quoted(_MASK + name)}" for name in (*shape.key, VS, RUN)))
    same = [f"{VS} = {quoted(_MASK + VS)}", f"{RUN} < {quoted(_MASK + RUN)}"]
    same += [f"{quoted(name)} <=> {quoted(_MASK + name)}" for name in shape.key]
    return joined(rows, renamed, " AND ".join(same), "left_anti")
