"""The warehouse: the folder or object store with the files of buckets.

A name is never used twice, and no file is renamed or changed, so a file that a commit names is complete and constant. A
file is written and flushed to disk before the commit that names it.
"""

from __future__ import annotations

import errno
import os
import re
import uuid
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import IO

import pyarrow as pa
import pyarrow.parquet as pq
from upath import UPath

from errata.errors import NO_SPACE_ERRNOS, ErrataError, disk_full_error
from errata.intake.files import path_errors
from errata.model.stream import Stream
from errata.model.time import to_datetime, to_micros

_FIRST, _LAST = to_micros(datetime.min), to_micros(datetime.max)  # noqa: DTZ901 - the ends of what has a date

_LOCAL = ("", "file", "local")
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}|all")
_NAME = re.compile(r"[0-9a-f]{32}\.(parquet|arrow)")

NAME_PATTERNS = {
    **dict.fromkeys(
        ("base", "pending", "overlay", "faults", "open", "tip", "state", "feed", "mask", "parts", "lineage", "matches"),
        (_DAY, _NAME),
    ),
    **dict.fromkeys(("copy", "summary", "merge"), (_DAY, _NAME)),
    "retried": (re.compile(r"[0-9a-f]{12}"), re.compile(r"\d+\.(csv|jsonl)")),
    "delivered": (re.compile(r"\w+"), re.compile(r"\d+-\d+\.parquet")),
    "heartbeats": (re.compile(r"\w+"), re.compile(r"-?\d+\.jsonl")),
}
"""The kinds of folders in the folder of a stream, with the patterns of the names of their folders and files. Files in
`retried` are not needed once their batch has been taken in or has failed, those in `delivered` and `heartbeats` (a
folder for each feed) once it has been taken in."""
_MARKS = re.compile(r"[\[\]{}*?\\%#]")
"""Characters that some readers interpret as a pattern, or as part of a URI."""
_PATTERN_MARKS = re.compile(r"[\[\]{}*?\\]")


@dataclass(frozen=True, slots=True)
class FolderEntry:
    """An entry of a folder."""

    name: str
    folder: bool
    file: bool
    """Whether it is a regular file; a link is neither file nor folder."""
    size: int


