"""The declaration of a stream or relation: columns, key, order, retention and policies; its checks and JSON record."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from errata.errors import UsageError, unknown_name_error
from errata.model.bucket import Layout
from errata.model.columns import FLOATING_KINDS, Column, ColumnType, TypeKind, check_name
from errata.model.feed import (
    NO_FEEDS,
    LandingFolder,
    MergedFeeds,
    feeds_from_record,
    feeds_to_record,
    landing_from_record,
    landing_to_record,
)
from errata.model.reduction import NO_REDUCTION, ReducedArchives, reduced_from_record, reduced_to_record
from errata.model.time import DAY, format_duration

ARRIVAL_COLUMN = "arrived"
"""The order column of a stream that declares none: the time of arrival, which Errata adds."""

DEFAULT_BUCKET_ROWS = 500_000
"""Rows of a full bucket, unless declared: one task sorts them in memory."""


class RevisionPolicy(StrEnum):
    """What a correction changes, the strongest last."""

    IGNORE = "ignore"
    HISTORY = "history"
    RESULTS = "results"

    @property
    def rank(self) -> int:
        """How much it changes, as a number from 0."""
        return list(RevisionPolicy).index(self)


class RelationKind(StrEnum):
    """Which rows a change of a relation concerns."""

    RETROACTIVE = "retroactive"
    """Also rows that came before it."""
    NRR = "nrr"
    """Only rows whose own time is at or after it: a non-retroactive relation."""


class DuplicatePolicy(StrEnum):
    """What a second insert of a live key does."""

    QUARANTINE = "quarantine"
    REPLACE = "replace"


class AgeOutMode(StrEnum):
    """When buckets past the retention are dropped (replay-revisions-2008, section 4, footnote 5)."""

    SCHEDULED = "scheduled"
    LAZY = "lazy"


@dataclass(frozen=True, slots=True)
class Retention:
    """How much is kept: a span of the order field behind the stable point, or a number of rows."""

    span: int | None = None
    rows: int | None = None

    def __post_init__(self) -> None:
        given = [amount for amount in (self.span, self.rows) if amount is not None]
        if len(given) != 1 or given[0] <= 0:
            raise UsageError("a retention is a duration or a number of rows, more than zero")


@dataclass(frozen=True, slots=True)
class Stream:
    """The declaration of one stream. Spans are microseconds, or units of a bigint order field.

    A relation is a stream of versions, each valid from its order field until the next version of the same key."""

    name: str
    columns: tuple[Column, ...]
    key: tuple[str, ...]
    order: str
    group: tuple[str, ...] = ()
    bucket_rows: int = DEFAULT_BUCKET_ROWS
    layout: Layout = Layout.BUCKETS
    retention: Retention | None = None
    age_out: AgeOutMode = AgeOutMode.SCHEDULED
    slack: int = 0
    max_ahead: int | None = DAY
    on_revision: RevisionPolicy = RevisionPolicy.RESULTS
    on_duplicate: DuplicatePolicy = DuplicatePolicy.QUARANTINE
    horizon: int = 7 * DAY
    landing: LandingFolder | None = None
    relation: RelationKind | None = None
    deleted: str | None = None
    """Of a relation: the boolean column that is true in a version that is a tombstone."""
    reduced: ReducedArchives = NO_REDUCTION
    merged: MergedFeeds = NO_FEEDS
    """The feeds that are merged into it; a stream with feeds has no landing folder of its own."""

    def __post_init__(self) -> None:
        check_name("stream", self.name)
        self._check_columns()
        for role, names in (("key", self.key), ("order", (self.order,)), ("group", self.group)):
            for name in names:
                if name not in self.names:
                    raise unknown_name_error(f"column in {role}", name, self.names)
            if len(set(names)) != len(names):
                raise UsageError(f"{role} names a column twice")
        if self.order_type.kind not in (TypeKind.TIMESTAMP, TypeKind.BIGINT):
            raise UsageError(
                f"order column {self.order} is of type {self.order_type}",
                how="streams are ordered by a timestamp or a bigint",
            )
        for name in (*self.key, *self.group):
            if self.column(name).type.kind in FLOATING_KINDS:
                raise UsageError(
                    f"column {name} is a {self.column(name).type} and cannot be in key or group",
                    why="equality of floating point numbers does not identify anything reliably",
                    how="declare it as a decimal, or take another column",
                )
        self._check_layout()
        self._check_relation()
        self._check_purging()
        self._check_feeds()
        if not self.key:
            raise UsageError("a stream needs a key", why="corrections name the row they correct by its key")
        if self.bucket_rows < 1 or self.slack < 0 or self.horizon < 0:
            raise UsageError("bucket_rows is 1 or more, slack and horizon are 0 or more")

    def _check_layout(self) -> None:
        if self.layout is Layout.GROUPED and not self.group:
            raise UsageError(
                "layout grouped is by group, and no group is declared", how="declare `group:`, or take layout buckets"
            )
        if self.one_table and self.retention is not None and self.retention.rows is not None:
            raise UsageError(
                f"layout {self.layout} ages row by row, by a span of the order field",
                how="declare a retention such as '24 hours', or take layout buckets",
            )

    def _check_relation(self) -> None:
        if self.relation is None:
            if self.deleted is not None:
                raise UsageError("only a relation has a column that says that something is gone")
            return
        if len(self.key) < 2 or self.key[-1] != self.order or self.ordered_on_arrival:
            raise UsageError("the key of a relation's versions is the key of the thing, and from when they are valid")
        if self.retention is not None:
            raise UsageError(
                "a relation has no retention",
                why="old rows are joined with the versions that were valid then, so versions outlive all streams",
                how="leave retention out",
            )
        if self.layout is Layout.RANDOMIZED or not self.reduced.is_empty:
            raise UsageError(
                "a relation is kept at full resolution alone",
                why="of a sample of its versions, nobody could tell which one was valid",
                how="leave `reduce:` and layout randomized out",
            )
        if self.deleted is None:
            return
        if self.deleted not in self.names:
            raise unknown_name_error("column in deleted", self.deleted, self.names)
        if self.column(self.deleted).type.kind is not TypeKind.BOOLEAN or self.deleted in self.key:
            raise UsageError(f"column {self.deleted} cannot say what is gone", how="a boolean outside of the key can")

    def _check_purging(self) -> None:
        purges = self.reduced.on_read is not None and self.reduced.on_read.purge_after is not None
        if purges and not self.key_has_order:
            raise UsageError(
                "purge_after needs a key with the order field",
                why=f"a later row may have the key of a purged one, and a sample would then have both; {self.order}"
                " is not part of the key",
                how=f"add {self.order} to the key, or leave purge_after out",
            )

    def _check_feeds(self) -> None:
        if self.merged.is_empty:
            return
        if self.relation is not None or self.ordered_on_arrival:
            what = "a relation" if self.relation is not None else "a stream that is ordered by the time of arrival"
            raise UsageError(
                f"{what} has no feeds",
                why="feeds are merged by key and event time: the same row has the same in each of them",
                how="leave feeds out, or declare a stream with `order:`",
            )
        if self.landing is not None:
            raise UsageError(
                "a stream with feeds has no landing folder of its own",
                why="of a file in it, nobody could tell which feed it is from",
                how="move `landing:` into the feed that it belongs to",
            )
        if self.on_revision is RevisionPolicy.IGNORE:
            raise UsageError(
                "a stream with feeds cannot ignore corrections",
                why="what one feed adjusts, withdraws or says otherwise than another is a correction of the stream",
                how="declare on_revision: history or results",
            )
        self._check_lifetimes()
        version = self.merged.policy.version
        if version is not None and version not in self.names:
            raise unknown_name_error("column in disagreement", version, self.names)
        if version is not None and version in (*self.key, self.order, self.merged.end):
            raise UsageError(
                f"column {version} cannot be the version in disagreement",
                why="rows that disagree have the same key, and are told apart by the version",
                how="name a column outside of key, order and end",
            )

    def _check_lifetimes(self) -> None:
        """The columns that a merge gives a meaning: the end of a row's lifetime, and the number of equal rows."""
        end, occurrence = self.merged.end, self.merged.occurrence
        for role, name in (("end", end), ("occurrence", occurrence)):
            if name is not None and name not in self.names:
                raise unknown_name_error(f"column in {role}", name, self.names)
        if end is not None and (end in (*self.key, self.order) or self.column(end).type != self.order_type):
            raise UsageError(
                f"column {end} cannot be the end of a row's lifetime",
                why=f"the end is of the order's type, {self.order_type}, and it changes, which a key cannot",
                how=f"name a column of type {self.order_type} outside of key and order",
            )
        if occurrence is not None and (
            occurrence not in self.key
            or occurrence == self.order
            or self.column(occurrence).type.kind is not TypeKind.BIGINT
        ):
            raise UsageError(
                f"column {occurrence} cannot number equal rows",
                why="equal rows are told apart by the number alone, and Errata gives it",
                how="name a bigint column of the key that is not the order",
            )

    def _check_columns(self) -> None:
        folded = [name.lower() for name in self.names]
        for name in folded:
            if folded.count(name) > 1:
                raise UsageError(f"column {name} is declared twice (upper and lower case are the same)")

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)

    @property
    def noun(self) -> str:
        """Its kind, for messages."""
        return "stream" if self.relation is None else "relation"

    @property
    def relation_key(self) -> tuple[str, ...]:
        """Of a relation: the key without the order column, which all versions of a thing have in common."""
        return tuple(name for name in self.key if name != self.order)

    @property
    def order_type(self) -> ColumnType:
        return self.column(self.order).type

    @property
    def timed(self) -> bool:
        """Whether the order field is a time; otherwise it is a plain bigint."""
        return self.order_type.kind is TypeKind.TIMESTAMP

    @property
    def ordered_on_arrival(self) -> bool:
        """Whether the order field of each row is the time of its arrival, set by Errata."""
        return self.order == ARRIVAL_COLUMN

    @property
    def one_table(self) -> bool:
        """Whether buckets are pieces of one table, which are not found through the index and age row by row."""
        return self.layout in (Layout.CLUSTERED, Layout.PLAIN)

    @property
    def key_has_order(self) -> bool:
        """Whether equal keys imply equal order fields, so that the index finds a row by its key."""
        return self.order in self.key

    @property
    def as_fed(self) -> Stream:
        """The stream as its feeds give it: without the column by which Errata numbers equal rows."""
        number = self.merged.occurrence
        if number is None:
            return self
        columns = tuple(column for column in self.columns if column.name != number)
        key = tuple(name for name in self.key if name != number)
        group = tuple(name for name in self.group if name != number)
        return replace(self, columns=columns, key=key, group=group, merged=replace(self.merged, occurrence=None))

    @property
    def folders(self) -> tuple[tuple[str | None, LandingFolder], ...]:
        """The landing folders, each with the feed that delivers into it (None: the stream has one of its own)."""
        own = () if self.landing is None else ((None, self.landing),)
        return own + tuple((feed.name, feed.landing) for feed in self.merged.feeds if feed.landing is not None)

    @property
    def required(self) -> frozenset[str]:
        """The columns in which NULL is an error: key and order."""
        return frozenset((*self.key, self.order))

    def column(self, name: str) -> Column:
        return next(column for column in self.columns if column.name == name)

    def span_text(self, span: int) -> str:
        """A span of the order field in words."""
        return format_duration(span) if self.timed else f"{span} units"


