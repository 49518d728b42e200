"""Copies and summaries name the bucket that they were made from; what readers asked for at reduced resolution."""

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"


def upgrade() -> None:
    op.add_column("buckets", sa.Column("original", sa.BigInteger()))
    op.create_index("ix_buckets_original", "buckets", ["original"])
