"""Algorithm R3 (logical merge, IV-D): anything may come, in any order; a key identifies one row.

The paper's in2t is a tree of events, each with a small table of the end that every feed gives it, and of the end that
was published. Here it is a table of payloads and a matrix beside it, a row for each payload, a column for each feed:

    payload (once)                 nyse    mirror   published
    A  10:04  12.5                 10:20   open     10:20
    B  10:05  9.1                  absent  10:30    absent

A batch is merged for all its keys at once: rows of the state and elements get numbers (`row_codes`), the last statement
of each feed about each key goes into the matrix, the policies say what the merged stream should have, and the
difference to what was published goes out. Rows that nobody may change any more leave the state.

Cost: O(w + m) for w rows of the state and m elements, besides one sort of integers; memory O(w (p + s)) for payloads of
size p and s feeds, as in the paper's table IV.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa

from errata.merge import outputs
from errata.merge.choice import declared_properties
from errata.merge.elements import ABSENT
from errata.merge.guarantees import Finder
from errata.merge.multiset import expand_multisets
from errata.merge.outputs import DecidedBatch
from errata.merge.policies import NodeTable, Outcome, count_supporters, decide
from errata.merge.row_codes import group_rows
from errata.merge.statements import Statements, dropped_repeats, last_by_key, read_statements
from errata.merge.step import BrokenGuarantee, MergeCounts, MergeProgress, MergeState, MergeStep
from errata.model.feed import DisagreementPolicy, EmitPolicy, MergeAlgorithm
from errata.model.stream import Stream
from errata.model.time import LOWEST


def merge_general(stream: Stream, state: MergeState, elements: pa.Table, progress: MergeProgress) -> MergeStep:
    """Merge one batch, or one part of its keys."""
    if stream.merged.occurrence is None:
        said = read_statements(stream, state, elements, progress)
        return _merge_statements(stream, state, said, progress)
    expanded = expand_multisets(stream, state, elements, progress)
    said = read_statements(stream, state, expanded.elements, replace(progress, before=LOWEST))
    step = _merge_statements(stream, state, said, progress)
    return replace(
        step,
        algorithm=MergeAlgorithm.R4,
        behind=expanded.behind,
        refused=expanded.refused,
        counts=replace(step.counts, repeats=expanded.repeats),
    )


def _merge_statements(stream: Stream, state: MergeState, said: Statements, progress: MergeProgress) -> MergeStep:
    """Merge what the feeds say about keys that identify one row."""
    nodes = _state_after(stream, state, said)
    supporters = count_supporters(nodes.ends, progress.ranked)
    policy = stream.merged.policy
    first = outputs.first_rows(said, state.rows.num_rows)
    outcome = decide(nodes, supporters, progress, policy, _versions(stream, state, said, first))
    _keep_orphans(said, nodes, outcome)
    published = np.full(len(nodes.published), ABSENT, dtype=np.int64)
    stands = np.flatnonzero(outcome.end != ABSENT)
    published[outcome.wanted[stands]] = outcome.end[stands]
    batch = DecidedBatch(stream, state, said, nodes, supporters, outcome, published, first)
    kept = _unfrozen(batch, progress)
    after = outputs.kept_state(batch, kept)
    dropped = dropped_repeats(stream, said.behind, said.rows, progress)
    return MergeStep(
        algorithm=MergeAlgorithm.R3,
        inserts=outputs.insert_table(batch),
        corrections=outputs.correction_table(batch),
        behind=outputs.behind_table(stream, said.rows, said.end, said.behind & ~dropped),
        refused=outputs.refused_table(said.rows, said.refused),
        disagreements=outputs.disagreement_table(batch),
        agreed=outputs.agreed_table(batch),
        state=after,
        counts=_counts(batch, after, dropped, progress),
        broken=_gaps(batch, progress),
    )


def _state_after(stream: Stream, state: MergeState, said: Statements) -> NodeTable:
    """Who has what after the last statement of each feed about each key."""
    base, feeds = state.ends.shape
    count = len(said.node_first)
    ends = np.full((count, feeds), ABSENT, dtype=np.int64, order="F")
    ends[:base] = state.ends
    published = np.full(count, ABSENT, dtype=np.int64)
    published[:base] = state.published
    newest = np.full(count, ABSENT, dtype=np.int64) if stream.merged.policy.emit is EmitPolicy.EVERY else None
    counts = said.counts
    every = counts.all()
    for feed in range(feeds):
        mine = said.feed == feed
        elements = np.flatnonzero(mine if every else mine & counts)
        if not len(elements):
            continue
        last = last_by_key(said, elements)
        if base:
            ends[:base, feed][last[said.node_key[:base]] >= 0] = ABSENT
        last = last[last >= 0]
        last = last[~said.withdraws[last]]
        ends[said.node[last], feed] = said.end[last]
        if newest is not None:
            newest[said.node[last]] = said.end[last]
    family = None if said.family is None else said.family.codes
    ended = stream.merged.end is not None
    return NodeTable(ends, published, said.node_order, said.node_key, said.keys, ended, family, newest)


def _versions(stream: Stream, state: MergeState, said: Statements, first: np.ndarray) -> pa.ChunkedArray | None:
    """The version column's value of each payload."""
    policy = stream.merged.policy
    if policy.disagreement is not DisagreementPolicy.LATEST or policy.version is None:
        return None
    if policy.version == stream.merged.end:
        return None
    both = pa.chunked_array(
        [*state.rows[policy.version].chunks, *said.rows[policy.version].chunks], said.rows[policy.version].type
    )
    return both.take(pa.array(first))


