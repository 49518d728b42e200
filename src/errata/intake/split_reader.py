"""Reads one split: typed rows, typed corrections, and text and reason for each line that is neither.

Each line is judged by itself. A row with several faults reports all of them. Texts of bad rows are kept while the split
is read, or read again from the file if they would be too much to keep.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from errata.intake.convert import bool_mask, convert
from errata.intake.formats import (
    NOT_UTF8,
    display_value,
    open_parquet,
    parse_csv,
    parse_json,
    parse_parquet,
    read_row_groups,
    row_json,
)
from errata.intake.layout import OLD_PREFIX, OP, SEQ, FileLayout, first_record_line, known_columns
from errata.intake.source import BOM, PIECE_BYTES, LineIndex, ParsedRows, decode_line, open_source, read_pieces
from errata.intake.types import arrow_schema, arrow_type
from errata.model.batch import FileFormat, FileSplit, Op, SourceFile
from errata.model.columns import TypeKind
from errata.model.stream import Stream

GIVEN, OLD_GIVEN = "_given", "_claimed"
NOT_TEXT = "text in UTF-8"
CORRECTION_OPS = (Op.REPLACE.value, Op.DELETE.value)
_SHOWN_LETTERS = 80


@dataclass(frozen=True, slots=True)
class TypedRows:
    """The rows of a piece: plain inserts, corrections, or bad."""

    rows: pa.Table
    ordinals: np.ndarray
    corrections: pa.Table
    correction_ordinals: np.ndarray
    bad: dict[int, str]
    """Ordinals and reasons."""
    lines: int


RowTyper = Callable[[ParsedRows, FileLayout, Stream], TypedRows]


@dataclass(frozen=True, slots=True)
class _ColumnFault:
    """A fault of the marked rows, with a function that words it for a row."""

    column: str
    mask: np.ndarray
    says: Callable[[int], str]


def correction_schema(stream: Stream) -> pa.Schema:
    """The columns of corrections."""
    old = [pa.field(OLD_PREFIX + column.name, arrow_type(column.type)) for column in stream.columns]
    marks = [pa.field(OP, pa.string()), pa.field(SEQ, pa.int64()), pa.field(GIVEN, pa.string())]
    return pa.schema([*arrow_schema(stream), *marks, *old, pa.field(OLD_GIVEN, pa.string())])


def insert_schema(stream: Stream, layout: FileLayout) -> pa.Schema:
    """The columns of plain inserts: the declared ones, without an order field that is given on arrival."""
    schema = arrow_schema(stream)
    if stream.ordered_on_arrival and not layout.gives_order:
        schema = schema.remove(schema.get_field_index(stream.order))
    return schema


def type_rows(parsed: ParsedRows, layout: FileLayout, stream: Stream) -> TypedRows:
    """Convert the rows' values, and separate inserts, corrections and bad rows."""
    typed, faults = _convert_columns(parsed, stream)
    count = len(parsed.ordinals)
    if OP in typed:
        faults.append(_unknown_op_fault(typed[OP]))
    corrects = np.zeros(count, dtype=bool)
    if OP in typed or layout.default_op is not Op.INSERT:
        typed[OP] = _operations(typed.get(OP, pa.nulls(count, pa.string())), layout.default_op)
        corrects = _is_in(typed[OP], CORRECTION_OPS)
    faults.extend(_missing_value_faults(parsed, typed, corrects, layout, stream))
    wrong = np.zeros(count, dtype=bool)
    wrong[list(parsed.value_faults)] = True
    for fault in faults:
        wrong |= fault.mask
    inserts, corrections = ~wrong & ~corrects, ~wrong & corrects
    return TypedRows(
        rows=_select_rows(typed, insert_schema(stream, layout), inserts),
        ordinals=parsed.ordinals[inserts],
        corrections=_correction_table(parsed, typed, corrections, stream),
        correction_ordinals=parsed.ordinals[corrections],
        bad=parsed.bad | _fault_reasons(parsed, faults, wrong),
        lines=parsed.lines,
    )


