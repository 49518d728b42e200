"""One bucket of a query's results looked at: what it is, and what its rows tell of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from errata.archive.inspect import content, misfit, stored_rows
from errata.archive.masks import Source
from errata.archive.result_rows import feed_schema, first_rows, lineage_schema, mask_schema, result_schema
from errata.archive.warehouse import Warehouse
from errata.archive.wire import conformed
from errata.model.bucket import Ends, Role
from errata.model.health import Figures, Seen
from errata.model.results import RUN, VE, VS, Shape


@dataclass(frozen=True, slots=True)
class ResultWard:
    """What is needed to look at the buckets of results; it travels to every task."""

    shape: Shape
    warehouse: Warehouse


def inspected_results(ward: ResultWard, source: Source) -> Seen:
    """What a bucket is, and what it holds if it is what was written."""
    bucket = source.bucket
    known, data = content(ward.warehouse, source)
    if data is None:
        return known
    stored = stored_rows(bucket, data)
    if isinstance(stored, str):
        return replace(known, fault=stored)
    if bucket.role is Role.STATE:
        # What is in it only its strategy knows.
        return replace(known, figures=replace(Figures.told(bucket), rows=stored.num_rows))
    schema = _schema(ward.shape, bucket.role)
    if fault := misfit(schema, stored.schema):
        return replace(known, fault=fault)
    needed = [VS, RUN] if bucket.role in (Role.FEED, Role.PARTS, Role.LINEAGE) else [VS, VE, RUN]
    told = _told(conformed(stored, schema), needed, known)
    if bucket.role is Role.LINEAGE and told.figures is not None:
        begins = first_rows(stored) or (told.figures.vs_min, told.figures.vs_max)
        return replace(told, figures=replace(told.figures, vs_min=begins[0], vs_max=begins[1]))
    return told


def _schema(shape: Shape, role: Role) -> pa.Schema:
    """The columns that rows of this role have at least."""
    if role is Role.FEED:
        return feed_schema(shape)
    if role is Role.PARTS:
        # What the aggregates are made of only their strategy knows.
        return pa.schema([pa.field(name, pa.int64()) for name in (VS, RUN)])
    if role is Role.LINEAGE:
        return lineage_schema(shape)
    return mask_schema(shape) if role is Role.MASK else result_schema(shape)


def _told(rows: pa.Table, needed: Sequence[str], known: Seen) -> Seen:
    if nulls := tuple(name for name in needed if rows[name].null_count):
        return replace(known, nulls=nulls)
    begins, ends = _range(rows, VS), _range(rows, VE if VE in rows.column_names else VS)
    if begins is None:
        return replace(known, fault="there are no rows in it")
    return replace(known, figures=Figures(rows.num_rows, *begins, ends=ends), counting=rows.num_rows)


def _range(rows: pa.Table, name: str) -> Ends | None:
    ends = pc.min_max(rows[name])
    low, high = ends["min"].as_py(), ends["max"].as_py()
    return None if low is None else (low, high)
