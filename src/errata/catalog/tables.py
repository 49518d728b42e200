"""The catalog's tables. Migrations under sql/ make them; a test holds the two together.

Spans of visibility are half-open on the axis of commits: a row is visible from added_in until removed_in.
"""

from __future__ import annotations

from sqlalchemy import (
    JSON,
    BigInteger,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    SmallInteger,
    String,
    Table,
    Text,
    UniqueConstraint,
    text,
)

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
        "pk": "pk_%(table_name)s",
    }
)

# SQLite numbers rows only in a column whose type is exactly INTEGER.
Identity = BigInteger().with_variant(Integer, "sqlite")

head = Table(
    "head",
    metadata,
    Column("id", SmallInteger, primary_key=True),
    Column("commit_id", BigInteger, nullable=False),
    Column("at", BigInteger, nullable=False),
)
"""One row, which every commit locks: the number and the time of the newest commit."""

commits = Table(
    "commits",
    metadata,
    Column("commit_id", BigInteger, primary_key=True, autoincrement=False),
    Column("at", BigInteger, nullable=False),
    Column("flow", String(40), nullable=False),
    Column("stream_id", BigInteger),
    Column("batch_id", String(200)),
    Column("user_name", String(200), nullable=False),
    Column("host", String(200), nullable=False),
    Column("dag_id", String(250), nullable=False),
    Column("run_id", String(250), nullable=False),
    Column("task_id", String(250), nullable=False),
    Column("try_number", Integer),
    Column("spark_app", String(200), nullable=False),
    Column("summary", JSON, nullable=False),
    Index(None, "at"),
)

streams = Table(
    "streams",
    metadata,
    Column("stream_id", Identity, primary_key=True),
    Column("name", String(63), nullable=False),
    Column("added_in", BigInteger, nullable=False),
    Column("removed_in", BigInteger),
    Column("stable", BigInteger),
    Column("vs_max", BigInteger),
    Column("rows", BigInteger, nullable=False),
    Column("inline_bytes", BigInteger, nullable=False),
    Column("revisions", BigInteger, nullable=False),
    Column("applied", BigInteger, nullable=False),
    Column("aged_to", BigInteger),
    Column("folded", BigInteger, nullable=False),
    Column("changed_in", BigInteger, nullable=False),
    Column("vacuumed", BigInteger),
    Column("query_id", BigInteger),
    Index(
        "uq_streams_live_name",
        "name",
        unique=True,
        postgresql_where=text("removed_in IS NULL"),
        sqlite_where=text("removed_in IS NULL"),
    ),
)
"""A stream and its state now. Every writer locks the row; changed_in is the last commit that changed it. Revisions up
to `applied` are settled, and those up to `folded` can no longer be told apart; rows before `aged_to` are aged out.
Vacuum may have removed what only commits before `vacuumed` need, which are never readable again, whatever the horizon
is later. A row with a query_id is not a declared stream but the archive of the query's results."""

declarations = Table(
    "declarations",
    metadata,
    Column("stream_id", BigInteger, ForeignKey("streams.stream_id"), primary_key=True),
    Column("added_in", BigInteger, primary_key=True, autoincrement=False),
    Column("declaration", JSON, nullable=False),
)
"""All declarations of a stream; the one in force at a commit is the last one up to it."""

queries = Table(
    "queries",
    metadata,
    Column("query_id", Identity, primary_key=True),
    Column("name", String(63), nullable=False),
    Column("added_in", BigInteger, nullable=False),
    Column("removed_in", BigInteger),
    Column("sql", Text, nullable=False),
    Column("options", JSON, nullable=False),
    Column("columns", JSON, nullable=False),
    Column("key", JSON, nullable=False),
    Column("reads", JSON, nullable=False),
    Column("pattern", String(8), nullable=False),
    Column("on_revision", String(8), nullable=False),
    Column("fingerprint", String(64), nullable=False),
    Column("digest", String(64), nullable=False),
    Index(
        "uq_queries_live_name",
        "name",
        unique=True,
        postgresql_where=text("removed_in IS NULL"),
        sqlite_where=text("removed_in IS NULL"),
    ),
)
"""Every form that a query has had, and what its plan tells of its results. `options` are declared, `on_revision` is in
force. Equal fingerprints: the texts mean the same over the columns that they read; equal digests: neither the text nor
what is declared of its inputs has changed, so that it need not be read again."""

positions = Table(
    "positions",
    metadata,
    Column("stream_id", BigInteger, ForeignKey("streams.stream_id"), primary_key=True),
    Column("commit_id", BigInteger, primary_key=True, autoincrement=False),
    Column("stable", BigInteger),
    Column("vs_max", BigInteger),
    Column("rows", BigInteger, nullable=False),
    Column("applied", BigInteger, nullable=False),
    Column("aged_to", BigInteger),
    Column("folded", BigInteger, nullable=False),
)
"""Where a stream stood after each commit that moved it: what a reader of an old commit needs. Behind the horizon vacuum
forgets all but those that tell when revisions were applied and rows aged out."""