def _keep_orphans(said: Statements, nodes: NodeTable, outcome: Outcome) -> None:
    """Rows that are published and that no feed is known to have said stay, until one says something else."""
    keys = np.flatnonzero((said.orphan >= 0) & (outcome.chosen < 0))
    if not len(keys):
        return
    spoken = last_by_key(said, np.flatnonzero(said.counts))[keys] >= 0
    keys = keys[~spoken]
    outcome.wanted[keys] = said.orphan[keys]
    outcome.end[keys] = nodes.published[said.orphan[keys]]


def _unfrozen(batch: DecidedBatch, progress: MergeProgress) -> np.ndarray:
    """The payloads of keys that may still change. What detached feeds have said holds nothing."""
    ends, stable = batch.nodes.ends, progress.stable
    published = batch.published != ABSENT
    open_nodes = published & (batch.published >= stable)
    for feed, each in enumerate(progress.feeds):
        if each.attached:
            open_nodes |= (ends[:, feed] >= stable) & (ends[:, feed] != ABSENT)
    if batch.stream.merged.end is None:
        open_nodes &= batch.nodes.order >= stable
    open_nodes |= _awaited(batch, progress)
    key = batch.nodes.key if batch.said.family_key is None else batch.said.family_key
    open_keys = np.zeros(len(key), dtype=bool)  # there are no more keys than payloads
    open_keys[key[open_nodes]] = True
    return np.flatnonzero(((batch.supporters.count > 0) | published) & open_keys[key])


def _awaited(batch: DecidedBatch, progress: MergeProgress) -> np.ndarray:
    """The payloads that are not published, and that attached feeds have of keys that may still turn out to be there."""
    awaited: np.ndarray = batch.outcome.awaited[batch.nodes.key]
    if awaited.any():
        attached = [feed for feed, each in enumerate(progress.feeds) if each.attached]
        awaited &= np.any(batch.nodes.ends[:, attached] != ABSENT, axis=1)
    return awaited


def _gaps(batch: DecidedBatch, progress: MergeProgress) -> list[BrokenGuarantee]:
    """That the leader is declared complete, and lacks a row which another feed has for certain and this batch says."""
    leader = progress.leader
    if leader is None or not batch.outcome.gaps.any():
        return []
    said = batch.said
    stated = np.flatnonzero(said.counts & ~said.withdraws)
    shown = stated[batch.outcome.gaps[said.key[stated]]]
    if not len(shown):
        return []
    first = int(shown[0])
    find = Finder(batch.stream, said.rows, declared_properties(batch.stream))
    return [find.lacking(leader, first, reached=progress.feeds[leader].stable)]


