"""Which copies each bucket should have, decided from the index and from what readers asked for (oscar-archives-2004,
4.1.1 and 4.1.2). Nothing is read or written here.

A bucket has the copies that are declared, and besides at most one that follows its readers:

    no copy yet                      built at the greatest rate that readers asked of the bucket
    readers asked for less           shrunk to the greatest of their rates, from the copy itself
    few readers asked for more       they went to the original; the copy follows the others
    too many readers asked for more  dropped and begun again at the greatest rate that readers asked for

The rule is applied to each bucket by itself, so that portions read at different rates have different copies. Applied
again to what it has made, by the same readers, it changes nothing: a vacuum that was killed is simply run again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from errata.model.bucket import Bucket, Layout, Role
from errata.model.reduction import FULL_RATE, ReducedArchives
from errata.model.reduction_request import ReductionRequest
from errata.model.time import DAY

DEMAND_MEMORY = 30 * DAY
"""Microseconds for which the last round of readers decides what buckets that come later get. After that, vacuum builds
nothing for readers that have not come back."""


class VersionReason(StrEnum):
    """Why a copy is built or dropped."""

    DECLARED = "declared"
    """A declared copy of a bucket that was there before the declaration."""
    ASKED = "asked for"
    """The first copy for readers."""
    SHRUNK = "shrunk"
    """Readers want less than the copy has."""
    BEGUN_AGAIN = "begun again"
    """Too many readers wanted more than the copy has."""
    DROPPED = "dropped"
    """Too many readers want everything, or a declared copy serves them."""
    UNDECLARED = "undeclared"
    """Neither declared nor for readers."""


@dataclass(frozen=True, slots=True)
class BucketVersions:
    """A base bucket and its copies."""

    original: Bucket
    copies: tuple[Bucket, ...] = ()

    def finest_source(self, rate: float) -> Bucket:
        """The smallest version that has all rows of a copy at this rate."""
        enough = [each for each in self.copies if each.resolution.rate >= rate]
        return min(enough, key=lambda each: (each.resolution.rate, each.bucket_id), default=self.original)


@dataclass(frozen=True, slots=True)
class Demand:
    """Readers of a bucket at one rate."""

    rate: float
    readers: int


@dataclass(frozen=True, slots=True)
class VersionStep:
    """One change of a bucket's copies, made in one commit: a copy built, or copies dropped, or both."""

    original: Bucket
    reason: VersionReason
    rate: float | None = None
    """The rate of the copy that is built; None: none is."""
    source: Bucket | None = None
    """The version that it is built from."""
    drops: tuple[Bucket, ...] = ()
    """Copies that leave with this step."""

    @property
    def bytes_read(self) -> int:
        """The bytes that have to be read for it."""
        return 0 if self.source is None else self.source.size

    @property
    def bytes_expected(self) -> int:
        """The estimated size of the copy."""
        if self.source is None or self.rate is None:
            return 0
        return round(self.source.size * self.rate / self.source.resolution.rate)


def bucket_versions(buckets: Iterable[Bucket]) -> list[BucketVersions]:
    """Base buckets with their copies, in the order of the buckets; copies whose original is not among them are left
    out."""
    some = list(buckets)
    copies: defaultdict[int | None, list[Bucket]] = defaultdict(list)
    for each in some:
        if each.role is Role.COPY:
            copies[each.original].append(each)
    return [BucketVersions(each, tuple(copies[each.bucket_id])) for each in some if each.role is Role.BASE]


def plan_versions(
    versions: Iterable[BucketVersions], reduced: ReducedArchives, requests: Sequence[ReductionRequest], now: int
) -> list[VersionStep]:
    """All that has to be done, bucket by bucket."""
    return [step for each in versions for step in _bucket_steps(each, reduced, requests, now)]


