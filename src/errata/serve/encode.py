"""Rows of an archive as CSV and JSON lines: whole Arrow columns at a time, in the spelling that Errata also reads.

NULL is empty in CSV and null in JSON, an empty string is `""`. Where a line of CSV has one column, NULL is `""`, too:
an empty line is no row to pandas, to Python's csv or to Errata. Doubles are the shortest text that reads back the same.
JSON has no numbers for NaN and infinities; they are strings there.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

import pyarrow as pa
import pyarrow.compute as pc

Encoder = Callable[[pa.RecordBatch], bytes]

_TEXT = pa.large_string()
_NEEDS_QUOTES = r'^$|^\s|\s$|[",\r\n]'
_NEEDS_ESCAPES = r'["\\\x00-\x1f]'
_ESCAPES = [("\\", "\\\\"), ('"', '\\"'), *((chr(code), json.dumps(chr(code))[1:-1]) for code in range(32))]


def csv_header(names: Sequence[str]) -> bytes:
    """The line that names the columns."""
    return (",".join(names) + "\n").encode()


def csv_lines(batch: pa.RecordBatch) -> bytes:
    """The rows, a line each unless a string has line breaks of its own."""
    null = '""' if batch.num_columns == 1 else ""
    return _joined([pc.fill_null(_csv_text(column), null) for column in batch.columns], ",")


def json_lines(batch: pa.RecordBatch) -> bytes:
    """The rows, an object in a line each."""
    names = [json.dumps(name, ensure_ascii=False) + ":" for name in batch.schema.names]
    values = [pc.fill_null(_json_text(column), "null") for column in batch.columns]
    members = [_beside(name, value) for name, value in zip(names, values, strict=True)]
    return _joined([_beside("{", members[0]), *members[1:]], ",", end="}\n")


def _csv_text(column: pa.Array) -> pa.Array:
    text = plain_text(column)
    if not _textual(column.type) and not pa.types.is_struct(column.type):
        return text
    quoted = _beside('"', pc.replace_substring(text, '"', '""'), '"')
    return pc.if_else(pc.match_substring_regex(text, _NEEDS_QUOTES), quoted, text)


def _json_text(column: pa.Array) -> pa.Array:
    if pa.types.is_struct(column.type):
        return _object_text(column)
    text = plain_text(column)
    if pa.types.is_floating(column.type):
        return pc.if_else(pc.is_finite(column), text, _beside('"', text, '"'))
    if _textual(column.type):
        return _beside('"', _escaped(text), '"')
    if pa.types.is_temporal(column.type):
        return _beside('"', text, '"')
    return text


def _object_text(column: pa.StructArray) -> pa.Array:
    """Structs as objects of JSON; NULL stays NULL."""
    members = [
        _beside(json.dumps(field.name, ensure_ascii=False) + ":", pc.fill_null(_json_text(values), "null"))
        for field, values in zip(column.type, column.flatten(), strict=True)
    ]
    if members:
        whole = _beside("{", pc.binary_join_element_wise(*members, pa.scalar(",", _TEXT)), "}")
    else:
        whole = pa.repeat(pa.scalar("{}", _TEXT), len(column))
    return pc.if_else(column.is_valid(), whole, pa.scalar(None, _TEXT))


def plain_text(column: pa.Array) -> pa.Array:
    """Each value's text, without quotes, and of a struct its JSON; NULL stays NULL."""
    kind = column.type
    if pa.types.is_struct(kind):
        return _object_text(column)
    if pa.types.is_timestamp(kind):
        wall = pc.cast(pc.cast(column, pa.timestamp("us")), _TEXT)
        return pc.replace_substring(wall, " ", "T", max_replacements=1)
    if pa.types.is_decimal(kind):
        return _decimal_text(column)
    text = pc.cast(column, _TEXT)
    if not pa.types.is_floating(kind):
        return text
    special = pc.case_when(
        pc.make_struct(pc.is_nan(column), pc.equal(column, float("inf")), pc.equal(column, -float("inf"))),
        *(pa.scalar(name, _TEXT) for name in ("NaN", "Infinity", "-Infinity")),
        text,
    )
    return pc.if_else(pc.is_null(column), pa.scalar(None, _TEXT), special)


def _decimal_text(column: pa.Array) -> pa.Array:
    """All digits and never an exponent, into which Arrow falls for small values."""
    scale = column.type.scale
    # The same integers read with no digits behind the point: no value is touched.
    whole = pa.Array.from_buffers(
        pa.decimal128(column.type.precision, 0), len(column), column.buffers(), offset=column.offset
    )
    digits = pc.cast(whole, _TEXT)
    if scale == 0:
        return digits
    negative = pc.starts_with(digits, "-")
    digits = pc.ascii_lpad(pc.utf8_ltrim(digits, "-"), width=scale + 1, padding="0")
    sign = pc.if_else(negative, pa.scalar("-", _TEXT), pa.scalar("", _TEXT))
    front, behind = pc.utf8_slice_codeunits(digits, 0, -scale), pc.utf8_slice_codeunits(digits, -scale)
    return _beside(sign, front, ".", behind)


def _escaped(text: pa.Array) -> pa.Array:
    if not pc.any(pc.match_substring_regex(text, _NEEDS_ESCAPES)).as_py():
        return text
    for mark, escape in _ESCAPES:
        text = pc.replace_substring(text, mark, escape)
    return text


def _textual(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _beside(*parts: pa.Array | str) -> pa.Array:
    texts = [pa.scalar(part, _TEXT) if isinstance(part, str) else part for part in parts]
    return pc.binary_join_element_wise(*texts, pa.scalar("", _TEXT))


def _joined(columns: Sequence[pa.Array], between: str, end: str = "\n") -> bytes:
    """The lines of all rows as one block: the buffer in which Arrow keeps them is taken as it is."""
    if len(columns[0]) == 0:
        return b""
    rows = pc.binary_join_element_wise(*columns, pa.scalar(between, _TEXT))
    lines = _beside(rows, end)
    _, offsets, data = lines.buffers()
    ends = pa.Array.from_buffers(pa.int64(), len(lines) + 1, [None, offsets], offset=lines.offset)
    return bytes(data.slice(ends[0].as_py(), ends[-1].as_py() - ends[0].as_py()).to_pybytes())
