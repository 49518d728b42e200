"""Overlays being written: corrections cut into buckets by the places that they mask or bring, and described."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from errata.archive.masks import Overlays
from errata.archive.overlay import LIVE, MASKS, REVISION
from errata.archive.wire import old_column
from errata.archive.written import BucketWriter, groups_of
from errata.model.bucket import Ends, NewBucket, Role
from errata.model.interval import HIGHEST, LOWEST

_PLACE = "_place"


def write_overlays(writer: BucketWriter, rows: pa.Table) -> list[NewBucket]:
    """Overlays of these rows, as few as hold them, each of at most a bucket's rows."""
    stream = writer.stream
    place = pc.coalesce(rows[old_column(stream.order)], rows[stream.order])
    keys = pa.table({_PLACE: place, REVISION: rows[REVISION]})
    ordered = rows.take(pc.sort_indices(keys, sort_keys=[(_PLACE, "ascending"), (REVISION, "ascending")]))
    pieces = -(-ordered.num_rows // stream.bucket_rows)
    cuts = np.linspace(0, ordered.num_rows, pieces + 1).astype(int).tolist()
    # A row may be corrected more than once by corrections that are applied together.
    over = Overlays(stream, ordered)
    stands = over.stands(ordered)
    return [
        replace(_write(writer, ordered.slice(low, high - low)), masked=_superseded(ordered, stands, low, high))
        for low, high in pairwise(cuts)
    ]


def _superseded(rows: pa.Table, stands: np.ndarray, low: int, high: int) -> int:
    live = rows[LIVE].to_numpy()[low:high]
    return int((live & ~stands[low:high]).sum())


def _write(writer: BucketWriter, rows: pa.Table) -> NewBucket:
    stream = writer.stream
    masked, brought = rows.filter(rows[MASKS]), rows.filter(rows[LIVE])
    masks, content = _ends(masked[old_column(stream.order)]), _ends(brought[stream.order])
    both = [ends for ends in (masks, content) if ends is not None]
    low, high = min((low for low, _ in both), default=LOWEST), max((high for _, high in both), default=HIGHEST)
    # A reader of a group has to see what is taken from it as well as what is brought to it.
    taken_from = masked.select(list(map(old_column, stream.group))).rename_columns(list(stream.group))
    groups = groups_of(pa.concat_tables([taken_from, brought.select(list(stream.group))]), stream.group)
    written = writer.store(rows, Role.OVERLAY, low, high, groups)
    numbers = pc.min_max(rows[REVISION])
    return replace(written, revisions=(numbers["min"].as_py(), numbers["max"].as_py()), masks=masks, content=content)


def _ends(column: pa.ChunkedArray) -> Ends | None:
    if not len(column):
        return None
    ends = pc.min_max(column.cast(pa.int64()))
    return ends["min"].as_py(), ends["max"].as_py()
