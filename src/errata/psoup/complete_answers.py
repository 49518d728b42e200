"""Complete answers (PSOUP-COMPLETE, section 5): the rows of the present window, kept and carried on by each commit.

    commit ─► change of each source's rows ─► change of the combinations ─► answer

The present is the newest commit and the least stable point of the sources, which moves with commits alone; so between
two commits an answer is only handed out. A commit costs what it changed: rows that left take their combinations with
them, and rows that entered are joined with the present rows of the other sources. Nothing else is joined again.

    entered(i) ⋈ sources before i, without what entered ⋈ sources after i, with it         for each source i

Each new combination has a first source whose row entered, and is found there, once. Items, DISTINCT and aggregates over
joins are computed from the combinations when they have changed; aggregates of one source come from its ranked tree.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from errata.model.registered import RegisteredPlan, RegisteredQuery
from errata.model.stream import Stream
from errata.model.time import Interval
from errata.psoup.aggregate_trees import LOCKS, AggregateTrees
from errata.psoup.byte_cache import ByteCache
from errata.psoup.invoke import aggregate_row, combined_rows
from errata.psoup.joins import Combinations, check_joined, in_order, join_rows
from errata.psoup.kept_rows import NO_CONTENT, KeptRows, RangeContent, RowChange
from errata.psoup.selection import PartRange, Selector, SourceRead

ANSWER_CACHE_BYTES = 256 * 1024 * 1024
"""Bytes of complete answers, with the rows that they are made of, that a reader keeps in memory."""


@dataclass(frozen=True, slots=True)
class SourceState:
    """The rows of one source in its window."""

    content: RangeContent
    kept: KeptRows

    @property
    def nbytes(self) -> int:
        return self.kept.nbytes + 500 * (1 + len(self.content.ranges))


@dataclass(frozen=True, slots=True)
class CompleteState:
    """The answer of a query as of a commit, and what it is made of."""

    commit_id: int
    sources: tuple[SourceState, ...]
    combinations: Combinations
    """The numbers of the rows of each combination; none for a single source."""
    rows: pa.Table
    matched: int
    """Rows of the sources that satisfy the conjunctions in the windows."""
    windows: tuple[Interval, ...]

    @property
    def nbytes(self) -> int:
        kept = sum(each.nbytes for each in self.sources) + sum(each.nbytes for each in self.combinations)
        return int(kept + self.rows.nbytes)


class CompleteAnswers:
    """The complete answers of a reader's queries. Threads share it."""

    def __init__(self, selector: Selector, trees: AggregateTrees, max_bytes: int = ANSWER_CACHE_BYTES) -> None:
        self._selector = selector
        self._trees = trees
        self._states: ByteCache[int, CompleteState] = ByteCache(max_bytes)
        self._locks = [threading.Lock() for _ in range(LOCKS)]

    def kept(self, query: RegisteredQuery, commit_id: int) -> CompleteState | None:
        """The present answer, if it has been carried on to the commit, which is the newest."""
        state = self._states.get(query.number)
        return state if state is not None and state.commit_id == commit_id else None

    def carry_on(self, query: RegisteredQuery, reads: Sequence[SourceRead]) -> CompleteState | None:
        """The answer as of the snapshots of these reads, whose windows are the present ones; None where it has been
        carried on beyond them."""
        commit_id = reads[0].snapshot.commit_id
        with self._locks[query.number % LOCKS]:
            state = self._states.get(query.number)
            if state is not None and state.commit_id > commit_id:
                return None
            if state is None or state.commit_id < commit_id:
                state = self._carried_on(query, state, reads)
                if state is not None:
                    self._states.put(query.number, state, state.nbytes)
        return state

    def _carried_on(
        self, query: RegisteredQuery, state: CompleteState | None, reads: Sequence[SourceRead]
    ) -> CompleteState | None:
        if query.plan.aggregates and len(reads) == 1:
            (read,) = reads
            tree = self._trees.aggregate(query, read.snapshot, read.wanted, read.window)
            if tree is None:
                return None
            rows = aggregate_row(query.plan, tree.values)
            return CompleteState(read.snapshot.commit_id, (), (), rows, tree.rows, (read.window.interval,))
        ranges = [self._selector.ranges(each.snapshot, each.wanted, each.window) for each in reads]
        return _changed_state(query.plan, state, reads, ranges)


def _changed_state(
    plan: RegisteredPlan,
    state: CompleteState | None,
    reads: Sequence[SourceRead],
    ranges: Sequence[Sequence[PartRange]],
) -> CompleteState:
    """The state as of other snapshots, whose windows have these ranges of rows."""
    befores = [_nothing(each) for each in reads] if state is None else state.sources
    sources, changes = [], []
    for before, read, own in zip(befores, reads, ranges, strict=True):
        content, change = before.content.after(own, read.snapshot.schema_of(read.wanted.columns))
        sources.append(SourceState(content, before.kept.after(change)))
        changes.append(change)
    kept = [each.kept for each in sources]
    none = tuple(np.zeros(0, dtype=np.int64) for _ in kept)
    combinations, rows = (none, None) if state is None else (state.combinations, state.rows)
    if rows is None or not all(each.empty for each in changes):
        if len(kept) > 1:
            combinations = _changed_join(plan, combinations, kept, changes)
        rows = _answer(plan, [each.snapshot.state.stream for each in reads], kept, combinations)
    windows = tuple(each.window.interval for each in reads)
    return CompleteState(reads[0].snapshot.commit_id, tuple(sources), combinations, rows, sum(map(len, kept)), windows)


def _answer(
    plan: RegisteredPlan, streams: Sequence[Stream], kept: Sequence[KeptRows], combinations: Combinations
) -> pa.Table:
    """The answer over combinations of kept rows, in the order of the rows."""
    if len(kept) == 1:
        return combined_rows(plan, streams, [kept[0].rows], len(kept[0]))
    places = tuple(each.places(numbers) for each, numbers in zip(kept, combinations, strict=True))
    ordered = in_order(places, [len(each) for each in kept])
    together = [each.rows.take(pa.array(at)) for each, at in zip(kept, ordered, strict=True)]
    return combined_rows(plan, streams, together, len(ordered[0]))


def _nothing(read: SourceRead) -> SourceState:
    snapshot = read.snapshot
    schema = snapshot.schema_of(read.wanted.columns)
    return SourceState(NO_CONTENT, KeptRows.none(snapshot.state.stream.key, schema))


def _changed_join(
    plan: RegisteredPlan, before: Combinations, kept: Sequence[KeptRows], changes: Sequence[RowChange]
) -> Combinations:
    """The combinations after a change of the sources' rows."""
    there = np.ones(len(before[0]), dtype=bool)
    for numbers, change in zip(before, changes, strict=True):
        if len(change.removed):
            there &= ~np.isin(numbers, change.removed)
    parts = [tuple(numbers[there] for numbers in before)]
    entered = [np.isin(each.numbers, change.added) for each, change in zip(kept, changes, strict=True)]
    for place, change in enumerate(changes):
        if not len(change.added):
            continue
        chosen = [
            np.flatnonzero(~new if source < place else new if source == place else np.ones(len(new), dtype=bool))
            for source, new in enumerate(entered)
        ]
        tables = [each.rows.take(pa.array(rows)) for each, rows in zip(kept, chosen, strict=True)]
        found = join_rows(tables, plan.relations)
        parts.append(tuple(each.numbers[rows[at]] for each, rows, at in zip(kept, chosen, found, strict=True)))
        check_joined(sum(len(part[0]) for part in parts))
    return tuple(np.concatenate(each) for each in zip(*parts, strict=True))
