"""Batches of source files: their splits, counts and ids; operations of revisions, and reasons for refusing them.

A batch is taken in once, known by its id. A row's stored position is the number of the split that it was read from and
its ordinal in the split: the ledger turns it back into a file and a line.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, field
from enum import StrEnum
from typing import Protocol

from errata.errors import UsageError
from errata.model.bucket import NewBucket, Role


class Op(StrEnum):
    """What a record of a batch, or a revision, does to the row with its key."""

    INSERT = "insert"
    REPLACE = "replace"
    DELETE = "delete"


def no_such_row_reason() -> str:
    return "no such row: no row of this key is there to correct"


def aged_out_reason() -> str:
    return "aged out: the stream no longer keeps rows as old as this one"


def old_value_reason(column: str, claimed: str, found: str) -> str:
    return f"old value does not match: {column} is said to have been {claimed}, and it is {found}"


def key_taken_reason() -> str:
    return "key belongs to another row: the row cannot take a key that another one has"


def duplicate_key_reason() -> str:
    return "duplicate key: the archive has a row of this key that says something else"


MAX_BATCH_ID = 200
"""Characters of a batch id at most: the width of its column in the catalog."""


class FileFormat(StrEnum):
    """The formats of files that can be taken in."""

    CSV = "csv"
    JSON = "json"
    PARQUET = "parquet"


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file of a batch as it was read."""

    name: str
    """Its path or URI."""
    format: FileFormat
    gzip: bool
    bytes: int
    sha256: str
    changed: int = 0
    """The modification time in microseconds when it was read, by which a change during the read is noticed."""
    header: str | None = None
    """The first line of a CSV file, once it has been opened."""
    feed: str | None = None
    """The feed that delivered it, of a stream with feeds."""


@dataclass(frozen=True, slots=True)
class FileSplit:
    """A piece of a file that one task reads: bytes of CSV and JSON, row groups of Parquet."""

    number: int
    """Its number among the batch's splits, in file order; with a row's ordinal it is the row's position."""
    file: SourceFile
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class ReadSplit:
    """The lines of a split, known once it has been read."""

    split: FileSplit
    first_line: int
    """The line of the split's first record in the file; for Parquet the number of the row, from 1."""
    lines: int


@dataclass(frozen=True, slots=True)
class BadRow:
    """A row that could not be taken in: its place, its text and the reason."""

    file: str
    line: int
    text: str
    reason: str
    source: str | None = None
    """The file of the batch that it was read from, if that is not its original file."""


@dataclass(frozen=True, slots=True)
class QuarantineRetry:
    """Rows of quarantine that a batch takes in again."""

    ids: Sequence[int]
    places: Mapping[str, Sequence[tuple[str, int]]]
    """For each file of the batch, by its name without folders, the original places of its rows, from line 2 on."""

    def first_place(self, file: str, line: int) -> tuple[str, int]:
        return self.places[file.rpartition("/")[2]][line - 2]


@dataclass(frozen=True, slots=True)
class BadRevision:
    """A revision that was found wrong when it was to be applied."""

    batch_no: int
    revision: int
    file: str
    line: int
    text: str
    """The revision as an object of a JSON-lines file, which can be taken in again."""
    reason: str


@dataclass(frozen=True, slots=True)
class BatchCounts:
    """How many rows of a batch had which outcome; together they are `read`."""

    read: int = 0
    appended: int = 0
    pending: int = 0
    dropped: int = 0
    """Identical to a row in the archive."""
    replaced: int = 0
    """Overwritten by a later row of the same key in the same batch, or overruled by what another feed says."""
    quarantined: int = 0
    held: int = 0
    """Of a stream with feeds: statements that the merge remembers and has not passed on; negative if it has passed on
    more than the batch said."""

    @property
    def settled(self) -> int:
        """How many rows have an outcome."""
        return self.appended + self.pending + self.dropped + self.replaced + self.quarantined + self.held


@dataclass(frozen=True, slots=True)
class RevisionCounts:
    """How many claimed revisions had which outcome; together they are the claim."""

    inserted: int = 0
    replaced: int = 0
    deleted: int = 0
    dropped: int = 0
    """They would change nothing."""
    refused: int = 0
    """Found wrong, and in quarantine."""
    waiting: int = 0
    """They concern rows that may still come, and are numbered anew."""
    ignored: int = 0
    """Their stream ignores revisions."""

    @property
    def applied(self) -> int:
        return self.inserted + self.replaced + self.deleted

    def __add__(self, other: RevisionCounts) -> RevisionCounts:
        return RevisionCounts(*(one + two for one, two in zip(astuple(self), astuple(other), strict=True)))


POSITION_BITS = 40
"""Bits of the ordinal in a position: up to about 10^12 records in one split, and 8 million splits in a batch."""


def row_position(split: int, ordinal: int) -> int:
    """The position of a row in its batch, from the number of the split and the ordinal in it."""
    return split << POSITION_BITS | ordinal