def stream_to_record(stream: Stream) -> dict[str, Any]:
    """The declaration as a JSON object, which `stream_from_record` reads."""
    return {
        "columns": {column.name: str(column.type) for column in stream.columns},
        "key": list(stream.key),
        "order": stream.order,
        "group": list(stream.group),
        "bucket_rows": stream.bucket_rows,
        "layout": stream.layout.value,
        "retention": stream.retention and {"span": stream.retention.span, "rows": stream.retention.rows},
        "age_out": stream.age_out.value,
        "slack": stream.slack,
        "max_ahead": stream.max_ahead,
        "on_revision": stream.on_revision.value,
        "on_duplicate": stream.on_duplicate.value,
        "horizon": stream.horizon,
        "landing": landing_to_record(stream.landing),
        **({} if stream.relation is None else {"relation": stream.relation.value, "deleted": stream.deleted}),
        **({} if stream.reduced.is_empty else {"reduce": reduced_to_record(stream.reduced)}),
        **({} if stream.merged.is_empty else {"merge": feeds_to_record(stream.merged)}),
    }


def stream_from_record(name: str, record: dict[str, Any]) -> Stream:
    """The declaration in a record of `stream_to_record`."""
    retention, relation = record["retention"], record.get("relation")
    return Stream(
        name=name,
        columns=tuple(Column(name, ColumnType.parse(kind)) for name, kind in record["columns"].items()),
        key=tuple(record["key"]),
        order=record["order"],
        group=tuple(record["group"]),
        bucket_rows=record["bucket_rows"],
        layout=Layout(record.get("layout", Layout.BUCKETS)),
        retention=retention and Retention(**retention),
        age_out=AgeOutMode(record["age_out"]),
        slack=record["slack"],
        max_ahead=record["max_ahead"],
        on_revision=RevisionPolicy(record["on_revision"]),
        on_duplicate=DuplicatePolicy(record["on_duplicate"]),
        horizon=record["horizon"],
        landing=landing_from_record(record["landing"]),
        relation=relation and RelationKind(relation),
        deleted=record.get("deleted"),
        reduced=reduced_from_record(record.get("reduce")),
        merged=feeds_from_record(record.get("merge")),
    )
