"""Delivers results of queries to the merged streams that they feed.

What a query has changed since the last delivery becomes one file of rows, `STREAM/delivered/FEED/FROM-TO.parquet` in
the warehouse, which is ingested like any file of a feed and then removed: `errata changes` reads the same again.

The batch is named after the feed, the query, and the range of commits that it delivers, so that the ledger knows where
the next delivery begins. A kill may leave the file, which the next delivery removes, or vacuum. Takes the memory of one
range of the changelog, and no session.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from errata.answer.catalog_view import CatalogView
from errata.answer.delivered_rows import (
    beginnings,
    delivered_rows,
    delivery_schema,
    followed_results,
    stable_row,
    tells_ends,
)
from errata.answer.due_delivery import QueryDelivery, delivery_folder, due_deliveries
from errata.archive.changelog import changelog_segments, changes_table
from errata.archive.ingest.batch import IngestReport, IngestRequest, ingest_batch
from errata.archive.results import published_valid_in
from errata.catalog import commits, leases, pins
from errata.catalog.leases import WaitPolicy
from errata.declare.query_feeds import order_lag
from errata.declare.query_plans import read_plans
from errata.declare.site import ProgressCallback, Site
from errata.errors import ErrataError
from errata.model.results import VS
from errata.model.time import LOWEST, Interval


def deliver(
    site: Site,
    stream: str,
    feed: str,
    on_step: ProgressCallback = lambda _: None,
    patience: WaitPolicy | None = None,
) -> IngestReport | None:
    """Deliver to a feed what its query has changed since the last time; None if that is nothing, or if another runner
    delivers it."""
    with leases.hold_lease(site.catalog, f"feed {stream}.{feed}", site.cause.owner, patience) as lease:
        due = _due(site, stream, feed) if lease.is_held else None
        if due is None:
            return None
        oldest = due.after or commits.whole_since(site.catalog, due.results.name)
        with pins.hold_pin(site.catalog, max(1, oldest), f"deliver to {stream}") as pin:
            on_step(f"delivering results of {due.results.name} to {stream}")
            _write_file(site, due)
            pin.check()
        request = IngestRequest(stream, [site.warehouse.path(due.file)], batch_id=due.batch_id, feed=feed)
        report = ingest_batch(site, request, on_step)
        site.warehouse.remove(due.file)
        return report


def _due(site: Site, stream: str, feed: str) -> QueryDelivery | None:
    due = due_deliveries(CatalogView(site))
    return next((each for each in due if (each.stream.name, each.feed.name) == (stream, feed)), None)


def _write_file(site: Site, due: QueryDelivery) -> None:
    site.warehouse.check()
    folder = delivery_folder(due.stream, due.feed)
    for left in site.warehouse.entries(folder):
        site.warehouse.remove(f"{folder}/{left.name}")  # of a delivery that was killed
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, delivery_schema(due.stream)) as writer:
        for rows in delivered_tables(site, due):
            writer.write_table(rows)
    site.warehouse.write(due.file, sink.getvalue().to_pybytes())


def delivered_tables(site: Site, due: QueryDelivery) -> Iterator[pa.Table]:
    """The rows of a delivery, by ranges of the changelog, and last how far the feed is stable."""
    catalog, query = site.catalog, due.results.name
    lag = _order_lag(site, due)
    whole = commits.whole_since(catalog, query)
    if due.after and due.after < whole:
        raise ErrataError(
            f"the changes of query {query} since commit {due.after} are no longer whole",
            where=f"feed {due.feed.name} of stream {due.stream.name}",
            why=f"vacuum has removed what only commits before {whole} needed",
            how="declare the feed under another name: it begins with all results that there are",
        )
    begun = []
    for some in changelog_segments(catalog, query, due.after or whole, due.up_to, restated=not due.after):
        shape, records = some.of.shape, changes_table(catalog, site.warehouse, some)
        yield delivered_rows(records, shape, due.stream, lag)
        if some.of.stream_id == due.results.stream_id and tells_ends(shape, due.stream):
            begun.append(beginnings(records, shape))
    if any(each.num_rows for each in begun):
        yield delivered_rows(_followed(site, due, pa.concat_tables(begun)), due.results.shape, due.stream, lag)
    yield stable_row(due.stream, due.results.frontier - lag)


def _followed(site: Site, due: QueryDelivery, begun: pa.Table) -> pa.Table:
    """The results that ended where others began."""
    first = pc.min(begun[VS]).as_py()
    span = Interval(max(LOWEST, first - 1), due.results.frontier + 1)
    results = published_valid_in(site.catalog, site.warehouse, due.results, [span])
    return followed_results(results, begun, due.results.shape)


def _order_lag(site: Site, due: QueryDelivery) -> int:
    view = CatalogView(site)
    declared = {name: each.checked.query for name, each in view.queries.items()}
    plans = read_plans({name: each.stream for name, each in view.standings.items()}, declared, list(declared))
    return order_lag(plans[due.results.name], due.stream)
