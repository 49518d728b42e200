"""The ranked trees of aggregating queries: made when first asked, and carried on from commit to commit.

A tree holds the matching rows of an interval that covers the windows which were asked for. A window within it costs two
look-ups and a few hundred annotations, however many rows it has. A commit costs what it changed of the interval. When a
window reaches beyond, the interval grows to take it in; when it has become several times the window, what lies before
the window is let go. A window far behind the interval, or as of an older commit, is left to others: it is aggregated
row by row, and the tree stays as it is.

Trees are shared by the invocations of one query alone (PSoup, section 6): another one's rows are others.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

import numpy as np

from errata.model.registered import RegisteredPlan, RegisteredQuery
from errata.model.stream import Stream
from errata.model.time import EVERYTHING, Interval
from errata.psoup.byte_cache import ByteCache
from errata.psoup.kept_rows import NO_CONTENT, RangeContent
from errata.psoup.measures import measure_for
from errata.psoup.ranked_tree import RankedTree, TreeColumn
from errata.psoup.selection import Selected, Selector, SourceWindow
from errata.psoup.snapshot import StreamSnapshot

TREE_CACHE_BYTES = 256 * 1024 * 1024
"""Bytes of trees that a reader keeps in memory."""

LOCKS = 64
"""Locks of trees: queries whose numbers differ by a multiple wait for each other."""

MAX_COVER = 4
"""Times a window that a tree's interval is at most. More keeps rows that are not asked for; fewer makes a sliding
window's tree let go of rows more often."""

_NOTHING = Interval(0, 0)


@dataclass(frozen=True, slots=True)
class TreeState:
    """The tree of a query as of a commit, over an interval of the order field."""

    tree: RankedTree
    cover: Interval = _NOTHING
    commit_id: int = -1
    content: RangeContent = NO_CONTENT

    @property
    def nbytes(self) -> int:
        return self.tree.size_bytes + 500 * (1 + len(self.content.ranges))


@dataclass(frozen=True, slots=True)
class TreeAnswer:
    """The aggregates of a window."""

    values: list[object]
    """For each item of the plan."""
    rows: int


class AggregateTrees:
    """The trees of a reader's queries. Threads share it."""

    def __init__(self, selector: Selector, max_bytes: int = TREE_CACHE_BYTES) -> None:
        self._selector = selector
        self._states: ByteCache[int, TreeState] = ByteCache(max_bytes)
        self._locks = [threading.Lock() for _ in range(LOCKS)]

    def aggregate(
        self, query: RegisteredQuery, snapshot: StreamSnapshot, wanted: Selected, window: SourceWindow
    ) -> TreeAnswer | None:
        """The aggregates of the only source's rows in a window; None where the tree is not carried on to it."""
        with self._locks[query.number % LOCKS]:
            known = self._states.get(query.number)
            state = known or TreeState(RankedTree(_tree_columns(query.plan, snapshot.state.stream)))
            cover = _cover(state, snapshot.commit_id, window.interval)
            if cover is None:
                return None
            if known is None or (snapshot.commit_id, cover) != (state.commit_id, state.cover):
                state = self._carried(state, snapshot, wanted, cover)
                self._states.put(query.number, state, state.nbytes)
        return _aggregate(query.plan, state, window)

    def _carried(self, state: TreeState, snapshot: StreamSnapshot, wanted: Selected, cover: Interval) -> TreeState:
        """The state as of a snapshot, over another interval."""
        ranges = self._selector.ranges(snapshot, wanted, SourceWindow(cover))
        content, change = state.content.after(ranges, snapshot.schema_of(wanted.columns))
        tree = state.tree.without_rows(change.removed_order, change.removed)
        columns = {name: change.added_rows[name] for name in wanted.columns}
        tree = tree.with_rows(change.added_order, change.added, columns)
        return TreeState(tree, cover, snapshot.commit_id, content)


def _cover(state: TreeState, commit_id: int, wanted: Interval) -> Interval | None:
    """The interval that a tree is to be over; None where it is not to be carried to this window."""
    if commit_id < state.commit_id:
        return None
    if wanted.empty or (wanted & state.cover) == wanted:
        return state.cover
    if state.cover.empty:
        return wanted
    both = state.cover | wanted
    if both.end - both.start <= MAX_COVER * (wanted.end - wanted.start):
        return both
    return wanted if wanted.end > state.cover.end else None


def _aggregate(plan: RegisteredPlan, state: TreeState, window: SourceWindow) -> TreeAnswer:
    tree, interval = state.tree, window.interval
    first = tree.rank(interval.start)
    last = len(tree) if interval.end == EVERYTHING.end else tree.rank(interval.end)
    ranges, count = [(first, last)], max(0, last - first)
    if window.excluded:
        left_out = state.content.numbers_at(window.excluded)
        begun = tree.rank(interval.start + 1)  # rows that are left out are all at the first place
        kept = np.flatnonzero(~np.isin(tree.rows(first, begun), left_out)) + first
        ranges = [*((at, at + 1) for at in kept.tolist()), (begun, last)]
        count = len(kept) + last - begun
    found = iter(tree.aggregate(*ranges))
    return TreeAnswer([count if item.column is None else next(found) for item in plan.items], count)


def _tree_columns(plan: RegisteredPlan, stream: Stream) -> list[TreeColumn]:
    """The columns that the aggregates of a plan are of, one for each item but for count(*)."""
    columns = []
    for item in plan.items:
        if item.function is not None and item.column is not None:
            kind = stream.column(item.column).type
            measure = measure_for(item.function, kind, item.output.type, item.output.name)
            columns.append(TreeColumn(item.column, kind, measure))
    return columns
