"""`errata token`: a token is shown once, listed by its number, and revoked."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from errata.catalog.database import open_catalog
from errata.catalog.tokens import find_user
from fixtures.commands import Errata


@pytest.fixture
def applied(errata: Errata, project: Path) -> Path:
    assert errata("apply", "--yes").code == 0
    return project


def test_a_token_from_making_to_revoking(errata: Errata, applied: Path) -> None:
    made = errata("token", "create", "ann", "--quota-queries", "5", "--quota-rate", "9")
    token = made.out.strip()
    assert (made.code, made.out) == (0, f"{token}\n")
    assert "shown this once" in made.err
    assert token not in made.err
    catalog = open_catalog(f"sqlite:///{applied / 'errata.db'}")
    try:
        found = find_user(catalog, token)
        assert found is not None
        assert (found.name, found.quota.queries, found.quota.rate) == ("ann", 5, 9)
        (listed,) = map(json.loads, errata("token", "list", "--format", "json").out.splitlines())
        assert (listed["token"], listed["user"], listed["revoked"]) == (1, "ann", None)
        assert "ann" in errata("token", "list").out
        assert token not in errata("token", "list").out
        assert errata("token", "revoke", "1").err == "token 1 of ann is revoked\n"
        assert find_user(catalog, token) is None
    finally:
        catalog.close()
    assert json.loads(errata("token", "list", "--format", "json").out)["revoked"] is not None


def test_without_tokens_the_list_says_how_to_make_one(errata: Errata, applied: Path) -> None:
    done = errata("token", "list")
    assert (done.code, done.out, done.err) == (0, "", "no tokens yet; `errata token create USER` makes one\n")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("create", "a b"), "cannot be the name of a user"),
        (("create", "ann", "--quota-rate", "0"), "--quota-rate"),
        (("revoke", "7"), "there is no token 7"),
        (("revoke", "x"), "'TOKEN'"),
    ],
)
def test_what_is_wrong_is_told(errata: Errata, applied: Path, words: tuple[str, ...], told: str) -> None:
    done = errata("token", *words)
    assert done.code == 2
    assert told in done.err
