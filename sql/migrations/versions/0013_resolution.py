"""The resolution of a bucket: beside its sampling rate, the span of the sampling hash of its rows."""

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"


def upgrade() -> None:
    # The buckets that there are have all rows: any hash.
    for name, end in (("hash_low", -(2**63)), ("hash_high", 2**63 - 1)):
        op.add_column("buckets", sa.Column(name, sa.BigInteger(), nullable=False, server_default=str(end)))