batches = Table(
    "batches",
    metadata,
    Column("batch_no", Identity, primary_key=True),
    Column("stream_id", BigInteger, ForeignKey("streams.stream_id"), nullable=False),
    Column("batch_id", String(200), nullable=False),
    Column("content_hash", String(64), nullable=False),
    Column("commit_id", BigInteger),
    Column("counts", JSON, nullable=False),
    Column("undoes", BigInteger),
    Column("default_op", String(8)),
    Column("again_of", BigInteger),
    UniqueConstraint("stream_id", "batch_id"),
)
"""The ledger: a batch that is in it has been taken in, once and whole. Its rows that did not say what they do did
`default_op`; NULL: they were inserts. `again_of` is the batch of which this is another take, under an id of its own."""

batch_files = Table(
    "batch_files",
    metadata,
    Column("batch_no", BigInteger, ForeignKey("batches.batch_no"), primary_key=True),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("stream_id", BigInteger, nullable=False),
    Column("name", Text, nullable=False),
    Column("sha256", String(64), nullable=False),
    Column("bytes", BigInteger, nullable=False),
    Column("header", Text),
    Column("changed", BigInteger),
    Column("feed", String(63)),
    Index(None, "stream_id", "sha256"),
)
"""The files of a batch; of CSV also the first line, without which no other can be read. `changed` is the modification
time, NULL in old rows. `feed` is the feed that delivered it, of a stream with feeds."""

batch_splits = Table(
    "batch_splits",
    metadata,
    Column("batch_no", BigInteger, ForeignKey("batches.batch_no"), primary_key=True),
    Column("split", Integer, primary_key=True, autoincrement=False),
    Column("file_number", Integer, nullable=False),
    Column("first_line", BigInteger, nullable=False),
    Column("lines", BigInteger, nullable=False),
)
"""Maps a row's stored position (split and ordinal) to its file and line."""

buckets = Table(
    "buckets",
    metadata,
    Column("bucket_id", Identity, primary_key=True),
    Column("stream_id", BigInteger, ForeignKey("streams.stream_id"), nullable=False),
    Column("role", String(12), nullable=False),
    Column("layout", String(12), nullable=False),
    Column("path", Text),
    Column("rows", BigInteger, nullable=False),
    Column("bytes", BigInteger, nullable=False),
    Column("vs_min", BigInteger, nullable=False),
    Column("vs_max", BigInteger, nullable=False),
    Column("ve_min", BigInteger),
    Column("ve_max", BigInteger),
    Column("span_class", SmallInteger, nullable=False),
    Column("group_low", Text),
    Column("group_high", Text),
    Column("group_members", Text),
    Column("sampling_rate", Float, nullable=False),
    Column("hash_low", BigInteger, nullable=False),
    Column("hash_high", BigInteger, nullable=False),
    Column("checksum", String(80), nullable=False),
    Column("batch_no", BigInteger),
    Column("revision_first", BigInteger),
    Column("revision_last", BigInteger),
    Column("mask_min", BigInteger),
    Column("mask_max", BigInteger),
    Column("content_min", BigInteger),
    Column("content_max", BigInteger),
    Column("floor", BigInteger, nullable=False),
    Column("folded", BigInteger, nullable=False),
    Column("masked", BigInteger, nullable=False),
    Column("added_in", BigInteger, nullable=False),
    Column("removed_in", BigInteger),
    Column("original", BigInteger),
    Index(None, "stream_id", "role", "span_class", "vs_min"),
    Index(None, "original"),
    Index("ix_buckets_ends", "stream_id", "role", "ve_max"),
    Index(None, "added_in"),
    Index(None, "path"),
)
"""The bucket index. span_class is the bit length of vs_max - vs_min. The vs range of an overlay covers its mask range
and its content range. No revision up to `floor` concerns the rows of a base bucket; those up to `folded` may be
worked into them; `masked` of its rows are superseded now. Its rows have a sampling hash from hash_low on and below
hash_high, the share `sampling_rate` of all; `original` is the base bucket of a copy or a summary."""

bucket_data = Table(
    "bucket_data",
    metadata,
    Column("bucket_id", BigInteger, ForeignKey("buckets.bucket_id"), primary_key=True, autoincrement=False),
    Column("data", LargeBinary, nullable=False),
)
"""The rows of inline buckets, as Arrow streams; a table of its own keeps the index narrow."""

