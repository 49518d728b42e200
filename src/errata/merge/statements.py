"""What the elements of a batch come to: which of them count, as numbers beside the rows of the state.

Rows of the state and elements are numbered in one sequence, the state's first; equal payloads have one number (`node`),
keys another (`key`). What one feed says about one key is a chain. In most chains the last element counts, and all keys
are decided at once. Only chains in which a feed comes back behind its own stable point are gone through step by step,
all of them side by side: the first elements of all chains, then the second ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa

from errata.merge.elements import ABSENT, ELEMENT, FEED, OWN_STABLE, SEQ, ElementKind, payload_names
from errata.merge.filling import ChainMarks, FilledElements, fill_adjustments, no_marks, orphan_rows
from errata.merge.row_codes import RowGroups, group_rows, run_starts, stable_order, table_words, whole_values
from errata.merge.state import order_values
from errata.merge.step import MergeProgress, MergeState
from errata.model.stream import Stream
from errata.model.time import LOWEST

REASONS = (
    "it adjusts a row that the feed has not inserted, and does not give the whole row",
    "it inserts a row behind the stable point that the feed itself had given",
    "it changes a row behind the stable point that the feed itself had given",
    "it withdraws a row behind the stable point that the feed itself had given",
)
"""Why elements are refused."""
COUNTS, NEVER_INSERTED, INSERTS, CHANGES, WITHDRAWS = range(5)
"""Values of `Statements.refused`: none, and the reasons from 1 on."""


@dataclass(frozen=True, slots=True)
class Statements:
    """The elements of a batch, in their order, beside the rows of the state."""

    rows: pa.Table
    """The elements, with the columns filled in that an adjustment does not give."""
    feed: np.ndarray
    withdraws: np.ndarray
    end: np.ndarray
    node: np.ndarray
    """The payload of each element, by its number. The payloads of the state come first, as its rows are."""
    node_first: np.ndarray
    """The first row with each payload, counted through the state and then the elements."""
    node_order: np.ndarray
    """The order field of each payload; 0 if it has none, as withdrawals may."""
    node_key: np.ndarray
    """The key of each payload, by its number."""
    keys: int
    """How many different keys there are."""
    family: RowGroups | None
    """Of R4, the payloads that differ by their occurrence alone."""
    family_key: np.ndarray | None
    """And the key of each payload without the occurrence, by a number of its own."""
    known: np.ndarray
    """Whether the state knows each key."""
    orphan: np.ndarray
    """For each key its row in the state, if that is published and no feed is known to have said any; else -1."""
    behind: np.ndarray
    """Elements of unknown keys that the merged stable point has passed."""
    refused: np.ndarray
    """Of each element 0, or the number of the reason in `REASONS`, from 1."""

    @property
    def counts(self) -> np.ndarray:
        """The elements that count."""
        kept: np.ndarray = ~self.behind & (self.refused == COUNTS)
        return kept

    @property
    def key(self) -> np.ndarray:
        """The key of each element."""
        keys: np.ndarray = self.node_key[self.node]
        return keys


def read_statements(stream: Stream, state: MergeState, elements: pa.Table, progress: MergeProgress) -> Statements:
    """What the elements say, and which of them count."""
    rows = in_order(elements)
    marks = no_marks(rows.num_rows)
    while True:
        filled = fill_adjustments(stream, state, rows, marks)
        said = _number_rows(stream, state, filled, progress)
        _refuse_contradictions(said, state)
        found = _marks_of(said, filled)
        if found is None or found.same_as(marks):
            return said
        marks = found


def in_order(elements: pa.Table) -> pa.Table:
    """The elements in the order in which they are taken."""
    taken = elements[SEQ].to_numpy()
    if np.all(taken[1:] > taken[:-1]):
        return elements
    return elements.take(pa.array(np.argsort(taken, kind="stable")))


def _number_rows(stream: Stream, state: MergeState, filled: FilledElements, progress: MergeProgress) -> Statements:
    """The numbers of payloads and keys, and what is behind."""
    rows, base, names = filled.rows, state.rows.num_rows, payload_names(stream)
    both = pa.concat_tables([state.rows.select(names), rows.select(names)])
    words = {name: table_words(both, [name]) for name in names}
    nodes = group_rows([word for name in names for word in words[name]])
    firsts = {name: [word[nodes.firsts] for word in words[name]] for name in names}
    keys = group_rows([word for name in stream.key for word in firsts[name]])
    order = order_values(both, stream)
    known = np.zeros(keys.count, dtype=bool)
    known[keys.codes[:base]] = True
    node = nodes.codes[base:]
    passed = order[base:] < progress.before
    if rows[stream.order].null_count:
        passed |= rows[stream.order].is_null().to_numpy()
    behind = passed & ~known[keys.codes[node]]
    family, family_key = _families(stream, firsts)
    kind = rows[ELEMENT].to_numpy()
    withdraws = kind == int(ElementKind.WITHDRAW)
    if stream.merged.end is not None:
        withdraws |= (kind == int(ElementKind.ADJUST)) & (filled.ends == order[base:]) & ~filled.unknown
    return Statements(
        rows=rows,
        feed=rows[FEED].to_numpy(),
        withdraws=withdraws,
        end=filled.ends,
        node=node,
        node_first=nodes.firsts,
        node_order=order[nodes.firsts],
        node_key=keys.codes,
        keys=keys.count,
        family=family,
        family_key=family_key,
        known=known,
        orphan=orphan_rows(state, keys.codes[:base], keys.count),
        behind=behind,
        refused=np.where(filled.unknown & ~behind, NEVER_INSERTED, COUNTS).astype(np.int8),
    )


def _families(stream: Stream, words: dict[str, list[np.ndarray]]) -> tuple[RowGroups | None, np.ndarray | None]:
    """The groups of payloads, of which these are the words by column, that only the occurrence tells apart."""
    if stream.merged.occurrence is None:
        return None, None
    fed = stream.as_fed
    family = group_rows([word for name in payload_names(fed) for word in words[name]])
    return family, group_rows([word for name in fed.key for word in words[name]]).codes


def _marks_of(said: Statements, filled: FilledElements) -> ChainMarks | None:
    """The elements from which later ones of their chains must not be filled; None if none is filled.

    What comes of an element depends on the marks of those before it in its chain. So each time that marks are found,
    they are right for one more element of each chain at least, and in the end they are what they were before."""
    if filled.chain is None or not filled.partial.any():
        return None
    partial = np.flatnonzero(filled.partial)
    last = np.full(int(filled.chain.max()) + 1, -1, dtype=np.int64)
    last[filled.chain[partial]] = partial
    used = last[filled.chain] > np.arange(len(filled.chain))
    barred = used & ((said.refused > NEVER_INSERTED) | said.behind)
    adjusts = said.rows[ELEMENT].to_numpy() == int(ElementKind.ADJUST)
    return ChainMarks(barred, used & said.withdraws & adjusts & ~barred)


def dropped_repeats(stream: Stream, behind: np.ndarray, rows: pa.Table, progress: MergeProgress) -> np.ndarray:
    """Of the elements behind the merged stable point the inserts that can only repeat: nobody who leads has gaps, and
    the feed that says them lags. What is behind the feed's own stable point, too, is late, and may be new."""
    candidates = [feed.complete for feed in progress.feeds if feed.leads]
    if not candidates or not all(candidates) or not behind.any():
        return np.zeros(len(behind), dtype=bool)
    own = np.array([feed.before for feed in progress.feeds])[rows[FEED].to_numpy()]
    orders = order_values(rows, stream)
    dropped: np.ndarray = behind & (rows[ELEMENT].to_numpy() == int(ElementKind.INSERT)) & (orders >= own)
    return dropped


