"""The columns of results and of change records, in Arrow."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
import pyarrow.compute as pc

from errata.intake.arrow_types import arrow_type
from errata.model.results import FROM, OLD_VE, OP, RUN, VE, VS, Shape, old


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


def lineage_schema(shape: Shape, columns: Iterable[str] = ()) -> pa.Schema:
    """Of which rows results were made: key, beginning, these columns, and by which evaluation it is told."""
    fields = [pa.field(each.name, arrow_type(each.type)) for each in shape.columns if each.key]
    return pa.schema([*fields, *(pa.field(name, pa.int64()) for name in (VS, *columns, RUN))])


def first_rows(lineage: pa.Table) -> tuple[int, int] | None:
    """Where the first row lies that one of the results was made of, and where the last result begins."""
    begins = [pc.min(lineage[name]).as_py() for name in lineage.column_names if name.startswith(FROM)]
    ends = pc.min_max(lineage[VS])
    if ends["min"].as_py() is None:
        return None
    return min(ends["min"].as_py(), *(each for each in begins if each is not None)), ends["max"].as_py()


def feed_schema(shape: Shape) -> pa.Schema:
    """Records of the change feed as they are kept."""
    fields = [pa.field(each.name, arrow_type(each.type)) for each in shape.columns]
    before = [pa.field(old(each.name), arrow_type(each.type)) for each in shape.columns if not each.key]
    times = [pa.field(name, pa.int64()) for name in (VS, VE, OLD_VE)]
    return pa.schema([pa.field(OP, pa.string()), *fields, *times, *before, pa.field(RUN, pa.int64())])
