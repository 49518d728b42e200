"""What the tasks of a job report to the process that started it: written buckets, and whatever else they say.

A bucket crosses the boundary as one row of `BUCKET_ROW_SCHEMA`, a column for each figure that the index keeps, so that
nothing of its description is lost on the way. Jobs that report more than buckets use `report_schema`: the same row with
the kind of the report and the number of the slot or run that it is of; a report without a bucket leaves the bucket's
columns NULL, but for `rows`, `size`, `path` and `data`, which it may use.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any

import pyarrow as pa

from errata.model.bucket import Groups, Layout, NewBucket, Resolution, Role
from errata.model.time import Interval

_TEXTS = ("role", "path", "checksum", "layout", "low", "high", "members")
_NUMBERS = ("rows", "size", "vs_min", "vs_max", "floor", "folded", "masked")
_BOUNDS = ("revisions", "masks", "content", "ends")
"""Pairs of numbers, each in two columns; both are NULL where the bucket has none."""

BUCKET_ROW_SCHEMA = pa.schema(
    [
        *(pa.field(name, pa.string()) for name in _TEXTS),
        *(pa.field(name, pa.int64()) for name in _NUMBERS),
        *(pa.field(f"{name}_{end}", pa.int64()) for name in _BOUNDS for end in ("first", "last")),
        *(
            pa.field(name, kind)
            for name, kind in (("rate", pa.float64()), ("hash_low", pa.int64()), ("hash_high", pa.int64()))
        ),
        pa.field("data", pa.binary()),
        pa.field("reduced", pa.binary()),
    ]
)


def bucket_to_row(bucket: NewBucket) -> dict[str, object]:
    """A written bucket as a row of `BUCKET_ROW_SCHEMA`."""
    groups = bucket.groups
    row: dict[str, object] = {"role": bucket.role.value, "layout": bucket.layout.value, "data": bucket.data}
    row |= {"path": bucket.path, "checksum": bucket.checksum}
    row |= {"low": groups.low, "high": groups.high, "members": groups.members_json()}
    row |= {name: getattr(bucket, name) for name in _NUMBERS}
    hashes = bucket.resolution.hashes
    row |= {"rate": bucket.resolution.rate, "hash_low": hashes.start, "hash_high": hashes.end}
    if bucket.reduced:
        row["reduced"] = _pack_reduced(bucket.reduced)
    for name in _BOUNDS:
        row[f"{name}_first"], row[f"{name}_last"] = getattr(bucket, name) or (None, None)
    return row


def bucket_from_row(row: Mapping[str, Any]) -> NewBucket:
    """The bucket of a row of `BUCKET_ROW_SCHEMA`; further columns are ignored."""
    bounds: dict[str, Any] = {
        name: None if row[f"{name}_first"] is None else (row[f"{name}_first"], row[f"{name}_last"]) for name in _BOUNDS
    }
    return NewBucket(
        role=Role(row["role"]),
        groups=Groups.of(row["low"], row["high"], row["members"]),
        checksum=row["checksum"],
        path=row["path"],
        data=row["data"],
        layout=Layout(row["layout"]),
        resolution=Resolution(row["rate"], Interval(row["hash_low"], row["hash_high"])),
        reduced=_unpack_reduced(row.get("reduced")),
        **{name: row[name] for name in _NUMBERS},
        **bounds,
    )


def _pack_reduced(reduced: Sequence[NewBucket]) -> bytes:
    """Copies and summaries of a bucket as an Arrow stream of such rows."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, BUCKET_ROW_SCHEMA) as stream:
        for batch in bucket_batches(reduced):
            stream.write_batch(batch)
    packed: bytes = sink.getvalue().to_pybytes()
    return packed


def _unpack_reduced(packed: bytes | None) -> tuple[NewBucket, ...]:
    if packed is None:
        return ()
    with pa.ipc.open_stream(packed) as stream:
        return tuple(map(bucket_from_row, stream.read_all().to_pylist()))


def bucket_batches(written: Iterable[NewBucket]) -> list[pa.RecordBatch]:
    """Written buckets as record batches of `BUCKET_ROW_SCHEMA`."""
    batches: list[pa.RecordBatch] = pa.Table.from_pylist(
        list(map(bucket_to_row, written)), BUCKET_ROW_SCHEMA
    ).to_batches()
    return batches


class ReportKind(StrEnum):
    """What an aside (see `ingest.stages`) or a row of a task's report is about."""

    LINES = "lines"
    """How many lines and records a split had."""
    PENDING = "pending"
    """Pending revisions: as an aside their rows, in a report a bucket of them."""
    REPLACING = "replacing"
    """Rows that replace rows of the archive."""
    BAD = "bad"
    """Rows for quarantine."""
    BASE = "base"
    """A bucket of rows."""
    COUNT = "count"
    """Counts of rows."""
    MERGED = "merged"
    """What a part of a merge has found besides rows."""
    FAILED = "failed"
    """The error because of which a task gave up."""


def report_schema() -> pa.Schema:
    """One row of a task's report."""
    return pa.schema([pa.field("said", pa.string()), pa.field("slot", pa.int64()), *BUCKET_ROW_SCHEMA])


def report_row(kind: ReportKind, **values: Any) -> pa.RecordBatch:
    """A row of a report with these columns; the others are NULL."""
    return pa.RecordBatch.from_pylist([{"said": kind.value, **values}], schema=report_schema())


def bucket_report(slot: int, bucket: NewBucket) -> pa.RecordBatch:
    """The report of a written bucket of rows or of pending revisions."""
    kind = ReportKind.BASE if bucket.role is Role.BASE else ReportKind.PENDING
    return pa.RecordBatch.from_pylist(
        [{"said": kind.value, "slot": slot, **bucket_to_row(bucket)}], schema=report_schema()
    )
