"""The state of a merge as a table, and back: what commits with a batch.

One row for each row that is not frozen:

    payload columns … | _batch | _pos | _end_<feed> … | _published

`_batch` and `_pos` say which statement was the first to say it, `_end_<feed>` at which end that feed has it (NULL: it
does not have it), `_published` at which end it was published (NULL: it was not). The payload is there once, whatever
the number of feeds. Feeds are known by name, so that a declaration may add, remove and reorder them between batches.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from errata.intake.types import arrow_schema
from errata.merge.elements import ABSENT, POS, payload_names, row_ends
from errata.merge.row_codes import key_hashes
from errata.merge.step import BATCH, FeedTop, MergeState
from errata.model.stream import Stream

END_OF = "_end_"
"""Begins the name of a column with the ends of one feed."""
PUBLISHED = "_published"


def state_schema(stream: Stream) -> pa.Schema:
    """The columns of `MergeState.rows`."""
    whole = arrow_schema(stream)
    payload = [whole.field(name) for name in payload_names(stream)]
    return pa.schema([*payload, pa.field(BATCH, pa.int64()), pa.field(POS, pa.int64())])


def empty_state(stream: Stream) -> MergeState:
    """The state before the first batch."""
    return MergeState(
        rows=state_schema(stream).empty_table(),
        ends=np.empty((0, len(stream.merged.feeds)), dtype=np.int64, order="F"),
        published=np.empty(0, dtype=np.int64),
    )


def state_to_table(state: MergeState, stream: Stream) -> pa.Table:
    """The state as a table. The last instants of feeds (`tops`) are the catalog's."""
    table = state.rows
    for number, feed in enumerate(stream.merged.feeds):
        table = table.append_column(END_OF + feed.name, _ends_column(state.ends[:, number]))
    return table.append_column(PUBLISHED, _ends_column(state.published))


def state_from_table(
    table: pa.Table, stream: Stream, batch_no: int, tops: Mapping[int, FeedTop] | None = None
) -> MergeState:
    """The state in such a table, for the feeds that are declared now.

    `batch_no` is the number of the batch that wrote the table: rows that it said first have no number of their own.
    Rows that only feeds said that are gone, and that were not published, are gone with them.
    """
    published = _ends_values(table[PUBLISHED])
    ends = np.full((table.num_rows, len(stream.merged.feeds)), ABSENT, dtype=np.int64, order="F")
    for number, feed in enumerate(stream.merged.feeds):
        if END_OF + feed.name in table.column_names:
            ends[:, number] = _ends_values(table[END_OF + feed.name])
    schema = state_schema(stream)
    rows = pa.table([table[name].cast(schema.field(name).type) for name in schema.names], schema=schema)
    at = schema.get_field_index(BATCH)
    rows = rows.set_column(at, schema.field(at), rows[BATCH].fill_null(batch_no))
    return _said_or_published(MergeState(rows=rows, ends=ends, published=published, tops=dict(tops or {})))


def forget_feeds(state: MergeState, numbers: Sequence[int]) -> MergeState:
    """The state without what these feeds have said: they begin anew. Published rows stay."""
    if not numbers:
        return state
    ends = state.ends.copy(order="F")
    ends[:, list(numbers)] = ABSENT
    return _said_or_published(replace(state, ends=ends))


def _said_or_published(state: MergeState) -> MergeState:
    """Without the rows that no feed has and that were not published."""
    kept = (state.published != ABSENT) | np.any(state.ends != ABSENT, axis=1)
    if kept.all():
        return state
    return replace(
        state,
        rows=state.rows.filter(pa.array(kept)),
        ends=np.asfortranarray(state.ends[kept]),
        published=state.published[kept],
    )


def state_from_rows(stream: Stream, rows: pa.Table, said: Mapping[int, int] | None = None) -> MergeState:
    """The state in which these rows (the stream's columns, `_batch` and `_pos`) are published.

    `said` has, by feed number, the order field before which a feed is known to have said all of them. Of rows that no
    feed is known to have said, every feed is taken to have had them, until one says something else.
    """
    schema = state_schema(stream)
    payload = pa.table([rows[name].cast(schema.field(name).type) for name in schema.names], schema=schema)
    published = row_ends(rows, stream)
    ends = np.full((rows.num_rows, len(stream.merged.feeds)), ABSENT, dtype=np.int64, order="F")
    order = order_values(rows, stream)
    for number, before in (said or {}).items():
        ends[:, number] = np.where(order < before, published, ABSENT)
    return MergeState(rows=payload, ends=ends, published=published)


def part_of_key(rows: pa.Table, stream: Stream, parts: int) -> np.ndarray:
    """Which of so many parts the key of each row belongs to: the same for elements, state and archived rows, on every
    machine. All occurrences of a row are in one part."""
    names = [name for name in stream.key if name != stream.merged.occurrence]
    part: np.ndarray = (key_hashes(rows, names) % np.uint64(parts)).astype(np.int64)
    return part


def order_values(rows: pa.Table, stream: Stream) -> np.ndarray:
    """The order field of each row as a number; 0 if it is NULL."""
    column = rows[stream.order]
    whole = column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column
    values: np.ndarray = whole.fill_null(0).to_numpy().astype(np.int64, copy=False)
    return values


def _ends_column(ends: np.ndarray) -> pa.ChunkedArray:
    return pa.chunked_array([pa.array(ends, mask=ends == ABSENT)])


def _ends_values(column: pa.ChunkedArray) -> np.ndarray:
    values: np.ndarray = pc.fill_null(column.cast(pa.int64()), ABSENT).to_numpy()
    return values
