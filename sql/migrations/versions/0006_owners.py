"""Leases: for whom they are held, so that what a killed task held can be given back at once."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    op.add_column("leases", sa.Column("owner", sa.String(length=800), nullable=False, server_default=""))