def split_and_ordinal(position: int) -> tuple[int, int]:
    """The number of the split and the ordinal in it, from a position."""
    return position >> POSITION_BITS, position & ((1 << POSITION_BITS) - 1)


class FileVersion(Protocol):
    """A file at the time of a look at it."""

    @property
    def name(self) -> str: ...
    @property
    def bytes(self) -> int: ...
    @property
    def sha256(self) -> str: ...
    @property
    def changed(self) -> int | None: ...


@dataclass(frozen=True, slots=True)
class Delivery:
    """A file of a batch in the ledger."""

    batch_no: int
    batch_id: str
    commit_id: int
    name: str
    bytes: int
    sha256: str
    changed: int | None
    """None: it was taken in before modification times were recorded."""
    undone_in: int | None = None
    """The commit in which its batch was undone, if the undo stands."""
    feed: str | None = None

    def is_of(self, file: SourceFile, landing: str | None = None, put_away: str | None = None) -> bool:
        """Whether the file is the one that was delivered, and not another one with the same content.

        A named file is identified by name and content; a landed one also by its modification time, and by its name
        within the folder `landing`, so that a project can be moved together with its landed files. A named file in the
        folder `put_away` is the landed file that was moved there.
        """
        if self.sha256 != file.sha256 or self.feed != file.feed:
            return False
        unchanged = self.changed in (None, file.changed)
        if landing is not None:
            within = file.name.removeprefix(landing.rstrip("/"))
            return unchanged and (self.name == file.name or self.name.endswith(within))
        if put_away is not None and file.name.startswith(f"{put_away}/"):
            landed, now = (name.rpartition("/")[2] for name in (self.name, file.name))
            told_apart = now.startswith(file.sha256[:12]) and now.endswith(f"-{landed}")
            return unchanged and (now == landed or told_apart)
        return self.name == file.name


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch on its way: first its files and the id that they make; once it is written also its buckets and counts,
    which wait to become visible."""

    batch_id: str
    content_hash: str
    files: Sequence[SourceFile] = ()
    splits: Sequence[ReadSplit] = ()
    counts: BatchCounts = field(default_factory=BatchCounts)
    buckets: Sequence[NewBucket] = ()
    bad: Iterable[BadRow] = ()
    """The rows for quarantine."""
    guarded: frozenset[str] = frozenset()
    """Hashes of contents that no batch may have brought besides those in `earlier`."""
    earlier: Sequence[Delivery] = ()
    """The deliveries with one of its contents when its files were chosen."""
    again_of: int | None = None
    """The batch of which it is another take."""
    undoes: int | None = None
    """The batch that it undoes."""
    default_op: Op = Op.INSERT
    """The operation of its rows that have none of their own."""
    retried: Sequence[int] = ()
    """The rows of quarantine that it takes in again."""
    released: Sequence[tuple[int, NewBucket]] = ()
    """Of a stream with feeds: buckets of rows that an earlier batch said, with the number of that batch."""

    @property
    def all_buckets(self) -> list[NewBucket]:
        return [*self.buckets, *(bucket for _, bucket in self.released)]

    @property
    def on_time(self) -> tuple[int, int] | None:
        """The least and greatest order field of the rows that were on time; None when none was."""
        base = [bucket for bucket in self.all_buckets if bucket.role is Role.BASE]
        return (min(each.vs_min for each in base), max(each.vs_max for each in base)) if base else None


def content_hash(files: Iterable[SourceFile]) -> str:
    """A hash of the contents of all files, independent of their names and order."""
    digest = hashlib.sha256()
    for sha in sorted(file.sha256 for file in files):
        digest.update(bytes.fromhex(sha))
    return digest.hexdigest()


def delivery_hash(files: Iterable[SourceFile], *, landed: bool) -> str:
    """A hash of names and contents, and of the modification times of landed files: the id of a delivery without one."""
    digest = hashlib.sha256()
    for file in sorted(files, key=lambda each: each.name):
        said_by = "" if file.feed is None else f" {file.feed}"
        time = file.changed if landed else ""
        digest.update(f"{len(file.name)} {file.name} {file.sha256} {time}{said_by}\n".encode())
    return digest.hexdigest()


def retake_id(batch_id: str, number: int) -> str:
    """The id of another take of a batch, such as that after an undo."""
    ending = f"+{number}"
    whole = batch_id + ending
    return whole if len(whole) <= MAX_BATCH_ID else hashlib.sha256(batch_id.encode()).hexdigest() + ending


def check_batch_id(batch_id: str) -> str:
    """Refuse ids that could not be used in logs, file names and command lines."""
    if not batch_id or len(batch_id) > MAX_BATCH_ID or not batch_id.isprintable() or batch_id.strip() != batch_id:
        raise UsageError(
            f"{batch_id!r} cannot be a batch id",
            how=f"give 1 to {MAX_BATCH_ID} printable characters without spaces at its ends",
        )
    return batch_id
