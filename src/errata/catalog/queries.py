"""Queries as the catalog has recorded them. Each form of a query, that is, each plan with what decides about its
results, is a row; the old one ends where the new one begins. Whatever else changes, such as the wording of its text or
a column that it does not read, is changed in the row that there is: its results stay."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, Row, delete, insert, select, update
from sqlalchemy.exc import IntegrityError

from errata.catalog import result_tables
from errata.catalog.open import Catalog
from errata.catalog.tables import faults, queries
from errata.model.columns import Column, ColumnType
from errata.model.pattern import Pattern
from errata.model.query import CheckedQuery, columns_record, from_record, to_record
from errata.model.stream import OnRevision

_AT_ONCE = 500
"""So many names go into one statement."""


class QueriesMovedError(Exception):
    """The queries are no longer as they were when a change of them was planned."""


@dataclass(frozen=True, slots=True)
class RecordedQuery:
    """A query as it was applied."""

    query_id: int
    checked: CheckedQuery
    added_in: int
    """The commit that recorded it, in this form."""


@dataclass(frozen=True, slots=True)
class QueryWrites:
    """What is to be recorded of queries."""

    write: Sequence[CheckedQuery] = ()
    """New ones, and new forms of those that are there."""
    drop: Sequence[str] = ()
    planned_on: Mapping[str, int] | None = field(default=None)
    """The queries there were when this was planned, and the commit that had recorded each; None: whatever there is."""
    keeps: Collection[str] = ()
    """Of those to write, the ones that are known to have the recorded form, whatever the record says of it."""


def recorded(catalog: Catalog, commit_id: int | None = None) -> dict[str, RecordedQuery]:
    """All queries by name, as they are now or were at a commit."""
    query = select(queries)
    gone = queries.c.removed_in
    if commit_id is None:
        query = query.where(gone.is_(None))
    else:
        query = query.where(queries.c.added_in <= commit_id, gone.is_(None) | (gone > commit_id))
    kinds: dict[str, ColumnType] = {}
    with catalog.reading() as connection:
        rows = connection.execute(query.order_by(queries.c.name))
        return {row.name: RecordedQuery(row.query_id, _checked(row, kinds), row.added_in) for row in rows}


def with_id(catalog: Catalog, query_id: int) -> CheckedQuery:
    """The form of a query that has this id, whether it is still in force or not."""
    with catalog.reading() as connection:
        row = connection.execute(select(queries).where(queries.c.query_id == query_id)).one()
    return _checked(row, {})


def consumer(query: str) -> str:
    """By what name a query consumes the revisions of the streams that it reads."""
    return f"query {query}"


def record(connection: Connection, commit_id: int, writes: QueryWrites) -> None:
    """Write what is planned, in the transaction of the commit."""
    live = _live(connection, sorted({*writes.drop, *(each.name for each in writes.write)}))
    result_tables.agree(connection, (each.checked for each in live.values()), writes.write)
    kept = {
        each.name
        for each in writes.write
        if each.name in live and (each.name in writes.keeps or each.same_form(live[each.name].checked))
    }
    gone = sorted(each.query_id for name, each in live.items() if name not in kept)
    for start in range(0, len(gone), _AT_ONCE):
        ended = queries.c.query_id.in_(gone[start : start + _AT_ONCE])
        connection.execute(update(queries).where(ended).values(removed_in=commit_id))
        connection.execute(delete(faults).where(faults.c.query_id.in_(gone[start : start + _AT_ONCE])))
    for each in writes.write:
        if each.name in kept:
            same = queries.c.query_id == live[each.name].query_id
            connection.execute(update(queries).where(same).values(_wording(each)))
    created = [_values(each, commit_id) for each in writes.write if each.name not in kept]
    if not created:
        return
    try:
        connection.execute(insert(queries), created)
    except IntegrityError:  # somebody else has just created one of them
        raise QueriesMovedError from None


def _live(connection: Connection, names: Sequence[str]) -> dict[str, RecordedQuery]:
    """Of these queries those that there are."""
    found, kinds = {}, dict[str, ColumnType]()
    for start in range(0, len(names), _AT_ONCE):
        some = queries.c.removed_in.is_(None) & queries.c.name.in_(names[start : start + _AT_ONCE])
        for row in connection.execute(select(queries).where(some)):
            found[row.name] = RecordedQuery(row.query_id, _checked(row, kinds), row.added_in)
    return found


def check_unmoved(connection: Connection, writes: QueryWrites) -> None:
    """Raise when the queries are not those that the change was planned on."""
    if writes.planned_on is None:
        return
    query = select(queries.c.name, queries.c.added_in).where(queries.c.removed_in.is_(None))
    if {row.name: row.added_in for row in connection.execute(query)} != writes.planned_on:
        raise QueriesMovedError


def _wording(checked: CheckedQuery) -> dict[str, Any]:
    """What may change without a new form."""
    return {
        "sql": checked.query.text,
        "options": to_record(checked.query),
        "fingerprint": checked.fingerprint,
        "digest": checked.digest,
    }


def _values(checked: CheckedQuery, commit_id: int) -> dict[str, Any]:
    return {
        **_wording(checked),
        "name": checked.name,
        "added_in": commit_id,
        "columns": columns_record(checked.columns),
        "key": list(checked.key),
        "reads": list(checked.reads),
        "pattern": checked.pattern.value,
        "on_revision": checked.on_revision.value,
    }


def _checked(row: Row[Any], kinds: dict[str, ColumnType]) -> CheckedQuery:
    columns = tuple(Column(name, _kind(text, kinds)) for name, text in row.columns)
    return CheckedQuery(
        from_record(row.name, row.sql, row.options),
        columns,
        tuple(row.key),
        tuple(row.reads),
        Pattern(row.pattern),
        OnRevision(row.on_revision),
        row.fingerprint,
        row.digest,
    )


def _kind(text: str, kinds: dict[str, ColumnType]) -> ColumnType:
    # Thousands of queries have the same few types.
    if text not in kinds:
        kinds[text] = ColumnType.parse(text)
    return kinds[text]
