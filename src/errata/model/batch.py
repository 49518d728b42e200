"""What revisions do, numbered facts that reach behind the stable point, and why one is refused, in words."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass
from enum import StrEnum
from typing import Protocol

from errata.errors import UsageError


class Op(StrEnum):
    """What a record of a batch, or a revision, does to the row of its key."""

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


# Batches: what was asked to be taken in, what came of it, and where each row came from.

MAX_BATCH_ID = 200


class FileFormat(StrEnum):
    """The formats of files that can be taken in."""

    CSV = "csv"
    JSON = "json"
    PARQUET = "parquet"


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file of a batch as it was read."""

    name: str
    """Where it was: a path or URI."""
    format: FileFormat
    gzip: bool
    bytes: int
    sha256: str
    changed: int = 0
    """When it last changed before it was read, in microseconds: to notice that it changed meanwhile."""
    header: str | None = None
    """The first line of CSV, once the file has been opened."""


@dataclass(frozen=True, slots=True)
class FileSplit:
    """A piece of a file that one task reads: bytes of CSV and JSON, row groups of Parquet."""

    number: int
    """Counts the batch's splits in file order; with a row's ordinal it is the row's position."""
    file: SourceFile
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class ReadSplit:
    """What reading a split told: which lines of the file are in it."""

    split: FileSplit
    first_line: int
    """The file's line number of the split's first record; for Parquet the row's number, from 1."""
    lines: int


@dataclass(frozen=True, slots=True)
class BadRow:
    """A row that did not go in: where it stood, what it said, and why it was not taken."""

    file: str
    line: int
    text: str
    reason: str
    source: str | None = None
    """The file of the batch from which it was read, when that is not the one in which it first stood."""


@dataclass(frozen=True, slots=True)
class QuarantineRetry:
    """Rows of quarantine that a batch takes in again."""

    ids: Sequence[int]
    places: Mapping[str, Sequence[tuple[str, int]]]
    """For each file of the batch, by its name without folders, where its rows first stood. They begin in line 2."""

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
    """As one object of a JSON-lines file, which can be taken in again."""
    reason: str


@dataclass(frozen=True, slots=True)
class BatchCounts:
    """What became of a batch's rows; they add up to `read`."""

    read: int = 0
    appended: int = 0
    pending: int = 0
    dropped: int = 0
    """Identical to a row that is there already."""
    replaced: int = 0
    """Overwritten by a later row of the same key in the same batch."""
    quarantined: int = 0


@dataclass(frozen=True, slots=True)
class RevisionCounts:
    """What became of revisions that were claimed to be applied; all of them add up to the claim."""

    inserted: int = 0
    replaced: int = 0
    deleted: int = 0
    dropped: int = 0
    """They said what is so already."""
    refused: int = 0
    """Found wrong, and in quarantine."""
    waiting: int = 0
    """Of rows that are not there yet and may still come; numbered anew."""
    ignored: int = 0
    """Of a stream that ignores revisions."""

    @property
    def applied(self) -> int:
        return self.inserted + self.replaced + self.deleted

    def __add__(self, other: RevisionCounts) -> RevisionCounts:
        return RevisionCounts(*(one + two for one, two in zip(astuple(self), astuple(other), strict=True)))


POSITION_BITS = 40


def row_position(split: int, ordinal: int) -> int:
    """A row's place in its batch: the split's number and the record's ordinal in it."""
    return split << POSITION_BITS | ordinal


def split_and_ordinal(position: int) -> tuple[int, int]:
    """The split's number and the record's ordinal in it."""
    return position >> POSITION_BITS, position & ((1 << POSITION_BITS) - 1)


class FileVersion(Protocol):
    """A file as it was when somebody looked."""

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
    """A file that a batch in the ledger has brought."""

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

    def is_of(self, file: SourceFile, landing: str | None = None, put_away: str | None = None) -> bool:
        """Whether the file is the one that was delivered then, and not another one with the same content.

        A named file is known by name and content. A landed one also by its modification time, and by its name within
        the folder `landing`, so that a project may be moved with what has landed in it. A named file that lies in the
        folder `put_away` is the landed one that was moved there.
        """
        if self.sha256 != file.sha256:
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


def content_hash(files: Iterable[SourceFile]) -> str:
    """One hash of all contents, whatever the files' names and order."""
    digest = hashlib.sha256()
    for sha in sorted(file.sha256 for file in files):
        digest.update(bytes.fromhex(sha))
    return digest.hexdigest()


def delivery_hash(files: Iterable[SourceFile], *, landed: bool) -> str:
    """One hash of names and contents, of landed files also of their modification times: the id of a delivery that was
    given none."""
    digest = hashlib.sha256()
    for file in sorted(files, key=lambda each: each.name):
        digest.update(f"{len(file.name)} {file.name} {file.sha256} {file.changed if landed else ''}\n".encode())
    return digest.hexdigest()


def retake_id(batch_id: str, number: int) -> str:
    """The id of another take of a batch, such as that after an undo."""
    ending = f"+{number}"
    whole = batch_id + ending
    return whole if len(whole) <= MAX_BATCH_ID else hashlib.sha256(batch_id.encode()).hexdigest() + ending


def check_batch_id(batch_id: str) -> str:
    """Refuse ids that logs, file names and command lines could not bear."""
    if not batch_id or len(batch_id) > MAX_BATCH_ID or not batch_id.isprintable() or batch_id.strip() != batch_id:
        raise UsageError(
            f"{batch_id!r} cannot be a batch id",
            how=f"give 1 to {MAX_BATCH_ID} printable characters without spaces at its ends",
        )
    return batch_id
