"""R2: feeds that only insert, by order field, with the rows of one instant in any order (logical merge, IV-C).

Of the last instant it is remembered which rows it has, and which feed has said which. All rows of a batch that belong
to it are brought together with them. Beyond it, rows are taken from the feed that comes first; the others add what it
lacks at its last instant, and what is later.

    state     the rows of the frontier
    feed a    .... F F|1 1 2 3 3        goes out, but for what the state has
    feed b    . F|1 1 2 3 3 3 4         1 and 2 are compared, one 3 and 4 go out

Instants that a feed has left behind must be the same in all feeds: each has as many rows, and the same sum of hashes.
Of its last instant a feed may have some rows only, each of which must be one of the others'. Cost: linear, and a sort
of the rows of the last instants.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from errata.merge.elements import ABSENT, POS, payload_names, row_ends
from errata.merge.guarantees import FeedRun, Finder, top_of
from errata.merge.row_codes import group_rows, hash_words, table_words
from errata.merge.state import empty_state, state_schema
from errata.merge.step import BATCH, BrokenGuarantee, MergeProgress, MergeState
from errata.model.stream import Stream
from errata.model.time import LOWEST


@dataclass(frozen=True, slots=True)
class _OrderedBatch:
    """A batch in columns of numbers."""

    find: Finder
    runs: Sequence[FeedRun]
    orders: np.ndarray
    words: Sequence[np.ndarray]
    """Those of whole rows, for state and elements together; the state's rows come first."""
    keys: Sequence[np.ndarray]
    base: int
    """How many rows the state has."""
    hashes: np.ndarray
    """A hash of each element."""

    def own(self, run: FeedRun, after: int, before: int | None = None) -> np.ndarray:
        """The elements of a feed after an instant, and before another one."""
        first = int(np.searchsorted(run.own, after, "right"))
        last = len(run.own) if before is None else int(np.searchsorted(run.own, before))
        return np.arange(run.start + first, run.start + max(first, last))

    def at(self, run: FeedRun, instant: int) -> np.ndarray:
        """The elements of a feed at an instant."""
        first, last = (int(np.searchsorted(run.own, instant, side)) for side in ("left", "right"))
        return np.arange(run.start + first, run.start + last)


def merge_instants(
    find: Finder, state: MergeState, runs: Sequence[FeedRun], progress: MergeProgress
) -> tuple[np.ndarray, MergeState] | BrokenGuarantee:
    """R2: the elements that go out, by order field, and what is remembered."""
    last = max((top.order for top in state.tops.values()), default=LOWEST)
    remembers = last >= progress.before
    known = state.rows.num_rows if remembers else 0
    batch = _read_batch(find, state, runs, known)
    frontier = last if remembers else progress.before - 1
    now = _at_frontier(batch, frontier if remembers else None, len(progress.feeds), state.ends[:known])
    if isinstance(now, BrokenGuarantee):
        return now
    beyond = _beyond(batch, frontier)
    if isinstance(beyond, BrokenGuarantee):
        return beyond
    for feed, each in enumerate(progress.feeds):
        if not each.leads:
            continue
        run = next((run for run in runs if run.feed == feed), None)
        top = int(run.own[-1]) if run is not None else top_of(state, feed).order
        found = _unlike_frontier(batch, now, feed, frontier, max(top, each.stable)) if remembers else None
        found = found or _unlike_beyond(batch, beyond, feed, run, (frontier, top, each.stable))
        if found is not None:
            return found
    emitted = np.concatenate((now.rows[now.rows >= known] - known, beyond))
    return emitted, _remembered(batch, state, now, beyond, len(progress.feeds))


@dataclass(frozen=True, slots=True)
class _Instant:
    """The rows of one instant, each once, and which feed has which."""

    rows: np.ndarray
    """Counted through the remembered rows and then the elements."""
    has: np.ndarray


def _read_batch(find: Finder, state: MergeState, runs: Sequence[FeedRun], known: int) -> _OrderedBatch:
    stream = find.stream
    names = payload_names(stream)
    both = pa.concat_tables([state.rows.select(names).slice(0, known), find.elements.select(names)])
    ends = np.concatenate((state.published[:known], row_ends(find.elements, stream)))
    words = [*table_words(both, names), ends]
    return _OrderedBatch(
        find=find,
        runs=runs,
        orders=runs[0].orders if runs else np.zeros(0, dtype=np.int64),
        words=words,
        keys=table_words(both, stream.key),
        base=known,
        hashes=hash_words(words)[known:] if len(runs) > 1 else np.zeros(0, dtype=np.uint64),
    )


