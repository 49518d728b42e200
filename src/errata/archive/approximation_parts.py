"""Approximations of a bucket's values as parts that are stored with it (`archive.approximations`).

    _window             start of the window
    <group>             the values of the group columns
    _known_<number>     for each approximation: the values that are listed exactly
    _counts_<number>    how many values lie in each of some ranges
    _low_<number>, _high_<number>   the ranges, both ends included

Both kinds of approximation have this form. Parts of several buckets are read together: what is listed stays listed, and
ranges that may hold the same value become one, since nobody knows which of them a corrected value was counted in.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from errata.archive.approximations import BoundedValues, KnownValues, Ranged, count_ranges, keep_impact
from errata.archive.partials import WINDOW, window_starts
from errata.intake.types import arrow_type
from errata.language.summaries import SketchKind, SketchMeasure, SummaryForm

_LISTS = (("_known", pa.float64()), ("_counts", pa.int64()), ("_low", pa.float64()), ("_high", pa.float64()))


def approximation_schema(form: SummaryForm) -> pa.Schema:
    """The columns of stored approximations."""
    group = [pa.field(each.name, arrow_type(each.type)) for each in form.group]
    lists = [
        pa.field(f"{name}_{number}", pa.list_(kind))
        for number in range(len(form.approximations))
        for name, kind in _LISTS
    ]
    return pa.schema([pa.field(WINDOW, pa.int64()), *group, *lists])


def approximation_parts(form: SummaryForm, rows: pa.Table) -> pa.Table:
    """The approximations of these rows, one row for each window and group."""
    rows = with_windows(rows, form.stream.order, form.window)
    keys, codes = number_groups(rows, (WINDOW, *form.declaration.group))
    columns: dict[str, pa.ChunkedArray | pa.Array] = {name: keys[name] for name in keys.column_names}
    for number, measure in enumerate(form.approximations):
        groups, values = present_values(rows[measure.column.name], codes)
        columns |= _to_lists(number, _approximate(measure, groups, values, keys.num_rows))
    return pa.table([columns[each.name] for each in approximation_schema(form)], schema=approximation_schema(form))


def with_windows(rows: pa.Table, order: str, window: int) -> pa.Table:
    """Rows with the start of their window; those of windows that do not exist are left out."""
    starts, exists = window_starts(rows[order].cast(pa.int64()).to_numpy(zero_copy_only=False), window)
    return rows.append_column(WINDOW, pa.array(starts, pa.int64())).filter(pa.array(exists))


def number_groups(rows: pa.Table, names: Sequence[str]) -> tuple[pa.Table, np.ndarray]:
    """The distinct values of some columns, and for each row the number of its own. NULL is a value."""
    if not rows.num_rows:
        return rows.select(list(names)), np.zeros(0, dtype=np.int64)
    codes = np.stack(
        [pc.dictionary_encode(rows[name].combine_chunks(), null_encoding="encode").indices.to_numpy() for name in names]
    )
    _, first, of = np.unique(codes, axis=1, return_index=True, return_inverse=True)
    return rows.select(list(names)).take(pa.array(first)), of.reshape(-1).astype(np.int64)


def present_values(column: pa.ChunkedArray, codes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The values that are not NULL, as doubles, and the groups that they are of."""
    there = pc.is_valid(column).to_numpy()
    return codes[there], column.drop_null().cast(pa.float64()).to_numpy(zero_copy_only=False)


def _approximate(measure: SketchMeasure, groups: np.ndarray, values: np.ndarray, size: int) -> BoundedValues:
    if measure.kind is SketchKind.IMPACT:
        return keep_impact(groups, values, size, int(measure.arguments[0]))
    inner = _inner_edges(measure)
    low, high = float(inner[0]), float(inner[-1])
    # What lies outside is in two further ranges, which end at the least and the greatest value there is.
    ends = (min(values.min(initial=low), low), max(values.max(initial=high), high))
    return count_ranges(groups, values, size, np.array([ends[0], *inner, ends[1]]))


def _to_lists(number: int, of: BoundedValues) -> dict[str, pa.Array]:
    filled = of.ranged.counts > 0
    groups, counts, low, high = (
        each[filled] for each in (of.ranged.groups, of.ranged.counts, of.ranged.low, of.ranged.high)
    )
    return {
        f"_known_{number}": _lists(of.known.groups, of.known.values, of.size),
        f"_counts_{number}": _lists(groups, counts.astype(np.int64), of.size),
        f"_low_{number}": _lists(groups, low, of.size),
        f"_high_{number}": _lists(groups, high, of.size),
    }


def _lists(groups: np.ndarray, values: np.ndarray, size: int) -> pa.Array:
    """A list of values for each group."""
    order = np.argsort(groups, kind="stable")
    offsets = np.searchsorted(groups[order], np.arange(size + 1), side="left").astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(values[order]))


def read_approximation(
    form: SummaryForm, measure: SketchMeasure, parts: pa.Table, codes: np.ndarray, size: int
) -> BoundedValues:
    """One approximation of some parts together; `codes`: for each part the number of its group."""
    number = form.approximations.index(measure)
    known = _flat(parts[f"_known_{number}"], codes)
    (groups, counts), (_, low), (_, high) = (
        _flat(parts[f"{name}_{number}"], codes) for name in ("_counts", "_low", "_high")
    )
    places = np.zeros(len(groups), dtype=np.int64)
    if measure.kind is SketchKind.HISTOGRAM:
        places = np.searchsorted(_inner_edges(measure), low, side="right")
    return BoundedValues(size, KnownValues(*known), _merged_ranges(Ranged(groups, counts, low, high), places))


def _merged_ranges(of: Ranged, places: np.ndarray) -> Ranged:
    """The ranges of a group and place as one."""
    if not len(places):
        return of
    both, at = np.unique(np.stack([of.groups, places]), axis=1, return_inverse=True)
    at, size = at.reshape(-1), both.shape[1]
    counts = np.bincount(at, of.counts, minlength=size).astype(np.int64)
    return Ranged(both[0], counts, KnownValues(at, of.low).least(size), KnownValues(at, of.high).greatest(size))


def _inner_edges(measure: SketchMeasure) -> np.ndarray:
    """The edges of a histogram's declared ranges."""
    low, high, ranges = measure.arguments
    edges: np.ndarray = np.linspace(low, high, int(ranges) + 1)
    return edges


def _flat(lists: pa.ChunkedArray, codes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    array = lists.combine_chunks()
    array = array if isinstance(array, pa.ListArray) else pa.concat_arrays([array])
    values = pc.list_flatten(array).to_numpy(zero_copy_only=False)
    return codes[pc.list_parent_indices(array).to_numpy()], values


def concat_approximations(form: SummaryForm, parts: Iterable[pa.Table]) -> pa.Table:
    """Parts of several buckets in one table."""
    schema = approximation_schema(form)
    return pa.concat_tables([schema.empty_table(), *(each.select(schema.names) for each in parts)])
