"""What R3 is compared with (logical merge, VI-A and VI-D): R3 with an index for each feed, which has the payloads as
often as there are feeds, and feeds that are put in order before R1 merges them.

Both are computed with whole columns and the same grouping of equal rows as R3, so that what differs is the structure:

    R3                rows | end of feed 1 | end of feed 2 | ... | published
    naive R3          rows, end   rows, end   ...   and of the output   rows, end
    cleanse, then R1  rows, end   rows, end   ...   each until its rows are frozen; then one after the other into R1
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from bench.merge_workload import ChunkOfElements, merged_stream
from errata.intake.types import arrow_schema
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
    payload_names,
    row_ends,
)
from errata.merge.merging import merge_by
from errata.merge.progress import FeedStanding, advance
from errata.merge.row_codes import group_rows, table_words
from errata.merge.state import empty_state, order_values
from errata.merge.step import MergeProgress
from errata.model.feed import MergeAlgorithm
from errata.model.stream import Stream
from errata.model.time import LOWEST


@dataclass(frozen=True, slots=True)
class SaidRows:
    """Rows, each once, with the ends of their lifetimes."""

    rows: pa.Table
    ends: np.ndarray

    def __len__(self) -> int:
        return self.rows.num_rows

    def chosen(self, which: np.ndarray) -> SaidRows:
        """Some of them, by their numbers or by a mask; copied, so that nothing else is kept."""
        places = np.flatnonzero(which) if which.dtype == bool else which
        if len(places) == len(self):
            return self
        return SaidRows(self.rows.take(pa.array(places)).combine_chunks(), self.ends[places])


class RowIndex:
    """The rows of one feed, or of the output, that are remembered."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._names = payload_names(stream)
        self.said = SaidRows(arrow_schema(stream).empty_table(), np.empty(0, np.int64))

    def take_in(self, statements: SaidRows) -> SaidRows:
        """Remember what was said, the last of each row; the rows that were spoken of and are there now."""
        known = len(self.said)
        both = pa.concat_tables([self.said.rows, statements.rows])
        ends = np.concatenate([self.said.ends, statements.ends])
        groups = group_rows(table_words(both, self._names))
        last = np.zeros(groups.count, np.int64)
        last[groups.codes] = np.arange(len(ends))
        last = last[ends[last] != ABSENT]
        self.said = SaidRows(both.take(pa.array(last)).combine_chunks(), ends[last])
        return self.said.chosen(last >= known)

    def ends_of(self, asked: SaidRows) -> np.ndarray:
        """The end that each of these rows has here; ABSENT if it is not here."""
        both = pa.concat_tables([self.said.rows, asked.rows])
        groups = group_rows(table_words(both, self._names))
        found = np.full(groups.count, ABSENT)
        found[groups.codes[: len(self.said)]] = self.said.ends
        return found[groups.codes[len(self.said) :]]

    def starts(self) -> np.ndarray:
        return order_values(self.said.rows, self._stream)

    def keep(self, which: np.ndarray) -> None:
        self.said = self.said.chosen(which)


def statements_of(stream: Stream, elements: pa.Table, feed: int) -> SaidRows:
    """What a feed says in a chunk; the end of a row that it withdraws is ABSENT."""
    own = elements.filter(pa.array(elements[FEED].to_numpy() == feed))
    ends = row_ends(own, stream)
    return SaidRows(own.select(stream.names), np.where(own[ELEMENT].to_numpy() == ElementKind.WITHDRAW, ABSENT, ends))


