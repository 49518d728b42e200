"""Rows of an archive as CSV and JSON lines: whole Arrow columns at a time, in the spelling that Errata also reads.

NULL is empty in CSV and null in JSON, an empty string is `""`. Where a line of CSV has one column, NULL is `""`, too:
an empty line is no row to pandas, to Python's csv or to Errata. Doubles are the shortest text that reads back the same.
JSON has no numbers for NaN and infinities; they are strings there.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from errata.intake.types import arrow_type
from errata.model.stream import Stream

BatchEncoder = Callable[[pa.RecordBatch], bytes]

_TEXT_TYPE = pa.large_string()
_NEEDS_QUOTES = r'^$|^\s|\s$|[",\r\n]'
_NEEDS_ESCAPES = r'["\\\x00-\x1f]'
_ESCAPES = [("\\", "\\\\"), ('"', '\\"'), *((chr(code), json.dumps(chr(code))[1:-1]) for code in range(32))]


def csv_header(names: Sequence[str]) -> bytes:
    """The line that names the columns."""
    return (",".join(names) + "\n").encode()


def csv_lines(batch: pa.RecordBatch) -> bytes:
    """The rows, a line each unless a string has line breaks of its own."""
    null = '""' if batch.num_columns == 1 else ""
    return _join_lines([pc.fill_null(_csv_text(column), null) for column in batch.columns], ",")


def json_lines(batch: pa.RecordBatch) -> bytes:
    """The rows, an object in a line each."""
    names = [json.dumps(name, ensure_ascii=False) + ":" for name in batch.schema.names]
    values = [pc.fill_null(_json_text(column), "null") for column in batch.columns]
    members = [_concat_text(name, value) for name, value in zip(names, values, strict=True)]
    return _join_lines([_concat_text("{", members[0]), *members[1:]], ",", end="}\n")


def _csv_text(column: pa.Array) -> pa.Array:
    text = plain_text(column)
    if not _is_text(column.type) and not pa.types.is_struct(column.type):
        return text
    quoted = _concat_text('"', pc.replace_substring(text, '"', '""'), '"')
    return pc.if_else(pc.match_substring_regex(text, _NEEDS_QUOTES), quoted, text)


def _json_text(column: pa.Array) -> pa.Array:
    if pa.types.is_struct(column.type):
        return _object_text(column)
    text = plain_text(column)
    if pa.types.is_floating(column.type):
        return pc.if_else(pc.is_finite(column), text, _concat_text('"', text, '"'))
    if _is_text(column.type):
        return _concat_text('"', _escape_json(text), '"')
    if pa.types.is_temporal(column.type):
        return _concat_text('"', text, '"')
    return text


def _object_text(column: pa.StructArray) -> pa.Array:
    """Structs as objects of JSON; NULL stays NULL."""
    members = [
        _concat_text(json.dumps(field.name, ensure_ascii=False) + ":", pc.fill_null(_json_text(values), "null"))
        for field, values in zip(column.type, column.flatten(), strict=True)
    ]
    if members:
        whole = _concat_text("{", pc.binary_join_element_wise(*members, pa.scalar(",", _TEXT_TYPE)), "}")
    else:
        whole = pa.repeat(pa.scalar("{}", _TEXT_TYPE), len(column))
    return pc.if_else(column.is_valid(), whole, pa.scalar(None, _TEXT_TYPE))


def plain_text(column: pa.Array) -> pa.Array:
    """Each value's text, without quotes, and of a struct its JSON; NULL stays NULL."""
    kind = column.type
    if pa.types.is_struct(kind):
        return _object_text(column)
    if pa.types.is_timestamp(kind):
        wall = pc.cast(pc.cast(column, pa.timestamp("us")), _TEXT_TYPE)
        return pc.replace_substring(wall, " ", "T", max_replacements=1)
    if pa.types.is_decimal(kind):
        return _decimal_text(column)
    text = pc.cast(column, _TEXT_TYPE)
    if not pa.types.is_floating(kind):
        return text
    special = pc.case_when(
        pc.make_struct(pc.is_nan(column), pc.equal(column, float("inf")), pc.equal(column, -float("inf"))),
        *(pa.scalar(name, _TEXT_TYPE) for name in ("NaN", "Infinity", "-Infinity")),
        text,
    )
    return pc.if_else(pc.is_null(column), pa.scalar(None, _TEXT_TYPE), special)


