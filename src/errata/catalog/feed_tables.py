"""The catalog's tables of merged feeds: where each feed stands, how they are merged, and what they disagree about.
Migrations under sql/ make them."""

from __future__ import annotations

from sqlalchemy import JSON, BigInteger, Boolean, Column, ForeignKey, Index, SmallInteger, String, Table, Text

from errata.catalog.tables import Identity, metadata

feeds = Table(
    "feeds",
    metadata,
    Column("stream_id", BigInteger, ForeignKey("streams.stream_id"), primary_key=True),
    Column("name", String(63), primary_key=True),
    Column("number", SmallInteger, nullable=False),
    Column("attached", Boolean, nullable=False),
    Column("joins_at", BigInteger, nullable=False),
    Column("stable", BigInteger, nullable=False),
    Column("top_order", BigInteger, nullable=False),
    Column("top_rows", BigInteger, nullable=False),
    Column("rows", BigInteger, nullable=False),
    Column("repeats", BigInteger, nullable=False),
    Column("filled", BigInteger, nullable=False),
    Column("behind", BigInteger, nullable=False),
    Column("refused", BigInteger, nullable=False),
    Column("suspect_reason", Text),
    Column("suspect_in", BigInteger),
    Column("last_commit", BigInteger),
    Column("attached_in", BigInteger),
    Column("broken", JSON, nullable=False),
)
"""A feed of a stream and where it stands now. `stable`, `joins_at` and `top_order` are places; the least one of 64 bits
means none. `broken` are the guarantees that its rows have broken since it was declared."""

merges = Table(
    "merges",
    metadata,
    Column("stream_id", BigInteger, ForeignKey("streams.stream_id"), primary_key=True),
    Column("algorithm", String(4), nullable=False),
    Column("reason", Text, nullable=False),
    Column("stable", BigInteger, nullable=False),
    Column("leader", String(63)),
    Column("since_commit", BigInteger, nullable=False),
    Column("leader_since", BigInteger),
    Column("switches", BigInteger, nullable=False),
)
"""How the feeds of a stream are merged now: since which commit by this algorithm, and since which one led by this feed;
how often another feed has taken the lead."""

disagreements = Table(
    "disagreements",
    metadata,
    Column("disagreement_id", Identity, primary_key=True),
    Column("stream_id", BigInteger, ForeignKey("streams.stream_id"), nullable=False),
    Column("digest", String(64), nullable=False),
    Column("key", Text, nullable=False),
    Column("place", BigInteger, nullable=False),
    Column("opened_in", BigInteger, nullable=False),
    Column("changed_in", BigInteger, nullable=False),
    Column("resolved_in", BigInteger),
    Column("chosen", String(63), nullable=False),
    Column("policy", String(12), nullable=False),
    Column("said", JSON, nullable=False),
    Index(None, "stream_id", "resolved_in"),
    Index(None, "stream_id", "digest"),
)
"""Keys about which feeds say different things: what each says and where, and whose value counts. `digest` is a hash of
the key, since keys can be long."""
