"""The warehouse: where files of buckets live. Names are never used twice, and no file is ever renamed or changed."""

from __future__ import annotations

import os
import re
import uuid
from dataclasses import dataclass
from datetime import datetime

from upath import UPath

from errata.errors import ErrataError
from errata.model.instants import to_datetime, to_micros
from errata.model.stream import Stream

_FIRST, _LAST = to_micros(datetime.min), to_micros(datetime.max)  # noqa: DTZ901 - the ends of what has a date

_LOCAL = ("", "file", "local")
_PATTERN_MARKS = re.compile(r"[\[\]{}*?\\]")


@dataclass(frozen=True, slots=True)
class Warehouse:
    """A folder, by path or URI. It crosses to Spark's workers as it is."""

    uri: str

    def path(self, relative: str) -> str:
        """The path of a file as Spark and fsspec take it."""
        return f"{self.uri.rstrip('/')}/{relative}"

    def spark_path(self, relative: str) -> str:
        """The same for Spark's readers, which take what they are given for a pattern."""
        return _PATTERN_MARKS.sub(r"\\\g<0>", self.path(relative))

    def new_name(self, stream: Stream, vs: int, kind: str = "base", ending: str = "parquet") -> str:
        """A name never used before, in a folder of the stream and of the day on which its rows begin, if they say."""
        dated = stream.timed and _FIRST <= vs <= _LAST
        day = to_datetime(vs).date().isoformat() if dated else "all"
        return f"{stream.name}/{kind}/{day}/{uuid.uuid4().hex}.{ending}"

    def check(self) -> None:
        """Refuse a warehouse that cannot be written, before any work is done for it."""
        root = UPath(self.uri)
        try:
            root.mkdir(parents=True, exist_ok=True)
            writable = root.protocol not in _LOCAL or os.access(root.path, os.W_OK | os.X_OK)
        except OSError as error:
            raise self._unwritable(error.strerror or str(error)) from error
        if not writable:
            raise self._unwritable("permission denied")

    def _unwritable(self, why: str) -> ErrataError:
        how = "name a folder that can be made and written (`warehouse:` in errata.yaml)"
        return ErrataError("the warehouse cannot be written", where=self.uri, why=why, how=how)

    def write(self, relative: str, data: bytes) -> None:
        """Write a file and see it safely on disk: a commit must never be more durable than what it names."""
        target = UPath(self.path(relative))
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("wb") as file:
            file.write(data)
            if target.protocol in _LOCAL:
                file.flush()
                os.fsync(file.fileno())
                _sync_folder(target.parent.path)

    def read(self, relative: str) -> bytes:
        """A whole file."""
        content: bytes = UPath(self.path(relative)).read_bytes()
        return content

    def remove(self, relative: str) -> None:
        """Remove a file; one that is gone already is no error."""
        UPath(self.path(relative)).unlink(missing_ok=True)


def _sync_folder(path: str) -> None:
    """A file's name is safe when the folder that lists it is."""
    folder = os.open(path, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
