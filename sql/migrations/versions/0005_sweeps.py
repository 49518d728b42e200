"""Corrections of results: up to which evaluation queries that are read have a say, and what each sweep did."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    op.add_column("evaluations", sa.Column("inputs", sa.JSON()))
    op.add_column("evaluations", sa.Column("swept", sa.JSON()))
    op.add_column("evaluations", sa.Column("refused", sa.BigInteger()))
    op.create_index(
        "ix_evaluations_refused",
        "evaluations",
        ["stream_id"],
        postgresql_where=sa.text("refused IS NOT NULL"),
        sqlite_where=sa.text("refused IS NOT NULL"),
    )
    op.create_table(
        "replays",
        sa.Column("replay_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("stream_id", sa.BigInteger(), nullable=False),
        sa.Column("since", sa.BigInteger(), nullable=False),
        sa.Column("until", sa.BigInteger(), nullable=False),
        sa.Column("done_to", sa.BigInteger(), nullable=False),
        sa.Column("results", sa.BigInteger(), nullable=False),
        sa.Column("changed", sa.BigInteger(), nullable=False),
        sa.Column("begun", sa.BigInteger(), nullable=False),
        sa.Column("ended", sa.BigInteger()),
        sa.PrimaryKeyConstraint("replay_id", name=op.f("pk_replays")),
    )
    op.create_index(op.f("ix_replays_stream_id"), "replays", ["stream_id"])
