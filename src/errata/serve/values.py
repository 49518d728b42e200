"""Values of single rows in plain Python, for persons and for programs."""

from __future__ import annotations

import math
from collections.abc import Mapping

import pyarrow as pa

from errata.intake.arrow_types import arrow_type
from errata.model.stream import Stream
from errata.serve.encode import plain_text

Values = Mapping[str, object]


def texts(stream: Stream, values: Values) -> dict[str, str]:
    """Each value in the spelling that Errata reads and writes everywhere; NULL by its name."""
    return {name: _text(stream, name, value) for name, value in values.items()}


def plain(stream: Stream, values: Values) -> dict[str, object]:
    """Each value as JSON has it: what JSON has no word for as text."""
    return {name: value if _in_json(value) else _text(stream, name, value) for name, value in values.items()}


def _in_json(value: object) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    return value is None or isinstance(value, (bool, int, str))


def _text(stream: Stream, name: str, value: object) -> str:
    if value is None:
        return "NULL"
    (text,) = plain_text(pa.array([value], arrow_type(stream.column(name).type))).to_pylist()
    return str(text)
