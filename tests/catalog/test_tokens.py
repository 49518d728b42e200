"""Tokens: shown once, kept as digests, ended at once; quotas belong to users."""

from __future__ import annotations

import pytest
from sqlalchemy import select

from errata.catalog import access_tables, tokens
from errata.catalog.database import Catalog
from errata.errors import UsageError
from errata.model.access import DEFAULT_QUERIES, DEFAULT_RATE, AccessUser, UserQuota
from errata.model.time import DAY
from fixtures.catalog import NOW
from fixtures.clock import FixedClock


def test_a_token_identifies_its_user_until_it_is_revoked(catalog: Catalog, clock: FixedClock) -> None:
    first, second = tokens.create_token(catalog, "ann"), tokens.create_token(catalog, "bob", queries=3, rate=7)
    assert tokens.find_user(catalog, first) == AccessUser("ann", UserQuota(DEFAULT_QUERIES, DEFAULT_RATE))
    assert tokens.find_user(catalog, second) == AccessUser("bob", UserQuota(3, 7))
    clock.advance(DAY)
    assert tokens.revoke_token(catalog, 2).revoked_at == NOW + DAY
    assert tokens.find_user(catalog, second) is None
    assert tokens.find_user(catalog, first) is not None
    clock.advance(DAY)
    assert tokens.revoke_token(catalog, 2).revoked_at == NOW + DAY, "the time when it ended stays"
    assert [(each.token_id, each.user.name, each.revoked_at) for each in tokens.list_tokens(catalog)] == [
        (1, "ann", None),
        (2, "bob", NOW + DAY),
    ]


def test_a_quota_is_the_users_not_the_tokens(catalog: Catalog) -> None:
    old = tokens.create_token(catalog, "ann", queries=3)
    new = tokens.create_token(catalog, "ann", rate=9)
    wanted = AccessUser("ann", UserQuota(3, 9))
    assert (tokens.find_user(catalog, old), tokens.find_user(catalog, new)) == (wanted, wanted)


def test_no_table_holds_the_token(catalog: Catalog) -> None:
    token = tokens.create_token(catalog, "ann")
    assert len(token) == len(tokens.TOKEN_PREFIX) + 43
    with catalog.reading() as connection:
        rows = [
            tuple(row) for table in access_tables.metadata.tables.values() for row in connection.execute(select(table))
        ]
    assert rows
    held = " ".join(map(str, rows))
    assert token not in held
    assert token.removeprefix(tokens.TOKEN_PREFIX) not in held
    assert tokens.token_digest(token) in held


@pytest.mark.parametrize(
    "wrong", ["", "errata_", "errata_' OR '1'='1", "Bearer x", "errata_" + "a" * 43, "errata_" + "é" * 43, "a" * 9999]
)
def test_what_is_no_token_identifies_nobody(catalog: Catalog, wrong: str) -> None:
    tokens.create_token(catalog, "ann")
    assert tokens.find_user(catalog, wrong) is None


@pytest.mark.parametrize("name", ["", "a b", "ann'; DROP TABLE api_users; --", "x" * 65, ".hidden", "a\nb"])
def test_a_user_has_a_plain_name(catalog: Catalog, name: str) -> None:
    with pytest.raises(UsageError, match="cannot be the name of a user"):
        tokens.create_token(catalog, name)
    assert tokens.list_tokens(catalog) == []


def test_wrong_numbers_are_refused(catalog: Catalog) -> None:
    with pytest.raises(UsageError, match="there is no token 5"):
        tokens.revoke_token(catalog, 5)
    for quota in ({"queries": 0}, {"rate": -1}, {"rate": 2**31}):
        with pytest.raises(UsageError, match="a quota is a number"):
            tokens.create_token(catalog, "ann", **quota)
