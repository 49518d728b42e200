"""Files for the tests, and the streams that they are of."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import pytest
from upath import UPath

from errata.intake.files import inspect_file
from errata.model.batch import SourceFile
from errata.model.columns import Column, ColumnType
from errata.model.stream import Stream

Write = Callable[[str, bytes], SourceFile]


def stream_of(order: str = "time", key: tuple[str, ...] = ("time", "symbol"), **columns: str) -> Stream:
    """A stream with these columns; quotes when none are named."""
    named = columns or {"time": "timestamp", "symbol": "string", "price": "double"}
    return Stream("quotes", tuple(Column(name, ColumnType.parse(kind)) for name, kind in named.items()), key, order)


@pytest.fixture
def quotes() -> Stream:
    return stream_of()


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes a file, compressed if its name says so, and tells what it is."""

    def written(name: str, content: bytes) -> SourceFile:
        path = tmp_path / name
        path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
        return inspect_file(UPath(path))

    return written
