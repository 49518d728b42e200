"""One parser for each format, from bytes to untyped columns (`source.ParsedRows`). A new format goes here.

CSV has one record a line, quoted as in RFC 4180; each line is good or bad by itself. Clean text goes through Arrow's
reader at once. Arrow ends a record at a bare carriage return, and lets an open quote run across the end of a line, so
text with either is checked line by line first, with NumPy.

JSON lines have one object a line; values become text, so that the same rules of conversion serve both formats. Parquet
has runs of row groups, whose columns have types already.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pv
import pyarrow.parquet as pq

from errata.errors import ErrataError, candidates_text
from errata.intake.convert import convert
from errata.intake.source import LineIndex, ParsedRows, count_lines, open_source
from errata.model.batch import FileSplit, SourceFile
from errata.model.columns import ColumnType, TypeKind
from errata.model.time import format_instant

_QUOTE, _COMMA, _RETURN, _NEWLINE = (ord(mark) for mark in '",\r\n')
_BLOCK = 1 << 20

NOT_UTF8 = "not UTF-8"
_RETURNS = "a carriage return within the line"
_QUOTES = "quotes that do not pair: a value in quotes begins and ends with one, and doubles those within"


def parse_header(line: bytes) -> list[str]:
    """The names in a header line."""
    text = line.decode("utf-8").removesuffix("\n").removesuffix("\r")
    rows = list(csv.reader([text], strict=True))
    return rows[0] if rows else []


def parse_csv(data: bytes, names: Sequence[str]) -> ParsedRows:
    """The values of whole CSV lines, as strings."""
    if b'"' not in data and data.count(b"\r") == data.count(b"\r\n"):
        columns = _read_cells(data, names, _BLOCK)
        lines = count_lines(data)
        if columns is not None and len(columns[names[0]]) == lines:
            return ParsedRows(columns, np.arange(lines, dtype=np.int64), lines)
    return _parse_checked(data, names)


def _parse_checked(data: bytes, names: Sequence[str]) -> ParsedRows:
    lines = LineIndex(data)
    bad = np.full(len(lines), "", dtype=object)
    bad[_lines_with_stray_returns(lines)] = _RETURNS
    bad[_lines_with_bad_quotes(lines)] = _QUOTES
    bad[_lines_not_utf8(lines)] = NOT_UTF8
    rows = (bad == "") & ~_blank_lines(lines)
    columns = _cells_of_lines(lines, rows, names)
    if columns is None:
        counts = _value_counts(lines, rows)
        wrong = rows & (counts != len(names))
        for ordinal in np.flatnonzero(wrong):
            given = int(counts[ordinal])
            bad[ordinal] = f"{given} value{'' if given == 1 else 's'}, the header names {len(names)}"
        rows &= ~wrong
        columns = _cells_of_lines(lines, rows, names)
    if columns is None:
        raise ErrataError("the lines cannot be taken apart", why="the CSV reader refuses what the line rules allow")
    reasons = {int(ordinal): bad[ordinal] for ordinal in np.flatnonzero(bad != "")}
    return ParsedRows(columns, np.flatnonzero(rows).astype(np.int64), len(lines), bad=reasons)


def _read_cells(data: bytes | pa.Buffer, names: Sequence[str], block: int) -> dict[str, pa.Array] | None:
    """The values as Arrow reads them; None if it refuses the text."""
    if not data:
        return {name: pa.array([], pa.string()) for name in names}
    try:
        table = pv.read_csv(
            pa.BufferReader(data),
            read_options=pv.ReadOptions(column_names=list(names), use_threads=False, block_size=block),
            parse_options=pv.ParseOptions(newlines_in_values=False),
            convert_options=pv.ConvertOptions(
                column_types={name: pa.string() for name in names},
                null_values=[""],
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            ),
        )
    except pa.ArrowInvalid:
        return None
    return {name: table.column(name).combine_chunks() for name in names}


def _cells_of_lines(lines: LineIndex, rows: np.ndarray, names: Sequence[str]) -> dict[str, pa.Array] | None:
    count = int(rows.sum())
    kept = lines.data if count == len(lines) else _join_lines(lines, rows)
    if not count:
        return _read_cells(b"", names, _BLOCK)
    if not kept.endswith(b"\n"):
        # Without a newline at the end, Arrow takes an empty last value after a quoted one for a quoted one, too.
        kept += b"\n"
    longest = int((lines.nexts - lines.starts).max(initial=0))
    columns = _read_cells(kept, names, max(_BLOCK, longest + 2))
    return columns if columns is None or len(columns[names[0]]) == count else None


def _join_lines(lines: LineIndex, rows: np.ndarray) -> bytes:
    """The text of the marked lines, joined by runs of neighbours."""
    edges = np.flatnonzero(np.diff(np.concatenate(([False], rows, [False])).astype(np.int8)))
    runs = zip(edges[::2], edges[1::2], strict=True)
    return b"".join([lines.data[lines.starts[first] : lines.nexts[behind - 1]] for first, behind in runs])


def _blank_lines(lines: LineIndex) -> np.ndarray:
    lengths = lines.ends - lines.starts
    blank: np.ndarray = lengths == 0
    single = np.flatnonzero(lengths == 1)
    blank[single] = lines.content[lines.starts[single]] == _RETURN
    return blank


def _lines_with_stray_returns(lines: LineIndex) -> np.ndarray:
    returns = np.flatnonzero(lines.content == _RETURN)
    where = lines.of(returns)
    # A carriage return before the newline is part of CRLF; at the end of the text it is accepted, too.
    return np.unique(where[returns != lines.ends[where] - 1])


def _lines_not_utf8(lines: LineIndex) -> np.ndarray:
    try:
        lines.data.decode("utf-8")
    except UnicodeDecodeError:
        pass
    else:
        return np.array([], dtype=np.int64)
    suspects = np.unique(lines.of(np.flatnonzero(lines.content >= 0x80)))
    return np.array([ordinal for ordinal in suspects.tolist() if not _is_utf8(lines.raw(ordinal))], dtype=np.int64)


def _is_utf8(line: bytes) -> bool:
    try:
        line.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _lines_with_bad_quotes(lines: LineIndex) -> np.ndarray:
    """Lines whose quotes do not enclose whole values.

    The quotes of a line pair off in order. The first of a pair is at the beginning of a value or right after the
    previous pair (a doubled quote); the second is at the end of a value or right before the next pair.
    """
    quotes = np.flatnonzero(lines.content == _QUOTE)
    where = lines.of(quotes)
    odd = np.bincount(where, minlength=len(lines)) % 2 == 1
    even = ~odd[where]
    quotes, where = quotes[even], where[even]
    firsts, lasts, pair_line = quotes[::2], quotes[1::2], where[::2]
    before = lines.content[np.maximum(firsts - 1, 0)]
    begins = (firsts == lines.starts[pair_line]) | (before == _COMMA) | (before == _QUOTE)
    behind = lines.content[np.minimum(lasts + 1, len(lines.content) - 1)]
    ends = (lasts + 1 == lines.ends[pair_line]) | (behind == _COMMA) | (behind == _QUOTE)
    ends |= (behind == _RETURN) & (lasts + 2 == lines.ends[pair_line])
    odd[pair_line[~(begins & ends)]] = True
    return np.flatnonzero(odd)


def _value_counts(lines: LineIndex, rows: np.ndarray) -> np.ndarray:
    """How many values each of the marked lines has: its commas outside of quotes, plus one."""
    commas = np.flatnonzero(lines.content == _COMMA)
    where = lines.of(commas)
    quotes = np.flatnonzero(lines.content == _QUOTE)
    quotes = quotes[rows[lines.of(quotes)]]
    outside = np.searchsorted(quotes, commas) % 2 == 0
    counts: np.ndarray = np.bincount(where[outside], minlength=len(lines)) + 1
    return counts


# JSON lines.

_SHOWN = 80


class _RepeatedMemberError(ValueError):
    """An object that has a member twice."""


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise _RepeatedMemberError(f"{twice!r} is given twice")
    return members


_DECODER = json.JSONDecoder(object_pairs_hook=_members, parse_int=str, parse_float=str, parse_constant=str)


def parse_json(data: bytes, names: Sequence[str]) -> ParsedRows:
    """The members of whole JSON lines as strings, with a column for each known name that some row gives."""
    raw = data.split(b"\n")
    if raw and not raw[-1]:
        raw.pop()
    known = frozenset(names)
    rows: list[dict[str, str | None]] = []
    ordinals: list[int] = []
    bad: dict[int, str] = {}
    notes: dict[int, dict[str, str]] = {}
    for ordinal, line in enumerate(raw):
        if not line or line.isspace():
            continue
        row = parse_object(line)
        if isinstance(row, str):
            bad[ordinal] = row
            continue
        if faults := _convert_members(row, known, line):
            notes[len(rows)] = faults
        rows.append(row)
        ordinals.append(ordinal)
    seen: set[str] = set().union(*rows)
    given = [name for name in names if name in seen]
    columns = {name: pa.array([row.get(name) for row in rows], pa.string()) for name in given}
    absent = {name: np.array([name not in row for row in rows], dtype=bool) for name in given}
    return ParsedRows(columns, np.array(ordinals, dtype=np.int64), len(raw), bad, notes, absent)


def parse_object(line: bytes) -> dict[str, Any] | str:
    """The object of a line, or why it is none."""
    try:
        value = _DECODER.decode(line.decode("utf-8"))
    except UnicodeDecodeError:
        return NOT_UTF8
    except _RepeatedMemberError as error:
        return str(error)
    except RecursionError:
        return "not a JSON object: nested too deeply"
    except json.JSONDecodeError as error:
        return f"not a JSON object: {error.msg.lower()} at character {error.colno}"
    if isinstance(value, dict):
        return value
    return f"not a JSON object: {line.decode('utf-8').strip()[:_SHOWN]}"


def _convert_members(row: dict[str, Any], known: frozenset[str], line: bytes) -> dict[str, str]:
    """Convert the row's values to text in place; returns faults by column."""
    faults: dict[str, str] = {}
    for name, value in row.items():
        if name not in known:
            faults[name] = _unknown_column_fault(name, known)
        elif value is True or value is False:
            row[name] = "true" if value else "false"
        elif isinstance(value, dict | list):
            faults[name] = f"{name}: {json.dumps(value)[:_SHOWN]} is nested, and a column holds one value"
            row[name] = None
        elif value is not None and b"\\u" in line and not _is_encodable(value):
            faults[name] = f"{name}: {value!r} holds half a character"
            row[name] = None
    return faults


