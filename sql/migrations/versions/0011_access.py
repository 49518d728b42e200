"""Access over HTTP: users and their quotas, digests of tokens, and consumers that follow answers."""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"


def upgrade() -> None:
    identity = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
    op.create_table(
        "api_users",
        sa.Column("user_name", sa.String(length=64), nullable=False),
        sa.Column("quota_queries", sa.Integer()),
        sa.Column("quota_rate", sa.Integer()),
        sa.PrimaryKeyConstraint("user_name", name=op.f("pk_api_users")),
    )
    op.create_table(
        "api_tokens",
        sa.Column("token_id", identity, nullable=False),
        sa.Column("user_name", sa.String(length=64), nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("revoked_at", sa.BigInteger()),
        sa.PrimaryKeyConstraint("token_id", name=op.f("pk_api_tokens")),
        sa.ForeignKeyConstraint(["user_name"], ["api_users.user_name"], name=op.f("fk_api_tokens_user_name")),
    )
    op.create_index(op.f("ix_api_tokens_digest"), "api_tokens", ["digest"], unique=True)
    op.create_table(
        "answer_consumers",
        sa.Column("consumer_id", identity, nullable=False),
        sa.Column("handle", sa.String(length=63), nullable=False),
        sa.Column("name", sa.String(length=64), nullable=False),
        sa.Column("acknowledged", sa.BigInteger()),
        sa.Column("held_until", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("consumer_id", name=op.f("pk_answer_consumers")),
    )
    op.create_index(op.f("ix_answer_consumers_handle_name"), "answer_consumers", ["handle", "name"], unique=True)
