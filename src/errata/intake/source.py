"""Bytes of source files: opened, decompressed, cut into whole lines."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO

import pyarrow as pa
from upath import UPath

from errata.errors import BadFile, ErrataError
from errata.model.batch import SourceFile, Split

PIECE_BYTES = 32 * 1024 * 1024
"""How much of a compressed file is held as text at a time."""

LINE_BYTES = 16 * 1024 * 1024
"""Bytes of the longest line of CSV or JSON that is read. A file with a longer one is refused: a line is held whole, and
several times over, so that without a bound one line of a gzipped file could take all memory there is."""

UNPACKED_BYTES = 4 * 1024 * 1024 * 1024
"""Bytes of text to which a gzipped file may unpack. A larger one is refused: one task reads it and holds its rows."""

_SOUND = "get it again from where it came, or leave it out"

BOM = b"\xef\xbb\xbf"


@contextmanager
def opened(file: SourceFile) -> Iterator[IO[bytes]]:
    """The file's content as it was before compression; what fails while it is read names the file."""
    try:
        with UPath(file.name).open("rb") as raw:
            if file.gzip:
                with gzip.GzipFile(fileobj=raw) as plain:
                    yield plain  # type: ignore[misc]  # a GzipFile reads like any binary file
            else:
                yield raw
    except EOFError as error:
        raise BadFile("the gzip file is cut off", where=file.name, how="send it again, whole") from error
    except (gzip.BadGzipFile, zlib.error) as error:
        raise BadFile("this is not a sound gzip file", where=file.name, why=str(error), how=_SOUND) from error
    except pa.ArrowException as error:
        raise BadFile(
            "this is not a Parquet file that can be read", where=file.name, why=str(error), how=_SOUND
        ) from error
    except OSError as error:
        raise BadFile("the file cannot be read", where=file.name, why=error.strerror or str(error)) from error


def pieces(split: Split, data_start: int) -> Iterator[bytes]:
    """The split's lines, whole, in runs; a line is in the split in which its first byte lies."""
    with opened(split.file) as stream:
        if split.file.gzip:
            stream.read(data_start)
            yield from _runs(stream, split.file, data_start)
        else:
            yield _lines_from(stream, split, data_start)


def one_line(stream: IO[bytes], file: SourceFile, start: int) -> bytes:
    """The line that begins here, at byte `start`."""
    line = stream.readline(LINE_BYTES + 1)
    if len(line) > LINE_BYTES:
        raise _too_long(file, start)
    return line


def _lines_from(stream: IO[bytes], split: Split, data_start: int) -> bytes:
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
    return _ended(stream, split.file, data, start)


def _runs(stream: IO[bytes], file: SourceFile, start: int) -> Iterator[bytes]:
    while data := stream.read(PIECE_BYTES):
        data = _ended(stream, file, data, start)
        start += len(data)
        if start > UNPACKED_BYTES:
            raise BadFile(
                f"the file unpacks to more than {UNPACKED_BYTES >> 30} GiB",
                where=file.name,
                why="a gzipped file is read by one task, which holds its rows",
                how="send it unpacked, or in several files",
            )
        yield data


def _ended(stream: IO[bytes], file: SourceFile, data: bytes, start: int) -> bytes:
    """Text that begins with a line at byte `start`, and the rest of its last line; no line is longer than the bound."""
    if data and not data.endswith(b"\n"):
        data += stream.readline(LINE_BYTES + 1)
    at = 0
    while len(data) - at > LINE_BYTES:
        newline = data.rfind(b"\n", at, at + LINE_BYTES)
        if newline < 0:
            raise _too_long(file, start + at)
        at = newline + 1
    return data


def _too_long(file: SourceFile, start: int) -> BadFile:
    unpacked = " of what it unpacks to" if file.gzip else ""
    return BadFile(
        f"a line is longer than {LINE_BYTES >> 20} MiB",
        where=file.name,
        why=f"it begins at byte {start:,}{unpacked}, and a line is held whole while it is read",
        how="write one row a line; a file of one long line is often an array, or lacks its line ends",
    )


def decode(line: bytes) -> str:
    """A line as a person reads it; bytes that are no text are shown as escapes."""
    return line.removesuffix(b"\n").removesuffix(b"\r").decode("utf-8", errors="backslashreplace")
