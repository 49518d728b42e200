"""Queries in the catalog: recorded whole with their streams, with a history, and never on what has moved."""

from __future__ import annotations

from dataclasses import replace

import pytest

from errata.catalog import commits, declarations, queries, result_tables, streams
from errata.catalog.database import Catalog
from errata.catalog.queries import QueryChangeSet, RecordedQuery
from errata.catalog.result_columns import ResultTable
from errata.errors import RefusedError, UsageError
from errata.model.columns import Column, ColumnType
from errata.model.commit import Cause
from errata.model.deferral import Deferral
from errata.model.query import CheckedQuery, EmitMode, Query
from errata.model.results import ArchiveColumn, ResultShape, UpdatePattern
from errata.model.stream import Retention, RevisionPolicy
from fixtures.catalog import a_stream

CAUSE = Cause("apply")


def a_query(name: str, text: str = "SELECT of FROM ticks WHERE of <> 'é'") -> CheckedQuery:
    query = Query(
        name, f"queries/{name}.sql", text, RevisionPolicy.HISTORY, EmitMode.EARLY, Retention(span=5), in_units=True
    )
    columns = (Column("of", ColumnType.parse("string")), Column("n", ColumnType.parse("decimal(10,2)")))
    key, digest = ("of", "_branch"), name.encode().hex().ljust(64, "0")
    plan = text.encode().hex()[:64].ljust(64, "f")
    return CheckedQuery(query, columns, key, ("ticks",), UpdatePattern.KEYED, RevisionPolicy.IGNORE, plan, digest)


def write(catalog: Catalog, *written: CheckedQuery, drop: tuple[str, ...] = (), **planned: object) -> int:
    writes = QueryChangeSet(written, drop, **planned)
    return declarations.apply_changes(catalog, CAUSE, write=[], drop=[], summary={}, query_writes=writes)


def known(catalog: Catalog, commit: int | None = None) -> dict[str, CheckedQuery]:
    return {name: each.checked for name, each in queries.recorded_queries(catalog, commit).items()}


def test_what_is_recorded_is_read_back(catalog: Catalog) -> None:
    plain = a_query("b")
    plain = replace(plain, query=Query("b", "b.sql", "x"), key=(), pattern=UpdatePattern.MONOTONIC)
    assert write(catalog, plain, a_query("a")) == 1
    assert list(known(catalog).items()) == [("a", a_query("a")), ("b", plain)]
    assert known(catalog, 0) == {}


def test_every_form_stays_known(catalog: Catalog) -> None:
    write(catalog, a_query("a"), a_query("b"))
    write(catalog, a_query("a", "SELECT 2"))
    write(catalog, drop=("b",))
    write(catalog, a_query("b"))
    texts = [{name: each.query.text[:8] for name, each in known(catalog, at).items()} for at in range(1, 5)]
    assert texts == [
        {"a": "SELECT o", "b": "SELECT o"},
        {"a": "SELECT 2", "b": "SELECT o"},
        {"a": "SELECT 2"},
        {"a": "SELECT 2", "b": "SELECT o"},
    ]
    assert {name: each.added_in for name, each in queries.recorded_queries(catalog).items()} == {"a": 2, "b": 4}


def test_another_table_or_file_is_no_other_form(catalog: Catalog) -> None:
    first = a_query("a")
    write(catalog, first, a_query("b"))
    before = queries.recorded_queries(catalog)
    elsewhere = replace(first, query=replace(first.query, serve="a_now", sql_file="a.sql"))
    assert write(catalog, elsewhere, planned_on={"a": 1, "b": 1}) == 2
    after = queries.recorded_queries(catalog)
    assert after["a"] == replace(before["a"], checked=elsewhere)
    assert after["b"] == before["b"]
    # With anything else it is one.
    other = replace(elsewhere, query=replace(elsewhere.query, since="5", serve=None))
    write(catalog, other)
    assert (known(catalog)["a"], queries.recorded_queries(catalog)["a"].added_in) == (other, 3)
    assert known(catalog, 2)["a"] == elsewhere
    write(catalog, drop=("a",))
    write(catalog, other)
    assert queries.recorded_queries(catalog)["a"].added_in == 5


def test_another_time_to_sweep_is_no_other_form(catalog: Catalog) -> None:
    first = a_query("a")
    write(catalog, first)
    for at, text in enumerate(("queue >= 10", "never"), 2):
        later = replace(first, query=replace(first.query, sweep=Deferral.parse(text)))
        assert write(catalog, later, planned_on={"a": 1}) == at
        assert queries.recorded_queries(catalog)["a"] == RecordedQuery(1, later, 1)
    write(catalog, first, planned_on={"a": 1})
    assert queries.recorded_queries(catalog)["a"] == RecordedQuery(1, first, 1)
    # With anything else it is one.
    other = replace(first, fingerprint="0" * 64, query=replace(first.query, sweep=Deferral.parse("never")))
    write(catalog, other)
    assert queries.recorded_queries(catalog)["a"] == RecordedQuery(2, other, 5)