def _together(batch: _OrderedBatch, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray] | BrokenGuarantee:
    """The group of each of these rows, and the first row of each group, unless two of them have one key only."""
    groups = group_rows([word[rows] for word in batch.words])
    firsts = rows[groups.firsts]
    keys = group_rows([word[firsts] for word in batch.keys])
    if keys.count == groups.count:
        return groups.codes, firsts
    again = int(np.flatnonzero(np.bincount(keys.codes)[keys.codes] > 1)[-1])
    other = int(firsts[keys.firsts[keys.codes[again]]])
    at = int(firsts[again]) - batch.base
    # A remembered row is the state's: whoever said it, the feed of this element says otherwise.
    feed = batch.find.feed(other - batch.base) if other >= batch.base else None
    return batch.find.disagreeing(batch.find.feed(at), at, feed)


def _at_frontier(
    batch: _OrderedBatch, frontier: int | None, feeds: int, ends: np.ndarray
) -> _Instant | BrokenGuarantee:
    """The rows of the frontier with what the batch adds to them; none if nothing of it is remembered."""
    if frontier is None:
        return _Instant(np.zeros(0, dtype=np.int64), np.zeros((0, feeds), dtype=bool))
    added = [batch.at(run, frontier) for run in batch.runs]
    rows = np.concatenate([np.arange(batch.base), *(each + batch.base for each in added)])
    grouped = _together(batch, rows)
    if isinstance(grouped, BrokenGuarantee):
        return grouped
    codes, firsts = grouped
    has = np.zeros((len(firsts), feeds), dtype=bool)
    has[: batch.base] = ends != ABSENT
    start = batch.base
    for run, each in zip(batch.runs, added, strict=True):
        has[codes[start : start + len(each)], run.feed] = True
        start += len(each)
    return _Instant(firsts, has)


def _beyond(batch: _OrderedBatch, frontier: int) -> np.ndarray | BrokenGuarantee:
    """The elements beyond the frontier that go out, by order field."""
    taken = np.zeros(0, dtype=np.int64)
    last = frontier
    for run in batch.runs:
        parts = [taken]
        if last > frontier:
            added = _not_among(batch, taken[np.searchsorted(batch.orders[taken], last) :], batch.at(run, last))
            if isinstance(added, BrokenGuarantee):
                return added
            parts.append(added)
        parts.append(batch.own(run, last))
        last = max(last, int(run.own[-1]))
        taken = np.concatenate(parts)
    return taken


def _not_among(batch: _OrderedBatch, some: np.ndarray, others: np.ndarray) -> np.ndarray | BrokenGuarantee:
    """Those of `others` that are not rows of `some`."""
    grouped = _together(batch, np.concatenate((some, others)) + batch.base)
    if isinstance(grouped, BrokenGuarantee):
        return grouped
    new: np.ndarray = grouped[1] - batch.base
    return new[len(some) :]


def _unlike_frontier(
    batch: _OrderedBatch, now: _Instant, feed: int, frontier: int, reached: int
) -> BrokenGuarantee | None:
    """A row of the frontier that a feed has left out."""
    if reached <= frontier or now.has[:, feed].all():
        return None
    lacks = now.rows[~now.has[:, feed]]
    added = lacks[lacks >= batch.base] - batch.base
    if len(added):
        return batch.find.lacking(feed, int(added[0]), reached=reached)
    mine = [run for run in batch.runs if run.feed == feed]
    if not mine:
        return None  # its mark alone has passed: said with the next row it sends
    what = f"it lacks {len(lacks)} rows with {batch.find.place(frontier)}, and has come to {batch.find.place(reached)}"
    return batch.find.broken(feed, mine[0].stop - 1, "complete: yes", what, complete=False)


def _unlike_beyond(
    batch: _OrderedBatch, taken: np.ndarray, feed: int, run: FeedRun | None, places: tuple[int, int, int]
) -> BrokenGuarantee | None:
    """Where the rows of a feed, which has come to `top` and is stable up to `stable`, are not those that go out."""
    frontier, top, stable = places
    reached = max(top, stable)
    orders = batch.orders[taken]
    whole = taken[: np.searchsorted(orders, reached)]
    mine = batch.own(run, frontier, reached) if run is not None else whole[:0]
    if len(mine) != len(whole) or not np.array_equal(mine, whole):
        instant = _first_unlike(batch, whole, mine)
        if instant is not None:
            there = whole[batch.orders[whole] == instant]
            return _unlike_at(batch, feed, there, mine[batch.orders[mine] == instant], reached)
    if run is None or stable > top or top <= frontier:
        return None
    there = taken[np.searchsorted(orders, top) : np.searchsorted(orders, top, "right")]
    extra = _not_among(batch, there, batch.at(run, top))
    if isinstance(extra, BrokenGuarantee):
        return extra
    return _nobody_else(batch, extra) if len(extra) else None


