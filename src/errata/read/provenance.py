"""An answer's story: the values that it has had, why it had each, and the rows behind it."""

from __future__ import annotations

from bisect import insort
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

import pyarrow as pa

from errata.archive.result_changes import ChangeRange, RecordKind
from errata.catalog.database import Catalog
from errata.catalog.result_archives import ResultArchive, evaluations_of
from errata.intake.encoding import JsonRow, json_rows
from errata.model.commit import Commit, Evaluation
from errata.model.results import EVALUATION, OP, VE, VS


@dataclass(frozen=True, slots=True)
class BatchCause:
    """A batch that came."""

    stream: str
    batch_id: str
    commit_id: int
    brings: bool
    """Whether it can have brought rows that the result is made of; otherwise it took the stream's time on."""


@dataclass(frozen=True, slots=True)
class RevisionCause:
    """A revision of a row; or, without a number, a version of a relation that came behind what had been answered."""

    stream: str
    revision: int | None
    batch_id: str
    file: str
    """Empty where no file said it, as in an undo."""
    line: int
    undoes: str | None
    was: JsonRow | None
    """The row before; None where there was none."""
    now: JsonRow | None


@dataclass(frozen=True, slots=True)
class QueryEditCause:
    """The query reads otherwise than before, or was worked out anew."""

    anew: bool = False
    """Somebody asked for it."""
    dropped: bool = False
    """It is no longer there, or has another key."""
    reads: str | None = None
    """A query that it reads: the results of that one have been replaced."""


@dataclass(frozen=True, slots=True)
class StreamEditCause:
    """A stream that the query reads is declared otherwise, and so the query means something else."""

    stream: str


@dataclass(frozen=True, slots=True)
class ReplayCause:
    """A range of the results was worked out again, because somebody asked for it."""


@dataclass(frozen=True, slots=True)
class RevisionRangeCause:
    """Revisions that were taken up together, where it cannot be told any more which of them it was."""

    source: str
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class UpstreamResultCause:
    """A correction of another query's result, with its own causes."""

    query: str
    key: JsonRow
    vs: int
    timed: bool
    commit_id: int
    was: JsonRow | None
    now: JsonRow | None
    causes: CauseList


ProvenanceCause = (
    BatchCause
    | RevisionCause
    | QueryEditCause
    | StreamEditCause
    | ReplayCause
    | RevisionRangeCause
    | UpstreamResultCause
)


@dataclass(frozen=True, slots=True)
class CauseList:
    """Some of the causes, and how many more there are."""

    told: Sequence[ProvenanceCause] = ()
    more: int = 0


@dataclass(frozen=True, slots=True)
class ResultValue:
    """What the answer was from a commit on."""

    commit: Commit
    """The one that published it."""
    values: JsonRow | None
    """None: from then on there was no such result."""
    vs: int
    """When the result began that counted; of one that is gone, when the last one had."""
    ve: int
    """When it ends, as far as is known."""
    causes: CauseList
    cut: bool = False
    """It may have had others before, which are no longer kept."""


class RowFate(StrEnum):
    """What has become of a row behind a result."""

    SAME = "same"
    CHANGED = "changed"
    CAME = "came"
    GONE = "gone"


@dataclass(frozen=True, slots=True)
class ProvenanceRow:
    """A row behind a result, as it was and as it is."""

    fate: RowFate
    was: JsonRow | None
    now: JsonRow | None


@dataclass(frozen=True, slots=True)
class ProvenanceState:
    """The rows of a source that made a result at one time."""

    commit_id: int
    """The state of the source that was read."""
    rows: int | None
    """How many they were; None where no state is there any more that could be told of."""
    lost: str = ""
    """Why it is not the state in which the result was published first, if that is no longer there."""


@dataclass(frozen=True, slots=True)
class SourceProvenance:
    """The rows of one source behind a result."""

    source: str
    noun: str
    then: ProvenanceState
    now: ProvenanceState
    rows: Sequence[ProvenanceRow]
    """Some of them, those that differ before others."""
    differing: int
    """How many differ."""
    aged: int = 0
    """How many of those that made it have been aged out since."""


@dataclass(frozen=True, slots=True)
class ResultProvenance:
    """All of it."""

    query: str
    key: JsonRow
    at: int
    timed: bool
    values: Sequence[ResultValue]
    """Oldest first."""
    behind: Sequence[SourceProvenance]
    notes: Sequence[str] = ()
    """What a reader has to know beside."""


# The values that one result has had, told from its change records: what counted at an instant, after each
# evaluation.


@dataclass(frozen=True, slots=True)
class ResultVersion:
    """A value of the answer, and who gave it."""

    commit_id: int
    of: ResultArchive
    evaluation: Evaluation | None
    """None where the query's archive ended."""
    vs: int
    ve: int
    values: JsonRow | None
    """None where nothing counts any more."""
    cut: bool = False
    """What there was before is no longer kept."""
    forgotten: bool = False
    """Nor is which evaluation gave it: the one that is named is the next one of which anything is known."""


