"""The history of a key: every version that its rows have had, who made each, and the revisions of it that are pending.

Versions are read from base buckets and overlays, which keep the row before and after each revision. A row whose key was
changed is followed to its other keys.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise

import pyarrow as pa
import pyarrow.compute as pc

from errata.archive.bucket_files import POS
from errata.archive.revisions.decide import CorrectionContext, KeyVersions, key_versions, pending_for_key
from errata.archive.revisions.pending import NUMBER
from errata.archive.schemas import BATCH, LIVE, MASKS, OLD_BATCH, OLD_POS, OLD_REVISION, OPERATION, REVISION
from errata.catalog import commits, streams, undo
from errata.catalog.feeds import Disagreement
from errata.catalog.ledger import BatchOrigin, batch_origins
from errata.catalog.streams import StreamState
from errata.declare.site import Site, pinned_stream
from errata.engine.failures import spark_errors_in_words
from errata.errors import ErrataError
from errata.model.batch import Op
from errata.model.columns import equality_value
from errata.model.commit import Commit
from errata.model.results import old_column
from errata.model.stream import Stream
from errata.read.feeds import key_disagreements
from errata.read.row_keys import key_table

VersionValues = Mapping[str, object]


class VersionOrigin(StrEnum):
    """What made a version."""

    INSERTED = "inserted"
    LATE = "inserted late"
    REPLACED = "replaced"
    DELETED = "deleted"
    BROUGHT_BACK = "brought back"


@dataclass(frozen=True, slots=True)
class RowVersion:
    """One version of a row."""

    number: int
    """The number of the version among those of the key's rows, from 1."""
    row: int
    """The number of the row among those that have had the key, from 1: a key that was freed may be taken by another
    row."""
    origin: VersionOrigin
    made_by: Commit
    """The commit that made it."""
    values: VersionValues
    """The row's values; of a deletion, those before it."""
    before: VersionValues | None
    """The values before; None if there was no row."""
    revision: int | None
    """The number of the revision that made it; None if a batch appended the row."""
    batch_id: str
    batch_commit: Commit
    """The commit that ingested the batch."""
    file: str
    """Empty if it came from no file, as in an undo."""
    line: int
    undoes: str | None = None
    """The batch that it undid."""
    ended_by: Commit | None = None
    """The commit that ended it; None if it is current."""
    aged: bool = False
    """Whether it ended by ageing and not by a revision."""

    @property
    def changed(self) -> list[str]:
        """The columns that differ from the version before; none if one of the two does not exist."""
        if self.before is None or self.origin is VersionOrigin.DELETED:
            return []
        return [
            name for name, value in self.values.items() if equality_value(value) != equality_value(self.before[name])
        ]


@dataclass(frozen=True, slots=True)
class PendingRevision:
    """A pending revision that concerns the key."""

    revision: int
    op: Op
    batch_id: str
    file: str
    line: int


@dataclass(frozen=True, slots=True)
class RowHistory:
    """All versions and pending revisions of a key."""

    stream: Stream
    key: VersionValues
    versions: Sequence[RowVersion]
    """Oldest first."""
    waiting: Sequence[PendingRevision]
    disagreements: Sequence[Disagreement] = ()
    """What the stream's feeds have said differently about the key, oldest first."""

    @property
    def aged(self) -> bool:
        """Whether its last version has been aged out."""
        return bool(self.versions) and self.versions[-1].aged


def row_history(site: Site, stream: str, key: Mapping[str, str]) -> RowHistory:
    """Every version of the rows that have had a key, which is given as text by column."""
    with pinned_stream(site, stream, "history in") as basis, spark_errors_in_words():
        place = CorrectionContext(site.session, site.catalog, site.warehouse, basis)
        wanted = key_table(basis.stream, key)
        undoes = undo.undo_batches(site.catalog, basis.stream_id)
        told = key_versions(place, wanted, undoes)
        pending = pending_for_key(place, wanted)
    (typed,) = wanted.to_pylist()
    teller = _HistoryBuilder.of(site, basis, _batch_numbers(told, pending), undoes)
    disputed = key_disagreements(site, basis, typed)
    found = RowHistory(basis.stream, typed, teller.versions(told, typed), list(teller.waiting(pending)), disputed)
    if not found.versions and not found.waiting and not disputed:
        raise _unknown_key_error(basis, key)
    return found


