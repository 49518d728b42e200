"""Versions: every form that a row has had, and which of them are live as of a commit and a revision."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from errata.model.revision import Decision, Key, Op, Outcome, Row, in_stream_order, integer, key_of
from errata.model.stream import Stream


@dataclass(frozen=True, slots=True)
class Version:
    """One form of a row, from the commit that made it; a deletion makes a last one, without values."""

    row: int
    """Which row, whatever its key was at the time. A row that an undo brings back is the same row."""
    commit: int
    known: int
    """When that commit was made."""
    revision: int | None
    """The number of the revision that made it; None where a batch brought the row."""
    op: Op
    batch_id: str
    key: Key
    """The row's key in this form; of a deletion, the key that it had."""
    values: Row | None
    masked: Key | None = None
    """The key of the form before it, which is gone."""


@dataclass(frozen=True, slots=True)
class Ageing:
    """Rows that lie before a point no longer count, however they came there."""

    aged_to: int

    def takes(self, stream: Stream, version: Version) -> bool:
        return version.values is not None and integer(version.values[stream.order]) < self.aged_to


Step = Sequence[Version] | Ageing
"""What one commit did: versions in the order in which they were made, or that rows before a point are gone."""

Live = dict[Key, Version]

_OPS = {Outcome.INSERTED: Op.INSERT, Outcome.REPLACED: Op.REPLACE, Outcome.DELETED: Op.DELETE}


def after(stream: Stream, live: Live, step: Step, revisions_up_to: int) -> Live:
    """What is live after a step, of which revisions above a number are left out."""
    if isinstance(step, Ageing):
        return {key: version for key, version in live.items() if not step.takes(stream, version)}
    live = dict(live)
    for version in step:
        if version.revision is None:
            # Where the revision that freed this key is left out, the row that has it stays.
            live.setdefault(version.key, version)
        elif version.revision <= revisions_up_to:
            if version.masked is not None:
                del live[version.masked]
            if version.values is not None:
                live[version.key] = version
    return live


def replayed(stream: Stream, steps: Iterable[Step], revisions_up_to: int) -> Live:
    """What is live after all steps, in order, without the revisions above a number."""
    live: Live = {}
    for step in steps:
        live = after(stream, live, step, revisions_up_to)
    return live


def made(steps: Iterable[Step]) -> list[Version]:
    """All versions that there have ever been, as they were made."""
    return [version for step in steps if not isinstance(step, Ageing) for version in step]


def corrections(
    stream: Stream, live: Live, decisions: Iterable[Decision], commit: int, now: int, unused: Iterator[int]
) -> list[Version]:
    """The versions that decided revisions make. A row keeps its number; a new one gets the next unused."""
    rows = {key: version.row for key, version in live.items()}
    versions = []
    for each in decisions:
        left = each.old if each.new is None else each.new
        if left is None:
            continue
        revision, key = each.revision, key_of(stream, left)
        masked = None if each.old is None else key_of(stream, each.old)
        row = (revision.row or next(unused)) if masked is None else rows.pop(masked)
        if each.new is not None:
            rows[key] = row
        op = _OPS[each.outcome]
        versions.append(Version(row, commit, now, revision.number, op, revision.batch_id, key, each.new, masked))
    return versions


def rows_of(stream: Stream, live: Live) -> tuple[Row, ...]:
    """What is live as rows, in stream order."""
    return in_stream_order(stream, (version.values for version in live.values() if version.values is not None))
