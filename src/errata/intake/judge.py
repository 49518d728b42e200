"""Rows as written made into typed rows: plain inserts, corrections, and rows with their faults."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from errata.intake.arrow_types import arrow_schema, arrow_type
from errata.intake.convert import convert, mask_of
from errata.intake.layout import OLD, OP, SEQ, FileLayout, known_columns
from errata.intake.parquet_rows import shown
from errata.intake.parsed import Parsed
from errata.model.columns import Kind
from errata.model.revision import Op
from errata.model.stream import Stream

GIVEN, OLD_GIVEN = "_given", "_claimed"
NOT_TEXT = "text in UTF-8"
CORRECTIONS = (Op.REPLACE.value, Op.DELETE.value)
_SHOWN = 80


@dataclass(frozen=True, slots=True)
class Judged:
    """A piece's rows, each in one of three places."""

    rows: pa.Table
    ordinals: np.ndarray
    corrections: pa.Table
    correction_ordinals: np.ndarray
    bad: dict[int, str]
    """Ordinals and reasons."""
    lines: int


@dataclass(frozen=True, slots=True)
class _Fault:
    """What is wrong with the marked rows, in words that may name a row's value."""

    column: str
    mask: np.ndarray
    says: Callable[[int], str]


def correction_schema(stream: Stream) -> pa.Schema:
    """The columns of corrections."""
    old = [pa.field(OLD + column.name, arrow_type(column.type)) for column in stream.columns]
    marks = [pa.field(OP, pa.string()), pa.field(SEQ, pa.int64()), pa.field(GIVEN, pa.string())]
    return pa.schema([*arrow_schema(stream), *marks, *old, pa.field(OLD_GIVEN, pa.string())])


def row_schema(stream: Stream, layout: FileLayout) -> pa.Schema:
    """The columns of plain inserts: the declared ones, without an order that is still to be given."""
    schema = arrow_schema(stream)
    if stream.ordered_on_arrival and not layout.gives_order:
        schema = schema.remove(schema.get_field_index(stream.order))
    return schema


def judge(parsed: Parsed, layout: FileLayout, stream: Stream) -> Judged:
    """Give each row its types and its place."""
    typed, faults = _typed(parsed, stream)
    count = len(parsed.ordinals)
    if OP in typed:
        faults.append(_unknown_op(typed[OP]))
    corrects = np.zeros(count, dtype=bool)
    if OP in typed or layout.default_op is not Op.INSERT:
        typed[OP] = _ops(typed.get(OP, pa.nulls(count, pa.string())), layout.default_op)
        corrects = _is_in(typed[OP], CORRECTIONS)
    faults.extend(_wanting(parsed, typed, corrects, layout, stream))
    wrong = np.zeros(count, dtype=bool)
    wrong[list(parsed.notes)] = True
    for fault in faults:
        wrong |= fault.mask
    inserts, corrections = ~wrong & ~corrects, ~wrong & corrects
    return Judged(
        rows=_table(typed, row_schema(stream, layout), inserts),
        ordinals=parsed.ordinals[inserts],
        corrections=_corrections(parsed, typed, corrections, stream),
        correction_ordinals=parsed.ordinals[corrections],
        bad=parsed.bad | _reasons(parsed, faults, wrong),
        lines=parsed.lines,
    )


def _typed(parsed: Parsed, stream: Stream) -> tuple[dict[str, pa.Array], list[_Fault]]:
    typed: dict[str, pa.Array] = {}
    faults: list[_Fault] = []
    for name, kind in known_columns(stream).items():
        if name not in parsed.columns:
            continue
        typed[name], mask = convert(parsed.columns[name], kind)
        if mask is not None:
            what = NOT_TEXT if kind.kind is Kind.STRING else f"{'an' if kind.kind is Kind.INT else 'a'} {kind}"
            faults.append(_Fault(name, mask, _misfit(name, parsed.columns[name], what)))
    return typed, faults


def _misfit(name: str, values: pa.Array, what: str) -> Callable[[int], str]:
    return lambda row: f"{name}: {_quoted(shown(values, row))} is not {what}"


