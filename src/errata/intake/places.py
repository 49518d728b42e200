"""Paths and URLs that people give: which of them can be looked at, and in words why others cannot."""

from __future__ import annotations

import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager

from upath import UPath

from errata.errors import BadFile, ErrataError, UsageError

SHOWN_LETTERS = 200
"""Letters of a path that a message shows; one that is longer is cut, so that the rest of the message can be seen."""

_ACCOUNT = re.compile(r"(?<=//)[^/@]*@")
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_LOCAL = ("", "file", "local")


def shown(path: object) -> str:
    """A path as a message, the catalog and JSON can hold it: bytes that are not UTF-8 as escapes, no account of a URL,
    cut where it is very long."""
    text = _ACCOUNT.sub("", escaped(path))
    return text if len(text) <= SHOWN_LETTERS else f"{text[:SHOWN_LETTERS]}… ({len(text):,} letters)"


def escaped(path: object) -> str:
    """A path as text that is UTF-8."""
    return str(path).encode("utf-8", errors="backslashreplace").decode()


@contextmanager
def reaching(text: str) -> Iterator[None]:
    """What is wrong with a path or URL that cannot even be looked at, in words."""
    try:
        yield
    except ErrataError:
        raise
    except ImportError as error:
        raise UsageError(
            f"{scheme(text) or 'such'}:// cannot be opened here: its driver is not installed",
            where=shown(text),
            why=str(error),
            how="install the package that is named beside Errata, or bring the files into a folder of this machine",
        ) from None
    except ValueError as error:
        why = "it has a NUL in it" if "\0" in text else str(error)
        raise UsageError("this cannot be a path", where=shown(text.replace("\0", "\\0")), why=why) from None
    except OSError as error:
        why = error.strerror or next(iter(str(error).splitlines()), type(error).__name__)
        raise UsageError("this cannot be looked at", where=shown(text), why=why) from None


def scheme(text: str) -> str | None:
    """The scheme of a URL; None of a path."""
    found = _SCHEME.match(text)
    return found[1].lower() if found is not None else None


def is_local(path: UPath) -> bool:
    """Whether the path is of this machine's own file system."""
    return path.protocol in _LOCAL


def check_regular(path: UPath) -> None:
    """Refuse what is no regular file: a pipe or a device may never end, or never answer."""
    if not is_local(path):
        return
    kind = _kind(path.stat().st_mode)
    if kind is not None:
        raise BadFile(f"this is {kind}, and no regular file", where=shown(path), how="write its content into a file")


def _kind(mode: int) -> str | None:
    """What a path is that is no regular file."""
    kinds = (
        (stat.S_ISDIR, "a folder"),
        (stat.S_ISFIFO, "a pipe"),
        (stat.S_ISSOCK, "a socket"),
        (stat.S_ISCHR, "a device"),
        (stat.S_ISBLK, "a device"),
    )
    return next((kind for test, kind in kinds if test(mode)), None)
