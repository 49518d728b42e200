"""The streams and relations of errata.yaml, read into the model."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from errata.declare.files import resolve_location
from errata.declare.section import YamlSection, parse_whole_number
from errata.errors import UsageError, unknown_name_error
from errata.model.bucket import Layout
from errata.model.columns import Column, ColumnType, TypeKind, check_name, parse_digits
from errata.model.feed import NO_FEEDS, LandedFileAction, LandingFolder, MergedFeeds
from errata.model.reduction import NO_REDUCTION, ReducedArchives
from errata.model.stream import (
    ARRIVAL_COLUMN,
    DEFAULT_BUCKET_ROWS,
    AgeOutMode,
    DuplicatePolicy,
    RelationKind,
    Retention,
    RevisionPolicy,
    Stream,
)
from errata.model.time import DAY, SECOND, parse_duration

if TYPE_CHECKING:
    from errata.declare.reduction import SummaryPlace

DEFAULT_SETTLE = 10 * SECOND
DEFAULT_HORIZON = 7 * DAY
NONE_WORD = "none"
FEED_KEYS = ("feeds", "merge", "end", "occurrence")
"""The keys of a stream that say something of feeds."""

DeclaredColumns = dict[str, ColumnType | None]
"""The declared columns; None for a wrong type, which causes no further messages."""

_ROWS_RULE = re.compile(r"([\d_]+)\s*rows?")
UNITS_RULE = re.compile(r"([\d_]+)\s*units?")


def read_stream(name: str, section: YamlSection, root: Path, summaries: list[SummaryPlace]) -> Stream | None:
    """The stream that a section declares; None if it has mistakes, which are noted. What it declares as summaries is
    added to `summaries` in any case."""
    before = len(section.problems)
    columns = _read_columns(section)
    order = _read_order(section, columns)
    if order == ARRIVAL_COLUMN:
        columns[ARRIVAL_COLUMN] = ColumnType(TypeKind.TIMESTAMP)
    timed = is_time_order(columns.get(order))
    key = _read_names(section, "key", columns)
    retention = section.read("retention", lambda text: parse_retention(text, timed))
    age_out = section.choice("age_out", AgeOutMode) or AgeOutMode.SCHEDULED
    how = _read_common(section, columns, order, root)
    how["merged"] = _read_merged(section, timed, root)
    section.finish()
    roles = StreamRoles(name, key, order, retention=retention, age_out=age_out)
    made = _make_stream(section, before, columns, roles, how)
    if how["reduced"].summaries:
        from errata.declare.reduction import summary_places  # noqa: PLC0415 - most streams have none

        summaries += summary_places(section, name, how["reduced"], made or _stream_of_columns(name, columns, order))
    return made


def read_relation(name: str, section: YamlSection, root: Path) -> Stream | None:
    """The relation that a section declares: a stream of versions, each valid from its order field on."""
    before = len(section.problems)
    columns = _read_columns(section)
    if not section.has("kind"):
        known = ", ".join(kind.value for kind in RelationKind)
        section.mistake("kind", UsageError("key 'kind' is missing", how=f"choose one of {known}"))
    relation = section.choice("kind", RelationKind)
    if section.text("order") is None:
        mend = "name the column that says from when a version is valid: order: since"
        section.mistake("order", UsageError("a relation has no order", how=mend))
    order = _read_order(section, columns)
    key = _read_names(section, "key", columns)
    _check_key_without_order(section, key, order)
    _check_no_retention(section)
    _check_no_feeds(section)
    deleted = _read_deleted(section, columns, key)
    how = _read_common(section, columns, order, root)
    section.finish()
    return _make_stream(section, before, columns, StreamRoles(name, (*key, order), order, relation, deleted), how)


@dataclass(frozen=True, slots=True)
class StreamRoles:
    """What streams and relations declare differently."""

    name: str
    key: tuple[str, ...]
    order: str
    relation: RelationKind | None = None
    deleted: str | None = None
    retention: Retention | None = None
    age_out: AgeOutMode = AgeOutMode.SCHEDULED


def _read_common(section: YamlSection, columns: DeclaredColumns, order: str, root: Path) -> dict[str, Any]:
    """What streams and relations declare alike: how rows are kept, taken in and corrected."""
    timed = is_time_order(columns.get(order))
    horizon = section.read("horizon", parse_duration)
    return {
        "group": _read_names(section, "group", columns),
        "bucket_rows": section.read("bucket_rows", parse_whole_number) or DEFAULT_BUCKET_ROWS,
        "layout": section.choice("layout", Layout) or Layout.BUCKETS,
        "slack": _read_slack(section, order, timed),
        "max_ahead": _read_max_ahead(section, timed),
        "on_revision": section.choice("on_revision", RevisionPolicy) or RevisionPolicy.RESULTS,
        "on_duplicate": section.choice("on_duplicate", DuplicatePolicy) or DuplicatePolicy.QUARANTINE,
        "horizon": DEFAULT_HORIZON if horizon is None else horizon,
        "landing": _read_landing(section.section("landing"), root),
        "reduced": _read_reduced(section.section("reduce"), columns, timed=timed),
    }


def _read_merged(section: YamlSection, timed: bool, root: Path) -> MergedFeeds:
    # All keys are asked for, so that none of them counts as unknown.
    if not any([section.has(name) for name in FEED_KEYS]):  # noqa: C419
        return NO_FEEDS
    from errata.declare.feeds import read_feeds  # noqa: PLC0415 - most streams have none

    return read_feeds(section, timed=timed, read_landing=lambda below: _read_landing(below, root))


def _check_no_feeds(section: YamlSection) -> None:
    if not {*FEED_KEYS}.isdisjoint(section.names()):
        from errata.declare.feeds import check_no_feeds  # noqa: PLC0415 - relations have none

        check_no_feeds(section)


def _read_reduced(section: YamlSection | None, columns: DeclaredColumns, *, timed: bool) -> ReducedArchives:
    if section is None:
        return NO_REDUCTION
    from errata.declare.reduction import read_reduction  # noqa: PLC0415 - most streams have none

    return read_reduction(section, columns, lambda text: parse_span(text, timed))


def _make_stream(
    section: YamlSection, before: int, columns: DeclaredColumns, roles: StreamRoles, how: dict[str, Any]
) -> Stream | None:
    if len(section.problems) > before:
        return None
    try:
        return Stream(
            name=roles.name,
            columns=tuple(Column(column, kind) for column, kind in columns.items() if kind is not None),
            key=roles.key,
            order=roles.order,
            retention=roles.retention,
            age_out=roles.age_out,
            relation=roles.relation,
            deleted=roles.deleted,
            **how,
        )
    except UsageError as error:
        section.problems.add(section.place, error)
        return None


def _stream_of_columns(name: str, columns: DeclaredColumns, order: str) -> Stream | None:
    """A stream with nothing but its columns, for what is planned over it while it has other mistakes; None if the
    mistakes are in its columns."""
    known = tuple(Column(column, kind) for column, kind in columns.items() if kind is not None)
    if len(known) < len(columns) or order not in columns:
        return None
    try:
        return Stream(name=name, columns=known, key=(order,), order=order)
    except UsageError:
        return None


def is_time_order(order: ColumnType | None) -> bool:
    """Whether an order column is a time; a wrong one counts as a time."""
    return order is None or order.kind is not TypeKind.BIGINT


def _check_key_without_order(section: YamlSection, key: tuple[str, ...], order: str) -> None:
    if order in key:
        error = UsageError(
            f"key names {order!r}, the order of the relation",
            why="the key says which thing a version is of, and the order from when the version is valid",
            how=f"leave {order} out of key",
        )
        section.mistake("key", error)


def _check_no_retention(section: YamlSection) -> None:
    if section.text("retention") is not None:
        error = UsageError(
            "a relation has no retention",
            why="old rows are joined with the versions that were valid then, so versions outlive all streams",
            how="leave retention out",
        )
        section.mistake("retention", error)


def _read_deleted(section: YamlSection, columns: DeclaredColumns, key: tuple[str, ...]) -> str | None:
    """The column that marks tombstones."""
    name = section.text("deleted")
    if name is None:
        return None
    if name not in columns:
        section.mistake("deleted", unknown_name_error("column in deleted", name, columns))
    elif (kind := columns[name]) is not None and kind.kind is not TypeKind.BOOLEAN:
        how = "name a boolean column that is true in a version that only says that the thing is gone"
        section.mistake("deleted", UsageError(f"column {name!r} in deleted is of type {kind}", how=how))
    elif name in key:
        error = UsageError(f"column {name!r} is in key and in deleted", how="take it out of one of the two")
        section.mistake("deleted", error)
    return name


def parse_retention(text: str, timed: bool) -> Retention:
    """The retention of a stream: rows, or a span of its order field."""
    folded = text.lower()
    if (rows := _ROWS_RULE.fullmatch(folded)) is not None:
        return Retention(rows=parse_whole_number(rows[1]))
    if (units := UNITS_RULE.fullmatch(folded)) is not None and not timed:
        return Retention(span=parse_whole_number(units[1]))
    if not timed:
        raise UsageError(
            f"{text!r} is not a retention of a stream ordered by a bigint",
            how="write '1000 units' of the order field, or '1000 rows'",
        )
    if folded.replace("_", "").isdecimal():
        return Retention(rows=parse_whole_number(folded))
    try:
        return Retention(span=parse_duration(text))
    except UsageError:
        raise UsageError(
            f"{text!r} is not a retention",
            how="write a duration such as '24 hours', or a number of rows such as '500000 rows', more than zero",
        ) from None


def parse_span(text: str, timed: bool) -> int:
    """A span of the order field: a duration, or units of a bigint."""
    if timed:
        return parse_duration(text)
    number = UNITS_RULE.fullmatch(text.lower())
    digits = (number[1] if number else text).replace("_", "")
    if not (digits.isascii() and digits.isdecimal()):
        raise UsageError(
            f"{text!r} is not a stretch of a bigint order field", how="write a whole number of units, such as 1000"
        )
    return parse_digits(digits)


def _read_columns(section: YamlSection) -> DeclaredColumns:
    if not section.has("columns"):
        section.mistake("columns", UsageError("key 'columns' is missing", how="write columns: {time: timestamp, …}"))
    declared = section.section("columns")
    columns: DeclaredColumns = {}
    if declared is None:
        return columns
    for name in declared.names():
        columns[name] = declared.read(name, ColumnType.parse)
        if error := _name_mistake(name, columns):
            declared.mistake(name, error)
    return columns


def _name_mistake(name: str, columns: DeclaredColumns) -> UsageError | None:
    if name.lower() == ARRIVAL_COLUMN:
        return UsageError(
            f"{name!r} is the name of the column that Errata adds for the time of arrival",
            how="give the column another name; where a stream declares no order, the time of arrival is added",
        )
    if sum(other.lower() == name.lower() for other in columns) > 1:
        return UsageError(
            f"column {name!r} is declared twice", why="upper and lower case are the same", how="rename one of them"
        )
    try:
        check_name("column", name)
    except UsageError as error:
        return error
    return None


def _read_order(section: YamlSection, columns: DeclaredColumns) -> str:
    order = section.text("order")
    if order is None:
        return ARRIVAL_COLUMN
    if order not in columns:
        section.mistake("order", unknown_name_error("column in order", order, columns))
    elif (kind := columns[order]) is not None and kind.kind not in (TypeKind.TIMESTAMP, TypeKind.BIGINT):
        section.mistake(
            "order",
            UsageError(
                f"order column {order!r} is of type {kind}",
                how="streams are ordered by a timestamp or a bigint; without order the time of arrival is taken",
            ),
        )
    return order


def _read_names(section: YamlSection, role: str, columns: DeclaredColumns) -> tuple[str, ...]:
    """The columns that key or group lists."""
    if role == "key" and not section.has(role):
        section.mistake(role, UsageError("key 'key' is missing", how="list the columns that identify a row: key: [id]"))
    names: list[str] = []
    for name, there in section.texts(role):
        if name not in columns:
            section.problems.add(there, unknown_name_error(f"column in {role}", name, columns))
        elif name in names:
            section.problems.add(there, UsageError(f"{role} names column {name!r} twice", how="name it once"))
        elif (kind := columns[name]) is not None and kind.kind in (TypeKind.FLOAT, TypeKind.DOUBLE):
            section.problems.add(
                there,
                UsageError(
                    f"column {name!r} is a {kind} and cannot be in {role}",
                    why="equality of floating point numbers does not identify anything reliably",
                    how="declare it as a decimal, or take another column",
                ),
            )
        names.append(name)
    if role == "key" and section.is_empty_list(role):
        section.mistake(role, UsageError("key is an empty list", how="list the columns that identify a row: key: [id]"))
    return tuple(names)


def _read_slack(section: YamlSection, order: str, timed: bool) -> int:
    slack = section.read("slack", lambda text: parse_span(text, timed))
    if slack is not None and order == ARRIVAL_COLUMN:
        section.mistake(
            "slack",
            UsageError(
                "slack is declared without an order",
                why="rows that are ordered by their arrival are never out of order",
                how="declare order: COLUMN, or leave slack out",
            ),
        )
    return slack or 0


def _read_max_ahead(section: YamlSection, timed: bool) -> int | None:
    if timed:
        ahead = section.read("max_ahead", lambda text: (None if text == NONE_WORD else parse_duration(text),))
        return DAY if ahead is None else ahead[0]
    text = section.text("max_ahead")
    if text not in (None, NONE_WORD):
        section.mistake(
            "max_ahead",
            UsageError(
                f"max_ahead is {text!r} in a stream ordered by a bigint",
                why="the wall clock says nothing about a bigint",
                how="leave max_ahead out",
            ),
        )
    return None


def _read_landing(section: YamlSection | None, root: Path) -> LandingFolder | None:
    if section is None:
        return None
    path = section.required("path", "name the folder in which files land: landing: {path: ./landing}")
    settle = section.read("settle", parse_duration)
    then = section.choice("then", LandedFileAction) or LandedFileAction.MOVE
    section.finish()
    return LandingFolder(resolve_location(path or ".", root), DEFAULT_SETTLE if settle is None else settle, then)
