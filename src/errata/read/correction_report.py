"""The report of one correction: which results it changed, and which revisions caused it.

At most MAX_REPORT_ROWS rows are read. Beyond that the report says so and names the command that lists all changes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from errata.archive.bucket_files import POS
from errata.archive.overlays import bucket_sources, read_overlays
from errata.archive.schemas import BATCH, LIVE, MASKS, REVISION, conform, feed_schema
from errata.archive.tables import sort_by_columns
from errata.catalog import buckets, commits, pins, streams
from errata.catalog.activity import CorrectionRecord
from errata.catalog.ledger import batch_origins
from errata.catalog.result_archives import archive_history
from errata.catalog.streams import StreamState
from errata.declare.site import Site
from errata.intake.encoding import JsonRow, json_rows
from errata.model.bucket import Bucket, Role
from errata.model.results import EVALUATION, OLD_VE, OP, VE, VS, ResultShape, old_column
from errata.model.time import HIGHEST
from errata.read.corrections import CorrectionSummary, find_correction

CHANGES_PER_PAGE = 200
"""Changes on a page of the report."""

MAX_REPORT_ROWS = 200_000
"""Change records that are read for one report at most, which bounds the time of a request."""

MAX_REPORT_REVISIONS = 100
"""Revisions of a stream in a report."""


@dataclass(frozen=True, slots=True)
class ResultChange:
    """A result that was inserted, deleted or replaced."""

    op: str
    """insert, delete or replace."""
    key: JsonRow
    begins: int
    ends: int | None
    """None if the end is open, and of a deleted result."""
    was: JsonRow
    now: JsonRow
    ended: int | None = None
    """The former end of a result that was replaced."""

    @property
    def end_changed(self) -> bool:
        """Whether a replaced result has another end."""
        return self.op == "replace" and self.ended != self.ends

    @property
    def differing_columns(self) -> list[str]:
        """The columns that differ, or all of an inserted or deleted result."""
        names = dict.fromkeys([*self.was, *self.now])
        return [name for name in names if not (self.was and self.now) or self.was.get(name) != self.now.get(name)]


@dataclass(frozen=True, slots=True)
class RevisedRow:
    """A row of a stream before and after a revision."""

    number: int
    batch: str
    file: str
    line: int
    was: JsonRow
    now: JsonRow


@dataclass(frozen=True, slots=True)
class CorrectionSource:
    """The revisions of one stream, relation or query that the correction took up."""

    name: str
    query: bool
    first: int
    """0 if they have no numbers, as late versions of a relation."""
    last: int
    revised: Sequence[RevisedRow] = ()
    more: bool = False
    """Whether there are more than `revised`, or they are no longer kept."""


@dataclass(frozen=True, slots=True)
class CorrectionReport:
    """One correction, and one page of its changes."""

    record: CorrectionRecord
    summary: CorrectionSummary
    timed: bool
    changes: Sequence[ResultChange]
    total: int
    """The number of change records; a result whose end moved may have two."""
    page: int
    pages: int
    unreadable_reason: str = ""
    """Why its changes cannot be listed; empty if they can."""
    command: str = ""
    """The command that lists all changes."""
    sources: Sequence[CorrectionSource] = ()
    readable: bool = True
    """Whether that command can list them: what vacuum has removed cannot be read."""


def correction_report(site: Site, query: str, commit_id: int, page: int = 1) -> CorrectionReport:
    """The changes that a commit made to a query's results, one page of them."""
    of, entry = find_correction(site, query, commit_id)
    # Pinned before any look-up, so that vacuum keeps what is read.
    with pins.hold_pin(site.catalog, max(commit_id - 1, 1), f"report of {query}"):
        shape = next(each.shape for each, _ in archive_history(site.catalog, query) if each.stream_id == of.stream_id)
        found = buckets.added_between(site.catalog, of.stream_id, [Role.FEED], after=commit_id - 1, up_to=commit_id)
        readable = commits.whole_since(site.catalog, query) < commit_id
        gone = _unreadable_reason(found, readable=readable)
        records, told = feed_schema(shape).empty_table(), list[CorrectionSource]()
        try:
            records = records if gone else _change_records(site, shape, of, found)
            told = list(_correction_sources(site, of, entry))
        except OSError as error:  # the API server may lack access to the warehouse
            gone = gone or f"The warehouse cannot be read from here: {error.strerror or error}."
    pages = max(1, -(-records.num_rows // CHANGES_PER_PAGE))
    page = min(max(1, page), pages)
    shown = _result_changes(records.slice((page - 1) * CHANGES_PER_PAGE, CHANGES_PER_PAGE), shape)
    command = f"errata changes {query} --since {commit_id - 1}"
    return CorrectionReport(of, entry, shape.timed, shown, records.num_rows, page, pages, gone, command, told, readable)


def _unreadable_reason(found: Sequence[Bucket], *, readable: bool) -> str:
    """Why the changes cannot be read."""
    rows = sum(each.rows for each in found)
    if not readable:
        return "Vacuum has removed the details: they lie behind the horizon."
    return f"These are too many for a page: {rows:,} rows would have to be read." if rows > MAX_REPORT_ROWS else ""


def _change_records(site: Site, shape: ResultShape, of: CorrectionRecord, found: Sequence[Bucket]) -> pa.Table:
    schema, number = feed_schema(shape), pc.field(EVALUATION) == of.evaluation.number
    read = [conform(each.read_where(site.warehouse, number), schema) for each in bucket_sources(site.catalog, found)]
    return sort_by_columns(pa.concat_tables([schema.empty_table(), *read]), [VS, *shape.key])


def _result_changes(records: pa.Table, shape: ResultShape) -> list[ResultChange]:
    shown = {each.name: each.shown for each in shape.columns}
    visible = [name for name in shape.payload if name in shape.visible]
    keys = json_rows(records.select(shape.key).rename_columns([shown[name] for name in shape.key]))
    was = json_rows(records.select([old_column(name) for name in visible]).rename_columns(visible))
    now = json_rows(records.select(visible))
    told = records.select([OP, VS, VE, OLD_VE]).to_pylist()
    return [
        ResultChange(
            each[OP],
            key,
            each[VS],
            _known_end(each[OLD_VE] if each[OP] == "delete" else each[VE]),
            {} if each[OP] == "insert" else before,
            {} if each[OP] == "delete" else after,
            _known_end(each[OLD_VE]) if each[OP] == "replace" else None,
        )
        for each, key, before, after in zip(told, keys, was, now, strict=True)
    ]


def _known_end(end: int | None) -> int | None:
    return None if end is None or end == HIGHEST else end


def _correction_sources(site: Site, of: CorrectionRecord, entry: CorrectionSummary) -> Iterator[CorrectionSource]:
    """The revisions of each source that the correction took up."""
    there = {each.stream.name: each for each in streams.stream_states(site.catalog, of.commit.commit_id)}
    for name, (first, last) in entry.revisions.items():
        if name in entry.queries or name not in there or not first:
            yield CorrectionSource(name, name in entry.queries, first, last)
        else:
            revised, more = _revised_rows(site, there[name], first, last)
            yield CorrectionSource(name, False, first, last, revised, more)


def _revised_rows(site: Site, of: StreamState, first: int, last: int) -> tuple[list[RevisedRow], bool]:
    """The rows of these revisions, and whether there are more than are returned."""
    ever = buckets.all_overlays(site.catalog, of.stream_id)
    found = [each for each in ever if (each.revision_last or 0) >= first and (each.revision_first or 0) <= last]
    if sum(each.rows for each in found) > MAX_REPORT_ROWS:
        return [], True
    rows = read_overlays(of.stream, site.warehouse, bucket_sources(site.catalog, found))
    number = rows[REVISION]
    rows = rows.filter(pc.and_(pc.greater_equal(number, first), pc.less_equal(number, last))).sort_by(REVISION)
    told = rows.slice(0, MAX_REPORT_REVISIONS)
    known = batch_origins(site.catalog, told[BATCH].to_pylist())
    names = of.stream.names
    was = json_rows(told.select([old_column(name) for name in names]).rename_columns(names))
    now = json_rows(told.select(names))
    facts: list[Mapping[str, int]] = told.select([REVISION, BATCH, POS, MASKS, LIVE]).to_pylist()
    revised = [
        RevisedRow(
            each[REVISION],
            known[each[BATCH]].batch_id,
            *known[each[BATCH]].line_of(each[POS]),
            before if each[MASKS] else {},
            after if each[LIVE] else {},
        )
        for each, before, after in zip(facts, was, now, strict=True)
    ]
    return revised, rows.num_rows > MAX_REPORT_REVISIONS
