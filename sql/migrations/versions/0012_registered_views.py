"""Views of registered queries: which queries have one, and what their tables of matching rows hold."""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"


def upgrade() -> None:
    op.create_table(
        "registered_views",
        sa.Column("number", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.PrimaryKeyConstraint("number", name=op.f("pk_registered_views")),
    )
    op.create_table(
        "view_streams",
        sa.Column("stream_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("commit_id", sa.BigInteger(), nullable=False),
        sa.Column("stable", sa.BigInteger()),
        sa.Column("aged_to", sa.BigInteger()),
        sa.PrimaryKeyConstraint("stream_id", name=op.f("pk_view_streams")),
    )
    op.create_table(
        "view_buckets",
        sa.Column("stream_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("bucket_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("added_in", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.PrimaryKeyConstraint("stream_id", "bucket_id", "added_in", name=op.f("pk_view_buckets")),
    )
    op.create_table(
        "view_windows",
        sa.Column("number", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("source", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("first", sa.BigInteger(), nullable=False),
        sa.Column("lacks_rows", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("number", "source", name=op.f("pk_view_windows")),
    )
    op.create_table(
        "view_exclusions",
        sa.Column("number", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("source", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("bucket_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("added_in", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("position", sa.Integer(), autoincrement=False, nullable=False),
        sa.PrimaryKeyConstraint(
            "number", "source", "bucket_id", "added_in", "position", name=op.f("pk_view_exclusions")
        ),
    )