quarantine = Table(
    "quarantine",
    metadata,
    Column("quarantine_id", Identity, primary_key=True),
    Column("stream_id", BigInteger, ForeignKey("streams.stream_id"), nullable=False),
    Column("batch_no", BigInteger, ForeignKey("batches.batch_no"), nullable=False),
    Column("file", Text, nullable=False),
    Column("line", BigInteger, nullable=False),
    Column("text", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("form", String(8), nullable=False),
    Column("revision", BigInteger),
    Column("state", String(8), nullable=False),
    Column("settled_in", BigInteger),
    Column("file_number", Integer),
    Index(None, "stream_id", "batch_no"),
)
"""Rows and revisions that did not go in, as text of a form; held until a person has them retried or dropped. `file` and
`line` are where it first stood; `file_number` is the file of the batch that brought it, whose header goes with it."""

held_files = Table(
    "held_files",
    metadata,
    Column("stream_id", BigInteger, ForeignKey("streams.stream_id"), primary_key=True),
    Column("name", Text, primary_key=True),
    Column("bytes", BigInteger, nullable=False),
    Column("changed", BigInteger, nullable=False),
    Column("reason", Text, nullable=False),
    Column("how", Text),
    Column("at", BigInteger, nullable=False),
    Column("state", String(8), nullable=False),
    Column("settled_in", BigInteger),
)
"""Landed files that cannot be taken in, where they lie. One is not tried again while its size and time are these."""

consumers = Table(
    "consumers",
    metadata,
    Column("stream_id", BigInteger, ForeignKey("streams.stream_id"), primary_key=True),
    Column("name", String(200), primary_key=True),
    Column("revision", BigInteger, nullable=False),
)
"""Consumers of revisions one by one, and the last one that each has taken: later ones are not folded."""

doomed = Table(
    "doomed",
    metadata,
    Column("path", Text, primary_key=True),
    Column("bytes", BigInteger, nullable=False),
)
"""Files whose index rows are deleted and that vacuum has still to remove, also after a kill."""

pins = Table(
    "pins",
    metadata,
    Column("pin_id", String(32), primary_key=True),
    Column("commit_id", BigInteger, nullable=False),
    Column("holder", String(200), nullable=False),
    Column("expires_at", BigInteger, nullable=False),
    Index(None, "expires_at"),
)
"""Readers at work: nothing that a pinned commit sees is removed before the pin is dropped or expires."""

shapes = Table(
    "shapes",
    metadata,
    Column("stream_id", BigInteger, ForeignKey("streams.stream_id"), primary_key=True),
    Column("shape", JSON, nullable=False),
)
"""The shape of the results in an archive of a query."""

evaluations = Table(
    "evaluations",
    metadata,
    Column("stream_id", BigInteger, ForeignKey("streams.stream_id"), primary_key=True),
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    Column("commit_id", BigInteger, nullable=False),
    Column("data_commit", BigInteger, nullable=False),
    Column("since", BigInteger, nullable=False),
    Column("until", BigInteger, nullable=False),
    Column("begins", BigInteger, nullable=False),
    Column("revisions", JSON, nullable=False),
    Column("cause", JSON, nullable=False),
    Column("measures", JSON, nullable=False),
    Column("inputs", JSON),
    Column("swept", JSON),
    Column("refused", BigInteger),
    Index(None, "stream_id", "commit_id"),
    Index(
        "ix_evaluations_refused",
        "stream_id",
        postgresql_where=text("refused IS NOT NULL"),
        sqlite_where=text("refused IS NOT NULL"),
    ),
)
"""How far each query's results have been worked out, from which state of the streams, and what it took. The last one is
the query's position. Vacuum forgets those behind the horizon, but never the first. `swept` is of those that corrected
what had been published, `refused` how many revisions they could not take up."""

faults = Table(
    "faults",
    metadata,
    Column("query_id", BigInteger, primary_key=True, autoincrement=False),
    Column("data_commit", BigInteger, nullable=False),
    Column("since", BigInteger, nullable=False),
    Column("at", BigInteger, nullable=False),
    Column("fault", JSON, nullable=False),
)
"""Queries that have stopped, because an expression cannot be computed for a row."""

told_faults = Table(
    "told_faults",
    metadata,
    Column("fault_id", String(32), primary_key=True),
    Column("query_id", BigInteger, nullable=False),
    Column("query", String(63), nullable=False),
    Column("fault", JSON, nullable=False),
    Column("since", BigInteger, nullable=False),
    Column("told", BigInteger),
)
"""Faults of which whoever asked for it is told: once when one begins, at `told`, and once when it is over; then its row
goes. The fault's id is there before it is told, so that who is told twice, because of a kill, sees that."""

leases = Table(
    "leases",
    metadata,
    Column("name", String(200), primary_key=True),
    Column("holder", String(200), nullable=False),
    Column("fence", BigInteger, nullable=False),
    Column("expires_at", BigInteger, nullable=False),
    Column("owner", String(800), nullable=False, server_default=""),
    Column("since", BigInteger, nullable=False, server_default="0"),
    Column("process", JSON, nullable=False, server_default="{}"),
)
"""Who is at work on what, so that nobody does the same work at the same time. Each new holder has a greater fence. The
owner is the task for which it is held, as `Cause.owner` tells it; `process` tells which process holds it."""

replays = Table(
    "replays",
    metadata,
    Column("replay_id", Identity, primary_key=True),
    Column("stream_id", BigInteger, nullable=False),
    Column("since", BigInteger, nullable=False),
    Column("until", BigInteger, nullable=False),
    Column("done_to", BigInteger, nullable=False),
    Column("results", BigInteger, nullable=False),
    Column("changed", BigInteger, nullable=False),
    Column("begun", BigInteger, nullable=False),
    Column("ended", BigInteger),
    Index(None, "stream_id"),
)
"""Ranges of the results in an archive that persons have had worked out again, [since, until), part by part up to
`done_to`: one that was killed is gone on with. `results` were compared, and `changed` of them came out different."""