def _convert_columns(parsed: ParsedRows, stream: Stream) -> tuple[dict[str, pa.Array], list[_ColumnFault]]:
    typed: dict[str, pa.Array] = {}
    faults: list[_ColumnFault] = []
    for name, kind in known_columns(stream).items():
        if name not in parsed.columns:
            continue
        typed[name], mask = convert(parsed.columns[name], kind)
        if mask is not None:
            what = NOT_TEXT if kind.kind is TypeKind.STRING else f"{'an' if kind.kind is TypeKind.INT else 'a'} {kind}"
            faults.append(_ColumnFault(name, mask, _misfit_text(name, parsed.columns[name], what)))
    return typed, faults


def _misfit_text(name: str, values: pa.Array, what: str) -> Callable[[int], str]:
    return lambda row: f"{name}: {_quote(display_value(values, row))} is not {what}"


def _quote(value: object) -> str:
    text = repr(value) if isinstance(value, str) else str(value)
    return text if len(text) <= _SHOWN_LETTERS else f"{text[:_SHOWN_LETTERS]}…"


def _is_in(values: pa.Array, words: tuple[str, ...]) -> np.ndarray:
    return bool_mask(pc.is_in(values, value_set=pa.array(words)))


def _operations(said: pa.Array, default: Op) -> pa.Array:
    """The operation of each row, with the default for rows that do not give one."""
    silent = pc.equal(pc.fill_null(said, ""), "")
    return pc.if_else(silent, pa.scalar(default.value), said)


def _unknown_op_fault(ops: pa.Array) -> _ColumnFault:
    mask = bool_mask(pc.is_valid(ops)) & ~_is_in(ops, ("", "insert", *CORRECTION_OPS))
    return _ColumnFault(OP, mask, lambda row: f"unknown {OP} {_quote(ops[row].as_py())}: insert, replace or delete")


def _missing_value_faults(
    parsed: ParsedRows, typed: dict[str, pa.Array], corrects: np.ndarray, layout: FileLayout, stream: Stream
) -> list[_ColumnFault]:
    """The faults of rows without a key, or without the order field that they need."""
    arrives = stream.ordered_on_arrival and not layout.gives_order
    unexpected = f"{stream.order}: the file's first row does not give it"
    faults: list[_ColumnFault] = []
    for name in (column.name for column in stream.columns if column.name in stream.required):
        given = _is_given(parsed, name)
        if name == stream.order and arrives:
            if given.any():
                faults.append(_ColumnFault(name, given, lambda _: unexpected))
            if name in stream.key and corrects.any():
                # A new row gets its order on arrival; a correction has to name the order of its row.
                unnamed = corrects & ~given & _is_null(parsed, typed, OLD_PREFIX + name)
                faults.append(_ColumnFault(name, unnamed, _missing_value_text(name, given, "is part of the key")))
            continue
        empty = _is_null(parsed, typed, name)
        role = "is part of the key" if name in stream.key else "is the order"
        if corrects.any():
            # A correction does not change columns that it does not give, and a deletion changes none.
            unchanged = corrects & ~(given & ~_is_in(typed[OP], (Op.DELETE.value,)))
            # But a key column that it does not give must have an old value.
            named = ~_is_null(parsed, typed, OLD_PREFIX + name) if name in stream.key else np.True_
            empty &= ~(unchanged & named)
        if empty.any():
            faults.append(_ColumnFault(name, empty, _missing_value_text(name, given, role)))
    return faults


def _missing_value_text(name: str, given: np.ndarray, role: str) -> Callable[[int], str]:
    return lambda row: f"{name}: {'empty' if given[row] else 'not given'}, and it {role}"


def _is_given(parsed: ParsedRows, name: str) -> np.ndarray:
    """The rows that give the column, whatever its value."""
    if name not in parsed.columns:
        return np.zeros(len(parsed.ordinals), dtype=bool)
    return ~parsed.not_given[name] if name in parsed.not_given else np.ones(len(parsed.ordinals), dtype=bool)


def _is_null(parsed: ParsedRows, typed: dict[str, pa.Array], name: str) -> np.ndarray:
    """The rows in which the column was written as NULL, unlike a value that could not be converted."""
    if name not in typed:
        return np.ones(len(parsed.ordinals), dtype=bool)
    if not parsed.columns[name].null_count:
        return np.zeros(len(parsed.ordinals), dtype=bool)
    empty = bool_mask(pc.is_null(parsed.columns[name])).copy()
    empty[[row for row, notes in parsed.value_faults.items() if name in notes]] = False
    return empty


