"""Which files are meant by names, folders and patterns; what has landed; and what each file is."""

from __future__ import annotations

import glob
import hashlib
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor

import fsspec
from upath import UPath

from errata.errors import ErrataError, UsageError
from errata.model.batch import Format, SourceFile
from errata.model.stream import Landing

TAKEN = "taken"
"""Where in a landing folder the files go that have been taken in."""

_ENDINGS: dict[str, tuple[Format, bool]] = {
    ".csv": (Format.CSV, False),
    ".json": (Format.JSON, False),
    ".jsonl": (Format.JSON, False),
    ".ndjson": (Format.JSON, False),
    ".parquet": (Format.PARQUET, False),
    ".csv.gz": (Format.CSV, True),
    ".json.gz": (Format.JSON, True),
    ".jsonl.gz": (Format.JSON, True),
    ".ndjson.gz": (Format.JSON, True),
}
_UNFINISHED = (".tmp", ".part")
_CHUNK = 1 << 20
_THREADS = 4


def resolve(paths: Sequence[str]) -> list[UPath]:
    """The files that the names, folders and patterns stand for, each once."""
    found: dict[str, UPath] = {}
    for path in paths:
        for file in _files_of(path):
            _format_of(file)
            found.setdefault(str(file), file)
    return list(found.values())


def landed(landing: Landing, now: int) -> list[UPath]:
    """The files of the landing folder that have not changed for its `settle` time.

    Names that do not end like a format are left where they are: a stray file must not hold up the rest.
    """
    folder = _path(landing.path)
    if not folder.is_dir():
        return []
    return [
        file
        for file in _within(folder)
        if _parts(folder, file)[0] != TAKEN and _ending(file) and now - _changed(file) >= landing.settle
    ]


def inspect(path: UPath) -> SourceFile:
    """What the file is; its content is read once, a little at a time."""
    kind, gzip = _format_of(path)
    digest, size = hashlib.sha256(), 0
    try:
        changed = _changed(path)
        with path.open("rb") as content:
            while chunk := content.read(_CHUNK):
                digest.update(chunk)
                size += len(chunk)
    except OSError as error:
        raise ErrataError("the file cannot be read", where=str(path), why=str(error)) from error
    return SourceFile(str(path), kind, gzip, size, digest.hexdigest(), changed)


def unchanged(file: SourceFile) -> bool:
    """Whether the file still is the one that was inspected, by its size and the time of its last change."""
    path = UPath(file.name)
    try:
        return path.stat().st_size == file.bytes and _changed(path) == file.changed
    except FileNotFoundError:
        return False


def inspect_all(paths: Iterable[UPath]) -> list[SourceFile]:
    """What the files are, sorted by name."""
    with ThreadPoolExecutor(_THREADS) as threads:
        return sorted(threads.map(inspect, paths), key=lambda file: file.name)


def _path(path: str) -> UPath:
    # A worker may run in another folder, so a local path is made whole here.
    return UPath(path).absolute()


def _files_of(text: str) -> list[UPath]:
    path = _path(text)
    if path.is_dir():
        files = _within(path)
    elif path.exists():
        return [path]
    elif glob.has_magic(text):
        files = sorted((match for match in _matches(text) if match.is_file() and _finished(match.name)), key=str)
    else:
        raise UsageError(f"there is no file {text}")
    if not files:
        raise UsageError(
            f"{text} has no files to take",
            how="names that begin with . or _ or end in .tmp or .part are passed over",
        )
    return files


def _matches(pattern: str) -> list[UPath]:
    if "://" not in pattern:
        return [_path(match) for match in glob.glob(pattern, recursive=True)]  # noqa: PTH207 - keeps absolute patterns
    system, bare = fsspec.core.url_to_fs(pattern)
    return [UPath(system.unstrip_protocol(match)) for match in system.glob(bare)]


def _within(folder: UPath) -> list[UPath]:
    files = (file for file in folder.rglob("*") if all(_finished(part) for part in _parts(folder, file)))
    return sorted((file for file in files if file.is_file()), key=str)


def _parts(folder: UPath, file: UPath) -> list[str]:
    return [part for part in str(file)[len(str(folder)) :].split("/") if part]


def _finished(name: str) -> bool:
    return not name.startswith((".", "_")) and not name.endswith(_UNFINISHED)


def _ending(path: UPath) -> str | None:
    """The longest known ending of the file's name."""
    name = path.name.lower()
    return max((ending for ending in _ENDINGS if name.endswith(ending)), key=len, default=None)


def _format_of(path: UPath) -> tuple[Format, bool]:
    ending = _ending(path)
    if ending is None:
        raise UsageError(
            f"{path.name} is in no format that is known by its name",
            where=str(path),
            how=f"names end in {', '.join(_ENDINGS)}",
        )
    return _ENDINGS[ending]


def _changed(path: UPath) -> int:
    """When the file last changed, in microseconds."""
    status = path.stat()
    nanos = getattr(status, "st_mtime_ns", None)
    return int(nanos) // 1_000 if nanos is not None else int(status.st_mtime * 1_000_000)
