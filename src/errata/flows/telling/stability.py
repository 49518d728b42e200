"""How far a stream is final: everything before its stable point has come, and what corrects it has become history."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from errata.archive.keys import PLACE, Said, identities
from errata.archive.masks import sources
from errata.archive.wire import conformed, numbered_schema
from errata.catalog import buckets, streams
from errata.errors import UsageError
from errata.flows.site import Site
from errata.model.bucket import Role
from errata.model.instants import format_instant, parse_instant
from errata.model.interval import LOWEST
from errata.model.stream import OnRevision, Stream


@dataclass(frozen=True, slots=True)
class Stability:
    """Where a stream stands with regard to what may still change."""

    stream: str
    timed: bool
    stable: int | None
    """What comes from now on and begins before this is late; None before the first batch."""
    places: npt.NDArray[np.int64] = field(compare=False, repr=False)
    """Of each pending correction the first place that it may concern, in order."""

    def pending_before(self, until: int) -> int:
        """How many pending corrections may concern rows before a time."""
        return int(np.searchsorted(self.places, until, side="left"))

    def final(self, until: int) -> bool:
        """Whether all rows before a time are there and none of their corrections is pending."""
        return self.stable is not None and self.stable >= until and not self.pending_before(until)

    def moment(self, text: str) -> int:
        """A time as somebody writes it: a date and time, or a whole number where the stream is ordered by one."""
        if self.timed:
            return parse_instant(text)
        try:
            return int(text)
        except ValueError:
            why = f"stream {self.stream} is ordered by whole numbers"
            raise UsageError(f"{text!r} is no whole number", why=why, how="write one, such as 42") from None

    @property
    def told(self) -> dict[str, object]:
        """As JSON can hold it."""
        shown = format_instant(self.stable) if self.timed and self.stable is not None else self.stable
        return {"stream": self.stream, "stable": shown}


def stable_to(site: Site, stream: str) -> Stability:
    """How far a stream is stable, and which corrections of it are pending."""
    standing = streams.standing(site.catalog, stream)
    found: list[npt.NDArray[np.int64]] = []
    # Where corrections are ignored no row is ever changed by one.
    if standing.revisions > standing.applied and standing.stream.on_revision is not OnRevision.IGNORE:
        pending = buckets.visible(site.catalog, standing.stream_id, standing.changed_in, role=Role.PENDING)
        schema = numbered_schema(standing.stream)
        read = (conformed(each.read(site.warehouse), schema) for each in sources(site.catalog, pending))
        found = [_places(standing.stream, rows) for rows in read]
    places = np.sort(np.concatenate([np.zeros(0, np.int64), *found]))
    return Stability(stream, standing.stream.timed, standing.stable, places)


def _places(stream: Stream, rows: pa.Table) -> npt.NDArray[np.int64]:
    """Of each correction where its row was or will be, whichever is earlier; the beginning, where it does not say."""
    said = Said.by(stream, rows)
    at = stream.names.index(stream.order)
    # A key that does not tell the place: where the row was only an old value tells.
    known = said.claimed[:, at] | said.inserts | stream.key_has_order
    was = np.where(known, pc.fill_null(identities(stream, rows, said)[PLACE], LOWEST).to_numpy(), LOWEST)
    given = said.given[:, at]
    will_be = pc.fill_null(rows[stream.order].cast(pa.int64()), LOWEST).to_numpy()
    found: npt.NDArray[np.int64] = np.where(given, np.minimum(was, will_be), was)
    return found
