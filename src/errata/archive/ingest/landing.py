"""Landing folders and deliveries: which files are new, which are held back, and what becomes of files that were
ingested.

A file of which nothing can be ingested is held: it stays in the folder, and the catalog has the reason. It is not tried
again before it is rewritten or a person retries it, so that it blocks neither other files nor other streams.

A delivery is one file as it came with one batch, and is ingested once. Equal content alone does not make two files one
delivery: a file that repeats an earlier one is a new fact unless it is the same file again. A batch with a given id is
known by its id alone; otherwise a named file is known by name and content, a landed file also by its modification time.
What an undone batch had delivered may be delivered again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from upath import UPath

from errata.catalog import ledger, quarantine, streams
from errata.catalog.ledger import LedgerBatch
from errata.catalog.quarantine import QuarantineFile, QuarantineState
from errata.catalog.streams import StreamState
from errata.declare.site import Site
from errata.errors import BadFileError, ErrataError, RefusedError, UsageError
from errata.intake.files import (
    TAKEN_FOLDER,
    display_path,
    file_stat,
    inspect_or_fault,
    is_unchanged,
    landing_folder,
    list_landed,
    utf8_path,
)
from errata.intake.layout import read_layout
from errata.model.batch import Batch, Delivery, FileVersion, Op, SourceFile, check_batch_id, content_hash, delivery_hash
from errata.model.feed import LandedFileAction, LandingFolder
from errata.model.stream import Stream
from errata.model.time import HIGHEST


@dataclass(frozen=True, slots=True)
class LandingListing:
    """The files in a landing folder."""

    ready: list[UPath]
    """Files that have settled and are not held."""
    unsettled: list[UPath]
    """Files that changed a moment ago."""
    held: int
    """How many files are held for a person to look at."""
    no_longer_held: list[str]
    """Names of held files that are gone or were rewritten."""


def inspect_landing(site: Site, of: StreamState, stream: Stream, retried: Collection[str] = ()) -> LandingListing:
    """List the stream's landing folder, or those of its feeds. Held files named in `retried` count as ready."""
    _check_has_folder(stream)
    detached = detached_feeds(site, of)
    there: dict[UPath, tuple[int, int]] = {}
    settle: dict[UPath, int] = {}
    for feed, landing in stream.folders:
        found = list_landed(landing)
        there |= found
        settle |= dict.fromkeys(found, HIGHEST if feed in detached else landing.settle)
    now = site.catalog.clock.now()
    all_held = quarantine.quarantined_files(site.catalog, stream_id=of.stream_id, settled=True)
    held = {each.seen for each in all_held}
    seen = {(utf8_path(path), *size_and_time): path for path, size_and_time in there.items()}
    free = [path for as_seen, path in seen.items() if as_seen not in held or as_seen[0] in retried]
    settled = {path for path in free if now - there[path][1] >= settle[path]}
    return LandingListing(
        [path for path in free if path in settled],
        [path for path in free if path not in settled and settle[path] < HIGHEST],
        sum(each.state is QuarantineState.HELD and each.seen in seen for each in all_held),
        [name for name, *rest in held if (name, *rest) not in seen],
    )


def detached_feeds(site: Site, of: StreamState) -> frozenset[str]:
    """The feeds of the stream that are detached: what lands of them is left where it is."""
    if of.stream.merged.is_empty:
        return frozenset()
    from errata.catalog.feeds import feeds_of  # noqa: PLC0415 - most streams have no feeds

    return frozenset(each.name for each in feeds_of(site.catalog, of.stream_id) if not each.attached)


def unsettled_file_count(site: Site, name: str) -> int:
    """Files of the stream's landing folder that wait until they have been left unchanged for `settle`."""
    stream = site.project.streams[name]
    if not stream.folders:
        return 0
    return len(inspect_landing(site, streams.stream_state(site.catalog, name), stream).unsettled)


