"""What the benchmark of the language reads is what it says it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import language
from errata.declare.project import load_project
from errata.errors import ErrataError
from errata.language.explain.explanation import Explanation
from errata.language.queries import read_query, stream_source


def test_the_papers_queries_are_read_and_annotated() -> None:
    queries = language._paper_queries()
    assert len(queries) == 11
    for name, read in queries.items():
        found = read()
        assert isinstance(found, Explanation), name
        assert found.lineage, name


def test_the_wide_query_has_its_inputs() -> None:
    found = language._wide_query()()
    assert isinstance(found, Explanation)
    assert len(found.lineage) == language.INPUTS


def test_declared_queries_are_queries() -> None:
    links = load_project(language.EXAMPLES / "network", {}).streams
    sources = {name: stream_source(stream) for name, stream in links.items()}
    for number in (0, 1, 3, 4):
        read_query(language._text(number), f"q{number}", sources)
    with pytest.raises(ErrataError, match="unknown"):
        read_query(language._text(2), "q2", sources)


def test_declaring_is_timed_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(language, "DECLARED", 30)
    first, again = language._declare(tmp_path)
    assert 0 < again < first
