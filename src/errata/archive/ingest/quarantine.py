"""Rows and landed files in quarantine: selected, listed and dropped.

Retrying them is in `ingest.retry`, which needs the whole of ingest; this module does not load PySpark, so that
`errata quarantine ls` starts fast.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from errata.catalog import quarantine, streams
from errata.catalog.quarantine import QuarantineConflict, QuarantineFile, QuarantineRow, QuarantineState
from errata.declare.site import Site
from errata.errors import ErrataError, UsageError
from errata.intake.files import utf8_path
from errata.model.stream import Stream

SHOWN_IDS = 10
"""Ids that an error names as candidates."""


@dataclass(frozen=True, slots=True)
class QuarantineSelection:
    """Which rows and files in quarantine are meant: all that are held of a stream and meet the conditions given. A file
    belongs to no batch and has no id."""

    stream: str
    batch_id: str | None = None
    ids: tuple[int, ...] = ()
    reason: str | None = None
    """A text that the reason contains, ignoring case."""
    file: str | None = None
    """The name of a held file, or of the file that rows came from."""


@dataclass(frozen=True, slots=True)
class QuarantineItems:
    """The rows and files that are meant."""

    stream_id: int
    stream: Stream
    rows: Sequence[QuarantineRow]
    settled: Sequence[QuarantineRow]
    """Rows asked for by id that were retried or dropped before."""
    files: Sequence[QuarantineFile] = ()
    """Held files: landed files of which nothing could be ingested."""

    @property
    def is_empty(self) -> bool:
        return not (self.rows or self.files)


def select_items(site: Site, selection: QuarantineSelection) -> QuarantineItems:
    """The selected rows and files. An id of no row, or of another stream's row, is an error."""
    standing = streams.stream_state(site.catalog, selection.stream)
    settled = _check_ids(site, selection, standing.stream_id)
    rows = quarantine.quarantined_rows(
        site.catalog,
        stream_id=standing.stream_id,
        batch_id=selection.batch_id,
        ids=selection.ids,
        reason=selection.reason,
    )
    files: list[QuarantineFile] = []
    if selection.batch_id is None and not selection.ids:
        files = quarantine.quarantined_files(site.catalog, stream_id=standing.stream_id, reason=selection.reason)
    if selection.file is not None:
        rows = [each for each in rows if _is_file_named(each.row.file, selection.file)]
        files = [each for each in files if _is_file_named(each.name, selection.file)]
    return QuarantineItems(standing.stream_id, standing.stream, rows, settled, files)


@dataclass(frozen=True, slots=True)
class QuarantineFilter:
    """Which rows and files in quarantine to list; of all streams, unless one is named."""

    stream: str | None = None
    batch_id: str | None = None
    reason: str | None = None
    file: str | None = None
    settled: bool = False
    """Whether to include rows and files that were retried or dropped."""


def list_items(
    site: Site, wanted: QuarantineFilter, last: int | None = None
) -> tuple[list[QuarantineRow], list[QuarantineFile]]:
    """The last rows, and all files, that meet the filter, oldest first."""
    if wanted.stream is not None:
        streams.check_stream_known(site.catalog, wanted.stream)
    rows = quarantine.quarantined_rows(
        site.catalog,
        stream=wanted.stream,
        batch_id=wanted.batch_id,
        reason=wanted.reason,
        settled=wanted.settled,
        last=None if wanted.file is not None else last,
    )
    files: list[QuarantineFile] = []
    if wanted.batch_id is None:
        files = quarantine.quarantined_files(
            site.catalog, stream=wanted.stream, reason=wanted.reason, settled=wanted.settled
        )
    if wanted.file is not None:
        rows = [each for each in rows if _is_file_named(each.row.file, wanted.file)]
        rows = rows if last is None else rows[-last:]
        files = [each for each in files if _is_file_named(each.name, wanted.file)]
    return rows, files


def drop_items(site: Site, selected: QuarantineItems) -> int:
    """Drop the rows and files from quarantine, and return the commit. The files stay where they are."""
    ids = [each.quarantine_id for each in selected.rows]
    names = [each.name for each in selected.files]
    try:
        return quarantine.drop_quarantined(
            site.catalog, selected.stream_id, ids, site.caused_by("quarantine-drop"), names
        )
    except QuarantineConflict:
        raise settled_error(selected.stream) from None


def settled_error(stream: Stream) -> ErrataError:
    return ErrataError(
        f"somebody else has just settled some of this of {stream.name}; nothing was done",
        how=f"look at what is left, `errata quarantine ls {stream.name}`, and run it again",
    )


def _is_file_named(file: str, said: str) -> bool:
    """Whether a text names the file: by relative path, by absolute path, or by its last part."""
    return said in (file, file.rpartition("/")[2]) or utf8_path(Path(said).absolute()) == file


def _check_ids(site: Site, selection: QuarantineSelection, stream_id: int) -> list[QuarantineRow]:
    """Those of the ids whose rows have been settled."""
    if not selection.ids:
        return []
    found = {
        each.quarantine_id: each for each in quarantine.quarantined_rows(site.catalog, ids=selection.ids, settled=True)
    }
    of_stream = quarantine.quarantined_rows(site.catalog, stream_id=stream_id, ids=selection.ids, settled=True)
    ours = {each.quarantine_id for each in of_stream}
    for wanted in selection.ids:
        if wanted not in found:
            raise UsageError(f"there is no row {wanted} in quarantine", how=_id_candidates(site, selection, stream_id))
        if wanted not in ours:
            other = found[wanted].stream
            of = f"stream {other}, not of {selection.stream}" if other != selection.stream else "a stream now dropped"
            raise UsageError(f"row {wanted} in quarantine is of {of}", how=_id_candidates(site, selection, stream_id))
    return [each for each in of_stream if each.state is not QuarantineState.HELD]


def _id_candidates(site: Site, selection: QuarantineSelection, stream_id: int) -> str:
    last = quarantine.quarantined_rows(site.catalog, stream_id=stream_id, last=SHOWN_IDS)
    if not last:
        return f"{selection.stream} has no rows in quarantine"
    ids = ", ".join(str(each.quarantine_id) for each in last)
    return f"held of {selection.stream}: {ids}; `errata quarantine ls {selection.stream}` lists them all"
