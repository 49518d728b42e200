"""Where things are: paths and addresses as written, made independent of the folder a command is run in."""

from __future__ import annotations

import os
import re
from pathlib import Path

from errata.errors import UsageError

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_POSTGRES = ("postgresql", "postgres", "postgresql+psycopg2")
_SQLITE = "sqlite:///"
_SHOWN = 60

NAME_BYTES = 255
PATH_BYTES = 4096
"""What Linux lets a file's name and its path have at most, the path with its ending NUL."""


def place(text: str, root: Path) -> str:
    """An absolute local path, or the URI as it is. What is relative is relative to the project's folder."""
    if text.startswith("file://"):
        text = text.removeprefix("file://")
    elif _SCHEME.match(text):
        _check_nul(text)
        return text
    return os.path.normpath(local_path(text, root))


def local_path(text: str, root: Path) -> Path:
    """The path of this machine that a text means; one that no file can have is refused."""
    _check_nul(text)
    path = root / at_home(text)
    if len(os.fsencode(path)) >= PATH_BYTES or any(len(os.fsencode(part)) > NAME_BYTES for part in path.parts):
        raise UsageError(
            f"{text[:_SHOWN]}… is too long for a path",
            why=f"a name has {NAME_BYTES} bytes at most, and a path {PATH_BYTES - 1}",
            how="name a shorter one",
        )
    return path


def at_home(text: str) -> Path:
    """The path with ~ filled in."""
    try:
        return Path(text).expanduser()
    except RuntimeError:
        user = text.partition("/")[0]
        raise UsageError(f"{user[:_SHOWN]} is nobody's home folder here", how="write the path in full") from None


def _check_nul(text: str) -> None:
    if "\0" in text:
        raise UsageError("a path has no NUL in it", how="leave it out; in double quotes YAML reads \\0 as one")


def catalog_url(text: str, root: Path) -> str:
    """The catalog's address for SQLAlchemy, with the driver named and a database file's path absolute."""
    scheme = _SCHEME.match(text)
    if scheme is not None and scheme[1] in _POSTGRES:
        _check_nul(text)
        return f"postgresql+psycopg2://{text[scheme.end() :]}"
    path, mark, options = text.removeprefix(_SQLITE).partition("?")
    if not text.startswith(_SQLITE) or path in ("", ":memory:"):
        # Only the scheme is repeated: the rest may hold a password.
        shown = f"{scheme[1]}://…" if scheme is not None else "this"
        raise UsageError(
            f"{shown} is not a catalog",
            why="the catalog is a SQLite file or a PostgreSQL database",
            how="write sqlite:///errata.db or postgresql://user:password@host:5432/database",
        )
    return f"{_SQLITE}{place(path, root)}{mark}{options}"
