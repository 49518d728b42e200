"""Partial aggregates of rows by window and group, as Arrow tables: computed, combined, and turned into results.

    _window  start of the window, in the order field's unit
    <group>  the values of the group columns; NULL is a group
    _rows    how many rows there are
    _count_<column>, _sum_<column>, _min_<column>, _max_<column>   for each aggregate that needs them

Parts of disjoint sets of rows combine, in any order, into the part of all: `combined_parts` is to `partial_aggregates`
of several tables what `partial_aggregates` is to all of their rows together. Whole numbers and decimals are summed
exactly, in decimals of 38 or 76 digits; doubles as doubles. NULL counts nowhere, NaN is greater than every number, -0.0
is 0.0. A window that would reach beyond the numbers of 64 bits does not exist, as in the language.

Cost: one pass of Arrow's hash aggregation over the columns that are read. Nothing here loops over rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from errata.errors import ErrataError
from errata.intake.types import arrow_type
from errata.language.summaries import AT, ExactMeasure, SummaryForm
from errata.model.columns import FLOATING_KINDS, Column, ColumnType, TypeKind
from errata.model.results import VE, VS
from errata.model.time import HIGHEST, LOWEST

WINDOW, ROWS = "_window", "_rows"

_SHORT_DIGITS = 18
_WORD = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class _Part:
    """A column of a table of parts."""

    name: str
    function: str
    """How it is computed from rows, and combined: count, sum, min or max."""
    column: Column
    type: pa.DataType

    @property
    def combining(self) -> str:
        return "sum" if self.function == "count" else self.function

    @property
    def floating_extreme(self) -> bool:
        return self.function in ("min", "max") and pa.types.is_floating(self.type)


def _parts_of(form: SummaryForm) -> list[_Part]:
    """The parts that the results are computed from, each once, in the order of their names."""
    found: dict[str, _Part] = {}
    for measure in form.exact:
        if measure.column is None:
            continue
        for function in _functions_needed(measure.function):
            part = _Part(f"_{function}_{measure.column.name}", function, measure.column, _part_type(function, measure))
            found[part.name] = part
    return [found[name] for name in sorted(found)]


def _functions_needed(function: str) -> tuple[str, ...]:
    return ("count", "sum") if function in ("sum", "avg") else (function,)


def _part_type(function: str, measure: ExactMeasure) -> pa.DataType:
    if function == "count" or measure.column is None:
        return pa.int64()
    kind = measure.column.type
    return arrow_type(kind) if function in ("min", "max") else _sum_type(kind)


def _sum_type(kind: ColumnType) -> pa.DataType:
    if kind.kind in FLOATING_KINDS:
        return pa.float64()
    if kind.kind is TypeKind.DECIMAL and kind.precision > _SHORT_DIGITS:
        return pa.decimal256(76, kind.scale)
    return pa.decimal128(38, kind.scale)


def parts_schema(form: SummaryForm) -> pa.Schema:
    """The columns of a table of parts."""
    group = [pa.field(each.name, arrow_type(each.type)) for each in form.group]
    parts = [pa.field(each.name, each.type) for each in _parts_of(form)]
    return pa.schema([pa.field(WINDOW, pa.int64()), *group, pa.field(ROWS, pa.int64()), *parts])


def window_starts(values: np.ndarray, window: int) -> tuple[np.ndarray, np.ndarray]:
    """For each value the start of its window, and whether there is such a window."""
    back = np.mod(values, window)
    exists = values >= LOWEST + back
    starts = np.where(exists, values - np.where(exists, back, 0), 0)
    return starts, exists & (starts <= HIGHEST - window)


def partial_aggregates(form: SummaryForm, rows: pa.Table) -> pa.Table:
    """The parts of these rows, which have at least the columns that the form reads."""
    places = rows[form.stream.order].cast(pa.int64()).to_numpy(zero_copy_only=False)
    starts, exists = window_starts(places, form.window)
    rows = rows.select(list(form.columns_read)).append_column(WINDOW, pa.array(starts))
    if not exists.all():
        rows = rows.filter(pa.array(exists))
    columns: dict[str, pa.ChunkedArray] = {name: rows[name] for name in (WINDOW, *form.declaration.group)}
    columns[ROWS] = pa.chunked_array([pa.repeat(pa.scalar(1, pa.int64()), rows.num_rows)])
    for part in _parts_of(form):
        values = rows[part.column.name]
        columns[part.name] = (
            pc.is_valid(values).cast(pa.int64()) if part.function == "count" else values.cast(part.type)
        )
    return _aggregated(form, pa.table(columns))


def combined_parts(form: SummaryForm, parts: Iterable[pa.Table]) -> pa.Table:
    """The parts of several sets of rows as those of all of them."""
    schema = parts_schema(form)
    return _aggregated(form, pa.concat_tables([schema.empty_table(), *(each.select(schema.names) for each in parts)]))


def _aggregated(form: SummaryForm, table: pa.Table) -> pa.Table:
    """One row for each window and group of a table whose columns are those of parts."""
    schema, parts = parts_schema(form), _parts_of(form)
    nan_columns = []
    for part in parts:
        if part.floating_extreme:
            # Arrow's extremes pass over NaN, which the language has behind all numbers.
            values = table[part.name]
            is_nan = pc.fill_null(pc.is_nan(values), False)
            table = table.append_column(_nan_column(part), is_nan)
            nan_columns.append(_nan_column(part))
            plain = pc.add(pc.if_else(is_nan, pa.scalar(None, part.type), values), pa.scalar(0.0, part.type))
            table = table.set_column(table.schema.get_field_index(part.name), part.name, plain)
    keys = [WINDOW, *form.declaration.group]
    wanted = [(ROWS, "sum"), *((part.name, part.combining) for part in parts), *((name, "max") for name in nan_columns)]
    found = table.group_by(keys, use_threads=False).aggregate(wanted)
    columns = [found[name] for name in keys] + [found[f"{ROWS}_sum"]]
    for part in parts:
        column = found[f"{part.name}_{part.combining}"]
        if part.function == "count":
            column = pc.fill_null(column, 0)
        if part.floating_extreme:
            some_nan, nan = found[f"{_nan_column(part)}_max"], pa.scalar(float("nan"), part.type)
            instead = some_nan if part.function == "max" else pc.and_(some_nan, pc.is_null(column))
            column = pc.if_else(instead, nan, column)
        columns.append(column)
    return pa.table([each.cast(field.type) for each, field in zip(columns, schema, strict=True)], schema=schema)


def _nan_column(part: _Part) -> str:
    return f"_nan{part.name}"


def results_of(form: SummaryForm, parts: pa.Table) -> pa.Table:
    """The rows of the summary that parts of all its rows stand for: the exact columns, and the lifetimes that the
    language gives the results of a window, which begin where it ends."""
    stream = form.stream
    columns: dict[str, pa.ChunkedArray | pa.Array] = {AT: parts[WINDOW].cast(arrow_type(stream.order_type))}
    columns |= {name: parts[name] for name in form.declaration.group}
    for measure in form.exact:
        columns[measure.name] = _result(measure, parts)
    starts = parts[WINDOW].to_numpy()
    columns[VS] = pa.array(starts + form.window, pa.int64())
    columns[VE] = pa.repeat(pa.scalar(HIGHEST, pa.int64()), parts.num_rows)
    return pa.table(columns)


def _result(measure: ExactMeasure, parts: pa.Table) -> pa.ChunkedArray | pa.Array:
    if measure.column is None:
        return parts[ROWS]
    name, kind, output = measure.column.name, measure.column.type, arrow_type(measure.type)
    if measure.function in ("count", "min", "max"):
        return parts[f"_{measure.function}_{name}"].cast(output)
    sums, counts = parts[f"_sum_{name}"], parts[f"_count_{name}"]
    if kind.kind in FLOATING_KINDS:
        values = pc.if_else(pc.equal(counts, 0), pa.scalar(None, pa.float64()), sums)
        return pc.divide(values, counts) if measure.function == "avg" else values
    totals, there = _whole_numbers(sums), np.asarray(counts.to_numpy()) > 0
    if measure.function == "avg" and kind.kind is not TypeKind.DECIMAL:
        shares = np.array(totals, dtype=object)
        shares[there] = shares[there] / counts.to_numpy().astype(object)[there]
        return pa.array(np.where(there, shares, 0.0).astype(np.float64), mask=~there)
    if measure.function == "avg":
        scaled = totals * 10 ** (measure.type.scale - kind.scale)
        totals = _rounded_shares(scaled, np.maximum(counts.to_numpy(), 1).astype(object))
    return _whole_result(measure, totals, there)


def _whole_numbers(values: pa.ChunkedArray) -> np.ndarray:
    """Decimals without their point, as Python's integers; 0 for NULL."""
    array = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    if isinstance(array, pa.ChunkedArray):
        array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], array.type)
    count = array.type.bit_width // 64
    buffer = array.buffers()[1]
    if len(array) == 0 or buffer is None:
        return np.zeros(0, dtype=object)
    words = np.frombuffer(buffer, dtype=np.uint64)[array.offset * count : (array.offset + len(array)) * count]
    words = words.reshape(-1, count)
    total = words[:, count - 1].view(np.int64).astype(object) if count == 1 else _signed(words[:, count - 1])
    for at in range(count - 2, -1, -1):
        total = (total << 64) + words[:, at].astype(object)
    return np.where(np.asarray(pc.is_valid(array)), total, 0)


