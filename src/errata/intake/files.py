"""Paths, folders and patterns that people give, and what each file is: format, size, hash, modification time.

A file's format is known by its name's ending. Only regular files are read. Errors about paths say what is wrong in
words."""

from __future__ import annotations

import glob
import hashlib
import re
import stat
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import fsspec
from upath import UPath

from errata.errors import BadFileError, ErrataError, UsageError
from errata.model.batch import FileFormat, FileVersion, SourceFile
from errata.model.feed import LandingFolder

MAX_PATH_LETTERS = 200
"""Letters of a path that a message shows; longer paths are cut, so that the rest of the message stays visible."""

_ACCOUNT = re.compile(r"(?<=//)[^/@]*@")
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_LOCAL = ("", "file", "local")


def display_path(path: object) -> str:
    """A path for messages, the catalog and JSON: with escapes for bytes that are not UTF-8, without the account of a
    URL, and cut if it is very long."""
    text = _ACCOUNT.sub("", utf8_path(path))
    return text if len(text) <= MAX_PATH_LETTERS else f"{text[:MAX_PATH_LETTERS]}… ({len(text):,} letters)"


def utf8_path(path: object) -> str:
    """A path as text that is UTF-8."""
    return str(path).encode("utf-8", errors="backslashreplace").decode()


@contextmanager
def path_errors(text: str) -> Iterator[None]:
    """Turns errors about a path or URL that cannot be accessed into errors in words."""
    try:
        yield
    except ErrataError:
        raise
    except ImportError as error:
        raise UsageError(
            f"{url_scheme(text) or 'such'}:// cannot be opened here: its driver is not installed",
            where=display_path(text),
            why=str(error),
            how="install the package that is named beside Errata, or bring the files into a folder of this machine",
        ) from None
    except ValueError as error:
        why = "it has a NUL in it" if "\0" in text else str(error)
        raise UsageError("this cannot be a path", where=display_path(text.replace("\0", "\\0")), why=why) from None
    except OSError as error:
        why = error.strerror or next(iter(str(error).splitlines()), type(error).__name__)
        raise UsageError("this cannot be looked at", where=display_path(text), why=why) from None


def url_scheme(text: str) -> str | None:
    """The scheme of a URL; None of a path."""
    found = _SCHEME.match(text)
    return found[1].lower() if found is not None else None


def is_local_path(path: UPath) -> bool:
    """Whether the path is of this machine's own file system."""
    return path.protocol in _LOCAL


def check_regular_file(path: UPath) -> None:
    """Refuse anything but a regular file: reading a pipe or a device may never end."""
    if not is_local_path(path):
        return
    kind = _special_kind(path.stat().st_mode)
    if kind is not None:
        raise BadFileError(
            f"this is {kind}, and no regular file", where=display_path(path), how="write its content into a file"
        )


def _special_kind(mode: int) -> str | None:
    """What a path is that is not a regular file; None for a regular file."""
    kinds = (
        (stat.S_ISDIR, "a folder"),
        (stat.S_ISFIFO, "a pipe"),
        (stat.S_ISSOCK, "a socket"),
        (stat.S_ISCHR, "a device"),
        (stat.S_ISBLK, "a device"),
    )
    return next((kind for test, kind in kinds if test(mode)), None)


# Files meant by names, folders and patterns, landed files, and what each file is.

TAKEN_FOLDER = "taken"
"""The folder in a landing folder to which ingested files are moved."""

_ENDINGS: dict[str, tuple[FileFormat, bool]] = {
    ".csv": (FileFormat.CSV, False),
    ".json": (FileFormat.JSON, False),
    ".jsonl": (FileFormat.JSON, False),
    ".ndjson": (FileFormat.JSON, False),
    ".parquet": (FileFormat.PARQUET, False),
    ".csv.gz": (FileFormat.CSV, True),
    ".json.gz": (FileFormat.JSON, True),
    ".jsonl.gz": (FileFormat.JSON, True),
    ".ndjson.gz": (FileFormat.JSON, True),
}
_UNFINISHED = (".tmp", ".part")
_CHUNK = 1 << 20
_THREADS = 4


def resolve_paths(paths: Sequence[str]) -> list[UPath]:
    """The files that the names, folders and patterns stand for, each once."""
    found: dict[str, UPath] = {}
    for path in paths:
        with path_errors(path):
            for file in _files_of(path):
                _format_of(file)
                found.setdefault(str(file), file)
    return list(found.values())


def list_landed(landing: LandingFolder) -> dict[UPath, tuple[int, int]]:
    """The files in the landing folder, with size and modification time. Anything that is not a regular file is
    included, so that it is reported; names without a known ending are ignored, so that a stray file does not block the
    rest."""
    folder = landing_folder(landing)
    with path_errors(landing.path):
        if not folder.is_dir():
            return {}
    with path_errors(landing.path):
        found = [
            file for file in _files_within(folder) if _relative_parts(folder, file)[0] != TAKEN_FOLDER and _ending(file)
        ]
        return {file: look for file in found if (look := file_stat(file)) is not None}


