"""What keeps the archives fit: what ran last, what is due, who is at work, and how much room all takes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from errata.catalog import holdings, lately, leases, streams
from errata.catalog.holdings import Sizes
from errata.catalog.lately import Pinned
from errata.catalog.leases import Holder
from errata.catalog.published import all_published
from errata.flows.site import Site
from errata.flows.telling.status import status
from errata.model.bucket import Role
from errata.model.commit import Commit

FLOWS: Mapping[str, str] = {
    "append": "takes in what has landed",
    "run": "takes the answers further",
    "revise": "makes corrections part of history",
    "sweep": "corrects published results",
    "compact": "works corrections into buckets, and puts small ones together",
    "age-out": "drops what is past its retention",
    "vacuum": "removes files that nobody needs any more",
    "doctor": "mends what it has found wrong",
}
"""What each flow that commits does."""


@dataclass(frozen=True, slots=True)
class Archive:
    """How much an archive holds."""

    name: str
    query: bool
    live: Sizes
    """What counts now."""
    overlays: Sizes
    """Corrections beside it: of a query, the results that were taken back, and what was told of changes."""
    superseded: tuple[int, int]
    """Buckets kept for readers of old states, and their bytes."""
    due: bool = False
    """Whether compaction is worth it."""

    @property
    def bytes(self) -> int:
        return self.live.bytes + self.overlays.bytes + self.superseded[1]


@dataclass(frozen=True, slots=True)
class Upkeep:
    """How fit the archives are."""

    last: Sequence[tuple[str, str, Commit | None]]
    """Of each flow what it does, and its last commit."""
    archives: Sequence[Archive]
    """The largest first."""
    leases: Sequence[Holder]
    pins: Sequence[Pinned]

    @property
    def due(self) -> list[str]:
        """The streams of which compaction is due."""
        return sorted(each.name for each in self.archives if each.due)

    @property
    def bytes(self) -> int:
        return sum(each.bytes for each in self.archives)


def upkeep(site: Site) -> Upkeep:
    """How fit the archives are."""
    last = lately.last_of_flows(site.catalog)
    done = [(flow, does, last.get(flow)) for flow, does in FLOWS.items()]
    return Upkeep(done, archives(site), leases.holders(site.catalog), lately.pinned(site.catalog))


def archives(site: Site) -> list[Archive]:
    """How much each stream and the results of each query hold."""
    sizes, old = holdings.sizes(site.catalog), holdings.superseded(site.catalog)
    due = {each.stream.name for each in status(site) if each.compaction_due}
    names = [(each.stream.name, each.stream_id, False) for each in streams.standings(site.catalog)]
    names += [(name, each.stream_id, True) for name, each in all_published(site.catalog).items()]
    found = []
    for name, stream_id, query in names:
        roles = [role for of, role in sizes if of == stream_id]
        live = _together(sizes[stream_id, role] for role in roles if role in _COUNTS)
        beside = _together(sizes[stream_id, role] for role in roles if role not in _COUNTS)
        found.append(Archive(name, query, live, beside, old.get(stream_id, (0, 0)), not query and name in due))
    return sorted(found, key=lambda each: -each.bytes)


_COUNTS = (Role.BASE, Role.OPEN, Role.TIP)


def _together(some: Iterable[Sizes]) -> Sizes:
    found = list(some)
    return Sizes(
        sum(each.buckets for each in found),
        sum(each.rows for each in found),
        sum(each.bytes for each in found),
        sum(each.inline for each in found),
    )
