"""Single values in the one spelling that the bucket index keeps and compares."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from errata.errors import UsageError
from errata.intake.convert import convert
from errata.model.columns import ColumnType


def as_text(column: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """A column's values as text, each value in one spelling only."""
    return column if pa.types.is_string(column.type) else pc.cast(column, pa.string())


def value_text(text: str, kind: ColumnType) -> str:
    """A value that a person wrote, in that spelling."""
    value, wrong = convert(pa.array([text], pa.string()), kind)
    if wrong is not None:
        raise UsageError(f"{text!r} is not a {kind}")
    spelt: str = as_text(value)[0].as_py()
    return spelt
