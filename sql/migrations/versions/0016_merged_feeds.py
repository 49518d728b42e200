"""Merged feeds: where each feed stands, how they are merged, what they disagree about, and which file is of which."""

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"

Identity = sa.BigInteger().with_variant(sa.Integer, "sqlite")

PLACES_AND_COUNTS = (
    *("joins_at", "stable", "top_order", "top_rows"),
    *("rows", "repeats", "filled", "behind", "refused"),
)


def upgrade() -> None:
    op.create_table(
        "feeds",
        sa.Column("stream_id", sa.BigInteger(), nullable=False),
        sa.Column("name", sa.String(length=63), nullable=False),
        sa.Column("number", sa.SmallInteger(), nullable=False),
        sa.Column("attached", sa.Boolean(), nullable=False),
        *(sa.Column(name, sa.BigInteger(), nullable=False) for name in PLACES_AND_COUNTS),
        sa.Column("suspect_reason", sa.Text()),
        sa.Column("suspect_in", sa.BigInteger()),
        sa.Column("last_commit", sa.BigInteger()),
        sa.Column("attached_in", sa.BigInteger()),
        sa.Column("broken", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("stream_id", "name", name=op.f("pk_feeds")),
        sa.ForeignKeyConstraint(["stream_id"], ["streams.stream_id"], name=op.f("fk_feeds_stream_id")),
    )
    op.create_table(
        "merges",
        sa.Column("stream_id", sa.BigInteger(), nullable=False),
        sa.Column("algorithm", sa.String(length=4), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("stable", sa.BigInteger(), nullable=False),
        sa.Column("leader", sa.String(length=63)),
        sa.Column("since_commit", sa.BigInteger(), nullable=False),
        sa.Column("leader_since", sa.BigInteger()),
        sa.Column("switches", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("stream_id", name=op.f("pk_merges")),
        sa.ForeignKeyConstraint(["stream_id"], ["streams.stream_id"], name=op.f("fk_merges_stream_id")),
    )
    op.create_table(
        "disagreements",
        sa.Column("disagreement_id", Identity, nullable=False),
        sa.Column("stream_id", sa.BigInteger(), nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("place", sa.BigInteger(), nullable=False),
        sa.Column("opened_in", sa.BigInteger(), nullable=False),
        sa.Column("changed_in", sa.BigInteger(), nullable=False),
        sa.Column("resolved_in", sa.BigInteger()),
        sa.Column("chosen", sa.String(length=63), nullable=False),
        sa.Column("policy", sa.String(length=12), nullable=False),
        sa.Column("said", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("disagreement_id", name=op.f("pk_disagreements")),
        sa.ForeignKeyConstraint(["stream_id"], ["streams.stream_id"], name=op.f("fk_disagreements_stream_id")),
    )
    op.create_index("ix_disagreements_stream_id_resolved_in", "disagreements", ["stream_id", "resolved_in"])
    op.create_index("ix_disagreements_stream_id_digest", "disagreements", ["stream_id", "digest"])
    op.add_column("batch_files", sa.Column("feed", sa.String(length=63)))
