"""Answers, and changes of answers, as JSON, CSV and Arrow. Rows are spelled as in every other output of Errata."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pyarrow as pa

from errata.intake.encoding import csv_header, csv_lines, json_lines
from errata.model.time import format_instant
from errata.psoup.following import Answer, AnswerChange


def event_time(now: int, *, timed: bool) -> str | int:
    """An event time as it is written."""
    return format_instant(now) if timed else now


def json_answer(answer: Answer, rows: pa.Table, more: Mapping[str, object]) -> bytes:
    """An answer's head, `more` of it, and these rows of it."""
    columns = [{"name": field.name, "type": type_name(field.type)} for field in rows.schema]
    return _json_object({**_head(answer), "columns": columns, **more}, {"rows": rows})


def json_change(change: AnswerChange) -> bytes:
    """A change: the rows added and gone; or all `rows`, which replace those that were there."""
    lists = {"rows": change.added} if change.whole else {"added": change.added, "gone": change.gone}
    return _json_object(_head(change.answer), lists)


def csv_answer(rows: pa.Table) -> bytes:
    """The rows, below a line with the columns' names."""
    return csv_header(rows.schema.names) + b"".join(csv_lines(batch) for batch in _batches(rows))


def arrow_answer(rows: pa.Table) -> bytes:
    """The rows as a stream of Arrow IPC."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    return bytes(sink.getvalue())


def type_name(kind: pa.DataType) -> str:
    """The name by which a column of this type is declared."""
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if pa.types.is_timestamp(kind):
        return "timestamp"
    return _TYPE_NAMES.get(kind, str(kind))


_TYPE_NAMES = {
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.bool_(): "boolean",
    pa.date32(): "date",
    pa.string(): "string",
    pa.large_string(): "string",
}


def _head(answer: Answer) -> dict[str, object]:
    now = event_time(answer.now, timed=answer.timed)
    return {"handle": answer.handle, "commit": answer.commit_id, "now": now}


def _json_object(head: Mapping[str, object], lists: Mapping[str, pa.Table]) -> bytes:
    text = json.dumps(dict(head), ensure_ascii=False, separators=(",", ":"))[:-1].encode()
    members = [f',"{name}":['.encode() + _json_rows(rows) + b"]" for name, rows in lists.items()]
    return text + b"".join(members) + b"}"


def _json_rows(rows: pa.Table) -> bytes:
    # Line breaks within strings are escaped, so every line break ends a row.
    blocks = [json_lines(batch).rstrip(b"\n").replace(b"\n", b",") for batch in _batches(rows)]
    return b",".join(blocks)


def _batches(rows: pa.Table) -> list[pa.RecordBatch]:
    return [batch for batch in rows.combine_chunks().to_batches() if batch.num_rows]