def inspect_ready_files(
    site: Site, of: StreamState, stream: Stream, retried: Collection[str] = (), default_op: Op = Op.INSERT
) -> tuple[list[SourceFile], list[QuarantineFile]]:
    """The files that are ready; and those of which nothing can be ingested, which this records as held."""
    folder = inspect_landing(site, of, stream, retried)
    # If a retry is killed after this, the next run takes the files.
    quarantine.forget_quarantined_files(site.catalog, of.stream_id, {*folder.no_longer_held, *retried})
    ready = [path for path in folder.ready if not retried or utf8_path(path) in retried]
    good: list[SourceFile] = []
    bad: list[QuarantineFile] = []
    for path, inspected in inspect_or_fault(ready):
        found = (
            replace(inspected, feed=feed_of(stream, inspected.name)) if isinstance(inspected, SourceFile) else inspected
        )
        fault = found if isinstance(found, BadFileError) else _file_fault(found, of.stream, default_op)
        if fault is None and isinstance(found, SourceFile):
            good.append(found)
        elif fault is not None and (seen := file_stat(path)) is not None:  # else another run has taken it
            bad.append(_held_file(site, stream, utf8_path(path), seen, fault))
    quarantine.quarantine_files(site.catalog, of.stream_id, bad)
    return good, bad


def hold_files(site: Site, of: StreamState, files: Iterable[SourceFile], error: BadFileError) -> list[QuarantineFile]:
    """Hold the files that turned out to be bad when they were read, unless they have changed since."""
    faults = {each.where: each for each in (error, *error.also)}
    bad = [
        _held_file(site, of.stream, file.name, (file.bytes, file.changed), faults[file.name])
        for file in files
        if file.name in faults and is_unchanged(file)
    ]
    quarantine.quarantine_files(site.catalog, of.stream_id, bad)
    return bad


def _file_fault(file: SourceFile, stream: Stream, default_op: Op) -> BadFileError | None:
    """Why nothing of a file can be ingested, as far as its beginning tells."""
    try:
        read_layout(file, stream.as_fed, default_op)
    except BadFileError as error:
        return error
    return None


def _held_file(site: Site, stream: Stream, name: str, seen: tuple[int, int], fault: BadFileError) -> QuarantineFile:
    reason = f"{fault.what}: {fault.why}" if fault.why else fault.what
    return QuarantineFile(stream.name, name, *seen, reason, fault.how, site.catalog.clock.now())


def clear_files(stream: Stream, files: Iterable[FileVersion]) -> None:
    """Move, delete or leave files whose rows are committed. It is repeated safely after a crash."""
    for file in files:
        landing = _folder_of(stream, file.name)
        if landing is None or landing.then is LandedFileAction.KEEP:
            continue
        # A file that was rewritten under its old name has not been ingested: it stays for the next batch.
        if not is_unchanged(file):
            continue
        path = UPath(file.name)
        try:
            if landing.then is LandedFileAction.DELETE:
                path.unlink()
            else:
                target = _free_name(UPath(landing.path) / TAKEN_FOLDER / path.name, file.sha256)
                target.parent.mkdir(parents=True, exist_ok=True)
                path.rename(target)
        except FileNotFoundError:
            continue  # another run, which found it ingested too, was first
        except OSError as error:
            raise _clear_error(landing, path, error) from error


def clear_batch_files(stream: Stream, files: Iterable[FileVersion]) -> None:
    """Clear what is left in the landing folder of a batch that is about to be undone: files found there later were put
    back to be ingested again."""
    for _, landing in stream.folders:
        root = str(landing_folder(landing))
        inside = [each for each in files if each.name.startswith(f"{root}/")]
        clear_files(stream, [each for each in inside if not each.name.startswith(f"{root}/{TAKEN_FOLDER}/")])


