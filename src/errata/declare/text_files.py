"""Text files that a person writes, read within a bound: what is no regular file may never end, or never answer."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import TextIO

from errata.errors import UsageError

PROJECT_BYTES = 16 * 1024 * 1024
"""Bytes of the longest errata.yaml that is read. One of ten thousand queries has about 1 MiB."""

QUERY_BYTES = 4 * 1024 * 1024
"""Bytes of the longest file of SQL that is read: four for each of the letters that a query may have at most."""


def is_file(path: Path) -> bool:
    """Whether the path is a file; a text that can be no path is none."""
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


def is_folder(path: Path) -> bool:
    """The same of a folder."""
    try:
        return path.is_dir()
    except (OSError, ValueError):
        return False


def read_within(path: Path, shown: str, most: int) -> str:
    """The text of a regular file of at most so many bytes; a FileNotFoundError is left to the caller."""
    try:
        mode = path.stat().st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not stat.S_ISREG(mode):
            raise UsageError(f"{shown} is no regular file", how="name a file of text")
        with path.open("rb") as file:
            content = file.read(most + 1)
        _check_length(len(content), shown, most)
        return content.decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")
    except FileNotFoundError:
        raise
    except UnicodeDecodeError as error:
        raise UsageError(f"{shown} is not UTF-8 at byte {error.start}", how="save it as UTF-8") from None
    except OSError as error:
        raise UsageError(f"{shown} cannot be read: {error.strerror}", how="name a file that can be read") from None


def read_stream_within(stream: TextIO, shown: str, most: int) -> str:
    """The same of a stream such as the standard input, counted in letters."""
    try:
        text = stream.read(most + 1)
    except UnicodeDecodeError as error:
        raise UsageError(f"{shown} is not UTF-8 at byte {error.start}", how="give it as UTF-8") from None
    _check_length(len(text), shown, most)
    return text


def _check_length(length: int, shown: str, most: int) -> None:
    if length > most:
        raise UsageError(f"{shown} is longer than {most >> 20} MiB", how="name a file of text; this is no text to read")
