"""The changelog of a query in ranges of commits: which buckets hold the records of each, told from the catalog.

Consecutive evaluations of one archive are a range, up to a number of records. Where an archive replaced another, the
records lead from the results of the one to those of the other, unless their keys differ: then all results of the
former are deleted. A range is read as a frame (`result_changes.changes_frame`) or, where it is small, as a table.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from errata.archive.bucket_frames import read_buckets
from errata.archive.result_changes import ARCHIVE_ENDED, ChangeCause, ChangeRange, RecordKind, RecordPart
from errata.archive.results import (
    PUBLISHED_ROLES,
    buckets_by_start,
    drop_masked,
    match_results,
    read_masks,
    split_masks,
)
from errata.archive.schemas import conform, feed_schema, result_schema
from errata.archive.tables import sort_by_columns
from errata.catalog import buckets
from errata.catalog.database import Catalog
from errata.catalog.result_archives import ResultArchive, archive_history, evaluations_of
from errata.declare.warehouse import Warehouse
from errata.model.bucket import Bucket, Role
from errata.model.commit import Evaluation
from errata.model.results import EVALUATION, OLD_VE, OP, VE, VS, ResultShape, old_column

_REPLACING_CAUSES = ("query", "stream")
"""Types of causes for which the new results replace those of the archive before."""

CHUNK_RECORDS = 50_000
"""Records in one range; an evaluation with more is a range of its own."""


def changelog_segments(
    catalog: Catalog, name: str, after: int, up_to: int, *, restated: bool, most: int | None = CHUNK_RECORDS
) -> Iterator[ChangeRange]:
    """The changes by commits after one and up to another; with `restated`, preceded by the results as of the first.
    Evaluations are grouped up to `most` records."""
    archives = [each for each in archive_history(catalog, name) if each[0].added_in <= up_to]
    for place, (of, ended) in enumerate(archives):
        if ended is not None and ended <= after:
            continue
        if restated and of.added_in <= after:
            yield _initial_segment(catalog, of, after)
        yield from _evaluation_segments(catalog, of, after, up_to, most)
        if ended is not None and ended <= up_to and not _has_transition(catalog, archives[place + 1 :], ended):
            yield _final_segment(catalog, of, ended)


def _initial_segment(catalog: Catalog, of: ResultArchive, commit_id: int) -> ChangeRange:
    """The results as of a commit, as inserts."""
    told = {each.number: _commit_cause(each) for each in evaluations_of(catalog, of.stream_id, up_to=commit_id)}
    results, masks = split_masks(buckets_by_start(catalog, of, commit_id))
    return ChangeRange(of, [RecordPart(each, RecordKind.ADDED) for each in results], told, masks)


def _final_segment(catalog: Catalog, of: ResultArchive, ended: int) -> ChangeRange:
    """The results at the end of an archive, as deletes."""
    told = {ARCHIVE_ENDED: ChangeCause(ended, "query", of.name)}
    results, masks = split_masks(buckets_by_start(catalog, of, ended - 1))
    return ChangeRange(of, [RecordPart(each, RecordKind.GONE) for each in results], told, masks)


def _has_transition(catalog: Catalog, later: Sequence[tuple[ResultArchive, int | None]], ended: int) -> bool:
    """Whether the archive that replaced an ended one records the changes from the one to the other."""
    if not later or later[0][0].added_in != ended:
        return False
    first = evaluations_of(catalog, later[0][0].stream_id, up_to=ended)[0]
    return bool(first.cause.get("type") in _REPLACING_CAUSES and _has_full_changelog(first))


def _has_full_changelog(evaluation: Evaluation) -> bool:
    """Whether the changelog has every change; otherwise added rows are changes by themselves."""
    return bool(evaluation.cause.get("feed", "rows") == "whole")


def _evaluation_segments(
    catalog: Catalog, of: ResultArchive, after: int, up_to: int, most: int | None
) -> Iterator[ChangeRange]:
    by_commit: Mapping[int, list[Bucket]] = defaultdict(list)
    for bucket in buckets.added_between(catalog, of.stream_id, (*PUBLISHED_ROLES, Role.FEED), after=after, up_to=up_to):
        by_commit[bucket.added_in].append(bucket)
    parts: list[RecordPart] = []
    told: dict[int, ChangeCause] = {}
    rows = 0
    for each in evaluations_of(catalog, of.stream_id, after=after, up_to=up_to):
        more = _evaluation_parts(each, by_commit[each.commit_id])
        size = sum(part.bucket.rows for part in more)
        if parts and most is not None and rows + size > most:
            yield ChangeRange(of, parts, told)
            parts, told, rows = [], {}, 0
        if more:
            parts, rows = [*parts, *more], rows + size
            told[each.number] = _commit_cause(each)
    if parts:
        yield ChangeRange(of, parts, told)


def _evaluation_parts(evaluation: Evaluation, found: Sequence[Bucket]) -> list[RecordPart]:
    """The parts of an evaluation's buckets that are changes by it."""
    number = evaluation.number
    parts = [RecordPart(each, RecordKind.FEED, number) for each in found if each.role is Role.FEED]
    if not _has_full_changelog(evaluation):
        # Rows before its instants were merged from other buckets, and are not new.
        own = [each for each in found if each.role is not Role.FEED and each.vs_max >= evaluation.step.since]
        parts += [RecordPart(each, RecordKind.ADDED, number) for each in own]
    return parts