def _clear_error(landing: LandingFolder, path: UPath, error: OSError) -> ErrataError:
    taken = UPath(landing.path) / TAKEN_FOLDER
    if taken.exists() and not taken.is_dir():
        why, how = (
            f"{display_path(taken)} is a file, and taken files go into a folder of that name",
            "move that file away",
        )
    else:
        why, how = error.strerror or str(error), "see that the landing folder can be written"
    return ErrataError(
        "the file has been taken in and cannot be put away",
        where=display_path(path),
        why=why,
        how=f"{how}; the next run puts away what is left, and takes nothing in twice",
    )


def any_missing(files: Iterable[SourceFile]) -> bool:
    """Whether some of the files are gone."""
    return not all(UPath(file.name).exists() for file in files)


def _free_name(target: UPath, sha256: str) -> UPath:
    """The name, or one that differs from those of earlier files with the same name."""
    number = 0
    free = target
    while free.exists():
        number += 1
        mark = sha256[:12] if number == 1 else f"{sha256[:12]}-{number}"
        free = target.with_name(f"{mark}-{target.name}")
    return free


def _folder_of(stream: Stream, name: str) -> LandingFolder | None:
    """The landing folder that a file lies in."""
    inside = [
        (len(root), landing)
        for _, landing in stream.folders
        if name.startswith(f"{(root := str(landing_folder(landing)))}/")
    ]
    return max(inside, key=lambda each: each[0])[1] if inside else None


def feed_of(stream: Stream, name: str) -> str | None:
    """The feed into whose landing folder a file has been put; None if it lies in none."""
    landing = _folder_of(stream, name)
    return None if landing is None else next(feed for feed, each in stream.folders if each is landing)


def _check_has_folder(stream: Stream) -> None:
    if not stream.folders:
        place = "one of its feeds" if stream.merged.feeds else f"streams.{stream.name}"
        raise UsageError(
            f"stream {stream.name} has no landing folder",
            how=f"declare one (`landing:` under {place} in errata.yaml), or name the files",
        )


# New files in the landing folders of all streams.


@dataclass(frozen=True, slots=True)
class LandedFiles:
    """Files that can be ingested, by stream; false if there are none."""

    files: Mapping[str, tuple[tuple[str, int], ...]]
    """Their names and sizes."""

    def __bool__(self) -> bool:
        return bool(self.files)

    @property
    def to_json(self) -> dict[str, object]:
        """For JSON: counts of files, and a fingerprint that changes with the set of files."""
        text = "\n".join(f"{stream} {name} {size}" for stream, some in self.files.items() for name, size in some)
        counts = {stream: len(some) for stream, some in self.files.items()}
        return {"streams": counts, "fingerprint": hashlib.sha256(text.encode()).hexdigest()[:16] if text else ""}


def find_landed(site: Site) -> LandedFiles:
    """The landed files that have not been ingested."""
    found = ((each.stream.name, _new_landed(site, each)) for each in streams.stream_states(site.catalog))
    return LandedFiles({name: files for name, files in found if files})


def new_files(site: Site, of: StreamState, files: Iterable[UPath]) -> list[tuple[str, int]]:
    """The files, of some in a stream's landing folder, that have not been ingested, with their sizes."""
    found = [(utf8_path(file), *look) for file in files if (look := file_stat(file)) is not None]
    if all(landing.then is not LandedFileAction.KEEP for _, landing in of.stream.folders):
        return [(name, size) for name, size, _ in found]
    # Files that stay in the folder are known by name, size and time; reading them all would take too long here.
    known = ledger.known_files(site.catalog, of.stream_id, [name for name, *_ in found])
    return [
        (name, size)
        for name, size, changed in found
        if (name, size, changed) not in known and (name, size, None) not in known
    ]


def _new_landed(site: Site, of: StreamState) -> tuple[tuple[str, int], ...]:
    folders = [landing for _, landing in of.stream.folders]
    try:
        if not any(list_landed(landing) for landing in folders):
            return ()  # the frequent case: the catalog need not be asked
        return tuple(sorted(new_files(site, of, inspect_landing(site, of, of.stream).ready)))
    except ErrataError:
        # The next ingest reports what is wrong with the folder.
        return ((folders[0].path, 0),)


