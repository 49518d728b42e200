"""Findings of `errata doctor`: their kinds and severities, and what can be wrong with a single bucket.

What is in a bucket is a `BucketInspection`, what the index says of it a `Bucket`; everything is decided from these.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields
from enum import StrEnum

from errata.model.bucket import FULL_RESOLUTION, Bounds, Bucket, Groups, Resolution, Role
from errata.model.time import HIGHEST, LOWEST, format_instant

MAX_EXAMPLES = 5
"""Examples that a finding names at most."""


class Severity(StrEnum):
    """How bad a finding is, the worst first."""

    DAMAGE = "damage"
    """Rows cannot be read, or answers may be wrong."""
    WRONG = "wrong"
    """The catalog does not agree with what is stored."""
    LITTER = "litter"
    """Something is left over that is not needed."""


class FindingKind(StrEnum):
    """The kind of a finding, in a word that programs can use."""

    MISSING = "missing"
    SIZE = "size"
    CHECKSUM = "checksum"
    UNREADABLE = "unreadable"
    NULLS = "nulls"
    DISORDER = "order"
    FILTERS = "filters"
    FIGURES = "figures"
    MASKED = "masked"
    COUNTER = "counter"
    NUMBERS = "numbers"
    MASKS = "masks"
    DOUBLE = "double"
    OVERLAP = "overlap"
    STANDING = "standing"
    LEDGER = "ledger"
    COMMITS = "commits"
    CONSUMER = "consumer"
    DOOMED = "doomed"
    ORPHAN = "orphan"
    COPIES = "copies"
    PIN = "pin"


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is wrong, with its place, its effect and its remedy."""

    stream: str | None
    """None: it concerns the whole project."""
    kind: FindingKind
    what: str
    where: str
    why: str
    """Why it matters."""
    how: str
    """How to mend it."""
    mendable: bool = False
    """Whether `errata doctor --fix` mends it."""
    severity: Severity = Severity.WRONG


@dataclass(frozen=True, slots=True)
class BucketFigures:
    """What the index says of a bucket and its rows say too."""

    rows: int
    vs_min: int
    vs_max: int
    groups: Groups = field(default_factory=Groups)
    revisions: Bounds | None = None
    """Of an overlay; numbers of pending revisions are in the index alone."""
    masks: Bounds | None = None
    content: Bounds | None = None
    ends: Bounds | None = None
    """Of results."""
    resolution: Resolution = FULL_RESOLUTION

    @classmethod
    def from_bucket(cls, bucket: Bucket) -> BucketFigures:
        """The figures in the index."""
        numbers = None
        if bucket.role is Role.OVERLAY and bucket.revision_first is not None and bucket.revision_last is not None:
            numbers = (bucket.revision_first, bucket.revision_last)
        spans = (bucket.masks, bucket.content, bucket.ends, bucket.resolution)
        return cls(bucket.rows, bucket.vs_min, bucket.vs_max, bucket.groups, numbers, *spans)

    @classmethod
    def of_overlay(
        cls, rows: int, groups: Groups, numbers: Bounds, masks: Bounds | None, content: Bounds | None
    ) -> BucketFigures:
        """The figures of an overlay, whose span covers the rows that it masks and those that it brings."""
        both = [ends for ends in (masks, content) if ends is not None]
        low, high = min((low for low, _ in both), default=LOWEST), max((high for _, high in both), default=HIGHEST)
        return cls(rows, low, high, groups, numbers, masks, content)

    def differing_names(self, other: BucketFigures) -> list[str]:
        """The names of the figures that differ."""
        return [each.name for each in fields(self) if getattr(self, each.name) != getattr(other, each.name)]


@dataclass(frozen=True, slots=True)
class BucketInspection:
    """What was found at the place of a bucket."""

    size: int | None = None
    """None: nothing is there."""
    checksum: str | None = None
    """None: it has not been read; then nothing of what follows is known."""
    fault: str = ""
    """Why it cannot be read."""
    figures: BucketFigures | None = None
    nulls: tuple[str, ...] = ()
    """Columns of key and order in which a value is missing."""
    disordered: bool = False
    unfiltered: tuple[str, ...] = ()
    """Key columns that have no filters and should."""
    counting: int = 0
    """The number of rows that can be live: of an overlay, those that it brings."""
    masked: int | None = None
    """How many of these are superseded or aged out; None when it was not checked."""

    def whole(self, bucket: Bucket) -> bool:
        """Whether it is undamaged, as far as it has been checked."""
        if self.size is None or self.fault:
            return False
        return self.size == bucket.size if self.checksum is None else self.checksum == bucket.checksum


