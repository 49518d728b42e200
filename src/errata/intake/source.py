"""The bytes of source files: opened, decompressed, and cut into whole lines; and rows before their values have types.

A split of a text file is a range of bytes; a line belongs to the split in which its first byte lies. A gzipped file is
one split, unpacked in pieces of `PIECE_BYTES`.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import IO

import numpy as np
import pyarrow as pa
from upath import UPath

from errata.errors import BadFileError, ErrataError
from errata.model.batch import FileSplit, SourceFile

PIECE_BYTES = 32 * 1024 * 1024
"""Bytes of text of a compressed file that are held at a time."""

LINE_BYTES = 16 * 1024 * 1024
"""Bytes of the longest line of CSV or JSON. A file with a longer line is refused: a line is held whole, several times
over, so that without a limit one line of a gzipped file could take all memory."""

UNPACKED_BYTES = 4 * 1024 * 1024 * 1024
"""Bytes to which a gzipped file may unpack. A larger file is refused: one task reads it and holds its rows."""

_RESEND_ADVICE = "get it again from where it came, or leave it out"

BOM = b"\xef\xbb\xbf"


@contextmanager
def open_source(file: SourceFile) -> Iterator[IO[bytes]]:
    """The file's content before compression. Errors while it is read name the file."""
    try:
        with UPath(file.name).open("rb") as raw:
            if file.gzip:
                with gzip.GzipFile(fileobj=raw) as plain:
                    yield plain  # type: ignore[misc]  # a GzipFile reads like any binary file
            else:
                yield raw
    except EOFError as error:
        raise BadFileError("the gzip file is cut off", where=file.name, how="send it again, whole") from error
    except (gzip.BadGzipFile, zlib.error) as error:
        raise BadFileError(
            "this is not a sound gzip file", where=file.name, why=str(error), how=_RESEND_ADVICE
        ) from error
    except pa.ArrowException as error:
        raise BadFileError(
            "this is not a Parquet file that can be read", where=file.name, why=str(error), how=_RESEND_ADVICE
        ) from error
    except OSError as error:
        raise BadFileError("the file cannot be read", where=file.name, why=error.strerror or str(error)) from error


def read_pieces(split: FileSplit, data_start: int) -> Iterator[bytes]:
    """The split's lines, in pieces of whole lines."""
    with open_source(split.file) as stream:
        if split.file.gzip:
            stream.read(data_start)
            yield from _unpack_pieces(stream, split.file, data_start)
        else:
            yield _read_own_lines(stream, split, data_start)


def read_line(stream: IO[bytes], file: SourceFile, start: int) -> bytes:
    """The line at the stream's position, which is byte `start`."""
    line = stream.readline(LINE_BYTES + 1)
    if len(line) > LINE_BYTES:
        raise _long_line_error(file, start)
    return line


def _read_own_lines(stream: IO[bytes], split: FileSplit, data_start: int) -> bytes:
    # The byte before the split tells whether a line begins at its start.
    before = 1 if split.start > data_start else 0
    stream.seek(split.start - before)
    data = stream.read(split.end - split.start + before)
    if len(data) < split.end - split.start + before:
        raise ErrataError("the file became shorter while it was taken in", where=split.file.name)
    start = split.start
    if before:
        newline = data.find(b"\n")
        data = data[newline + 1 :] if newline >= 0 else b""
        start += newline
    return _complete_last_line(stream, split.file, data, start)


def _unpack_pieces(stream: IO[bytes], file: SourceFile, start: int) -> Iterator[bytes]:
    while data := stream.read(PIECE_BYTES):
        data = _complete_last_line(stream, file, data, start)
        start += len(data)
        if start > UNPACKED_BYTES:
            raise BadFileError(
                f"the file unpacks to more than {UNPACKED_BYTES >> 30} GiB",
                where=file.name,
                why="a gzipped file is read by one task, which holds its rows",
                how="send it unpacked, or in several files",
            )
        yield data


def _complete_last_line(stream: IO[bytes], file: SourceFile, data: bytes, start: int) -> bytes:
    """Text that begins with a line at byte `start`, completed to the end of its last line; raises for a long line."""
    if data and not data.endswith(b"\n"):
        data += stream.readline(LINE_BYTES + 1)
    at = 0
    while len(data) - at > LINE_BYTES:
        newline = data.rfind(b"\n", at, at + LINE_BYTES)
        if newline < 0:
            raise _long_line_error(file, start + at)
        at = newline + 1
    return data


def _long_line_error(file: SourceFile, start: int) -> BadFileError:
    unpacked = " of what it unpacks to" if file.gzip else ""
    return BadFileError(
        f"a line is longer than {LINE_BYTES >> 20} MiB",
        where=file.name,
        why=f"it begins at byte {start:,}{unpacked}, and a line is held whole while it is read",
        how="write one row a line; a file of one long line is often an array, or lacks its line ends",
    )


def decode_line(line: bytes) -> str:
    """A line as text, with escapes for bytes that are not UTF-8."""
    return line.removesuffix(b"\n").removesuffix(b"\r").decode("utf-8", errors="backslashreplace")


# Rows of a piece before their values have types.


@dataclass(frozen=True, slots=True)
class ParsedRows:
    """Rows as they were written, and the lines that are not rows."""

    columns: dict[str, pa.Array]
    ordinals: np.ndarray
    """For each row, its line in the piece, from 0."""
    lines: int
    bad: dict[int, str] = field(default_factory=dict)
    """Lines that could not be parsed, and why."""
    value_faults: dict[int, dict[str, str]] = field(default_factory=dict)
    """Faults of rows that could be parsed, by row (not line) and column."""
    not_given: dict[str, np.ndarray] = field(default_factory=dict)
    """For formats in which rows may omit columns: the rows in which a column of `columns` is not given."""


class LineIndex:
    """The positions of the lines of a piece."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        content = np.frombuffer(data, np.uint8)
        newlines = np.flatnonzero(content == ord("\n"))
        self.content = content
        self.starts = np.concatenate(([0], newlines + 1)).astype(np.int64)
        self.ends = np.concatenate((newlines, [len(data)])).astype(np.int64)
        if self.starts[-1] == len(data):
            self.starts, self.ends = self.starts[:-1], self.ends[:-1]
        self.nexts = np.concatenate((self.starts[1:], [len(data)])).astype(np.int64)[: len(self.starts)]

    def __len__(self) -> int:
        return len(self.starts)

    def raw(self, ordinal: int) -> bytes:
        return self.data[self.starts[ordinal] : self.ends[ordinal]]

    def of(self, positions: np.ndarray) -> np.ndarray:
        """The line in which each byte position lies."""
        return np.searchsorted(self.starts, positions, side="right") - 1


def count_lines(data: bytes) -> int:
    """Physical lines; a last one without a newline counts."""
    return data.count(b"\n") + (1 if data and not data.endswith(b"\n") else 0)