def on_read_rate(current: float | None, demands: Iterable[Demand], drop_above: float) -> float | None:
    """The rate that the copy for readers should have, given what it has and what readers asked for; None: no copy."""
    asked = [each for each in demands if each.readers > 0]
    everyone = sum(each.readers for each in asked)
    if not everyone:
        return current

    def share_above(rate: float) -> float:
        """The share of the readers that a copy of this rate sends to the original."""
        return sum(each.readers for each in asked if each.rate > rate) / everyone

    if current is not None and share_above(current) <= drop_above:
        return max((each.rate for each in asked if each.rate <= current), default=current)
    parts = [each.rate for each in asked if each.rate < FULL_RATE]
    if not parts or share_above(max(parts)) > drop_above:
        return None
    return max(parts)


def bucket_demand(bucket: Bucket, requests: Iterable[ReductionRequest], has_copy: bool, now: int) -> list[Demand]:
    """What readers asked of a bucket since the last vacuum. For a bucket without a copy that nobody has read since,
    what readers of the round before asked for: it may be new."""
    read = [(each, rate) for each in requests if (rate := each.asked.rate_of(bucket)) is not None]
    found = [Demand(rate, each.readers) for each, rate in read if each.readers]
    if found or has_copy:
        return found
    return [
        Demand(rate, each.last_readers)
        for each, rate in read
        if each.last_readers and each.settled_at is not None and each.settled_at + DEMAND_MEMORY > now
    ]


def _bucket_steps(
    versions: BucketVersions, reduced: ReducedArchives, requests: Sequence[ReductionRequest], now: int
) -> Iterator[VersionStep]:
    declared: dict[float, Bucket] = {}
    own: list[Bucket] = []
    spare: list[Bucket] = []
    for copy in sorted(versions.copies, key=lambda each: (-each.resolution.rate, each.bucket_id)):
        rate = copy.resolution.rate
        if rate not in reduced.copies:
            own.append(copy)
        elif declared.setdefault(rate, copy) is not copy:
            spare.append(copy)
    for rate in sorted(set(reduced.copies) - set(declared), reverse=True):
        yield VersionStep(versions.original, VersionReason.DECLARED, rate, versions.finest_source(rate))
    spare += own if reduced.on_read is None else own[1:]
    if spare:  # first: after a kill, one of them must not be taken for the copy of the readers
        yield VersionStep(versions.original, VersionReason.UNDECLARED, drops=tuple(spare))
    if reduced.on_read is not None:
        current = own[0] if own else None
        demands = bucket_demand(versions.original, requests, current is not None, now)
        wanted = _wanted_rate(None if current is None else current.resolution.rate, demands, reduced)
        yield from _follow_readers(versions, current, wanted, reduced)


def _wanted_rate(current: float | None, demands: Sequence[Demand], reduced: ReducedArchives) -> float | None:
    """The rate of the copy for readers, if they need one beside the declared copies; None: they do not."""
    limit = 1.0 if reduced.on_read is None else reduced.on_read.drop_above
    rate = current if current is None else on_read_rate(current, demands, limit)
    if rate is None or rate in reduced.copies:
        rate = on_read_rate(max(reduced.copies, default=None), demands, limit)
    return None if rate in reduced.copies else rate


def _follow_readers(
    versions: BucketVersions, current: Bucket | None, rate: float | None, reduced: ReducedArchives
) -> Iterator[VersionStep]:
    """The step that gives the readers of a bucket the copy of this rate."""
    original = versions.original
    if current is None:
        purges = reduced.on_read is not None and reduced.on_read.purge_after is not None
        # Blocks of a randomized bucket serve its readers as well; only purging needs the copy.
        if rate is not None and (purges or original.layout is not Layout.RANDOMIZED):
            yield VersionStep(original, VersionReason.ASKED, rate, versions.finest_source(rate))
    elif rate is None:
        yield VersionStep(original, VersionReason.DROPPED, drops=(current,))
    elif rate != current.resolution.rate:
        reason = VersionReason.SHRUNK if rate < current.resolution.rate else VersionReason.BEGUN_AGAIN
        yield VersionStep(original, reason, rate, versions.finest_source(rate), (current,))
