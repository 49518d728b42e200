"""What revisions that were taken up together have made of each row in the end.

Several batches may have corrected one row between two evaluations. The results were made of what the last of them left,
so that one is the cause, and what it did is told from what the row was before all of them. A row that they have left as
it was is no cause at all.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from errata.archive.chains import row_numbers
from errata.archive.keys import key_numbers
from errata.archive.overlay import LIVE, MASKS
from errata.archive.wire import old_column
from errata.model.stream import Stream


@dataclass(frozen=True, slots=True)
class NetRevisions:
    """For each row that revisions have changed: the last of them, and the row before all of them and after."""

    last: pa.Table
    """The overlay rows of the last ones, by revision."""
    was: pa.Table
    was_there: pa.Array
    now: pa.Table
    now_there: pa.Array

    def take(self, places: pa.Array | Sequence[int]) -> NetRevisions:
        """Some of them."""
        return NetRevisions(*(getattr(self, name).take(places) for name in self.__slots__))


def net_revisions(stream: Stream, rows: pa.Table, undoing: Collection[int]) -> NetRevisions:
    """What rows of overlays, sorted by revision, come to. `undoing` are the batches that undid others."""
    rows = rows.combine_chunks()
    first, of_row = np.unique(row_numbers(rows, undoing), return_inverse=True)
    last = np.zeros(len(first), dtype=np.int64)
    last[of_row] = np.arange(rows.num_rows)  # of several the last is what stays
    order = np.argsort(last)
    first, last = first[order], last[order]
    began, ended = rows.take(pa.array(first)), rows.take(pa.array(last))
    was = began.select([old_column(name) for name in stream.names]).rename_columns(stream.names)
    now = ended.select(stream.names)
    found = NetRevisions(ended, was, _flags(began, MASKS), now, _flags(ended, LIVE))
    return found.take(np.flatnonzero(_differ(found)))


def _differ(found: NetRevisions) -> np.ndarray:
    numbers = key_numbers(pa.concat_tables([found.was, found.now.cast(found.was.schema)]))
    was, now = np.split(numbers, 2)
    before, after = (np.asarray(each) for each in (found.was_there, found.now_there))
    differ: np.ndarray = (before != after) | (before & after & (was != now))
    return differ


def _flags(rows: pa.Table, name: str) -> pa.Array:
    return pa.array(np.asarray(pc.fill_null(rows[name], False).to_numpy(), dtype=bool))
