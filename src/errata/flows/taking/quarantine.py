"""Rows in quarantine: which ones are meant, and giving them up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from errata.catalog import quarantine, streams
from errata.catalog.quarantine import Held, SettledError, State
from errata.errors import ErrataError, UsageError
from errata.flows.site import Site
from errata.model.stream import Stream

SHOWN = 10
"""Ids that an error names as candidates."""


@dataclass(frozen=True, slots=True)
class Selection:
    """Which rows in quarantine are meant: all that are held of a stream, or those of them that fit what is told."""

    stream: str
    batch_id: str | None = None
    ids: tuple[int, ...] = ()
    reason: str | None = None
    """A text that is in the reason, in upper or lower case."""


@dataclass(frozen=True, slots=True)
class Selected:
    """The rows that are meant."""

    stream_id: int
    stream: Stream
    rows: Sequence[Held]
    settled: Sequence[Held]
    """Rows asked for by id that were retried or dropped before."""


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
    return Selected(standing.stream_id, standing.stream, rows, settled)


def drop(site: Site, selected: Selected) -> int:
    """Give the rows up for good; the commit that does it."""
    ids = [each.quarantine_id for each in selected.rows]
    try:
        return quarantine.drop(site.catalog, selected.stream_id, ids, site.caused_by("quarantine-drop"))
    except SettledError:
        raise settled_meanwhile(selected.stream) from None


def settled_meanwhile(stream: Stream) -> ErrataError:
    return ErrataError(
        f"somebody else has just settled some of these rows of {stream.name}; nothing was done",
        how=f"look at what is left, `errata quarantine ls {stream.name}`, and run it again",
    )


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
