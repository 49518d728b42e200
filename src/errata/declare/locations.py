"""Where things are: paths and addresses as written, made independent of the folder a command is run in."""

from __future__ import annotations

import os
import re
from pathlib import Path

from errata.errors import UsageError

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_POSTGRES = ("postgresql", "postgres", "postgresql+psycopg2")
_SQLITE = "sqlite:///"


def place(text: str, root: Path) -> str:
    """An absolute local path, or the URI as it is. What is relative is relative to the project's folder."""
    if text.startswith("file://"):
        text = text.removeprefix("file://")
    elif _SCHEME.match(text):
        return text
    return os.path.normpath(root / Path(text).expanduser())


def catalog_url(text: str, root: Path) -> str:
    """The catalog's address for SQLAlchemy, with the driver named and a database file's path absolute."""
    scheme = _SCHEME.match(text)
    if scheme is not None and scheme[1] in _POSTGRES:
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
