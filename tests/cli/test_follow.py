"""`errata invoke --follow`: the changes of an answer, resumed behind a commit or by a named consumer."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from errata.cli import follow
from errata.cli.main import EXIT_INTERRUPTED
from fixtures.commands import Done, Errata, lines

SQL = "SELECT symbol, price FROM quotes WHERE price >= 100 BEGIN (NOW - '20 seconds') END (NOW)"
Quiet = Callable[..., list[dict[str, object]]]


@pytest.fixture
def handle(errata: Errata, project: Path) -> str:
    """A query over twenty quotes."""
    assert errata("apply", "--yes").code == 0
    take(errata, project, range(20))
    return errata("query", "register", SQL).out.strip()


def take(errata: Errata, project: Path, seconds: range) -> None:
    (project / "one.csv").write_text(lines(seconds))
    done = errata("ingest", "quotes", "one.csv", "--batch-id", f"{seconds}")
    assert done.code == 0, done.err


@pytest.fixture
def quiet(errata: Errata, monkeypatch: pytest.MonkeyPatch) -> Quiet:
    """What following has written when there is nothing more to write."""

    def stop() -> None:
        raise KeyboardInterrupt

    def run(*words: str) -> list[dict[str, object]]:
        with monkeypatch.context() as patch:
            patch.setattr(follow, "_pause", stop)
            done: Done = errata("invoke", *words, "--follow")
        assert done.code == EXIT_INTERRUPTED, done.err
        return [json.loads(line) for line in done.out.splitlines()]

    return run


def symbols(rows: object) -> int:
    assert isinstance(rows, list)
    return len(rows)


def test_who_resumes_behind_a_commit_has_each_change_once(
    errata: Errata, project: Path, handle: str, quiet: Quiet
) -> None:
    (whole,) = quiet(handle)
    assert symbols(whole["rows"]) > 10
    commit = str(whole["commit"])
    assert quiet(handle, "--after", commit) == []
    take(errata, project, range(20, 22))
    take(errata, project, range(22, 30))
    changes = quiet(handle, "--after", commit)
    assert [sorted(each) for each in changes] == [["added", "commit", "gone", "handle", "now"]] * 2
    assert quiet(handle, "--after", str(changes[0]["commit"])) == changes[1:]
    held = symbols(whole["rows"]) + sum(symbols(each["added"]) - symbols(each["gone"]) for each in changes)
    (now,) = quiet(handle)
    assert symbols(now["rows"]) == held


def test_a_named_consumer_goes_on_where_it_was(errata: Errata, project: Path, handle: str, quiet: Quiet) -> None:
    (whole,) = quiet(handle, "--consumer", "warehouse")
    assert "rows" in whole
    assert quiet(handle, "--consumer", "warehouse") == []
    take(errata, project, range(20, 25))
    (change,) = quiet(handle, "--consumer", "warehouse")
    assert "added" in change
    assert quiet(handle, "--consumer", "warehouse") == []
    assert len(quiet(handle, "--consumer", "other")) == 1


def test_what_is_wrong_is_told(errata: Errata, handle: str) -> None:
    for words, told in (
        ((handle, "--after", "1"), "go with --follow"),
        ((handle, "--follow", "--limit", "1"), "go with --follow"),
        ((handle, "--follow", "--after", "999"), "there is no commit 999"),
        ((handle, "--follow", "--consumer", "a b"), "cannot be the name of a consumer"),
        (("a" * 16, "--follow"), "no query has handle"),
    ):
        done = errata("invoke", *words)
        assert (done.code, told in done.err) == (2, True), done.err
