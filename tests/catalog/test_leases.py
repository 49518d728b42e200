"""Leases, on both databases: one holder at a time, renewed while it is at work, given back when its task is killed."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from sqlalchemy import select

from errata.catalog import leases
from errata.catalog.open import Catalog
from errata.catalog.tables import leases as table
from errata.clock import SYSTEM, FixedClock
from errata.errors import ErrataError
from errata.model.commit import Cause
from errata.model.instants import SECOND

OWNER = Cause("sweep", dag_id="revisions", run_id="manual__1", task_id="sweep", try_number=2).owner


def until(true: Callable[[], bool], seconds: float = 5.0) -> bool:
    end = time.monotonic() + seconds
    while not true():
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


def rows(catalog: Catalog) -> dict[str, tuple[int, int, str]]:
    with catalog.reading() as connection:
        found = connection.execute(select(table))
        return {row.name: (row.fence, row.expires_at, row.owner) for row in found}


def test_an_owner_is_the_try_of_a_task() -> None:
    assert OWNER == "revisions/manual__1/sweep/2"
    assert Cause("sweep", user="ann").owner == ""
    assert Cause("sweep", dag_id="revisions", run_id="r", task_id="t").owner == "revisions/r/t/"


def test_one_holder_at_a_time(catalog: Catalog) -> None:
    with leases.held(catalog, "query one", OWNER) as first, leases.held(catalog, "query one") as second:
        assert (first, second) == (True, False)
        assert leases.living(catalog) == {"query one"}
        assert rows(catalog)["query one"][2] == OWNER
    assert rows(catalog) == {}


def test_what_a_killed_holder_left_is_taken_when_its_term_is_over(catalog: Catalog, clock: FixedClock) -> None:
    with leases.held(catalog, "query one", OWNER) as first:
        assert first
        clock.advance(leases.TERM)
        assert leases.living(catalog) == set()
        with leases.held(catalog, "query one", "other") as second:
            assert second
            assert rows(catalog)["query one"][::2] == (2, "other")
    assert rows(catalog) == {}


def test_only_what_is_held_for_an_owner_is_released(catalog: Catalog) -> None:
    with (
        leases.held(catalog, "query one", OWNER),
        leases.held(catalog, "query two", OWNER),
        leases.held(catalog, "query three", OWNER.replace("/2", "/1")),
        leases.held(catalog, "query four"),
    ):
        assert leases.release(catalog, "") == []
        assert leases.release(catalog, OWNER) == ["query one", "query two"]
        assert leases.release(catalog, OWNER) == []
        assert leases.living(catalog) == {"query three", "query four"}
        with leases.held(catalog, "query one", "other") as again:
            assert again


def test_a_lease_is_renewed_while_it_is_held(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "TERM", SECOND * 3 // 10)
    real = Catalog(catalog.engine, SYSTEM)
    with leases.held(real, "query one") as ours:
        assert ours
        time.sleep(0.8)
        with leases.held(real, "query one") as theirs:
            assert not theirs, "it has been held for longer than its term"


def test_a_lease_that_was_released_is_not_taken_back(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "TERM", SECOND * 3 // 10)
    real = Catalog(catalog.engine, SYSTEM)
    with leases.held(real, "query one", OWNER):
        leases.release(real, OWNER)
        with leases.held(real, "query one", "other"):
            time.sleep(0.4)
            assert rows(real)["query one"][2] == "other"
            time.sleep(0.4)
        assert leases.living(real) == set()


def test_a_catalog_that_is_away_for_a_while_does_not_end_the_renewal(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leases, "TERM", SECOND * 3 // 10)
    real, renewed, asked = Catalog(catalog.engine, SYSTEM), leases._renewed, list[str]()

    def away(_catalog: Catalog, name: str, holder: str) -> bool:
        asked.append(name)
        if len(asked) < 20:
            raise ErrataError("the catalog's database does not answer as it should")
        return renewed(real, name, holder)

    monkeypatch.setattr(leases, "_renewed", away)
    with leases.held(real, "query one"):
        assert until(lambda: len(asked) > 20)
        assert leases.living(real) == {"query one"}
