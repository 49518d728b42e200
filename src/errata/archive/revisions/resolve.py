"""Resolves many revisions at once: what each does to the rows that are live when its turn comes.

Revisions are decided in rounds, one after the other. Those of one round have no key in common, so their order does not
matter; most claims need one round. `tests/fixtures/oracle/revision.py` states the result one revision at a time.

Every value becomes a small integer, equal for equal values. A version of a row is, for each column, the index of the
row that the value is taken from, so that values are copied only once it is known which are needed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from errata.archive import schemas
from errata.archive.bucket_files import POS
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
    """What becomes of a revision. From AGED on it is refused, each for another reason."""

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
    """The live rows, followed by a row for each revision: the version that it makes, if it makes one."""

    rows: int
    """How many rows were live; the version of revision i has the index rows + i."""
    values: tuple[pa.ChunkedArray, ...]
    """The values of each row, by column. Values that a revision does not give are found through `sources`."""
    codes: np.ndarray
    """The values as integers, by row and column."""
    claims: np.ndarray
    """The old values that revisions claim, as integers with the same meaning."""
    sources: np.ndarray
    """By version and column, the row that has the value."""
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
        """A column of some versions, NULL for the absent ones."""
        return self.values[column].take(pa.array(self.sources[versions, column], mask=absent))


class RevisionResolver:
    """Decides revisions in pieces without a common key, and keeps which versions are live in between."""

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
        """The key numbers of the revisions' rows, and of these rows after the revision."""
        count = len(own)
        self._current = np.full(max(live.max(initial=-1), own.max(initial=-1), new.max(initial=-1)) + 1, -1)
        """By key number, the version that is live, or -1."""
        self._current[live] = np.arange(len(live))
        self.outcome = np.zeros(count, dtype=np.uint8)
        self.live_before = np.full(count, -1)
        """The version that was live before each revision."""
        self._columns = np.arange(len(stream.columns))
        self._order = stream.names.index(stream.order)
        self._unsaid = stream.names.index(ARRIVAL_COLUMN) if stream.ordered_on_arrival else None
        self._first_stands = stream.on_duplicate is DuplicatePolicy.QUARANTINE

    def decide(self, index: np.ndarray, absent: np.ndarray, aged_to: int) -> None:
        """Decide these revisions and carry them out; `absent` has the verdicts for revisions whose row does not
        exist."""
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
        """The verdicts for revisions whose row exists. Later assignments override earlier ones."""
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
        """The columns in which revisions claim old values that their rows did not have."""
        versions = self._versions
        found = versions.codes[versions.sources[self.live_before[index]], self._columns]
        wrong: np.ndarray = self._said.claimed[index] & (versions.claims[index] != found)
        return wrong


def verdict_if_absent(
    said: RevisionFlags, identities: pa.Table, stable: int | None, aged_to: int, *, merged: bool = False
) -> np.ndarray:
    """The verdict for each revision if no row has its key when its turn comes. `merged`: several feeds may say that a
    row does not exist, and the second one repeats the first."""
    known = np.asarray(identities[PLACE].is_valid())
    place = identities[PLACE].fill_null(LOWEST).to_numpy()
    aged = known & (place < aged_to)
    outcome = np.full(len(place), Verdict.MISSING, dtype=np.uint8)
    if merged:
        outcome[said.deletes] = Verdict.DROPPED
    outcome[aged] = Verdict.AGED
    outcome[known & (stable is None or place >= stable)] = Verdict.WAITING
    outcome[said.inserts] = np.where(aged[said.inserts], Verdict.AGED, Verdict.INSERTED)
    return outcome


