"""What a batch of a stream with feeds is merged into: feeds and merge as the catalog has them, the state that the last
batch left, and rows of the archive that the state does not know.

A stream that had rows before it had feeds has no state, nor has one whose state was lost or whose batch was undone: its
rows that may still change become the first one, as if every feed had said them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from errata.archive.ingest.merge_archive import unfrozen_rows
from errata.archive.overlays import bucket_sources
from errata.catalog import buckets, feeds
from errata.catalog.database import Catalog
from errata.catalog.feeds import FeedState, MergeRecord
from errata.catalog.streams import StreamState
from errata.catalog.transaction import BasisConflict
from errata.declare.warehouse import Warehouse
from errata.merge.choice import AlgorithmChoice, choose_algorithm, declared_properties
from errata.merge.state import empty_state, forget_feeds, state_from_rows, state_from_table, state_schema
from errata.merge.step import FeedTop, MergeState
from errata.model.bucket import Bucket, Role
from errata.model.feed import (
    FeedProperties,
    MergeAlgorithm,
    properties_from_record,
    properties_to_record,
    what_all_guarantee,
)
from errata.model.stream import Stream
from errata.model.time import LOWEST


@dataclass(frozen=True, slots=True)
class MergeBasis:
    """What a batch is merged into."""

    stood: StreamState
    known: Sequence[FeedState]
    """The feeds that the catalog knows."""
    standing: Sequence[FeedState]
    """The declared feeds, in their order."""
    record: MergeRecord | None
    former: Sequence[Bucket]
    """The buckets of the state."""
    state: MergeState
    choice: AlgorithmChoice

    @property
    def before(self) -> int:
        """The stable point of the merged stream before the batch."""
        return LOWEST if self.stood.stable is None else self.stood.stable


def read_basis(catalog: Catalog, warehouse: Warehouse, stood: StreamState) -> MergeBasis:
    """Read what the next batch of a stream is merged into."""
    stream = stood.stream
    known = feeds.feeds_of(catalog, stood.stream_id)
    standing = feeds.standing_feeds(stream, known)
    record = feeds.merge_of(catalog, stood.stream_id)
    former = buckets.buckets_of_roles(catalog, stood.stream_id, stood.changed_in, [Role.MERGE])
    tops = {
        number: FeedTop(each.top_order, each.top_rows)
        for number, each in enumerate(standing)
        if each.top_order != LOWEST
    }
    if former:
        state = _read_state(catalog, warehouse, stream, former, tops)
        state = forget_feeds(state, attached_since(standing, former))
    elif stood.rows:
        state = state_from_rows(stream, unfrozen_rows(catalog, warehouse, stood))
    else:
        state = replace(empty_state(stream), tops=tops)
    choice = current_choice(stream, standing, record, state, anew=not former)
    return MergeBasis(stood, known, standing, record, former, state, choice)


def current_choice(
    stream: Stream, standing: Sequence[FeedState], record: MergeRecord | None, state: MergeState, *, anew: bool
) -> AlgorithmChoice:
    """The algorithm of the next batch (`anew`: its state was made from the archive): the cheapest that is correct for
    what is declared and has not been broken since. While there are rows that may still change, a more general one that
    has begun goes on: only it knows them."""
    chosen = choose_algorithm(stream, standing_properties(stream, standing))
    ranks = list(MergeAlgorithm)
    begun = MergeAlgorithm.R3 if record is None or anew else record.algorithm
    if not state.rows.num_rows or ranks.index(begun) <= ranks.index(chosen.algorithm):
        return chosen
    if record is None or anew:
        return AlgorithmChoice(begun, "rows are there of which nobody knows what feeds have said them")
    return AlgorithmChoice(begun, record.reason)


def standing_properties(stream: Stream, standing: Sequence[FeedState]) -> list[FeedProperties]:
    """What each feed guarantees: what is declared, without what it has broken since it was declared so."""
    given = declared_properties(stream)
    for number, each in enumerate(standing):
        for broken in each.broken:
            if broken["declared"] == properties_to_record(stream.merged.feeds[number].properties):
                given[number] = what_all_guarantee([given[number], properties_from_record(broken["left"])])
    return given


def _read_state(
    catalog: Catalog, warehouse: Warehouse, stream: Stream, former: Sequence[Bucket], tops: Mapping[int, FeedTop]
) -> MergeState:
    """The state in its buckets. The next batch deletes them: one that is gone has been replaced in the meantime."""
    sources = bucket_sources(catalog, former)
    if any(each.bucket.inline and each.data is None for each in sources):
        raise BasisConflict
    batch_no = former[0].batch_no
    if batch_no is None:
        raise AssertionError("a state is written by one batch")
    tables = [with_columns(each.read(warehouse), state_schema(stream)) for each in sources]
    return state_from_table(pa.concat_tables(tables, promote_options="default"), stream, batch_no, tops)


def attached_since(standing: Sequence[FeedState], former: Sequence[Bucket]) -> list[int]:
    """The numbers of the feeds that were attached again after the state was written."""
    written = max(each.added_in for each in former)
    return [
        number for number, each in enumerate(standing) if each.attached_in is not None and each.attached_in > written
    ]


def with_columns(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """The table with the columns that have been declared since it was written, NULL in all rows."""
    for field in schema:
        if field.name not in table.column_names:
            table = table.append_column(field, pa.nulls(table.num_rows, field.type))
    return table