def _quoted(value: object) -> str:
    text = repr(value) if isinstance(value, str) else str(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def _is_in(values: pa.Array, words: tuple[str, ...]) -> np.ndarray:
    return mask_of(pc.is_in(values, value_set=pa.array(words)))


def _ops(said: pa.Array, default: Op) -> pa.Array:
    """What each row does; one that does not say it does what is the default."""
    silent = pc.equal(pc.fill_null(said, ""), "")
    return pc.if_else(silent, pa.scalar(default.value), said)


def _unknown_op(ops: pa.Array) -> _Fault:
    mask = mask_of(pc.is_valid(ops)) & ~_is_in(ops, ("", "insert", *CORRECTIONS))
    return _Fault(OP, mask, lambda row: f"unknown {OP} {_quoted(ops[row].as_py())}: insert, replace or delete")


def _wanting(
    parsed: Parsed, typed: dict[str, pa.Array], corrects: np.ndarray, layout: FileLayout, stream: Stream
) -> list[_Fault]:
    """Rows without a key, or without the order that they need."""
    arrives = stream.ordered_on_arrival and not layout.gives_order
    faults: list[_Fault] = []
    for name in (column.name for column in stream.columns if column.name in stream.required):
        given = _given(parsed, name)
        if name == stream.order and arrives:
            if given.any():
                faults.append(_Fault(name, given, lambda _: f"{stream.order}: the file's first row does not give it"))
            if name in stream.key and corrects.any():
                # What arrives now is given its order, but not what has arrived before and is to be corrected.
                unnamed = corrects & ~given & _empty(parsed, typed, OLD + name)
                faults.append(_Fault(name, unnamed, _lack(name, given, "is part of the key")))
            continue
        empty = _empty(parsed, typed, name)
        role = "is part of the key" if name in stream.key else "is the order"
        if corrects.any():
            # A correction does not change what it does not give, and a deletion changes nothing.
            unchanged = corrects & ~(given & ~_is_in(typed[OP], (Op.DELETE.value,)))
            # But a key that it does not give it names by the old value.
            named = ~_empty(parsed, typed, OLD + name) if name in stream.key else np.True_
            empty &= ~(unchanged & named)
        if empty.any():
            faults.append(_Fault(name, empty, _lack(name, given, role)))
    return faults


def _lack(name: str, given: np.ndarray, role: str) -> Callable[[int], str]:
    return lambda row: f"{name}: {'empty' if given[row] else 'not given'}, and it {role}"


def _given(parsed: Parsed, name: str) -> np.ndarray:
    """The rows that have the column, whatever its value."""
    count = len(parsed.ordinals)
    if name not in parsed.columns:
        return np.zeros(count, dtype=bool)
    return ~parsed.absent[name] if name in parsed.absent else np.ones(count, dtype=bool)


def _empty(parsed: Parsed, typed: dict[str, pa.Array], name: str) -> np.ndarray:
    """The rows in which the column is NULL as written, not for a value that could not be read."""
    if name not in typed:
        return np.ones(len(parsed.ordinals), dtype=bool)
    if not parsed.columns[name].null_count:
        return np.zeros(len(parsed.ordinals), dtype=bool)
    empty = mask_of(pc.is_null(parsed.columns[name])).copy()
    empty[[row for row, notes in parsed.notes.items() if name in notes]] = False
    return empty


def _reasons(parsed: Parsed, faults: list[_Fault], wrong: np.ndarray) -> dict[int, str]:
    reasons: dict[int, str] = {}
    for row in np.flatnonzero(wrong).tolist():
        said = [*parsed.notes.get(row, {}).values(), *(fault.says(row) for fault in faults if fault.mask[row])]
        reasons[int(parsed.ordinals[row])] = "; ".join(said)
    return reasons


def _table(typed: dict[str, pa.Array], schema: pa.Schema, wanted: np.ndarray) -> pa.Table:
    """The wanted rows of the schema's columns, NULL where the file has none."""
    count = len(wanted)
    arrays = [typed[field.name] if field.name in typed else pa.nulls(count, field.type) for field in schema]
    table = pa.table(arrays, schema=schema)
    return table if wanted.all() else table.filter(pa.array(wanted))


def _corrections(parsed: Parsed, typed: dict[str, pa.Array], wanted: np.ndarray, stream: Stream) -> pa.Table:
    schema = correction_schema(stream)
    if not wanted.any():
        return schema.empty_table()
    given = [_given(parsed, name) for name in stream.names]
    old_given = [_given(parsed, OLD + name) for name in stream.names]
    marks = {GIVEN: _listed(stream.names, given), OLD_GIVEN: _listed(stream.names, old_given)}
    return _table(typed | marks, schema, wanted)


def _listed(names: Sequence[str], given: Sequence[np.ndarray]) -> pa.Array:
    """For each row the names, joined by commas, of the columns that it gives. Few sets of columns differ."""
    digits = np.column_stack(given).astype(np.uint8) + ord("0")
    patterns, which = np.unique(digits.view(f"S{len(names)}").ravel(), return_inverse=True)
    marks = [pattern.decode() for pattern in patterns.tolist()]
    texts = [",".join(name for name, mark in zip(names, each, strict=True) if mark == "1") for each in marks]
    return pa.array(texts, pa.string()).take(pa.array(which))