def decision_rounds(own: np.ndarray, new: np.ndarray) -> np.ndarray:
    """The round in which each revision is decided: one after that of the last earlier revision with one of its keys.

    `own` and `new` are the key numbers before and after each revision. If no row changes its key, a revision's round is
    the number of earlier revisions of the same key.
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
    """The rounds of revisions that change keys, or share keys with such: each depends on those before it."""
    spoken_of = [-1] * keys
    level = []
    for one, other in zip(own, new, strict=True):
        spoken_of[one] = spoken_of[other] = max(spoken_of[one], spoken_of[other]) + 1
        level.append(spoken_of[one])
    return level


# A claim of revisions resolved: overlays, waiting ones, and refusals with their reasons.

BUCKET = "_bucket"
MAX_ROUND_ROWS = 1 << 16
"""Revisions compared at once, so that the arrays stay in the processor's caches."""

_OPS = pa.array([Op.INSERT.value, Op.REPLACE.value, Op.DELETE.value])
"""The operations of applied revisions, by verdict."""

_REASONS = {
    Verdict.AGED: aged_out_reason(),
    Verdict.MISSING: no_such_row_reason(),
    Verdict.DUPLICATE: duplicate_key_reason(),
    Verdict.TAKEN: key_taken_reason(),
}


@dataclass(frozen=True, slots=True)
class RevisionOutcome:
    """The outcome for a claim of revisions. Those that were not applied are given by their index in the claim."""

    overlay: pa.Table
    """The applied revisions, by number (`overlay_schema`)."""
    masked: dict[int, int]
    """By bucket, how many of its rows have been superseded."""
    waiting: np.ndarray
    refused: np.ndarray
    reasons: pa.Array
    """Why, for each of the refused ones."""
    dropped: int
    """How many changed nothing, since their row had their values already."""
    inserted: int
    replaced: int
    deleted: int


def resolve_revisions(
    stream: Stream, revisions: pa.Table, live: pa.Table, stable: int | None, aged_to: int | None
) -> RevisionOutcome:
    """Decide revisions (`claim_schema`) by number, each on the rows that the ones before it have left.

    `live` has the live rows of the keys that `keys_to_find` names, each key once: the declared columns, their origin
    (`_batch`, `_pos`, `_revision`), and their bucket (`_bucket`).
    """
    said = RevisionFlags.by(stream, revisions)
    mine = revision_keys(stream, revisions, said)
    keys, own, new = _number_keys(stream, revisions, live, said, mine)
    versions = RowVersions.of(stream, revisions, live, said)
    course = RevisionResolver(stream, said, versions, keys, own, new)
    behind = LOWEST if aged_to is None else aged_to
    absent = verdict_if_absent(said, mine, stable, behind, merged=not stream.merged.is_empty)
    for index in _round_pieces(decision_rounds(own, new)):
        course.decide(index, absent, behind)
    applied = np.flatnonzero(course.outcome <= Verdict.DELETED)
    refused = np.flatnonzero(course.outcome >= Verdict.AGED)
    counts = np.bincount(course.outcome, minlength=len(Verdict)).tolist()
    return RevisionOutcome(
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
    """The key numbers of the live rows, of the revisions' rows, and of these rows after the revisions."""
    names = list(stream.key)
    moving = said.moving(stream)
    every = [live.select(names), mine.select(names), new_keys(stream, revisions, said, moving)]
    numbers = key_numbers(pa.concat_tables(every))
    keys, own, moved = np.split(numbers, [live.num_rows, live.num_rows + revisions.num_rows])
    new = own.copy()
    new[moving] = moved
    return keys, own, new


def _round_pieces(level: np.ndarray) -> Iterator[np.ndarray]:
    """The indexes of revisions, round by round, in pieces of at most MAX_ROUND_ROWS."""
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
    """By bucket, how many rows the claim masks. Versions made within the claim are in no bucket yet."""
    stored = pa.array(old[(old >= 0) & (old < live.num_rows)])
    buckets = live[BUCKET].take(stored).drop_null().to_numpy()
    return dict(zip(*(each.tolist() for each in np.unique(buckets, return_counts=True)), strict=True))


def _refusal_reasons(
    stream: Stream, revisions: pa.Table, versions: RowVersions, course: RevisionResolver, refused: np.ndarray
) -> pa.Array:
    """Why each was refused; for old values that differ, the first such column in the order of the declaration."""
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
