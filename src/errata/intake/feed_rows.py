"""Rows of a feed's file: inserts, statements about rows said earlier, and how far the feed is stable.

A file of a feed has the stream's columns and is read like any other, with three more things that it may say. `_op` may
be `adjust`, which is a replacement under the name that feeds give it, or `stable`: such a line is no row, and gives the
order column alone. The column `_stable` of any row says that the feed is stable up to a place after this row. Both
become corrections with the operation `stable`, whose order field is the place, so that they travel with the others in
the order of the lines.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from errata.intake.convert import bool_mask, convert
from errata.intake.formats import display_value
from errata.intake.layout import OP, STABLE_MARK, FileLayout
from errata.intake.source import ParsedRows
from errata.intake.split_reader import TypedRows, correction_schema, type_rows
from errata.model.batch import Op
from errata.model.columns import ColumnType, TypeKind
from errata.model.stream import Stream

ADJUST, STABLE = "adjust", "stable"
"""What `_op` may say in the files of feeds, besides what it may say in any."""


def type_feed_rows(parsed: ParsedRows, layout: FileLayout, stream: Stream) -> TypedRows:
    """Convert the values of a piece of a feed's file. Stable elements are among the corrections, behind the row of the
    same line."""
    ops = _operations(parsed)
    stable = np.zeros(len(parsed.ordinals), dtype=bool)
    if ops is not None:
        stable = _equals(ops, STABLE)
        renamed = pc.if_else(pc.equal(ops, ADJUST), pa.scalar(Op.REPLACE.value), ops)
        parsed = replace(parsed, columns={**parsed.columns, OP: renamed})
    places, parsed = _marked_places(parsed, stream)
    rows = type_rows(_some_rows(parsed, ~stable), layout, stream)
    said, unsound = _stable_places(parsed, stable, stream)
    bad = {**rows.bad, **unsound}
    of_rows = np.flatnonzero(np.asarray(places.is_valid()) & ~stable)
    of_lines = np.flatnonzero(np.asarray(said.is_valid()))
    marks = pa.concat_arrays([places.take(pa.array(of_rows)), said.take(pa.array(of_lines))])
    ordinals = parsed.ordinals[np.concatenate((of_rows, of_lines))]
    return replace(
        rows,
        corrections=pa.concat_tables([rows.corrections, _stable_elements(marks, stream)]),
        correction_ordinals=np.concatenate((rows.correction_ordinals, ordinals)),
        bad=bad,
    )


def _operations(parsed: ParsedRows) -> pa.Array | None:
    if OP not in parsed.columns:
        return None
    return convert(parsed.columns[OP], ColumnType(TypeKind.STRING))[0]


def _equals(ops: pa.Array, word: str) -> np.ndarray:
    return bool_mask(pc.fill_null(pc.equal(ops, word), False))


def _marked_places(parsed: ParsedRows, stream: Stream) -> tuple[pa.Array, ParsedRows]:
    """What the column of marks says, NULL where it says nothing, and the rows without it. A row whose mark cannot be
    read is bad."""
    if STABLE_MARK not in parsed.columns:
        return pa.nulls(len(parsed.ordinals), _place_type(stream)), parsed
    written = parsed.columns[STABLE_MARK]
    places, wrong = convert(written, stream.order_type)
    faults = {row: dict(found) for row, found in parsed.value_faults.items()}
    for row in [] if wrong is None else np.flatnonzero(wrong).tolist():
        said = f"{STABLE_MARK}: {display_value(written, row)!r} is not a {stream.order_type}"
        faults.setdefault(row, {})[STABLE_MARK] = said
    columns = {name: values for name, values in parsed.columns.items() if name != STABLE_MARK}
    missing = {name: rows for name, rows in parsed.not_given.items() if name != STABLE_MARK}
    return places, replace(parsed, columns=columns, value_faults=faults, not_given=missing)


def _stable_places(parsed: ParsedRows, stable: np.ndarray, stream: Stream) -> tuple[pa.Array, dict[int, str]]:
    """The places of stable elements, NULL for other rows; and by ordinal why a stable element has none."""
    count = len(parsed.ordinals)
    if not stable.any() or stream.order not in parsed.columns:
        lacking = np.flatnonzero(stable).tolist()
        return pa.nulls(count, _place_type(stream)), {int(parsed.ordinals[row]): _no_place(stream) for row in lacking}
    written = parsed.columns[stream.order]
    places, _ = convert(written, stream.order_type)
    known = pc.if_else(pa.array(stable), places, pa.scalar(None, places.type))
    unsound = np.flatnonzero(stable & np.asarray(known.is_null()))
    reasons = {}
    for row in unsound.tolist():
        value = display_value(written, row)
        told = _no_place(stream) if value is None else f"{stream.order}: {value!r} is not a {stream.order_type}"
        reasons[int(parsed.ordinals[row])] = told
    return known, reasons


def _no_place(stream: Stream) -> str:
    return f"{stream.order}: not given, and a stable element says nothing else"


def _place_type(stream: Stream) -> pa.DataType:
    return correction_schema(stream).field(stream.order).type


def _some_rows(parsed: ParsedRows, wanted: np.ndarray) -> ParsedRows:
    if wanted.all():
        return parsed
    at = np.cumsum(wanted) - 1
    kept: Mapping[int, dict[str, str]] = parsed.value_faults
    return replace(
        parsed,
        columns={name: values.filter(pa.array(wanted)) for name, values in parsed.columns.items()},
        ordinals=parsed.ordinals[wanted],
        value_faults={int(at[row]): dict(found) for row, found in kept.items() if wanted[row]},
        not_given={name: rows[wanted] for name, rows in parsed.not_given.items()},
    )


def _stable_elements(places: pa.Array, stream: Stream) -> pa.Table:
    """Stable elements among corrections."""
    schema = correction_schema(stream)
    count = len(places)
    columns = {OP: pa.repeat(STABLE, count), stream.order: places}
    arrays = [columns.get(field.name, pa.nulls(count, field.type)) for field in schema]
    return pa.table(arrays, schema=schema)