@dataclass(frozen=True, slots=True)
class InspectedArchive:
    """The archive that is checked: that of a stream, or of a query's results."""

    name: str
    timed: bool
    whole: int = 0
    """The number of its live buckets that are undamaged."""
    of_query: bool = False
    live: bool = True
    """Of results: whether they are what is published now: neither has their query been dropped, nor has another archive
    come."""
    unmade: Sequence[str] = ()
    """Of results: what the state cannot be made of any more: streams whose rows have been aged out."""

    @property
    def anew(self) -> str:
        """The command that makes a new archive of results."""
        return f"errata run --anew {self.name}"

    def place(self, value: int) -> str:
        """A value of the order field in words."""
        return order_text(value, timed=self.timed)

    def span(self, low: int, high: int) -> str:
        """Two values of the order field in words."""
        return f"from {self.place(low)} to {self.place(high)}"


ARCHIVE_ROW = "the archive's own row"


def order_text(value: int, *, timed: bool) -> str:
    """A value of the order field in words, also one from a damaged index."""
    if value in (LOWEST, HIGHEST):
        return "anywhere"
    try:
        return format_instant(value) if timed else str(value)
    except OverflowError:  # a figure that has been damaged need not have a date
        return str(value)


def bucket_name(bucket: Bucket) -> str:
    """The name of a bucket in findings."""
    return f"bucket {bucket.bucket_id}, {bucket.path or 'in the catalog'}"


_ROW_NOUNS = {
    Role.BASE: "rows",
    Role.PENDING: "pending revisions",
    Role.OVERLAY: "applied revisions",
    **dict.fromkeys((Role.OPEN, Role.TIP, Role.STATE), "results"),
    Role.FEED: "changes of results",
    Role.MASK: "masks of results",
    Role.PARTS: "partial aggregates of results",
    Role.LINEAGE: "rows of lineage",
    Role.COPY: "rows of a sample",
    Role.SUMMARY: "partial aggregates of a summary",
    Role.MERGE: "rows that feeds may still change",
}


def impact_text(patient: InspectedArchive, bucket: Bucket) -> str:
    """Which commits need a bucket, the span of its rows, and how many other buckets are undamaged."""
    until = "on" if bucket.removed_in is None else f"to {bucket.removed_in - 1}"
    rows = "results" if patient.of_query and bucket.role is Role.BASE else _ROW_NOUNS[bucket.role]
    of = f" of batch {bucket.batch_id}" if bucket.batch_id else ""
    one, whose = patient.whole == 1, "results" if patient.of_query else "stream"
    others = f"{patient.whole:,} live bucket{'' if one else 's'} of the {whose} {'is' if one else 'are'} whole"
    return (
        f"commits {bucket.added_in} {until} need its {bucket.rows:,} {rows}{of} "
        f"{patient.span(bucket.vs_min, bucket.vs_max)}; {others}"
    )


def restore_text(bucket: Bucket) -> str:
    """What to do about a bucket whose content is lost."""
    again = (
        f"and take batch {bucket.batch_id}'s files in again" if bucket.batch_id else "and take in again what came since"
    )
    back = f"without one go back to a backup from before commit {bucket.added_in} {again}"
    if bucket.inline:
        return f"restore the catalog from a backup that has these {bucket.size:,} bytes, {bucket.checksum}; {back}"
    return f"restore {bucket.path} ({bucket.size:,} bytes, {bucket.checksum}) from a backup of the warehouse; {back}"


