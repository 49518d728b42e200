"""Corrections: overlays and their ranges, what has been applied, retried quarantine, vacuum's list."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def _number(name: str, **how: object) -> sa.Column:
    return sa.Column(name, sa.BigInteger(), **how)


def _counter(name: str) -> sa.Column:
    return _number(name, nullable=False, server_default="0")


def upgrade() -> None:
    with op.batch_alter_table("streams") as table:
        table.add_column(_counter("applied"))
        table.add_column(_number("aged_to"))
        table.add_column(_counter("folded"))
        table.add_column(_number("vacuumed"))
    with op.batch_alter_table("positions") as table:
        table.add_column(_counter("applied"))
        table.add_column(_number("aged_to"))
        table.add_column(_counter("folded"))
    with op.batch_alter_table("batches") as table:
        table.add_column(_number("undoes"))
        table.add_column(sa.Column("default_op", sa.String(length=8)))
    with op.batch_alter_table("batch_files") as table:
        table.add_column(sa.Column("header", sa.Text()))
    with op.batch_alter_table("buckets") as table:
        for name in ("revision_last", "mask_min", "mask_max", "content_min", "content_max"):
            table.add_column(_number(name))
        table.add_column(_counter("floor"))
        table.add_column(_counter("folded"))
        table.add_column(_counter("masked"))
    op.create_index(op.f("ix_buckets_path"), "buckets", ["path"], unique=False)
    op.execute("UPDATE buckets SET revision_last = revision_first + rows - 1 WHERE revision_first IS NOT NULL")
    with op.batch_alter_table("quarantine") as table:
        table.add_column(sa.Column("form", sa.String(length=8), nullable=False, server_default="csv"))
        table.add_column(_number("revision"))
        table.add_column(sa.Column("state", sa.String(length=8), nullable=False, server_default="held"))
        table.add_column(_number("settled_in"))
        table.add_column(sa.Column("file_number", sa.Integer()))
    for ending in ("json", "jsonl", "ndjson", "json.gz", "jsonl.gz", "ndjson.gz", "parquet"):
        old = sa.table("quarantine", sa.column("file"), sa.column("form"))
        op.execute(old.update().where(sa.func.lower(old.c.file).endswith(f".{ending}")).values(form="json"))
    op.create_table(
        "consumers",
        _number("stream_id", nullable=False),
        sa.Column("name", sa.String(length=200), nullable=False),
        _number("revision", nullable=False),
        sa.ForeignKeyConstraint(["stream_id"], ["streams.stream_id"], name=op.f("fk_consumers_stream_id")),
        sa.PrimaryKeyConstraint("stream_id", "name", name=op.f("pk_consumers")),
    )
    op.create_table(
        "doomed",
        sa.Column("path", sa.Text(), nullable=False),
        _number("bytes", nullable=False),
        sa.PrimaryKeyConstraint("path", name=op.f("pk_doomed")),
    )
