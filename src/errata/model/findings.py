"""Findings of `errata doctor`: their kinds and severities, and what can be wrong with a single bucket.

What is in a bucket is a `BucketInspection`, what the index says of it a `Bucket`; everything is decided from these.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Protocol

from errata.model.bucket import Bounds, Bucket, Groups, Role
from errata.model.stream import Stream
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

    @classmethod
    def from_bucket(cls, bucket: Bucket) -> BucketFigures:
        """The figures in the index."""
        numbers = None
        if bucket.role is Role.OVERLAY and bucket.revision_first is not None and bucket.revision_last is not None:
            numbers = (bucket.revision_first, bucket.revision_last)
        spans = (bucket.masks, bucket.content, bucket.ends)
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


class NamedArchive(Protocol):
    """An archive with the name that findings use."""

    @property
    def name(self) -> str: ...


@dataclass(frozen=True, slots=True)
class InspectedStream:
    """The stream that is checked."""

    stream: Stream
    whole: int = 0
    """The number of its live buckets that are undamaged."""
    dropped: bool = False

    @property
    def name(self) -> str:
        return self.stream.name

    def place(self, value: int) -> str:
        """A value of the order field in words."""
        return order_text(value, timed=self.stream.timed)

    def span(self, low: int, high: int) -> str:
        """Two values of the order field in words."""
        return f"from {self.place(low)} to {self.place(high)}"


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


def impact_text(patient: InspectedStream, bucket: Bucket) -> str:
    """Which commits need a bucket, the span of its rows, and how many other buckets are undamaged."""
    until = "on" if bucket.removed_in is None else f"to {bucket.removed_in - 1}"
    rows = {Role.BASE: "rows", Role.PENDING: "pending revisions", Role.OVERLAY: "applied revisions"}[bucket.role]
    of = f" of batch {bucket.batch_id}" if bucket.batch_id else ""
    one = patient.whole == 1
    others = f"{patient.whole:,} live bucket{'' if one else 's'} of the stream {'is' if one else 'are'} whole"
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


def bucket_findings(patient: InspectedStream, bucket: Bucket, seen: BucketInspection) -> Iterator[Finding]:
    """Findings about a single bucket: the worst one, or all of them if its content is what was written."""
    worst = content_loss(bucket, seen)
    if worst is not None:
        kind, what = worst
        where, why = bucket_name(bucket), impact_text(patient, bucket)
        yield Finding(patient.name, kind, what, where, why, restore_text(bucket), severity=Severity.DAMAGE)
        return
    if seen.checksum is None:
        return
    yield from figure_findings(patient, bucket, seen)
    yield from _row_findings(patient, bucket, seen)
    if seen.masked is not None and seen.masked != bucket.masked and bucket.removed_in is None:
        what = f"{seen.masked:,} rows have been superseded or aged out, and {bucket.masked:,} are counted so"
        why = "ageing by rows, compaction and the count of live rows go by it"
        yield repairable_finding(patient, FindingKind.MASKED, what, bucket_name(bucket), why)


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


def figure_findings(patient: NamedArchive, bucket: Bucket, seen: BucketInspection) -> Iterator[Finding]:
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
    return " to ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _row_findings(patient: InspectedStream, bucket: Bucket, seen: BucketInspection) -> Iterator[Finding]:
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


def repairable_finding(patient: NamedArchive, kind: FindingKind, what: str, where: str, why: str) -> Finding:
    """A finding that `errata doctor --fix` mends."""
    return Finding(patient.name, kind, what, where, why, f"errata doctor {patient.name} --fix", mendable=True)


def misclassed_finding(patient: NamedArchive, bucket: Bucket) -> Finding:
    """The finding that the index has a bucket in the wrong span class."""
    what, why = "the index has it in the class of another span", "scans of an interval pass it over"
    return repairable_finding(patient, FindingKind.FIGURES, what, bucket_name(bucket), why)


def counter_findings(
    patient: InspectedStream, name: str, noted: int, found: int, *, sure: bool = True
) -> Iterator[Finding]:
    """Findings about a counter of the stream. `sure`: the rows themselves have been counted."""
    if noted == found:
        return
    what = f"{name} is {noted:,} and should be {found:,}"
    why = "status, ageing and the choice of what to compact go by it"
    where = "the stream's own row"
    if sure:
        yield repairable_finding(patient, FindingKind.COUNTER, what, where, why)
    else:
        how = f"errata doctor {patient.name} --deep looks at the rows and tells which of the two is wrong"
        yield Finding(patient.name, FindingKind.COUNTER, what, where, why, how)


def by_severity(found: Sequence[Finding]) -> list[Finding]:
    """The worst first, by stream."""
    ranks = list(Severity)
    return sorted(found, key=lambda each: (ranks.index(each.severity), each.stream or "", each.kind, each.where))
