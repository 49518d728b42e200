"""The oracle of an archive: slow, kept in lists, and meant to be believed by reading.

Tests compare every fast path with it. It says what an append, a scan, ageing and corrections mean; how they are done
well is the business of other rooms. Values of the order column are plain integers here.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

from errata.errors import Refused
from errata.model.batch import Counts
from errata.model.feed import Payload, frozen
from errata.model.interval import Interval
from errata.model.revision import Key, Op, Revision, Row, corrected, identical, in_stream_order, integer, key_of
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
    """Values of key columns before the replacement, `_old_…`, where it changes them."""


@dataclass(frozen=True, slots=True)
class Taken:
    """What came of an append."""

    commit: int
    counts: Counts
    quarantined: tuple[tuple[Record, str], ...]
    """The records that did not go in, with the reason."""


@dataclass(frozen=True, slots=True)
class State:
    """Everything that was known of the stream at one commit."""

    rows: tuple[Row, ...] = ()
    pending: tuple[Revision, ...] = ()
    stable: int | None = None
    revisions: int = 0
    """How many revisions have been numbered."""


class History:
    """An archive of one stream: a list of states, one per commit, none of which ever changes."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self.states = [State()]
        self._taken: dict[str, tuple[str, Taken]] = {}

    @property
    def commit(self) -> int:
        """The number of the newest commit; 0 before the first."""
        return len(self.states) - 1

    def append(self, batch: Sequence[Record], now: int, batch_id: str | None = None) -> Taken:
        """Take a batch in, as one commit; the same batch id again changes nothing."""
        content = content_id(batch)
        batch_id = batch_id or content
        if batch_id in self._taken:
            return self._again(batch_id, content)
        before = self.states[-1]
        sound, broken = self._checked(batch, now)
        inserts = [record for record in sound if record.op is Op.INSERT]
        late = [(Op.INSERT, record) for record in inserts if self._late(record)]
        fresh = Duplicates(self.stream, before.rows).resolve([each for each in inserts if not self._late(each)])
        late += [(op, record) for op, record in fresh.accepted if op is Op.REPLACE]
        on_time = [dict(record.values) for op, record in fresh.accepted if op is Op.INSERT]
        changes = sorted((record for record in sound if record.op is not Op.INSERT), key=_seq_first)
        pending = self._numbered([*late, *((record.op, record) for record in changes)])
        self.states.append(
            State(
                rows=in_stream_order(self.stream, (*before.rows, *on_time)),
                pending=(*before.pending, *pending),
                stable=self._advanced(on_time),
                revisions=before.revisions + len(pending),
            )
        )
        quarantined = (*broken, *fresh.quarantined)
        counts = Counts(len(batch), len(on_time), len(pending), fresh.dropped, fresh.replaced, len(quarantined))
        taken = Taken(self.commit, counts, quarantined)
        self._taken[batch_id] = content, taken
        return taken

    def scan(
        self,
        interval: Interval | None = None,
        groups: Collection[Key] | None = None,
        commit: int | None = None,
        revisions_up_to: int = 0,
    ) -> list[Row]:
        """The rows of the interval and groups as known at the commit, corrected by the revisions up to a number."""
        state = self._state(commit)
        revisions = [revision for revision in state.pending if revision.number <= revisions_up_to]
        interval = interval or Interval()
        return [
            dict(row)
            for row in corrected(self.stream, state.rows, revisions).rows
            if integer(row[self.stream.order]) in interval
            and (groups is None or tuple(row[name] for name in self.stream.group) in groups)
        ]

    def pending(self, commit: int | None = None) -> list[Revision]:
        """The revisions that were waiting to be applied, by number."""
        return list(self._state(commit).pending)

    def stable(self, commit: int | None = None) -> int | None:
        """The stable point as of the commit; None while there is no row."""
        return self._state(commit).stable

    def age_out(self, buckets: Iterable[Collection[Key]]) -> int:
        """Drop whole buckets, each given as the keys of its rows, as one commit. Stable stays where it is."""
        before = self.states[-1]
        gone = {key for bucket in buckets for key in bucket}
        if missing := gone - {key_of(self.stream, row) for row in before.rows}:
            raise Refused(f"no rows of these keys to age out: {sorted(missing, key=repr)}")
        rows = tuple(row for row in before.rows if key_of(self.stream, row) not in gone)
        self.states.append(State(rows, before.pending, before.stable, before.revisions))
        return self.commit

    def _state(self, commit: int | None) -> State:
        if commit is None:
            return self.states[-1]
        if not 0 <= commit <= self.commit:
            raise Refused(f"there is no commit {commit}", how=f"the newest is {self.commit}")
        return self.states[commit]

    def _again(self, batch_id: str, content: str) -> Taken:
        before, taken = self._taken[batch_id]
        if before != content:
            raise Refused(
                f"batch {batch_id} was taken in before with other content", how="give the new content another batch id"
            )
        return taken

    def _checked(self, batch: Sequence[Record], now: int) -> tuple[list[Record], list[tuple[Record, str]]]:
        """The records that keep the declaration, inserts completed; and those that do not, as written."""
        sound, broken = [], []
        for record in batch:
            completed = self._completed(record, now)
            if reason := why_broken(self.stream, completed, now):
                broken.append((record, reason))
            else:
                sound.append(completed)
        return sound, broken

    def _completed(self, record: Record, now: int) -> Record:
        """An insert with every column, NULL where it said nothing, and its arrival where that is the order."""
        if record.op is not Op.INSERT:
            return record
        values = {name: record.values.get(name) for name in self.stream.names}
        if self.stream.ordered_on_arrival:
            # A clock that was set back does not make what arrives now late.
            values[ARRIVAL] = max(now, self.stable() or now)
        return Record(values, record.op, record.seq)

    def _late(self, record: Record) -> bool:
        stable = self.stable()
        return stable is not None and integer(record.values[self.stream.order]) < stable

    def _numbered(self, changes: Iterable[tuple[Op, Record]]) -> list[Revision]:
        first = self.states[-1].revisions + 1
        return [
            Revision(number, op, identity(self.stream, record), record.values)
            for number, (op, record) in enumerate(changes, start=first)
        ]

    def _advanced(self, on_time: Sequence[Row]) -> int | None:
        """The stable point after a batch: it is moved only by rows that went into the archive, and never back."""
        moments = [integer(row[self.stream.order]) - self.stream.slack for row in on_time]
        if (stable := self.stable()) is not None:
            moments.append(stable)
        return max(moments, default=None)


