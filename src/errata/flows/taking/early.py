"""Pending corrections of rows that are not there yet: they wait for their rows, and nothing but those can settle them.
Looked up without Spark, so that to ask is cheap; where that cannot be told for certain, they count as early."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from errata.archive.keys import PLACE, Said, identities
from errata.archive.masks import Overlays, read_overlays, sources
from errata.archive.match import matches
from errata.archive.overlay import OP
from errata.archive.wire import conformed, numbered_schema
from errata.catalog import buckets
from errata.catalog.streams import Standing
from errata.flows.site import Site
from errata.model.bucket import Bucket, Role
from errata.model.interval import Interval
from errata.model.revision import Op
from errata.model.stream import OnRevision, Stream


def any_settles(site: Site, of: Standing) -> bool:
    """Whether to apply what is pending of a stream would settle any of it, and not leave all of it waiting."""
    found = buckets.visible(site.catalog, of.stream_id, of.changed_in, role=Role.PENDING)
    if of.stream.on_revision is OnRevision.IGNORE:
        return bool(found)
    return any(_settles(site, of, each) for each in sorted(found, key=lambda each: each.revision_first or 0))


def _settles(site: Site, of: Standing, pending: Bucket) -> bool:
    (source,) = sources(site.catalog, [pending])
    rows = conformed(source.read(site.warehouse), numbered_schema(of.stream))
    spoken = identities(of.stream, rows, Said.by(of.stream, rows))
    places = spoken[PLACE]
    # A place that is not told is not waited for.
    early = pc.and_(pc.not_equal(rows[OP], Op.INSERT.value), places.is_valid())
    if of.stable is not None:
        early = pc.and_(early, pc.fill_null(pc.greater_equal(places, of.stable), False))
    flags = early.combine_chunks().to_numpy(zero_copy_only=False)
    return not flags.all() or _any_there(site, of, spoken)


def _any_there(site: Site, of: Standing, spoken: pa.Table) -> bool:
    """Whether any of these rows, all of which may still come, is there already."""
    stream = of.stream
    if not stream.key_has_order or not spoken.num_rows:
        return False
    ends = pc.min_max(spoken[PLACE])
    low, high = ends["min"].as_py(), ends["max"].as_py()
    at = (site.catalog, of.stream_id, of.changed_in, Interval(low, high + 1))
    overlays = buckets.visible(*at, role=Role.OVERLAY) if of.applied else []
    over = Overlays(stream, read_overlays(stream, site.warehouse, sources(site.catalog, overlays)))
    if _of(stream, over.surviving(), spoken).num_rows:
        return True
    for each in sources(site.catalog, buckets.visible(*at)):
        read = each.read_between(site.warehouse, list(stream.key), stream.order, low, high)
        rows = _of(stream, read, spoken)
        if not over.masked(rows, each.bucket.floor).all():
            return True
    return False


def _of(stream: Stream, rows: pa.Table, spoken: pa.Table) -> pa.Table:
    """Those rows whose keys are spoken of."""
    key = list(stream.key)
    left, _ = matches(rows.select(key), spoken.select(key), key)
    return rows.take(pa.array(np.unique(left)))
