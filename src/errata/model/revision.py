"""Revisions: numbered facts that reach behind the stable point, and what rows are after them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from errata.model.feed import Payload, canonical
from errata.model.stream import ARRIVAL, OnDuplicate, Stream

Key = tuple[Any, ...]
Row = dict[str, object]


class Op(StrEnum):
    """What a record of a batch, or a revision, does to the row of its key."""

    INSERT = "insert"
    REPLACE = "replace"
    DELETE = "delete"


@dataclass(frozen=True, slots=True)
class Revision:
    """A numbered fact that reaches behind the stable point."""

    number: int
    op: Op
    key: Key
    """The key of the row that it inserts, replaces or deletes; a replacement's values may change it."""
    values: Payload


@dataclass(frozen=True, slots=True)
class Corrected:
    """Rows after revisions, and the revisions that could not be applied to them."""

    rows: tuple[Row, ...]
    refused: tuple[Revision, ...]


def corrected(stream: Stream, rows: Iterable[Row], revisions: Iterable[Revision]) -> Corrected:
    """The rows after the revisions, applied by number, so that the highest number per key has the last word."""
    live = {key_of(stream, row): row for row in rows}
    refused = [
        revision
        for revision in sorted(revisions, key=lambda revision: revision.number)
        if not _apply(stream, live, revision)
    ]
    return Corrected(in_stream_order(stream, live.values()), tuple(refused))


def _apply(stream: Stream, live: dict[Key, Row], revision: Revision) -> bool:
    """Carry a revision out; False when there is no row to correct, or its key belongs to another row."""
    if revision.op is Op.INSERT:
        there = live.get(revision.key)
        if there is not None and stream.on_duplicate is OnDuplicate.QUARANTINE:
            return identical(stream, there, revision.values)
        live[revision.key] = dict(revision.values)
        return True
    if revision.key not in live:
        return False
    if revision.op is Op.DELETE:
        del live[revision.key]
        return True
    row = {**live[revision.key], **revision.values}
    key = key_of(stream, row)
    if key != revision.key and key in live:
        return False
    del live[revision.key]
    live[key] = row
    return True


def key_of(stream: Stream, row: Mapping[str, object]) -> Key:
    """The values of the key columns."""
    return tuple(canonical(row[name]) for name in stream.key)


def identical(stream: Stream, one: Mapping[str, object], other: Mapping[str, object]) -> bool:
    """Whether two rows say the same. When they arrived is not something that they say."""
    said = [name for name in stream.names if not (stream.ordered_on_arrival and name == ARRIVAL)]
    return all(canonical(one[name]) == canonical(other[name]) for name in said)


def in_stream_order(stream: Stream, rows: Iterable[Row]) -> tuple[Row, ...]:
    """The rows by order field and key, the one order of a stream that is total."""
    return tuple(sorted(rows, key=lambda row: (integer(row[stream.order]), key_of(stream, row))))


def integer(value: object) -> int:
    """A value of the order column, which to the oracle is an integer whatever its type."""
    if not isinstance(value, int):
        raise TypeError(f"the oracle's order values are integers, not {value!r}")
    return value