@lru_cache(maxsize=1024)
def _unknown_column_fault(name: str, known: frozenset[str]) -> str:
    """The fault of an unknown name. Cached, since finding candidates is slow and a file repeats its mistakes."""
    return f"unknown column {name!r}: {candidates_text(name, known)}"


def _is_encodable(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


# Parquet.


@contextmanager
def open_parquet(file: SourceFile) -> Iterator[pq.ParquetFile]:
    """The file, open for its metadata and row groups."""
    with open_source(file) as stream, pq.ParquetFile(stream) as parquet:
        yield parquet


def read_row_groups(split: FileSplit) -> pa.Table:
    """The split's rows as they were written."""
    with open_parquet(split.file) as parquet:
        return parquet.read_row_groups(range(split.start, split.end), use_threads=False)


def parse_parquet(table: pa.Table) -> ParsedRows:
    columns = {name: table.column(name).combine_chunks() for name in table.column_names}
    return ParsedRows(columns, np.arange(table.num_rows, dtype=np.int64), table.num_rows)


def row_json(table: pa.Table, row: int, kinds: Mapping[str, ColumnType]) -> str:
    """A row as a line of JSON, from which conversion reads the same values as from Parquet."""
    values = table.slice(row, 1)
    members = {name: _json_value(values.column(name), kinds.get(name)) for name in table.column_names}
    return json.dumps(members, default=str)


def _json_value(value: pa.ChunkedArray, kind: ColumnType | None) -> object:
    """A value as JSON of its declared type; one that cannot be converted as it is displayed."""
    if kind is None:
        return display_value(value, 0)
    typed, wrong = convert(value, kind)
    if wrong is not None:
        return display_value(value, 0)
    if kind.kind is TypeKind.TIMESTAMP and typed[0].is_valid:
        return format_instant(typed.view(pa.int64())[0].as_py())
    return typed[0].as_py()


def display_value(values: pa.Array | pa.ChunkedArray, row: int) -> object:
    """A value for display, with escapes for text that is not UTF-8."""
    if pa.types.is_string(values.type) or pa.types.is_large_string(values.type) or pa.types.is_binary(values.type):
        try:
            value = values[row].as_py()
        except UnicodeDecodeError:
            value = values.slice(row, 1).cast(pa.binary())[0].as_py()
        return value.decode("utf-8", errors="backslashreplace") if isinstance(value, bytes) else value
    if pa.types.is_timestamp(values.type):
        # Nanoseconds and years beyond Python's have no datetime.
        return values.slice(row, 1).cast(pa.string())[0].as_py()
    return values[row].as_py()
