"""How everything stands: what each stream holds, what waits, and what is due. Nothing is opened but the catalog."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from upath import UPath

from errata.catalog import holdings, ledger, quarantine, queries, streams
from errata.catalog.holdings import Sizes
from errata.catalog.streams import Standing
from errata.errors import unknown
from errata.flows.drift import drifted
from errata.flows.site import Site
from errata.intake.find import landed
from errata.model.bucket import INLINE_STREAM_BYTES, Role
from errata.model.compaction import worth_folding
from errata.model.query import CheckedQuery
from errata.model.stream import Landing, Stream, Then

COMPARED = 1_000
"""Of more queries than this the files are not read to tell which have changed: a look should be quick."""


class Declared(StrEnum):
    """How the declaration in errata.yaml and the one in the catalog agree."""

    AGREED = "as declared"
    CHANGED = "changed, not applied"
    NEW = "not applied"
    GONE = "no longer declared"


@dataclass(frozen=True, slots=True)
class StreamStatus:
    """How one stream stands."""

    stream: Stream
    declared: Declared
    rows: int = 0
    """The rows that count now: those of buckets, as corrected."""
    base: Sizes = field(default_factory=Sizes)
    overlays: Sizes = field(default_factory=Sizes)
    """Corrections that lie over the buckets."""
    superseded: tuple[int, int] = (0, 0)
    """Buckets no longer live that readers of old commits may need, and their bytes."""
    inline_bytes: int = 0
    stable: int | None = None
    pending: int = 0
    """Revisions that wait to be applied."""
    quarantined: int = 0
    waiting: int | None = None
    """Files in the landing folder that have not been taken in; None when there is no such folder."""

    @property
    def compaction_due(self) -> bool:
        over = self.overlays
        return self.inline_bytes >= INLINE_STREAM_BYTES or worth_folding(
            over.buckets, over.rows, self.base.rows, self.stream.bucket_rows
        )


@dataclass(frozen=True, slots=True)
class QueryStatus:
    """One query: what it is, as it was applied."""

    name: str
    declared: Declared
    checked: CheckedQuery | None = None
    """None where it has not been applied."""


def query_status(site: Site) -> list[QueryStatus]:
    """The queries that are declared or recorded, by name. Unless they are many, their files are compared with what was
    applied."""
    recorded = {name: each.checked for name, each in queries.recorded(site.catalog).items()}
    both = [name for name in recorded if name in site.project.queries]
    changed = drifted(site.project, recorded, both) if len(both) <= COMPARED else {}
    found = []
    for name in sorted({*recorded, *site.project.queries}):
        if name not in site.project.queries:
            declared = Declared.GONE
        elif name not in recorded:
            declared = Declared.NEW
        else:
            declared = Declared.CHANGED if name in changed else Declared.AGREED
        found.append(QueryStatus(name, declared, recorded.get(name)))
    return found


def status(site: Site, names: Sequence[str] = ()) -> list[StreamStatus]:
    """How the streams named stand, or all that are declared or recorded, by name."""
    recorded = {each.stream.name: each for each in streams.standings(site.catalog)}
    there = {*recorded, *site.project.streams}
    for name in names:
        if name not in there:
            raise unknown("stream", name, there)
    sizes, held = holdings.sizes(site.catalog), quarantine.counts(site.catalog)
    superseded = holdings.superseded(site.catalog)
    found = []
    for name in names or sorted(there):
        standing, declared = recorded.get(name), site.project.streams.get(name)
        if standing is None:
            found.append(StreamStatus(site.project.streams[name], Declared.NEW))
            continue
        pending = sizes.get((standing.stream_id, Role.PENDING), Sizes())
        found.append(
            StreamStatus(
                standing.stream,
                _agreement(standing.stream, declared),
                standing.rows,
                sizes.get((standing.stream_id, Role.BASE), Sizes()),
                sizes.get((standing.stream_id, Role.OVERLAY), Sizes()),
                superseded.get(standing.stream_id, (0, 0)),
                standing.inline_bytes,
                standing.stable,
                pending.rows,
                held.get(name, 0),
                _waiting(site, standing),
            )
        )
    return found


def unsettled(site: Site, name: str) -> int:
    """How many files have landed and are passed over, because they changed a moment ago."""
    landing = site.project.streams[name].landing
    return 0 if landing is None else len(_all_landed(site, landing)) - len(landed(landing, site.catalog.clock.now()))


def _agreement(recorded: Stream, declared: Stream | None) -> Declared:
    if declared is None:
        return Declared.GONE
    return Declared.AGREED if declared == recorded else Declared.CHANGED


def _waiting(site: Site, standing: Standing) -> int | None:
    landing = standing.stream.landing
    if landing is None:
        return None
    files = _all_landed(site, landing)
    if landing.then is not Then.KEEP:
        return len(files)
    # Files that stay are told from new ones by name and size: to read them all would be no quick look.
    known = ledger.known_names(site.catalog, standing.stream_id, map(str, files))
    return sum((str(file), file.stat().st_size) not in known for file in files)


def _all_landed(site: Site, landing: Landing) -> Sequence[UPath]:
    return landed(replace(landing, settle=0), site.catalog.clock.now())
