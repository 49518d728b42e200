"""Rows in plain Python, as programs read them, and in the words of a person: for those that are few."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from errata.serve.encode import plain_text

Said = Mapping[str, object]
"""Values by column: true, false, numbers, text and None; what JSON has no word for is text."""


def said_rows(rows: pa.Table) -> list[dict[str, object]]:
    """Each row, its values as JSON has them."""
    columns = [_said(column) for column in rows.columns]
    return [dict(zip(rows.column_names, values, strict=True)) for values in zip(*columns, strict=True)]


def in_words(values: Said) -> str:
    """'symbol=IBM, price=113.5'; NULL by its name."""
    return ", ".join(f"{name}={word(value)}" for name, value in values.items())


def change_in_words(was: Said, now: Said) -> str:
    """'price: 4 -> 9': the columns that differ, or are in one of the two only."""
    names = [name for name in dict.fromkeys([*was, *now]) if was.get(name) != now.get(name)]
    return ", ".join(f"{name}: {word(was.get(name))} -> {word(now.get(name))}" for name in names)


def word(value: object) -> str:
    """A value in the spelling that Errata reads and writes everywhere."""
    if value is None:
        return "NULL"
    return str(plain_text(pa.array([value]))[0])


def _said(column: pa.ChunkedArray) -> list[object]:
    kind = column.type
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        plain: list[object] = column.to_pylist()
        return plain
    texts = [text for chunk in column.chunks for text in plain_text(chunk).to_pylist()]
    if not pa.types.is_floating(kind):
        return texts
    # By way of its text a float has the digits that it prints with.
    return [text if text is None or text in _NO_NUMBERS else float(text) for text in texts]


_NO_NUMBERS = ("NaN", "Infinity", "-Infinity")
