"""What R0 to R2 need of each feed by itself, checked in the columns of a batch, and findings about what is broken.

Only inserts; by order field, with R0 without ties; no key twice; nothing behind the feed's own mark; and from feeds
that lead alone, since a feed that has not joined, or is suspect, is not one to be followed without looking. What is
needed of feeds against each other is checked where they are put together, in `ordered`.

Each check is one pass over a column. Only ties need a sort, of one array of integers: that of the keys' hashes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from errata.merge.elements import ELEMENT, FEED, GIVEN, OLD_END, OWN_STABLE, POS, SEQ, ElementKind
from errata.merge.row_codes import hash_words, table_words
from errata.merge.state import order_values
from errata.merge.step import BrokenGuarantee, FeedTop, MergeProgress, MergeState
from errata.model.feed import FeedOrder, FeedProperties, MergeAlgorithm
from errata.model.stream import Stream
from errata.model.time import LOWEST, format_instant


@dataclass(frozen=True, slots=True)
class FeedRun:
    """The elements of one feed in a batch: rows of the table from `start` to `stop`."""

    feed: int
    start: int
    stop: int
    orders: np.ndarray
    """The order fields of all elements of the batch."""

    @property
    def own(self) -> np.ndarray:
        """The order fields of its own elements."""
        return self.orders[self.start : self.stop]


def in_sequence(elements: pa.Table) -> pa.Table:
    """The elements in the order in which they are taken."""
    taken = elements[SEQ].to_numpy()
    if (taken[1:] > taken[:-1]).all():
        return elements
    return elements.take(pa.array(np.argsort(taken, kind="stable")))


def feed_runs(stream: Stream, elements: pa.Table) -> list[FeedRun]:
    """The feeds of a batch whose elements come feed by feed."""
    feeds = elements[FEED].to_numpy()
    orders = order_values(elements, stream)
    bounds = [*np.flatnonzero(np.diff(feeds, prepend=-1)).tolist(), len(feeds)]
    return [FeedRun(int(feeds[start]), start, stop, orders) for start, stop in pairwise(bounds)]


@dataclass(frozen=True, slots=True)
class Finder:
    """Makes findings about elements of a batch, by their place in the table."""

    stream: Stream
    elements: pa.Table
    given: Sequence[FeedProperties]
    """What each feed guarantees, declared or derived."""

    def place(self, value: int) -> str:
        """An order field in words."""
        return f"{self.stream.order} {format_instant(value) if self.stream.timed else value}"

    def name(self, feed: int) -> str:
        return self.stream.merged.feeds[feed].name

    def broken(self, feed: int, at: int, guarantee: str, what: str, **left: Any) -> BrokenGuarantee:
        """What a feed breaks, as the element at this place shows; `left` are the properties that change. Where none
        describes what is broken, it is the order, on which R0 to R2 rest."""
        return BrokenGuarantee(feed, guarantee, self.elements[POS][at].as_py(), what, replace(self.given[feed], **left))

    def feed(self, at: int) -> int:
        """The feed of the element at this place."""
        return int(self.elements[FEED][at].as_py())

    def place_of(self, at: int) -> str:
        """The order field of the element at this place in words."""
        return self.place(int(order_values(self.elements.slice(at, 1), self.stream)[0]))

    def lacking(self, feed: int, missed: int, *, reached: int) -> BrokenGuarantee:
        """A feed that has come to `reached` and lacks the row of another one that is at this place."""
        what = f"it lacks {self.place_of(missed)}, which feed {self.name(self.feed(missed))} has"
        words = f"{what}, and has come to {self.place(reached)}"
        return self.broken(feed, missed, "complete: yes", words, complete=False)

    def disagreeing(self, feed: int, at: int, other: int | None) -> BrokenGuarantee:
        """A feed whose row at this place is not the one that another feed has with this key; None: any feed."""
        who = "another feed" if other is None else f"feed {self.name(other)}"
        what = f"{who} has another row with {self.place_of(at)}"
        return self.broken(feed, at, "the same rows", what, order=FeedOrder.NONE)


def top_of(state: MergeState, feed: int) -> FeedTop:
    """The last instant that a feed has delivered."""
    return state.tops.get(feed, FeedTop())


def broken_alone(
    find: Finder, algorithm: MergeAlgorithm, run: FeedRun, top: FeedTop, progress: MergeProgress
) -> BrokenGuarantee | None:
    """The first thing that a feed breaks by itself."""
    mine = find.elements.slice(run.start, run.stop - run.start)
    if not progress.feeds[run.feed].leads:
        what = "it sends rows, and does not lead"
        return find.broken(run.feed, run.start, "complete: yes", what, order=FeedOrder.NONE)
    return (
        _broken_inserts(find, run, mine)
        or _broken_order(find, algorithm, run, top)
        or _broken_mark(find, run, np.maximum(mine[OWN_STABLE].to_numpy(), progress.feeds[run.feed].before))
        or _broken_key(find, run, mine)
    )


def _broken_inserts(find: Finder, run: FeedRun, mine: pa.Table) -> BrokenGuarantee | None:
    revises = mine[ELEMENT].to_numpy() != ElementKind.INSERT
    for name in (OLD_END, GIVEN):
        if mine[name].null_count < len(mine):
            revises = revises | mine[name].is_valid().to_numpy()
    if not revises.any():
        return None
    at = int(np.argmax(revises))
    what = f"{ElementKind(mine[ELEMENT][at].as_py()).name.lower()} of a row with {find.place(int(run.own[at]))}"
    return find.broken(run.feed, run.start + at, "adjusts: no", what, adjusts=True)


def _broken_order(find: Finder, algorithm: MergeAlgorithm, run: FeedRun, top: FeedTop) -> BrokenGuarantee | None:
    earlier = np.concatenate(([top.order], run.own[:-1]))
    guarantee = f"order: {find.given[run.feed].order}"
    falls = run.own < earlier
    if falls.any():
        at = int(np.argmax(falls))
        what = f"{find.place(int(run.own[at]))} after {find.place(int(earlier[at]))}"
        return find.broken(run.feed, run.start + at, guarantee, what, order=FeedOrder.NONE)
    if algorithm is not MergeAlgorithm.R0:
        return None
    ties = (run.own == earlier) & (earlier != LOWEST)
    if not ties.any():
        return None
    at = int(np.argmax(ties))
    what = f"{find.place(int(run.own[at]))} twice"
    return find.broken(run.feed, run.start + at, guarantee, what, order=FeedOrder.ORDERED, ties_fixed=False)


def _broken_mark(find: Finder, run: FeedRun, marks: np.ndarray) -> BrokenGuarantee | None:
    """An element behind where the feed had said that it is stable, with or before the batch."""
    behind = run.own < marks
    if not behind.any():
        return None
    at = int(np.argmax(behind))
    what = f"{find.place(int(run.own[at]))} after it was stable up to {find.place(int(marks[at]))}"
    return find.broken(run.feed, run.start + at, "stable", what, order=FeedOrder.NONE)


def _broken_key(find: Finder, run: FeedRun, mine: pa.Table) -> BrokenGuarantee | None:
    """A key that comes twice among rows with ties; the key has the order field."""
    if not (run.own[1:] == run.own[:-1]).any():
        return None
    at = first_repeated(hash_words(table_words(mine, find.stream.key)))
    if at is None:
        return None
    what = f"a key with {find.place(int(run.own[at]))} twice"
    return find.broken(run.feed, run.start + at, "one row for each key", what, order=FeedOrder.NONE)


def first_repeated(hashes: np.ndarray) -> int | None:
    """The place of the first value that came before; None if all differ."""
    ordered = np.sort(hashes)
    again = ordered[1:][ordered[1:] == ordered[:-1]]
    if not len(again):
        return None
    places = np.flatnonzero(np.isin(hashes, again))
    firsts = np.unique(hashes[places], return_index=True)[1]
    return int(np.delete(places, firsts)[0])