def _signed(words: np.ndarray) -> np.ndarray:
    signed: np.ndarray = np.ascontiguousarray(words).view(np.int64).astype(object)
    return signed


def _rounded_shares(totals: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Quotients rounded half away from zero, as Spark rounds decimals."""
    sizes = (2 * abs(totals) + counts) // (2 * counts)
    shares: np.ndarray = np.where(totals >= 0, sizes, -sizes)
    return shares


def _whole_result(measure: ExactMeasure, totals: np.ndarray, there: np.ndarray) -> pa.Array:
    """Whole numbers as the result's bigints or decimals; an error where its type cannot hold one."""
    decimal = measure.type.kind is TypeKind.DECIMAL
    least, most = (-(10**measure.type.precision) + 1, 10**measure.type.precision - 1) if decimal else (LOWEST, HIGHEST)
    if len(totals) and ((totals[there] < least).any() or (totals[there] > most).any()):
        raise ErrataError(
            f"{measure.name}: the {'average' if measure.function == 'avg' else 'sum'} does not fit",
            why=f"a {measure.type} holds numbers up to {most}",
            how="declare a smaller window or group, or fewer digits",
        )
    if not decimal:
        return pa.array(np.where(there, totals, 0).astype(np.int64), mask=~there)
    low = (totals & _WORD).astype(np.uint64)
    high = (totals >> 64).astype(np.int64).view(np.uint64)
    words = np.ascontiguousarray(np.stack([low, high], axis=1))
    validity = pa.array(there).buffers()[1]
    return pa.Array.from_buffers(arrow_type(measure.type), len(totals), [validity, pa.py_buffer(words.tobytes())])


def parts_in_windows(parts: pa.Table, windows: np.ndarray, *, inside: bool) -> pa.Table:
    """The parts whose windows are, or are not, among these starts."""
    among = np.isin(parts[WINDOW].to_numpy(), windows)
    return parts.filter(pa.array(among if inside else ~among))


def windows_of_places(places: Sequence[pa.ChunkedArray | pa.Array], window: int) -> np.ndarray:
    """The starts of the windows in which some places lie; NULL places lie in none."""
    values = [np.asarray(each.drop_null().cast(pa.int64()).to_numpy(zero_copy_only=False)) for each in places]
    if not values:
        return np.zeros(0, dtype=np.int64)
    starts, exists = window_starts(np.concatenate(values).astype(np.int64), window)
    found: np.ndarray = np.unique(starts[exists])
    return found
