"""The values that one result has had, told from its change records: what counted at an instant, after each
evaluation."""

from __future__ import annotations

from bisect import insort
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from errata.archive.changes import How, Stretch
from errata.catalog.open import Catalog
from errata.catalog.published import Published, evaluations_of
from errata.model.evaluation import Evaluation
from errata.model.results import OP, RUN, VE, VS
from errata.serve.said import Said, said_rows


@dataclass(frozen=True, slots=True)
class Version:
    """A value of the answer, and who gave it."""

    commit_id: int
    of: Published
    evaluation: Evaluation | None
    """None where the query's archive ended."""
    vs: int
    ve: int
    values: Said | None
    """None where nothing counts any more."""
    cut: bool = False
    """What there was before is no longer kept."""
    forgotten: bool = False
    """Nor is which evaluation gave it: the one that is named is the next one of which anything is known."""


@dataclass
class Archive:
    """One archive of a query, and what its records tell of a key."""

    of: Published
    ended: int | None
    by_beginnings: bool
    """Whether its results are told by when they begin, and not by when they count."""
    read: list[tuple[Stretch, pa.Table]] = field(default_factory=list)


def versions(catalog: Catalog, archives: Sequence[Archive], at: int, whole: int, newest: int) -> Iterator[Version]:
    """What the answer was at an instant, each time that it became another. Before the commit `whole` nothing is told
    one by one."""
    last: Version | None = None
    held = _Held(at)
    for archive in archives:
        for found in _looks(catalog, archive, held, whole, newest):
            if found.values is None:
                if last is None or last.values is None:
                    continue
                each = replace(found, vs=last.vs, ve=last.vs)
            elif last is not None and _same(last, found, archive):
                continue
            else:
                each = found
            last = each
            yield each


def _same(one: Version, other: Version, archive: Archive) -> bool:
    """Whether the answer is the same. What holds says so from whenever; what happened has a time of its own."""
    return one.values == other.values and (one.vs == other.vs or not archive.by_beginnings)


def _looks(catalog: Catalog, archive: Archive, held: _Held, whole: int, newest: int) -> Iterator[Version]:
    """The answer after each evaluation that may have changed it."""
    of, at = archive.of, held.at
    told = evaluations_of(catalog, of.stream_id, up_to=newest)
    records = _by_kind(archive.read)
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
class _Record:
    """A change record."""

    op: str
    vs: int
    ve: int
    run: int
    values: Said


@dataclass
class _Records:
    """The records of an archive: of what stood at the beginning, of each evaluation, and of the end."""

    standing: list[_Record] = field(default_factory=list)
    by_run: dict[int, list[_Record]] = field(default_factory=lambda: defaultdict(list))
    gone: list[_Record] = field(default_factory=list)


def _by_kind(read: Sequence[tuple[Stretch, pa.Table]]) -> _Records:
    found = _Records()
    for stretch, table in read:
        records = _records(stretch, table)
        hows = {(part.how, part.run is None) for part in stretch.parts}
        if (How.GONE, True) in hows:
            found.gone += records
        elif (How.ADDED, True) in hows:
            found.standing += records
        else:
            for each in records:
                found.by_run[each.run].append(each)
    return found


def _records(stretch: Stretch, table: pa.Table) -> list[_Record]:
    shape = stretch.of.shape
    visible = [name for name in shape.payload if name in shape.visible]
    values = said_rows(table.select(visible)) if visible else [{} for _ in range(table.num_rows)]
    told = table.select([OP, VS, VE, RUN]).to_pylist()
    return [_Record(each[OP], each[VS], each[VE], each[RUN], said) for each, said in zip(told, values, strict=True)]


class _Held:
    """The results of one key that begin up to an instant, and the one that counts then."""

    def __init__(self, at: int) -> None:
        self.at = at
        self._results: dict[int, _Record] = {}
        self._begins: list[int] = []

    def take(self, records: Sequence[_Record]) -> None:
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

    def version(self, commit_id: int, of: Published, by: Evaluation | None, *, cut: bool = False) -> Version:
        """What counts now: a result lasts until its end, or until the next of its key begins."""
        counts = self._results[self._begins[-1]] if self._begins else None
        if counts is None or self.at >= counts.ve:
            return Version(commit_id, of, by, self.at, self.at, None, cut)
        return Version(commit_id, of, by, counts.vs, counts.ve, counts.values, cut)
