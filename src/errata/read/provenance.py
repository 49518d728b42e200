"""Provenance of one result, as `errata why` reports it: the values that it has had, the cause of each, and its source
rows.

The first part declares the report. The second derives the values from change records: `result_versions` replays them
and yields what counted at one instant after each evaluation.
"""

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
    """A batch that was appended."""

    stream: str
    batch_id: str
    commit_id: int
    brings: bool
    """Whether it can have brought rows of the result; otherwise it only advanced the stream's stable point."""


@dataclass(frozen=True, slots=True)
class RevisionCause:
    """A revision of a row; without a number, a version of a relation that arrived behind what had been answered."""

    stream: str
    revision: int | None
    batch_id: str
    file: str
    """Empty if it came from no file, as in an undo."""
    line: int
    undoes: str | None
    was: JsonRow | None
    """The row before; None if there was none."""
    now: JsonRow | None


@dataclass(frozen=True, slots=True)
class QueryEditCause:
    """The query was edited, or evaluated anew."""

    anew: bool = False
    """Whether a person asked for it."""
    dropped: bool = False
    """Whether it was dropped or got another key."""
    reads: str | None = None
    """The query among its inputs whose results were replaced."""


@dataclass(frozen=True, slots=True)
class StreamEditCause:
    """A stream that the query reads was redeclared, which changes the query's meaning."""

    stream: str


@dataclass(frozen=True, slots=True)
class ReplayCause:
    """A range of the results was replayed on request."""


@dataclass(frozen=True, slots=True)
class RevisionRangeCause:
    """Revisions that were taken up together, where the one that matters can no longer be determined."""

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
    """Causes, and how many more there are."""

    shown: Sequence[ProvenanceCause] = ()
    more: int = 0


@dataclass(frozen=True, slots=True)
class ResultValue:
    """The value of the result from a commit on."""

    commit: Commit
    """The commit that published it."""
    values: JsonRow | None
    """None if there was no such result from then on."""
    vs: int
    """When the result begins; of one that was deleted, when the last one began."""
    ve: int
    """When it ends, as far as known."""
    causes: CauseList
    truncated: bool = False
    """Whether earlier values may have existed that are no longer kept."""


class RowFate(StrEnum):
    """How a source row of a result has changed."""

    SAME = "same"
    CHANGED = "changed"
    CAME = "came"
    GONE = "gone"


@dataclass(frozen=True, slots=True)
class ProvenanceRow:
    """A source row of a result, before and now."""

    fate: RowFate
    was: JsonRow | None
    now: JsonRow | None


@dataclass(frozen=True, slots=True)
class ProvenanceState:
    """The rows of a source that made a result at one time."""

    commit_id: int
    """The commit whose state of the source was read."""
    rows: int | None
    """Their number; None if no readable state is left."""
    lost: str = ""
    """Why this is not the state of the first publication, if that can no longer be read."""


@dataclass(frozen=True, slots=True)
class SourceProvenance:
    """The source rows of a result in one source."""

    source: str
    noun: str
    then: ProvenanceState
    now: ProvenanceState
    rows: Sequence[ProvenanceRow]
    """Some of the rows, differing ones first."""
    differing: int
    """The number of differing rows."""
    aged: int = 0
    """The number of rows that made it and have been aged out since."""


@dataclass(frozen=True, slots=True)
class ResultProvenance:
    """The provenance of one result."""

    query: str
    key: JsonRow
    at: int
    timed: bool
    values: Sequence[ResultValue]
    """Oldest first."""
    sources: Sequence[SourceProvenance]
    notes: Sequence[str] = ()
    """Notes for the reader, such as that the query was edited since."""


# Values of a result, derived from change records.


@dataclass(frozen=True, slots=True)
class ResultVersion:
    """A value of a result, and the evaluation that gave it."""

    commit_id: int
    of: ResultArchive
    evaluation: Evaluation | None
    """None if the query's archive ended."""
    vs: int
    ve: int
    values: JsonRow | None
    """None if no result counts any more."""
    truncated: bool = False
    """Whether earlier values are no longer kept."""
    evaluation_unknown: bool = False
    """Whether the evaluation that gave it is no longer known; `evaluation` is then the earliest known one after it."""


@dataclass
class KeyChangelog:
    """One archive of a query, and its change records of a key."""

    of: ResultArchive
    ended: int | None
    by_beginnings: bool
    """Whether its results are identified by when they begin, and not by when they count."""
    read: list[tuple[ChangeRange, pa.Table]] = field(default_factory=list)


def result_versions(
    catalog: Catalog, archives: Sequence[KeyChangelog], at: int, whole: int, newest: int
) -> Iterator[ResultVersion]:
    """The values of the result at an instant, one each time that it changed. Changes before the commit `whole` are not
    known one by one."""
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
    """Whether two values are equal. For a state only the values count; for an event also its time."""
    return one.values == other.values and (one.vs == other.vs or not archive.by_beginnings)


def _archive_versions(
    catalog: Catalog, archive: KeyChangelog, held: _KeyResults, whole: int, newest: int
) -> Iterator[ResultVersion]:
    """The value after each evaluation that may have changed it."""
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
            yield replace(found, evaluation_unknown=brought.number != held.run)
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
    """The change records of an archive: those of its initial state, of each evaluation, and of its end."""

    standing: list[_ChangeRecord] = field(default_factory=list)
    by_run: dict[int, list[_ChangeRecord]] = field(default_factory=lambda: defaultdict(list))
    gone: list[_ChangeRecord] = field(default_factory=list)


def _sort_records(read: Sequence[tuple[ChangeRange, pa.Table]]) -> _ChangeRecords:
    found = _ChangeRecords()
    for stretch, table in read:
        records = _segment_records(stretch, table)
        hows = {(part.kind, part.evaluation is None) for part in stretch.parts}
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
    values = json_rows(table.select(visible))
    told = table.select([OP, VS, VE, EVALUATION]).to_pylist()
    return [
        _ChangeRecord(each[OP], each[VS], each[VE], each[EVALUATION], said)
        for each, said in zip(told, values, strict=True)
    ]


class _KeyResults:
    """The results of one key that begin up to an instant, and the one that counts at it."""

    def __init__(self, at: int) -> None:
        self.at = at
        self._results: dict[int, _ChangeRecord] = {}
        self._begins: list[int] = []

    def take(self, records: Sequence[_ChangeRecord]) -> None:
        """Apply change records; results that begin later are skipped."""
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
        """The number of the evaluation that brought the current result."""
        return self._results[self._begins[-1]].run if self._begins else 0

    def version(self, commit_id: int, of: ResultArchive, by: Evaluation | None, *, cut: bool = False) -> ResultVersion:
        """The result that counts at the instant: a result lasts until its end, or until the next of its key begins."""
        counts = self._results[self._begins[-1]] if self._begins else None
        if counts is None or self.at >= counts.ve:
            return ResultVersion(commit_id, of, by, self.at, self.at, None, cut)
        return ResultVersion(commit_id, of, by, counts.vs, counts.ve, counts.values, cut)
