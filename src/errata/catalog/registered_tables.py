"""The catalog's tables of registered queries. Migrations under sql/ make them; a test holds the two together.

    statements <─ registered_queries ─> conjunctions <─ (ranges of their numbers) match_segments ─> buckets

Numbers of queries and of conjunctions are consecutive and never given twice, and are taken under the lock of the head,
so that they become visible in their order: who sees one sees all before it.
"""

from __future__ import annotations

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    String,
    Table,
    Text,
    UniqueConstraint,
)

from errata.catalog.tables import Identity, metadata

statements = Table(
    "statements",
    metadata,
    Column("statement_id", Identity, primary_key=True),
    Column("digest", String(64), nullable=False),
    Column("text", Text, nullable=False),
    Column("plan", JSON, nullable=False),
    UniqueConstraint("digest"),
)
"""Texts without their constants, and what is planned of them; queries that differ in constants alone share one."""

conjunctions = Table(
    "conjunctions",
    metadata,
    Column("conjunction_id", BigInteger, primary_key=True, autoincrement=False),
    Column("stream_id", BigInteger, nullable=False),
    Column("digest", String(64), nullable=False),
    Column("factors", JSON, nullable=False),
    UniqueConstraint("stream_id", "digest"),
)
"""Factors over the rows of a stream, which all queries that state the same share."""

registered_queries = Table(
    "registered_queries",
    metadata,
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    Column("handle", String(16), nullable=False),
    Column("owner", String(200), nullable=False),
    Column("statement_id", BigInteger, ForeignKey("statements.statement_id"), nullable=False),
    Column("text", Text, nullable=False),
    Column("parameters", JSON, nullable=False),
    Column("conjunctions", JSON, nullable=False),
    Column("strategy", String(8), nullable=False),
    Column("registered_at", BigInteger, nullable=False),
    Column("added_in", BigInteger, nullable=False),
    Column("removed_in", BigInteger),
    Column("invocations", BigInteger, nullable=False),
    Column("invocation_micros", BigInteger, nullable=False),
    Column("last_asked", BigInteger),
    UniqueConstraint("handle"),
    Index(None, "owner"),
)
"""`parameters` has what of the plan depends on constants: windows and offsets; `conjunctions` a number for each source.
One that is unregistered keeps its row, so that its number and its handle are not given again."""

match_segments = Table(
    "match_segments",
    metadata,
    Column("bucket_id", BigInteger, primary_key=True, autoincrement=False),
    Column("added_in", BigInteger, primary_key=True, autoincrement=False),
    Column("first_conjunction", BigInteger, primary_key=True, autoincrement=False),
    Column("last_conjunction", BigInteger, nullable=False),
    Column("path", Text),
    Column("data", LargeBinary),
    Column("rows", BigInteger, nullable=False),
    Column("bytes", BigInteger, nullable=False),
    Column("micros", BigInteger, nullable=False),
    Index(None, "path"),
)
"""Which rows of a bucket satisfy the conjunctions of its stream from the first number to the last, both included. The
bucket is named by its id and the commit that added it, since a database may give the id of a deleted row again."""

registered_views = Table(
    "registered_views",
    metadata,
    Column("number", BigInteger, primary_key=True, autoincrement=False),
)
"""The queries that are views of the database, too, by their numbers."""

view_streams = Table(
    "view_streams",
    metadata,
    Column("stream_id", BigInteger, primary_key=True, autoincrement=False),
    Column("commit_id", BigInteger, nullable=False),
    Column("stable", BigInteger),
    Column("aged_to", BigInteger),
)
"""The streams that views read: the commit that their rows are as of, the same for all, and what NOW is in a view."""

view_buckets = Table(
    "view_buckets",
    metadata,
    Column("stream_id", BigInteger, primary_key=True, autoincrement=False),
    Column("bucket_id", BigInteger, primary_key=True, autoincrement=False),
    Column("added_in", BigInteger, primary_key=True, autoincrement=False),
    Column("digest", String(64), nullable=False),
)
"""The buckets whose matching rows views read; the digest is of what decides which rows these are."""

view_windows = Table(
    "view_windows",
    metadata,
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    Column("source", Integer, primary_key=True, autoincrement=False),
    Column("first", BigInteger, nullable=False),
    Column("lacks_rows", Boolean, nullable=False),
)
"""Of views whose windows count rows of the stream: where the window of a source begins as of the views' commit, and
whether rows that it would hold have been aged out."""

view_exclusions = Table(
    "view_exclusions",
    metadata,
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    Column("source", Integer, primary_key=True, autoincrement=False),
    Column("bucket_id", BigInteger, primary_key=True, autoincrement=False),
    Column("added_in", BigInteger, primary_key=True, autoincrement=False),
    Column("position", Integer, primary_key=True, autoincrement=False),
)
"""Rows at the beginning of such a window that are too many: they have the same order field as its first row."""
