"""Deliveries: when a landed file last changed, a batch that is taken in again after an undo, and files set aside."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    op.add_column("batches", sa.Column("again_of", sa.BigInteger()))
    op.add_column("batch_files", sa.Column("changed", sa.BigInteger()))
    op.create_table(
        "held_files",
        sa.Column("stream_id", sa.BigInteger(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("bytes", sa.BigInteger(), nullable=False),
        sa.Column("changed", sa.BigInteger(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("how", sa.Text()),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("state", sa.String(length=8), nullable=False),
        sa.Column("settled_in", sa.BigInteger()),
        sa.PrimaryKeyConstraint("stream_id", "name", name=op.f("pk_held_files")),
        sa.ForeignKeyConstraint(["stream_id"], ["streams.stream_id"], name=op.f("fk_held_files_stream_id")),
    )
