"""Bytes of source files: opened, decompressed, cut into whole lines."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO

import pyarrow as pa
from upath import UPath

from errata.errors import ErrataError
from errata.model.batch import SourceFile, Split

PIECE_BYTES = 32 * 1024 * 1024
"""How much of a compressed file is held as text at a time."""

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
        raise ErrataError("the gzip file is cut off", where=file.name, how="send it again, whole") from error
    except (gzip.BadGzipFile, zlib.error) as error:
        raise ErrataError("this is not a sound gzip file", where=file.name, why=str(error), how=_SOUND) from error
    except pa.ArrowException as error:
        raise ErrataError(
            "this is not a Parquet file that can be read", where=file.name, why=str(error), how=_SOUND
        ) from error
    except OSError as error:
        raise ErrataError("the file cannot be read", where=file.name, why=str(error)) from error


def pieces(split: Split, data_start: int) -> Iterator[bytes]:
    """The split's lines, whole, in runs; a line is in the split in which its first byte lies."""
    with opened(split.file) as stream:
        if split.file.gzip:
            stream.read(data_start)
            yield from _runs(stream)
        else:
            yield _lines_from(stream, split, data_start)


def _lines_from(stream: IO[bytes], split: Split, data_start: int) -> bytes:
    # The byte before the split tells whether a line begins at its start.
    before = 1 if split.start > data_start else 0
    stream.seek(split.start - before)
    data = stream.read(split.end - split.start + before)
    if len(data) < split.end - split.start + before:
        raise ErrataError("the file became shorter while it was taken in", where=split.file.name)
    if before:
        newline = data.find(b"\n")
        data = data[newline + 1 :] if newline >= 0 else b""
    if data and not data.endswith(b"\n"):
        data += stream.readline()
    return data


def _runs(stream: IO[bytes]) -> Iterator[bytes]:
    while data := stream.read(PIECE_BYTES):
        if not data.endswith(b"\n"):
            data += stream.readline()
        yield data


def decode(line: bytes) -> str:
    """A line as a person reads it; bytes that are no text are shown as escapes."""
    return line.removesuffix(b"\n").removesuffix(b"\r").decode("utf-8", errors="backslashreplace")
