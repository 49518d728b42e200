"""Word of commits, on both databases."""

from __future__ import annotations

import threading
import time

import pytest
from sqlalchemy import text

from errata.catalog import commits, declarations, leases
from errata.catalog.database import Catalog
from errata.errors import ErrataError
from errata.model.commit import Cause
from fixtures.catalog import a_stream


def commit(catalog: Catalog, name: str) -> None:
    declarations.apply_changes(catalog, Cause("apply"), write=[a_stream(name)], drop=[], summary={})


def test_word_comes_of_a_commit_once(catalog: Catalog) -> None:
    commit(catalog, "before")
    with commits.listen(catalog) as word:
        assert not word.heard(), "what was committed before is no news"
        assert not word.wait(0.1)
        commit(catalog, "ticks")
        commit(catalog, "tocks")
        assert word.wait(2)
        assert not word.heard()


def test_word_wakes_who_waits(catalog: Catalog) -> None:
    with commits.listen(catalog) as word:
        later = threading.Timer(0.2, commit, (catalog, "ticks"))
        later.start()
        began = time.monotonic()
        assert word.wait(10)
        assert time.monotonic() - began < 2
        later.join()


def test_what_is_not_committed_is_not_told(catalog: Catalog) -> None:
    with commits.listen(catalog) as word:
        with catalog.reading() as connection:
            commits.notify(connection, "1")
        assert not word.wait(0.1)


def test_several_listeners_all_hear(catalog: Catalog) -> None:
    with commits.listen(catalog) as one, commits.listen(catalog) as other:
        commit(catalog, "ticks")
        assert one.wait(2)
        assert other.wait(2)


def test_only_postgresql_can_be_waited_on_by_an_event_loop(catalog: Catalog) -> None:
    with commits.listen(catalog) as word:
        assert (word.fileno() is not None) == (catalog.engine.dialect.name == "postgresql")


def test_a_lease_given_back_is_told(catalog: Catalog) -> None:
    is_sent = catalog.engine.dialect.name == "postgresql"
    with commits.listen(catalog) as word:
        with leases.hold_lease(catalog, "query one"):
            assert not word.wait(0.1)
        assert word.wait(2 if is_sent else 0.1) == is_sent


@pytest.mark.parametrize("catalog_url", ["postgresql"], indirect=True)
def test_a_lost_connection_is_said(catalog: Catalog) -> None:
    with commits.listen(catalog) as word:
        with catalog.writing() as connection:
            others = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database()"
            connection.execute(text(f"{others} AND pid <> pg_backend_pid()"))
        with pytest.raises(ErrataError, match="sends no more word"):
            word.wait(10)
    with commits.listen(catalog) as again:
        commit(catalog, "ticks")
        assert again.wait(2)
