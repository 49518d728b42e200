"""R0, R1 and R2: feeds that only insert, by order field, and lack nothing (logical merge, IV-A to IV-C).

All feeds then say the same sequence of rows, of which each has come a part of the way. What goes out is the longest
part; of the others, what is not longer is dropped.

    before the batch      the frontier: the greatest order field of all feeds, and how many rows have it (R0, R1)
                          or which ones (R2)
    in the batch          feed a   ....|xxxxxxx            what it has beyond the frontier goes out
                          feed b   ..xx|xxxxxxxyyy         x is compared with a's and dropped, y goes out

The paper's algorithms go element by element and trust the feeds. Here the rows of a batch are in columns: what goes out
is a slice of each feed, and where feeds overlap, their rows are compared. If they are not the same, what is broken is
said, and nothing is decided. What feeds deliver in different batches is not compared, for no row is remembered but
R2's of the last instant. Cost: linear in the batch.

Rows behind the merged stable point are known or never were, since feeds lack nothing: they are dropped unseen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from errata.merge.choice import declared_properties
from errata.merge.elements import ABSENT, FEED, POS, row_ends
from errata.merge.guarantees import FeedRun, Finder, broken_alone, feed_runs, in_sequence, top_of
from errata.merge.instants import merge_instants
from errata.merge.outcome import (
    agreed_schema,
    behind_schema,
    correction_schema,
    disagreement_schema,
    insert_schema,
    refused_schema,
)
from errata.merge.row_codes import table_words
from errata.merge.state import empty_state, order_values, state_schema
from errata.merge.step import BATCH, BrokenGuarantee, FeedTop, MergeCounts, MergeProgress, MergeState, MergeStep
from errata.model.feed import FeedOrder, MergeAlgorithm
from errata.model.stream import Stream
from errata.model.time import HIGHEST, LOWEST

_FEW = 64
"""Up to so many slices, what goes out is put together from slices instead of row by row."""


def merge_ordered(
    stream: Stream, algorithm: MergeAlgorithm, state: MergeState, elements: pa.Table, progress: MergeProgress
) -> MergeStep:
    """Merge a batch by R0, R1 or R2. If the step says that something is broken, it has decided nothing."""
    elements = in_sequence(elements)
    runs = feed_runs(stream, elements)
    find = Finder(stream, elements, declared_properties(stream))
    alone = [broken_alone(find, algorithm, run, top_of(state, run.feed), progress) for run in runs]
    broken = [each for each in alone if each is not None]
    if not broken:
        merge = merge_instants if algorithm is MergeAlgorithm.R2 else merge_sequences
        merged = merge(find, state, runs, progress)
        if isinstance(merged, BrokenGuarantee):
            broken = [merged]
        else:
            emitted, last = merged
            after = MergeState(last.rows, last.ends, last.published, tops_after(state, runs))
            return _step(stream, algorithm, after, elements, emitted)
    nothing = np.zeros(0, dtype=np.int64)
    return replace(_step(stream, algorithm, state, elements.slice(0, 0), nothing), broken=tuple(broken))


def tops_after(state: MergeState, runs: Sequence[FeedRun]) -> dict[int, FeedTop]:
    """The last instant of each feed after the batch."""
    tops = dict(state.tops)
    for run in runs:
        last = int(run.own[-1])
        rows = len(run.own) - int(np.searchsorted(run.own, last))
        earlier = tops.get(run.feed, FeedTop())
        tops[run.feed] = FeedTop(last, rows + (earlier.rows if earlier.order == last else 0))
    return tops


def merge_sequences(
    find: Finder, state: MergeState, runs: Sequence[FeedRun], progress: MergeProgress
) -> tuple[np.ndarray, MergeState] | BrokenGuarantee:
    """R0 and R1: the elements that go out, by order field, and that no rows are remembered."""
    new: dict[int, tuple[int, int]] = {}
    for run in runs:
        beyond = _beyond_frontier(find, state, run, progress)
        if isinstance(beyond, BrokenGuarantee):
            return beyond
        new[run.feed] = (beyond, run.stop)
    longest = np.zeros(0, dtype=np.int64)
    words = table_words(find.elements, find.stream.names) if len(runs) > 1 else []
    for start, stop in new.values():
        both = min(len(longest), stop - start)
        found = _first_unlike(find, words, longest[:both], np.arange(start, start + both), runs[0].orders)
        if found is not None:
            return found
        if stop - start > len(longest):
            longest = np.concatenate((longest, np.arange(start + both, stop)))
    orders = runs[0].orders if runs else np.zeros(0, dtype=np.int64)
    for feed, each in enumerate(progress.feeds):
        start, stop = new.get(feed, (0, 0))
        missed = longest[stop - start :]
        if each.leads and len(missed) and orders[missed[0]] < each.stable:
            return find.lacking(feed, int(missed[0]), reached=each.stable)
    return longest, empty_state(find.stream)


def _beyond_frontier(find: Finder, state: MergeState, run: FeedRun, progress: MergeProgress) -> int | BrokenGuarantee:
    """The first element of a feed that no feed had before the batch."""
    frontier = max((top.order for top in state.tops.values()), default=LOWEST)
    if frontier < progress.before or not state.tops:
        return run.start + int(np.searchsorted(run.own, progress.before))
    known = max(top.rows for top in state.tops.values() if top.order == frontier)
    top = top_of(state, run.feed)
    earlier = top.rows if top.order == frontier else 0
    first, last = (int(np.searchsorted(run.own, frontier, side)) for side in ("left", "right"))
    if last < len(run.own) and earlier + last - first < known:
        what = f"it has {earlier + last - first} of {known} rows with {find.place(frontier)}"
        return find.broken(run.feed, run.start + last, "complete: yes", what, complete=False)
    return run.start + first + min(max(known - earlier, 0), last - first)


def _first_unlike(
    find: Finder, words: Sequence[np.ndarray], ones: np.ndarray, others: np.ndarray, orders: np.ndarray
) -> BrokenGuarantee | None:
    """The first place at which two sequences of elements are not the same rows."""
    unlike = np.zeros(len(ones), dtype=bool)
    for word in words:
        unlike |= word[ones] != word[others]
    if not unlike.any():
        return None
    at = int(np.argmax(unlike))
    one, other = int(ones[at]), int(others[at])
    if orders[one] != orders[other]:
        missed, instead = (one, other) if orders[one] < orders[other] else (other, one)
        return find.lacking(find.feed(instead), missed, reached=int(orders[instead]))
    value = orders[one]
    tied = any(np.count_nonzero(orders[each] == value) > 1 for each in (ones, others))
    if tied:
        what = f"other ties with {find.place(int(value))} than feed {find.name(find.feed(one))}"
        return find.broken(find.feed(other), other, "ties: fixed", what, ties_fixed=False, order=FeedOrder.ORDERED)
    return find.disagreeing(find.feed(other), other, find.feed(one))


def _step(
    stream: Stream, algorithm: MergeAlgorithm, state: MergeState, elements: pa.Table, emitted: np.ndarray
) -> MergeStep:
    feeds = elements[FEED].to_numpy()
    dropped = np.bincount(feeds) - np.bincount(feeds[emitted], minlength=int(feeds.max(initial=-1)) + 1)
    schema = insert_schema(stream)
    rows = _taken(elements.select([*stream.names, POS]), emitted)
    inserts = rows.add_column(len(stream.names), schema.field(BATCH), pa.nulls(rows.num_rows, pa.int64()))
    return MergeStep(
        algorithm=algorithm,
        inserts=inserts.cast(schema),
        corrections=correction_schema(stream).empty_table(),
        behind=behind_schema(stream).empty_table(),
        refused=refused_schema().empty_table(),
        disagreements=disagreement_schema(stream).empty_table(),
        agreed=agreed_schema(stream).empty_table(),
        state=state,
        counts=MergeCounts(repeats={feed: int(count) for feed, count in enumerate(dropped) if count}),
    )


def _taken(rows: pa.Table, places: np.ndarray) -> pa.Table:
    """These rows. Nothing is copied if they are a few slices, as they are unless ties come in many orders."""
    starts = np.flatnonzero(np.diff(places, prepend=-2) != 1)
    if not 0 < len(starts) <= _FEW:
        return rows.take(pa.array(places))
    stops = np.append(starts[1:], len(places))
    return pa.concat_tables(rows.slice(int(places[i]), int(j - i)) for i, j in zip(starts, stops, strict=True))


def restore_state(
    algorithm: MergeAlgorithm, stream: Stream, state: MergeState, rows: pa.Table, progress: MergeProgress
) -> MergeState:
    """What R2 or a more general algorithm would remember where R0, R1 or R2 are: `rows` of the archive that are not
    frozen, said by every feed that has come further. Of the instant at which a feed is, R0 and R1 know how many rows it
    has said; of R2 it is taken to have said all of them, since it will. Rows that no feed has said are taken to be all
    feeds'."""
    tops = state.tops
    last = max((top.order for top in tops.values()), default=LOWEST)
    orders = order_values(rows, stream)
    if algorithm is MergeAlgorithm.R2:
        rows, orders = rows.filter(pa.array(orders == last)), orders[orders == last]
    elif state.rows.num_rows:  # of R2: which feed has which row of the last instant is known
        rows, orders = rows.filter(pa.array(orders != last)), orders[orders != last]
    of_instants = bool(state.rows.num_rows)
    rank = np.zeros(len(orders), dtype=np.int64) if of_instants else _ranks(rows, orders)
    published = row_ends(rows, stream)
    ends = np.full((rows.num_rows, len(progress.feeds)), ABSENT, dtype=np.int64, order="F")
    for feed, top in tops.items():
        said = (orders < top.order) | ((orders == top.order) & (rank < top.rows))
        ends[said, feed] = published[said]
    nobodys = ~np.any(ends != ABSENT, axis=1)
    ends[nobodys] = published[nobodys, None]
    schema = state_schema(stream)
    payload = rows.select(schema.names).cast(schema)
    if algorithm is not MergeAlgorithm.R2 and state.rows.num_rows:
        payload = pa.concat_tables([payload, state.rows])
        ends = np.asfortranarray(np.concatenate((ends, state.ends)))
        published = np.concatenate((published, state.published))
    return MergeState(payload, ends, published, tops if algorithm is MergeAlgorithm.R2 else {})


def _ranks(rows: pa.Table, orders: np.ndarray) -> np.ndarray:
    """The place of each row among those with its order field, in the order in which they were published."""
    said = [rows[name].cast(pa.int64()).fill_null(HIGHEST).to_numpy() for name in (POS, BATCH)]
    sequence = np.lexsort((*said, orders))
    ordered = orders[sequence]
    ranks = np.empty(len(orders), dtype=np.int64)
    ranks[sequence] = np.arange(len(orders)) - np.searchsorted(ordered, ordered)
    return ranks