def last_by_key(said: Statements, elements: np.ndarray) -> np.ndarray:
    """For each key the last of these elements about it, or -1. They ascend."""
    last = np.full(said.keys, -1, dtype=np.int64)
    last[said.node_key[said.node[elements]]] = elements
    return last


# Elements behind their own feed's stable point.


@dataclass(frozen=True, slots=True)
class _Standing:
    """What each of some chains stands for at a moment."""

    node: np.ndarray
    """The payload; -1 if the feed does not have the row."""
    end: np.ndarray


def _refuse_contradictions(said: Statements, state: MergeState) -> None:
    """Mark the elements that change what their own feed had said to be stable, in `said.refused`."""
    stable = whole_values(said.rows[OWN_STABLE], LOWEST)
    if not np.any(stable > LOWEST):
        return
    eligible = said.counts
    key = said.key
    chain = key * state.ends.shape[1] + said.feed
    flagged = np.zeros(said.keys * state.ends.shape[1], dtype=bool)
    flagged[chain[eligible & (stable > _lowest_order(said)[key])]] = True
    element = np.flatnonzero(eligible & flagged[chain])
    if not len(element):
        return
    element = element[stable_order(chain[element])]
    begins = run_starts(chain[element])
    depth = np.arange(len(element)) - begins
    at = np.cumsum(depth == 0) - 1
    concerned = chain[element][depth == 0]
    by_depth = stable_order(depth)
    cuts = np.searchsorted(depth[by_depth], np.arange(int(depth.max()) + 2))
    standing = _standing_before(said, state, concerned)
    for low, high in pairwise(cuts):
        here = by_depth[low:high]
        _take_turn(said, standing, element[here], at[here], stable[element[here]])


