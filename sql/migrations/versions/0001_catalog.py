"""The catalog's first tables: commits, streams, ledger, bucket index, quarantine, pins."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    op.create_table(
        "commits",
        sa.Column("commit_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("flow", sa.String(length=40), nullable=False),
        sa.Column("stream_id", sa.BigInteger(), nullable=True),
        sa.Column("batch_id", sa.String(length=200), nullable=True),
        sa.Column("user_name", sa.String(length=200), nullable=False),
        sa.Column("host", sa.String(length=200), nullable=False),
        sa.Column("dag_id", sa.String(length=250), nullable=False),
        sa.Column("run_id", sa.String(length=250), nullable=False),
        sa.Column("task_id", sa.String(length=250), nullable=False),
        sa.Column("try_number", sa.Integer(), nullable=True),
        sa.Column("spark_app", sa.String(length=200), nullable=False),
        sa.Column("summary", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("commit_id", name=op.f("pk_commits")),
    )
    op.create_index(op.f("ix_commits_at"), "commits", ["at"], unique=False)
    op.create_table(
        "head",
        sa.Column("id", sa.SmallInteger(), nullable=False),
        sa.Column("commit_id", sa.BigInteger(), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_head")),
    )
    op.create_table(
        "pins",
        sa.Column("pin_id", sa.String(length=32), nullable=False),
        sa.Column("commit_id", sa.BigInteger(), nullable=False),
        sa.Column("holder", sa.String(length=200), nullable=False),
        sa.Column("expires_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("pin_id", name=op.f("pk_pins")),
    )
    op.create_index(op.f("ix_pins_expires_at"), "pins", ["expires_at"], unique=False)
    op.create_table(
        "streams",
        sa.Column("stream_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("name", sa.String(length=63), nullable=False),
        sa.Column("added_in", sa.BigInteger(), nullable=False),
        sa.Column("removed_in", sa.BigInteger(), nullable=True),
        sa.Column("stable", sa.BigInteger(), nullable=True),
        sa.Column("vs_max", sa.BigInteger(), nullable=True),
        sa.Column("rows", sa.BigInteger(), nullable=False),
        sa.Column("inline_bytes", sa.BigInteger(), nullable=False),
        sa.Column("revisions", sa.BigInteger(), nullable=False),
        sa.Column("changed_in", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("stream_id", name=op.f("pk_streams")),
    )
    live = sa.text("removed_in IS NULL")
    op.create_index("uq_streams_live_name", "streams", ["name"], unique=True, postgresql_where=live, sqlite_where=live)
    op.create_table(
        "batches",
        sa.Column("batch_no", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("stream_id", sa.BigInteger(), nullable=False),
        sa.Column("batch_id", sa.String(length=200), nullable=False),
        sa.Column("content_hash", sa.String(length=64), nullable=False),
        sa.Column("commit_id", sa.BigInteger(), nullable=True),
        sa.Column("counts", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(["stream_id"], ["streams.stream_id"], name=op.f("fk_batches_stream_id")),
        sa.PrimaryKeyConstraint("batch_no", name=op.f("pk_batches")),
        sa.UniqueConstraint("stream_id", "batch_id", name=op.f("uq_batches_stream_id_batch_id")),
    )
    op.create_table(
        "buckets",
        sa.Column("bucket_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("stream_id", sa.BigInteger(), nullable=False),
        sa.Column("role", sa.String(length=12), nullable=False),
        sa.Column("layout", sa.String(length=12), nullable=False),
        sa.Column("path", sa.Text(), nullable=True),
        sa.Column("rows", sa.BigInteger(), nullable=False),
        sa.Column("bytes", sa.BigInteger(), nullable=False),
        sa.Column("vs_min", sa.BigInteger(), nullable=False),
        sa.Column("vs_max", sa.BigInteger(), nullable=False),
        sa.Column("ve_min", sa.BigInteger(), nullable=True),
        sa.Column("ve_max", sa.BigInteger(), nullable=True),
        sa.Column("span_class", sa.SmallInteger(), nullable=False),
        sa.Column("group_low", sa.Text(), nullable=True),
        sa.Column("group_high", sa.Text(), nullable=True),
        sa.Column("group_members", sa.Text(), nullable=True),
        sa.Column("sampling_rate", sa.Float(), nullable=False),
        sa.Column("checksum", sa.String(length=80), nullable=False),
        sa.Column("batch_no", sa.BigInteger(), nullable=True),
        sa.Column("revision_first", sa.BigInteger(), nullable=True),
        sa.Column("added_in", sa.BigInteger(), nullable=False),
        sa.Column("removed_in", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(["stream_id"], ["streams.stream_id"], name=op.f("fk_buckets_stream_id")),
        sa.PrimaryKeyConstraint("bucket_id", name=op.f("pk_buckets")),
    )
    op.create_index(op.f("ix_buckets_added_in"), "buckets", ["added_in"], unique=False)
    op.create_index(
        op.f("ix_buckets_stream_id_role_span_class_vs_min"),
        "buckets",
        ["stream_id", "role", "span_class", "vs_min"],
        unique=False,
    )
    op.create_table(
        "declarations",
        sa.Column("stream_id", sa.BigInteger(), nullable=False),
        sa.Column("added_in", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("declaration", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(["stream_id"], ["streams.stream_id"], name=op.f("fk_declarations_stream_id")),
        sa.PrimaryKeyConstraint("stream_id", "added_in", name=op.f("pk_declarations")),
    )
    op.create_table(
        "positions",
        sa.Column("stream_id", sa.BigInteger(), nullable=False),
        sa.Column("commit_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("stable", sa.BigInteger(), nullable=True),
        sa.Column("vs_max", sa.BigInteger(), nullable=True),
        sa.Column("rows", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["stream_id"], ["streams.stream_id"], name=op.f("fk_positions_stream_id")),
        sa.PrimaryKeyConstraint("stream_id", "commit_id", name=op.f("pk_positions")),
    )
    op.create_table(
        "batch_files",
        sa.Column("batch_no", sa.BigInteger(), nullable=False),
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("stream_id", sa.BigInteger(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.Column("bytes", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["batch_no"], ["batches.batch_no"], name=op.f("fk_batch_files_batch_no")),
        sa.PrimaryKeyConstraint("batch_no", "number", name=op.f("pk_batch_files")),
    )
    op.create_index(op.f("ix_batch_files_stream_id_sha256"), "batch_files", ["stream_id", "sha256"], unique=False)
    op.create_table(
        "batch_splits",
        sa.Column("batch_no", sa.BigInteger(), nullable=False),
        sa.Column("split", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("file_number", sa.Integer(), nullable=False),
        sa.Column("first_line", sa.BigInteger(), nullable=False),
        sa.Column("lines", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["batch_no"], ["batches.batch_no"], name=op.f("fk_batch_splits_batch_no")),
        sa.PrimaryKeyConstraint("batch_no", "split", name=op.f("pk_batch_splits")),
    )
    op.create_table(
        "bucket_data",
        sa.Column("bucket_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("data", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["bucket_id"], ["buckets.bucket_id"], name=op.f("fk_bucket_data_bucket_id")),
        sa.PrimaryKeyConstraint("bucket_id", name=op.f("pk_bucket_data")),
    )
    op.create_table(
        "quarantine",
        sa.Column("quarantine_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("stream_id", sa.BigInteger(), nullable=False),
        sa.Column("batch_no", sa.BigInteger(), nullable=False),
        sa.Column("file", sa.Text(), nullable=False),
        sa.Column("line", sa.BigInteger(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["batch_no"], ["batches.batch_no"], name=op.f("fk_quarantine_batch_no")),
        sa.ForeignKeyConstraint(["stream_id"], ["streams.stream_id"], name=op.f("fk_quarantine_stream_id")),
        sa.PrimaryKeyConstraint("quarantine_id", name=op.f("pk_quarantine")),
    )
    op.create_index(op.f("ix_quarantine_stream_id_batch_no"), "quarantine", ["stream_id", "batch_no"], unique=False)
    op.execute("INSERT INTO head (id, commit_id, at) VALUES (1, 0, 0)")
