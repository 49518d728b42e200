"""How the answer of a registered query is come by: what is kept between invocations, and what is computed when asked.

    strategy   kept                                       computed at an invocation
    NONE       nothing                                    everything: rows are matched on the spot
    PARTIAL    which rows match; ranked trees             the window, the join, and what is made of its rows
    COMPLETE   besides, the answer of the present window  nothing, until a commit comes, and then what it changed

All give the same answers; a test compares each with the oracle after every step. An invocation says by which route its
answer came. COMPLETE is of the present alone: the newest commit and the least stable point of the sources. An answer
at another time or commit is PARTIAL's, and so is one that a later commit has overtaken.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from errata.declare.site import Site
from errata.model.registered import AnswerRoute, RegisteredQuery, RegisteredWindow, ResultStrategy
from errata.psoup.aggregate_trees import AggregateTrees
from errata.psoup.byte_cache import ByteCache
from errata.psoup.complete_answers import CompleteAnswers
from errata.psoup.invoke import StrategyAnswer, aggregate_row, answer_rows, needed_columns
from errata.psoup.joint_answers import joint_answers, joint_groups
from errata.psoup.segments import MatchStore
from errata.psoup.selection import Selected, Selector, SourceRead, SourceWindow, youngest_rows
from errata.psoup.snapshot import StreamSnapshot
from errata.psoup.windows import check_not_aged, window_interval

WINDOW_CACHE_BYTES = 8 * 1024 * 1024
"""Bytes of windows that count rows which a reader keeps in memory: some ten thousand."""


@dataclass(frozen=True, slots=True)
class AskedQuery:
    """A query, the snapshots of its sources, and the event time that it is asked for."""

    query: RegisteredQuery
    snapshots: Sequence[StreamSnapshot]
    now: int


class Strategies:
    """What a reader keeps for the queries that it answers. Threads share it."""

    def __init__(self, site: Site) -> None:
        self._windows = SourceWindows()
        self._unkept = Selector(None, max_bytes=0)
        self._selector = Selector(MatchStore(site))
        self._trees = AggregateTrees(self._selector)
        self._complete = CompleteAnswers(self._selector, self._trees)

    def answer(
        self, query: RegisteredQuery, snapshots: Sequence[StreamSnapshot], now: int, *, present: bool
    ) -> StrategyAnswer:
        """The answer at an event time over snapshots of one commit. `present`: they are of the newest commit, and the
        time is the least stable point in them."""
        kept = present and query.strategy is ResultStrategy.COMPLETE
        state = self._complete.kept(query, snapshots[0].commit_id) if kept else None
        if state is None:
            reads = self._windows.reads(query, snapshots, now)
            state = self._complete.carry_on(query, reads) if kept else None
        if state is not None:
            return StrategyAnswer(state.rows, state.matched, state.windows, AnswerRoute.KEPT)
        if query.strategy is ResultStrategy.NONE:
            return _selected_answer(self._unkept, query, reads, AnswerRoute.SCAN)
        if query.plan.aggregates and len(reads) == 1:
            (read,) = reads
            if (tree := self._trees.aggregate(query, read.snapshot, read.wanted, read.window)) is not None:
                rows = aggregate_row(query.plan, tree.values)
                return StrategyAnswer(rows, tree.rows, (read.window.interval,), AnswerRoute.TREE)
        return _selected_answer(self._selector, query, reads, AnswerRoute.WINDOW)

    def answer_all(self, asked: Sequence[AskedQuery], *, present: bool) -> list[StrategyAnswer]:
        """The answers of queries over snapshots of one commit. Joins alike, of which no answer is kept, are made as
        one."""
        found: dict[int, StrategyAnswer] = {}
        queries = [each.query for each in asked]
        for places in joint_groups(queries):
            shared = [each for each in places if not present or queries[each].strategy is ResultStrategy.PARTIAL]
            shared = [each for each in shared if queries[each].strategy is not ResultStrategy.NONE]
            if len(shared) > 1 and len(queries[shared[0]].plan.sources) > 1:
                reads = [self._windows.reads(asked[at].query, asked[at].snapshots, asked[at].now) for at in shared]
                joint = joint_answers(self._selector, [queries[each].plan for each in shared], reads)
                found.update(zip(shared, joint, strict=True))
            for at in places:
                if at not in found:
                    each = asked[at]
                    found[at] = self.answer(each.query, each.snapshots, each.now, present=present)
        return [found[at] for at in range(len(asked))]


def _selected_answer(
    selector: Selector, query: RegisteredQuery, reads: Sequence[SourceRead], route: AnswerRoute
) -> StrategyAnswer:
    """The answer over the rows of the windows, however they are found."""
    tables = [selector.select(each.snapshot, each.wanted, each.window).rows for each in reads]
    rows = answer_rows(query.plan, [each.snapshot.state.stream for each in reads], tables)
    windows = tuple(each.window.interval for each in reads)
    return StrategyAnswer(rows, sum(each.num_rows for each in tables), windows, route)


class SourceWindows:
    """The windows of sources. Those that count rows are counted once for each snapshot."""

    def __init__(self) -> None:
        self._counted: ByteCache[tuple[int, int, int, int], tuple[SourceWindow, bool]] = ByteCache(WINDOW_CACHE_BYTES)

    def reads(self, query: RegisteredQuery, snapshots: Sequence[StreamSnapshot], now: int) -> list[SourceRead]:
        """The windows of a query's sources at an event time, and what is wanted of the rows in them."""
        found = []
        for place, snapshot in enumerate(snapshots):
            stream = snapshot.state.stream
            columns = dict.fromkeys((*needed_columns(query.plan, place), stream.order, *stream.key))
            wanted = Selected(query.conjunctions[place], query.plan.conjunctions[place], tuple(columns))
            found.append(SourceRead(snapshot, wanted, self._window(snapshot, query.plan.windows[place], now)))
        return found

    def _window(self, snapshot: StreamSnapshot, window: RegisteredWindow, now: int) -> SourceWindow:
        """The rows of a source that an answer is made of; refused if some have been aged out."""
        interval = window_interval(window, now)
        if window.rows is None:
            check_not_aged(snapshot.state, interval, complete=True)
            return SourceWindow(interval)
        key = (snapshot.state.stream_id, snapshot.commit_id, window.rows, interval.end)
        if (known := self._counted.get(key)) is None:
            known = youngest_rows(snapshot, window.rows, interval.end)
            excluded = sum(each.nbytes for each in known[0].excluded.values())
            self._counted.put(key, known, 500 + excluded)
        counted, complete = known
        check_not_aged(snapshot.state, counted.interval, complete=complete)
        return counted
