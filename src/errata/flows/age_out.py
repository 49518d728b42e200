"""Ageing: whole buckets past their stream's retention are dropped, on schedule or lazily, before something reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from errata.catalog import ageing, streams
from errata.errors import unknown
from errata.flows.site import Site
from errata.model.bucket import Bucket
from errata.model.stream import AgeOut


@dataclass(frozen=True, slots=True)
class AgedOut:
    """What was dropped of one stream, and in which commit; None and nothing when nothing was due."""

    stream: str
    commit_id: int | None
    buckets: Sequence[Bucket]

    @property
    def rows(self) -> int:
        return sum(bucket.rows for bucket in self.buckets)


def age_out(site: Site, names: Sequence[str] = ()) -> list[AgedOut]:
    """Drop what is due: of the streams named, else of all those that age on schedule."""
    standings = {each.stream.name: each for each in streams.standings(site.catalog)}
    for name in names:
        if name not in standings:
            raise unknown("stream", name, standings)
    on_schedule = [name for name, each in standings.items() if each.stream.age_out is AgeOut.SCHEDULED]
    return [_age_out(site, name) for name in names or on_schedule]


def age_out_lazily(site: Site, name: str) -> AgedOut:
    """The paper's other mode (replay-revisions-2008, footnote 5): ageing waits until the archive is about to be read
    for a correction, and costs arrivals nothing. Streams declared `age_out: lazy` are aged here and only here."""
    standing = streams.standing(site.catalog, name)
    if standing.stream.age_out is not AgeOut.LAZY:
        return AgedOut(name, None, ())
    return _age_out(site, name)


def _age_out(site: Site, name: str) -> AgedOut:
    standing = streams.standing(site.catalog, name)
    commit_id, dropped = ageing.age_out(site.catalog, standing, site.caused_by("age-out"))
    return AgedOut(name, commit_id, dropped)