def _lowest_order(said: Statements) -> np.ndarray:
    """For each key the least order field of its rows, in the state or in the batch."""
    lowest = np.full(said.keys, np.iinfo(np.int64).max, dtype=np.int64)
    np.minimum.at(lowest, said.node_key, said.node_order)
    return lowest


def _standing_before(said: Statements, state: MergeState, chains: np.ndarray) -> _Standing:
    """What the feeds of these chains had said before the batch."""
    feeds = state.ends.shape[1]
    key, feed = chains // feeds, chains % feeds
    node = said.orphan[key]
    end = np.where(node >= 0, state.published[node], ABSENT) if len(state.published) else np.full(len(node), ABSENT)
    own = said.node_key[: len(state.published)]
    for number in range(feeds):
        has = np.flatnonzero(state.ends[:, number] != ABSENT)
        rows = np.full(said.keys, -1, dtype=np.int64)
        rows[own[has]] = has
        mine = np.flatnonzero((feed == number) & (rows[key] >= 0))
        node[mine] = rows[key[mine]]
        end[mine] = state.ends[node[mine], number]
    return _Standing(node, end)


def _take_turn(
    said: Statements, standing: _Standing, element: np.ndarray, chain: np.ndarray, stable: np.ndarray
) -> None:
    """Take one element of each of these chains: refuse it, or let it stand."""
    old_node, old_end = standing.node[chain], standing.end[chain]
    exists = old_node >= 0
    old_order = np.where(exists, said.node_order[old_node], np.iinfo(np.int64).max)
    node, end = said.node[element], said.end[element]
    withdraws = said.withdraws[element]
    same = exists & (node == old_node) & ~withdraws
    moved = same & (end != old_end) & (old_order < stable) & (np.minimum(end, old_end) < stable)
    replaced = ~same & ~withdraws & (np.minimum(old_order, said.node_order[node]) < stable)
    withdrawn = exists & withdraws & (old_order < stable)
    reason = np.zeros(len(element), dtype=np.int8)
    reason[moved | (replaced & exists)] = CHANGES
    reason[replaced & ~exists] = INSERTS
    reason[withdrawn] = WITHDRAWS
    said.refused[element] = reason
    kept = reason == COUNTS
    standing.node[chain[kept]] = np.where(withdraws, -1, node)[kept]
    standing.end[chain[kept]] = np.where(withdraws, ABSENT, end)[kept]