class Duplicates:
    """What becomes of inserts whose key is taken, by a row of the archive or by an earlier insert of the batch."""

    def __init__(self, stream: Stream, rows: Iterable[Row]) -> None:
        self._stream = stream
        self._archived = {key_of(stream, row): row for row in rows}
        self.accepted: list[tuple[Op, Record]] = []
        """New rows as inserts, and replacements of archived rows, in the order of the batch."""
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
        live: dict[Key, Payload] = dict(self._archived)
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
            if key not in self._archived:
                self.accepted.append((Op.INSERT, record))
            elif identical(self._stream, self._archived[key], record.values):
                self.dropped += 1
            else:
                self.accepted.append((Op.REPLACE, record))


def why_broken(stream: Stream, record: Record, now: int) -> str | None:
    """Why a record cannot be taken in at all; None when it can."""
    named = {**record.values, **record.old}
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
    return key_of(stream, {**record.values, **record.old})


def content_id(batch: Sequence[Record]) -> str:
    """One hash of what the batch says: the id of a batch that was given none."""
    said = [(record.op.value, record.seq, frozen(record.values), frozen(record.old)) for record in batch]
    return hashlib.sha256(repr(said).encode()).hexdigest()


def _seq_first(record: Record) -> tuple[bool, int]:
    """Revisions that the source numbered, by number; then the others as they stand."""
    return record.seq is None, record.seq or 0
