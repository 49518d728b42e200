"""The transaction by which something becomes visible, and the loop that tries it again after a conflict.

Work is optimistic: it is decided on a state of the catalog, files are written, and a transaction then checks that the
state still holds. The transaction locks in this order, so that no two wait for each other:

    rows of streams, by id -> checks, ledger, quarantine -> the head (the commit's number) -> buckets, state

The head is locked by every commit, so what takes long stands before it. A check that fails raises a `Conflict`; nothing
of the transaction is then committed, and `optimistic` begins again. A `Transaction` states the change of one archive:
the order of its parts, the numbers of pending revisions, the inline bytes and the position are the same for every one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from sqlalchemy import Connection, Row, bindparam, insert, update

from errata.catalog import bucket_writes, commits, ledger, streams
from errata.catalog.bucket_writes import BucketAddition
from errata.catalog.tables import buckets as buckets_table
from errata.catalog.tables import streams as streams_table
from errata.errors import ErrataError
from errata.model.bucket import Bucket, Role
from errata.model.commit import Cause

if TYPE_CHECKING:
    from errata.catalog.feeds import FeedChange

MAX_TRIES = 8
"""Times that work is tried while other writers commit first. Each try after the first means that another writer got
on, so this bounds the time that one writer spends in vain."""

WAIT_SECONDS = 0.05
"""Seconds that each wait is longer than the one before; there is none after the first try."""

T = TypeVar("T")


class Conflict(Exception):
    """Another writer has changed what a decision was based on. Nothing was committed; the work may be tried again."""


class BasisConflict(Conflict):
    """Another writer moved the stream in a way that what was decided on its former state no longer holds."""


class BatchConflict(Conflict):
    """Another writer has just taken in a batch of the same id."""


class FilesConflict(Conflict):
    """Another writer has just taken in some of the files, or equal ones, in another batch."""


def optimistic(
    attempt: Callable[[int], T],
    otherwise: Callable[[], T],
    *,
    on: type[Conflict] | tuple[type[Conflict], ...] = BasisConflict,
    tries: int = MAX_TRIES,
) -> T:
    """The first result of `attempt`, which gets the number of the try from 0 on, that no conflict prevents; after the
    last try that of `otherwise`. Conflicts of other types, and errors, are raised."""
    for number in range(tries):
        try:
            return attempt(number)
        except on:
            if number + 1 < tries:
                time.sleep(WAIT_SECONDS * number)
    return otherwise()


def give_up(what: str, how: str) -> Callable[[], NoReturn]:
    """For `optimistic`: raise an error that says what other writers have done each time."""

    def fail() -> NoReturn:
        raise ErrataError(f"{MAX_TRIES} times another {what}", how=how)

    return fail


_STATE_COLUMNS = ("stable", "vs_max", "rows", "inline_bytes", "revisions", "applied", "aged_to", "folded", "changed_in")
# Built once: SQLAlchemy takes longer to build a statement than SQLite to execute it.
_UPDATE_STATE = (
    update(streams_table)
    .where(streams_table.c.stream_id == bindparam("stream"))
    .values({name: bindparam(f"new_{name}") for name in _STATE_COLUMNS})
)
_INSERT_STREAM = insert(streams_table).returning(*streams_table.c)


@dataclass(frozen=True, slots=True)
class NewArchive:
    """An archive that begins with a commit."""

    name: str
    query_id: int | None = None
    """Of results: the form of the query."""


@dataclass(frozen=True, slots=True)
class Committed:
    """What a transaction has done."""

    commit_id: int
    archive: Mapping[str, Any]
    """The archive's row as it now is; empty when the commit has changed none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Transaction:
    """The change that one commit makes to at most one archive. The caller has locked the archive's row, has checked
    that what it decided still holds, and has written the rows of ledger and quarantine."""

    cause: Cause
    summary: Mapping[str, object]
    archive: Row[Any] | NewArchive | None = None
    """The locked row of the stream or of the results; None when the commit concerns none, or several."""
    batch_id: str | None = None
    """The batch that the commit is about."""
    batch_no: int | None = None
    """The entry of the ledger that the commit completes."""
    ends: Sequence[int] = ()
    """Archives that end with the commit."""
    removes: Sequence[Bucket] = ()
    """Buckets that become invisible. All of them must be visible until then."""
    deletes: Sequence[Bucket] = ()
    """Buckets that no reader of an older commit needs."""
    adds: Sequence[BucketAddition] = ()
    masks: Mapping[int, int] = field(default_factory=dict)
    """How many more rows of which bucket are superseded."""
    state: Mapping[str, int | None] | None = None
    """New values of the archive's columns. `inline_bytes`, `revisions` and `changed_in` follow from the rest if left
    out. None: the archive stays as it is, and gets no new position."""
    feeds: FeedChange | None = None
    """What changes of the stream's feeds, and of what they disagree about."""

    is_listed: bool = True
    """Whether the log lists the commit under the archive. Evaluations are listed under the query's name instead."""

    def commit(self, connection: Connection, now: int) -> int:
        """Carry the change out, and return the commit's number. The head is locked from here until the database's
        transaction ends."""
        return self.commit_archive(connection, now).commit_id

    def commit_archive(self, connection: Connection, now: int) -> Committed:
        """The same, for callers that go on with the archive's new values."""
        known = self.archive if isinstance(self.archive, Row) else None
        commit_id = commits.record_commit(
            connection,
            now,
            self.cause,
            stream_id=known.stream_id if known is not None and self.is_listed else None,
            batch_id=self.batch_id,
            summary=self.summary,
        )
        if self.batch_no is not None:
            ledger.set_batch_commit(connection, self.batch_no, commit_id)
        for ended in self.ends:
            end_archive(connection, ended, commit_id)
        row = open_archive(connection, self.archive, commit_id) if isinstance(self.archive, NewArchive) else known
        if row is None:
            return Committed(commit_id, {})
        return Committed(commit_id, self._change_archive(connection, row, commit_id))

    def _change_archive(self, connection: Connection, row: Row[Any], commit_id: int) -> Mapping[str, Any]:
        """Change the index, and then what follows from it; the archive's new values."""
        removed = bucket_writes.remove_buckets(connection, [each.bucket_id for each in self.removes], commit_id)
        if removed != len(self.removes):
            raise BasisConflict
        bucket_writes.delete_buckets(connection, self.deletes)
        inline = row.inline_bytes - sum(each.size for each in (*self.removes, *self.deletes) if each.inline)
        # Copies and summaries are of base buckets only; most commits remove none of those.
        if base := [each.bucket_id for each in self.removes if each.role is Role.BASE]:
            inline -= bucket_writes.remove_reduced(connection, base, commit_id)
        revisions = row.revisions
        for addition in self.adds:
            if not bucket_writes.are_visible(connection, {*addition.originals}):
                raise BasisConflict
            inline += bucket_writes.add_buckets(
                connection, row.stream_id, commit_id, addition, revisions=revisions, applied=row.applied
            )
            revisions += addition.pending
        bucket_writes.count_masked(connection, self.masks)
        if self.feeds is not None:
            self.feeds.record(connection, row.stream_id, commit_id)
        if self.state is None:
            return {}
        follows = {"inline_bytes": inline, "revisions": revisions, "changed_in": commit_id}
        values: dict[str, Any] = {**row._asdict(), **follows, **self.state}
        new = {f"new_{name}": values[name] for name in _STATE_COLUMNS}
        connection.execute(_UPDATE_STATE, {"stream": row.stream_id} | new)
        if row.removed_in is None and row.stream_id not in self.ends:
            streams.record_position(connection, row.stream_id, commit_id)
        return values


def lock_basis(connection: Connection, stream_id: int) -> Row[Any]:
    """The row of a stream or of results, locked until the transaction ends; a conflict when it has ended."""
    row = streams.lock_stream(connection, stream_id)
    if row.removed_in is not None:
        raise BasisConflict
    return row


def open_archive(connection: Connection, archive: NewArchive, commit_id: int) -> Row[Any]:
    """Insert the row of an archive that begins, empty, with a commit."""
    empty = dict.fromkeys(("rows", "inline_bytes", "revisions", "applied", "folded"), 0)
    values = {"name": archive.name, "query_id": archive.query_id, "added_in": commit_id, "changed_in": commit_id}
    return connection.execute(_INSERT_STREAM, values | empty).one()


def end_archive(connection: Connection, stream_id: int, commit_id: int) -> None:
    """End an archive with a commit: older commits go on seeing it."""
    for table in (streams_table, buckets_table):
        gone = update(table).where(table.c.stream_id == stream_id, table.c.removed_in.is_(None))
        connection.execute(gone.values(removed_in=commit_id))
