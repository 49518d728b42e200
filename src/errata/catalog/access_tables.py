"""Tables of access over HTTP: users with their quotas, tokens, and consumers that follow answers.

    api_users ──< api_tokens            a token belongs to one user; quotas are those of the user
    answer_consumers ── pins            a consumer's pin keeps the commit that it has acknowledged readable

They share the metadata of `catalog/tables.py`; migration 0011 makes them.
"""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, ForeignKey, Index, Integer, String, Table

from errata.catalog.tables import Identity, metadata

api_users = Table(
    "api_users",
    metadata,
    Column("user_name", String(64), primary_key=True),
    Column("quota_queries", Integer),
    Column("quota_rate", Integer),
)
"""Who has ever been given a token. A quota that is NULL is the default of `model.access`."""

api_tokens = Table(
    "api_tokens",
    metadata,
    Column("token_id", Identity, primary_key=True),
    Column("user_name", String(64), ForeignKey("api_users.user_name"), nullable=False),
    Column("digest", String(64), nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("revoked_at", BigInteger),
    Index(None, "digest", unique=True),
)
"""Digests of tokens; the tokens themselves are nowhere. A revoked one stays, so that it can be told when it ended."""

answer_consumers = Table(
    "answer_consumers",
    metadata,
    Column("consumer_id", Identity, primary_key=True),
    Column("handle", String(63), nullable=False),
    Column("name", String(64), nullable=False),
    Column("acknowledged", BigInteger),
    Column("held_until", BigInteger, nullable=False),
    Index(None, "handle", "name", unique=True),
)
"""How far a named consumer has come with the answers of a registered query. Until `held_until` a pin keeps the commit
that it has acknowledged readable. NULL: it has acknowledged nothing yet."""