def restore_results_text(patient: InspectedArchive, bucket: Bucket) -> str:
    """What to do about a bucket of results whose content is lost."""
    what = "the catalog from a backup that has" if bucket.inline else f"{bucket.path} from a backup of the warehouse:"
    back = f"restore {what} these {bucket.size:,} bytes, {bucket.checksum}; without one"
    if bucket.role is Role.FEED:
        since = f"errata changes {patient.name} --since {bucket.added_in}"
        return f"{back} changes can be read from commit {bucket.added_in} on: {since}"
    if bucket.removed_in is None and patient.live:
        return f"{back} {patient.anew} works the answer out from the streams, and publishes the difference"
    return f"{back} read later commits; vacuum takes the bucket once it lies behind the horizon"


def bucket_findings(patient: InspectedArchive, bucket: Bucket, seen: BucketInspection) -> Iterator[Finding]:
    """Findings about a single bucket: the worst one, or all of them if its content is what was written."""
    worst = content_loss(bucket, seen)
    if worst is None and patient.of_query and seen.nulls:
        worst = FindingKind.NULLS, f"there is NULL in {', '.join(seen.nulls)}"
    if worst is not None:
        yield _loss_finding(patient, bucket, *worst)
        return
    if seen.checksum is None:
        return
    yield from figure_findings(patient, bucket, seen)
    yield from _row_findings(patient, bucket, seen)
    if seen.masked is not None and seen.masked != bucket.masked and bucket.removed_in is None:
        what = f"{seen.masked:,} rows have been superseded or aged out, and {bucket.masked:,} are counted so"
        why = "ageing by rows, compaction and the count of live rows go by it"
        yield repairable_finding(patient, FindingKind.MASKED, what, bucket_name(bucket), why)


def _loss_finding(patient: InspectedArchive, bucket: Bucket, kind: FindingKind, what: str) -> Finding:
    where, why = bucket_name(bucket), impact_text(patient, bucket)
    how = restore_results_text(patient, bucket) if patient.of_query else restore_text(bucket)
    if bucket.derived:
        why = "scans at a lower rate read it; its original has all that is in it, and vacuum makes it anew"
        return repairable_finding(patient, kind, what, where, why)
    if bucket.role is Role.MERGE:
        why = "the next batch makes it anew from the archive, and takes it that every feed has said what is there"
        return repairable_finding(patient, kind, what, where, why)
    if bucket.role is Role.STATE:
        if not patient.unmade:
            why = "it is a cache; the next evaluation makes it anew, which takes a longer look at the streams"
            return repairable_finding(patient, kind, what, where, why)
        gone = ", ".join(patient.unmade)
        why = f"the query cannot go on without it: rows of {gone} are known from it alone, having been aged out"
        how = f"restore it from a backup; without one {patient.anew} works the answer out from the rows that are left"
    return Finding(patient.name, kind, what, where, why, how, severity=Severity.DAMAGE)


def is_droppable_cache(patient: InspectedArchive, bucket: Bucket, seen: BucketInspection) -> bool:
    """Whether a damaged bucket can be deleted without loss."""
    rebuilt = bucket.derived or bucket.role is Role.MERGE or (bucket.role is Role.STATE and not patient.unmade)
    return rebuilt and content_loss(bucket, seen) is not None


def differing_figures(bucket: Bucket, seen: BucketInspection) -> list[str]:
    """The names of the index figures that differ from those of the bucket's rows."""
    if seen.figures is None or not seen.whole(bucket):
        return []
    told = seen.figures.differing_names(BucketFigures.from_bucket(bucket))
    return told if seen.size == bucket.size else [*told, "bytes"]


def content_loss(bucket: Bucket, seen: BucketInspection) -> tuple[FindingKind, str] | None:
    """Why a bucket's content is lost; None if it is not."""
    thing = "rows" if bucket.inline else "file"
    if seen.size is None:
        return FindingKind.MISSING, f"the {thing} {'are' if bucket.inline else 'is'} missing"
    if seen.checksum is None and seen.size != bucket.size:
        return FindingKind.SIZE, f"{seen.size:,} bytes are there, {bucket.size:,} were written"
    if seen.checksum is not None and seen.checksum != bucket.checksum:
        return (
            FindingKind.CHECKSUM,
            f"the {thing} {'are' if bucket.inline else 'is'} not what was written: the checksum differs",
        )
    return (FindingKind.UNREADABLE, seen.fault) if seen.fault else None


