"""Queries as the catalog has recorded them. Each form of a query, that is, each plan with what decides about its
results, is a row; the old one ends where the new one begins. Whatever else changes, such as the wording of its text or
a column that it does not read, is changed in the row that there is: its results stay."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, Row, delete, insert, select, update
from sqlalchemy.exc import IntegrityError

from errata.catalog import result_tables
from errata.catalog.database import Catalog
from errata.catalog.tables import faults, queries, told_faults
from errata.catalog.transaction import Conflict
from errata.model.columns import Column, ColumnType
from errata.model.commit import Fault
from errata.model.query import CheckedQuery, columns_to_record, query_from_record, query_to_record
from errata.model.results import UpdatePattern
from errata.model.stream import RevisionPolicy

_NAMES_PER_STATEMENT = 500
"""So many names go into one statement."""


class QueryPlanConflict(Conflict):
    """The queries are no longer as they were when a change of them was planned."""


@dataclass(frozen=True, slots=True)
class RecordedQuery:
    """A query as it was applied."""

    query_id: int
    checked: CheckedQuery
    added_in: int
    """The commit that recorded it, in this form."""


@dataclass(frozen=True, slots=True)
class QueryChangeSet:
    """What is to be recorded of queries."""

    write: Sequence[CheckedQuery] = ()
    """New ones, and new forms of those that are there."""
    drop: Sequence[str] = ()
    planned_on: Mapping[str, int] | None = field(default=None)
    """The queries there were when this was planned, and the commit that had recorded each; None: whatever there is."""
    keeps: Collection[str] = ()
    """Of those to write, the ones that are known to have the recorded form, whatever the record says of it."""


def recorded_queries(catalog: Catalog, commit_id: int | None = None) -> dict[str, RecordedQuery]:
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
        return {row.name: RecordedQuery(row.query_id, _query_from_row(row, kinds), row.added_in) for row in rows}


def query_by_id(catalog: Catalog, query_id: int) -> CheckedQuery:
    """The form of a query that has this id, whether it is still in force or not."""
    with catalog.reading() as connection:
        row = connection.execute(select(queries).where(queries.c.query_id == query_id)).one()
    return _query_from_row(row, {})


def consumer_name(query: str) -> str:
    """By what name a query consumes the revisions of the streams that it reads."""
    return f"query {query}"


def record_queries(connection: Connection, commit_id: int, writes: QueryChangeSet) -> None:
    """Write what is planned, in the transaction of the commit."""
    live = _live_queries(connection, sorted({*writes.drop, *(each.name for each in writes.write)}))
    result_tables.reconcile_tables(connection, (each.checked for each in live.values()), writes.write)
    kept = {
        each.name
        for each in writes.write
        if each.name in live and (each.name in writes.keeps or each.same_form(live[each.name].checked))
    }
    gone = sorted(each.query_id for name, each in live.items() if name not in kept)
    for start in range(0, len(gone), _NAMES_PER_STATEMENT):
        ended = queries.c.query_id.in_(gone[start : start + _NAMES_PER_STATEMENT])
        connection.execute(update(queries).where(ended).values(removed_in=commit_id))
        connection.execute(delete(faults).where(faults.c.query_id.in_(gone[start : start + _NAMES_PER_STATEMENT])))
    for each in writes.write:
        if each.name in kept:
            same = queries.c.query_id == live[each.name].query_id
            connection.execute(update(queries).where(same).values(_mutable_values(each)))
    created = [_query_values(each, commit_id) for each in writes.write if each.name not in kept]
    if not created:
        return
    try:
        connection.execute(insert(queries), created)
    except IntegrityError:  # somebody else has just created one of them
        raise QueryPlanConflict from None


def _live_queries(connection: Connection, names: Sequence[str]) -> dict[str, RecordedQuery]:
    """Of these queries those that there are."""
    found, kinds = {}, dict[str, ColumnType]()
    for start in range(0, len(names), _NAMES_PER_STATEMENT):
        some = queries.c.removed_in.is_(None) & queries.c.name.in_(names[start : start + _NAMES_PER_STATEMENT])
        for row in connection.execute(select(queries).where(some)):
            found[row.name] = RecordedQuery(row.query_id, _query_from_row(row, kinds), row.added_in)
    return found


def check_unchanged(connection: Connection, writes: QueryChangeSet) -> None:
    """Raise when the queries are not those that the change was planned on."""
    if writes.planned_on is None:
        return
    query = select(queries.c.name, queries.c.added_in).where(queries.c.removed_in.is_(None))
    if {row.name: row.added_in for row in connection.execute(query)} != writes.planned_on:
        raise QueryPlanConflict


def _mutable_values(checked: CheckedQuery) -> dict[str, Any]:
    """What may change without a new form."""
    return {
        "sql": checked.query.text,
        "options": query_to_record(checked.query),
        "fingerprint": checked.fingerprint,
        "digest": checked.digest,
    }


def _query_values(checked: CheckedQuery, commit_id: int) -> dict[str, Any]:
    return {
        **_mutable_values(checked),
        "name": checked.name,
        "added_in": commit_id,
        "columns": columns_to_record(checked.columns),
        "key": list(checked.key),
        "reads": list(checked.reads),
        "pattern": checked.pattern.value,
        "on_revision": checked.on_revision.value,
    }


def _query_from_row(row: Row[Any], kinds: dict[str, ColumnType]) -> CheckedQuery:
    columns = tuple(Column(name, _cached_type(text, kinds)) for name, text in row.columns)
    return CheckedQuery(
        query_from_record(row.name, row.sql, row.options),
        columns,
        tuple(row.key),
        tuple(row.reads),
        UpdatePattern(row.pattern),
        RevisionPolicy(row.on_revision),
        row.fingerprint,
        row.digest,
    )


def _cached_type(text: str, kinds: dict[str, ColumnType]) -> ColumnType:
    # Thousands of queries have the same few types.
    if text not in kinds:
        kinds[text] = ColumnType.parse(text)
    return kinds[text]


# Queries that have stopped, and why.


@dataclass(frozen=True, slots=True)
class StoppedQuery:
    """Where a query stopped."""

    query_id: int
    data_commit: int
    """The state of the streams that it could not take in."""
    since: int
    """The instant up to which it has been answered; LOWEST if it never was."""
    at: int
    """When that was found."""
    fault: Fault


def stopped_queries(catalog: Catalog) -> dict[int, StoppedQuery]:
    """All that have stopped, by the ids of the queries."""
    with catalog.reading() as connection:
        rows = connection.execute(select(faults)).all()
    return {
        row.query_id: StoppedQuery(row.query_id, row.data_commit, row.since, row.at, Fault.of(row.fault))
        for row in rows
    }


def record_fault(catalog: Catalog, query_id: int, data_commit: int, since: int, fault: Fault) -> None:
    """A query has stopped; it goes on when what stopped it has been mended, and a fault of before is forgotten."""
    values = {"query_id": query_id, "data_commit": data_commit, "since": since, "fault": fault.record()}
    with catalog.writing() as connection:
        connection.execute(delete(faults).where(faults.c.query_id == query_id))
        connection.execute(insert(faults).values(values | {"at": catalog.clock.now()}))


# Faults of queries that somebody is told of: each once when it begins, and once when it is over.
#
# What is told is what differs between the queries that have stopped and what has been told, so nothing that stops or
# mends a query has to think of it. A fault has its id before it is told, and is marked as told after it: whoever is
# killed in between tells it again, under the same id.
#
#     stopped ──► row with an id ──► told ──► marked ──► goes on ──► told that it is over ──► row is gone


@dataclass(frozen=True, slots=True)
class FaultNotice:
    """A fault of a query, from when it was noticed until it has been told that it is over."""

    fault_id: str
    query_id: int
    query: str
    fault: Fault
    since: int
    """When the query stopped."""
    told: int | None
    """When somebody was told; None: not yet."""


def due_fault_notices(catalog: Catalog) -> tuple[Sequence[FaultNotice], Sequence[FaultNotice]]:
    """The faults that are to be told, and those of which it is to be told that they are over."""
    with catalog.writing() as connection:
        live = select(queries.c.query_id, queries.c.name).where(queries.c.removed_in.is_(None))
        names = {row.query_id: row.name for row in connection.execute(live)}
        stopped = [row for row in connection.execute(select(faults)) if row.query_id in names]
        known = [_notice_from_row(row) for row in connection.execute(select(told_faults).order_by(told_faults.c.since))]
        standing = {row.query_id: Fault.of(row.fault).place for row in stopped}
        over = [each for each in known if standing.get(each.query_id) != each.fault.place]
        # Nobody has heard of these.
        unsaid = [each.fault_id for each in over if each.told is None]
        connection.execute(delete(told_faults).where(told_faults.c.fault_id.in_(unsaid)))
        left = {each.query_id for each in known} - {each.query_id for each in over}
        for row in stopped:
            if row.query_id not in left:
                values = {"query_id": row.query_id, "query": names[row.query_id], "fault": row.fault, "since": row.at}
                connection.execute(insert(told_faults).values(values | {"fault_id": uuid.uuid4().hex}))
        rows = connection.execute(select(told_faults).where(told_faults.c.told.is_(None)).order_by(told_faults.c.since))
        return [_notice_from_row(row) for row in rows], [each for each in over if each.told is not None]


def mark_fault_reported(catalog: Catalog, fault: FaultNotice) -> None:
    """It has been told that the fault is there."""
    with catalog.writing() as connection:
        same = told_faults.c.fault_id == fault.fault_id
        connection.execute(update(told_faults).where(same).values(told=catalog.clock.now()))


def drop_fault_notice(catalog: Catalog, fault: FaultNotice) -> None:
    """It has been told that the fault is over."""
    with catalog.writing() as connection:
        connection.execute(delete(told_faults).where(told_faults.c.fault_id == fault.fault_id))


def _notice_from_row(row: Row[tuple[object, ...]]) -> FaultNotice:
    return FaultNotice(row.fault_id, row.query_id, row.query, Fault.of(row.fault), row.since, row.told)
