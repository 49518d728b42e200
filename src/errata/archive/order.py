"""Rows put into stream order in memory."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from errata.archive.written import POS, order_values
from errata.model.stream import Stream


def in_order(rows: pa.Table, stream: Stream) -> pa.Table:
    """Rows by order field, key and position. Rows nearly are in order, and most moments belong to few rows: a stable
    sort of the order field does most of it, and only rows that share their moment are compared further."""
    order = order_values(rows[stream.order])
    index = np.argsort(order, kind="stable")
    ordered = order[index]
    equal = np.zeros(len(index) + 1, dtype=bool)
    equal[1:-1] = ordered[1:] == ordered[:-1]
    tied = np.flatnonzero(equal[1:] | equal[:-1])
    if len(tied):
        names = [stream.order, *(name for name in stream.key if name != stream.order), POS]
        some = rows.select(names).take(pa.array(index[tied]))
        index[tied] = index[tied][pc.sort_indices(some, sort_keys=[(name, "ascending") for name in names]).to_numpy()]
    return rows.take(pa.array(index))
