"""Records of a batch: what a source wrote, when it cannot be taken in, and what becomes of keys that are taken."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from errata.model.feed import Payload, frozen
from errata.model.revision import Key, Op, Row, identical, integer, key_of
from errata.model.stream import ARRIVAL, OnDuplicate, Stream


@dataclass(frozen=True, slots=True)
class Record:
    """A record of a batch, as its source wrote it. A batch is a sequence of these by file name and line."""

    values: Payload
    """Column values; of a replacement only those that change, and the key."""
    op: Op = Op.INSERT
    seq: int | None = None
    """The source's own numbering of its revisions, `_seq`."""
    old: Payload = field(default_factory=dict)
    """Values that the row had before, `_old_…`: of key columns where they change, of any other to be checked."""


class Duplicates:
    """What becomes of inserts whose key is taken, by a live row or by an earlier insert of the batch."""

    def __init__(self, stream: Stream, rows: Iterable[Row]) -> None:
        self._stream = stream
        self._live = {key_of(stream, row): row for row in rows}
        self.accepted: list[tuple[Op, Record]] = []
        """New rows as inserts, and replacements of live rows, in the order of the batch."""
        self.quarantined: list[tuple[Record, str]] = []
        self.dropped = 0
        self.replaced = 0

    def resolve(self, inserts: Sequence[Record]) -> Duplicates:
        if self._stream.on_duplicate is OnDuplicate.REPLACE:
            self._last_wins(inserts)
        else:
            self._first_wins(inserts)
        return self

    def _first_wins(self, inserts: Sequence[Record]) -> None:
        live: dict[Key, Payload] = dict(self._live)
        for record in inserts:
            key = key_of(self._stream, record.values)
            if key not in live:
                live[key] = record.values
                self.accepted.append((Op.INSERT, record))
            elif identical(self._stream, live[key], record.values):
                self.dropped += 1
            else:
                self.quarantined.append((record, "duplicate key"))

    def _last_wins(self, inserts: Sequence[Record]) -> None:
        last: dict[Key, Record] = {}
        for record in inserts:
            key = key_of(self._stream, record.values)
            if key in last and identical(self._stream, last[key].values, record.values):
                self.dropped += 1
                continue
            if last.pop(key, None) is not None:
                self.replaced += 1
            last[key] = record
        for key, record in last.items():
            if key not in self._live:
                self.accepted.append((Op.INSERT, record))
            elif identical(self._stream, self._live[key], record.values):
                self.dropped += 1
            else:
                self.accepted.append((Op.REPLACE, record))


def completed(stream: Stream, record: Record, now: int, stable: int | None) -> Record:
    """An insert with every column, NULL where it said nothing, and its arrival where that is the order."""
    if record.op is not Op.INSERT:
        return record
    values = {name: record.values.get(name) for name in stream.names}
    if stream.ordered_on_arrival:
        # A clock that was set back does not make what arrives now late.
        values[ARRIVAL] = max(now, now if stable is None else stable)
    return Record(values, record.op, record.seq)


def why_broken(stream: Stream, record: Record, now: int) -> str | None:
    """Why a record cannot be taken in at all; None when it can."""
    named = _naming(stream, record)
    for name in stream.key:
        if named.get(name) is None:
            return f"NULL in key column {name}"
    if record.op is Op.DELETE:
        return None
    for name in sorted(stream.required):
        if name in record.values and record.values[name] is None:
            return f"NULL in {'order' if name == stream.order else 'key'} column {name}"
    moment = record.values.get(stream.order)
    if (
        stream.timed
        and stream.max_ahead is not None
        and moment is not None
        and integer(moment) > now + stream.max_ahead
    ):
        return f"{stream.order} is more than max_ahead in the future"
    return None


def identity(stream: Stream, record: Record) -> Key:
    """The key of the row that a record speaks of: before the change, where it changes the key."""
    return key_of(stream, _naming(stream, record))


def content_id(batch: Sequence[Record]) -> str:
    """One hash of what the batch says: the id of a batch that was given none."""
    said = [(record.op.value, record.seq, frozen(record.values), frozen(record.old)) for record in batch]
    return hashlib.sha256(repr(said).encode()).hexdigest()


def seq_first(record: Record) -> tuple[bool, int]:
    """Revisions that the source numbered, by number; then the others as they stand."""
    return record.seq is None, record.seq or 0


def _naming(stream: Stream, record: Record) -> Row:
    """The values by which a record names its row: the old ones of the key before the new ones."""
    old = {name: record.old[name] for name in stream.key if record.old.get(name) is not None}
    return {**record.values, **old}
