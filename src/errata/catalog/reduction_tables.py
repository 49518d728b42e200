"""The catalog's table of what readers asked for at reduced resolution. Migrations under sql/ make it."""

from __future__ import annotations

from sqlalchemy import JSON, BigInteger, Column, ForeignKey, String, Table, Text

from errata.catalog.tables import metadata

reduction_requests = Table(
    "reduction_requests",
    metadata,
    Column("stream_id", BigInteger, ForeignKey("streams.stream_id"), primary_key=True),
    Column("digest", String(64), primary_key=True),
    Column("method", String(8), nullable=False),
    Column("label", Text, nullable=False),
    Column("asked", JSON, nullable=False),
    Column("readers", BigInteger, nullable=False),
    Column("last_readers", BigInteger, nullable=False),
    Column("all_readers", BigInteger, nullable=False),
    Column("from_copies", BigInteger, nullable=False),
    Column("from_originals", BigInteger, nullable=False),
    Column("user_name", String(200), nullable=False),
    Column("asked_at", BigInteger, nullable=False),
    Column("settled_at", BigInteger),
)
"""Equal readings of a stream are one row. `readers` counts those since the last vacuum, `last_readers` those of the
round before, `all_readers` all; `from_copies` and `from_originals` are the bytes that all of them read. The number of
rows per stream is bounded: see `catalog/reduction_requests.py`."""
