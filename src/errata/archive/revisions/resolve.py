"""What becomes of each revision, decided by whole columns.

Every value becomes a small number, equal for equal values. A version of a row is, for each column, the number of the
row that the value was taken from: so nothing is copied before it is known what stands in the end.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from errata.archive import schemas
from errata.archive.bucket_writer import POS
from errata.archive.revisions.pending import NUMBER, PLACE, RevisionFlags, new_keys, revision_keys
from errata.archive.schemas import overlay_schema
from errata.archive.tables import concat_columns, key_numbers, value_codes
from errata.intake.convert import canonical_text
from errata.model.batch import (
    Op,
    aged_out_reason,
    duplicate_key_reason,
    key_taken_reason,
    no_such_row_reason,
    old_value_reason,
)
from errata.model.results import old_column
from errata.model.stream import ARRIVAL_COLUMN, DuplicatePolicy, Stream
from errata.model.time import LOWEST


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
class RowVersions:
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
    def of(cls, stream: Stream, revisions: pa.Table, live: pa.Table, said: RevisionFlags) -> RowVersions:
        rows, count = live.num_rows, live.num_rows + revisions.num_rows
        shape = (count, len(stream.columns))
        values = tuple(concat_columns(live[name], revisions[name]) for name in stream.names)
        numbers, claims = np.empty(shape, np.int32), np.zeros((revisions.num_rows, shape[1]), np.int32)
        for at, name in enumerate(stream.names):
            claimed = said.claimed[:, at].any()
            both = value_codes(concat_columns(values[at], revisions[old_column(name)]) if claimed else values[at])
            numbers[:, at] = both[:count]
            if claimed:
                claims[:, at] = both[count:]
        sources = np.repeat(np.arange(count, dtype=np.int32), shape[1]).reshape(shape)
        order = values[stream.names.index(stream.order)].cast(pa.int64()).fill_null(LOWEST).to_numpy()
        return cls(rows, values, numbers, claims, sources, order)

    def image(self, column: int, versions: np.ndarray, absent: np.ndarray) -> pa.ChunkedArray:
        """A column of some versions, NULL for those that are absent."""
        return self.values[column].take(pa.array(self.sources[versions, column], mask=absent))


class RevisionResolver:
    """Revisions being decided, and what is live in between. They are taken in pieces that have no key twice."""

    def __init__(
        self,
        stream: Stream,
        said: RevisionFlags,
        versions: RowVersions,
        live: np.ndarray,
        own: np.ndarray,
        new: np.ndarray,
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
        self.live_before = np.full(count, -1)
        """The version that was live when a revision had its turn."""
        self._columns = np.arange(len(stream.columns))
        self._order = stream.names.index(stream.order)
        self._unsaid = stream.names.index(ARRIVAL_COLUMN) if stream.ordered_on_arrival else None
        self._first_stands = stream.on_duplicate is DuplicatePolicy.QUARANTINE

    def decide(self, index: np.ndarray, absent: np.ndarray, aged_to: int) -> None:
        """Decide these revisions and carry them out; `absent` is what becomes of those whose row is not there."""
        there = self._current[self._own[index]]
        self.live_before[index] = there
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
        found = versions.codes[versions.sources[self.live_before[index]], self._columns]
        wrong: np.ndarray = self._said.claimed[index] & (versions.claims[index] != found)
        return wrong


def verdict_if_absent(said: RevisionFlags, identities: pa.Table, stable: int | None, aged_to: int) -> np.ndarray:
    """What becomes of each revision if there is no row of its key when its turn comes."""
    known = np.asarray(identities[PLACE].is_valid())
    place = identities[PLACE].fill_null(LOWEST).to_numpy()
    aged = known & (place < aged_to)
    outcome = np.full(len(place), Verdict.MISSING, dtype=np.uint8)
    outcome[aged] = Verdict.AGED
    outcome[known & (stable is None or place >= stable)] = Verdict.WAITING
    outcome[said.inserts] = np.where(aged[said.inserts], Verdict.AGED, Verdict.INSERTED)
    return outcome


def decision_rounds(own: np.ndarray, new: np.ndarray) -> np.ndarray:
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
        level[tangled] = _chained_rounds(own[tangled].tolist(), new[tangled].tolist(), len(involved))
    plain = np.flatnonzero(~tangled)
    by_key = plain[np.argsort(own[plain], kind="stable")]
    starts = np.flatnonzero(np.diff(own[by_key], prepend=-1))
    lengths = np.diff(np.append(starts, len(by_key)))
    level[by_key] = np.arange(len(by_key)) - np.repeat(starts, lengths)
    return level


def _chained_rounds(own: list[int], new: list[int], keys: int) -> list[int]:
    """The rounds of revisions among which rows change keys: where one leads is known only from those before it."""
    spoken_of = [-1] * keys
    level = []
    for one, other in zip(own, new, strict=True):
        spoken_of[one] = spoken_of[other] = max(spoken_of[one], spoken_of[other]) + 1
        level.append(spoken_of[one])
    return level


# Many revisions decided at once: what each of them does to the rows that are live when its turn comes.
#
# `tests/fixtures/oracle/revision.py` says what is right, one revision after another. Here revisions are taken in
# rounds. Those of one round have no key in common, so it does not matter which comes first; most claims are one round.

BUCKET = "_bucket"
MAX_ROUND_ROWS = 1 << 16
"""Revisions compared in one go: few enough for what is compared to stay near the processor."""

_OPS = pa.array([Op.INSERT.value, Op.REPLACE.value, Op.DELETE.value])
"""What applied revisions did, by Verdict."""

_REASONS = {
    Verdict.AGED: aged_out_reason(),
    Verdict.MISSING: no_such_row_reason(),
    Verdict.DUPLICATE: duplicate_key_reason(),
    Verdict.TAKEN: key_taken_reason(),
}


@dataclass(frozen=True, slots=True)
class Resolution:
    """What became of a claim of revisions. Those that were not applied are named by their index in the claim."""

    overlay: pa.Table
    """The applied ones, by number, as `overlay_schema` has them."""
    masked: dict[int, int]
    """By bucket, how many of its rows have been superseded."""
    waiting: np.ndarray
    refused: np.ndarray
    reasons: pa.Array
    """Why, for each of the refused ones."""
    dropped: int
    """How many said what was there already."""
    inserted: int
    replaced: int
    deleted: int


def resolve_revisions(
    stream: Stream, revisions: pa.Table, live: pa.Table, stable: int | None, aged_to: int | None
) -> Resolution:
    """Decide revisions (`claim_schema`) by number, each against what the ones before it have left.

    `live` has the live rows of the keys that `sought` names, each key once: the declared columns, `_batch`, `_pos` and
    `_revision`, which say where they came from, and `_bucket`, the bucket that they are in.
    """
    said = RevisionFlags.by(stream, revisions)
    mine = revision_keys(stream, revisions, said)
    keys, own, new = _number_keys(stream, revisions, live, said, mine)
    versions = RowVersions.of(stream, revisions, live, said)
    course = RevisionResolver(stream, said, versions, keys, own, new)
    behind = LOWEST if aged_to is None else aged_to
    absent = verdict_if_absent(said, mine, stable, behind)
    for index in _round_pieces(decision_rounds(own, new)):
        course.decide(index, absent, behind)
    applied = np.flatnonzero(course.outcome <= Verdict.DELETED)
    refused = np.flatnonzero(course.outcome >= Verdict.AGED)
    counts = np.bincount(course.outcome, minlength=len(Verdict)).tolist()
    return Resolution(
        overlay=_overlay_rows(stream, revisions, live, versions, course, applied),
        masked=_masked_counts(live, course.live_before[applied]),
        waiting=np.flatnonzero(course.outcome == Verdict.WAITING),
        refused=refused,
        reasons=_refusal_reasons(stream, revisions, versions, course, refused),
        dropped=counts[Verdict.DROPPED],
        inserted=counts[Verdict.INSERTED],
        replaced=counts[Verdict.REPLACED],
        deleted=counts[Verdict.DELETED],
    )


def _number_keys(
    stream: Stream, revisions: pa.Table, live: pa.Table, said: RevisionFlags, mine: pa.Table
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The keys of the live rows, of the rows spoken of, and of what revisions would make of these, as numbers."""
    names = list(stream.key)
    moving = said.moving(stream)
    every = [live.select(names), mine.select(names), new_keys(stream, revisions, said, moving)]
    numbers = key_numbers(pa.concat_tables(every))
    keys, own, moved = np.split(numbers, [live.num_rows, live.num_rows + revisions.num_rows])
    new = own.copy()
    new[moving] = moved
    return keys, own, new


