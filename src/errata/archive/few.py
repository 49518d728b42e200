"""A few rows of an archive, read here and not by Spark: to start jobs that open files would take longer."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from errata.archive.masks import Overlays, Source, read_overlays, sources
from errata.archive.scan import Found, Group, Scan
from errata.archive.warehouse import Warehouse
from errata.archive.wire import conformed
from errata.catalog.open import Catalog
from errata.intake.arrow_types import arrow_schema
from errata.model.interval import Interval
from errata.model.stream import Stream


def rows_of(
    catalog: Catalog, warehouse: Warehouse, scan: Scan, found: Found, intervals: Sequence[Interval]
) -> pa.Table:
    """The rows of a scan whose order field lies in one of these intervals, apart from each other and in order; no
    revision is left out. Of files only those row groups are read that can have such."""
    stream, aged_to = scan.standing.stream, scan.standing.aged_to
    schema = arrow_schema(stream)
    asked = intervals if aged_to is None else [_since(each, aged_to) for each in intervals]
    over = _overlays(catalog, warehouse, stream, found)
    parts = [schema.empty_table()]
    for each in sources(catalog, found.base):
        for rows in _read(each, warehouse, stream, asked):
            part = within(conformed(rows, schema), stream.order, asked)
            if over is not None and part.num_rows:
                part = part.filter(pa.array(~over.masked(part, each.bucket.floor)))
            parts.append(part)
    if over is not None:
        parts.append(within(conformed(over.surviving(), schema), stream.order, asked))
    return of_groups(pa.concat_tables(parts), stream, scan.groups)


def within(rows: pa.Table, order: str, intervals: Sequence[Interval]) -> pa.Table:
    """Rows whose order field lies in one of the intervals."""
    places = rows[order].cast(pa.int64()).combine_chunks().to_numpy(zero_copy_only=False)
    found = np.zeros(len(places), np.bool_)
    for each in intervals:
        found |= (places >= each.start) & (places < each.end)
    return rows if found.all() else rows.filter(pa.array(found))


def of_groups(rows: pa.Table, stream: Stream, groups: Iterable[Group] | None) -> pa.Table:
    """Rows of some groups, whose values are told as text; None: all."""
    if groups is None:
        return rows
    found = np.zeros(rows.num_rows, np.bool_)
    for group in groups:
        same = np.ones(rows.num_rows, np.bool_)
        for name, text in zip(stream.group, group, strict=True):
            column = rows[name]
            flags = pc.is_null(column) if text is None else pc.equal(column, pa.scalar(text).cast(column.type))
            same &= pc.fill_null(flags, False).to_numpy(zero_copy_only=False)
        found |= same
    return rows.filter(pa.array(found))


def _since(interval: Interval, place: int) -> Interval:
    return Interval(max(interval.start, place), interval.end)


def _overlays(catalog: Catalog, warehouse: Warehouse, stream: Stream, found: Found) -> Overlays | None:
    if not found.overlays:
        return None
    return Overlays(stream, read_overlays(stream, warehouse, sources(catalog, found.overlays)))


def _read(source: Source, warehouse: Warehouse, stream: Stream, asked: Sequence[Interval]) -> Iterable[pa.Table]:
    """What a bucket has in each of the intervals, and perhaps more; no row twice."""
    ends = (source.bucket.vs_min, source.bucket.vs_max)
    met = [each for each in asked if not each.empty and each.meets(*ends)]
    if not met:
        return
    hull = Interval(met[0].start, met[-1].end)
    # Row groups of neighbouring intervals may be the same ones, so one reading serves all.
    yield source.read_between(warehouse, stream.names, stream.order, hull.start, hull.end - 1)
