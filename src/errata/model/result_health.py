"""The health of a query's results: what is to be thought of their buckets, and of how far they have been worked out."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from errata.model.bucket import Bucket, Role
from errata.model.health import (
    Finding,
    Kind,
    Seen,
    Severity,
    bucket_name,
    figure_findings,
    lost,
    mendable,
    place_words,
)

ROW = "the archive's own row"

_ROWS = {
    **dict.fromkeys((Role.BASE, Role.PENDING, Role.OVERLAY, Role.OPEN, Role.TIP, Role.STATE), "results"),
    Role.FEED: "changes of results",
    Role.MASK: "masks of results",
    Role.PARTS: "partial aggregates of results",
    Role.LINEAGE: "rows of lineage",
}


@dataclass(frozen=True, slots=True)
class Answers:
    """The results that are looked at, as findings speak of them."""

    name: str
    timed: bool
    live: bool = True
    """Whether they are what is published now: neither has their query been dropped, nor has another archive come."""
    unmade: Sequence[str] = ()
    """What the state cannot be made of any more: streams whose rows have been aged out."""
    whole: int = 0
    """How many of its live buckets are whole."""

    @property
    def anew(self) -> str:
        """The command that brings another archive."""
        return f"errata run --anew {self.name}"


@dataclass(frozen=True, slots=True)
class Advance:
    """An evaluation: its number, its commit, and how far it took the answer."""

    number: int
    commit_id: int
    until: int


def result_findings(answers: Answers, bucket: Bucket, seen: Seen) -> Iterator[Finding]:
    """What is wrong with a bucket by itself."""
    worst = lost(bucket, seen)
    if worst is None and seen.nulls:
        worst = Kind.NULLS, f"there is NULL in {', '.join(seen.nulls)}"
    if worst is None:
        if seen.checksum is not None:
            yield from figure_findings(answers, bucket, seen)
        return
    kind, what = worst
    if bucket.role is Role.STATE:
        yield _of_state(answers, bucket, kind, what)
    else:
        why, how = _concerned(answers, bucket), _restore(answers, bucket)
        yield Finding(answers.name, kind, what, bucket_name(bucket), why, how, severity=Severity.DAMAGE)


def droppable(answers: Answers, bucket: Bucket, seen: Seen) -> bool:
    """Whether nothing is lost with a bucket that is not whole."""
    return bucket.role is Role.STATE and lost(bucket, seen) is not None and not answers.unmade


def _of_state(answers: Answers, bucket: Bucket, kind: Kind, what: str) -> Finding:
    where = bucket_name(bucket)
    if not answers.unmade:
        why = "it is a cache; the next evaluation makes it anew, which takes a longer look at the streams"
        return mendable(answers, kind, what, where, why)
    gone = ", ".join(answers.unmade)
    why = f"the query cannot go on without it: rows of {gone} are known from it alone, having been aged out"
    how = f"restore it from a backup; without one {answers.anew} works the answer out from the rows that are left"
    return Finding(answers.name, kind, what, where, why, how, severity=Severity.DAMAGE)


def _concerned(answers: Answers, bucket: Bucket) -> str:
    """Which commits see a bucket's rows, and where these lie."""
    until = "on" if bucket.removed_in is None else f"to {bucket.removed_in - 1}"
    low, high = (place_words(each, timed=answers.timed) for each in (bucket.vs_min, bucket.vs_max))
    rows = _ROWS[bucket.role]
    whole = f"{answers.whole:,} live bucket{'' if answers.whole == 1 else 's'} of the results"
    are = "is" if answers.whole == 1 else "are"
    return (
        f"commits {bucket.added_in} {until} need its {bucket.rows:,} {rows} from {low} to {high}; {whole} {are} whole"
    )


def _restore(answers: Answers, bucket: Bucket) -> str:
    """What to do about a bucket whose content is lost."""
    what = "the catalog from a backup that has" if bucket.inline else f"{bucket.path} from a backup of the warehouse:"
    back = f"restore {what} these {bucket.size:,} bytes, {bucket.checksum}; without one"
    if bucket.role is Role.FEED:
        since = f"errata changes {answers.name} --since {bucket.added_in}"
        return f"{back} changes can be read from commit {bucket.added_in} on: {since}"
    if bucket.removed_in is None and answers.live:
        return f"{back} {answers.anew} works the answer out from the streams, and publishes the difference"
    return f"{back} read later commits; vacuum takes the bucket once it lies behind the horizon"


def count_findings(answers: Answers, name: str, noted: int, found: int) -> Iterator[Finding]:
    """What is wrong with a count that is kept of the archive."""
    if noted != found:
        what = f"{name} is {noted:,} and should be {found:,}"
        yield mendable(answers, Kind.COUNTER, what, ROW, "it is shown to persons, and inline rows are kept few by it")


def advance_findings(answers: Answers, found: Sequence[Advance], stable: int | None) -> Iterator[Finding]:
    """Evaluations follow each other without a gap, none goes back, and the last one says how far the answer reaches."""
    why = "each evaluation goes on where the one before it has ended"
    how = f"{answers.anew} works the answer out from the beginning"
    numbers = [each.number for each in found]
    # Vacuum forgets numbers behind the horizon, and never the first.
    if numbers[:1] != [1] or numbers != sorted(set(numbers)):
        what = f"its evaluations have the numbers {', '.join(map(str, numbers[:5])) or 'none'}, and should be from 1 on"
        yield Finding(answers.name, Kind.NUMBERS, what, ROW, why, how, severity=Severity.DAMAGE)
    for one, other in pairwise(found):
        if other.until < one.until or other.commit_id <= one.commit_id:
            what = f"evaluation {other.number} lies before evaluation {one.number}"
            yield Finding(answers.name, Kind.STANDING, what, ROW, why, how, severity=Severity.DAMAGE)
    if found and stable != found[-1].until:
        until = place_words(found[-1].until, timed=answers.timed)
        what = f"it stands at {stable}, and its last evaluation has answered up to {until}"
        yield Finding(answers.name, Kind.STANDING, what, ROW, why, how, severity=Severity.DAMAGE)


def abandoned_finding(answers: Answers, names: Collection[str]) -> Iterator[Finding]:
    """An archive goes on only for as long as there is a query of its name."""
    if answers.live and answers.name not in names:
        what, why = (
            "its query has been dropped, and the archive goes on",
            "it is held to be published, and never vacuumed",
        )
        yield mendable(answers, Kind.STANDING, what, ROW, why)
