"""Which changed rows lead to a result: those whose forward lineage contains it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from errata.evaluate.reads import Reach
from errata.flows.answering.forms import Form
from errata.flows.correcting.reached import reached, with_times
from errata.language.lineage import Change, Region
from errata.model.interval import Interval
from errata.model.results import VE, VS
from errata.model.stream import Stream

LOOKED_AT = 1_000
"""So many rows that may lead to a result are followed through the plan one by one."""


@dataclass(frozen=True, slots=True)
class Side:
    """Versions of rows, by the names of their source, and which of them are there."""

    rows: pa.Table
    there: pa.ChunkedArray | pa.Array


def leading(
    form: Form, region: Region, reads: Sequence[Reach], source: str, sides: Sequence[Side], stream: Stream | None
) -> pa.Array:
    """The places of the rows of which a version leads to a region."""
    if not sides[0].rows.num_rows:
        return pa.array([], pa.int64())
    timed = [with_times(each.rows, stream) for each in sides]
    near = [
        np.logical_or.reduce([reached(rows, each) for each in reads]) if reads else np.zeros(rows.num_rows, np.bool_)
        for rows in timed
    ]
    there = [np.asarray(each.there.to_numpy(zero_copy_only=False), np.bool_) for each in sides]
    maybe = np.flatnonzero(np.logical_or.reduce([one & other for one, other in zip(near, there, strict=True)]))
    if len(maybe) > LOOKED_AT:
        return pa.array(maybe)
    plain = [as_constants(rows.take(pa.array(maybe))).to_pylist() for rows in timed]
    found = [
        place
        for number, place in enumerate(maybe.tolist())
        if any(
            flags[place] and _touches(form, region, source, some[number])
            for flags, some in zip(there, plain, strict=True)
        )
    ]
    return pa.array(found, pa.int64())


def _touches(form: Form, region: Region, source: str, row: Mapping[str, Any]) -> bool:
    """Whether one version of a row leads to a region."""
    for place, scan in enumerate(form.scans):
        if scan.source.name == source:
            values = {scan.column(name): value for name, value in row.items() if name not in (VS, VE)}
            if form.touches(Change(place, Interval(row[VS], row[VS] + 1), row[VE], values), region):
                return True
    return False


def as_constants(rows: pa.Table) -> pa.Table:
    """The rows with times as lineage has them."""
    columns = [each.cast(pa.int64()) if pa.types.is_timestamp(each.type) else each for each in rows.columns]
    return pa.table(columns, rows.column_names)
