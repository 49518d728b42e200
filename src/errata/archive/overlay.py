"""Overlays: what applied revisions lay over the rows that are there, and what is stored of it.

One row for each applied revision: the version that it made, if it made one, and the version that it superseded, if
there was one. So the versions of a row form a chain that can be walked in both directions.
"""

from __future__ import annotations

import pyarrow as pa

from errata.archive.wire import old_column
from errata.archive.written import POS
from errata.intake.arrow_types import arrow_schema
from errata.model.stream import Stream

REVISION, OP, BATCH, GIVEN = "_revision", "_op", "_batch", "_given"
MASKS, LIVE = "_masks", "_live"
OLD_BATCH, OLD_POS, OLD_REVISION = "_from_batch", "_from_pos", "_from_revision"


def overlay_schema(stream: Stream) -> pa.Schema:
    """Applied revisions as they are kept.

    `_batch` and `_pos` say where the correction came from, `_from_batch` and `_from_pos` where the superseded version
    came from; `_from_revision` is NULL when that one is as a batch brought it.
    """
    said = [
        pa.field(REVISION, pa.int64()),
        pa.field(OP, pa.string()),
        pa.field(BATCH, pa.int64()),
        pa.field(POS, pa.int64()),
        pa.field(GIVEN, pa.string()),
        pa.field(MASKS, pa.bool_()),
        pa.field(LIVE, pa.bool_()),
    ]
    rows = arrow_schema(stream)
    old = [pa.field(old_column(field.name), field.type) for field in rows]
    origin = [pa.field(name, pa.int64()) for name in (OLD_BATCH, OLD_POS, OLD_REVISION)]
    return pa.schema([*said, *rows, *old, *origin])
