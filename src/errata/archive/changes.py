"""What has changed in a query's results, read from their archive: the records of its feed, and the rows that tell by
themselves that they were added.

An evaluation's own records are in buckets that its commit added. Buckets into which it has merged others' hold those,
too; by the number of the evaluation that every record bears they are told apart.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession

from errata.archive.masked_results import (
    frame_without_masked,
    masks_frame,
)
from errata.archive.result_rows import feed_schema, result_schema
from errata.archive.tasks import by_access, files_frame, rows_in
from errata.archive.warehouse import Warehouse
from errata.catalog.open import Catalog
from errata.catalog.published import Published
from errata.engine.frames import broadcast, joined, selected
from errata.engine.near import is_near
from errata.engine.plans.rows import quoted
from errata.engine.types import arrow_ddl
from errata.engine.values import as_frame
from errata.model.bucket import Bucket
from errata.model.results import OLD_VE, OP, RUN, VE, VS, Shape, old

ENDED = 0
"""In the place of an evaluation's number: the archive itself has ended."""

_FILE, _OF, _REPLACED = "_file", "_of", "_replaced_"


class How(Enum):
    """How the rows of a bucket are change records."""

    FEED = "feed"
    """They are such."""
    ADDED = "added"
    """Each is a result that came."""
    GONE = "gone"
    """Each is a result that went, because the archive ended."""


@dataclass(frozen=True, slots=True)
class Part:
    """A bucket, and which of its rows tell something."""

    bucket: Bucket
    how: How
    run: int | None = None
    """Only the rows of this evaluation; None: all."""


FORGOTTEN = "forgotten"
"""The type of a cause that lies behind the horizon."""


@dataclass(frozen=True, slots=True)
class Told:
    """By which commit results have changed, and why."""

    commit_id: int
    type: str
    id: str


@dataclass(frozen=True, slots=True)
class Stretch:
    """Changes of one archive that follow each other."""

    of: Published
    parts: Sequence[Part]
    told: Mapping[int, Told]
    """For each number that records bear; those of which nothing is known any more are told with the next one, but for
    the cause."""
    masks: Sequence[Bucket] = ()
    """What of the parts is not told. Of those that tell what an evaluation has added nothing is held back: what takes
    it back later is told later."""

    @property
    def opened(self) -> list[Bucket]:
        """All that is read."""
        return [*(each.bucket for each in self.parts), *self.masks]


def records_frame(
    session: SparkSession, catalog: Catalog, warehouse: Warehouse, stretch: Stretch, only: str = "true"
) -> DataFrame:
    """The change records in the order of evaluation, vs and key. `only`: those for which this is true, which is SQL
    about columns of the key and about vs."""
    shape = stretch.of.shape
    opened = {how: _frame(session, catalog, warehouse, stretch, how).where(only) for how in How if _parts(stretch, how)}
    if stretch.masks:
        masks = masks_frame(session, catalog, warehouse, shape, stretch.masks)
        standing = [how for how in opened if how is not How.FEED]
        opened |= {how: frame_without_masked(opened[how], masks, shape) for how in standing}
    feed, added, gone = (opened.get(how) for how in How)
    frames = [] if feed is None else [feed]
    if added is not None:
        rows = added if feed is None else _not_replaced(added, feed, shape)
        frames.append(selected(rows, "*", f"'insert' AS {OP}"))
    if gone is not None:
        frames.append(_deleted(gone, shape))
    names = feed_schema(shape).names
    whole = session.createDataFrame(feed_schema(shape).empty_table(), arrow_ddl(feed_schema(shape)))
    for each in frames:
        whole = whole.unionByName(each, allowMissingColumns=True)
    return whole.select(*map(quoted, names)).orderBy(*map(quoted, _identity(shape)))


def _parts(stretch: Stretch, how: How) -> list[Part]:
    return [each for each in stretch.parts if each.how is how]


def _identity(shape: Shape) -> list[str]:
    return [RUN, VS, *shape.key]


def _read(catalog: Catalog, warehouse: Warehouse, schema: pa.Schema, parts: Sequence[Part]) -> pa.Table:
    tables = [schema.empty_table()]
    for part in parts:
        rows = rows_in(catalog, warehouse, schema, [part.bucket])
        tables.append(rows if part.run is None else rows.filter(pc.equal(rows[RUN], part.run)))
    return pa.concat_tables(tables)


def _frame(session: SparkSession, catalog: Catalog, warehouse: Warehouse, stretch: Stretch, how: How) -> DataFrame:
    schema = (feed_schema if how is How.FEED else result_schema)(stretch.of.shape)
    parts = _parts(stretch, how)
    by_name, _ = by_access(session, warehouse, [each.bucket for each in parts])
    named = {each.bucket_id for each in by_name}
    files = [each for each in parts if each.bucket.bucket_id in named]
    if len({each.run for each in files}) > 1 and is_near(session):
        files = []  # it does not tell which file a row is of
    here = [each for each in parts if each not in files]
    frame = as_frame(session, _read(catalog, warehouse, schema, here), arrow_ddl(schema))
    opened = files_frame(session, warehouse, [each.bucket for each in files], arrow_ddl(schema))
    return frame if opened is None else _of_their_runs(session, opened, files).unionByName(frame)


def _of_their_runs(session: SparkSession, opened: DataFrame, files: Sequence[Part]) -> DataFrame:
    """The rows of files that are of the evaluation that each is asked for."""
    runs = {each.run for each in files}
    if runs == {None}:
        return opened
    if len(runs) == 1:
        return opened.where(f"{RUN} = {runs.pop()}L")
    names = [(each.bucket.path or "").rpartition("/")[2] for each in files]
    known = pa.table({_FILE: pa.array(names), _OF: pa.array([each.run for each in files], pa.int64())})
    asked = broadcast(as_frame(session, known, arrow_ddl(known.schema)))
    named = selected(opened, "*", "_metadata.file_name AS _name")
    return joined(named, asked, f"_name = {_FILE} AND {RUN} = {_OF}", "left_semi").drop("_name")


def _not_replaced(added: DataFrame, feed: DataFrame, shape: Shape) -> DataFrame:
    names = _identity(shape)
    again = feed.where(f"{OP} = 'replace'")
    again = selected(again, *(f"{quoted(name)} AS {quoted(_REPLACED + name)}" for name in names))
    same = " AND ".join(f"{quoted(name)} <=> {quoted(_REPLACED + name)}" for name in names)
    return joined(added, again, same, "left_anti")


def _deleted(gone: DataFrame, shape: Shape) -> DataFrame:
    before = (f"{quoted(name)} AS {quoted(old(name))}" for name in shape.payload)
    ends = (f"{VS} AS {VE}", f"{VE} AS {OLD_VE}", f"{ENDED}L AS {RUN}")
    return selected(gone, f"'delete' AS {OP}", *map(quoted, [*shape.key, VS]), *ends, *before)
