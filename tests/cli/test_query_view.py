"""`errata query view` and the job that carries views on: a query that psql can read."""

from __future__ import annotations

from pathlib import Path

import psycopg2
import pytest

from errata.flows.jobs import materialise_job
from errata.model.commit import Cause
from fixtures.commands import Errata
from fixtures.postgres import DRIVER, FreshDatabase

YAML = """
project: exchange
catalog: {url}
warehouse: ./warehouse
streams:
  quotes:
    columns: {{time: timestamp, symbol: string, price: double}}
    key: [time, symbol]
    order: time
"""
DEAR = "SELECT symbol, price FROM quotes WHERE price >= 110 BEGIN (NOW - '10 minutes') END (NOW)"


def lines_of(first: int, last: int) -> str:
    rows = [f"2026-11-18T02:{minute:02d}:00,IBM,{100 + minute}" for minute in range(first, last)]
    return "\n".join(["time,symbol,price", *rows, ""])


def write_project(folder: Path, url: str, errata: Errata) -> str:
    """A project with rows of twelve minutes; the handle of a registered query."""
    (folder / "errata.yaml").write_text(YAML.format(url=url))
    (folder / "quotes.csv").write_text(lines_of(0, 12))
    assert errata("apply", "--yes").code == 0
    assert errata("ingest", "quotes", "quotes.csv").code == 0
    done = errata("query", "register", DEAR)
    assert done.code == 0, done.err
    return done.out.strip()


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ERRATA_PROJECT", raising=False)
    return tmp_path


def read(url: str, sql: str) -> list[tuple[object, ...]]:
    connection = psycopg2.connect("postgresql://" + url.removeprefix(DRIVER))
    try:
        with connection.cursor() as cursor:
            cursor.execute(sql)
            return list(cursor.fetchall())
    finally:
        connection.close()


def test_a_registered_query_is_read_with_sql(
    here: Path, errata: Errata, fresh_database: FreshDatabase, capsys: pytest.CaptureFixture[str]
) -> None:
    url = fresh_database("postgresql")
    handle = write_project(here, url, errata)
    done = errata("query", "view", handle)
    assert done.code == 0, done.err
    assert done.out.strip() == f"psoup.q_{handle}"
    assert "1 view; 2 matching rows of 1 bucket put in" in done.err
    asked = f"SELECT * FROM psoup.q_{handle} ORDER BY price"
    assert read(url, asked) == [("IBM", 110.0), ("IBM", 111.0)]
    (here / "more.csv").write_text(lines_of(12, 25))
    assert errata("ingest", "quotes", "more.csv").code == 0
    assert read(url, asked) == [("IBM", 110.0), ("IBM", 111.0)], "as of when it was carried on"
    assert materialise_job(here / "errata.yaml", (), Cause("")) == 0
    assert "1 view; 13 matching rows of" in capsys.readouterr().err
    assert read(url, asked) == [("IBM", 115.0 + each) for each in range(10)], "the window has moved"
    assert errata("query", "unregister", handle).code == 0
    assert errata("query", "view").code == 0
    assert read(url, "SELECT viewname FROM pg_views WHERE schemaname = 'psoup'") == []


def test_what_cannot_be_a_view_is_refused_in_words(here: Path, errata: Errata) -> None:
    handle = write_project(here, "sqlite:///errata.db", errata)
    done = errata("query", "view", handle)
    assert done.code == 2
    assert "a registered query is a view in PostgreSQL only" in done.err
    assert "Traceback" not in done.err
    assert errata("query", "view", "a" * 16).code == 2
    assert errata("query", "view").code == 2
