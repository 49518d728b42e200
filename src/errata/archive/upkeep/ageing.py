"""Ageing: whole buckets of streams, and of query results, past their retention are dropped.

Streams age on schedule or lazily, just before a correction reads the archive. Rows before the new limit that lie in
buckets which stay no longer count either. Rows that some query has still to read stay (`retention`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from errata.archive.bucket_writer import order_values
from errata.archive.overlays import BUCKET, Overlays, bucket_sources, read_overlays
from errata.catalog import commits, maintenance, pins, queries, streams
from errata.catalog.maintenance import AgeOutPlan
from errata.catalog.queries import RecordedQuery
from errata.catalog.result_archives import ResultArchive, read_archive, read_archives
from errata.catalog.streams import StreamState
from errata.catalog.transaction import BasisConflict, give_up, optimistic
from errata.declare.site import Site
from errata.errors import unknown_name_error
from errata.model.bucket import Bucket
from errata.model.stream import AgeOutMode
from errata.model.time import LOWEST

if TYPE_CHECKING:
    from errata.archive.upkeep.retention import RetentionHold


@dataclass(frozen=True, slots=True)
class AgeOutReport:
    """What was dropped of one stream or of one query's results, and in which commit; None and empty if nothing was
    due."""

    stream: str
    """The name of the stream or query."""
    commit_id: int | None
    buckets: Sequence[Bucket]
    rows: int = 0
    """How many live rows count no longer."""
    aged_to: int | None = None
    """The place before which no rows count; for results, the first instant whose results are complete."""
    timed: bool = True
    hold: RetentionHold | None = None
    """The query because of which rows past the retention stay."""


def age_out(site: Site, names: Sequence[str] = ()) -> list[AgeOutReport]:
    """Age out the streams and queries named, or all streams that age on schedule and all queries with a retention."""
    standings = {each.stream.name: each for each in streams.stream_states(site.catalog)}
    known = queries.recorded_queries(site.catalog)
    for name in names:
        if name not in standings and name not in known:
            raise unknown_name_error("stream", name, [*standings, *known])
    on_schedule = [name for name, each in standings.items() if each.stream.age_out is AgeOutMode.SCHEDULED]
    limited = [name for name, each in known.items() if each.checked.query.retention is not None]
    return [
        _age_archive(site, name, None if name in standings else known[name])
        for name in names or [*on_schedule, *limited]
    ]


def age_out_if_lazy(site: Site, name: str) -> AgeOutReport:
    """Age out a stream declared `age_out: lazy`, just before its archive is read for a correction, so that ageing costs
    arrivals nothing (replay-revisions-2008, footnote 5). Such streams are aged only here."""
    standing = streams.stream_state(site.catalog, name)
    if standing.stream.age_out is not AgeOutMode.LAZY:
        return AgeOutReport(name, None, ())
    return _age_archive(site, name)


def _age_archive(site: Site, name: str, query: RecordedQuery | None = None) -> AgeOutReport:
    """Age out a stream, or the results of a query. Results of a former form of the query go with their archive."""
    catalog, retention = site.catalog, None if query is None else query.checked.query.retention

    def attempt(_: int) -> AgeOutReport:
        basis = streams.stream_state(catalog, name) if query is None else read_archive(catalog, name)
        if basis is None or (
            isinstance(basis, ResultArchive) and query is not None and basis.query_id != query.query_id
        ):
            return AgeOutReport(name, None, ())
        timed = basis.stream.timed if isinstance(basis, StreamState) else basis.shape.timed
        done = AgeOutReport(name, None, (), timed=timed)
        past = maintenance.plan_age_out(catalog, basis, retention)
        if past is None:
            return done
        seen, hold = commits.newest_commit(catalog), oldest_hold(site, name)
        aged = maintenance.plan_age_out(catalog, basis, retention, None if hold is None else hold.start)
        done = done if aged == past else replace(done, hold=hold)
        if aged is None:
            return done
        hidden = aged_row_counts(site, basis, aged) if isinstance(basis, StreamState) else {}
        commit_id = maintenance.commit_age_out(catalog, basis, aged, hidden, site.caused_by("age-out"), seen=seen)
        return replace(done, commit_id=commit_id, buckets=aged.buckets, rows=aged.rows(hidden), aged_to=aged.aged_to)

    kind = "stream" if query is None else "query"
    return optimistic(attempt, give_up(f"writer moved {kind} {name} first; nothing was aged out", "run it again"))


def oldest_hold(site: Site, name: str) -> RetentionHold | None:
    """The query for which rows must stay the longest. A query that was never evaluated needs none: it begins where the
    rows begin."""
    answered = read_archives(site.catalog)
    readers = [
        each.checked.name
        for each in queries.recorded_queries(site.catalog).values()
        if (name in each.checked.reads or name == each.checked.name)
        and each.checked.name in answered
        and answered[each.checked.name].query_id == each.query_id
    ]
    if not readers:
        return None
    from errata.archive.upkeep.retention import first_reader  # noqa: PLC0415 - it reads queries' texts, which loads sqlglot

    return first_reader(site, name, readers)


def aged_row_counts(site: Site, basis: StreamState, aged: AgeOutPlan) -> dict[int, int]:
    """How many rows cease to count with a plan, by bucket that stays and by overlay."""
    if not aged.overlays and not aged.partly_aged:
        return {}
    stream, warehouse = basis.stream, site.warehouse
    with pins.hold_pin(site.catalog, basis.changed_in, f"ageing of {stream.name}"):
        if streams.stream_state(site.catalog, stream.name).changed_in != basis.changed_in:
            raise BasisConflict  # buckets to read may have been removed before they were pinned
        overlays = Overlays(stream, read_overlays(stream, warehouse, bucket_sources(site.catalog, aged.overlays)))
        brought = overlays.live_rows()
        ceasing = _is_newly_aged(brought[stream.order], aged)
        numbers, counts = np.unique(brought[BUCKET].to_numpy()[ceasing], return_counts=True)
        hidden: dict[int, int] = dict(zip(numbers.tolist(), counts.tolist(), strict=True))
        for source in bucket_sources(site.catalog, aged.partly_aged):
            rows = source.read(warehouse, list(dict.fromkeys((*stream.key, stream.order))))
            ceasing = _is_newly_aged(rows[stream.order], aged) & ~overlays.masked(rows, source.bucket.floor)
            if count := int(ceasing.sum()):
                hidden[source.bucket.bucket_id] = count
    return hidden


def _is_newly_aged(order: pa.ChunkedArray, aged: AgeOutPlan) -> np.ndarray:
    """Which rows count now and will be aged out."""
    places = order_values(order)
    former, aged_to = (LOWEST if each is None else each for each in (aged.former, aged.aged_to))
    ceasing: np.ndarray = (places >= former) & (places < aged_to)
    return ceasing