@dataclass
class KeyChangelog:
    """One archive of a query, and what its records tell of a key."""

    of: ResultArchive
    ended: int | None
    by_beginnings: bool
    """Whether its results are told by when they begin, and not by when they count."""
    read: list[tuple[ChangeRange, pa.Table]] = field(default_factory=list)


def result_versions(
    catalog: Catalog, archives: Sequence[KeyChangelog], at: int, whole: int, newest: int
) -> Iterator[ResultVersion]:
    """What the answer was at an instant, each time that it became another. Before the commit `whole` nothing is told
    one by one."""
    last: ResultVersion | None = None
    held = _KeyResults(at)
    for archive in archives:
        for found in _archive_versions(catalog, archive, held, whole, newest):
            if found.values is None:
                if last is None or last.values is None:
                    continue
                each = replace(found, vs=last.vs, ve=last.vs)
            elif last is not None and _same_value(last, found, archive):
                continue
            else:
                each = found
            last = each
            yield each


def _same_value(one: ResultVersion, other: ResultVersion, archive: KeyChangelog) -> bool:
    """Whether the answer is the same. What holds says so from whenever; what happened has a time of its own."""
    return one.values == other.values and (one.vs == other.vs or not archive.by_beginnings)


def _archive_versions(
    catalog: Catalog, archive: KeyChangelog, held: _KeyResults, whole: int, newest: int
) -> Iterator[ResultVersion]:
    """The answer after each evaluation that may have changed it."""
    of, at = archive.of, held.at
    told = evaluations_of(catalog, of.stream_id, up_to=newest)
    records = _sort_records(archive.read)
    reached = False
    if records.standing:
        held.take(records.standing)
        before = [each for each in told if each.commit_id <= whole]
        reached = bool(before) and before[-1].frontier >= at
        brought = next((each for each in before if each.number >= held.run > 0), None)
        if reached and brought is not None:
            found = held.version(brought.commit_id, of, brought, cut=True)
            yield replace(found, forgotten=brought.number != held.run)
    for each in told:
        if each.commit_id <= whole:
            continue
        mine = records.by_run.get(each.number, [])
        held.take(mine)
        if each.frontier >= at and (mine or not reached):
            yield held.version(each.commit_id, of, each)
        reached = each.frontier >= at
    if records.gone and archive.ended is not None:
        held.take(records.gone)
        yield held.version(archive.ended, of, None)


@dataclass(frozen=True, slots=True)
class _ChangeRecord:
    """A change record."""

    op: str
    vs: int
    ve: int
    run: int
    values: JsonRow


@dataclass
class _ChangeRecords:
    """The records of an archive: of what stood at the beginning, of each evaluation, and of the end."""

    standing: list[_ChangeRecord] = field(default_factory=list)
    by_run: dict[int, list[_ChangeRecord]] = field(default_factory=lambda: defaultdict(list))
    gone: list[_ChangeRecord] = field(default_factory=list)


def _sort_records(read: Sequence[tuple[ChangeRange, pa.Table]]) -> _ChangeRecords:
    found = _ChangeRecords()
    for stretch, table in read:
        records = _segment_records(stretch, table)
        hows = {(part.how, part.run is None) for part in stretch.parts}
        if (RecordKind.GONE, True) in hows:
            found.gone += records
        elif (RecordKind.ADDED, True) in hows:
            found.standing += records
        else:
            for each in records:
                found.by_run[each.run].append(each)
    return found


def _segment_records(stretch: ChangeRange, table: pa.Table) -> list[_ChangeRecord]:
    shape = stretch.of.shape
    visible = [name for name in shape.payload if name in shape.visible]
    values = json_rows(table.select(visible)) if visible else [{} for _ in range(table.num_rows)]
    told = table.select([OP, VS, VE, EVALUATION]).to_pylist()
    return [
        _ChangeRecord(each[OP], each[VS], each[VE], each[EVALUATION], said)
        for each, said in zip(told, values, strict=True)
    ]


class _KeyResults:
    """The results of one key that begin up to an instant, and the one that counts then."""

    def __init__(self, at: int) -> None:
        self.at = at
        self._results: dict[int, _ChangeRecord] = {}
        self._begins: list[int] = []

    def take(self, records: Sequence[_ChangeRecord]) -> None:
        """Take change records in; those of results that begin later have no say."""
        for each in records:
            if each.vs > self.at:
                continue
            if each.op == "delete":
                if self._results.pop(each.vs, None) is not None:
                    self._begins.remove(each.vs)
                continue
            if each.vs not in self._results:
                insort(self._begins, each.vs)
            self._results[each.vs] = each

    @property
    def run(self) -> int:
        """The evaluation that brought what counts."""
        return self._results[self._begins[-1]].run if self._begins else 0

    def version(self, commit_id: int, of: ResultArchive, by: Evaluation | None, *, cut: bool = False) -> ResultVersion:
        """What counts now: a result lasts until its end, or until the next of its key begins."""
        counts = self._results[self._begins[-1]] if self._begins else None
        if counts is None or self.at >= counts.ve:
            return ResultVersion(commit_id, of, by, self.at, self.at, None, cut)
        return ResultVersion(commit_id, of, by, counts.vs, counts.ve, counts.values, cut)
