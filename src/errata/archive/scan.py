"""Scans of streams by an engine: exactly the buckets that the index names, with a declared schema, filtered inside.

    base rows of buckets that no overlay touches
  + base rows without those that an overlay masks (by key and place, revisions above the bucket's floor)
  + rows that overlays add, without those that a later revision masks
  + in a reduced scan, rows that purging has left

Base buckets are grouped by what overlays can do to them, so that most are read without a join and the rest in one. A
scan that leaves out revisions (`revisions_up_to`) also drops rows that are only there because such a revision had made
their key free.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from errata.archive.bucket_frames import LOCAL_ROWS, RowsWanted, bucket_frame
from errata.archive.overlays import bucket_sources, identity_columns, read_overlays
from errata.archive.scan_filter import filter_scan, order_literal, with_rate_column
from errata.archive.scan_plan import ArchiveScan, ScanBuckets, candidate_buckets
from errata.archive.schemas import LIVE, MASKS, OLD_REVISION, REVISION, overlay_schema
from errata.catalog.database import Catalog
from errata.declare.warehouse import Warehouse
from errata.engine.frames import (
    arrow_ddl,
    broadcast_frame,
    frame_of_rows,
    join_sql,
    select_sql,
    union_by_name,
)
from errata.engine.plans.node_rows import quote_name
from errata.intake.types import arrow_schema
from errata.model.bucket import Bucket
from errata.model.reduction import SamplingRates
from errata.model.results import old_column
from errata.model.stream import Stream
from errata.model.time import HIGHEST, Interval

BROADCAST_ROWS = 1_000_000
"""Masks up to which all are sent to every task; above it, Spark chooses the join."""

_HASH, _MASK_HASH, _MASK_NUMBER = "_hash", "_mask_hash", "_mask_number"


def scan_rows(
    session: SparkSession,
    catalog: Catalog,
    warehouse: Warehouse,
    scan: ArchiveScan,
    found: ScanBuckets | None = None,
    *,
    with_rate: bool = False,
) -> DataFrame:
    """The rows of a scan, in no particular order; `found` are its candidate buckets, if they are known already. With
    `with_rate`, a further column has the rate at which each row was sampled. Which engine may read a sample is said
    beforehand, by `scan_reading.scan_demand`."""
    found = candidate_buckets(catalog, scan) if found is None else found
    stream = scan.state.stream
    rows = (
        _overlaid_rows(session, catalog, warehouse, scan, found)
        if found.overlays
        else _base_rows(session, catalog, warehouse, scan, found)
    )
    rows = with_rate_column(rows, stream, scan.rates) if with_rate else rows
    remaining = _remaining_rows(session, catalog, warehouse, scan, found)
    return union_by_name(
        [rows, *(with_rate_column(some, stream, rates) if with_rate else some for some, rates in remaining)]
    )


def _remaining_rows(
    session: SparkSession, catalog: Catalog, warehouse: Warehouse, scan: ArchiveScan, found: ScanBuckets
) -> list[tuple[DataFrame, SamplingRates]]:
    """The rows that purging has left, with the rates at which they are sampled: no rate is above that of the copy which
    was left."""
    by_rate: defaultdict[float, list[Bucket]] = defaultdict(list)
    for bucket in found.remains:
        by_rate[bucket.resolution.rate].append(bucket)
    parts = []
    for rate, some in by_rate.items():
        rates = (scan.rates or SamplingRates()).at_most(rate)
        sampled = replace(scan, state=replace(scan.state, aged_to=None), rates=rates)
        parts.append((_base_rows(session, catalog, warehouse, sampled, ScanBuckets(some)), rates))
    return parts


def _overlaid_rows(
    session: SparkSession, catalog: Catalog, warehouse: Warehouse, scan: ArchiveScan, found: ScanBuckets
) -> DataFrame:
    """The rows of a scan that overlays take part in."""
    stream = scan.state.stream
    overlaid = overlay_frame(session, catalog, warehouse, stream, found.overlays)
    size, chained = sum(each.rows for each in found.overlays), any(each.masked for each in found.overlays)
    masking = _OverlayMasks(stream, overlaid, scan.last_revision, size, chained)
    parts = []
    for how, some in group_by_masks(scan, found):
        rows = _base_rows(session, catalog, warehouse, scan, replace(found, base=some))
        rows = rows if how.floor is None else masking.unmasked(rows, how.floor)
        parts.append(rows if how.later is None else masking.not_displaced(rows, how.later, how.aged_to))
    parts.append(filter_scan(masking.surviving(), scan))
    return union_by_name(parts)


@dataclass(frozen=True, slots=True)
class MaskEffect:
    """What overlays can do to the rows of a base bucket."""

    floor: int | None
    """Revisions above this number can mask rows; None: none can."""
    later: int | None = None
    """Revisions up to this number, which the scan leaves out, may have freed the keys of some rows."""
    aged_to: int | None = None
    """How far the stream had been aged when these rows came."""


def group_by_masks(scan: ArchiveScan, found: ScanBuckets) -> list[tuple[MaskEffect, list[Bucket]]]:
    """Base buckets by what overlays can do to them."""
    classes: defaultdict[MaskEffect, list[Bucket]] = defaultdict(list)
    known = [each for each in found.overlays if each.masks is not None]
    for bucket in found.base:
        reach = Interval(bucket.vs_min, bucket.vs_max + 1)
        touching = [each for each in known if each.masks is not None and reach.meets(*each.masks)]
        # Floor 0 stands for any floor before all overlays that touch the bucket: such buckets are joined together.
        floor = None if not touching else bucket.floor if min(map(_last_revision, touching)) <= bucket.floor else 0
        freeing = touching if scan.state.stream.key_has_order else known
        if any(_last_revision(each) > scan.last_revision and _first_revision(each) <= bucket.floor for each in freeing):
            how = MaskEffect(floor, bucket.floor, found.aged_before.get(bucket.added_in))
        else:
            how = MaskEffect(floor)
        classes[how].append(bucket)
    return list(classes.items())


def _first_revision(overlay: Bucket) -> int:
    return overlay.revision_first or 0


def _last_revision(overlay: Bucket) -> int:
    return overlay.revision_last or 0


@dataclass(frozen=True, slots=True)
class _OverlayMasks:
    """The joins of rows with overlays, with the revisions up to a number."""

    stream: Stream
    overlaid: DataFrame
    up_to: int
    size: int
    chained: bool
    """Whether some revisions have superseded rows that others added."""

    def unmasked(self, rows: DataFrame, floor: int) -> DataFrame:
        """Rows of base buckets that no revision after the floor masks."""
        return self._without(rows, self._masks(self._known, floor or None), self._places)

    def not_displaced(self, rows: DataFrame, floor: int, aged_to: int | None) -> DataFrame:
        """Rows of base buckets without those that could only come because a revision that the scan leaves out, up to
        the floor, had freed their key: without that revision another row still has it."""
        freed = self.overlaid.where(
            f"{REVISION} > {self.up_to}L AND {REVISION} <= {floor}L"
            f" AND ({OLD_REVISION} IS NULL OR {OLD_REVISION} <= {self.up_to}L)"
        )
        if aged_to is not None:
            freed = freed.where(f"{quote_name(old_column(self.stream.order))} >= {order_literal(self.stream, aged_to)}")
        return self._without(rows, self._masks(freed), [*self.stream.key])

    def surviving(self) -> DataFrame:
        """Rows of the overlays that no later one masks."""
        rows = select_sql(self._known.where(LIVE), *map(quote_name, self.stream.names), REVISION)
        if not self.chained:
            return rows.drop(REVISION)
        left = self._without(rows, self._masks(self._known), self._places, f" AND {_MASK_NUMBER} > {REVISION}")
        return left.drop(REVISION)

    def _without(self, rows: DataFrame, masks: DataFrame, columns: Sequence[str], also: str = "") -> DataFrame:
        # Joined by one number, and compared by the columns only when it matches. Spark would put every equality into
        # the key of its hash table, which is then several times slower; so the columns are compared by >= and <=.
        masks = select_sql(masks, "*", f"{self._number([_mask_column(name) for name in columns])} AS {_MASK_HASH}")
        pairs = [(quote_name(name), quote_name(_mask_column(name))) for name in columns]
        same = "".join(f" AND {own} >= {masked} AND {own} <= {masked}" for own, masked in pairs)
        hashed = select_sql(rows, "*", f"{self._number(columns)} AS {_HASH}")
        masks = broadcast_frame(masks) if self.size <= BROADCAST_ROWS else masks
        return join_sql(hashed, masks, f"{_HASH} = {_MASK_HASH}{same}{also}", "left_anti").drop(_HASH)

    def _number(self, columns: Sequence[str]) -> str:
        """A number that is equal for rows that agree in the columns: the place if it is among them, since few rows
        share it and it costs nothing, else a hash."""
        order = next((name for name in columns if name in (self.stream.order, _mask_column(self.stream.order))), None)
        if order is None:
            return f"xxhash64({', '.join(map(quote_name, columns))})"
        return f"unix_micros({quote_name(order)})" if self.stream.timed else quote_name(order)

    def _masks(self, overlaid: DataFrame, floor: int | None = None) -> DataFrame:
        masks = overlaid.where(MASKS if floor is None else f"{MASKS} AND {REVISION} > {floor}L")
        old = (f"{quote_name(old_column(name))} AS {quote_name(_mask_column(name))}" for name in self._places)
        return select_sql(masks, f"{REVISION} AS {_MASK_NUMBER}", *old)

    @property
    def _known(self) -> DataFrame:
        return self.overlaid if self.up_to == HIGHEST else self.overlaid.where(f"{REVISION} <= {self.up_to}L")

    @property
    def _places(self) -> list[str]:
        """Rows are masked by key and place, since a key that was freed may be taken at another place."""
        return identity_columns(self.stream)


def _mask_column(name: str) -> str:
    return f"_masked_{name}"


def _base_rows(
    session: SparkSession, catalog: Catalog, warehouse: Warehouse, scan: ArchiveScan, found: ScanBuckets
) -> DataFrame:
    """The rows of base buckets that are wanted, whether overlays mask them or not. Columns that were added later are
    NULL in older buckets."""
    stream = scan.state.stream
    wanted = RowsWanted(stream.order, scan.interval, found.prefixes)
    rows = bucket_frame(session, catalog, warehouse, found.base, arrow_schema(stream), wanted)
    return filter_scan(rows, scan, found.base)


def overlay_frame(
    session: SparkSession, catalog: Catalog, warehouse: Warehouse, stream: Stream, found: Sequence[Bucket]
) -> DataFrame:
    """All rows of overlays, with the columns of `schemas.overlay_schema` that a scan needs."""
    # Of old values, a scan needs only those that identify the masked row.
    old = [*map(old_column, identity_columns(stream))]
    told = {REVISION, OLD_REVISION, MASKS, LIVE, *stream.names, *old}
    schema = pa.schema([column for column in overlay_schema(stream) if column.name in told])
    if sum(bucket.rows for bucket in found) > LOCAL_ROWS:
        return bucket_frame(session, catalog, warehouse, found, schema)
    rows = read_overlays(stream, warehouse, bucket_sources(catalog, found), schema.names)
    return frame_of_rows(session, rows.select(schema.names), arrow_ddl(schema))
