"""Tokens: who may ask over HTTP. A token is 256 random bits; only its SHA-256 digest is kept.

    errata_3q2-…Zk   shown once, when it is made          digest = SHA-256 of the text
                     sent as `Authorization: Bearer …`    looked up by the digest

A digest of 256 random bits needs no salt: there is nothing to guess, and no two are equal. The token itself is never
stored or logged. Quotas belong to the user, who may have several tokens, so that one can be replaced by another.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from typing import Any

from sqlalchemy import Row, Select, bindparam, insert, select, update

from errata.catalog.access_tables import api_tokens, api_users
from errata.catalog.database import Catalog
from errata.errors import UsageError
from errata.model.access import DEFAULT_QUERIES, DEFAULT_RATE, AccessToken, AccessUser, UserQuota, check_access_name

TOKEN_PREFIX = "errata_"  # noqa: S105 - what every token begins with, so that scanners of source code find lost ones
TOKEN_BYTES = 32
_TOKEN_FORM = re.compile(TOKEN_PREFIX + r"[A-Za-z0-9_-]{43}")

MAX_QUOTA = 2**31 - 1

_COLUMNS = (api_users.c.user_name, api_users.c.quota_queries, api_users.c.quota_rate)
_FIND_USER: Select[Any] = (
    select(*_COLUMNS)
    .join(api_tokens, api_tokens.c.user_name == api_users.c.user_name)
    .where(api_tokens.c.digest == bindparam("digest"), api_tokens.c.revoked_at.is_(None))
)


def create_token(catalog: Catalog, user: str, *, queries: int | None = None, rate: int | None = None) -> str:
    """Make a token for the user, and return it: it cannot be shown again. A quota that is given is the user's from now
    on."""
    check_access_name("user", user)
    given = {"quota_queries": queries, "quota_rate": rate}
    given = {column: quota for column, quota in given.items() if quota is not None}
    if any(not 1 <= quota <= MAX_QUOTA for quota in given.values() if quota is not None):
        raise UsageError("a quota is a number from 1 on", how="leave it out for the default")
    token = TOKEN_PREFIX + secrets.token_urlsafe(TOKEN_BYTES)
    made = {"user_name": user, "digest": token_digest(token), "created_at": catalog.clock.now()}
    with catalog.writing() as connection:
        known = connection.execute(select(api_users.c.user_name).where(api_users.c.user_name == user)).first()
        if known is None:
            connection.execute(insert(api_users).values({"user_name": user} | given))
        elif given:
            connection.execute(update(api_users).where(api_users.c.user_name == user).values(given))
        connection.execute(insert(api_tokens).values(made))
    return token


def find_user(catalog: Catalog, token: str) -> AccessUser | None:
    """The user whom a token identifies; None for one that is unknown or revoked."""
    if not _TOKEN_FORM.fullmatch(token):
        return None
    with catalog.reading() as connection:
        rows = connection.execute(_FIND_USER, {"digest": token_digest(token)}).all()
    return _user_from_row(rows[0]) if rows else None


def list_tokens(catalog: Catalog) -> list[AccessToken]:
    """All tokens, revoked ones too, oldest first."""
    with catalog.reading() as connection:
        return [_token_from_row(row) for row in connection.execute(_select_tokens())]


def revoke_token(catalog: Catalog, token_id: int) -> AccessToken:
    """End a token. One that was revoked before stays as it was."""
    wanted = api_tokens.c.token_id == token_id
    with catalog.writing() as connection:
        ending = update(api_tokens).where(wanted, api_tokens.c.revoked_at.is_(None))
        connection.execute(ending.values(revoked_at=catalog.clock.now()))
        row = connection.execute(_select_tokens().where(wanted)).first()
    if row is None:
        raise UsageError(f"there is no token {token_id}", how="`errata token list` lists them")
    return _token_from_row(row)


def token_digest(token: str) -> str:
    """What is stored of a token."""
    return hashlib.sha256(token.encode()).hexdigest()


def _select_tokens() -> Select[Any]:
    joined = select(api_tokens, *_COLUMNS[1:]).join(api_users, api_users.c.user_name == api_tokens.c.user_name)
    return joined.order_by(api_tokens.c.token_id)


def _token_from_row(row: Row[Any]) -> AccessToken:
    return AccessToken(row.token_id, _user_from_row(row), row.created_at, row.revoked_at)


def _user_from_row(row: Row[Any]) -> AccessUser:
    queries = DEFAULT_QUERIES if row.quota_queries is None else row.quota_queries
    return AccessUser(row.user_name, UserQuota(queries, DEFAULT_RATE if row.quota_rate is None else row.quota_rate))
