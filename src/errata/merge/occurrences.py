"""Occurrences of equal rows: a feed's ends of one payload, sorted, are those of its occurrences 0, 1, 2 …

The state has a row for each occurrence; its number is in the row. What differs from it is said in elements of R3. A
payload's next occurrence gets the next number that its key has not used.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from errata.merge.elements import (
    ABSENT,
    ELEMENT,
    FEED,
    GIVEN,
    OLD_END,
    OWN_STABLE,
    POS,
    SEQ,
    ElementKind,
    element_schema,
    payload_names,
)
from errata.merge.fed_batch import EndCounts, FedBatch
from errata.merge.filling import end_column
from errata.merge.row_codes import run_starts, stable_order
from errata.merge.step import MergeState
from errata.model.stream import Stream
from errata.model.time import LOWEST


@dataclass(frozen=True, slots=True)
class _Slots:
    """Where the occurrences of each payload are in the state."""

    rows: np.ndarray
    """The rows of the state by payload and occurrence."""
    begins: np.ndarray
    counts: np.ndarray
    next_number: np.ndarray
    """The number of each payload's next occurrence."""


def occurrence_elements(
    stream: Stream, state: MergeState, batch: FedBatch, counts: EndCounts, accepted: np.ndarray
) -> pa.Table:
    """Elements for each occurrence that is not as it was before."""
    standing = np.flatnonzero(counts.count)
    chain = np.repeat(counts.chain[standing], counts.count[standing])
    end = np.repeat(counts.end[standing], counts.count[standing])
    occurrence = np.arange(len(chain)) - run_starts(chain)
    now = np.bincount(chain, minlength=batch.payloads.count * batch.feeds)
    slots = _slots(stream, state, batch, now)
    before = np.full(len(chain), ABSENT, dtype=np.int64)
    payload, feed = chain // batch.feeds, chain % batch.feeds
    old = np.flatnonzero(occurrence < slots.counts[payload])
    before[old] = state.ends[slots.rows[slots.begins[payload[old]] + occurrence[old]], feed[old]]
    changed = before != end
    gone_chain, gone_occurrence = _gone(state, batch, slots, now)
    chains = np.concatenate([chain[changed], gone_chain])
    occurrences = np.concatenate([occurrence[changed], gone_occurrence])
    ends = np.concatenate([end[changed], np.full(len(gone_chain), ABSENT)])
    order = stable_order(chains % batch.feeds)
    return _element_table(stream, state, batch, slots, (chains[order], occurrences[order], ends[order]), accepted)


def _slots(stream: Stream, state: MergeState, batch: FedBatch, now: np.ndarray) -> _Slots:
    own = batch.payloads.codes[: batch.known]
    numbers = state.rows[stream.merged.occurrence].to_numpy()
    rows = np.lexsort((numbers, own))
    count = batch.payloads.count
    counts = np.bincount(own, minlength=count)
    begins = np.cumsum(counts) - counts
    most = now.reshape(-1, batch.feeds).max(axis=1) if batch.feeds else np.zeros(count, dtype=np.int64)
    used = np.zeros(int(batch.key.max()) + 1 if count else 0, dtype=np.int64)
    np.maximum.at(used, batch.key[own], numbers + 1)
    new = np.maximum(most - counts, 0)
    by_key = stable_order(batch.key)
    before = np.cumsum(new[by_key]) - new[by_key]
    first_of_key = run_starts(batch.key[by_key])
    next_number = np.empty(count, dtype=np.int64)
    next_number[by_key] = used[batch.key[by_key]] + before - before[first_of_key]
    return _Slots(rows, begins, counts, next_number)


def _gone(state: MergeState, batch: FedBatch, slots: _Slots, now: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The chains and occurrences that feeds of touched multisets had, and have no more."""
    own = batch.payloads.codes[: batch.known]
    place = np.empty(batch.known, dtype=np.int64)
    place[slots.rows] = np.arange(batch.known)
    occurrence = place - slots.begins[own]
    touched = np.zeros(batch.payloads.count * batch.feeds, dtype=bool)
    touched[batch.chain] = True
    chains, occurrences = [np.empty(0, dtype=np.int64)], [np.empty(0, dtype=np.int64)]
    for feed in range(batch.feeds):
        chain = own * batch.feeds + feed
        gone = touched[chain] & (state.ends[:, feed] != ABSENT) & (occurrence >= now[chain])
        chains.append(chain[gone])
        occurrences.append(occurrence[gone])
    return np.concatenate(chains), np.concatenate(occurrences)


def _element_table(
    stream: Stream,
    state: MergeState,
    batch: FedBatch,
    slots: _Slots,
    changes: tuple[np.ndarray, np.ndarray, np.ndarray],
    accepted: np.ndarray,
) -> pa.Table:
    """Elements for these chains, occurrences and ends; ABSENT is a withdrawal."""
    chain, occurrence, end = changes
    payload = chain // batch.feeds
    old = occurrence < slots.counts[payload]
    number = slots.next_number[payload] + occurrence - slots.counts[payload]
    rows = slots.rows[slots.begins[payload[old]] + occurrence[old]]
    number[old] = state.rows[stream.merged.occurrence].to_numpy()[rows]
    last = np.zeros(batch.payloads.count * batch.feeds, dtype=np.int64)
    last[batch.chain[accepted]] = accepted
    fed = stream.as_fed
    both = {
        name: pa.chunked_array([*state.rows[name].chunks, *batch.rows[name].chunks], batch.rows[name].type)
        for name in payload_names(fed)
    }
    source = pa.array(batch.payloads.firsts[payload])
    count = len(chain)
    columns: dict[str, pa.Array | pa.ChunkedArray] = {
        FEED: pa.array(chain % batch.feeds, pa.int16()),
        SEQ: pa.array(np.arange(count)),
        ELEMENT: pa.array(np.where(end == ABSENT, int(ElementKind.WITHDRAW), int(ElementKind.INSERT)), pa.int8()),
        POS: batch.rows[POS].take(pa.array(last[chain])),
        OWN_STABLE: pa.array(np.full(count, LOWEST)),
        OLD_END: pa.nulls(count, pa.int64()),
        GIVEN: pa.nulls(count, pa.string()),
        **{name: column.take(source) for name, column in both.items()},
        str(stream.merged.occurrence): pa.array(number),
    }
    if stream.merged.end is not None:
        columns[stream.merged.end] = end_column(end, stream)
    schema = element_schema(stream)
    return pa.table([columns[name] for name in schema.names], schema=schema)