# Which files of a batch are new, and under which id it is ingested.


def name_new_files(
    site: Site, of: StreamState, files: Sequence[SourceFile], *, landed: bool
) -> tuple[Batch | None, list[tuple[SourceFile, Delivery]]]:
    """The batch of the files that are new, if any; and those that have been delivered before."""
    earlier = ledger.deliveries(site.catalog, of.stream_id, [file.sha256 for file in files])
    folders = dict(of.stream.folders)
    known = []
    new = []
    for file in files:
        landing = folders.get(file.feed)
        root = None if landing is None else str(landing_folder(landing))
        # A file that stays in the folder must not come again after an undo: the undo would last until the next run.
        final = landed and landing is not None and landing.then is LandedFileAction.KEEP
        counting = [each for each in earlier if final or each.undone_in is None]
        put_away = None if root is None else f"{root}/{TAKEN_FOLDER}"
        within = root if landed else None
        delivery = next((each for each in reversed(counting) if each.is_of(file, within, put_away)), None)
        if delivery is None:
            new.append(file)
        else:
            known.append((file, delivery))
    contents = frozenset(file.sha256 for file in new)
    batch = name_files(site, of, new, landed=landed) if new else None
    repeated = [each for each in earlier if each.sha256 in contents]
    return None if batch is None else replace(batch, guarded=contents, earlier=repeated), known


def name_files(site: Site, of: StreamState, files: Sequence[SourceFile], *, landed: bool = False) -> Batch:
    """The batch of some files without a given id. If an undone batch had the same, it repeats that batch."""
    return _as_repeated_take(site, of, Batch(delivery_hash(files, landed=landed), content_hash(files), files))


def name_files_as(site: Site, of: StreamState, files: Sequence[SourceFile], batch_id: str) -> Batch | LedgerBatch:
    """The files under the id that was given, or the batch of that id if it was ingested and not undone."""
    content = content_hash(files)
    takes = ledger.batch_takes(site.catalog, of.stream_id, check_batch_id(batch_id))
    for each in takes:
        if each.content_hash != content:
            raise changed_content_error(each)
    standing = [each for each in takes if each.undone_in is None]
    if standing:
        return standing[-1]
    earlier = ledger.deliveries(site.catalog, of.stream_id, [file.sha256 for file in files])
    return _as_repeated_take(site, of, Batch(batch_id, content, files, earlier=earlier))


def _as_repeated_take(site: Site, of: StreamState, wanted: Batch) -> Batch:
    takes = ledger.batch_takes(site.catalog, of.stream_id, wanted.batch_id)
    if not takes:
        return wanted
    free = ledger.next_take_id(site.catalog, of.stream_id, wanted.batch_id)
    return replace(wanted, batch_id=free, again_of=takes[0].batch_no)


def changed_content_error(taken: LedgerBatch) -> RefusedError:
    """That an id has been given to two contents."""
    undone = f"; it was undone in commit {taken.undone_in}" if taken.undone_in is not None else ""
    return RefusedError(
        f"batch {taken.batch_id} was taken in before, with other content",
        why=f"commit {taken.commit_id} holds what it said then{undone}",
        how="give these files a batch id of their own; corrections of rows go in as rows with _op",
    )


def earlier_undone(repeated: Iterable[Delivery]) -> dict[str, int]:
    """The batches that said the same and have been undone, and the commits that did it."""
    return {each.batch_id: each.undone_in for each in repeated if each.undone_in is not None}


def earlier_live(repeated: Iterable[Delivery]) -> list[str]:
    """The batches that said the same, and still stand."""
    return list(dict.fromkeys(each.batch_id for each in repeated if each.undone_in is None))