def _first_unlike(batch: _OrderedBatch, ones: np.ndarray, others: np.ndarray) -> int | None:
    """The first instant at which these ordered elements are not the same rows."""
    places, counts, sums = _instants(batch, ones)
    their_places, their_counts, their_sums = _instants(batch, others)
    same = min(len(places), len(their_places))
    unlike = places[:same] != their_places[:same]
    unlike |= (counts[:same] != their_counts[:same]) | (sums[:same] != their_sums[:same])
    if unlike.any():
        at = int(np.argmax(unlike))
        return int(min(places[at], their_places[at]))
    if len(places) == len(their_places):
        return None
    return int(places[same] if len(places) > same else their_places[same])


def _instants(batch: _OrderedBatch, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The distinct order fields of ordered elements, with the number of rows and the sum of hashes of each."""
    orders = batch.orders[rows]
    starts = np.flatnonzero(np.concatenate((orders[:1] == orders[:1], orders[1:] != orders[:-1])))
    if not len(starts):
        return orders, starts, np.zeros(0, dtype=np.uint64)
    sums = np.add.reduceat(batch.hashes[rows], starts) if len(batch.hashes) else starts
    return orders[starts], np.diff(np.append(starts, len(rows))), sums


def _unlike_at(
    batch: _OrderedBatch, feed: int, there: np.ndarray, mine: np.ndarray, reached: int
) -> BrokenGuarantee | None:
    """What is not the same in one instant: a row that the feed lacks, or that all others lack."""
    extra = _not_among(batch, there, mine)
    if isinstance(extra, BrokenGuarantee):
        return extra
    missed = _not_among(batch, mine, there)
    if isinstance(missed, BrokenGuarantee):
        return missed
    return batch.find.lacking(feed, int(missed[0]), reached=reached) if len(missed) else _nobody_else(batch, extra)


def _nobody_else(batch: _OrderedBatch, extra: np.ndarray) -> BrokenGuarantee | None:
    """Rows of one feed that another one, which has come further, lacks."""
    at = int(extra[0])
    mine = batch.find.feed(at)
    further = [run for run in batch.runs if run.feed != mine and run.own[-1] >= batch.orders[at]]
    for run in further:
        return batch.find.lacking(run.feed, at, reached=int(run.own[-1]))
    return batch.find.lacking(mine, at, reached=int(batch.orders[at]))


def _remembered(batch: _OrderedBatch, state: MergeState, now: _Instant, beyond: np.ndarray, feeds: int) -> MergeState:
    """The rows of the last instant, and which feed has which."""
    stream = batch.find.stream
    if not len(beyond):
        return _state_of(stream, state, batch, now.rows, now.has)
    last = int(batch.orders[beyond[-1]])
    rows = beyond[np.searchsorted(batch.orders[beyond], last) :] + batch.base
    has = np.zeros((len(rows), feeds), dtype=bool)
    for run in batch.runs:
        mine = batch.at(run, last) + batch.base
        codes = group_rows([word[np.concatenate((rows, mine))] for word in batch.words]).codes
        has[codes[len(rows) :], run.feed] = True
    return _state_of(stream, state, batch, rows, has)


def _state_of(stream: Stream, state: MergeState, batch: _OrderedBatch, rows: np.ndarray, has: np.ndarray) -> MergeState:
    if not len(rows):
        return empty_state(stream)
    schema = state_schema(stream)
    elements = batch.find.elements
    new = elements.select([*payload_names(stream), POS])
    new = new.add_column(schema.get_field_index(BATCH), schema.field(BATCH), pa.nulls(new.num_rows, pa.int64()))
    both = pa.concat_tables([state.rows.slice(0, batch.base), new.cast(schema)])
    published = batch.words[-1][rows]
    ends = np.asfortranarray(np.where(has, published[:, None], ABSENT))
    return MergeState(rows=both.take(pa.array(rows)), ends=ends, published=published)
