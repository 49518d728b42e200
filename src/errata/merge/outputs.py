"""A decided batch as tables: what goes out of a merge step, and the state after it.

Payloads are told by their numbers; those of the state come first. Each is taken from the state or from the element that
said it first, so that a row keeps the position of its first statement.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from errata.merge.elements import ABSENT, FEED, GIVEN, POS
from errata.merge.filling import end_column
from errata.merge.outcome import agreed_schema, correction_schema, disagreement_schema, insert_schema, refused_schema
from errata.merge.policies import NodeTable, Outcome, Supporters
from errata.merge.state import state_schema
from errata.merge.statements import REASONS, Statements, last_by_key
from errata.merge.step import BATCH, CHOSEN, OP, REASON, MergeState
from errata.model.stream import Stream


@dataclass(frozen=True, slots=True)
class DecidedBatch:
    """A batch after all decisions."""

    stream: Stream
    state: MergeState
    said: Statements
    nodes: NodeTable
    supporters: Supporters
    outcome: Outcome
    published: np.ndarray
    """For each payload the end at which it is published after the batch; ABSENT if it is not."""
    first: np.ndarray
    """For each payload the row that said it first, counted through the state and then the elements."""

    @property
    def known(self) -> int:
        """How many payloads the state had before the batch."""
        return int(self.state.rows.num_rows)


def first_rows(said: Statements, known: int) -> np.ndarray:
    """For each payload the first row that says it and counts; withdrawals do not."""
    counts = said.counts & ~said.withdraws
    if counts.all():
        return said.node_first
    first = said.node_first.copy()
    backwards = np.flatnonzero(counts)[::-1]
    backwards = backwards[said.node[backwards] >= known]
    first[said.node[backwards]] = backwards + known
    return first


def payload_rows(batch: DecidedBatch, nodes: np.ndarray) -> pa.Table:
    """These payloads, which ascend, with `_batch` and `_pos` of their first statements."""
    cut = int(np.searchsorted(nodes, batch.known))
    schema = state_schema(batch.stream)
    new = batch.said.rows.take(pa.array(batch.first[nodes[cut:]] - batch.known))
    place = pa.nulls(new.num_rows, pa.int64())
    columns = [place if name == BATCH else new[name] for name in schema.names]
    taken = pa.table(columns, schema=schema)
    if cut == 0:
        return taken
    whole = np.array_equal(nodes[:cut], np.arange(batch.known))
    old = batch.state.rows if whole else batch.state.rows.take(pa.array(nodes[:cut]))
    return pa.concat_tables([old, taken])


def whole_rows(batch: DecidedBatch, nodes: np.ndarray, ends: np.ndarray) -> pa.Table:
    """These payloads, which ascend, as rows of the stream with these ends; with `_batch` and `_pos`."""
    rows = payload_rows(batch, nodes)
    if batch.stream.merged.end is not None:
        rows = rows.append_column(batch.stream.merged.end, end_column(ends, batch.stream))
    return rows.select(insert_schema(batch.stream).names)


def insert_table(batch: DecidedBatch) -> pa.Table:
    """The new rows of the merged stream."""
    outcome = batch.outcome
    keys = np.flatnonzero((outcome.published < 0) & (outcome.end != ABSENT))
    nodes = outcome.wanted[keys]
    order = np.argsort(nodes)
    return whole_rows(batch, nodes[order], outcome.end[keys[order]])


def correction_table(batch: DecidedBatch) -> pa.Table:
    """The changes of rows that were published before. A change has the place of the newest statement of the batch about
    its key; if there is none, that of the row's first statement."""
    outcome = batch.outcome
    standing = outcome.published >= 0
    gone = standing & (outcome.end == ABSENT)
    old_end = np.where(standing, batch.nodes.published[outcome.published], ABSENT) if standing.any() else outcome.end
    changed = standing & ((outcome.wanted != outcome.published) | (outcome.end != old_end)) | gone
    keys = np.flatnonzero(changed)
    if not len(keys):
        return correction_schema(batch.stream).empty_table()
    nodes = np.where(gone[keys], outcome.published[keys], outcome.wanted[keys])
    order = np.argsort(nodes)
    keys, nodes = keys[order], nodes[order]
    rows = whole_rows(batch, nodes, np.where(gone[keys], old_end[keys], outcome.end[keys]))
    rows = rows.add_column(0, OP, pa.array(np.where(gone[keys], "delete", "replace")))
    rows = rows.add_column(1, GIVEN, _given_columns(batch.stream, outcome.wanted[keys] == outcome.published[keys]))
    newest = last_by_key(batch.said, np.flatnonzero(batch.said.counts))[keys]
    return _with_places(batch, rows, newest).cast(correction_schema(batch.stream))


def _given_columns(stream: Stream, same_payload: np.ndarray) -> pa.Array:
    """What a correction changes: where the payload is the published one, the end of the row alone. So a correction that
    a person has made of another column stays."""
    if stream.merged.end is None:
        return pa.nulls(len(same_payload), pa.string())
    end_alone = pa.scalar(",".join((*stream.key, stream.merged.end)))
    return pc.if_else(pa.array(same_payload), end_alone, pa.scalar(None, pa.string()))


