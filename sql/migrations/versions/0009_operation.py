"""Operation: which process holds a lease and since when, and which faults of queries have been told."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    # Leases are of work that is being done: none is while the tables are brought up to date.
    op.execute(sa.text("DELETE FROM leases"))
    op.add_column("leases", sa.Column("since", sa.BigInteger(), nullable=False, server_default="0"))
    op.add_column("leases", sa.Column("process", sa.JSON(), nullable=False, server_default="{}"))
    op.create_table(
        "told_faults",
        sa.Column("fault_id", sa.String(length=32), nullable=False),
        sa.Column("query_id", sa.BigInteger(), nullable=False),
        sa.Column("query", sa.String(length=63), nullable=False),
        sa.Column("fault", sa.JSON(), nullable=False),
        sa.Column("since", sa.BigInteger(), nullable=False),
        sa.Column("told", sa.BigInteger()),
        sa.PrimaryKeyConstraint("fault_id", name=op.f("pk_told_faults")),
    )
