"""Result tables: the current answer of a query in the catalog's database, and a table of all changes that led to it.

They are written in the transaction of the evaluation that publishes the changes, so they always agree with the archive.
A constraint marks the tables that Errata has made; a table without it is never changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    DateTime,
    FromClause,
    MetaData,
    Select,
    Subquery,
    Table,
    Text,
    and_,
    cast,
    delete,
    func,
    insert,
    inspect,
    literal,
    literal_column,
    or_,
    select,
    true,
)
from sqlalchemy.exc import DBAPIError, InternalError

from errata.catalog.registered_tables import registered_queries
from errata.catalog.result_columns import (
    MARK_CONSTRAINT,
    NullPattern,
    ResultTable,
    ResultTablePair,
    instant_text,
    write_change_records,
)
from errata.errors import ErrataError, RefusedError, UsageError
from errata.model.query import CheckedQuery
from errata.model.results import (
    ResultShape,
    changes_table_name,
    check_table_columns,
    check_table_name,
    conflicting_table,
)

_PROGRAM_LIMIT_EXCEEDED = "54000"
"""PostgreSQL's error code for a value beyond its limits."""

_CATALOG_TABLES = (*registered_queries.metadata.tables, "alembic_version")


def check_result_table_name(table: str, others: Iterable[str]) -> None:
    """Refuse the name of a result table that the catalog or another result table needs."""
    check_table_name(table)
    other = conflicting_table(table, _CATALOG_TABLES)
    if other is not None:
        raise UsageError(
            f"a result table cannot be named {table!r}",
            why=f"the catalog has a table {other}",
            how="choose another name",
        )
    other = conflicting_table(table, others)
    if other is not None:
        raise UsageError(
            f"two queries cannot both be served as {table!r}",
            why=f"of a result table {other} there is {changes_table_name(other)}, too",
            how="choose another name for one of them",
        )


def check_name_free(connection: Connection, table: str) -> None:
    """Refuse the name of a table or view in the database that Errata has not made."""
    for name in (table, changes_table_name(table)):
        if inspect(connection).has_table(name) and not _is_marked(connection, name):
            raise RefusedError(
                f"there is a table or view {name} already",
                where=f"serve: {{table: {table}}}",
                why="Errata has not made it, and what is in it would be lost",
                how="choose another name for the result table; or rename or drop what is there",
            )


def table_exists(connection: Connection, table: str) -> bool:
    """Whether Errata has made a result table with this name, and its table of changes."""
    return all(_is_marked(connection, name) for name in (table, changes_table_name(table)))


def table_fits(connection: Connection, served: ResultTable) -> bool:
    """Whether the tables are there and have the columns that these results need."""
    if not table_exists(connection, served.table):
        return False
    tables = ResultTablePair.of(served)
    return all(_columns_agree(connection, each) for each in (tables.current, tables.changes))


def create_table(connection: Connection, served: ResultTable) -> None:
    """Make the empty tables, in place of former ones with the same name that Errata has made."""
    check_result_table_name(served.table, ())
    check_table_columns(served.shape.visible, served.shape.key)
    check_name_free(connection, served.table)
    drop_table(connection, served.table)
    ResultTablePair.of(served).current.metadata.create_all(connection, checkfirst=False)


def reconcile_tables(connection: Connection, before: Iterable[CheckedQuery], after: Iterable[CheckedQuery]) -> None:
    """Check the names of new result tables, and drop the tables of queries that are no longer served. Tables are made
    when there are results for them."""
    was = {each.query.serve: each.name for each in before if each.query.serve is not None}
    now = {each.query.serve: each for each in after if each.query.serve is not None}
    for table, name in was.items():
        if table not in now or now[table].name != name:
            drop_table(connection, table)
    for table, query in now.items():
        if was.get(table) != query.name:
            check_result_table_name(table, [each for each in now if each != table])
            check_name_free(connection, table)
        check_table_columns([each.name for each in query.columns], query.key)


def drop_table(connection: Connection, table: str) -> None:
    """Drop the tables that exist and that Errata has made."""
    for name in (table, changes_table_name(table)):
        if not _is_marked(connection, name):
            continue
        try:
            Table(name, MetaData()).drop(connection)
        except InternalError as error:
            raise RefusedError(
                f"the result table {name} cannot be dropped",
                why=str(error.orig).strip().splitlines()[0],
                how="drop what depends on it first, and make it again on the new table",
            ) from None


def update_table(
    connection: Connection,
    served: ResultTable,
    commit_id: int,
    cause: Mapping[str, Any],
    changes: Iterable[pa.RecordBatch],
    frontier: int,
) -> int:
    """Add the change records of a commit, advance the current answer to the frontier, and return the number of records.

    The records are those of the feed, one at most for each key and vs. A result lasts until its end or until the next
    one of its key begins; if that one is deleted, there must be a record of its predecessor too. The end in a record is
    not after the beginning of the next result. The frontier never goes back; in that case the tables are made anew.
    """
    tables, patterns, written = ResultTablePair.of(served), set[NullPattern](), 0
    with _readable_limits(served):
        for batch in changes:
            patterns |= write_change_records(connection, tables.changes, served.shape, commit_id, cause, batch)
            written += batch.num_rows
        at = _instant_literal(connection, served.shape, frontier)
        if written:
            _apply_records(connection, tables, commit_id, at, patterns)
        connection.execute(delete(tables.current).where(tables.current.c.ve <= at))
    return written


