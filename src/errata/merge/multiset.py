"""What R4 adds to R3 (logical merge, IV-E): rows may repeat, and a feed has a multiset of ends for each payload.

The paper's in3t has a third tier below each feed, the counts of its ends. Here equal rows are numbered by the
occurrence column, and a feed's ends of one payload, sorted, are those of occurrence 0, 1, 2 …:

    payload     occurrence   nyse     mirror
    A  10:04    0            10:09    10:09
    A  10:04    1            10:20    open
    A  10:04    2            absent   open

A batch first changes the multisets; what then differs, occurrence by occurrence, is a statement about a row that its
key identifies, and R3 merges it. Where rows with the same key have different payloads, each payload and occurrence gets
the next number that its key has not used. All rows of a key are forgotten together, so that no number is used twice.

Inserts are counted for all multisets at once. Multisets that are adjusted, or that a feed changes behind its own stable
point, are gone through element by element, side by side.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa

from errata.merge.elements import (
    OWN_STABLE,
    ElementKind,
)
from errata.merge.fed_batch import UNKNOWN, EndCounts, FedBatch, count_ends, read_fed_batch
from errata.merge.occurrences import occurrence_elements
from errata.merge.outputs import behind_table, merged_counts, refused_table
from errata.merge.row_codes import run_starts, stable_order, whole_values
from errata.merge.statements import CHANGES, COUNTS, INSERTS, WITHDRAWS, dropped_repeats
from errata.merge.step import MergeProgress, MergeState
from errata.model.stream import Stream
from errata.model.time import LOWEST


@dataclass(frozen=True, slots=True)
class ExpandedElements:
    """A batch of R4 as elements about single occurrences."""

    elements: pa.Table
    behind: pa.Table
    refused: pa.Table
    repeats: Mapping[int, int]


def expand_multisets(
    stream: Stream, state: MergeState, elements: pa.Table, progress: MergeProgress
) -> ExpandedElements:
    """What a batch changes about single occurrences of rows."""
    batch = read_fed_batch(stream, state, elements, progress)
    counts = count_ends(state, batch)
    counted = np.flatnonzero(~batch.behind & (batch.refused == COUNTS))
    repeats = np.zeros(batch.rows.num_rows, dtype=bool)
    _take_elements(batch, counts, counted, repeats)
    dropped = dropped_repeats(stream, batch.behind, batch.rows, progress)
    accepted = counted[batch.refused[counted] == COUNTS]
    return ExpandedElements(
        elements=occurrence_elements(stream, state, batch, counts, accepted),
        behind=behind_table(stream, batch.rows, batch.end, batch.behind & ~dropped),
        refused=refused_table(batch.rows, batch.refused),
        repeats=merged_counts(np.bincount(batch.feed[repeats | dropped], minlength=batch.feeds)),
    )


# Elements taken.


def _take_elements(batch: FedBatch, counts: EndCounts, counted: np.ndarray, repeats: np.ndarray) -> None:
    """Change the counts by these elements; mark those that repeat, and those that are refused."""
    chain = batch.chain
    stable = whole_values(batch.rows[OWN_STABLE], LOWEST)
    intricate = (batch.kind != int(ElementKind.INSERT)) | (stable > batch.order[batch.node])
    slow = np.zeros(batch.payloads.count * batch.feeds, dtype=bool)
    slow[chain[counted[intricate[counted]]]] = True
    plain = counted[~slow[chain[counted]]]
    _mark_repeats(counts, plain, repeats)
    np.add.at(counts.count, counts.of_element[plain], 1)
    element = counted[slow[chain[counted]]]
    if not len(element):
        return
    element = element[stable_order(chain[element])]
    depth = np.arange(len(element)) - run_starts(chain[element])
    by_depth = stable_order(depth)
    cuts = np.searchsorted(depth[by_depth], np.arange(int(depth.max()) + 2))
    for low, high in pairwise(cuts):
        here = element[by_depth[low:high]]
        _take_turn(batch, counts, here, stable[here], repeats)


def _mark_repeats(counts: EndCounts, inserts: np.ndarray, repeats: np.ndarray) -> None:
    """Mark the inserts that do not bring a row more often than some feed has had it."""
    if not len(inserts):
        return
    pair = counts.of_element[inserts]
    order = stable_order(pair)
    nth = np.empty(len(inserts), dtype=np.int64)
    nth[order] = np.arange(len(inserts)) - run_starts(pair[order])
    nth += counts.count[pair] + 1
    row = counts.row[pair]
    order = stable_order(row)
    width = int(nth.max()) + 1
    reached = np.maximum.accumulate(row[order] * width + nth[order]) - row[order] * width
    before = np.zeros(len(inserts), dtype=np.int64)
    before[1:] = np.where(row[order][1:] == row[order][:-1], reached[:-1], 0)
    repeats[inserts[order]] = nth[order] <= np.maximum(before, counts.most[row[order]])
    np.maximum.at(counts.most, row, nth)


def _take_turn(
    batch: FedBatch, counts: EndCounts, element: np.ndarray, stable: np.ndarray, repeats: np.ndarray
) -> None:
    """Take one element of each of some chains."""
    kind, own = batch.kind[element], counts.of_element[element]
    frozen = batch.order[batch.node[element]] < stable
    target = _targets(batch, counts, element)
    has = target != UNKNOWN
    inserts = (kind == int(ElementKind.INSERT)) | ((kind == int(ElementKind.ADJUST)) & ~has)
    adjusts, withdraws = (kind == int(ElementKind.ADJUST)) & has, kind == int(ElementKind.WITHDRAW)
    again = inserts & frozen & (counts.count[own] > 0)
    same = (adjusts & (target == own)) | (withdraws & ~has) | again
    reason = np.zeros(len(element), dtype=np.int8)
    reason[inserts & frozen & ~again] = INSERTS
    low = np.minimum(counts.end[own], counts.end[target]) < stable
    reason[adjusts & ~same & frozen & low] = CHANGES
    reason[withdraws & ~same & frozen] = WITHDRAWS
    batch.refused[element] = reason
    kept = (reason == COUNTS) & ~same
    comes, goes = kept & (inserts | adjusts), kept & (adjusts | withdraws)
    _mark_repeats(counts, element[kept & inserts], repeats)
    counts.count[own[comes]] += 1
    counts.count[target[goes]] -= 1
    repeats[element[same]] = True


def _targets(batch: FedBatch, counts: EndCounts, element: np.ndarray) -> np.ndarray:
    """The end that each of these elements, of different chains, replaces or withdraws: the one it claims, if the feed
    has it; the one that it gives; else the greatest that the feed has. -1 if the feed has none."""
    own, claimed = counts.of_element[element], counts.of_old[element]
    chain = batch.chain[element]
    low, high = counts.begins[chain], counts.begins[chain + 1]
    target = np.full(len(element), UNKNOWN, dtype=np.int64)
    lengths = high - low
    at = np.repeat(low - np.cumsum(lengths) + lengths, lengths) + np.arange(int(lengths.sum()))
    of = np.repeat(np.arange(len(element)), lengths)
    standing = counts.count[at] > 0
    target[of[standing]] = at[standing]  # ends ascend, so that the greatest comes last
    gives = (counts.count[own] > 0) & ((claimed != UNKNOWN) | (batch.kind[element] == int(ElementKind.WITHDRAW)))
    target = np.where(gives, own, target)
    return np.where((claimed != UNKNOWN) & (counts.count[claimed] > 0), claimed, target)
