"""Which files are meant by names, folders and patterns; what has landed; and what each file is."""

from __future__ import annotations

import glob
import hashlib
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor

import fsspec
from upath import UPath

from errata.errors import BadFile, ErrataError, UsageError
from errata.intake.places import check_regular, escaped, reaching, shown
from errata.model.batch import Format, SeenFile, SourceFile
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
        with reaching(path):
            for file in _files_of(path):
                _format_of(file)
                found.setdefault(str(file), file)
    return list(found.values())


def landed(landing: Landing) -> dict[UPath, tuple[int, int]]:
    """What lies in the landing folder, with size and modification time; what is no regular file, too, so that somebody
    is told of it.

    Names that do not end like a format are left where they are: a stray file must not hold up the rest.
    """
    folder = landing_folder(landing)
    with reaching(landing.path):
        if not folder.is_dir():
            return {}
    with reaching(landing.path):
        found = [file for file in _within(folder) if _parts(folder, file)[0] != TAKEN and _ending(file)]
        return {file: look for file in found if (look := glance(file)) is not None}


def landing_folder(landing: Landing) -> UPath:
    """The folder, which may not be there yet; what stands in its place is an error."""
    with reaching(landing.path):
        folder = _path(landing.path)
        if folder.exists() and not folder.is_dir():
            raise ErrataError(
                "the landing folder is a file",
                where=shown(folder),
                how="move it away, or name a folder (`landing:` in errata.yaml)",
            )
    return folder


def glance(path: UPath) -> tuple[int, int] | None:
    """A file's size, and when it last changed in microseconds; None when it is gone."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    nanos = getattr(status, "st_mtime_ns", None)
    changed = int(nanos) // 1_000 if nanos is not None else int(status.st_mtime * 1_000_000)
    return int(status.st_size), changed


def inspect(path: UPath) -> SourceFile:
    """What the file is; its content is read once, a little at a time."""
    kind, gzip = _format_of(path)
    if escaped(path) != str(path):
        raise BadFile("the file's name is not UTF-8", where=escaped(path), how="name it in UTF-8, or in plain letters")
    digest, size = hashlib.sha256(), 0
    try:
        check_regular(path)
        _, changed = glance(path) or (0, 0)
        with path.open("rb") as content:
            while chunk := content.read(_CHUNK):
                digest.update(chunk)
                size += len(chunk)
    except OSError as error:
        raise BadFile("the file cannot be read", where=shown(path), why=error.strerror or str(error)) from error
    return SourceFile(str(path), kind, gzip, size, digest.hexdigest(), changed)


def unchanged(file: SeenFile) -> bool:
    """Whether the file still is the one that was inspected, by its size and the time of its last change."""
    return glance(UPath(file.name)) == (file.bytes, file.changed)


def inspect_all(paths: Iterable[UPath]) -> list[SourceFile]:
    """What the files are, sorted by name."""
    with ThreadPoolExecutor(_THREADS) as threads:
        return sorted(threads.map(inspect, paths), key=lambda file: file.name)


def inspect_each(paths: Iterable[UPath]) -> list[tuple[UPath, SourceFile | BadFile]]:
    """The same of files that need not be sound: what each is, or why nothing of it can be taken in."""

    def told(path: UPath) -> tuple[UPath, SourceFile | BadFile]:
        try:
            return path, inspect(path)
        except BadFile as error:
            return path, error

    with ThreadPoolExecutor(_THREADS) as threads:
        return sorted(threads.map(told, paths), key=lambda found: str(found[0]))


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
        files = sorted((match for match in _matches(text) if not match.is_dir() and _finished(match.name)), key=str)
    else:
        raise UsageError(f"there is no file {shown(text)}")
    if not files:
        raise UsageError(
            f"{shown(text)} has no files to take",
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
    return sorted((file for file in files if not file.is_dir()), key=str)


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
            f"{shown(path.name)} is in no format that is known by its name",
            where=shown(path),
            how=f"names end in {', '.join(_ENDINGS)}",
        )
    return _ENDINGS[ending]
