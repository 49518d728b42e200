"""Elements: what the feeds of one stream say in one batch, as a table.

One row for each statement about a row, in the order in which the statements are taken (`_seq`): feed by feed as they
are declared, and each feed's files in their order. Stable elements are no rows here: they are each feed's progress, and
the stable point that a feed had given before an element stands beside it (`_own_stable`).
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np
import pyarrow as pa

from errata.intake.types import arrow_schema
from errata.model.stream import Stream
from errata.model.time import HIGHEST, LOWEST

FEED = "_feed"
"""The number of the feed, by its place in the declaration."""
SEQ = "_seq"
ELEMENT = "_element"
POS = "_pos"
"""The position in the batch of the row that made the statement."""
OWN_STABLE = "_own_stable"
"""The stable point that the feed had given before; LOWEST if none."""
OLD_END = "_old_end"
"""The end that an adjustment says that the row had; NULL if it says none."""
GIVEN = "_given"
"""The columns that a statement gives, separated by commas; NULL means all. Others keep their value."""

OPEN = HIGHEST
"""The end of a lifetime that is not known yet, and of all rows of a stream without an end column."""

ABSENT = LOWEST
"""In place of an end: the feed, or the output, does not have the row."""


class ElementKind(IntEnum):
    """What a statement says of a row."""

    INSERT = 0
    ADJUST = 1
    """The row, known by its key, has these values from now on; also its end."""
    WITHDRAW = 2
    """There is no such row."""


def element_schema(stream: Stream) -> pa.Schema:
    """The columns of elements: the statement's own, then the stream's."""
    own = [
        pa.field(FEED, pa.int16()),
        pa.field(SEQ, pa.int64()),
        pa.field(ELEMENT, pa.int8()),
        pa.field(POS, pa.int64()),
        pa.field(OWN_STABLE, pa.int64()),
        pa.field(OLD_END, pa.int64()),
        pa.field(GIVEN, pa.string()),
    ]
    return pa.schema([*own, *arrow_schema(stream)])


def payload_names(stream: Stream) -> tuple[str, ...]:
    """The columns that are a row's payload, with key and order: all but the end of its lifetime."""
    return tuple(name for name in stream.names if name != stream.merged.end)


def row_ends(rows: pa.Table, stream: Stream) -> np.ndarray:
    """The end of each row's lifetime as a place; OPEN if there is none or it is NULL."""
    if stream.merged.end is None:
        return np.full(rows.num_rows, OPEN, dtype=np.int64)
    ends = rows[stream.merged.end].cast(pa.int64())
    filled: np.ndarray = ends.fill_null(OPEN).to_numpy()
    return filled
