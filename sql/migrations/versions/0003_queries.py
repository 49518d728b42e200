"""Queries: their texts as applied, and what their plans tell of their results."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    op.create_table(
        "queries",
        sa.Column("query_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("name", sa.String(length=63), nullable=False),
        sa.Column("added_in", sa.BigInteger(), nullable=False),
        sa.Column("removed_in", sa.BigInteger()),
        sa.Column("sql", sa.Text(), nullable=False),
        sa.Column("options", sa.JSON(), nullable=False),
        sa.Column("columns", sa.JSON(), nullable=False),
        sa.Column("key", sa.JSON(), nullable=False),
        sa.Column("reads", sa.JSON(), nullable=False),
        sa.Column("pattern", sa.String(length=8), nullable=False),
        sa.Column("on_revision", sa.String(length=8), nullable=False),
        sa.Column("fingerprint", sa.String(length=64), nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.PrimaryKeyConstraint("query_id", name=op.f("pk_queries")),
    )
    op.create_index(
        "uq_queries_live_name",
        "queries",
        ["name"],
        unique=True,
        postgresql_where=sa.text("removed_in IS NULL"),
        sqlite_where=sa.text("removed_in IS NULL"),
    )