def _fault_reasons(parsed: ParsedRows, faults: list[_ColumnFault], wrong: np.ndarray) -> dict[int, str]:
    reasons: dict[int, str] = {}
    for row in np.flatnonzero(wrong).tolist():
        said = [*parsed.value_faults.get(row, {}).values(), *(fault.says(row) for fault in faults if fault.mask[row])]
        reasons[int(parsed.ordinals[row])] = "; ".join(said)
    return reasons


def _select_rows(typed: dict[str, pa.Array], schema: pa.Schema, wanted: np.ndarray) -> pa.Table:
    """The wanted rows with the schema's columns, NULL for columns that the file does not have."""
    arrays = [typed[field.name] if field.name in typed else pa.nulls(len(wanted), field.type) for field in schema]
    table = pa.table(arrays, schema=schema)
    return table if wanted.all() else table.filter(pa.array(wanted))


def _correction_table(parsed: ParsedRows, typed: dict[str, pa.Array], wanted: np.ndarray, stream: Stream) -> pa.Table:
    schema = correction_schema(stream)
    if not wanted.any():
        return schema.empty_table()
    given = [_is_given(parsed, name) for name in stream.names]
    old_given = [_is_given(parsed, OLD_PREFIX + name) for name in stream.names]
    marks = {GIVEN: _join_names(stream.names, given), OLD_GIVEN: _join_names(stream.names, old_given)}
    return _select_rows(typed | marks, schema, wanted)


def _join_names(names: Sequence[str], given: Sequence[np.ndarray]) -> pa.Array:
    """For each row the names of the columns that it gives, joined by commas. There are few distinct sets of columns."""
    digits = np.column_stack(given).astype(np.uint8) + ord("0")
    patterns, which = np.unique(digits.view(f"S{len(names)}").ravel(), return_inverse=True)
    marks = [pattern.decode() for pattern in patterns.tolist()]
    texts = [",".join(name for name, mark in zip(names, each, strict=True) if mark == "1") for each in marks]
    return pa.array(texts, pa.string()).take(pa.array(which))


# Texts of bad lines, read from their file in a second pass.


def fetch_lines(file: SourceFile, lines: AbstractSet[int], stream: Stream) -> dict[int, str]:
    """The texts of lines by number, from 1; for Parquet, the rows as JSON. One pass, with one line in memory."""
    if not lines:
        return {}
    if file.format is FileFormat.PARQUET:
        return _fetch_parquet_rows(file, lines, stream)
    return _fetch_text_lines(file, lines)


def is_lossy_text(reason: str) -> bool:
    """Whether the kept text of a row that is bad for this reason differs from the file, which is not UTF-8 there."""
    return reason == NOT_UTF8 or f" is not {NOT_TEXT}" in reason


def _fetch_text_lines(file: SourceFile, lines: AbstractSet[int]) -> dict[int, str]:
    found: dict[int, str] = {}
    last = max(lines)
    with open_source(file) as stream:
        for number, line in enumerate(stream, start=1):
            if number in lines:
                found[number] = decode_line(line.removeprefix(BOM) if number == 1 else line)
            if number >= last:
                break
    return found


def _fetch_parquet_rows(file: SourceFile, lines: AbstractSet[int], stream: Stream) -> dict[int, str]:
    found: dict[int, str] = {}
    kinds = known_columns(stream)
    with open_parquet(file) as parquet:
        first = 1
        for group in range(parquet.num_row_groups):
            behind = first + parquet.metadata.row_group(group).num_rows
            wanted = sorted(number for number in lines if first <= number < behind)
            if wanted:
                table = parquet.read_row_group(group, use_threads=False)
                found.update({number: row_json(table, number - first, kinds) for number in wanted})
            first = behind
    return found


# A whole split.

_KEPT_BYTES = 2 * PIECE_BYTES
"""Bytes of text of a compressed file above which it is not kept, but read again when needed."""


class RowTexts(Protocol):
    """Finds the texts of rows."""

    def texts(self, ordinals: Collection[int]) -> dict[int, str]: ...