def landing_folder(landing: LandingFolder) -> UPath:
    """The folder, which need not exist yet; a file in its place is an error."""
    with path_errors(landing.path):
        folder = _absolute_path(landing.path)
        if folder.exists() and not folder.is_dir():
            raise ErrataError(
                "the landing folder is a file",
                where=display_path(folder),
                how="move it away, or name a folder (`landing:` in errata.yaml)",
            )
    return folder


def file_stat(path: UPath) -> tuple[int, int] | None:
    """A file's size, and its modification time in microseconds; None if it is gone."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    nanos = getattr(status, "st_mtime_ns", None)
    changed = int(nanos) // 1_000 if nanos is not None else int(status.st_mtime * 1_000_000)
    return int(status.st_size), changed


def inspect_file(path: UPath) -> SourceFile:
    """Inspect a file; its content is read once, in chunks."""
    kind, gzip = _format_of(path)
    if utf8_path(path) != str(path):
        raise BadFileError(
            "the file's name is not UTF-8", where=utf8_path(path), how="name it in UTF-8, or in plain letters"
        )
    digest, size = hashlib.sha256(), 0
    try:
        check_regular_file(path)
        _, changed = file_stat(path) or (0, 0)
        with path.open("rb") as content:
            while chunk := content.read(_CHUNK):
                digest.update(chunk)
                size += len(chunk)
    except OSError as error:
        raise BadFileError(
            "the file cannot be read", where=display_path(path), why=error.strerror or str(error)
        ) from error
    return SourceFile(str(path), kind, gzip, size, digest.hexdigest(), changed)


def is_unchanged(file: FileVersion) -> bool:
    """Whether size and modification time of a file are still those that were inspected."""
    return file_stat(UPath(file.name)) == (file.bytes, file.changed)


def inspect_files(paths: Iterable[UPath]) -> list[SourceFile]:
    """Inspect files; the result is sorted by name."""
    with ThreadPoolExecutor(_THREADS) as threads:
        return sorted(threads.map(inspect_file, paths), key=lambda file: file.name)


def inspect_or_fault(paths: Iterable[UPath]) -> list[tuple[UPath, SourceFile | BadFileError]]:
    """Inspect files; for each, what it is or why nothing of it can be ingested."""

    def told(path: UPath) -> tuple[UPath, SourceFile | BadFileError]:
        try:
            return path, inspect_file(path)
        except BadFileError as error:
            return path, error

    with ThreadPoolExecutor(_THREADS) as threads:
        return sorted(threads.map(told, paths), key=lambda found: str(found[0]))


def _absolute_path(path: str) -> UPath:
    # A worker may run in another folder, so local paths are made absolute here.
    return UPath(path).absolute()


def _files_of(text: str) -> list[UPath]:
    path = _absolute_path(text)
    if path.is_dir():
        files = _files_within(path)
    elif path.exists():
        return [path]
    elif glob.has_magic(text):
        files = sorted(
            (match for match in _glob_paths(text) if not match.is_dir() and _is_finished(match.name)), key=str
        )
    else:
        raise UsageError(f"there is no file {display_path(text)}")
    if not files:
        raise UsageError(
            f"{display_path(text)} has no files to take",
            how="names that begin with . or _ or end in .tmp or .part are passed over",
        )
    return files


def _glob_paths(pattern: str) -> list[UPath]:
    if "://" not in pattern:
        return [_absolute_path(match) for match in glob.glob(pattern, recursive=True)]  # noqa: PTH207 - keeps absolute patterns
    system, bare = fsspec.core.url_to_fs(pattern)
    return [UPath(system.unstrip_protocol(match)) for match in system.glob(bare)]


def _files_within(folder: UPath) -> list[UPath]:
    files = (file for file in folder.rglob("*") if all(_is_finished(part) for part in _relative_parts(folder, file)))
    return sorted((file for file in files if not file.is_dir()), key=str)


def _relative_parts(folder: UPath, file: UPath) -> list[str]:
    return [part for part in str(file)[len(str(folder)) :].split("/") if part]


def _is_finished(name: str) -> bool:
    return not name.startswith((".", "_")) and not name.endswith(_UNFINISHED)


def _ending(path: UPath) -> str | None:
    """The longest known ending of the file's name."""
    name = path.name.lower()
    return max((ending for ending in _ENDINGS if name.endswith(ending)), key=len, default=None)


def _format_of(path: UPath) -> tuple[FileFormat, bool]:
    ending = _ending(path)
    if ending is None:
        raise UsageError(
            f"{display_path(path.name)} is in no format that is known by its name",
            where=display_path(path),
            how=f"names end in {', '.join(_ENDINGS)}",
        )
    return _ENDINGS[ending]