@dataclass(frozen=True, slots=True)
class _ArchivedVersion:
    """A version as the archive stores it, before its author is looked up."""

    row: int
    what: VersionOrigin
    values: VersionValues
    before: VersionValues | None
    revision: int | None
    batch_no: int
    pos: int
    place: int
    """The row's place in the order field in this version."""

    @property
    def live(self) -> bool:
        """Whether the row existed in this version."""
        return self.what is not VersionOrigin.DELETED


def _archived_versions(
    stream: Stream, told: KeyVersions, key: VersionValues, undoes: Mapping[int, int]
) -> list[_ArchivedVersion]:
    """All versions of the rows that have had the key, of each row oldest first."""
    placed = told.overlays
    for name, column in ((_PLACE, stream.order), (_OLD_PLACE, old_column(stream.order))):
        placed = placed.append_column(name, pc.cast(placed[column], pa.int64()))
    facts: list[_ArchivedVersion] = []
    seen: set[int] = set()
    for row, said in zip(told.row.tolist(), placed.to_pylist(), strict=True):
        now = {name: said[name] for name in stream.names}
        old = {name: said[old_column(name)] for name in stream.names} if said[MASKS] else None
        if row not in seen and old is not None:
            what = VersionOrigin.INSERTED if said[OLD_REVISION] is None else VersionOrigin.REPLACED
            origin = (said[OLD_REVISION], said[OLD_BATCH], said[OLD_POS], said[_OLD_PLACE])
            facts.append(_ArchivedVersion(row, what, old, None, *origin))
        seen.add(row)
        place = said[_PLACE] if said[LIVE] else said[_OLD_PLACE]
        origin = (said[REVISION], said[BATCH], said[POS], place)
        facts.append(
            _ArchivedVersion(row, _version_origin(said, undoes), now if said[LIVE] else old or {}, old, *origin)
        )
    numbers = set(told.overlays[REVISION].to_pylist())
    for number, said in enumerate(told.live.to_pylist(), start=1):
        own = all(equality_value(said[name]) == equality_value(value) for name, value in key.items())
        if own and said[REVISION] not in numbers:
            values = {name: said[name] for name in stream.names}
            facts.append(
                _ArchivedVersion(
                    -number, VersionOrigin.INSERTED, values, None, said[REVISION], said[BATCH], said[POS], 0
                )
            )
    return sorted(facts, key=lambda fact: fact.row)


_PLACE, _OLD_PLACE = "_place", "_old_place"


def _version_origin(said: Mapping[str, object], undoes: Mapping[int, int]) -> VersionOrigin:
    if not said[LIVE]:
        return VersionOrigin.DELETED
    if said[MASKS]:
        return VersionOrigin.REPLACED
    return VersionOrigin.BROUGHT_BACK if said[BATCH] in undoes else VersionOrigin.LATE


