"""`errata query strategy` changes what is kept, and `list --advise` and `show` say what would cost least, and why."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fixtures.commands import Errata, lines

TEXT = "SELECT symbol, price FROM quotes WHERE price > 101 BEGIN (NOW - '30 seconds') END (NOW)"


@pytest.fixture
def handle(errata: Errata, project: Path) -> str:
    (project / "1.csv").write_text(lines(range(20)))
    assert errata("apply", "--yes").code == 0
    assert errata("ingest", "quotes", str(project / "1.csv")).code == 0
    return errata("query", "register", TEXT).out.strip()


def test_a_strategy_is_changed_and_the_answer_stays(errata: Errata, handle: str) -> None:
    before = errata("invoke", handle, "--format", "json").out
    assert len(before.splitlines()) > 5
    for strategy in ("none", "COMPLETE", "partial"):
        changed = errata("query", "strategy", handle, strategy)
        assert (changed.code, changed.out) == (0, "")
        assert f"the strategy of {handle} is {strategy.lower()} from commit" in changed.err
        (listed,) = map(json.loads, errata("query", "list", "--format", "json").out.splitlines())
        assert listed["strategy"] == strategy.lower()
        assert errata("invoke", handle, "--format", "json").out == before


def test_advice_is_given_with_its_reason(errata: Errata, handle: str) -> None:
    (listed,) = map(json.loads, errata("query", "list", "--advise", "--format", "json").out.splitlines())
    assert listed["advice"] == "partial"
    assert "too little has been observed" in listed["reason"]
    assert "advice" not in json.loads(errata("query", "list", "--format", "json").out)
    assert "too little has been observed" in " ".join(errata("query", "show", handle).out.split())


@pytest.mark.parametrize(
    ("words", "told"),
    [(("a" * 16, "none"), "no query has handle"), (("x", "none"), "is not a handle"), (("a" * 16, "all"), "'all'")],
)
def test_what_is_wrong_is_told(errata: Errata, handle: str, words: tuple[str, ...], told: str) -> None:
    done = errata("query", "strategy", *words)
    assert done.code == 2
    assert told in done.err
