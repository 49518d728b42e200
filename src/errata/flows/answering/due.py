"""What is due: how far the streams of a query reach, whether anything has come that its answers do not contain, and
which corrections they cannot take up by going on."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from errata.catalog.published import Published
from errata.catalog.streams import Standing
from errata.model.bucket import Bucket


def reached(bases: Iterable[Standing]) -> int | None:
    """The least stable point of the streams; None where one of them has none yet. Relations have no say: their versions
    are valid until others come, which may be never."""
    stable = [each.stable for each in bases if each.stream.relation is None]
    known = [each for each in stable if each is not None]
    return min(known) if len(known) == len(stable) and known else None


def no_further(until: int | None, below: Iterable[Published]) -> int | None:
    """The same, but not further than the queries that are read: they may have gone a part of the way only."""
    return None if until is None else min([until, *(each.frontier for each in below)])


def behind(basis: Published, bases: Iterable[Standing], until: int, came: Collection[int]) -> bool:
    """Whether anything has come since a query was evaluated: further instants, or rows of the last one. `came`: the ids
    of the streams that batches have come to since. Compaction and ageing move a stream, too, and bring nothing."""
    return until > basis.frontier or any(each.stream_id in came for each in bases)


def taken_up(standing: Standing, overlays: Sequence[Bucket], known: int, answered: int) -> int:
    """Up to which revision a query reads a stream when it goes on: those that reach behind what it has answered, and
    all after them, wait for a sweep."""
    waiting = left_out(overlays, known, answered)
    return standing.applied if not waiting else max(known, (waiting[0].revision_first or 1) - 1)


def left_out(overlays: Sequence[Bucket], known: int, answered: int) -> list[Bucket]:
    """Of the overlays that came after a revision those that a query does not take up by going on: from the first one
    that reaches behind what it has answered. Revisions are taken up in their order, so all later ones wait with it."""
    later = sorted((each for each in overlays if (each.revision_last or 0) > known), key=_number)
    for at, each in enumerate(later):
        if any(ends[0] < answered for ends in (each.masks, each.content) if ends is not None):
            return later[at:]
    return []


def all_read(name: str, reads: Mapping[str, Sequence[str]]) -> list[str]:
    """What a query reads, directly or through others: streams, relations and queries. `reads`: what each query reads
    itself."""
    found: dict[str, None] = {}
    waiting = [name]
    while waiting:
        for other in reads.get(waiting.pop(), ()):
            if other not in found:
                found[other] = None
                waiting.append(other)
    return list(found)


def _number(overlay: Bucket) -> int:
    return overlay.revision_first or 0
