"""The buckets that make an archive, of a stream or of a query's results, as of a commit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from errata.catalog import buckets, commits, queries, streams
from errata.catalog.published import Published, all_published
from errata.catalog.streams import Standing
from errata.errors import unknown
from errata.flows.site import Site
from errata.model.bucket import Bucket, Role

ANSWER = (Role.BASE, Role.OPEN, Role.TIP)


@dataclass(frozen=True, slots=True)
class Shelf:
    """Buckets, and what is needed to read of them."""

    commit_id: int
    buckets: Sequence[Bucket]
    timed: bool
    grouped: bool
    until: int | None = None
    until_words: str = ""

    @property
    def saying(self) -> list[Bucket]:
        """The buckets whose rows are what the archive says, so far as it is not corrected."""
        return [each for each in self.buckets if each.role in ANSWER]


def shelf_of(site: Site, name: str, as_of: str | None) -> Shelf:
    """What there is of a stream or query, now or as of a commit."""
    commit_id = commits.find(site.catalog, as_of)
    then = None if as_of is None else commit_id
    there = {each.stream.name: each for each in streams.standings(site.catalog, then)}
    if name in there:
        commits.check_whole(site.catalog, commit_id, name)
        return _of_stream(site, there[name], commit_id)
    declared, answers = queries.recorded(site.catalog, then), all_published(site.catalog, then)
    if name in answers:
        commits.check_whole(site.catalog, commit_id, name)
        return _of_query(site, answers[name], commit_id)
    if name in declared:
        return Shelf(commit_id, (), timed=True, grouped=False)
    raise unknown("stream", name, [*there, *declared], where=None if then is None else f"as of commit {then}")


def _of_stream(site: Site, standing: Standing, commit_id: int) -> Shelf:
    found = _visible(site, standing.stream_id, commit_id, (Role.BASE, Role.OVERLAY, Role.PENDING))
    stream = standing.stream
    return Shelf(commit_id, found, stream.timed, bool(stream.group), standing.stable, "stable point")


def _of_query(site: Site, answer: Published, commit_id: int) -> Shelf:
    beside = (Role.MASK, Role.PARTS, Role.LINEAGE, Role.STATE, Role.FEED)
    found = _visible(site, answer.stream_id, commit_id, (*ANSWER, *beside))
    return Shelf(
        commit_id, found, answer.shape.timed, grouped=False, until=answer.frontier, until_words="answered up to"
    )


def _visible(site: Site, stream_id: int, commit_id: int, roles: Sequence[Role]) -> list[Bucket]:
    return [each for role in roles for each in buckets.visible(site.catalog, stream_id, commit_id, role=role)]
