"""Results of queries: their archives, how far they have been worked out, and who is at work on them."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    op.add_column("streams", sa.Column("query_id", sa.BigInteger()))
    op.create_index("ix_buckets_ends", "buckets", ["stream_id", "role", "ve_max"])
    op.create_table(
        "shapes",
        sa.Column("stream_id", sa.BigInteger(), nullable=False),
        sa.Column("shape", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("stream_id", name=op.f("pk_shapes")),
        sa.ForeignKeyConstraint(["stream_id"], ["streams.stream_id"], name=op.f("fk_shapes_stream_id")),
    )
    op.create_table(
        "evaluations",
        sa.Column("stream_id", sa.BigInteger(), nullable=False),
        sa.Column("number", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("commit_id", sa.BigInteger(), nullable=False),
        sa.Column("data_commit", sa.BigInteger(), nullable=False),
        sa.Column("since", sa.BigInteger(), nullable=False),
        sa.Column("until", sa.BigInteger(), nullable=False),
        sa.Column("begins", sa.BigInteger(), nullable=False),
        sa.Column("revisions", sa.JSON(), nullable=False),
        sa.Column("cause", sa.JSON(), nullable=False),
        sa.Column("measures", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("stream_id", "number", name=op.f("pk_evaluations")),
        sa.ForeignKeyConstraint(["stream_id"], ["streams.stream_id"], name=op.f("fk_evaluations_stream_id")),
    )
    op.create_index(op.f("ix_evaluations_stream_id_commit_id"), "evaluations", ["stream_id", "commit_id"])
    op.create_table(
        "faults",
        sa.Column("query_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("data_commit", sa.BigInteger(), nullable=False),
        sa.Column("since", sa.BigInteger(), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("fault", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("query_id", name=op.f("pk_faults")),
    )
    op.create_table(
        "leases",
        sa.Column("name", sa.String(length=200), nullable=False),
        sa.Column("holder", sa.String(length=200), nullable=False),
        sa.Column("fence", sa.BigInteger(), nullable=False),
        sa.Column("expires_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_leases")),
    )