def _round_pieces(level: np.ndarray) -> Iterator[np.ndarray]:
    """Round by round, the indexes of revisions, not too many in one piece."""
    by_level = np.argsort(level, kind="stable")
    ends = np.cumsum(np.bincount(level)).tolist()
    start = 0
    for end in ends:
        for first in range(start, end, MAX_ROUND_ROWS):
            yield by_level[first : min(first + MAX_ROUND_ROWS, end)]
        start = end


def _overlay_rows(
    stream: Stream,
    revisions: pa.Table,
    live: pa.Table,
    versions: RowVersions,
    course: RevisionResolver,
    applied: np.ndarray,
) -> pa.Table:
    some = revisions.take(pa.array(applied))
    outcome, old = course.outcome[applied], course.live_before[applied]
    made, unmade, none = versions.rows + applied, outcome == Verdict.DELETED, old < 0
    whole = pa.scalar(",".join(stream.names))
    columns: dict[str, pa.Array | pa.ChunkedArray] = {
        schemas.REVISION: some[NUMBER],
        schemas.OPERATION: _OPS.take(pa.array(outcome)),
        schemas.BATCH: some[schemas.BATCH],
        POS: some[POS],
        schemas.GIVEN: pc.if_else(pc.equal(some[schemas.OPERATION], Op.INSERT.value), whole, some[schemas.GIVEN]),
        schemas.MASKS: pa.array(~none),
        schemas.LIVE: pa.array(~unmade),
    }
    for at, name in enumerate(stream.names):
        columns[name] = versions.image(at, made, unmade)
        columns[old_column(name)] = versions.image(at, old, none)
    before = pa.array(old, mask=none)
    for name, origin, later in (
        (schemas.OLD_BATCH, schemas.BATCH, schemas.BATCH),
        (schemas.OLD_POS, POS, POS),
        (schemas.OLD_REVISION, schemas.REVISION, NUMBER),
    ):
        columns[name] = concat_columns(live[origin], revisions[later]).take(before)
    schema = overlay_schema(stream)
    return pa.table([columns[name] for name in schema.names], schema=schema)