@dataclass(frozen=True)
class SplitRows:
    """The rows of a split."""

    rows: pa.Table
    """Plain inserts."""
    ordinals: np.ndarray
    """The line in the split of each of `rows`, from 0."""
    corrections: pa.Table
    correction_ordinals: np.ndarray
    bad: list[tuple[int, str, str]]
    """Ordinal, text and reason of each line that is not a row."""
    lines: int
    source: RowTexts

    def texts(self, ordinals: Collection[int]) -> dict[int, str]:
        """The texts of several lines, in one pass; for Parquet, the rows as JSON."""
        return self.source.texts(ordinals)


def read_split(split: FileSplit, layout: FileLayout, stream: Stream, typer: RowTyper = type_rows) -> SplitRows:
    """Read a whole split."""
    if split.file.format is FileFormat.PARQUET:
        table = read_row_groups(split)
        source: RowTexts = _TableTexts(table, stream)
        parts = [typer(parse_parquet(table), layout, stream)]
    else:
        kept = _PieceTexts([], [])
        parts = list(_type_pieces(split, layout, stream, kept, typer))
        source = kept if kept.whole else _FileTexts(split.file, stream)
    return _join_pieces(parts, source)


def _type_pieces(
    split: FileSplit, layout: FileLayout, stream: Stream, kept: _PieceTexts, typer: RowTyper
) -> Iterator[TypedRows]:
    names = layout.columns or tuple(known_columns(stream))
    parse = parse_csv if split.file.format is FileFormat.CSV else parse_json
    passed = 0
    for data in read_pieces(split, layout.data_start):
        part = typer(parse(data, names), layout, stream)
        kept.add(passed, data, split.file.gzip)
        yield part
        passed += part.lines
    if not passed:
        yield typer(parse(b"", names), layout, stream)


def _join_pieces(parts: list[TypedRows], source: RowTexts) -> SplitRows:
    starts = np.cumsum([0, *(part.lines for part in parts)]).tolist()
    placed = list(zip(starts, parts, strict=False))
    reasons = {start + ordinal: reason for start, part in placed for ordinal, reason in part.bad.items()}
    texts = source.texts(reasons) if reasons else {}
    return SplitRows(
        rows=pa.concat_tables([part.rows for part in parts]),
        ordinals=np.concatenate([start + part.ordinals for start, part in placed]),
        corrections=pa.concat_tables([part.corrections for part in parts]),
        correction_ordinals=np.concatenate([start + part.correction_ordinals for start, part in placed]),
        bad=[(ordinal, texts[ordinal], reasons[ordinal]) for ordinal in sorted(reasons)],
        lines=starts[-1],
        source=source,
    )


class _PieceTexts:
    """The text of a split's pieces, unless it is too much to keep."""

    def __init__(self, starts: list[int], kept: list[bytes]) -> None:
        self.starts = starts
        self.kept = kept
        self.whole = True

    def add(self, start: int, data: bytes, compressed: bool) -> None:
        if compressed and sum(map(len, self.kept)) + len(data) > _KEPT_BYTES:
            self.whole = False
            self.kept.clear()
        if self.whole:
            self.starts.append(start)
            self.kept.append(data)

    def texts(self, ordinals: Collection[int]) -> dict[int, str]:
        found: dict[int, str] = {}
        for start, data in zip(self.starts, self.kept, strict=True):
            lines = LineIndex(data)
            here = (ordinal for ordinal in ordinals if start <= ordinal < start + len(lines))
            found.update({ordinal: decode_line(lines.raw(ordinal - start)) for ordinal in here})
        return found


@dataclass(frozen=True)
class _FileTexts:
    """A compressed file's lines, read again."""

    file: SourceFile
    stream: Stream

    def texts(self, ordinals: Collection[int]) -> dict[int, str]:
        first = first_record_line(self.file)
        found = fetch_lines(self.file, {first + ordinal for ordinal in ordinals}, self.stream)
        return {number - first: text for number, text in found.items()}


@dataclass(frozen=True)
class _TableTexts:
    """A Parquet split's rows as they were written."""

    table: pa.Table
    stream: Stream

    def texts(self, ordinals: Collection[int]) -> dict[int, str]:
        kinds = known_columns(self.stream)
        return {ordinal: row_json(self.table, ordinal, kinds) for ordinal in ordinals}
