"""Purging (oscar-archives-2004, 4.1.4): behind the stable point, originals are dropped and their copies stay.

Purging is ageing that leaves a sample. `aged_to` moves on, so that exact readers, queries and corrections find these
rows as they find rows that have aged out. What stays of them, their remains, are copies without an original, all of
whose rows lie before `aged_to`: the rows of the greatest copies that counted at that moment, corrections worked in.
Since nothing can correct rows that have aged out, remains never change. A reduced scan reads them at the rate asked
for, or at their own if that is lower.

    ──────── remains at 10% ────────┃──── originals and copies ────▶
                                 aged_to            stable - purge_after

Only places all of whose buckets have a copy are purged, and none that a query has still to read. Each portion is one
commit; what is left to do follows from the index.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import pyarrow as pa

from errata.archive.bucket_files import POS
from errata.archive.bucket_writer import BucketWriter, cut_evenly, groups_in, order_values
from errata.archive.overlays import Overlays, bucket_sources, read_overlays
from errata.archive.schemas import conform
from errata.archive.tables import sort_rows
from errata.archive.upkeep.ageing import aged_row_counts, oldest_hold
from errata.catalog import buckets, commits, maintenance
from errata.catalog.maintenance import AgeOutPlan
from errata.catalog.streams import StreamState
from errata.catalog.transaction import give_up, optimistic
from errata.declare.site import ProgressCallback, Site, pinned_stream
from errata.errors import count_text
from errata.intake.types import arrow_schema
from errata.model.bucket import MAX_INLINE_STREAM_BYTES, Bucket, NewBucket, Role
from errata.model.time import HIGHEST, LOWEST
from errata.reduce.versions import BucketVersions, bucket_versions

PURGE_BYTES = 64 * 1024 * 1024
"""Bytes of copies that are read, and held in memory, between two commits."""


@dataclass
class PurgeReport:
    """What was purged of a stream, or would be."""

    stream: str
    timed: bool = True
    """Whether places are times."""
    buckets: int = 0
    bytes: int = 0
    """Of originals."""
    remaining_bytes: int = 0
    """Of what stays of them; in a plan, of their greatest copies."""
    purged_to: int | None = None
    """Rows before this place are purged; None: nothing was."""
    held_by: str | None = None
    """The query because of which rows stay that are due."""
    commits: list[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _DuePurge:
    """A portion that is due."""

    state: StreamState
    place: int
    versions: Sequence[BucketVersions]
    """All base buckets that have rows before the place."""
    held_by: str | None


def plan_purge(site: Site, name: str) -> PurgeReport:
    """What is due. Nothing is changed."""
    report = PurgeReport(name)
    with pinned_stream(site, name, "planning to purge") as state:
        due = _due_purge(site, state, HIGHEST)
    if due is not None:
        whole = [each for each in due.versions if each.original.vs_max < due.place]
        report.buckets, report.bytes = len(whole), sum(each.original.size for each in whole)
        report.remaining_bytes = sum(_greatest_copy(each).size for each in due.versions)
        report.purged_to, report.held_by, report.timed = due.place, due.held_by, due.state.stream.timed
    return report


def purge_originals(
    site: Site, name: str, on_step: ProgressCallback = lambda _: None, batch_bytes: int = PURGE_BYTES
) -> PurgeReport:
    """Purge all that is due of a stream."""
    report = PurgeReport(name)
    what = f"writer changed {name} first; what was purged so far is"
    attempt = partial(_purge_portion, site, name, batch_bytes, report)
    while optimistic(attempt, give_up(what, "run vacuum again")):
        on_step(f"purging {name}: {count_text(report.buckets, 'bucket')}")
    return report


def purge_place(versions: Iterable[BucketVersions], limit: int, most_bytes: int) -> int | None:
    """The place before which a portion of about so many bytes of copies is purged; None: nothing is due. It lies behind
    a whole bucket, before every row of a bucket without a copy, and not behind `limit`."""
    some = list(versions)
    limit = min([limit, *(each.original.vs_min for each in some if not each.copies)])
    due = sorted((each for each in some if each.original.vs_max < limit), key=lambda each: each.original.vs_max)
    size, place = 0, None
    for each in due:
        size += _greatest_copy(each).size
        if place is not None and size > most_bytes:
            break
        place = each.original.vs_max + 1
    return place


def _due_purge(site: Site, state: StreamState, most_bytes: int) -> _DuePurge | None:
    on_read = state.stream.reduced.on_read
    if on_read is None or on_read.purge_after is None or state.stable is None:
        return None
    found = buckets.buckets_of_roles(site.catalog, state.stream_id, state.changed_in, (Role.BASE, Role.COPY))
    versions, limit = bucket_versions(found), max(state.stable - on_read.purge_after, LOWEST)
    place = purge_place(versions, limit, most_bytes)
    if place is None:
        return None
    hold, held_by = oldest_hold(site, state.stream.name), None
    if hold is not None and hold.start < place:
        place, held_by = purge_place(versions, hold.start, most_bytes), hold.query
    if place is None:
        return None
    return _DuePurge(state, place, [each for each in versions if each.original.vs_min < place], held_by)


def _purge_portion(site: Site, name: str, most_bytes: int, report: PurgeReport, _: int) -> bool:
    """Purge one portion; whether there was one."""
    catalog = site.catalog
    with pinned_stream(site, name, "purging") as state:
        seen = commits.newest_commit(catalog)
        due = _due_purge(site, state, most_bytes)
        aged = None if due is None else maintenance.plan_purge(catalog, state, due.place)
        if due is None or aged is None:
            return False
        hidden = aged_row_counts(site, state, aged)
        written = _write_remains(site, due, aged)
    aged = replace(aged, remains=written)
    with site.discard_on_conflict(written):
        commit_id = maintenance.commit_age_out(catalog, state, aged, hidden, site.caused_by("vacuum"), seen=seen)
    report.commits.append(commit_id)
    report.buckets += len(aged.buckets)
    report.bytes += sum(each.size for each in aged.buckets)
    report.remaining_bytes += sum(each.size for each in written)
    report.purged_to, report.held_by, report.timed = due.place, due.held_by, state.stream.timed
    return True


def _greatest_copy(versions: BucketVersions) -> Bucket:
    return max(versions.copies, key=lambda each: (each.resolution.rate, -each.bucket_id))


def _write_remains(site: Site, due: _DuePurge, aged: AgeOutPlan) -> list[NewBucket]:
    """The sample that stays of the rows which count no longer, by rate, in full buckets."""
    stream, warehouse = due.state.stream, site.warehouse
    writer = BucketWriter(stream, warehouse, inline=due.state.inline_bytes < MAX_INLINE_STREAM_BYTES // 2)
    schema = arrow_schema(stream).append(pa.field(POS, pa.int64()))
    overlays = Overlays(stream, read_overlays(stream, warehouse, bucket_sources(site.catalog, aged.overlays)))
    chosen = [(each.original, _greatest_copy(each)) for each in due.versions]
    by_rate: defaultdict[float, list[pa.Table]] = defaultdict(list)
    for (original, copy), source in zip(
        chosen, bucket_sources(site.catalog, [copy for _, copy in chosen]), strict=True
    ):
        rows = conform(source.read(warehouse), schema)
        by_rate[copy.resolution.rate].append(rows.filter(pa.array(~overlays.masked(rows, original.floor))))
    # Rows that corrections brought are of no bucket; at the greatest rate none is lost that some neighbour would keep.
    by_rate[max(by_rate)].append(conform(overlays.live_rows(aged.former), schema))
    is_due = _due_rows_test(stream.order, aged)
    return [
        bucket
        for rate, tables in sorted(by_rate.items())
        for bucket in _write_sample(writer, rate, pa.concat_tables(map(is_due, tables)))
    ]


def _due_rows_test(order: str, aged: AgeOutPlan) -> Callable[[pa.Table], pa.Table]:
    """A filter of the rows that count now, and no longer with the plan."""
    former, end = (LOWEST if place is None else place for place in (aged.former, aged.aged_to))

    def is_due(rows: pa.Table) -> pa.Table:
        places = order_values(rows[order])
        wanted: np.ndarray = (places >= former) & (places < end)
        return rows.filter(pa.array(wanted))

    return is_due


def _write_sample(writer: BucketWriter, rate: float, rows: pa.Table) -> Iterable[NewBucket]:
    if not rows.num_rows:
        return
    for part in cut_evenly(sort_rows(rows, writer.stream), writer.stream.bucket_rows):
        places = order_values(part[writer.stream.order])
        groups = groups_in(part, writer.stream.group)
        # A bucket that is described and not stored: its copy is what stays.
        whole = NewBucket(Role.BASE, part.num_rows, 0, int(places[0]), int(places[-1]), groups, "", data=b"")
        yield from writer.copies(part, whole, (rate,))