def test_what_is_worded_otherwise_is_no_other_form(catalog: Catalog) -> None:
    first = a_query("a")
    write(catalog, first)
    reworded = replace(first, query=replace(first.query, text="SELECT  1", retention=None), digest="e" * 64)
    write(catalog, reworded, planned_on={"a": 1})
    assert queries.recorded_queries(catalog)["a"] == RecordedQuery(1, reworded, 1)
    # Of one whose record does not tell, whoever has read it says so.
    told = replace(reworded, fingerprint="0" * 64)
    write(catalog, told, planned_on={"a": 1}, same_form=["a"])
    assert queries.recorded_queries(catalog)["a"] == RecordedQuery(1, told, 1)
    assert queries.query_by_id(catalog, 1) == told


def served(name: str, table: str | None) -> CheckedQuery:
    checked = a_query(name)
    return replace(checked, query=replace(checked.query, serve=table))


def made(catalog: Catalog, *tables: str) -> set[str]:
    """Make these result tables; then, which of them and of `one`, `two` there are."""
    shape = ResultShape((ArchiveColumn("of", ColumnType.parse("string"), key=True),), UpdatePattern.STRICT)
    with catalog.writing() as connection:
        for table in tables:
            result_tables.create_table(connection, ResultTable(table, shape))
        return {table for table in ("one", "two") if result_tables.table_exists(connection, table)}


def test_tables_go_with_what_was_served_in_them(catalog: Catalog) -> None:
    write(catalog, served("a", "one"), served("b", "two"))
    assert made(catalog, "one", "two") == {"one", "two"}
    write(catalog, served("a", "one"), replace(served("b", "two"), fingerprint="0" * 64))
    assert made(catalog) == {"one", "two"}
    write(catalog, served("a", "two"), served("b", "one"))
    assert made(catalog) == set()
    assert made(catalog, "one", "two") == {"one", "two"}
    write(catalog, served("a", None), drop=("b",))
    assert made(catalog) == set()


def test_nothing_is_served_where_something_else_is(catalog: Catalog) -> None:
    with catalog.writing() as connection:
        connection.exec_driver_sql("CREATE TABLE one_changes (x INT)")
    with pytest.raises(RefusedError, match="there is a table or view one_changes already"):
        write(catalog, served("a", "one"))
    with pytest.raises(UsageError, match="a result table cannot be named 'buckets'"):
        write(catalog, served("a", "buckets"))
    with pytest.raises(UsageError, match="column vs cannot be in a result table"):
        write(catalog, replace(served("a", "two"), columns=(Column("vs", ColumnType.parse("int")),)))
    assert known(catalog) == {}


def test_streams_and_queries_are_one_commit(catalog: Catalog) -> None:
    moved = QueryChangeSet([a_query("a")], planned_on={"gone": 1})
    with pytest.raises(declarations.ApplyConflict):
        declarations.apply_changes(catalog, CAUSE, write=[a_stream("ticks")], drop=[], summary={}, query_writes=moved)
    assert (commits.newest_commit(catalog), streams.stream_states(catalog), known(catalog)) == (0, [], {})


@pytest.mark.parametrize("planned_on", [{}, {"a": 2}, {"a": 1, "b": 1}])
def test_nothing_is_done_when_queries_have_moved(catalog: Catalog, planned_on: dict[str, int]) -> None:
    write(catalog, a_query("a"))
    with pytest.raises(declarations.ApplyConflict):
        write(catalog, a_query("a", "SELECT 2"), planned_on=planned_on)
    assert (commits.newest_commit(catalog), known(catalog)) == (1, {"a": a_query("a")})
    assert write(catalog, a_query("a", "SELECT 2"), planned_on={"a": 1}) == 2


def test_two_of_one_name_are_never_live(catalog: Catalog) -> None:
    with pytest.raises(declarations.ApplyConflict):
        write(catalog, a_query("a"), a_query("a", "SELECT 2"))
    assert known(catalog) == {}


def test_thousands_at_once(catalog: Catalog) -> None:
    many = [a_query(f"q{n:04}") for n in range(2_000)]
    write(catalog, *many)
    assert list(known(catalog).values()) == many
    write(catalog, drop=tuple(each.name for each in many[5:]))
    assert list(known(catalog).values()) == many[:5]
