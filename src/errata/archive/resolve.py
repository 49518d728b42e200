"""Many revisions decided at once: what each of them does to the rows that are live when its turn comes.

`tests/fixtures/oracle/revision.py` says what is right, one revision after another. Here revisions are taken in rounds.
Those of one round have no key in common, so it does not matter which comes first; most claims are one round.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from errata.archive import overlay
from errata.archive.keys import NUMBER, Said, identities, joined, key_numbers, new_keys
from errata.archive.overlay import overlay_schema
from errata.archive.verdicts import Course, Verdict, Versions, if_absent, rounds
from errata.archive.wire import old_column
from errata.archive.written import POS
from errata.intake.values import as_text
from errata.model.interval import LOWEST
from errata.model.revision import Op, aged_out, duplicate_key, key_taken, no_such_row, old_differs
from errata.model.stream import Stream

BUCKET = "_bucket"
AT_ONCE = 1 << 16
"""Revisions compared in one go: few enough for what is compared to stay near the processor."""

_OPS = pa.array([Op.INSERT.value, Op.REPLACE.value, Op.DELETE.value])
"""What applied revisions did, by Verdict."""

_REASONS = {
    Verdict.AGED: aged_out(),
    Verdict.MISSING: no_such_row(),
    Verdict.DUPLICATE: duplicate_key(),
    Verdict.TAKEN: key_taken(),
}


@dataclass(frozen=True, slots=True)
class Resolved:
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


def resolve(stream: Stream, revisions: pa.Table, live: pa.Table, stable: int | None, aged_to: int | None) -> Resolved:
    """Decide revisions (`claim_schema`) by number, each against what the ones before it have left.

    `live` has the live rows of the keys that `sought` names, each key once: the declared columns, `_batch`, `_pos` and
    `_revision`, which say where they came from, and `_bucket`, the bucket that they are in.
    """
    said = Said.by(stream, revisions)
    mine = identities(stream, revisions, said)
    keys, own, new = _keys(stream, revisions, live, said, mine)
    versions = Versions.of(stream, revisions, live, said)
    course = Course(stream, said, versions, keys, own, new)
    behind = LOWEST if aged_to is None else aged_to
    absent = if_absent(said, mine, stable, behind)
    for index in _pieces(rounds(own, new)):
        course.take(index, absent, behind)
    applied = np.flatnonzero(course.outcome <= Verdict.DELETED)
    refused = np.flatnonzero(course.outcome >= Verdict.AGED)
    counts = np.bincount(course.outcome, minlength=len(Verdict)).tolist()
    return Resolved(
        overlay=_overlay(stream, revisions, live, versions, course, applied),
        masked=_masked(live, course.met[applied]),
        waiting=np.flatnonzero(course.outcome == Verdict.WAITING),
        refused=refused,
        reasons=_reasons(stream, revisions, versions, course, refused),
        dropped=counts[Verdict.DROPPED],
        inserted=counts[Verdict.INSERTED],
        replaced=counts[Verdict.REPLACED],
        deleted=counts[Verdict.DELETED],
    )


def _keys(
    stream: Stream, revisions: pa.Table, live: pa.Table, said: Said, mine: pa.Table
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


def _pieces(level: np.ndarray) -> Iterator[np.ndarray]:
    """Round by round, the indexes of revisions, not too many in one piece."""
    by_level = np.argsort(level, kind="stable")
    ends = np.cumsum(np.bincount(level)).tolist()
    start = 0
    for end in ends:
        for first in range(start, end, AT_ONCE):
            yield by_level[first : min(first + AT_ONCE, end)]
        start = end


def _overlay(
    stream: Stream, revisions: pa.Table, live: pa.Table, versions: Versions, course: Course, applied: np.ndarray
) -> pa.Table:
    some = revisions.take(pa.array(applied))
    outcome, old = course.outcome[applied], course.met[applied]
    made, unmade, none = versions.rows + applied, outcome == Verdict.DELETED, old < 0
    whole = pa.scalar(",".join(stream.names))
    columns: dict[str, pa.Array | pa.ChunkedArray] = {
        overlay.REVISION: some[NUMBER],
        overlay.OP: _OPS.take(pa.array(outcome)),
        overlay.BATCH: some[overlay.BATCH],
        POS: some[POS],
        overlay.GIVEN: pc.if_else(pc.equal(some[overlay.OP], Op.INSERT.value), whole, some[overlay.GIVEN]),
        overlay.MASKS: pa.array(~none),
        overlay.LIVE: pa.array(~unmade),
    }
    for at, name in enumerate(stream.names):
        columns[name] = versions.image(at, made, unmade)
        columns[old_column(name)] = versions.image(at, old, none)
    before = pa.array(old, mask=none)
    for name, origin, later in (
        (overlay.OLD_BATCH, overlay.BATCH, overlay.BATCH),
        (overlay.OLD_POS, POS, POS),
        (overlay.OLD_REVISION, overlay.REVISION, NUMBER),
    ):
        columns[name] = joined(live[origin], revisions[later]).take(before)
    schema = overlay_schema(stream)
    return pa.table([columns[name] for name in schema.names], schema=schema)


def _masked(live: pa.Table, old: np.ndarray) -> dict[int, int]:
    """What was made within the claim is in no bucket yet, and masks nothing of one when it is superseded."""
    stored = pa.array(old[(old >= 0) & (old < live.num_rows)])
    buckets = live[BUCKET].take(stored).drop_null().to_numpy()
    return dict(zip(*(each.tolist() for each in np.unique(buckets, return_counts=True)), strict=True))


def _reasons(stream: Stream, revisions: pa.Table, versions: Versions, course: Course, refused: np.ndarray) -> pa.Array:
    """Why each was refused; of old values that do not match, the first in the order of the declaration."""
    words = np.array([_REASONS.get(outcome, "") for outcome in Verdict], dtype=object)
    said = words[course.outcome[refused]]
    unequal = np.flatnonzero(course.outcome[refused] == Verdict.MISMATCH)
    first = course.mismatched(refused[unequal]).argmax(axis=1)
    for at in np.unique(first).tolist():
        name, of = stream.names[at], unequal[first == at]
        met = course.met[refused[of]]
        claimed = _in_words(revisions[old_column(name)].take(pa.array(refused[of])))
        found = _in_words(versions.image(at, met, met < 0))
        said[of] = [old_differs(name, *pair) for pair in zip(claimed, found, strict=True)]
    return pa.array(said, pa.string())


def _in_words(values: pa.ChunkedArray) -> list[str]:
    words: list[str] = as_text(values).fill_null("NULL").to_pylist()
    return words
