"""Queries as applied, queries that have stopped at a fault, and notices of faults to callbacks.

Each form of a query, that is, each plan with the options that affect its results, is a row; the old form ends where the
new one begins. Other changes, such as the wording of the text or a column that is not read, are made in the same row,
and the results stay.

The notices that are due are the difference between the queries that have stopped and the faults that were reported. A
fault has its id before it is reported and is marked after it, so after a kill it is reported again with the same id.

    stopped ──► row with an id ──► reported ──► marked ──► goes on ──► end reported ──► row deleted
"""

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
"""Names in one statement, below the limits of the databases on parameters."""


class QueryPlanConflict(Conflict):
    """The queries are not those any more that a change was planned on."""


@dataclass(frozen=True, slots=True)
class RecordedQuery:
    """A query as it was applied."""

    query_id: int
    checked: CheckedQuery
    added_in: int
    """The commit that recorded it, in this form."""


@dataclass(frozen=True, slots=True)
class QueryChangeSet:
    """The changes of queries that are to be recorded."""

    write: Sequence[CheckedQuery] = ()
    """New queries, and new forms of recorded ones."""
    drop: Sequence[str] = ()
    planned_on: Mapping[str, int] | None = field(default=None)
    """The queries when this was planned, each with the commit that had recorded it; None: not checked."""
    same_form: Collection[str] = ()
    """Queries to write that are known to have the recorded form, even if their records differ."""


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
    """The form of a query with this id, in force or ended."""
    with catalog.reading() as connection:
        row = connection.execute(select(queries).where(queries.c.query_id == query_id)).one()
    return _query_from_row(row, {})


def consumer_name(query: str) -> str:
    """The name by which a query consumes the revisions of the streams that it reads."""
    return f"query {query}"


def record_queries(connection: Connection, commit_id: int, writes: QueryChangeSet) -> None:
    """Record the changes, in the transaction of the commit."""
    live = _live_queries(connection, sorted({*writes.drop, *(each.name for each in writes.write)}))
    result_tables.reconcile_tables(connection, (each.checked for each in live.values()), writes.write)
    kept = {
        each.name
        for each in writes.write
        if each.name in live and (each.name in writes.same_form or each.same_form(live[each.name].checked))
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
    """Those of these queries that are recorded."""
    found, kinds = {}, dict[str, ColumnType]()
    for start in range(0, len(names), _NAMES_PER_STATEMENT):
        some = queries.c.removed_in.is_(None) & queries.c.name.in_(names[start : start + _NAMES_PER_STATEMENT])
        for row in connection.execute(select(queries).where(some)):
            found[row.name] = RecordedQuery(row.query_id, _query_from_row(row, kinds), row.added_in)
    return found


def check_unchanged(connection: Connection, writes: QueryChangeSet) -> None:
    """A conflict if the queries are not those that the change was planned on."""
    if writes.planned_on is None:
        return
    query = select(queries.c.name, queries.c.added_in).where(queries.c.removed_in.is_(None))
    if {row.name: row.added_in for row in connection.execute(query)} != writes.planned_on:
        raise QueryPlanConflict


def _mutable_values(checked: CheckedQuery) -> dict[str, Any]:
    """The columns that may change without a new form."""
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


@dataclass(frozen=True, slots=True)
class StoppedQuery:
    """A query that has stopped at a fault."""

    query_id: int
    data_commit: int
    """The commit of the streams at which it stopped."""
    since: int
    """The instant up to which it has been answered; LOWEST if it never was."""
    at: int
    """The wall-clock time at which it stopped."""
    fault: Fault


def stopped_queries(catalog: Catalog) -> dict[int, StoppedQuery]:
    """All queries that have stopped, by their ids."""
    with catalog.reading() as connection:
        rows = connection.execute(select(faults)).all()
    return {
        row.query_id: StoppedQuery(row.query_id, row.data_commit, row.since, row.at, Fault.of(row.fault))
        for row in rows
    }


def record_fault(catalog: Catalog, query_id: int, data_commit: int, since: int, fault: Fault) -> None:
    """Record that a query has stopped, in place of a former fault. An evaluation that succeeds deletes the fault."""
    values = {"query_id": query_id, "data_commit": data_commit, "since": since, "fault": fault.record()}
    with catalog.writing() as connection:
        connection.execute(delete(faults).where(faults.c.query_id == query_id))
        connection.execute(insert(faults).values(values | {"at": catalog.clock.now()}))


@dataclass(frozen=True, slots=True)
class FaultNotice:
    """A fault of a query, from its discovery until its end has been reported."""

    fault_id: str
    query_id: int
    query: str
    fault: Fault
    since: int
    """When the query stopped."""
    told: int | None
    """When it was reported; None: not yet."""


def due_fault_notices(catalog: Catalog) -> tuple[Sequence[FaultNotice], Sequence[FaultNotice]]:
    """The faults to report, and the faults whose end is to be reported."""
    with catalog.writing() as connection:
        live = select(queries.c.query_id, queries.c.name).where(queries.c.removed_in.is_(None))
        names = {row.query_id: row.name for row in connection.execute(live)}
        stopped = [row for row in connection.execute(select(faults)) if row.query_id in names]
        known = [_notice_from_row(row) for row in connection.execute(select(told_faults).order_by(told_faults.c.since))]
        standing = {row.query_id: Fault.of(row.fault).place for row in stopped}
        over = [each for each in known if standing.get(each.query_id) != each.fault.place]
        # Faults that ended before they were reported.
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
    """Record that the fault has been reported."""
    with catalog.writing() as connection:
        same = told_faults.c.fault_id == fault.fault_id
        connection.execute(update(told_faults).where(same).values(told=catalog.clock.now()))


def drop_fault_notice(catalog: Catalog, fault: FaultNotice) -> None:
    """Record that the end of the fault has been reported."""
    with catalog.writing() as connection:
        connection.execute(delete(told_faults).where(told_faults.c.fault_id == fault.fault_id))


def _notice_from_row(row: Row[tuple[object, ...]]) -> FaultNotice:
    return FaultNotice(row.fault_id, row.query_id, row.query, Fault.of(row.fault), row.since, row.told)