def _decimal_text(column: pa.Array) -> pa.Array:
    """All digits and never an exponent, into which Arrow falls for small values."""
    scale = column.type.scale
    # The same integers read with no digits behind the point: no value is touched.
    whole = pa.Array.from_buffers(
        pa.decimal128(column.type.precision, 0), len(column), column.buffers(), offset=column.offset
    )
    digits = pc.cast(whole, _TEXT_TYPE)
    if scale == 0:
        return digits
    negative = pc.starts_with(digits, "-")
    digits = pc.ascii_lpad(pc.utf8_ltrim(digits, "-"), width=scale + 1, padding="0")
    sign = pc.if_else(negative, pa.scalar("-", _TEXT_TYPE), pa.scalar("", _TEXT_TYPE))
    front, behind = pc.utf8_slice_codeunits(digits, 0, -scale), pc.utf8_slice_codeunits(digits, -scale)
    return _concat_text(sign, front, ".", behind)


def _escape_json(text: pa.Array) -> pa.Array:
    if not pc.any(pc.match_substring_regex(text, _NEEDS_ESCAPES)).as_py():
        return text
    for mark, escape in _ESCAPES:
        text = pc.replace_substring(text, mark, escape)
    return text


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _concat_text(*parts: pa.Array | str) -> pa.Array:
    texts = [pa.scalar(part, _TEXT_TYPE) if isinstance(part, str) else part for part in parts]
    return pc.binary_join_element_wise(*texts, pa.scalar("", _TEXT_TYPE))


def _join_lines(columns: Sequence[pa.Array], between: str, end: str = "\n") -> bytes:
    """The lines of all rows as one block: the buffer in which Arrow keeps them is taken as it is."""
    if len(columns[0]) == 0:
        return b""
    rows = pc.binary_join_element_wise(*columns, pa.scalar(between, _TEXT_TYPE))
    lines = _concat_text(rows, end)
    _, offsets, data = lines.buffers()
    ends = pa.Array.from_buffers(pa.int64(), len(lines) + 1, [None, offsets], offset=lines.offset)
    return bytes(data.slice(ends[0].as_py(), ends[-1].as_py() - ends[0].as_py()).to_pybytes())


# Values of single rows in plain Python, for persons and for programs.

RowValues = Mapping[str, object]


def row_texts(stream: Stream, values: RowValues) -> dict[str, str]:
    """Each value in the spelling that Errata reads and writes everywhere; NULL by its name."""
    return {name: _value_text(stream, name, value) for name, value in values.items()}


def json_values(stream: Stream, values: RowValues) -> dict[str, object]:
    """Each value as JSON has it: what JSON has no word for as text."""
    return {
        name: value if _is_json_value(value) else _value_text(stream, name, value) for name, value in values.items()
    }


def _is_json_value(value: object) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    return value is None or isinstance(value, (bool, int, str))


def _value_text(stream: Stream, name: str, value: object) -> str:
    if value is None:
        return "NULL"
    (text,) = plain_text(pa.array([value], arrow_type(stream.column(name).type))).to_pylist()
    return str(text)


# Rows in plain Python, as programs read them, and in the words of a person: for those that are few.

JsonRow = Mapping[str, object]
"""Values by column: true, false, numbers, text and None; what JSON has no word for is text."""


def json_rows(rows: pa.Table) -> list[dict[str, object]]:
    """Each row, its values as JSON has them; rows of a table without columns are empty."""
    if not rows.num_columns:
        return [{} for _ in range(rows.num_rows)]
    columns = [_json_column(column) for column in rows.columns]
    return [dict(zip(rows.column_names, values, strict=True)) for values in zip(*columns, strict=True)]


def display_values(values: JsonRow) -> str:
    """'symbol=IBM, price=113.5'; NULL by its name."""
    return ", ".join(f"{name}={display_value(value)}" for name, value in values.items())


def display_change(was: JsonRow, now: JsonRow) -> str:
    """'price: 4 -> 9': the columns that differ, or are in one of the two only."""
    names = [name for name in dict.fromkeys([*was, *now]) if was.get(name) != now.get(name)]
    return ", ".join(f"{name}: {display_value(was.get(name))} -> {display_value(now.get(name))}" for name in names)


def display_value(value: object) -> str:
    """A value in the spelling that Errata reads and writes everywhere."""
    if value is None:
        return "NULL"
    return str(plain_text(pa.array([value]))[0])


def _json_column(column: pa.ChunkedArray) -> list[object]:
    kind = column.type
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        plain: list[object] = column.to_pylist()
        return plain
    texts = [text for chunk in column.chunks for text in plain_text(chunk).to_pylist()]
    if not pa.types.is_floating(kind):
        return texts
    # By way of its text a float has the digits that it prints with.
    return [text if text is None or text in _NON_FINITE else float(text) for text in texts]


_NON_FINITE = ("NaN", "Infinity", "-Infinity")
