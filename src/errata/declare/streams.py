"""One stream or relation of errata.yaml, read into the model."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from errata.declare.locations import place
from errata.declare.reader import Section, whole_number
from errata.errors import UsageError, unknown
from errata.model.bucket import Layout
from errata.model.columns import Column, ColumnType, Kind, check_name
from errata.model.instants import DAY, SECOND, parse_duration
from errata.model.numbers import whole
from errata.model.stream import (
    ARRIVAL,
    DEFAULT_BUCKET_ROWS,
    AgeOut,
    Landing,
    OnDuplicate,
    OnRevision,
    RelationKind,
    Retention,
    Stream,
    Then,
)

DEFAULT_SETTLE = 10 * SECOND
DEFAULT_HORIZON = 7 * DAY
NONE = "none"

Columns = dict[str, ColumnType | None]
"""The declared columns; None for a type that is wrong, so that nothing more is said of it."""

_ROWS = re.compile(r"([\d_]+)\s*rows?")
UNITS = re.compile(r"([\d_]+)\s*units?")


def read_stream(name: str, section: Section, root: Path) -> Stream | None:
    """The stream that a section declares; None when something in it is wrong, which is then noted."""
    before = len(section.problems)
    columns = _columns(section)
    order = _order(section, columns)
    if order == ARRIVAL:
        columns[ARRIVAL] = ColumnType(Kind.TIMESTAMP)
    timed = is_timed(columns.get(order))
    key = _names(section, "key", columns)
    retention = section.read("retention", lambda text: parse_retention(text, timed))
    age_out = section.choice("age_out", AgeOut) or AgeOut.SCHEDULED
    how = _how(section, columns, order, root)
    section.finish()
    return _made(section, before, columns, Roles(name, key, order, retention=retention, age_out=age_out), how)


def read_relation(name: str, section: Section, root: Path) -> Stream | None:
    """The same for a relation: a stream of the versions of things, each valid from its order field on."""
    before = len(section.problems)
    columns = _columns(section)
    if not section.has("kind"):
        known = ", ".join(kind.value for kind in RelationKind)
        section.mistake("kind", UsageError("key 'kind' is missing", how=f"choose one of {known}"))
    relation = section.choice("kind", RelationKind)
    if section.text("order") is None:
        mend = "name the column that says from when a version is valid: order: since"
        section.mistake("order", UsageError("a relation has no order", how=mend))
    order = _order(section, columns)
    key = _names(section, "key", columns)
    _refuse_order_in_key(section, key, order)
    _refuse_retention(section)
    deleted = _deleted(section, columns, key)
    how = _how(section, columns, order, root)
    section.finish()
    return _made(section, before, columns, Roles(name, (*key, order), order, relation, deleted), how)


@dataclass(frozen=True, slots=True)
class Roles:
    """What streams and relations declare each in their own way."""

    name: str
    key: tuple[str, ...]
    order: str
    relation: RelationKind | None = None
    deleted: str | None = None
    retention: Retention | None = None
    age_out: AgeOut = AgeOut.SCHEDULED


def _how(section: Section, columns: Columns, order: str, root: Path) -> dict[str, Any]:
    """What streams and relations declare alike: how rows are kept, taken in and corrected."""
    timed = is_timed(columns.get(order))
    horizon = section.read("horizon", parse_duration)
    return {
        "group": _names(section, "group", columns),
        "bucket_rows": section.read("bucket_rows", whole_number) or DEFAULT_BUCKET_ROWS,
        "layout": section.choice("layout", Layout) or Layout.BUCKETS,
        "slack": _slack(section, order, timed),
        "max_ahead": _max_ahead(section, timed),
        "on_revision": section.choice("on_revision", OnRevision) or OnRevision.RESULTS,
        "on_duplicate": section.choice("on_duplicate", OnDuplicate) or OnDuplicate.QUARANTINE,
        "horizon": DEFAULT_HORIZON if horizon is None else horizon,
        "landing": _landing(section.section("landing"), root),
    }


def _made(section: Section, before: int, columns: Columns, roles: Roles, how: dict[str, Any]) -> Stream | None:
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


def is_timed(order: ColumnType | None) -> bool:
    """Whether an order column is a time; one that is wrong is taken for one."""
    return order is None or order.kind is not Kind.BIGINT


def _refuse_order_in_key(section: Section, key: tuple[str, ...], order: str) -> None:
    if order in key:
        error = UsageError(
            f"key names {order!r}, the order of the relation",
            why="the key says which thing a version is of, and the order from when the version is valid",
            how=f"leave {order} out of key",
        )
        section.mistake("key", error)


def _refuse_retention(section: Section) -> None:
    if section.text("retention") is not None:
        error = UsageError(
            "a relation has no retention",
            why="old rows are joined with the versions that were valid then, so versions outlive all streams",
            how="leave retention out",
        )
        section.mistake("retention", error)


def _deleted(section: Section, columns: Columns, key: tuple[str, ...]) -> str | None:
    """The column that says that a thing is gone."""
    name = section.text("deleted")
    if name is None:
        return None
    if name not in columns:
        section.mistake("deleted", unknown("column in deleted", name, columns))
    elif (kind := columns[name]) is not None and kind.kind is not Kind.BOOLEAN:
        how = "name a boolean column that is true in a version that only says that the thing is gone"
        section.mistake("deleted", UsageError(f"column {name!r} in deleted is of type {kind}", how=how))
    elif name in key:
        error = UsageError(f"column {name!r} is in key and in deleted", how="take it out of one of the two")
        section.mistake("deleted", error)
    return name


def parse_retention(text: str, timed: bool) -> Retention:
    """How much a stream keeps: rows, or a span in the measure of its order field."""
    folded = text.lower()
    if (rows := _ROWS.fullmatch(folded)) is not None:
        return Retention(rows=whole_number(rows[1]))
    if (units := UNITS.fullmatch(folded)) is not None and not timed:
        return Retention(span=whole_number(units[1]))
    if not timed:
        raise UsageError(
            f"{text!r} is not a retention of a stream ordered by a bigint",
            how="write '1000 units' of the order field, or '1000 rows'",
        )
    if folded.replace("_", "").isdecimal():
        return Retention(rows=whole_number(folded))
    try:
        return Retention(span=parse_duration(text))
    except UsageError:
        raise UsageError(
            f"{text!r} is not a retention",
            how="write a duration such as '24 hours', or a number of rows such as '500000 rows', more than zero",
        ) from None


def parse_span(text: str, timed: bool) -> int:
    """A stretch of the order field: a duration, or units of a bigint."""
    if timed:
        return parse_duration(text)
    number = UNITS.fullmatch(text.lower())
    digits = (number[1] if number else text).replace("_", "")
    if not (digits.isascii() and digits.isdecimal()):
        raise UsageError(
            f"{text!r} is not a stretch of a bigint order field", how="write a whole number of units, such as 1000"
        )
    return whole(digits)


def _columns(section: Section) -> Columns:
    if not section.has("columns"):
        section.mistake("columns", UsageError("key 'columns' is missing", how="write columns: {time: timestamp, …}"))
    declared = section.section("columns")
    columns: Columns = {}
    if declared is None:
        return columns
    for name in declared.names():
        columns[name] = declared.read(name, ColumnType.parse)
        if error := _name_mistake(name, columns):
            declared.mistake(name, error)
    return columns


def _name_mistake(name: str, columns: Columns) -> UsageError | None:
    if name.lower() == ARRIVAL:
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


def _order(section: Section, columns: Columns) -> str:
    order = section.text("order")
    if order is None:
        return ARRIVAL
    if order not in columns:
        section.mistake("order", unknown("column in order", order, columns))
    elif (kind := columns[order]) is not None and kind.kind not in (Kind.TIMESTAMP, Kind.BIGINT):
        section.mistake(
            "order",
            UsageError(
                f"order column {order!r} is of type {kind}",
                how="streams are ordered by a timestamp or a bigint; without order the time of arrival is taken",
            ),
        )
    return order


def _names(section: Section, role: str, columns: Columns) -> tuple[str, ...]:
    """The columns that key or group lists."""
    if role == "key" and not section.has(role):
        section.mistake(role, UsageError("key 'key' is missing", how="list the columns that identify a row: key: [id]"))
    names: list[str] = []
    for name, there in section.texts(role):
        if name not in columns:
            section.problems.add(there, unknown(f"column in {role}", name, columns))
        elif name in names:
            section.problems.add(there, UsageError(f"{role} names column {name!r} twice", how="name it once"))
        elif (kind := columns[name]) is not None and kind.kind in (Kind.FLOAT, Kind.DOUBLE):
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


def _slack(section: Section, order: str, timed: bool) -> int:
    slack = section.read("slack", lambda text: parse_span(text, timed))
    if slack is not None and order == ARRIVAL:
        section.mistake(
            "slack",
            UsageError(
                "slack is declared without an order",
                why="rows that are ordered by their arrival are never out of order",
                how="declare order: COLUMN, or leave slack out",
            ),
        )
    return slack or 0


def _max_ahead(section: Section, timed: bool) -> int | None:
    if timed:
        ahead = section.read("max_ahead", lambda text: (None if text == NONE else parse_duration(text),))
        return DAY if ahead is None else ahead[0]
    text = section.text("max_ahead")
    if text not in (None, NONE):
        section.mistake(
            "max_ahead",
            UsageError(
                f"max_ahead is {text!r} in a stream ordered by a bigint",
                why="the wall clock says nothing about a bigint",
                how="leave max_ahead out",
            ),
        )
    return None


def _landing(section: Section | None, root: Path) -> Landing | None:
    if section is None:
        return None
    path = section.required("path", "name the folder in which files land: landing: {path: ./landing}")
    settle = section.read("settle", parse_duration)
    then = section.choice("then", Then) or Then.MOVE
    section.finish()
    return Landing(place(path or ".", root), DEFAULT_SETTLE if settle is None else settle, then)