def _is_marked(connection: Connection, name: str) -> bool:
    looking = inspect(connection)
    if name not in looking.get_table_names():
        return False
    return any(each["name"] == MARK_CONSTRAINT for each in looking.get_check_constraints(name))


def _columns_agree(connection: Connection, table: Table) -> bool:
    there = [(each["name"], each["type"]) for each in inspect(connection).get_columns(table.name)]
    wanted = [(each.name, each.type) for each in table.columns]
    dialect = connection.dialect
    return [(name, kind.compile(dialect)) for name, kind in there] == [
        (name, kind.compile(dialect)) for name, kind in wanted
    ]


def _instant_literal(connection: Connection, shape: ResultShape, micros: int) -> ColumnElement[Any]:
    if not shape.timed:
        return literal(micros, BigInteger)
    text = literal(instant_text(micros), Text)
    return cast(text, DateTime(timezone=True)) if connection.dialect.name == "postgresql" else text


def _apply_records(
    connection: Connection,
    tables: ResultTablePair,
    commit_id: int,
    at: ColumnElement[Any],
    patterns: Iterable[NullPattern],
) -> None:
    """Work the records of a commit into the current answer: of each key the last result that has begun and lasts."""
    records = _select_records(connection, tables, commit_id)
    if connection.execute(select(tables.current.c.vs).limit(1)).first() is None:
        _insert_lasting(connection, tables, _select_lasting(tables, records, at))
        return
    # NULLs in keys are equal here, and not in SQL. Each pattern of NULLs has its own statements, which use the index.
    for nulls in sorted(patterns):
        _delete_superseded(connection, tables, records, at, nulls)
        lasting = _select_lasting(tables, records, at, nulls)
        standing = (
            select(literal(1)).select_from(tables.current).where(_same_key(tables, lasting, tables.current, nulls))
        )
        _insert_lasting(connection, tables, lasting, ~standing.exists())


def _select_records(connection: Connection, tables: ResultTablePair, commit_id: int) -> Subquery:
    """The records of a commit. The limit is their exact number: without it PostgreSQL, whose statistics do not include
    the commit yet, estimates many records and scans the whole answer."""
    changes = tables.changes
    found = changes.c.commit_id == commit_id
    count = connection.execute(select(func.count()).select_from(changes).where(found)).scalar_one()
    columns = [changes.c[name] for name in ("op", *tables.names)]
    return select(*columns).where(found).limit(literal_column(str(count))).subquery("records")


def _delete_superseded(
    connection: Connection, tables: ResultTablePair, records: Subquery, at: ColumnElement[Any], nulls: NullPattern
) -> None:
    """Delete the results that the records concern, and those with a successor among them."""
    on_postgres = connection.dialect.name == "postgresql"
    standing: FromClause = tables.current if on_postgres else tables.current.alias("standing")
    begun = and_(records.c.op != "delete", records.c.vs > standing.c.vs, records.c.vs <= at)
    gone = and_(_same_key(tables, records, standing, nulls), or_(records.c.vs == standing.c.vs, begun))
    if not on_postgres:
        # SQLite deletes from a single table; no result column can be called `_rowid_`.
        found: Select[Any] = select(literal_column("standing._rowid_")).select_from(records.join(standing, gone))
        gone = literal_column("_rowid_").in_(found)
    connection.execute(delete(tables.current).where(gone))


def _select_lasting(
    tables: ResultTablePair, records: Subquery, at: ColumnElement[Any], nulls: NullPattern | None = None
) -> Subquery:
    """For each key in the records the last result that has begun, if it has not ended."""
    keys = [records.c[name] for name in tables.key]
    place = func.row_number().over(partition_by=keys or None, order_by=records.c.vs.desc())
    told = select(*(records.c[name] for name in tables.names), place.label("_place")).where(
        records.c.op != "delete", records.c.vs <= at
    )
    if nulls is not None:
        told = told.where(*(key.is_(None) if null else key.is_not(None) for key, null in zip(keys, nulls, strict=True)))
    last = told.subquery("told")
    columns = (last.c[name] for name in tables.names)
    return select(*columns).where(last.c["_place"] == 1, or_(last.c.ve.is_(None), last.c.ve > at)).subquery("lasting")


def _insert_lasting(
    connection: Connection, tables: ResultTablePair, lasting: Subquery, *conditions: ColumnElement[bool]
) -> None:
    found = select(*(lasting.c[name] for name in tables.names)).where(*conditions)
    connection.execute(insert(tables.current).from_select(tables.names, found))


def _same_key(tables: ResultTablePair, one: FromClause, other: FromClause, nulls: NullPattern) -> ColumnElement[bool]:
    """The condition that two rows have the same key, in which these columns are NULL."""
    return and_(
        true(),
        *(
            and_(one.c[name].is_(None), other.c[name].is_(None)) if null else one.c[name] == other.c[name]
            for name, null in zip(tables.key, nulls, strict=True)
        ),
    )


@contextmanager
def _readable_limits(served: ResultTable) -> Iterator[None]:
    """Raise a readable error for a value that a result table cannot hold."""
    try:
        yield
    except DBAPIError as error:
        if getattr(error.orig, "pgcode", None) != _PROGRAM_LIMIT_EXCEEDED:
            raise
        raise ErrataError(
            f"a result does not fit into the result table {served.table}",
            why=str(error.orig).strip().splitlines()[0],
            how="keys have 2,700 bytes at most: leave long text out of what tells results apart, or take `serve` away",
        ) from None
