"""The elements of a batch of R4, and how often each feed has had which end, as numbers."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from errata.merge.elements import ABSENT, ELEMENT, FEED, OLD_END, ElementKind, payload_names
from errata.merge.filling import ChainMarks, fill_adjustments
from errata.merge.row_codes import RowGroups, group_rows, stable_order, table_words
from errata.merge.state import order_values
from errata.merge.statements import COUNTS, NEVER_INSERTED, in_order
from errata.merge.step import MergeProgress, MergeState
from errata.model.stream import Stream

UNKNOWN = -1
"""In place of an end: none is meant."""


@dataclass(frozen=True, slots=True)
class FedBatch:
    """The elements of a batch in their order, and the rows of the state, as numbers. A payload is one without
    occurrence; a chain is what one feed says about one payload."""

    rows: pa.Table
    payloads: RowGroups
    """Of the rows of the state and then the elements."""
    key: np.ndarray
    """The key of each payload."""
    order: np.ndarray
    """The order field of each payload."""
    known: int
    """How many rows the state has."""
    feeds: int
    feed: np.ndarray
    kind: np.ndarray
    end: np.ndarray
    behind: np.ndarray
    refused: np.ndarray

    @property
    def node(self) -> np.ndarray:
        """The payload of each element."""
        return self.payloads.codes[self.known :]

    @property
    def chain(self) -> np.ndarray:
        """The chain of each element."""
        chains: np.ndarray = self.node * self.feeds + self.feed
        return chains


@dataclass(frozen=True, slots=True)
class EndCounts:
    """How often each feed has each payload with each end: a row for each of the three that meet."""

    chain: np.ndarray
    """They ascend; and the ends, within each chain."""
    end: np.ndarray
    count: np.ndarray
    begins: np.ndarray
    """For each number of a chain where its ends begin; the next one is where they end."""
    row: np.ndarray
    """The number of each payload and end, whichever feed has it."""
    most: np.ndarray
    """How often, at most, a feed has had each of those."""
    of_element: np.ndarray
    """The row of each element's own end."""
    of_old: np.ndarray
    """The row of the end that each element says it replaces; -1 if it says none."""


def read_fed_batch(stream: Stream, state: MergeState, elements: pa.Table, progress: MergeProgress) -> FedBatch:
    fed = stream.as_fed
    taken = in_order(elements)
    old = state.rows.drop_columns([stream.merged.occurrence])
    withdraws = taken[ELEMENT].to_numpy() == int(ElementKind.WITHDRAW)
    marks = ChainMarks(barred=withdraws, ended=np.zeros(taken.num_rows, dtype=bool))  # others of the row may be left
    filled = fill_adjustments(fed, replace(state, rows=old), taken, marks)
    rows, names, base = filled.rows, payload_names(fed), old.num_rows
    both = pa.concat_tables([old.select(names), rows.select(names)])
    words = {name: table_words(both, [name]) for name in names}
    payloads = group_rows([word for name in names for word in words[name]])
    key = group_rows([word[payloads.firsts] for name in fed.key for word in words[name]])
    order = order_values(both, stream)
    known = np.zeros(key.count, dtype=bool)
    known[key.codes[payloads.codes[:base]]] = True
    passed = order[base:] < progress.before
    if rows[stream.order].null_count:
        passed |= rows[stream.order].is_null().to_numpy()
    behind = passed & ~known[key.codes[payloads.codes[base:]]]
    return FedBatch(
        rows=rows,
        payloads=payloads,
        key=key.codes,
        order=order[payloads.firsts],
        known=base,
        feeds=state.ends.shape[1],
        feed=rows[FEED].to_numpy().astype(np.int64),
        kind=rows[ELEMENT].to_numpy(),
        end=filled.ends,
        behind=behind,
        refused=np.where(filled.unknown & ~behind, NEVER_INSERTED, COUNTS).astype(np.int8),
    )


def count_ends(state: MergeState, batch: FedBatch) -> EndCounts:
    """How often feeds had each end of the payloads of a batch before it."""
    chain = batch.chain
    touched = np.zeros(batch.payloads.count, dtype=bool)
    touched[batch.node] = True
    own = batch.payloads.codes[: batch.known]
    old_chains, old_ends = [], []
    for feed in range(batch.feeds):
        has = np.flatnonzero(touched[own] & (state.ends[:, feed] != ABSENT))
        old_chains.append(own[has] * batch.feeds + feed)
        old_ends.append(state.ends[has, feed])
    said = batch.rows[OLD_END]
    claims = np.flatnonzero(said.is_valid().to_numpy()) if said.null_count < len(said) else np.empty(0, dtype=np.int64)
    claimed = said.fill_null(0).to_numpy()[claims]
    had = sum(len(each) for each in old_chains)
    chains = np.concatenate([*old_chains, chain, chain[claims]])
    ends = np.concatenate([*old_ends, batch.end, claimed])
    pairs = group_rows([chains, ends])
    by_end = _by_chain_and_end(chains[pairs.firsts], ends[pairs.firsts])
    place = np.empty(pairs.count, dtype=np.int64)
    place[by_end] = np.arange(pairs.count)
    codes = place[pairs.codes]
    of_old = np.full(len(chain), UNKNOWN, dtype=np.int64)
    of_old[claims] = codes[had + len(chain) :]
    firsts = pairs.firsts[by_end]
    count = np.bincount(codes[:had], minlength=pairs.count)
    rows = group_rows([chains[firsts] // batch.feeds, ends[firsts]])
    most = np.zeros(rows.count, dtype=np.int64)
    np.maximum.at(most, rows.codes, count)
    return EndCounts(
        chain=chains[firsts],
        end=ends[firsts],
        count=count,
        begins=np.concatenate([[0], np.cumsum(np.bincount(chains[firsts], minlength=len(touched) * batch.feeds))]),
        row=rows.codes,
        most=most,
        of_element=codes[had : had + len(chain)],
        of_old=of_old,
    )


def _by_chain_and_end(chains: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """The order by chain and end. Most chains have one end."""
    order = stable_order(chains)
    sorted_chains = chains[order]
    alike = sorted_chains[1:] == sorted_chains[:-1]
    several = np.zeros(len(order), dtype=bool)
    several[1:] |= alike
    several[:-1] |= alike
    places = np.flatnonzero(several)
    rows = order[places]
    order[places] = rows[np.lexsort((ends[rows], chains[rows]))]
    return order
