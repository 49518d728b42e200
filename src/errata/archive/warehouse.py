"""The warehouse: where files of buckets live. Names are never used twice, and no file is ever renamed or changed."""

from __future__ import annotations

import os
import uuid
from dataclasses import dataclass
from datetime import datetime

from upath import UPath

from errata.model.instants import to_datetime, to_micros
from errata.model.stream import Stream

_FIRST, _LAST = to_micros(datetime.min), to_micros(datetime.max)  # noqa: DTZ901 - the ends of what has a date


@dataclass(frozen=True, slots=True)
class Warehouse:
    """A folder, by path or URI. It crosses to Spark's workers as it is."""

    uri: str

    def path(self, relative: str) -> str:
        """The path of a file as Spark and fsspec take it."""
        return f"{self.uri.rstrip('/')}/{relative}"

    def new_name(self, stream: Stream, vs: int, kind: str = "base", ending: str = "parquet") -> str:
        """A name never used before, in a folder of the stream and of the day on which its rows begin, if they say."""
        dated = stream.timed and _FIRST <= vs <= _LAST
        day = to_datetime(vs).date().isoformat() if dated else "all"
        return f"{stream.name}/{kind}/{day}/{uuid.uuid4().hex}.{ending}"

    def write(self, relative: str, data: bytes) -> None:
        """Write a file and see it safely on disk: a commit must never be more durable than what it names."""
        target = UPath(self.path(relative))
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("wb") as file:
            file.write(data)
            if target.protocol in ("", "file", "local"):
                file.flush()
                os.fsync(file.fileno())

    def read(self, relative: str) -> bytes:
        """A whole file."""
        content: bytes = UPath(self.path(relative)).read_bytes()
        return content

    def remove(self, relative: str) -> None:
        """Remove a file; one that is gone already is no error."""
        UPath(self.path(relative)).unlink(missing_ok=True)
