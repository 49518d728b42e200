"""Registered queries: statements, queries, conjunctions, and which rows of which bucket satisfy them."""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    identity = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
    op.create_table(
        "statements",
        sa.Column("statement_id", identity, nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("plan", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("statement_id", name=op.f("pk_statements")),
        sa.UniqueConstraint("digest", name=op.f("uq_statements_digest")),
    )
    op.create_table(
        "conjunctions",
        sa.Column("conjunction_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("stream_id", sa.BigInteger(), nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("factors", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("conjunction_id", name=op.f("pk_conjunctions")),
        sa.UniqueConstraint("stream_id", "digest", name=op.f("uq_conjunctions_stream_id_digest")),
    )
    op.create_table(
        "registered_queries",
        sa.Column("number", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("handle", sa.String(length=16), nullable=False),
        sa.Column("owner", sa.String(length=200), nullable=False),
        sa.Column("statement_id", sa.BigInteger(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("parameters", sa.JSON(), nullable=False),
        sa.Column("conjunctions", sa.JSON(), nullable=False),
        sa.Column("strategy", sa.String(length=8), nullable=False),
        sa.Column("registered_at", sa.BigInteger(), nullable=False),
        sa.Column("added_in", sa.BigInteger(), nullable=False),
        sa.Column("removed_in", sa.BigInteger()),
        sa.Column("invocations", sa.BigInteger(), nullable=False),
        sa.Column("invocation_micros", sa.BigInteger(), nullable=False),
        sa.Column("last_asked", sa.BigInteger()),
        sa.PrimaryKeyConstraint("number", name=op.f("pk_registered_queries")),
        sa.UniqueConstraint("handle", name=op.f("uq_registered_queries_handle")),
        sa.ForeignKeyConstraint(
            ["statement_id"], ["statements.statement_id"], name=op.f("fk_registered_queries_statement_id")
        ),
    )
    op.create_index(op.f("ix_registered_queries_owner"), "registered_queries", ["owner"])
    op.create_table(
        "match_segments",
        sa.Column("bucket_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("added_in", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("first_conjunction", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("last_conjunction", sa.BigInteger(), nullable=False),
        sa.Column("path", sa.Text()),
        sa.Column("data", sa.LargeBinary()),
        sa.Column("rows", sa.BigInteger(), nullable=False),
        sa.Column("bytes", sa.BigInteger(), nullable=False),
        sa.Column("micros", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("bucket_id", "added_in", "first_conjunction", name=op.f("pk_match_segments")),
    )
    op.create_index(op.f("ix_match_segments_path"), "match_segments", ["path"])
