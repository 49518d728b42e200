"""What becomes of each revision, decided by whole columns.

Every value becomes a small number, equal for equal values. A version of a row is, for each column, the number of the
row that the value was taken from: so nothing is copied before it is known what stands in the end.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import pyarrow as pa

from errata.archive.keys import PLACE, Said, codes, joined
from errata.archive.wire import old_column
from errata.model.interval import LOWEST
from errata.model.stream import ARRIVAL, OnDuplicate, Stream


class Verdict(IntEnum):
    """What became of a revision, with the reasons told apart; from AGED on it was refused."""

    INSERTED = 0
    REPLACED = 1
    DELETED = 2
    DROPPED = 3
    WAITING = 4
    AGED = 5
    MISSING = 6
    DUPLICATE = 7
    TAKEN = 8
    MISMATCH = 9


@dataclass(frozen=True, slots=True)
class Versions:
    """The rows that are live, and behind them a row for each revision: the version that it makes, if it makes one."""

    rows: int
    """How many were live; the version of revision i is number rows + i."""
    values: tuple[pa.ChunkedArray, ...]
    """What each row says, by column. What a revision leaves as it was is not there, but in `sources`."""
    codes: np.ndarray
    """The same as numbers, by row and column."""
    claims: np.ndarray
    """The old values that revisions claim, as numbers of the same meaning."""
    sources: np.ndarray
    """By version and column, the row in which the value stands."""
    order: np.ndarray
    """The order field of each row."""

    @classmethod
    def of(cls, stream: Stream, revisions: pa.Table, live: pa.Table, said: Said) -> Versions:
        rows, count = live.num_rows, live.num_rows + revisions.num_rows
        shape = (count, len(stream.columns))
        values = tuple(joined(live[name], revisions[name]) for name in stream.names)
        numbers, claims = np.empty(shape, np.int32), np.zeros((revisions.num_rows, shape[1]), np.int32)
        for at, name in enumerate(stream.names):
            claimed = said.claimed[:, at].any()
            both = codes(joined(values[at], revisions[old_column(name)]) if claimed else values[at])
            numbers[:, at] = both[:count]
            if claimed:
                claims[:, at] = both[count:]
        sources = np.repeat(np.arange(count, dtype=np.int32), shape[1]).reshape(shape)
        order = values[stream.names.index(stream.order)].cast(pa.int64()).fill_null(LOWEST).to_numpy()
        return cls(rows, values, numbers, claims, sources, order)

    def image(self, column: int, versions: np.ndarray, absent: np.ndarray) -> pa.ChunkedArray:
        """A column of some versions, NULL for those that are absent."""
        return self.values[column].take(pa.array(self.sources[versions, column], mask=absent))


class Course:
    """Revisions being decided, and what is live in between. They are taken in pieces that have no key twice."""

    def __init__(
        self, stream: Stream, said: Said, versions: Versions, live: np.ndarray, own: np.ndarray, new: np.ndarray
    ) -> None:
        self._said = said
        self._versions = versions
        self._own, self._new = own, new
        """The keys, as numbers, of the rows that revisions speak of, and of what they would leave."""
        count = len(own)
        self._current = np.full(max(live.max(initial=-1), own.max(initial=-1), new.max(initial=-1)) + 1, -1)
        """By key, the version that is live."""
        self._current[live] = np.arange(len(live))
        self.outcome = np.zeros(count, dtype=np.uint8)
        self.met = np.full(count, -1)
        """The version that was live when a revision had its turn."""
        self._columns = np.arange(len(stream.columns))
        self._order = stream.names.index(stream.order)
        self._unsaid = stream.names.index(ARRIVAL) if stream.ordered_on_arrival else None
        self._first_stands = stream.on_duplicate is OnDuplicate.QUARANTINE

    def take(self, index: np.ndarray, absent: np.ndarray, aged_to: int) -> None:
        """Decide these revisions and carry them out; `absent` is what becomes of those whose row is not there."""
        there = self._current[self._own[index]]
        self.met[index] = there
        outcome = absent[index]
        present = there >= 0
        if present.all():
            outcome = self._compared(index, there, aged_to)
        elif present.any():
            outcome[present] = self._compared(index[present], there[present], aged_to)
        self.outcome[index] = outcome
        made = outcome <= Verdict.REPLACED
        gone = (outcome == Verdict.REPLACED) | (outcome == Verdict.DELETED)
        self._current[self._own[index[gone]]] = -1
        self._current[self._new[index[made]]] = self._versions.rows + index[made]

    def _compared(self, index: np.ndarray, there: np.ndarray, aged_to: int) -> np.ndarray:
        """What becomes of revisions whose row is there. What is found wrong first is written last."""
        versions, said = self._versions, self._said
        sources = versions.sources[there]
        found = versions.codes[sources, self._columns]
        made = versions.rows + index
        given = said.given[index]
        sources = np.where(given, made[:, None], sources)
        versions.sources[made] = sources
        inserts = said.inserts[index]
        differs = given & (versions.codes[made] != found)
        if self._unsaid is not None:
            differs[inserts, self._unsaid] = False
        same = ~differs.any(axis=1)
        own, new = self._own[index], self._new[index]
        outcome = np.full(len(index), Verdict.REPLACED, dtype=np.uint8)
        outcome[same] = Verdict.DROPPED
        outcome[(versions.order[sources[:, self._order]] < aged_to) & ~(same & inserts)] = Verdict.AGED
        outcome[(own != new) & (self._current[new] >= 0)] = Verdict.TAKEN
        if self._first_stands:
            outcome[inserts & ~same] = Verdict.DUPLICATE
        outcome[said.deletes[index]] = Verdict.DELETED
        outcome[(said.claimed[index] & (versions.claims[index] != found)).any(axis=1)] = Verdict.MISMATCH
        return outcome

    def mismatched(self, index: np.ndarray) -> np.ndarray:
        """The columns in which revisions claim old values that the rows they met did not have."""
        versions = self._versions
        found = versions.codes[versions.sources[self.met[index]], self._columns]
        wrong: np.ndarray = self._said.claimed[index] & (versions.claims[index] != found)
        return wrong


def if_absent(said: Said, identities: pa.Table, stable: int | None, aged_to: int) -> np.ndarray:
    """What becomes of each revision if there is no row of its key when its turn comes."""
    known = np.asarray(identities[PLACE].is_valid())
    place = identities[PLACE].fill_null(LOWEST).to_numpy()
    aged = known & (place < aged_to)
    outcome = np.full(len(place), Verdict.MISSING, dtype=np.uint8)
    outcome[aged] = Verdict.AGED
    outcome[known & (stable is None or place >= stable)] = Verdict.WAITING
    outcome[said.inserts] = np.where(aged[said.inserts], Verdict.AGED, Verdict.INSERTED)
    return outcome


def rounds(own: np.ndarray, new: np.ndarray) -> np.ndarray:
    """The round in which each revision is decided: one later than whatever spoke of its keys last.

    `own` and `new` are the keys that each speaks of, as numbers. Where no row changes its key, a revision's round is
    how many of the same key came before it.
    """
    count = len(own)
    moved = own != new
    level = np.zeros(count, dtype=np.int64)
    tangled = np.zeros(count, dtype=bool)
    if moved.any():
        involved = np.zeros(max(own.max(), new.max()) + 1, dtype=bool)
        involved[own[moved]] = involved[new[moved]] = True
        tangled = involved[own]
        level[tangled] = _one_by_one(own[tangled].tolist(), new[tangled].tolist(), len(involved))
    plain = np.flatnonzero(~tangled)
    by_key = plain[np.argsort(own[plain], kind="stable")]
    starts = np.flatnonzero(np.diff(own[by_key], prepend=-1))
    lengths = np.diff(np.append(starts, len(by_key)))
    level[by_key] = np.arange(len(by_key)) - np.repeat(starts, lengths)
    return level


def _one_by_one(own: list[int], new: list[int], keys: int) -> list[int]:
    """The rounds of revisions among which rows change keys: where one leads is known only from those before it."""
    spoken_of = [-1] * keys
    level = []
    for one, other in zip(own, new, strict=True):
        spoken_of[one] = spoken_of[other] = max(spoken_of[one], spoken_of[other]) + 1
        level.append(spoken_of[one])
    return level
