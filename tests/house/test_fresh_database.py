"""The databases that other tests rely on are fresh, and copies are copies."""

from __future__ import annotations

import pytest
from sqlalchemy import create_engine, text

from fixtures.postgres import FreshDatabase


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_a_fresh_database_is_empty_or_a_copy(fresh_database: FreshDatabase, kind: str) -> None:
    first = fresh_database(kind)
    engine = create_engine(first)
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE t (n INTEGER)"))
        connection.execute(text("INSERT INTO t VALUES (7)"))
    engine.dispose()
    copy, empty = create_engine(fresh_database(kind, like=first)), create_engine(fresh_database(kind))
    with copy.begin() as connection:
        assert connection.scalar(text("SELECT n FROM t")) == 7
        connection.execute(text("DELETE FROM t"))
    with engine.begin() as connection:
        assert connection.scalar(text("SELECT count(*) FROM t")) == 1
    with empty.begin() as connection, pytest.raises(Exception, match="t"):
        connection.execute(text("SELECT n FROM t"))
    for used in (engine, copy, empty):
        used.dispose()
