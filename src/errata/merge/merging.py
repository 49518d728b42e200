"""One batch merged by the algorithm of its stream, and by the next one that is correct if a guarantee is broken.

R0 to R2 look at whole batches before anything is decided. If a batch breaks what they need, they say what is broken and
decide nothing; the same batch is then merged by the cheapest algorithm that does without. That one has to know the rows
which may still change: those of the archive from the merged stable point on, with the feeds that have said them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pyarrow as pa

from errata.merge.choice import ORDERED_ALGORITHMS, next_algorithm
from errata.merge.general import merge_general
from errata.merge.ordered import merge_ordered, restore_state
from errata.merge.step import BrokenGuarantee, MergeProgress, MergeState, MergeStep
from errata.model.feed import MergeAlgorithm
from errata.model.stream import Stream

PublishedRows = Callable[[], pa.Table]
"""Reads the rows of the merged stream's archive whose order field is at or after the merged stable point before the
batch: the stream's columns, `_batch` and `_pos`."""


def merge_batch(
    stream: Stream,
    algorithm: MergeAlgorithm,
    state: MergeState,
    elements: pa.Table,
    progress: MergeProgress,
    published: PublishedRows,
) -> MergeStep:
    """Merge a batch, whatever it breaks. The step says which algorithm has done it, and all that was broken on the
    way; that algorithm is the stream's from now on."""
    broken: list[BrokenGuarantee] = []
    while True:
        step = merge_by(stream, algorithm, state, elements, progress)
        broken += step.broken
        if not step.broken or algorithm not in ORDERED_ALGORITHMS:
            return replace(step, broken=tuple(broken))
        following = next_algorithm(stream, algorithm, broken).algorithm
        progress = without_broken(progress, step.broken)
        state = state_for(following, stream, state, progress, published)
        algorithm = following


def merge_by(
    stream: Stream, algorithm: MergeAlgorithm, state: MergeState, elements: pa.Table, progress: MergeProgress
) -> MergeStep:
    """Merge a batch, or one part of its keys, by this algorithm alone. If one of R0 to R2 says that something is
    broken, it has decided nothing: for a batch in parts, all of them are to be merged again by `next_algorithm` of what
    any of them found, each with its `state_for` it, and `without_broken` progress. R3 and R4 lose nothing by it."""
    if algorithm in ORDERED_ALGORITHMS:
        return merge_ordered(stream, algorithm, state, elements, progress)
    return merge_general(stream, state, elements, progress)


def without_broken(progress: MergeProgress, broken: Sequence[BrokenGuarantee]) -> MergeProgress:
    """The progress in which feeds that turned out to have gaps are not taken for complete: what they lack and others
    have is no reason to withdraw it."""
    gaps = {each.feed for each in broken if not each.left.complete}
    feeds = [replace(each, complete=each.complete and number not in gaps) for number, each in enumerate(progress.feeds)]
    return replace(progress, feeds=tuple(feeds))


def state_for(
    algorithm: MergeAlgorithm, stream: Stream, state: MergeState, progress: MergeProgress, published: PublishedRows
) -> MergeState:
    """The state of a cheaper algorithm as this one needs it. R1 remembers what R0 does; the others need rows."""
    if algorithm is MergeAlgorithm.R1:
        return state
    return restore_state(algorithm, stream, state, published(), progress)
