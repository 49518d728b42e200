"""Rows and landed files in quarantine: which ones are meant, and giving them up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from errata.catalog import held_files, quarantine, streams
from errata.catalog.held_files import HeldFile
from errata.catalog.quarantine import Held, SettledError, State
from errata.errors import ErrataError, UsageError
from errata.flows.site import Site
from errata.intake.places import escaped
from errata.model.stream import Stream

SHOWN = 10
"""Ids that an error names as candidates."""


@dataclass(frozen=True, slots=True)
class Selection:
    """What in quarantine is meant: all that is held of a stream, rows and files, or what of it fits what is told. A
    file is of no batch and has no id."""

    stream: str
    batch_id: str | None = None
    ids: tuple[int, ...] = ()
    reason: str | None = None
    """A text that is in the reason, in upper or lower case."""
    file: str | None = None
    """A file: one that was set aside, or the one in which rows stood."""


@dataclass(frozen=True, slots=True)
class Selected:
    """The rows and files that are meant."""

    stream_id: int
    stream: Stream
    rows: Sequence[Held]
    settled: Sequence[Held]
    """Rows asked for by id that were retried or dropped before."""
    files: Sequence[HeldFile] = ()
    """Landed files of which nothing could be taken in."""

    @property
    def nothing(self) -> bool:
        return not (self.rows or self.files)


def select(site: Site, selection: Selection) -> Selected:
    """The rows that are meant; an id that is of no row, or of another stream's, is refused."""
    standing = streams.standing(site.catalog, selection.stream)
    settled = _check_ids(site, selection, standing.stream_id)
    rows = quarantine.held(
        site.catalog,
        stream_id=standing.stream_id,
        batch_id=selection.batch_id,
        ids=selection.ids,
        reason=selection.reason,
    )
    files: list[HeldFile] = []
    if selection.batch_id is None and not selection.ids:
        files = held_files.held(site.catalog, stream_id=standing.stream_id, reason=selection.reason)
    if selection.file is not None:
        rows = [each for each in rows if _is_named(each.row.file, selection.file)]
        files = [each for each in files if _is_named(each.name, selection.file)]
    return Selected(standing.stream_id, standing.stream, rows, settled, files)


@dataclass(frozen=True, slots=True)
class Listed:
    """Which rows and files in quarantine are to be listed; of all streams, unless one is named."""

    stream: str | None = None
    batch_id: str | None = None
    reason: str | None = None
    file: str | None = None
    settled: bool = False
    """Also what was retried or dropped."""


def listed(site: Site, wanted: Listed, last: int | None = None) -> tuple[list[Held], list[HeldFile]]:
    """The last rows and all files that are wanted, oldest first."""
    if wanted.stream is not None:
        streams.check_known(site.catalog, wanted.stream)
    rows = quarantine.held(
        site.catalog,
        stream=wanted.stream,
        batch_id=wanted.batch_id,
        reason=wanted.reason,
        settled=wanted.settled,
        last=None if wanted.file is not None else last,
    )
    files: list[HeldFile] = []
    if wanted.batch_id is None:
        files = held_files.held(site.catalog, stream=wanted.stream, reason=wanted.reason, settled=wanted.settled)
    if wanted.file is not None:
        rows = [each for each in rows if _is_named(each.row.file, wanted.file)]
        rows = rows if last is None else rows[-last:]
        files = [each for each in files if _is_named(each.name, wanted.file)]
    return rows, files


def drop(site: Site, selected: Selected) -> int:
    """Give the rows and files up for good; the commit that does it. The files stay where they are."""
    ids = [each.quarantine_id for each in selected.rows]
    names = [each.name for each in selected.files]
    try:
        return quarantine.drop(site.catalog, selected.stream_id, ids, site.caused_by("quarantine-drop"), names)
    except SettledError:
        raise settled_meanwhile(selected.stream) from None


def settled_meanwhile(stream: Stream) -> ErrataError:
    return ErrataError(
        f"somebody else has just settled some of this of {stream.name}; nothing was done",
        how=f"look at what is left, `errata quarantine ls {stream.name}`, and run it again",
    )


def _is_named(file: str, said: str) -> bool:
    """Whether a person means the file: by its path from here, by all of it, or by its name."""
    return said in (file, file.rpartition("/")[2]) or escaped(Path(said).absolute()) == file


def _check_ids(site: Site, selection: Selection, stream_id: int) -> list[Held]:
    """Those of the ids whose rows have been settled."""
    if not selection.ids:
        return []
    found = {each.quarantine_id: each for each in quarantine.held(site.catalog, ids=selection.ids, settled=True)}
    of_stream = quarantine.held(site.catalog, stream_id=stream_id, ids=selection.ids, settled=True)
    ours = {each.quarantine_id for each in of_stream}
    for wanted in selection.ids:
        if wanted not in found:
            raise UsageError(f"there is no row {wanted} in quarantine", how=_candidates(site, selection, stream_id))
        if wanted not in ours:
            other = found[wanted].stream
            of = f"stream {other}, not of {selection.stream}" if other != selection.stream else "a stream now dropped"
            raise UsageError(f"row {wanted} in quarantine is of {of}", how=_candidates(site, selection, stream_id))
    return [each for each in of_stream if each.state is not State.HELD]


def _candidates(site: Site, selection: Selection, stream_id: int) -> str:
    last = quarantine.held(site.catalog, stream_id=stream_id, last=SHOWN)
    if not last:
        return f"{selection.stream} has no rows in quarantine"
    ids = ", ".join(str(each.quarantine_id) for each in last)
    return f"held of {selection.stream}: {ids}; `errata quarantine ls {selection.stream}` lists them all"