@dataclass(frozen=True, slots=True)
class _HistoryBuilder:
    """Turns stored versions into the history: adds commits, batches and files."""

    site: Site
    basis: StreamState
    undoes: Mapping[int, int]
    batches: Mapping[int, BatchOrigin]

    @classmethod
    def of(cls, site: Site, basis: StreamState, batches: Iterable[int], undoes: Mapping[int, int]) -> _HistoryBuilder:
        every = set(batches)
        undone = {undoes[each] for each in every if each in undoes}
        return cls(site, basis, undoes, batch_origins(site.catalog, every | undone))

    def versions(self, told: KeyVersions, key: VersionValues) -> list[RowVersion]:
        """All versions, numbered, oldest first."""
        facts = _archived_versions(self.basis.stream, told, key, self.undoes)
        made = self._made(facts)
        there = {(said[REVISION], said[BATCH], said[POS]) for said in told.live.select(_ORIGIN_COLUMNS).to_pylist()}
        following = [one.row == other.row for one, other in pairwise(facts)] + [False] * bool(facts)
        aged = [
            fact.live and not superseded and (fact.revision, fact.batch_no, fact.pos) not in there
            for fact, superseded in zip(facts, following, strict=True)
        ]
        ends = [made[at + 1] if following[at] else self._aged(fact) if aged[at] else 0 for at, fact in enumerate(facts)]
        brought = [self.batches[fact.batch_no].commit_id for fact in facts]
        known = commits.commits_by_number(self.site.catalog, [*made, *ends, *brought])
        ordered = sorted(range(len(facts)), key=lambda at: (made[at], facts[at].revision or 0, facts[at].pos))
        rows = {row: number for number, row in enumerate(dict.fromkeys(facts[at].row for at in ordered), start=1)}
        return [
            self._version(facts[at], number, rows, known, (made[at], ends[at], brought[at]), aged=aged[at])
            for number, at in enumerate(ordered, start=1)
        ]

    def waiting(self, pending: pa.Table) -> Iterator[PendingRevision]:
        """Pending revisions of the key."""
        for said in pending.to_pylist():
            origin = self.batches[said[BATCH]]
            yield PendingRevision(said[NUMBER], Op(said[OPERATION]), origin.batch_id, *origin.line_of(said[POS]))

    def _made(self, facts: Sequence[_ArchivedVersion]) -> list[int]:
        """The commit that made each version: the batch's for an appended row, else the one that settled the
        revision."""
        numbers = [fact.revision for fact in facts if fact.revision is not None]
        with self.site.catalog.reading() as connection:
            settled = streams.settling_commits(connection, self.basis.stream_id, numbers)
        return [
            self.batches[fact.batch_no].commit_id if fact.revision is None else settled[fact.revision] for fact in facts
        ]

    def _aged(self, fact: _ArchivedVersion) -> int:
        with self.site.catalog.reading() as connection:
            return streams.age_out_commit(connection, self.basis.stream_id, fact.place) or 0

    def _version(
        self,
        fact: _ArchivedVersion,
        number: int,
        rows: Mapping[int, int],
        known: Mapping[int, Commit],
        moments: tuple[int, int, int],
        *,
        aged: bool,
    ) -> RowVersion:
        made, ended, brought = moments
        origin = self.batches[fact.batch_no]
        file, line = origin.line_of(fact.pos)
        undone = self.undoes.get(fact.batch_no)
        return RowVersion(
            number,
            rows[fact.row],
            fact.what,
            known[made],
            fact.values,
            fact.before,
            fact.revision,
            origin.batch_id,
            known[brought],
            file,
            line,
            None if undone is None else self.batches[undone].batch_id,
            known.get(ended),
            aged,
        )


_ORIGIN_COLUMNS = [REVISION, BATCH, POS]


def _batch_numbers(told: KeyVersions, pending: pa.Table) -> Iterator[int]:
    """The numbers of all batches that the history mentions."""
    for table, name in ((told.overlays, BATCH), (told.overlays, OLD_BATCH), (told.live, BATCH), (pending, BATCH)):
        yield from pc.unique(table[name]).drop_null().to_pylist()


def _unknown_key_error(basis: StreamState, key: Mapping[str, str]) -> ErrataError:
    said = ",".join(f"{name}={value}" for name, value in key.items())
    aged = basis.aged_to is not None
    return ErrataError(
        f"no row of the key {said} is known",
        where=f"stream {basis.stream.name}",
        why="rows that nothing ever corrected are forgotten when they have been aged out" if aged else None,
        how="`errata archive scan` shows the rows that there are",
    )
