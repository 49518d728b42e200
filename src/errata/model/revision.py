"""Revisions: numbered facts that reach behind the stable point, and what rows are after them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from errata.model.feed import Payload, canonical
from errata.model.stream import ARRIVAL, OnDuplicate, OnRevision, Stream

Key = tuple[Any, ...]
Row = dict[str, object]


class Op(StrEnum):
    """What a record of a batch, or a revision, does to the row of its key."""

    INSERT = "insert"
    REPLACE = "replace"
    DELETE = "delete"


class Outcome(StrEnum):
    """What becomes of a revision when its turn comes."""

    INSERTED = "inserted"
    REPLACED = "replaced"
    DELETED = "deleted"
    DROPPED = "dropped"
    """It says what is so already."""
    REFUSED = "refused"
    """It is wrong, and goes to quarantine with the reason."""
    WAITING = "waiting"
    """Of a row that is not there yet and may still come."""
    IGNORED = "ignored"
    """The stream ignores revisions."""


@dataclass(frozen=True, slots=True)
class Revision:
    """A numbered fact that reaches behind the stable point."""

    number: int
    op: Op
    key: Key
    """The key of the row that it inserts, replaces or deletes; a replacement's values may change it."""
    values: Payload
    old: Payload = field(default_factory=dict)
    """What it says that the row was before, `_old_…`: columns of the key are among them where it gives them so."""
    batch_id: str = field(default="", compare=False)
    """The batch that brought it."""
    row: int | None = field(default=None, compare=False)
    """The row that an insertion brings back, where it undoes something; by what number, only the oracle knows."""

    def claims(self, stream: Stream) -> Payload:
        """The old values that it is held to. No key and no order field is NULL, so a NULL there says nothing."""
        if self.op is Op.INSERT:
            return {}
        return {
            name: self.old[name]
            for name in stream.names
            if name in self.old and not (self.old[name] is None and name in stream.required)
        }

    def place(self, stream: Stream) -> int | None:
        """The order field of the row that it speaks of, as far as it says so: where that row is or would be."""
        if self.op is Op.INSERT:
            return integer(self.values[stream.order])
        if stream.key_has_order:
            return integer(self.key[stream.key.index(stream.order)])
        place = self.claims(stream).get(stream.order)
        if place is None and self.op is Op.REPLACE:
            place = self.values.get(stream.order)
        return None if place is None else integer(place)


@dataclass(frozen=True, slots=True)
class Decision:
    """What became of one revision, and the row before and after it where it changed one."""

    revision: Revision
    outcome: Outcome
    reason: str | None = None
    """Why it was refused, or what it waits for."""
    old: Row | None = None
    new: Row | None = None

    @property
    def changes(self) -> bool:
        return self.old is not None or self.new is not None


@dataclass(frozen=True, slots=True)
class Corrected:
    """Rows after revisions, and what became of each of these, by number."""

    rows: tuple[Row, ...]
    outcomes: tuple[Decision, ...]

    @property
    def refused(self) -> tuple[Revision, ...]:
        return tuple(each.revision for each in self.outcomes if each.outcome is Outcome.REFUSED)


def no_such_row() -> str:
    return "no such row: no row of this key is there to correct"


def aged_out() -> str:
    return "aged out: the stream no longer keeps rows as old as this one"


def not_yet_there() -> str:
    return "row not yet there: no row of this key has come, and one still may"


def old_differs(column: str, claimed: str, found: str) -> str:
    return f"old value does not match: {column} is said to have been {claimed}, and it is {found}"


def key_taken() -> str:
    return "key belongs to another row: the row cannot take a key that another one has"


def duplicate_key() -> str:
    return "duplicate key: the archive has a row of this key that says something else"


def corrected(
    stream: Stream,
    rows: Iterable[Row],
    revisions: Iterable[Revision],
    stable: int | None = None,
    aged_to: int | None = None,
) -> Corrected:
    """The rows after the revisions, one after another by number: each meets what those before it have left."""
    live = {key_of(stream, row): row for row in rows}
    outcomes = []
    for revision in sorted(revisions, key=lambda revision: revision.number):
        decision = decide(stream, live, revision, stable, aged_to)
        if decision.old is not None:
            del live[key_of(stream, decision.old)]
        if decision.new is not None:
            live[key_of(stream, decision.new)] = decision.new
        outcomes.append(decision)
    return Corrected(in_stream_order(stream, live.values()), tuple(outcomes))