def figure_findings(patient: InspectedArchive, bucket: Bucket, seen: BucketInspection) -> Iterator[Finding]:
    """Findings about index figures that differ from those of the rows."""
    wrong = differing_figures(bucket, seen)
    if wrong and seen.figures is not None:
        told = BucketFigures.from_bucket(bucket)
        pairs = [
            f"{name} {bucket.size if name == 'bytes' else _figure_text(getattr(told, name))} instead of "
            f"{seen.size if name == 'bytes' else _figure_text(getattr(seen.figures, name))}"
            for name in wrong
        ]
        what = f"the index has {', '.join(pairs)}"
        yield repairable_finding(
            patient, FindingKind.FIGURES, what, bucket_name(bucket), "scans open only what the index names"
        )


def _figure_text(value: object) -> str:
    if isinstance(value, Groups):
        return f"{value.low} to {value.high}" if value.members is None else f"{len(value.members):,} groups"
    if isinstance(value, Resolution):
        return f"{value.rate:g} of the rows, with hashes from {value.hashes.start} to {value.hashes.end}"
    return " to ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _row_findings(patient: InspectedArchive, bucket: Bucket, seen: BucketInspection) -> Iterator[Finding]:
    where = bucket_name(bucket)
    if seen.nulls:
        what = f"there is NULL in {', '.join(seen.nulls)}"
        why = f"such a row cannot be found by its key or place; {impact_text(patient, bucket)}"
        how = restore_text(bucket)
        yield Finding(patient.name, FindingKind.NULLS, what, where, why, how, severity=Severity.DAMAGE)
    if seen.disordered:
        what = "revisions are not numbered from 0 on" if bucket.role is Role.PENDING else "rows are not in their order"
        why = f"readers go by the order of layout {bucket.layout}; {impact_text(patient, bucket)}"
        how = restore_text(bucket)
        yield Finding(patient.name, FindingKind.DISORDER, what, where, why, how, severity=Severity.DAMAGE)
    if seen.unfiltered and bucket.removed_in is None:
        what = f"there are no filters of {', '.join(seen.unfiltered)}"
        why = "corrections of the stream have to read the bucket to see whether a key is in it"
        how = (
            f"errata archive compact {patient.name} writes filters with whatever it rewrites; answers do not need them"
        )
        yield Finding(patient.name, FindingKind.FILTERS, what, where, why, how, severity=Severity.LITTER)


def repairable_finding(patient: InspectedArchive, kind: FindingKind, what: str, where: str, why: str) -> Finding:
    """A finding that `errata doctor --fix` mends."""
    return Finding(patient.name, kind, what, where, why, f"errata doctor {patient.name} --fix", mendable=True)


def misclassed_finding(patient: InspectedArchive, bucket: Bucket) -> Finding:
    """The finding that the index has a bucket in the wrong span class."""
    what, why = "the index has it in the class of another span", "scans of an interval pass it over"
    return repairable_finding(patient, FindingKind.FIGURES, what, bucket_name(bucket), why)


def counter_findings(
    patient: InspectedArchive, name: str, noted: int, found: int, *, sure: bool = True
) -> Iterator[Finding]:
    """Findings about a counter of the archive. `sure`: the rows themselves have been counted."""
    if noted == found:
        return
    what = f"{name} is {noted:,} and should be {found:,}"
    where, why = "the stream's own row", "status, ageing and the choice of what to compact go by it"
    if patient.of_query:
        where, why = ARCHIVE_ROW, "it is shown to persons, and inline rows are kept few by it"
    if sure:
        yield repairable_finding(patient, FindingKind.COUNTER, what, where, why)
    else:
        how = f"errata doctor {patient.name} --deep looks at the rows and tells which of the two is wrong"
        yield Finding(patient.name, FindingKind.COUNTER, what, where, why, how)


def by_severity(found: Sequence[Finding]) -> list[Finding]:
    """The worst first, by stream."""
    ranks = list(Severity)
    return sorted(found, key=lambda each: (ranks.index(each.severity), each.stream or "", each.kind, each.where))