@dataclass(frozen=True, slots=True)
class Warehouse:
    """A folder, by path or URI. It is sent to Spark's workers as it is."""

    uri: str

    def path(self, relative: str) -> str:
        """The path of a file for Spark and fsspec."""
        return f"{self.uri.rstrip('/')}/{relative}"

    def spark_path(self, relative: str) -> str:
        """The same for Spark's readers, which interpret it as a pattern."""
        return _PATTERN_MARKS.sub(r"\\\g<0>", self.path(relative))

    def plain_size(self, relative: str) -> int | None:
        """The size of a local file, if its path means the same to every reader."""
        path = UPath(self.path(relative))
        if path.protocol not in _LOCAL or _MARKS.search(str(path)) is not None:
            return None
        try:
            return path.stat().st_size
        except FileNotFoundError:
            return None

    def new_name(self, stream: Stream, vs: int, kind: str = "base", ending: str = "parquet") -> str:
        """A new name, in a folder of the stream and of the day on which the rows begin, if they have one."""
        return self.name_in(stream.name, vs if stream.timed else None, kind, ending)

    def name_in(self, folder: str, vs: int | None, kind: str, ending: str = "parquet") -> str:
        """The same in a folder of this name; `vs` is None if event time is a plain number."""
        dated = vs is not None and _FIRST <= vs <= _LAST
        day = to_datetime(vs).date().isoformat() if vs is not None and dated else "all"
        return f"{folder}/{kind}/{day}/{uuid.uuid4().hex}.{ending}"

    def check(self) -> None:
        """Refuse a warehouse that cannot be written, before any work is done."""
        try:
            with path_errors(self.uri):
                root = UPath(self.uri)
            root.mkdir(parents=True, exist_ok=True)
            writable = root.protocol not in _LOCAL or os.access(root.path, os.W_OK | os.X_OK)
        except NotImplementedError as error:
            raise self._unwritable("what is behind this address can only be read") from error
        except OSError as error:
            raise self._unwritable(error.strerror or str(error)) from error
        if not writable:
            raise self._unwritable("permission denied")

    def _unwritable(self, why: str) -> ErrataError:
        how = "name a folder that can be made and written (`warehouse:` in errata.yaml)"
        return ErrataError("the warehouse cannot be written", where=self.uri, why=why, how=how)

    def write(self, relative: str, data: bytes) -> None:
        """Write a file and flush it to disk: a commit must not be more durable than its files."""
        target = UPath(self.path(relative))
        for last in (False, False, True):
            try:
                target.parent.mkdir(parents=True, exist_ok=True)
                file = target.open("wb")
            except FileNotFoundError:
                # Vacuum removes empty folders, and has just removed this one.
                if last:
                    raise
                continue
            except OSError as error:
                raise _disk_full_error(target, error) from error
            try:
                with file:
                    file.write(data)
                    if target.protocol in _LOCAL:
                        file.flush()
                        os.fsync(file.fileno())
                        _sync_folder(target.parent.path)
            except OSError as error:
                self.remove(relative)
                raise _disk_full_error(target, error) from error
            return

    def read(self, relative: str) -> bytes:
        """The content of a file."""
        content: bytes = UPath(self.path(relative)).read_bytes()
        return content

    def opened(self, relative: str) -> IO[bytes]:
        """A file opened for reading parts of it."""
        opened: IO[bytes] = UPath(self.path(relative)).open("rb")
        return opened

    def read_table(self, relative: str) -> pa.Table:
        """The rows of a Parquet file."""
        return pq.read_table(pa.BufferReader(self.read(relative)), use_threads=False)

    def remove(self, relative: str) -> None:
        """Remove a file; a missing one is no error."""
        UPath(self.path(relative)).unlink(missing_ok=True)

    @property
    def local(self) -> bool:
        """Whether it is on a disk of this machine, where folders exist by themselves."""
        return UPath(self.uri).protocol in _LOCAL

    def entries(self, folder: str = "") -> list[FolderEntry]:
        """The current entries of a folder; none if it does not exist."""
        with path_errors(self.uri):
            place = UPath(self.path(folder))
            place.fs.invalidate_cache()
        own = place.path.rstrip("/")
        try:
            found = place.fs.ls(place.path, detail=True)
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            why = error.strerror or str(error)
            raise ErrataError("a folder of the warehouse cannot be listed", where=place.path, why=why) from error
        return [
            FolderEntry(
                each["name"].rstrip("/").rpartition("/")[2],
                each["type"] == "directory",
                each["type"] == "file",
                int(each["size"] or 0),
            )
            for each in found
            if each["name"].rstrip("/") != own  # object stores may list the folder itself
        ]

    def modified(self, relative: str) -> int | None:
        """The modification time of a file in microseconds since 1970; None if it does not exist."""
        file = UPath(self.path(relative))
        try:
            return to_micros(file.fs.modified(file.path))
        except FileNotFoundError:
            return None

    def days(self, stream: str) -> Iterator[str]:
        """The folders with files of a stream, by kind and day."""
        kinds = {entry.name for entry in self.entries(stream) if entry.folder}
        for kind in (kind for kind in NAME_PATTERNS if kind in kinds):
            found = (f"{stream}/{kind}/{entry.name}" for entry in self.entries(f"{stream}/{kind}") if entry.folder)
            yield from (folder for folder in found if _is_day(folder, (stream,)))

    def elsewhere(self, streams: Collection[str], within: Iterable[str] = ("",)) -> Iterator[int]:
        """The number of files in each folder that is not a day of one of these streams."""
        waiting = list(within)
        while waiting:
            folder = waiting.pop()
            found = self.entries(folder)
            yield sum(not entry.folder for entry in found)
            inner = (f"{folder}/{entry.name}".lstrip("/") for entry in found if entry.folder)
            waiting += [each for each in inner if not _is_day(each, streams)]

    def remove_if_empty(self, folder: str) -> bool:
        """Remove an empty folder on a local disk; in object stores folders are only parts of names."""
        if not self.local:
            return False
        try:
            UPath(self.path(folder)).rmdir()
        except OSError as error:
            if error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOENT):  # a writer uses it, or it is removed
                return False
            raise
        return True


def _is_day(folder: str, streams: Collection[str]) -> bool:
    parts = folder.split("/")
    if len(parts) != 3 or parts[0] not in streams or parts[1] not in NAME_PATTERNS:
        return False
    return NAME_PATTERNS[parts[1]][0].fullmatch(parts[2]) is not None


def is_own_name(day: str, name: str) -> bool:
    """Whether a file in one of the day folders has a name that Errata gives."""
    return NAME_PATTERNS[day.split("/")[1]][1].fullmatch(name) is not None


def _disk_full_error(target: UPath, error: OSError) -> Exception:
    """The readable error for a full disk; other errors as they are."""
    return disk_full_error(str(target), error.strerror or str(error)) if error.errno in NO_SPACE_ERRNOS else error


def _sync_folder(path: str) -> None:
    """Flush a folder to disk: only then is the name of a new file in it durable."""
    folder = os.open(path, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
