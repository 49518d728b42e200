"""Texts that are almost queries, read all the way: a plan, or a refusal with its place, and never anything else."""

from __future__ import annotations

from pathlib import Path

import pytest

from errata.language.plan import Plan
from errata.language.queries import read_names, read_query
from errata.language.reading.mistakes import LanguageError
from fixtures.fuzz import mutated
from fixtures.paper_sources import paper_sources
from fixtures.printing.printing import to_sql

TEXTS = [path.read_text(encoding="utf-8") for path in sorted((Path(__file__).parent / "plans").glob("*.sql"))]
SOURCES = paper_sources()


def test_mutated_queries_are_read_or_refused_with_their_place(pytestconfig: pytest.Config) -> None:
    """With `--long` 100,000 of them."""
    count = 100_000 if pytestconfig.getoption("--long") else 3_000
    read = 0
    for text in mutated(seed=11, count=count, texts=TEXTS):
        found = read_or_refused(text)
        if isinstance(found, LanguageError):
            lines = text.split("\n")
            assert 1 <= found.line <= len(lines), text
            assert 1 <= found.column <= len(lines[found.line - 1]) + 1, text
            assert str(found).startswith(f"query.sql:{found.line}:{found.column}: "), text
        else:
            read += 1
            # What is read can be written and read again, and its inputs be named.
            assert read_query(to_sql(found), "query.sql", SOURCES).visible == found.visible, text
            assert read_names(text, "query.sql"), text
    assert count / 50 < read < count * 49 / 50


def read_or_refused(text: str) -> Plan | LanguageError:
    try:
        return read_query(text, "query.sql", SOURCES)
    except LanguageError as error:
        return error
