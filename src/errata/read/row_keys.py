"""Keys of rows as a person names them: text by column, read as the columns' types."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from errata.errors import UsageError, unknown_name_error
from errata.intake.convert import convert
from errata.intake.encoding import row_texts
from errata.model.stream import Stream


def key_table(stream: Stream, key: Mapping[str, str]) -> pa.Table:
    """The key as a table of one row."""
    for name in key:
        if name not in stream.key:
            raise unknown_name_error("key column", name, stream.key, where=f"stream {stream.name}")
    missing = [name for name in stream.key if name not in key]
    if missing:
        raise UsageError(
            f"the key says nothing of {', '.join(missing)}",
            where=f"stream {stream.name}",
            how=f"name a value for each of {', '.join(stream.key)}",
        )
    columns = {}
    for name in stream.key:
        kind = stream.column(name).type
        columns[name], wrong = convert(pa.array([key[name]], pa.string()), kind)
        if wrong is not None or columns[name].null_count:
            raise UsageError(f"{name}={key[name]}: {key[name]!r} is not a {kind}", where=f"stream {stream.name}")
    return pa.table(columns)


def key_texts(stream: Stream, row: Mapping[str, object]) -> dict[str, str]:
    """The key of a row as text by column, in the order of the declaration: disagreements of feeds are found by it."""
    texts = row_texts(stream, {name: row.get(name) for name in stream.names})
    return {name: texts[name] for name in stream.key}