def _counts(batch: DecidedBatch, after: MergeState, dropped: np.ndarray, progress: MergeProgress) -> MergeCounts:
    """What became of the elements."""
    feeds = batch.nodes.ends.shape[1]
    repeats = _repeats(batch) | dropped
    outcome, leader = batch.outcome, progress.leader
    filled = 0 if leader is None else int(np.count_nonzero(outcome.filled))
    return MergeCounts(
        repeats=outputs.merged_counts(np.bincount(batch.said.feed[repeats], minlength=feeds)),
        held=int(np.count_nonzero(after.published == ABSENT)) - int(np.count_nonzero(batch.state.published == ABSENT)),
        filled={leader: filled} if leader is not None and filled else {},
    )


def _repeats(batch: DecidedBatch) -> np.ndarray:
    """The statements that say what had been said before: in the state, or earlier in the batch."""
    said = batch.said
    counts = np.flatnonzero(said.counts)
    repeats = np.zeros(len(said.feed), dtype=bool)
    stated = counts[~said.withdraws[counts]]
    if len(stated):
        repeats[stated] = True
        new = stated[_first_of_pairs(batch, stated)]
        repeats[new] = _said_in_state(batch, new)
    withdrawn = counts[said.withdraws[counts]]
    if len(withdrawn):
        repeats[withdrawn] = ~_stood_before(batch, counts)[said.withdraws[counts]]
    return repeats


def _first_of_pairs(batch: DecidedBatch, stated: np.ndarray) -> np.ndarray:
    """Of these elements the first one with each payload and end, by its place among them."""
    node = batch.said.node[stated]
    if batch.stream.merged.end is not None:
        return group_rows([node, batch.said.end[stated]]).firsts
    first = np.full(len(batch.nodes.order), -1, dtype=np.int64)
    first[node[::-1]] = np.arange(len(node))[::-1]
    firsts: np.ndarray = np.sort(first[first >= 0])
    return firsts


def _said_in_state(batch: DecidedBatch, elements: np.ndarray) -> np.ndarray:
    """Whether the state had the row of each of these elements, with its end, from any feed or as published."""
    node, end = batch.said.node[elements], batch.said.end[elements]
    known = np.flatnonzero(node < batch.known)
    had = np.zeros(len(elements), dtype=bool)
    if len(known):
        rows, ends = node[known], end[known]
        found = batch.state.published[rows] == ends
        for feed in range(batch.state.ends.shape[1]):
            found |= batch.state.ends[rows, feed] == ends
        had[known] = found
    return had


def _stood_before(batch: DecidedBatch, counts: np.ndarray) -> np.ndarray:
    """Whether the feed had the row of each of these elements just before it."""
    said, state = batch.said, batch.state
    feeds = state.ends.shape[1]
    chain = said.key[counts] * feeds + said.feed[counts]
    order = np.argsort(chain, kind="stable")
    starts = np.ones(len(order), dtype=bool)
    starts[1:] = chain[order][1:] != chain[order][:-1]
    before = np.empty(len(order), dtype=bool)
    before[1:] = ~said.withdraws[counts][order][:-1]
    firsts = order[starts]
    before[starts] = _in_state(batch, said.key[counts][firsts], said.feed[counts][firsts])
    stood = np.empty(len(order), dtype=bool)
    stood[order] = before
    return stood


def _in_state(batch: DecidedBatch, keys: np.ndarray, feeds: np.ndarray) -> np.ndarray:
    """Whether each of these feeds had each of these keys before the batch; of orphans all had."""
    has: np.ndarray = batch.said.orphan[keys] >= 0
    own = batch.nodes.key[: batch.known]
    for feed in np.unique(feeds):
        rows = np.zeros(batch.nodes.keys, dtype=bool)
        rows[own[batch.state.ends[:, feed] != ABSENT]] = True
        here = feeds == feed
        has[here] |= rows[keys[here]]
    return has
