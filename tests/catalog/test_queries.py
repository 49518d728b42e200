"""Queries in the catalog: recorded whole with their streams, with a history, and never on what has moved."""

from __future__ import annotations

from dataclasses import replace

import pytest

from errata.catalog import commits, queries, streams
from errata.catalog.open import Catalog
from errata.catalog.queries import QueryWrites
from errata.model.columns import Column, ColumnType
from errata.model.commit import Cause
from errata.model.pattern import Pattern
from errata.model.query import CheckedQuery, Emit, Query
from errata.model.stream import OnRevision, Retention
from fixtures.catalog import a_stream

CAUSE = Cause("apply")


def a_query(name: str, text: str = "SELECT of FROM ticks WHERE of <> 'é'") -> CheckedQuery:
    query = Query(name, f"queries/{name}.sql", text, OnRevision.HISTORY, Emit.EARLY, Retention(span=5), in_units=True)
    columns = (Column("of", ColumnType.parse("string")), Column("n", ColumnType.parse("decimal(10,2)")))
    key, digest = ("of", "_branch"), name.encode().hex().ljust(64, "0")
    return CheckedQuery(query, columns, key, ("ticks",), Pattern.KEYED, OnRevision.IGNORE, "f" * 64, digest)


def write(catalog: Catalog, *written: CheckedQuery, drop: tuple[str, ...] = (), **planned: object) -> int:
    writes = QueryWrites(written, drop, **planned)
    return streams.apply_changes(catalog, CAUSE, write=[], drop=[], summary={}, query_writes=writes)


def known(catalog: Catalog, commit: int | None = None) -> dict[str, CheckedQuery]:
    return {name: each.checked for name, each in queries.recorded(catalog, commit).items()}


def test_what_is_recorded_is_read_back(catalog: Catalog) -> None:
    plain = a_query("b")
    plain = replace(plain, query=Query("b", "b.sql", "x"), key=(), pattern=Pattern.MONOTONIC)
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
    assert {name: each.added_in for name, each in queries.recorded(catalog).items()} == {"a": 2, "b": 4}


def test_streams_and_queries_are_one_commit(catalog: Catalog) -> None:
    moved = QueryWrites([a_query("a")], planned_on={"gone": 1})
    with pytest.raises(streams.PlanMovedError):
        streams.apply_changes(catalog, CAUSE, write=[a_stream("ticks")], drop=[], summary={}, query_writes=moved)
    assert (commits.newest(catalog), streams.standings(catalog), known(catalog)) == (0, [], {})


@pytest.mark.parametrize("planned_on", [{}, {"a": 2}, {"a": 1, "b": 1}])
def test_nothing_is_done_when_queries_have_moved(catalog: Catalog, planned_on: dict[str, int]) -> None:
    write(catalog, a_query("a"))
    with pytest.raises(streams.PlanMovedError):
        write(catalog, a_query("a", "SELECT 2"), planned_on=planned_on)
    assert (commits.newest(catalog), known(catalog)) == (1, {"a": a_query("a")})
    assert write(catalog, a_query("a", "SELECT 2"), planned_on={"a": 1}) == 2


def test_two_of_one_name_are_never_live(catalog: Catalog) -> None:
    with pytest.raises(streams.PlanMovedError):
        write(catalog, a_query("a"), a_query("a", "SELECT 2"))
    assert known(catalog) == {}


def test_thousands_at_once(catalog: Catalog) -> None:
    many = [a_query(f"q{n:04}") for n in range(2_000)]
    write(catalog, *many)
    assert list(known(catalog).values()) == many
    write(catalog, drop=tuple(each.name for each in many[5:]))
    assert list(known(catalog).values()) == many[:5]
