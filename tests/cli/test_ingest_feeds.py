"""`errata ingest --feed`: what a person says and is told about files of feeds."""

from __future__ import annotations

from pathlib import Path

import pytest

from fixtures.commands import Errata

PROJECT = """\
project: p
streams:
  quotes:
    columns: {who: string, at: bigint, price: double}
    key: [who, at]
    order: at
    feeds:
      a: {stable: marks}
      b: {stable: marks}
    merge: {emit: half_frozen}
  plain: {columns: {who: string, at: bigint}, key: [who, at], order: at}
"""


@pytest.fixture
def project(errata: Errata, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ERRATA_PROJECT", raising=False)
    (tmp_path / "errata.yaml").write_text(PROJECT)
    assert errata("apply", "--yes").code == 0
    return tmp_path


def test_what_is_held_and_released_is_told(errata: Errata, project: Path) -> None:
    (project / "a.csv").write_text("who,at,price\nx,1,1.0\nx,2,2.0\n")
    (project / "b.csv").write_text("_op,who,at,price\n,x,2,2.0\nstable,,2,\n")
    first = errata("ingest", "quotes", "--feed", "a", "a.csv")
    assert first.code == 0
    assert "no rows appended" in first.err
    assert "2 statements remembered by the merge, and not passed on" in first.err
    second = errata("ingest", "quotes", "--feed", "b", "b.csv")
    assert "1 row appended" in second.err
    assert "1 row dropped: the same is there already" in second.err
    assert "1 row more than it said: the merge had held them back" in second.err
    assert "stable point 2" in second.err


def test_mistakes_are_told(errata: Errata, project: Path) -> None:
    (project / "a.csv").write_text("who,at,price\nx,1,1.0\n")
    (project / "p.csv").write_text("who,at\nx,1\n")
    for argv, told in (
        (["quotes", "a.csv"], "name the feed with --feed, one of a, b"),
        (["quotes", "--feed", "c", "a.csv"], "unknown feed"),
        (["quotes", "--landed", "--feed", "a"], "leave --feed out"),
        (["plain", "--feed", "a", "p.csv"], "has no feeds"),
    ):
        done = errata("ingest", *argv)
        assert done.code == 2, done.err
        assert told in done.err
