"""Adjustments that give only some columns, filled in from what the same feed had said about the row before.

What one feed says about one key is a chain. A column has the value that the last element of the chain gave which has
it, back to the last whole row, or to what the state remembers of the feed; a withdrawal ends what stands. So the source
of a value is the last place of a chain that gives it: for each column one running maximum over all chains, laid side by
side. Only chains that need it are looked at.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from errata.intake.types import arrow_type
from errata.merge.elements import ABSENT, ELEMENT, FEED, GIVEN, OPEN, ElementKind, row_ends
from errata.merge.row_codes import group_rows, table_words
from errata.merge.step import MergeState
from errata.model.stream import Stream

NOTHING = -1
"""In place of a row: none stands there."""


@dataclass(frozen=True, slots=True)
class FilledElements:
    """Elements with all columns that could be known."""

    rows: pa.Table
    ends: np.ndarray
    """The end of each element's row."""
    partial: np.ndarray
    """The elements that gave only some columns."""
    unknown: np.ndarray
    """Those of them that could not be filled: the feed never inserted the row."""
    chain: np.ndarray | None = None
    """The chain of each element; None if nothing had to be filled."""


@dataclass(frozen=True, slots=True)
class _Chains:
    """Elements of the chains that need filling, chain by chain. A row is counted through the state and then the
    elements."""

    element: np.ndarray
    """The element at each place."""
    starts: np.ndarray
    base: np.ndarray
    """The row that the state has of the feed, for each place."""
    resets: np.ndarray
    """Whether nothing that was said before a place counts after it."""
    stands: np.ndarray
    """For a place that resets, the row that stands from then on."""
    gives: np.ndarray
    """Whether a place gives some columns to the next ones."""

    def before(self, values: np.ndarray) -> np.ndarray:
        """For each place the value of the one before it in its chain; for the first one the state's row."""
        shifted = np.empty_like(values)
        shifted[1:] = values[:-1]
        return np.where(self.starts, self.base, shifted)

    def sources(self, own: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """The row that the value of a column was from before each place; `own` are the places that give the column, and
        `rows` the rows of all places."""
        gives = own & self.gives
        last = np.maximum.accumulate(np.where(self.resets | gives, np.arange(len(rows)), 0))
        return self.before(np.where(gives, rows, self.stands)[last])


@dataclass(frozen=True, slots=True, eq=False)
class ChainMarks:
    """Elements from which nothing is filled in."""

    barred: np.ndarray
    """They do not count."""
    ended: np.ndarray
    """Adjustments that leave a lifetime empty: they withdraw the row."""

    def same_as(self, other: ChainMarks) -> bool:
        """Whether the same elements are marked."""
        return np.array_equal(self.barred, other.barred) and np.array_equal(self.ended, other.ended)


def no_marks(count: int) -> ChainMarks:
    """Of so many elements, none is marked."""
    return ChainMarks(np.zeros(count, dtype=bool), np.zeros(count, dtype=bool))


def fill_adjustments(stream: Stream, state: MergeState, elements: pa.Table, marks: ChainMarks) -> FilledElements:
    """The elements filled in."""
    ends = row_ends(elements, stream)
    given = _given_columns(stream, elements)
    count = elements.num_rows
    partial = ~np.all(given, axis=1) if given is not None else np.zeros(count, dtype=bool)
    unordered = _nulls(elements[stream.order])
    special = partial if unordered is None else partial | unordered
    if not special.any():
        return FilledElements(elements, ends, partial, np.zeros(count, dtype=bool))
    keys, chain = _chains_of(stream, state, elements)
    chains = _lay_chains(state, elements, (keys, chain), (special, partial), marks)
    stood = chains.sources(np.zeros(len(chains.element), dtype=bool), chains.stands) != NOTHING
    standing = np.zeros(count, dtype=bool)
    standing[chains.element] = stood
    base, rows = state.rows.num_rows, elements
    for place, name in enumerate(_filled_names(stream)):
        gives = given[:, place].copy() if given is not None else np.ones(count, dtype=bool)
        wanted = partial & standing & ~gives
        if name == stream.order and unordered is not None:
            gives &= ~unordered
            wanted = special & standing & ~gives
        if not wanted.any():
            continue
        source = chains.sources(gives[chains.element], chains.element + base)
        taken = np.arange(base, base + count)
        here = wanted[chains.element]
        taken[chains.element[here]] = source[here]
        if name == stream.merged.end:
            ends = _taken_ends(state, elements, ends, taken)
            column = end_column(ends, stream)
        else:
            both = pa.chunked_array([*state.rows[name].chunks, *elements[name].chunks], elements[name].type)
            column = both.take(pa.array(taken, mask=taken == NOTHING))
        rows = rows.set_column(rows.schema.get_field_index(name), rows.schema.field(name), column)
    return FilledElements(rows, ends, partial, partial & ~standing, chain)


def end_column(ends: np.ndarray, stream: Stream) -> pa.Array:
    """Ends as values of the stream's end column; NULL where the lifetime is open."""
    kind = stream.column(stream.merged.end or stream.order).type
    return pa.array(ends, mask=ends == OPEN).cast(arrow_type(kind))


def _nulls(column: pa.ChunkedArray) -> np.ndarray | None:
    return column.is_null().to_numpy() if column.null_count else None


def _filled_names(stream: Stream) -> tuple[str, ...]:
    return tuple(name for name in stream.names if name not in stream.key)


def _given_columns(stream: Stream, elements: pa.Table) -> np.ndarray | None:
    """For each element and column that is filled, whether the element gives it; None if all give all."""
    column = elements[GIVEN]
    if column.null_count == len(column):
        return None
    encoded = column.combine_chunks().dictionary_encode()
    names = _filled_names(stream)
    lists = [set(text.split(",")) for text in encoded.dictionary.to_pylist()]
    table = np.array([[name in each for name in names] for each in lists] + [[True] * len(names)], dtype=bool)
    given: np.ndarray = table.reshape(-1, len(names))[encoded.indices.fill_null(len(lists)).to_numpy()]
    given[elements[ELEMENT].to_numpy() != int(ElementKind.ADJUST)] = True
    return given


def _chains_of(stream: Stream, state: MergeState, elements: pa.Table) -> tuple[np.ndarray, np.ndarray]:
    """The key of each row of the state and each element, and the chain of each element."""
    both = pa.concat_tables([state.rows.select(stream.key), elements.select(stream.key)])
    keys = group_rows(table_words(both, stream.key)).codes
    feeds = elements[FEED].to_numpy().astype(np.int64)
    return keys, keys[state.rows.num_rows :] * state.ends.shape[1] + feeds


def _lay_chains(
    state: MergeState,
    elements: pa.Table,
    numbers: tuple[np.ndarray, np.ndarray],
    kinds: tuple[np.ndarray, np.ndarray],
    marks: ChainMarks,
) -> _Chains:
    """The chains with special elements. `numbers` are those of keys and chains; `kinds` say which elements are special,
    and which are partial."""
    keys, chain = numbers
    special, partial = kinds
    base = state.rows.num_rows
    concerned = np.zeros(int(keys.max()) + 1, dtype=bool)
    concerned[keys[base:][special]] = True
    element = np.flatnonzero(concerned[keys[base:]])
    element = element[np.argsort(chain[element], kind="stable")]
    starts = np.ones(len(element), dtype=bool)
    starts[1:] = chain[element][1:] != chain[element][:-1]
    standing = _state_rows(state, keys, elements[FEED].to_numpy()[element], keys[base:][element])
    withdraws = elements[ELEMENT].to_numpy() == int(ElementKind.WITHDRAW)
    dead = ((withdraws | marks.ended) & ~marks.barred)[element]
    gives = (partial & ~marks.barred)[element] & ~dead
    whole = ~dead & ~partial[element] & ~marks.barred[element]
    stands = np.where(whole, element + base, np.where(dead, NOTHING, standing))
    return _Chains(element, starts, standing, starts | whole | dead, stands, gives)


def _state_rows(state: MergeState, keys: np.ndarray, feeds: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """The row of the state that a feed has of a key; the published one, if no feed is known to have said it."""
    count = len(state.published)
    own = keys[:count]
    found = np.full(len(wanted), NOTHING, dtype=np.int64)
    orphans = orphan_rows(state, own, int(keys.max()) + 1)
    for feed in np.unique(feeds):
        rows = orphans.copy()
        has = np.flatnonzero(state.ends[:, feed] != ABSENT)
        rows[own[has]] = has
        here = feeds == feed
        found[here] = rows[wanted[here]]
    return found


def orphan_rows(state: MergeState, keys: np.ndarray, count: int) -> np.ndarray:
    """For each of so many keys its row in the state, if that is published and no feed is known to have said any row of
    the key; else NOTHING. `keys` are those of the state's rows."""
    orphans = np.full(count, NOTHING, dtype=np.int64)
    published = np.flatnonzero(state.published != ABSENT)
    orphans[keys[published]] = published
    orphans[keys[np.any(state.ends != ABSENT, axis=1)]] = NOTHING
    return orphans


def _taken_ends(state: MergeState, elements: pa.Table, ends: np.ndarray, taken: np.ndarray) -> np.ndarray:
    """The ends of these rows, of the feeds of the elements that take them."""
    base = len(state.published)
    feeds = elements[FEED].to_numpy()
    of_state = taken < base
    rows = taken[of_state]
    filled = np.empty(len(taken), dtype=np.int64)
    filled[~of_state] = ends[taken[~of_state] - base]
    own = state.ends[rows, feeds[of_state]]
    filled[of_state] = np.where(own == ABSENT, state.published[rows], own)
    return filled
