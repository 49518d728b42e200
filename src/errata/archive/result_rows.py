"""The columns of results and of change records, in Arrow."""

from __future__ import annotations

import pyarrow as pa

from errata.intake.arrow_types import arrow_type
from errata.model.results import OLD_VE, OP, RUN, VE, VS, Shape, old


def rows_schema(shape: Shape) -> pa.Schema:
    """Results as they are worked out."""
    fields = [pa.field(each.name, arrow_type(each.type)) for each in shape.columns]
    return pa.schema([*fields, *(pa.field(name, pa.int64()) for name in (VS, VE))])


def result_schema(shape: Shape) -> pa.Schema:
    """Results as they are kept."""
    return rows_schema(shape).append(pa.field(RUN, pa.int64()))


def mask_schema(shape: Shape) -> pa.Schema:
    """Masks of results: key, beginning, and the end that the masked one had; and by which evaluation it is masked."""
    fields = [pa.field(each.name, arrow_type(each.type)) for each in shape.columns if each.key]
    return pa.schema([*fields, *(pa.field(name, pa.int64()) for name in (VS, VE, RUN))])


def feed_schema(shape: Shape) -> pa.Schema:
    """Records of the change feed as they are kept."""
    fields = [pa.field(each.name, arrow_type(each.type)) for each in shape.columns]
    before = [pa.field(old(each.name), arrow_type(each.type)) for each in shape.columns if not each.key]
    times = [pa.field(name, pa.int64()) for name in (VS, VE, OLD_VE)]
    return pa.schema([pa.field(OP, pa.string()), *fields, *times, *before, pa.field(RUN, pa.int64())])
