"""Rows put into order in memory."""

from __future__ import annotations

from collections.abc import Sequence

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


def by_columns(rows: pa.Table, names: Sequence[str]) -> pa.Table:
    """Rows sorted by some columns as Spark sorts them: NULLs come first, and NaN behind all numbers."""
    if rows.num_rows < 2 or not names:
        return rows
    keys, sorting = [], rows.select(list(names))
    for number, name in enumerate(names):
        if pa.types.is_floating(rows.schema.field(name).type):
            rank = f"_nan_{number}"
            sorting = sorting.append_column(rank, pc.is_nan(rows[name]))
            keys.append((rank, "ascending", "at_start"))
        keys.append((name, "ascending", "at_start"))
    return rows.take(pc.sort_indices(sorting, sort_keys=keys))
