"""Paths and addresses of a project made absolute, and bounded reading of text files.

Paths in errata.yaml are relative to its folder, not to the folder in which a command runs. Text files are read up to a
limit, and only regular files are: a device or a pipe may never end, or never answer.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from pathlib import Path
from typing import TextIO

from errata.errors import UsageError

_URI_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_POSTGRES_SCHEMES = ("postgresql", "postgres", "postgresql+psycopg2")
_SQLITE_PREFIX = "sqlite:///"
_SHOWN_LETTERS = 60

MAX_NAME_BYTES = 255
MAX_PATH_BYTES = 4096
"""Linux's limits on the bytes of a file name and of a path, the latter with its ending NUL."""


def resolve_location(text: str, root: Path) -> str:
    """An absolute local path, or the URI as it is. A relative path is relative to the project's folder."""
    if text.startswith("file://"):
        text = text.removeprefix("file://")
    elif _URI_SCHEME.match(text):
        _check_nul(text)
        return text
    return os.path.normpath(resolve_path(text, root))


def resolve_path(text: str, root: Path) -> Path:
    """The local path in a text; one that no file can have is refused."""
    _check_nul(text)
    path = root / expand_home(text)
    if len(os.fsencode(path)) >= MAX_PATH_BYTES or any(len(os.fsencode(part)) > MAX_NAME_BYTES for part in path.parts):
        raise UsageError(
            f"{text[:_SHOWN_LETTERS]}… is too long for a path",
            why=f"a name has {MAX_NAME_BYTES} bytes at most, and a path {MAX_PATH_BYTES - 1}",
            how="name a shorter one",
        )
    return path


def expand_home(text: str) -> Path:
    """The path with ~ expanded."""
    try:
        return Path(text).expanduser()
    except RuntimeError:
        user = text.partition("/")[0]
        raise UsageError(
            f"{user[:_SHOWN_LETTERS]} is nobody's home folder here", how="write the path in full"
        ) from None


def _check_nul(text: str) -> None:
    if "\0" in text:
        raise UsageError("a path has no NUL in it", how="leave it out; in double quotes YAML reads \\0 as one")


def catalog_url(text: str, root: Path) -> str:
    """The catalog's address for SQLAlchemy, with the driver named and a database file's path absolute."""
    scheme = _URI_SCHEME.match(text)
    if scheme is not None and scheme[1] in _POSTGRES_SCHEMES:
        _check_nul(text)
        return f"postgresql+psycopg2://{text[scheme.end() :]}"
    path, mark, options = text.removeprefix(_SQLITE_PREFIX).partition("?")
    if not text.startswith(_SQLITE_PREFIX) or path in ("", ":memory:"):
        # The message repeats only the scheme: the rest may contain a password.
        shown = f"{scheme[1]}://…" if scheme is not None else "this"
        raise UsageError(
            f"{shown} is not a catalog",
            why="the catalog is a SQLite file or a PostgreSQL database",
            how="write sqlite:///errata.db or postgresql://user:password@host:5432/database",
        )
    return f"{_SQLITE_PREFIX}{resolve_location(path, root)}{mark}{options}"


MAX_PROJECT_BYTES = 16 * 1024 * 1024
"""Bytes of errata.yaml at most. A file with ten thousand queries has about 1 MiB."""

MAX_QUERY_BYTES = 4 * 1024 * 1024
"""Bytes of an SQL file at most: four for each letter of the longest query."""


def is_file(path: Path) -> bool:
    """Whether the path is a file; False for a text that cannot be a path."""
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


def is_folder(path: Path) -> bool:
    """Whether the path is a folder; False for a text that cannot be a path."""
    try:
        return path.is_dir()
    except (OSError, ValueError):
        return False


def read_text_file(path: Path, shown: str, most: int) -> str:
    """The text of a regular file of limited size; FileNotFoundError is raised to the caller."""
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


def read_text_stream(stream: TextIO, shown: str, most: int) -> str:
    """The same for a stream such as standard input, limited in letters."""
    try:
        text = stream.read(most + 1)
    except UnicodeDecodeError as error:
        raise UsageError(f"{shown} is not UTF-8 at byte {error.start}", how="give it as UTF-8") from None
    _check_length(len(text), shown, most)
    return text


def _check_length(length: int, shown: str, most: int) -> None:
    if length > most:
        raise UsageError(f"{shown} is longer than {most >> 20} MiB", how="name a file of text; this is no text to read")
