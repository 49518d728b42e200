"""The changelog of a query, read from the archive of its results.

A result that was only added needs no change record: its row in the published buckets is the record. Replacements and
deletions are in the buckets of the change feed. When an archive has ended, all its results count as deleted.

Records of an evaluation are in buckets that its commit added. Merged buckets hold records of several evaluations, which
are told apart by the evaluation's number that every record bears.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession

from errata.archive.bucket_frames import files_frame, read_buckets, split_by_access
from errata.archive.results import drop_masked_frame, masks_frame
from errata.archive.schemas import feed_schema, result_schema
from errata.catalog.database import Catalog
from errata.catalog.result_archives import ResultArchive
from errata.declare.warehouse import Warehouse
from errata.engine.frames import arrow_ddl, broadcast_frame, frame_of_rows, join_sql, select_sql
from errata.engine.near import is_near
from errata.engine.plans.node_rows import quote_name
from errata.model.bucket import Bucket
from errata.model.results import EVALUATION, OLD_VE, OP, VE, VS, ResultShape, old_column

ARCHIVE_ENDED = 0
"""Stands for an evaluation's number in records of the end of the archive itself."""

_FILE, _OF, _REPLACED = "_file", "_of", "_replaced_"


class RecordKind(Enum):
    """How the rows of a bucket are change records."""

    FEED = "feed"
    """They are change records."""
    ADDED = "added"
    """Each is a result that was added."""
    GONE = "gone"
    """Each is a result that was deleted because the archive ended."""


@dataclass(frozen=True, slots=True)
class RecordPart:
    """A bucket, and which of its rows are change records."""

    bucket: Bucket
    kind: RecordKind
    evaluation: int | None = None
    """Only the rows of this evaluation; None: all."""


FORGOTTEN_CAUSE = "forgotten"
"""The type of a cause that lies behind the horizon."""


@dataclass(frozen=True, slots=True)
class ChangeCause:
    """By which commit results have changed, and why."""

    commit_id: int
    type: str
    id: str


@dataclass(frozen=True, slots=True)
class ChangeRange:
    """Consecutive changes of one archive."""

    of: ResultArchive
    parts: Sequence[RecordPart]
    causes: Mapping[int, ChangeCause]
    """By evaluation. Records of an evaluation that the catalog has forgotten are given the next one's, without its
    cause."""
    masks: Sequence[Bucket] = ()
    """Masks of results that are left out. Results that an evaluation of the range added are not masked: a later record
    takes them back."""

    @property
    def buckets(self) -> list[Bucket]:
        """All buckets that are read."""
        return [*(each.bucket for each in self.parts), *self.masks]


def changes_frame(
    session: SparkSession, catalog: Catalog, warehouse: Warehouse, stretch: ChangeRange, only: str = "true"
) -> DataFrame:
    """The change records by evaluation, beginning and key. `only`: a condition in SQL on key columns and the
    beginning."""
    shape = stretch.of.shape
    opened = {
        how: _records_frame(session, catalog, warehouse, stretch, how).where(only)
        for how in RecordKind
        if _parts_of_kind(stretch, how)
    }
    if stretch.masks:
        masks = masks_frame(session, catalog, warehouse, shape, stretch.masks)
        standing = [how for how in opened if how is not RecordKind.FEED]
        opened |= {how: drop_masked_frame(opened[how], masks, shape) for how in standing}
    feed, added, gone = (opened.get(how) for how in RecordKind)
    frames = [] if feed is None else [feed]
    if added is not None:
        rows = added if feed is None else _drop_replaced(added, feed, shape)
        frames.append(select_sql(rows, "*", f"'insert' AS {OP}"))
    if gone is not None:
        frames.append(_as_deletions(gone, shape))
    names = feed_schema(shape).names
    whole = session.createDataFrame(feed_schema(shape).empty_table(), arrow_ddl(feed_schema(shape)))
    for each in frames:
        whole = whole.unionByName(each, allowMissingColumns=True)
    return whole.select(*map(quote_name, names)).orderBy(*map(quote_name, _record_key(shape)))


def _parts_of_kind(stretch: ChangeRange, how: RecordKind) -> list[RecordPart]:
    return [each for each in stretch.parts if each.kind is how]


def _record_key(shape: ResultShape) -> list[str]:
    return [EVALUATION, VS, *shape.key]


def _read_records(catalog: Catalog, warehouse: Warehouse, schema: pa.Schema, parts: Sequence[RecordPart]) -> pa.Table:
    tables = [schema.empty_table()]
    for part in parts:
        rows = read_buckets(catalog, warehouse, schema, [part.bucket])
        tables.append(rows if part.evaluation is None else rows.filter(pc.equal(rows[EVALUATION], part.evaluation)))
    return pa.concat_tables(tables)


def _records_frame(
    session: SparkSession, catalog: Catalog, warehouse: Warehouse, stretch: ChangeRange, how: RecordKind
) -> DataFrame:
    schema = (feed_schema if how is RecordKind.FEED else result_schema)(stretch.of.shape)
    parts = _parts_of_kind(stretch, how)
    by_name, _ = split_by_access(session, warehouse, [each.bucket for each in parts])
    named = {each.bucket_id for each in by_name}
    files = [each for each in parts if each.bucket.bucket_id in named]
    if len({each.evaluation for each in files}) > 1 and is_near(session):
        files = []  # it does not tell which file a row is of
    here = [each for each in parts if each not in files]
    frame = frame_of_rows(session, _read_records(catalog, warehouse, schema, here), arrow_ddl(schema))
    opened = files_frame(session, warehouse, [each.bucket for each in files], arrow_ddl(schema))
    return frame if opened is None else _filter_runs(session, opened, files).unionByName(frame)


def _filter_runs(session: SparkSession, opened: DataFrame, files: Sequence[RecordPart]) -> DataFrame:
    """The rows of files that are of the evaluation that is wanted of each file."""
    runs = {each.evaluation for each in files}
    if runs == {None}:
        return opened
    if len(runs) == 1:
        return opened.where(f"{EVALUATION} = {runs.pop()}L")
    names = [(each.bucket.path or "").rpartition("/")[2] for each in files]
    known = pa.table({_FILE: pa.array(names), _OF: pa.array([each.evaluation for each in files], pa.int64())})
    asked = broadcast_frame(frame_of_rows(session, known, arrow_ddl(known.schema)))
    named = select_sql(opened, "*", "_metadata.file_name AS _name")
    return join_sql(named, asked, f"_name = {_FILE} AND {EVALUATION} = {_OF}", "left_semi").drop("_name")


def _drop_replaced(added: DataFrame, feed: DataFrame, shape: ResultShape) -> DataFrame:
    names = _record_key(shape)
    again = feed.where(f"{OP} = 'replace'")
    again = select_sql(again, *(f"{quote_name(name)} AS {quote_name(_REPLACED + name)}" for name in names))
    same = " AND ".join(f"{quote_name(name)} <=> {quote_name(_REPLACED + name)}" for name in names)
    return join_sql(added, again, same, "left_anti")


def _as_deletions(gone: DataFrame, shape: ResultShape) -> DataFrame:
    before = (f"{quote_name(name)} AS {quote_name(old_column(name))}" for name in shape.payload)
    ends = (f"{VS} AS {VE}", f"{VE} AS {OLD_VE}", f"{ARCHIVE_ENDED}L AS {EVALUATION}")
    return select_sql(gone, f"'delete' AS {OP}", *map(quote_name, [*shape.key, VS]), *ends, *before)