def _masked_counts(live: pa.Table, old: np.ndarray) -> dict[int, int]:
    """What was made within the claim is in no bucket yet, and masks nothing of one when it is superseded."""
    stored = pa.array(old[(old >= 0) & (old < live.num_rows)])
    buckets = live[BUCKET].take(stored).drop_null().to_numpy()
    return dict(zip(*(each.tolist() for each in np.unique(buckets, return_counts=True)), strict=True))


def _refusal_reasons(
    stream: Stream, revisions: pa.Table, versions: RowVersions, course: RevisionResolver, refused: np.ndarray
) -> pa.Array:
    """Why each was refused; of old values that do not match, the first in the order of the declaration."""
    words = np.array([_REASONS.get(outcome, "") for outcome in Verdict], dtype=object)
    said = words[course.outcome[refused]]
    unequal = np.flatnonzero(course.outcome[refused] == Verdict.MISMATCH)
    first = course.mismatched(refused[unequal]).argmax(axis=1)
    for at in np.unique(first).tolist():
        name, of = stream.names[at], unequal[first == at]
        met = course.live_before[refused[of]]
        claimed = _display_texts(revisions[old_column(name)].take(pa.array(refused[of])))
        found = _display_texts(versions.image(at, met, met < 0))
        said[of] = [old_value_reason(name, *pair) for pair in zip(claimed, found, strict=True)]
    return pa.array(said, pa.string())


def _display_texts(values: pa.ChunkedArray) -> list[str]:
    words: list[str] = canonical_text(values).fill_null("NULL").to_pylist()
    return words
