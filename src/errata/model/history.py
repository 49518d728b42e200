"""The oracle of an archive: slow, kept in lists, and meant to be believed by reading.

Tests compare every fast path with it. It says what an append, a scan, ageing, corrections and undoing mean; how they
are done well is the business of other rooms. Values of the order column are plain integers here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import count

from errata.errors import Refused, unknown
from errata.model.answers import Revised, Taken, Undone
from errata.model.batch import Counts
from errata.model.interval import Interval
from errata.model.record import Duplicates, Record, completed, content_id, identity, seq_first, why_broken
from errata.model.revision import Decision, Key, Op, Outcome, Revision, Row, corrected, integer, key_of
from errata.model.stream import OnRevision, Stream
from errata.model.undoing import TakenBack, taken_back
from errata.model.version import Ageing, Live, Step, Version, after, corrections, made, replayed, rows_of


@dataclass(frozen=True, slots=True)
class State:
    """Everything that was known of the stream at one commit."""

    rows: tuple[Row, ...] = ()
    """The rows as corrected, in stream order."""
    live: Live = field(default_factory=dict)
    """The same as versions, by key."""
    pending: tuple[Revision, ...] = ()
    stable: int | None = None
    revisions: int = 0
    """How many revisions have been numbered."""
    applied: int = 0
    """The revisions up to this number are settled."""
    aged_to: int | None = None
    """What lay before this has been aged out; from it on everything is there."""


class History:
    """An archive of one stream: a list of states, one per commit, none of which ever changes."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self.states = [State()]
        self.steps: list[Step] = [()]
        """What each commit did to rows."""
        self._taken: dict[str, tuple[str, Taken]] = {}
        self._undone: dict[str, tuple[str, Undone]] = {}
        """By the undo's own batch id, the batch that it undid."""
        self._unused = count(1)

    @property
    def commit(self) -> int:
        """The number of the newest commit; 0 before the first."""
        return len(self.states) - 1

    def append(self, batch: Sequence[Record], now: int, batch_id: str | None = None) -> Taken:
        """Take a batch in, as one commit; the same batch id again changes nothing."""
        content = content_id(batch)
        batch_id = batch_id or content
        if batch_id in self._taken or batch_id in self._undone:
            return self._again(batch_id, content)
        before = self.states[-1]
        sound, broken = self._checked(batch, now)
        inserts = [record for record in sound if record.op is Op.INSERT]
        late = [(Op.INSERT, record) for record in inserts if self._late(record)]
        fresh = Duplicates(self.stream, before.rows).resolve([each for each in inserts if not self._late(each)])
        late += [(op, record) for op, record in fresh.accepted if op is Op.REPLACE]
        on_time = [dict(record.values) for op, record in fresh.accepted if op is Op.INSERT]
        changes = sorted((record for record in sound if record.op is not Op.INSERT), key=seq_first)
        pending = self._numbered([*late, *((record.op, record) for record in changes)], batch_id)
        self._commit(
            self._brought(on_time, now, batch_id),
            replace(
                before,
                pending=(*before.pending, *pending),
                stable=self._advanced(on_time),
                revisions=before.revisions + len(pending),
            ),
        )
        quarantined = (*broken, *fresh.quarantined)
        counts = Counts(len(batch), len(on_time), len(pending), fresh.dropped, fresh.replaced, len(quarantined))
        taken = Taken(self.commit, counts, quarantined)
        self._taken[batch_id] = content, taken
        return taken

    def revise(self, now: int = 0) -> Revised:
        """Apply everything that is pending, as one commit; nothing happens where all of it has to wait."""
        claimed = self.states[-1].pending
        done = self._decided(claimed)
        if all(each.outcome is Outcome.WAITING for each in done):
            return Revised(None, done)
        waiting = [each.revision for each in done if each.outcome is Outcome.WAITING]
        self._settle(done, now, waiting, self.states[-1].revisions)
        return Revised(self.commit, done)

    def undo(self, batch_id: str, now: int = 0, keep_later: bool = False) -> Undone:
        """Apply what is pending, then take back what a batch did, as one commit; the same again changes nothing."""
        own = f"undo-{batch_id}"
        if own in self._undone:
            return self._undone[own][1]
        self._check_undo(batch_id, own)
        self.revise(now)
        before = self.states[-1]
        undoes = {undo: undone for undo, (undone, _) in self._undone.items()}
        plan = taken_back(self.stream, made(self.steps), before.live, batch_id, undoes, before.aged_to)
        if plan.later and not keep_later:
            raise _changed_since(batch_id, plan)
        own_revisions = [
            replace(revision, number=number, batch_id=own)
            for number, revision in enumerate(plan.revisions, start=before.revisions + 1)
        ]
        done = self._decided(own_revisions)
        # What waits goes on waiting, numbered behind; but nothing of the batch that is undone comes any more.
        waiting = [revision for revision in before.pending if revision.batch_id != batch_id]
        withdrawn = tuple(revision for revision in before.pending if revision.batch_id == batch_id)
        if own_revisions:
            self._settle(done, now, waiting, before.revisions + len(own_revisions))
        else:
            applied = before.applied if waiting else before.revisions
            self._commit([], replace(before, pending=tuple(waiting), applied=applied))
        undone = Undone(self.commit, own, done, plan.later, plan.aged, withdrawn)
        self._undone[own] = batch_id, undone
        return undone

    def age_out(self, aged_to: int) -> int:
        """Let go of the rows before a point, as one commit; a point that was reached before takes nothing more.

        What is not stable yet does not age. Stable stays where it is.
        """
        before = self.states[-1]
        if before.stable is None or aged_to > before.stable:
            raise Refused(f"rows up to {aged_to} cannot be aged out", why=f"the stable point is {before.stable}")
        aged_to = aged_to if before.aged_to is None else max(aged_to, before.aged_to)
        self._commit(Ageing(aged_to), replace(before, aged_to=aged_to))
        return self.commit

    def scan(
        self,
        interval: Interval | None = None,
        groups: Collection[Key] | None = None,
        commit: int | None = None,
        revisions_up_to: int | None = None,
    ) -> list[Row]:
        """The rows of the interval and groups as known at the commit, with the revisions up to a number.

        Without a number: with all that were applied. With one: what the commits up to this one make of the rows when
        each leaves out the revisions above it.
        """
        interval = interval or Interval()
        return [
            dict(row)
            for row in self._rows_at(commit, revisions_up_to)
            if integer(row[self.stream.order]) in interval
            and (groups is None or tuple(row[name] for name in self.stream.group) in groups)
        ]

    def versions(self, key: Key, commit: int | None = None) -> list[Version]:
        """Every version of the rows that have borne the key, under whatever key, as known at the commit."""
        self._state(commit)
        known = [each for each in made(self.steps) if commit is None or each.commit <= commit]
        rows = {version.row for version in known if version.key == key}
        return [version for version in known if version.row in rows]

    def pending(self, commit: int | None = None) -> list[Revision]:
        """The revisions that were still to be applied, by number."""
        return list(self._state(commit).pending)

    def stable(self, commit: int | None = None) -> int | None:
        """The stable point as of the commit; None while there is no row."""
        return self._state(commit).stable

    def _state(self, commit: int | None) -> State:
        if commit is None:
            return self.states[-1]
        if not 0 <= commit <= self.commit:
            raise Refused(f"there is no commit {commit}", how=f"the newest is {self.commit}")
        return self.states[commit]

    def _rows_at(self, commit: int | None, revisions_up_to: int | None) -> tuple[Row, ...]:
        state = self._state(commit)
        if revisions_up_to is None or revisions_up_to == state.applied:
            return state.rows
        if not 0 <= revisions_up_to <= state.applied:
            raise Refused(
                f"there is no reading with the revisions up to {revisions_up_to}",
                how=f"at this commit those up to {state.applied} had been settled",
            )
        steps = self.steps if commit is None else self.steps[: commit + 1]
        return rows_of(self.stream, replayed(self.stream, steps, revisions_up_to))

    def _commit(self, step: Step, state: State) -> None:
        """Add a commit: what it does to rows, and the rest of what is known from then on."""
        live = after(self.stream, self.states[-1].live, step, state.applied)
        self.steps.append(step)
        self.states.append(replace(state, live=live, rows=rows_of(self.stream, live)))

    def _decided(self, revisions: Sequence[Revision]) -> tuple[Decision, ...]:
        before = self.states[-1]
        return corrected(self.stream, before.rows, revisions, before.stable, before.aged_to).outcomes

    def _settle(self, done: Sequence[Decision], now: int, waiting: Sequence[Revision], applied: int) -> None:
        """Commit what was decided. Revisions that wait are numbered anew, behind all that have a number."""
        pending = tuple(replace(each, number=number) for number, each in enumerate(waiting, start=applied + 1))
        state = replace(self.states[-1], pending=pending, applied=applied, revisions=applied + len(pending))
        live = self.states[-1].live
        self._commit(corrections(self.stream, live, done, self.commit + 1, now, self._unused), state)

    def _again(self, batch_id: str, content: str) -> Taken:
        if batch_id in self._undone:
            raise Refused(f"batch {batch_id} is an undo", how="give the new content another batch id")
        before, taken = self._taken[batch_id]
        if before != content:
            raise Refused(
                f"batch {batch_id} was taken in before with other content", how="give the new content another batch id"
            )
        return taken

    def _check_undo(self, batch_id: str, own: str) -> None:
        if batch_id not in self._taken and batch_id not in self._undone:
            raise unknown("batch", batch_id, {*self._taken, *self._undone})
        if own in self._taken:
            raise Refused(f"a batch {own} was taken in, and the undo would bear the same id")
        if self.stream.on_revision is OnRevision.IGNORE:
            raise Refused(
                f"batch {batch_id} cannot be undone",
                why=f"stream {self.stream.name} ignores revisions, and an undo is made of revisions",
                how="declare another on_revision",
            )

    def _checked(self, batch: Sequence[Record], now: int) -> tuple[list[Record], list[tuple[Record, str]]]:
        """The records that keep the declaration, inserts completed; and those that do not, as written."""
        sound, broken = [], []
        for record in batch:
            whole = completed(self.stream, record, now, self.stable())
            if reason := why_broken(self.stream, whole, now):
                broken.append((record, reason))
            else:
                sound.append(whole)
        return sound, broken

    def _late(self, record: Record) -> bool:
        stable = self.stable()
        return stable is not None and integer(record.values[self.stream.order]) < stable

    def _numbered(self, changes: Iterable[tuple[Op, Record]], batch_id: str) -> list[Revision]:
        first = self.states[-1].revisions + 1
        return [
            Revision(number, op, identity(self.stream, record), record.values, record.old, batch_id)
            for number, (op, record) in enumerate(changes, start=first)
        ]

    def _brought(self, rows: Iterable[Row], now: int, batch_id: str) -> list[Version]:
        """The versions of new rows of the archive."""
        return [
            Version(next(self._unused), self.commit + 1, now, None, Op.INSERT, batch_id, key_of(self.stream, row), row)
            for row in rows
        ]

    def _advanced(self, on_time: Sequence[Row]) -> int | None:
        """The stable point after a batch: it is moved only by rows that went into the archive, and never back."""
        moments = [integer(row[self.stream.order]) - self.stream.slack for row in on_time]
        if (stable := self.stable()) is not None:
            moments.append(stable)
        return max(moments, default=None)


def _changed_since(batch_id: str, plan: TakenBack) -> Refused:
    return Refused(
        f"batch {batch_id} cannot be undone: {len(plan.later)} of its rows have been changed since",
        where=", ".join(map(str, plan.later)),
        why="undoing it would undo what came later, too",
        how="undo the later batches first, or keep what they did and undo the rest",
    )
