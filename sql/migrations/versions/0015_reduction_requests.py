"""What readers asked for at reduced resolution, which modify on read follows."""

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"


def upgrade() -> None:
    op.create_table(
        "reduction_requests",
        sa.Column("stream_id", sa.BigInteger(), nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("method", sa.String(length=8), nullable=False),
        sa.Column("label", sa.Text(), nullable=False),
        sa.Column("asked", sa.JSON(), nullable=False),
        sa.Column("readers", sa.BigInteger(), nullable=False),
        sa.Column("last_readers", sa.BigInteger(), nullable=False),
        sa.Column("all_readers", sa.BigInteger(), nullable=False),
        sa.Column("from_copies", sa.BigInteger(), nullable=False),
        sa.Column("from_originals", sa.BigInteger(), nullable=False),
        sa.Column("user_name", sa.String(length=200), nullable=False),
        sa.Column("asked_at", sa.BigInteger(), nullable=False),
        sa.Column("settled_at", sa.BigInteger()),
        sa.PrimaryKeyConstraint("stream_id", "digest", name=op.f("pk_reduction_requests")),
        sa.ForeignKeyConstraint(["stream_id"], ["streams.stream_id"], name=op.f("fk_reduction_requests_stream_id")),
    )
