"""The published results of some stretches of time, read here: what a correction lays its own against."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from errata.archive.masked_results import masks_in, parted, without_masked
from errata.archive.masks import Source, sources
from errata.archive.result_rows import result_schema
from errata.archive.results import buckets_beginning, buckets_counting
from errata.archive.warehouse import Warehouse
from errata.archive.wire import conformed
from errata.catalog.open import Catalog
from errata.catalog.published import Published
from errata.model.bucket import Bucket
from errata.model.interval import HIGHEST, Interval
from errata.model.results import VE, VS


def results_beginning(catalog: Catalog, warehouse: Warehouse, of: Published, spans: Sequence[Interval]) -> pa.Table:
    """The results that begin in one of the spans, which lie apart and in order."""
    found = buckets_beginning(catalog, of, of.last.commit_id, *spans) if spans else []
    return _read(catalog, warehouse, of, found, spans, VS)


def results_counting(catalog: Catalog, warehouse: Warehouse, of: Published, spans: Sequence[Interval]) -> pa.Table:
    """The results that count at an instant of one of the spans, which lie apart and in order."""
    found = buckets_counting(catalog, of, of.last.commit_id, *spans)
    return _read(catalog, warehouse, of, found, spans, VE)


def _read(
    catalog: Catalog, warehouse: Warehouse, of: Published, found: list[Bucket], spans: Sequence[Interval], by: str
) -> pa.Table:
    schema = result_schema(of.shape)
    results, masks = parted(found)
    parts = [schema.empty_table()]
    for each in sources(catalog, results):
        rows = conformed(_rows(each, warehouse, schema.names, spans, by), schema)
        parts.append(_within(rows, spans, by))
    rows = pa.concat_tables(parts)
    return without_masked(rows, masks_in(catalog, warehouse, of.shape, masks), of.shape) if masks else rows


def _rows(source: Source, warehouse: Warehouse, names: Sequence[str], spans: Sequence[Interval], by: str) -> pa.Table:
    """What a bucket has, of files at least those row groups that can have something wanted."""
    if by == VS:
        return source.read_between(warehouse, names, VS, spans[0].start, spans[-1].end - 1)
    return source.read_between(warehouse, names, VE, spans[0].start + 1, HIGHEST)


def _within(rows: pa.Table, spans: Sequence[Interval], by: str) -> pa.Table:
    begins, ends = rows[VS].to_numpy(), rows[VE].to_numpy()
    chosen = np.zeros(rows.num_rows, np.bool_)
    for each in spans:
        chosen |= (begins < each.end) & ((begins >= each.start) if by == VS else (ends > each.start))
    return rows if chosen.all() else rows.filter(pa.array(chosen))
