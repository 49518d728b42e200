"""The landing folder of a stream: which files are to be taken in, which are set aside, and what becomes of those that
were taken in.

A file of which nothing can be taken in is left where it lies, and the catalog says why. It is not tried again before
it has been written anew or a person retries it, so that it holds up neither other files nor other streams.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from upath import UPath

from errata.catalog import held_files
from errata.catalog.held_files import HeldFile
from errata.catalog.quarantine import State
from errata.catalog.streams import Standing
from errata.errors import BadFile, ErrataError, UsageError
from errata.flows.site import Site
from errata.intake.find import TAKEN, glance, inspect_each, landed, landing_folder, unchanged
from errata.intake.layout import read_layout
from errata.intake.places import escaped, shown
from errata.model.batch import SeenFile, SourceFile
from errata.model.revision import Op
from errata.model.stream import Landing, Stream, Then


@dataclass(frozen=True, slots=True)
class Folder:
    """What lies in a landing folder."""

    ready: list[UPath]
    """Files that have settled and are not held."""
    unsettled: list[UPath]
    """Files that changed a moment ago."""
    held: int
    """Files that are set aside and wait for a person."""
    no_longer_held: list[str]
    """Names of held files that are gone or have been written anew."""


def look(site: Site, of: Standing, stream: Stream, retried: Collection[str] = ()) -> Folder:
    """Look into the stream's landing folder; the held files named in `retried` are ready."""
    landing = _landing(stream)
    there = landed(landing)
    now = site.catalog.clock.now()
    all_held = held_files.held(site.catalog, stream_id=of.stream_id, settled=True)
    held = {each.seen for each in all_held}
    seen = {(escaped(path), *size_and_time): path for path, size_and_time in there.items()}
    free = [path for as_seen, path in seen.items() if as_seen not in held or as_seen[0] in retried]
    settled = {path for path in free if now - there[path][1] >= landing.settle}
    return Folder(
        [path for path in free if path in settled],
        [path for path in free if path not in settled],
        sum(each.state is State.HELD and each.seen in seen for each in all_held),
        [name for name, *rest in held if (name, *rest) not in seen],
    )


def inspect_landed(
    site: Site, of: Standing, stream: Stream, retried: Collection[str] = (), default_op: Op = Op.INSERT
) -> tuple[list[SourceFile], list[HeldFile]]:
    """The files that are ready, and those of which nothing can be taken in, which are now set aside."""
    folder = look(site, of, stream, retried)
    # A retry that is killed leaves the files to the next run.
    held_files.forget(site.catalog, of.stream_id, {*folder.no_longer_held, *retried})
    ready = [path for path in folder.ready if not retried or escaped(path) in retried]
    good: list[SourceFile] = []
    bad: list[HeldFile] = []
    for path, found in inspect_each(ready):
        fault = found if isinstance(found, BadFile) else _fault(found, of.stream, default_op)
        if fault is None and isinstance(found, SourceFile):
            good.append(found)
        elif fault is not None and (seen := glance(path)) is not None:  # else another run has taken it
            bad.append(_held(site, stream, escaped(path), seen, fault))
    held_files.set_aside(site.catalog, of.stream_id, bad)
    return good, bad


def set_aside(site: Site, of: Standing, files: Iterable[SourceFile], error: BadFile) -> list[HeldFile]:
    """Set those of the files aside that turned out to be bad when they were read; none if they have changed since."""
    faults = {each.where: each for each in (error, *error.also)}
    bad = [
        _held(site, of.stream, file.name, (file.bytes, file.changed), faults[file.name])
        for file in files
        if file.name in faults and unchanged(file)
    ]
    held_files.set_aside(site.catalog, of.stream_id, bad)
    return bad


def _fault(file: SourceFile, stream: Stream, default_op: Op) -> BadFile | None:
    """Why nothing of a file can be taken in, as far as its beginning tells."""
    try:
        read_layout(file, stream, default_op)
    except BadFile as error:
        return error
    return None


def _held(site: Site, stream: Stream, name: str, seen: tuple[int, int], fault: BadFile) -> HeldFile:
    reason = f"{fault.what}: {fault.why}" if fault.why else fault.what
    return HeldFile(stream.name, name, *seen, reason, fault.how, site.catalog.clock.now())


def clear(stream: Stream, files: Iterable[SeenFile]) -> None:
    """Move, delete or leave files whose rows are committed. Done again after a crash, it does what is left."""
    landing = _landing(stream)
    if landing.then is Then.KEEP:
        return
    for file in files:
        # A file that has been written anew under its old name has not been taken in: it stays, and is taken next.
        if not unchanged(file):
            continue
        path = UPath(file.name)
        try:
            if landing.then is Then.DELETE:
                path.unlink()
            else:
                target = _free_name(UPath(landing.path) / TAKEN / path.name, file.sha256)
                target.parent.mkdir(parents=True, exist_ok=True)
                path.rename(target)
        except FileNotFoundError:
            continue  # another run, which has found it taken in too, was quicker
        except OSError as error:
            raise _stuck(landing, path, error) from error


def put_away(stream: Stream, files: Iterable[SeenFile]) -> None:
    """Clear what is left in the landing folder of a batch that is about to be undone. What lies there afterwards has
    been put back by somebody, to be taken in again."""
    if stream.landing is not None:
        root = landing_root(stream)
        inside = [each for each in files if each.name.startswith(f"{root}/")]
        clear(stream, [each for each in inside if not each.name.startswith(f"{root}/{TAKEN}/")])


def _stuck(landing: Landing, path: UPath, error: OSError) -> ErrataError:
    taken = UPath(landing.path) / TAKEN
    if taken.exists() and not taken.is_dir():
        why, how = f"{shown(taken)} is a file, and taken files go into a folder of that name", "move that file away"
    else:
        why, how = error.strerror or str(error), "see that the landing folder can be written"
    return ErrataError(
        "the file has been taken in and cannot be put away",
        where=shown(path),
        why=why,
        how=f"{how}; the next run puts away what is left, and takes nothing in twice",
    )


def any_gone(files: Iterable[SourceFile]) -> bool:
    """Whether somebody has taken files away."""
    return not all(UPath(file.name).exists() for file in files)


def _free_name(target: UPath, sha256: str) -> UPath:
    """The name, or one that tells it from earlier files of the same name."""
    number = 0
    free = target
    while free.exists():
        number += 1
        mark = sha256[:12] if number == 1 else f"{sha256[:12]}-{number}"
        free = target.with_name(f"{mark}-{target.name}")
    return free


def taken_folder(stream: Stream) -> str | None:
    """Where the stream's landed files are put away; None where it has no landing folder."""
    return None if stream.landing is None else f"{landing_root(stream)}/{TAKEN}"


def landing_root(stream: Stream) -> str:
    """The landing folder as the names of its files begin."""
    return str(landing_folder(_landing(stream)))


def _landing(stream: Stream) -> Landing:
    if stream.landing is None:
        raise UsageError(
            f"stream {stream.name} has no landing folder",
            how=f"declare one (`landing:` under streams.{stream.name} in errata.yaml), or name the files",
        )
    return stream.landing