def _commit_cause(evaluation: Evaluation) -> ChangeCause:
    cause = evaluation.cause
    return ChangeCause(evaluation.commit_id, str(cause.get("type", "")), str(cause.get("id", "")))


# A range read in this process.


def changes_table(catalog: Catalog, warehouse: Warehouse, of: ChangeRange) -> pa.Table:
    """The change records of a range by evaluation, beginning and key: what `changes_frame` gives, without a session."""
    shape, schema = of.of.shape, feed_schema(of.of.shape)
    feed = _read_parts(catalog, warehouse, schema, of, RecordKind.FEED)
    added = _read_parts(catalog, warehouse, result_schema(shape), of, RecordKind.ADDED)
    gone = _read_parts(catalog, warehouse, result_schema(shape), of, RecordKind.GONE)
    if of.masks:
        masks = read_masks(catalog, warehouse, shape, of.masks)
        added, gone = drop_masked(added, masks, shape), drop_masked(gone, masks, shape)
    again = feed.filter(pc.equal(feed[OP], "replace"))
    kept = np.ones(added.num_rows, np.bool_)
    kept[match_results(added, again, shape, [EVALUATION])[0]] = False
    added = added.filter(pa.array(kept))
    inserted = conform(added.append_column(OP, pa.repeat("insert", added.num_rows)), schema)
    whole = pa.concat_tables([feed, inserted, _deletions(gone, shape)])
    return sort_by_columns(whole, [EVALUATION, VS, *shape.key])


def _read_parts(
    catalog: Catalog, warehouse: Warehouse, schema: pa.Schema, of: ChangeRange, kind: RecordKind
) -> pa.Table:
    found = [schema.empty_table()]
    for part in of.parts:
        if part.kind is kind:
            rows = conform(read_buckets(catalog, warehouse, schema, [part.bucket]), schema)
            found.append(rows if part.evaluation is None else rows.filter(pc.equal(rows[EVALUATION], part.evaluation)))
    return pa.concat_tables(found)


def _deletions(gone: pa.Table, shape: ResultShape) -> pa.Table:
    """Results at the end of an archive, as records that delete them."""
    columns = {name: gone[name] for name in (*shape.key, VS)}
    columns |= {old_column(name): gone[name] for name in shape.payload}
    columns |= {OP: pa.repeat("delete", gone.num_rows), VE: gone[VS], OLD_VE: gone[VE]}
    columns[EVALUATION] = pa.repeat(pa.scalar(ARCHIVE_ENDED, pa.int64()), gone.num_rows)
    return conform(pa.table(columns), feed_schema(shape))
