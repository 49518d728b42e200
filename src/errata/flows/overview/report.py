"""What one correction has changed, result by result, and what had been said anew. What is read is bounded: where more
would have to be read, it says so, and the command line tells the rest."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from errata.archive.masks import read_overlays, sources
from errata.archive.order import by_columns
from errata.archive.overlay import BATCH, LIVE, MASKS, REVISION
from errata.archive.result_rows import feed_schema
from errata.archive.wire import conformed, old_column
from errata.archive.written import POS
from errata.catalog import buckets, commits, pins, streams
from errata.catalog.lately import Corrected
from errata.catalog.origins import origins
from errata.catalog.published import ever_published
from errata.catalog.streams import Standing
from errata.flows.overview.corrections import Entry, correction
from errata.flows.site import Site
from errata.model.bucket import Bucket, Role
from errata.model.interval import HIGHEST
from errata.model.results import OLD_VE, OP, RUN, VE, VS, Shape, old
from errata.serve.said import Said, said_rows

PAGE = 200
"""So many changes are told on a page."""

MOST = 200_000
"""So many rows are read for a report, and no more."""

TOLD = 100
"""So many revisions of a stream are told."""


@dataclass(frozen=True, slots=True)
class Change:
    """A result that came, went or changed."""

    op: str
    """insert, delete or replace."""
    key: Said
    begins: int
    ends: int | None
    """None where no end is known, and of a result that went."""
    was: Said
    now: Said
    ended: int | None = None
    """Where a result that changed had ended before."""

    @property
    def moved(self) -> bool:
        """Whether a result that stays has another end now."""
        return self.op == "replace" and self.ended != self.ends

    @property
    def differing(self) -> list[str]:
        """The columns that tell something: those that differ, or all of a result that came or went."""
        names = dict.fromkeys([*self.was, *self.now])
        return [name for name in names if not (self.was and self.now) or self.was.get(name) != self.now.get(name)]


@dataclass(frozen=True, slots=True)
class Revised:
    """A row of a stream as it was and as it was said anew."""

    number: int
    batch: str
    file: str
    line: int
    was: Said
    now: Said


@dataclass(frozen=True, slots=True)
class Source:
    """What of one stream, relation or query has been taken up."""

    name: str
    query: bool
    first: int
    """0 where it has no numbers: late versions of a relation."""
    last: int
    revised: Sequence[Revised] = ()
    more: bool = False
    """Whether there are more of them, or they are no longer kept."""


@dataclass(frozen=True, slots=True)
class Report:
    """One correction, and a page of what it changed."""

    of: Corrected
    entry: Entry
    timed: bool
    changes: Sequence[Change]
    total: int
    """How many changes there are; a result that moved may be told as two."""
    page: int
    pages: int
    gone: str = ""
    """Why its changes cannot be told here; empty: they can."""
    command: str = ""
    """The command that tells them all."""
    sources: Sequence[Source] = ()
    readable: bool = True
    """Whether the command can tell them: what vacuum has removed is nowhere any more."""


def report(site: Site, query: str, commit_id: int, page: int = 1) -> Report:
    """What a commit has changed in a query's results."""
    of, entry = correction(site, query, commit_id)
    # Before anything is looked up, so that vacuum leaves what is read.
    with pins.pinned(site.catalog, max(commit_id - 1, 1), f"report of {query}"):
        shape = next(each.shape for each, _ in ever_published(site.catalog, query) if each.stream_id == of.stream_id)
        found = buckets.added(site.catalog, of.stream_id, [Role.FEED], after=commit_id - 1, up_to=commit_id)
        readable = commits.whole_from(site.catalog, query) < commit_id
        gone = _gone(found, readable=readable)
        records, told = feed_schema(shape).empty_table(), list[Source]()
        try:
            records = records if gone else _records(site, shape, of, found)
            told = list(_sources(site, of, entry))
        except OSError as error:  # the API server may run where the warehouse is not to be seen
            gone = gone or f"The warehouse cannot be read from here: {error.strerror or error}."
    pages = max(1, -(-records.num_rows // PAGE))
    page = min(max(1, page), pages)
    shown = _changes(records.slice((page - 1) * PAGE, PAGE), shape)
    command = f"errata changes {query} --since {commit_id - 1}"
    return Report(of, entry, shape.timed, shown, records.num_rows, page, pages, gone, command, told, readable)


def _gone(found: Sequence[Bucket], *, readable: bool) -> str:
    """Why the changes cannot be read."""
    rows = sum(each.rows for each in found)
    if not readable:
        return "Vacuum has removed the details: they lie behind the horizon."
    return f"These are too many for a page: {rows:,} rows would have to be read." if rows > MOST else ""


def _records(site: Site, shape: Shape, of: Corrected, found: Sequence[Bucket]) -> pa.Table:
    schema, number = feed_schema(shape), pc.field(RUN) == of.evaluation.number
    read = [conformed(each.read_where(site.warehouse, number), schema) for each in sources(site.catalog, found)]
    return by_columns(pa.concat_tables([schema.empty_table(), *read]), [VS, *shape.key])


def _changes(records: pa.Table, shape: Shape) -> list[Change]:
    shown = {each.name: each.shown for each in shape.columns}
    visible = [name for name in shape.payload if name in shape.visible]
    keys = _said(records.select(shape.key).rename_columns([shown[name] for name in shape.key]))
    was = _said(records.select([old(name) for name in visible]).rename_columns(visible))
    now = _said(records.select(visible))
    told = records.select([OP, VS, VE, OLD_VE]).to_pylist()
    return [
        Change(
            each[OP],
            key,
            each[VS],
            _end(each[OLD_VE] if each[OP] == "delete" else each[VE]),
            {} if each[OP] == "insert" else before,
            {} if each[OP] == "delete" else after,
            _end(each[OLD_VE]) if each[OP] == "replace" else None,
        )
        for each, key, before, after in zip(told, keys, was, now, strict=True)
    ]


def _end(end: int | None) -> int | None:
    return None if end is None or end == HIGHEST else end


def _said(rows: pa.Table) -> list[dict[str, object]]:
    return said_rows(rows) if rows.num_columns else [{} for _ in range(rows.num_rows)]


def _sources(site: Site, of: Corrected, entry: Entry) -> Iterator[Source]:
    """What had been said anew of what the query reads."""
    there = {each.stream.name: each for each in streams.standings(site.catalog, of.commit.commit_id)}
    for name, (first, last) in entry.revisions.items():
        if name in entry.queries or name not in there or not first:
            yield Source(name, name in entry.queries, first, last)
        else:
            revised, more = _revised(site, there[name], first, last)
            yield Source(name, False, first, last, revised, more)


def _revised(site: Site, of: Standing, first: int, last: int) -> tuple[list[Revised], bool]:
    """The rows of these revisions, and whether there are more than are told."""
    ever = buckets.overlays_ever(site.catalog, of.stream_id)
    found = [each for each in ever if (each.revision_last or 0) >= first and (each.revision_first or 0) <= last]
    if sum(each.rows for each in found) > MOST:
        return [], True
    rows = read_overlays(of.stream, site.warehouse, sources(site.catalog, found))
    number = rows[REVISION]
    rows = rows.filter(pc.and_(pc.greater_equal(number, first), pc.less_equal(number, last))).sort_by(REVISION)
    told = rows.slice(0, TOLD)
    known = origins(site.catalog, told[BATCH].to_pylist())
    names = of.stream.names
    was = said_rows(told.select([old_column(name) for name in names]).rename_columns(names))
    now = said_rows(told.select(names))
    facts: list[Mapping[str, int]] = told.select([REVISION, BATCH, POS, MASKS, LIVE]).to_pylist()
    revised = [
        Revised(
            each[REVISION],
            known[each[BATCH]].batch_id,
            *known[each[BATCH]].line_of(each[POS]),
            before if each[MASKS] else {},
            after if each[LIVE] else {},
        )
        for each, before, after in zip(facts, was, now, strict=True)
    ]
    return revised, rows.num_rows > TOLD