def _with_places(batch: DecidedBatch, rows: pa.Table, elements: np.ndarray) -> pa.Table:
    """The rows with the places of these elements, where there is one (-1: none)."""
    has = elements >= 0
    if not has.any():
        return rows
    said = batch.said.rows[POS].take(pa.array(np.where(has, elements, 0))).to_numpy()
    pos = np.where(has, said, rows[POS].to_numpy())
    batches = rows[BATCH].fill_null(0).to_numpy()
    unnumbered = has | rows[BATCH].is_null().to_numpy()
    rows = rows.set_column(rows.schema.get_field_index(POS), POS, pa.array(pos))
    return rows.set_column(rows.schema.get_field_index(BATCH), BATCH, pa.array(batches, mask=unnumbered))


def behind_table(stream: Stream, elements: pa.Table, ends: np.ndarray, chosen: np.ndarray) -> pa.Table:
    """The chosen ones of these elements, with their ends, for the archive to decide."""
    if not chosen.any():
        return elements.slice(0, 0)
    rows, end = elements.filter(pa.array(chosen)), stream.merged.end
    if end is None:
        return rows
    at = rows.schema.get_field_index(end)
    return rows.set_column(at, rows.schema.field(at), end_column(ends[chosen], stream))


def refused_table(elements: pa.Table, refused: np.ndarray) -> pa.Table:
    """The elements that contradict their own feed, each with the reason of this number."""
    places = np.flatnonzero(refused)
    if not len(places):
        return refused_schema().empty_table()
    rows = elements.select([FEED, POS]).take(pa.array(places))
    reasons = pa.array(REASONS).take(pa.array(refused[places] - 1))
    return rows.append_column(REASON, reasons).cast(refused_schema())


def disagreement_table(batch: DecidedBatch) -> pa.Table:
    """The keys about which feeds have different payloads, if anything about them changed in this batch."""
    schema = disagreement_schema(batch.stream)
    several = np.flatnonzero(batch.supporters.count)
    if not np.any(batch.outcome.payloads > 1):
        return schema.empty_table()
    several = several[batch.outcome.payloads[batch.nodes.key[several]] > 1]
    changed = np.zeros(batch.nodes.keys, dtype=bool)
    changed[batch.nodes.key[_changed_payloads(batch)]] = True
    several = several[changed[batch.nodes.key[several]]]
    at, feeds = np.nonzero(batch.nodes.ends[several] != ABSENT)
    nodes = several[at]
    rows = whole_rows(batch, nodes, batch.nodes.ends[nodes, feeds])
    rows = rows.append_column(FEED, pa.array(feeds, pa.int16()))
    rows = rows.append_column(CHOSEN, pa.array(batch.outcome.chosen[batch.nodes.key[nodes]] == nodes))
    rows = _with_places(batch, rows, _own_elements(batch, nodes, feeds))
    return rows.select(schema.names).cast(schema)


def _changed_payloads(batch: DecidedBatch) -> np.ndarray:
    """The payloads of which something changed in the batch: who has them, since when, or what is published."""
    changed = batch.published != batch.nodes.published
    known = batch.known
    changed[known:] |= batch.supporters.count[known:] > 0
    changed[:known] |= np.any(batch.nodes.ends[:known] != batch.state.ends, axis=1)
    return np.flatnonzero(changed)


def _own_elements(batch: DecidedBatch, nodes: np.ndarray, feeds: np.ndarray) -> np.ndarray:
    """The element by which each feed said its payload in this batch; -1 if it had said it before."""
    found = np.full(len(nodes), -1, dtype=np.int64)
    said, key = batch.said, batch.nodes.key[nodes]
    counts = said.counts
    for feed in np.unique(feeds):
        here = feeds == feed
        last = last_by_key(said, np.flatnonzero(counts & (said.feed == feed)))
        found[here] = last[key[here]]
    return found


def agreed_table(batch: DecidedBatch) -> pa.Table:
    """The keys about which feeds disagreed before the batch, and agree now."""
    schema = agreed_schema(batch.stream)
    had = np.flatnonzero(np.any(batch.state.ends != ABSENT, axis=1))
    key = batch.nodes.key[had]
    before = np.bincount(key, minlength=batch.nodes.keys)
    now = (before[key] > 1) & (batch.outcome.payloads[key] <= 1)
    if not now.any():
        return schema.empty_table()
    _, first = np.unique(key[now], return_index=True)
    return batch.state.rows.select(schema.names).take(pa.array(np.sort(had[now][first])))


def kept_state(batch: DecidedBatch, kept: np.ndarray) -> MergeState:
    """The state after the batch, of these payloads, which ascend."""
    return MergeState(
        rows=payload_rows(batch, kept),
        ends=_rows_of(batch.nodes.ends, kept),
        published=batch.published[kept],
        tops=batch.state.tops,
    )


def _rows_of(matrix: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Rows of a matrix, column by column, as it is stored."""
    taken = np.empty((len(rows), matrix.shape[1]), dtype=matrix.dtype, order="F")
    for column in range(matrix.shape[1]):
        taken[:, column] = matrix[rows, column]
    return taken


def merged_counts(numbers: Sequence[int] | np.ndarray) -> dict[int, int]:
    """Numbers by feed, without those that are 0."""
    return {feed: int(number) for feed, number in enumerate(numbers) if number}