class NaiveMerger:
    """R3 with an index for each feed and one for the output."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._feeds = [RowIndex(stream) for _ in stream.merged.feeds]
        self._output = RowIndex(stream)

    def merge(self, chunk: ChunkOfElements, progress: MergeProgress) -> list[pa.Table]:
        new = [self._insert(number, chunk.elements, progress.before) for number in range(len(self._feeds))]
        corrections = self._corrections().slice(0, 0) if progress.leader is None else self._freeze(progress)
        return [pa.concat_tables(new), corrections]

    def _insert(self, feed: int, elements: pa.Table, stable: int) -> pa.Table:
        """Remember what a feed says; rows that the output lacks go out."""
        touched = self._feeds[feed].take_in(statements_of(self._stream, elements, feed))
        lacked = self._output.ends_of(touched) == ABSENT
        lacked &= order_values(touched.rows, self._stream) >= stable
        out = touched.chosen(lacked)
        self._output.take_in(out)
        return out.rows

    def _freeze(self, progress: MergeProgress) -> pa.Table:
        """What is frozen now is made to agree with the leader, and forgotten."""
        stable, leader = progress.stable, self._feeds[progress.ranked[0]]
        out = self._output.said
        within = leader.ends_of(out)
        passed = self._output.starts() < stable
        changed = passed & (within != out.ends) & ((within < stable) | (out.ends < stable))
        gone = passed & (within == ABSENT)
        corrections = self._corrections(out.chosen(gone), out.chosen(changed & ~gone), within[changed & ~gone])
        ends = np.where(changed, within, out.ends)
        self._output.said = SaidRows(out.rows, ends)
        self._output.keep(~gone & ~(passed & (ends < stable)))
        for each in self._feeds:
            each.keep(each.said.ends >= stable)
        return corrections

    def _corrections(
        self, gone: SaidRows | None = None, changed: SaidRows | None = None, ends: np.ndarray | None = None
    ) -> pa.Table:
        empty = SaidRows(arrow_schema(self._stream).empty_table(), np.empty(0, np.int64))
        parts = [
            part.append_column("_op", pa.array([op] * part.num_rows, pa.string()))
            for op, part in (
                ("delete", (gone or empty).rows),
                ("replace", with_ends(self._stream, changed or empty, ends)),
            )
        ]
        return pa.concat_tables(parts)


def with_ends(stream: Stream, said: SaidRows, ends: np.ndarray | None) -> pa.Table:
    """The rows with other ends."""
    if ends is None or stream.merged.end is None:
        return said.rows
    at = said.rows.schema.get_field_index(stream.merged.end)
    field = said.rows.schema.field(at)
    return said.rows.set_column(at, field, pa.array(ends, pa.int64()).cast(field.type))


class CleansingMerger:
    """Each feed is put in order: rows are held until they and all before them are frozen. R1 merges what is let go."""

    def __init__(self, stream: Stream) -> None:
        feeds = len(stream.merged.feeds)
        self._stream = stream
        self._ordered = merged_stream(feeds, MergeAlgorithm.R1)
        self._feeds = [RowIndex(stream) for _ in range(feeds)]
        self._let_go = [LOWEST] * feeds
        self._stable = LOWEST
        self._state = empty_state(self._ordered)

    def merge(self, chunk: ChunkOfElements, progress: MergeProgress) -> list[pa.Table]:
        before = list(self._let_go)
        released = [self._release(number, chunk.elements, own.stable) for number, own in enumerate(progress.feeds)]
        standings = [
            FeedStanding(feed.name, stable, complete=True)
            for feed, stable in zip(self._ordered.merged.feeds, before, strict=True)
        ]
        ordered = advance(standings, dict(enumerate(self._let_go)), before=self._stable)
        step = merge_by(self._ordered, MergeAlgorithm.R1, self._state, _inserting(released), ordered)
        if step.broken:
            raise AssertionError(f"feeds that were put in order are ordered: {step.broken}")
        self._state, self._stable = step.state, ordered.stable
        return [step.inserts, step.corrections]

    def _release(self, feed: int, elements: pa.Table, stable: int) -> pa.Table:
        """The rows that nothing can precede any more, by order field and key."""
        index = self._feeds[feed]
        index.take_in(statements_of(self._stream, elements, feed))
        starts = index.starts()
        # A repetition of what has been let go is no row again.
        index.keep(starts >= self._let_go[feed])
        starts = index.starts()
        held = starts[index.said.ends >= stable]
        frontier = min(stable, int(held.min())) if len(held) else stable
        self._let_go[feed] = max(self._let_go[feed], frontier)
        free = starts < frontier
        out = index.said.chosen(free).rows
        index.keep(~free)
        return out.sort_by([(self._stream.order, "ascending"), *((name, "ascending") for name in self._stream.key)])


def _inserting(parts: list[pa.Table]) -> pa.Table:
    """Rows of each feed as elements that insert."""
    found, taken = [], 0
    for feed, rows in enumerate(parts):
        count = rows.num_rows
        places = pa.array(np.arange(taken, taken + count))
        own = {
            FEED: pa.array(np.full(count, feed, np.int16)),
            SEQ: places,
            ELEMENT: pa.array(np.full(count, ElementKind.INSERT, np.int8)),
            POS: places,
            OWN_STABLE: pa.array(np.full(count, LOWEST)),
            OLD_END: pa.nulls(count, pa.int64()),
            GIVEN: pa.nulls(count, pa.string()),
        }
        found.append(pa.table({**own, **{name: rows[name] for name in rows.column_names}}))
        taken += count
    return pa.concat_tables(found)
