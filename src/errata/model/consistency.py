"""Findings across buckets: overlaps, gaps in revision numbers, positions, the ledger, evaluations of results."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from errata.model.bucket import Bucket, Layout, Role
from errata.model.findings import (
    ARCHIVE_ROW,
    MAX_EXAMPLES,
    Finding,
    FindingKind,
    InspectedArchive,
    Severity,
    bucket_name,
    order_text,
    repairable_finding,
)

RESTORE_BACKUP = "go back to a backup of catalog and warehouse, and take in again what came since"


@dataclass(frozen=True, slots=True)
class StreamPosition:
    """The state of a stream after a commit, or now."""

    commit_id: int
    stable: int | None
    vs_max: int | None
    rows: int
    applied: int
    aged_to: int | None
    folded: int


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """A batch in the ledger, with its buckets and splits in the catalog."""

    batch_no: int
    batch_id: str
    commit_id: int | None
    named: str | None
    """The batch that the commit names; None when there is no such commit."""
    counts: Mapping[str, int]
    buckets: int | None
    """The number of its base buckets, according to its commit."""
    base: Sequence[int]
    """The ids of those that are still in the index."""
    pending: Sequence[int]
    """Its pending buckets that are still in the index."""
    splits: Sequence[tuple[int, int | None, int, int]]
    """Number, file, first line and lines of each split; None for a file that the ledger does not have."""


def overlap_findings(patient: InspectedArchive, base: Iterable[Bucket]) -> Iterator[Finding]:
    """Buckets of one batch that came in one commit do not overlap, nor do live pieces of a clustered table."""
    batches: defaultdict[tuple[int, int], list[Bucket]] = defaultdict(list)
    clustered = []
    for bucket in base:
        if bucket.batch_no is not None and bucket.layout is not Layout.PLAIN:
            batches[bucket.batch_no, bucket.added_in].append(bucket)
        if bucket.layout is Layout.CLUSTERED and bucket.removed_in is None:
            clustered.append(bucket)
    for found in batches.values():
        for one, other in overlapping_pairs(found):
            what = f"{bucket_name(one)} and bucket {other.bucket_id} overlap, and are of one batch"
            why = "a batch is cut by its order field: one of them may be there twice, or be of something else"
            where = patient.span(max(one.vs_min, other.vs_min), min(one.vs_max, other.vs_max))
            how = f"compare batch {one.batch_id} with its files; if rows are there twice, {RESTORE_BACKUP}"
            yield Finding(patient.name, FindingKind.OVERLAP, what, where, why, how, severity=Severity.DAMAGE)
    batched = {pair for found in batches.values() for pair in overlapping_pairs(found)}
    for one, other in overlapping_pairs(clustered):
        if (one, other) not in batched:
            what = f"{bucket_name(one)} and bucket {other.bucket_id} overlap in layout clustered"
            why = "pieces of a sorted table must not overlap, or readers open more than they need"
            where = patient.span(max(one.vs_min, other.vs_min), min(one.vs_max, other.vs_max))
            yield Finding(patient.name, FindingKind.OVERLAP, what, where, why, f"errata archive compact {patient.name}")


def overlapping_pairs(buckets: Iterable[Bucket]) -> list[tuple[Bucket, Bucket]]:
    """Each bucket that begins before all before it have ended, with the one that reaches furthest. Rows of one place
    may be cut apart, so that ends may touch."""
    found = []
    furthest: Bucket | None = None
    for bucket in sorted(buckets, key=lambda each: (each.vs_min, each.vs_max, each.bucket_id)):
        if furthest is not None and bucket.vs_min < furthest.vs_max:
            found.append((furthest, bucket))
        if furthest is None or bucket.vs_max > furthest.vs_max:
            furthest = bucket
    return found


def spare_reductions(buckets: Iterable[Bucket]) -> list[Bucket]:
    """Of all live buckets the copies and summaries whose original is not live, and those that are there twice."""
    some = list(buckets)
    originals = {each.bucket_id for each in some if each.role is Role.BASE}
    spare, known = [], set()
    for each in some:
        if not each.derived:
            continue
        which = (each.original, each.role, each.resolution, each.groups)
        if each.original not in originals or which in known:
            spare.append(each)
        known.add(which)
    return spare


def reduction_findings(patient: InspectedArchive, live: Iterable[Bucket]) -> Iterator[Finding]:
    """A copy or summary is there once, for as long as its original is."""
    for bucket in spare_reductions(live):
        what = f"it is made from bucket {bucket.original}, which is gone, or is there twice"
        yield repairable_finding(patient, FindingKind.COPIES, what, bucket_name(bucket), "nothing needs it")


def number_findings(
    patient: InspectedArchive,
    position: StreamPosition,
    revisions: int,
    live: Iterable[Bucket],
    withdrawn: Sequence[Bucket],
    lost: int,
) -> Iterator[Finding]:
    """Revisions that have been settled are overlays or nothing; those behind are pending, each once. `withdrawn` are
    pending buckets that an undo took back, and `lost` is how many revisions of such may have been vacuumed."""
    pending = sorted((each for each in live if each.role is Role.PENDING), key=lambda each: each.revision_first or 0)
    applied = position.applied
    if applied > revisions:
        yield _number_finding(
            patient, f"revisions up to {applied:,} are settled, and only {revisions:,} have been numbered", ""
        )
    for bucket in pending:
        first, last = bucket.revision_first or 0, bucket.revision_last or 0
        if last - first + 1 != bucket.rows:
            yield _number_finding(
                patient, f"{bucket.rows:,} revisions have the numbers {first} to {last}", bucket_name(bucket)
            )
        if first <= applied or last > revisions:
            what = f"revisions {first} to {last} are pending, and should be within {applied + 1} to {revisions}"
            yield _number_finding(patient, what, bucket_name(bucket))
    for one, other in pairwise(pending):
        if (other.revision_first or 0) <= (one.revision_last or 0):
            yield _number_finding(
                patient, f"revisions {other.revision_first} to {one.revision_last} are there twice", bucket_name(other)
            )
    for bucket in live:
        if (
            bucket.role is Role.OVERLAY
            and not 0 < (bucket.revision_first or 0) <= (bucket.revision_last or 0) <= applied
        ):
            numbers = f"{bucket.revision_first} to {bucket.revision_last}"
            what = f"revisions {numbers} are applied, and only those up to {applied} are settled"
            yield _number_finding(patient, what, bucket_name(bucket))
    missing = _missing_revisions(applied, revisions, [*pending, *withdrawn])
    if missing and sum(last - first + 1 for first, last in missing) > lost:
        which = ", ".join(f"{first} to {last}" for first, last in missing[:MAX_EXAMPLES])
        yield _number_finding(
            patient, f"revisions {which} are neither pending nor settled", "the index of pending buckets"
        )


def _missing_revisions(applied: int, revisions: int, pending: Iterable[Bucket]) -> list[tuple[int, int]]:
    found, seen = [], applied
    for bucket in sorted(pending, key=lambda each: each.revision_first or 0):
        first, last = bucket.revision_first or 0, bucket.revision_last or 0
        if first > seen + 1:
            found.append((seen + 1, min(first - 1, revisions)))
        seen = max(seen, last)
    return [*found, (seen + 1, revisions)] if seen < revisions else found


def _number_finding(patient: InspectedArchive, what: str, where: str) -> Finding:
    why = "corrections are applied in the order of their numbers, each once"
    return Finding(
        patient.name,
        FindingKind.NUMBERS,
        what,
        where or "the stream's own row",
        why,
        RESTORE_BACKUP,
        severity=Severity.DAMAGE,
    )


def position_findings(
    patient: InspectedArchive, now: StreamPosition, before: Sequence[StreamPosition], *, newest: int, rows: bool
) -> Iterator[Finding]:
    """A stream stands where its last position says, and never goes back. `newest` is the newest commit; `rows`: whether
    their number is compared."""
    names = ["stable", "vs_max", "applied", "aged_to", "folded"]
    for one, other in pairwise(before):
        back = [name for name in names if _went_back(getattr(other, name), getattr(one, name))]
        if back:
            what = f"{', '.join(back)} went back from commit {one.commit_id} to commit {other.commit_id}"
            yield _position_finding(
                patient, what, f"position of commit {other.commit_id}", "reading the archive as of old commits"
            )
    if now.commit_id > newest:
        what = f"commit {now.commit_id} is said to have moved it last, and the newest is {newest}"
        yield _position_finding(patient, what, "the stream's own row", "noticing that another writer came first")
    if not before:
        return
    last = before[-1]
    wrong = [name for name in [*names, *(["rows"] if rows else [])] if getattr(now, name) != getattr(last, name)]
    if wrong:
        pairs = [f"{name} {getattr(now, name)} instead of {getattr(last, name)}" for name in wrong]
        what = f"the stream stands at {', '.join(pairs)}"
        yield _position_finding(patient, what, f"position of commit {last.commit_id}", "what comes in next")
    if last.commit_id > now.commit_id:
        what = f"commit {now.commit_id} is said to have moved it last, and commit {last.commit_id} has"
        yield _position_finding(patient, what, "the stream's own row", "noticing that another writer came first")


def _went_back(later: int | None, earlier: int | None) -> bool:
    return earlier is not None and (later is None or later < earlier)


def _position_finding(patient: InspectedArchive, what: str, where: str, needs: str) -> Finding:
    why = f"{needs} goes by it"
    return Finding(patient.name, FindingKind.STANDING, what, where, why, RESTORE_BACKUP, severity=Severity.DAMAGE)


def ledger_findings(
    patient: InspectedArchive, entry: LedgerEntry, rows: Mapping[int, int], *, vacuumed: bool
) -> Iterator[Finding]:
    """Whether a batch came in the commit that it names, with the rows that it counts, from lines that can be found.
    `rows` are those of each bucket; `vacuumed`: index rows may have gone."""
    where = f"batch {entry.batch_id}"
    if entry.named != entry.batch_id:
        told = "there is no such commit" if entry.named is None else f"that one is of batch {entry.named or 'none'}"
        what = f"it is said to have come in commit {entry.commit_id}, and {told}"
        yield _ledger_finding(patient, what, where, "a batch that is in the ledger is never taken in again")
    counts = entry.counts
    parts = sum(count for name, count in counts.items() if name != "read")
    if parts != counts.get("read", 0):
        what = f"{counts.get('read', 0):,} rows were read and {parts:,} accounted for"
        yield _ledger_finding(patient, what, where, "each row that is read goes somewhere, and is counted there once")
    there, all_there = sum(rows[each] for each in entry.base), len(entry.base) >= (entry.buckets or 0)
    if there != counts.get("appended", 0) if all_there else not vacuumed:
        what = f"{counts.get('appended', 0):,} rows were appended, and its {len(entry.base):,} buckets have {there:,}"
        yield _ledger_finding(patient, what, where, "rows may be missing, or there twice")
    expected, found = counts.get("pending", 0), sum(rows[each] for each in entry.pending)
    if found > expected or (found < expected and not vacuumed):
        what = f"{expected:,} revisions came with it, and its buckets have {found:,}"
        yield _ledger_finding(patient, what, where, "corrections may be missing, or there twice")
    if not _splits_follow(entry.splits):
        what = "the pieces in which its files were read do not follow each other"
        yield _ledger_finding(patient, what, where, "the file and line of a row cannot be told")


def _splits_follow(splits: Sequence[tuple[int, int | None, int, int]]) -> bool:
    ordered = sorted(splits)
    if [number for number, *_ in ordered] != list(range(len(ordered))) or any(
        file is None for _, file, _, _ in ordered
    ):
        return False
    follows = (other[1] != one[1] or other[2] == one[2] + one[3] for one, other in pairwise(ordered))
    return all(follows)


def _ledger_finding(patient: InspectedArchive, what: str, where: str, why: str) -> Finding:
    return Finding(patient.name, FindingKind.LEDGER, what, where, why, RESTORE_BACKUP, severity=Severity.DAMAGE)


@dataclass(frozen=True, slots=True)
class EvaluationProgress:
    """An evaluation: its number, its commit, and the last instant that it answered."""

    number: int
    commit_id: int
    until: int


def evaluation_findings(
    patient: InspectedArchive, found: Sequence[EvaluationProgress], stable: int | None
) -> Iterator[Finding]:
    """Evaluations follow each other without a gap, none goes back, and the last one says how far the answer reaches."""
    why = "each evaluation goes on where the one before it has ended"
    how = f"{patient.anew} works the answer out from the beginning"
    numbers = [each.number for each in found]
    # Vacuum forgets numbers behind the horizon, and never the first.
    if numbers[:1] != [1] or numbers != sorted(set(numbers)):
        what = f"its evaluations have the numbers {', '.join(map(str, numbers[:5])) or 'none'}, and should be from 1 on"
        yield Finding(patient.name, FindingKind.NUMBERS, what, ARCHIVE_ROW, why, how, severity=Severity.DAMAGE)
    for one, other in pairwise(found):
        if other.until < one.until or other.commit_id <= one.commit_id:
            what = f"evaluation {other.number} lies before evaluation {one.number}"
            yield Finding(patient.name, FindingKind.STANDING, what, ARCHIVE_ROW, why, how, severity=Severity.DAMAGE)
    if found and stable != found[-1].until:
        until = order_text(found[-1].until, timed=patient.timed)
        what = f"it stands at {stable}, and its last evaluation has answered up to {until}"
        yield Finding(patient.name, FindingKind.STANDING, what, ARCHIVE_ROW, why, how, severity=Severity.DAMAGE)


def abandoned_finding(patient: InspectedArchive, names: Collection[str]) -> Iterator[Finding]:
    """An archive goes on only for as long as there is a query of its name."""
    if patient.live and patient.name not in names:
        what, why = (
            "its query has been dropped, and the archive goes on",
            "it is held to be published, and never vacuumed",
        )
        yield repairable_finding(patient, FindingKind.STANDING, what, ARCHIVE_ROW, why)
