"""PostgreSQL from the wheel: made, used, shut down cleanly, and started again on the same data."""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path

import psycopg2
import pytest
from deploy.database import forget_database, start_database
from deploy.processes import Children


def command(url: str, sql: str) -> list[tuple[object, ...]]:
    with closing(psycopg2.connect(url.replace("+psycopg2", ""))) as connection, connection.cursor() as cursor:
        cursor.execute(sql)
        connection.commit()
        return cursor.fetchall() if cursor.description else []


def test_data_outlives_the_server(tmp_path: Path) -> None:
    children = Children(tmp_path)
    try:
        first = start_database(children, tmp_path, "a password", os.environ, lasting=False)
        first.make("errata")
        first.make("errata")
        command(first.url("errata"), "CREATE TABLE kept AS SELECT 7 AS n")
        assert first.has_table("errata", "kept")
        assert not first.has_table("errata", "lost")
        with pytest.raises(psycopg2.OperationalError, match="password"):
            command(first.url("errata").replace("a password", "a guess"), "SELECT 1")
        children.stop("postgresql")
        assert not first.answers()
        again = start_database(children, tmp_path, "a password", os.environ, lasting=False)
        assert command(again.url("errata"), "SELECT n FROM kept") == [(7,)]
    finally:
        children.stop(*children.running)
        forget_database(tmp_path)
    assert not first.data.exists()
    log = (children.logs / "postgresql.log").read_text()
    assert log.count("database system is shut down") == 2
    assert "not properly shut down" not in log
    assert "a password" not in log