def decide(
    stream: Stream, live: Mapping[Key, Row], revision: Revision, stable: int | None, aged_to: int | None
) -> Decision:
    """What becomes of a revision, given the live rows by key, the stable point, and up to where rows have aged out."""
    if stream.on_revision is OnRevision.IGNORE:
        return Decision(revision, Outcome.IGNORED)
    there = live.get(revision.key)
    if there is None:
        return _of_no_row(stream, revision, stable, aged_to)
    if revision.op is Op.INSERT and identical(stream, there, revision.values):
        return Decision(revision, Outcome.DROPPED)
    if reason := _contradiction(stream, revision, there):
        return Decision(revision, Outcome.REFUSED, reason)
    if revision.op is Op.DELETE:
        return Decision(revision, Outcome.DELETED, old=there)
    return _replaced(stream, live, revision, there, aged_to)


def _of_no_row(stream: Stream, revision: Revision, stable: int | None, aged_to: int | None) -> Decision:
    """What becomes of a revision whose key no row has."""
    place = revision.place(stream)
    aged = place is not None and aged_to is not None and place < aged_to
    if revision.op is Op.INSERT:
        if aged:
            return Decision(revision, Outcome.REFUSED, aged_out())
        return Decision(revision, Outcome.INSERTED, new=dict(revision.values))
    if place is not None and (stable is None or place >= stable):
        return Decision(revision, Outcome.WAITING, not_yet_there())
    return Decision(revision, Outcome.REFUSED, aged_out() if aged else no_such_row())


def _contradiction(stream: Stream, revision: Revision, there: Row) -> str | None:
    """How the revision contradicts the row that it met, in words; None when it does not."""
    if revision.op is Op.INSERT and stream.on_duplicate is OnDuplicate.QUARANTINE:
        return duplicate_key()
    for name, claimed in revision.claims(stream).items():
        if canonical(claimed) != canonical(there[name]):
            return old_differs(name, _in_words(claimed), _in_words(there[name]))
    return None


def _replaced(stream: Stream, live: Mapping[Key, Row], revision: Revision, there: Row, aged_to: int | None) -> Decision:
    """What becomes of the row that is there and the values that are to stand in it."""
    new = {**there, **revision.values}
    key = key_of(stream, new)
    if key != revision.key and key in live:
        return Decision(revision, Outcome.REFUSED, key_taken())
    if aged_to is not None and integer(new[stream.order]) < aged_to:
        return Decision(revision, Outcome.REFUSED, aged_out())
    if all(canonical(new[name]) == canonical(there[name]) for name in stream.names):
        return Decision(revision, Outcome.DROPPED)
    return Decision(revision, Outcome.REPLACED, old=there, new=new)


def key_of(stream: Stream, row: Mapping[str, object]) -> Key:
    """The values of the key columns."""
    return tuple(canonical(row[name]) for name in stream.key)


def identical(stream: Stream, one: Mapping[str, object], other: Mapping[str, object]) -> bool:
    """Whether two rows say the same. When they arrived is not something that they say."""
    said = [name for name in stream.names if not (stream.ordered_on_arrival and name == ARRIVAL)]
    return all(canonical(one[name]) == canonical(other[name]) for name in said)


def in_stream_order(stream: Stream, rows: Iterable[Row]) -> tuple[Row, ...]:
    """The rows by order field and key, the one order of a stream that is total."""
    return tuple(sorted(rows, key=lambda row: (integer(row[stream.order]), key_of(stream, row))))


def integer(value: object) -> int:
    """A value of the order column, which to the oracle is an integer whatever its type."""
    if not isinstance(value, int):
        raise TypeError(f"the oracle's order values are integers, not {value!r}")
    return value


def _in_words(value: object) -> str:
    return "NULL" if value is None else str(value)
