"""Undoing a batch: what must be done to the rows that it made or changed, so that they are as they were before it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby

from errata.model.feed import frozen
from errata.model.revision import Key, Op, Revision, Row, integer, key_of
from errata.model.stream import Stream
from errata.model.version import Live, Version


@dataclass(frozen=True, slots=True)
class TakenBack:
    """What an undo is to do."""

    revisions: tuple[Revision, ...]
    """Not numbered yet. Keys are given free before they are taken: deletions first, insertions last."""
    later: tuple[Key, ...]
    """Keys of rows that another batch has changed since, or that cannot have their former key back."""
    aged: tuple[Key, ...]
    """Keys of rows that have been aged out, or that would go back to where rows have been aged out."""


@dataclass(frozen=True, slots=True)
class _Return:
    """A row's way back: its newest version, and what it said before the batch; None where it was not there."""

    newest: Version
    former: Row | None


def taken_back(
    stream: Stream,
    versions: Iterable[Version],
    live: Live,
    batch_id: str,
    undoes: Mapping[str, str],
    aged_to: int | None = None,
) -> TakenBack:
    """How to take back what a batch did. `undoes` tells of batches that were undoings of others."""
    there = {version.row for version in live.values()}
    returns: list[_Return] = []
    later: list[Key] = []
    aged: list[Key] = []
    for newest, runs in _rows_of(batch_id, versions, undoes):
        former = runs[-2][-1].values if len(runs) > 1 else None
        if newest.values is not None and newest.row not in there:
            aged.append(newest.key)
        elif runs[-1][-1].batch_id != batch_id:
            later.append(newest.key)
        elif former is not None and aged_to is not None and integer(former[stream.order]) < aged_to:
            aged.append(newest.key)
        else:
            returns.append(_Return(newest, former))
    returns, blocked = _unblocked(stream, returns, live)
    return TakenBack(tuple(_revisions(stream, returns)), (*later, *blocked), tuple(aged))


Runs = list[list[Version]]
"""The versions of one row, those made by one batch together."""


def _rows_of(batch_id: str, versions: Iterable[Version], undoes: Mapping[str, str]) -> Iterator[tuple[Version, Runs]]:
    """Of each row that the batch made or changed, the newest version and the runs of versions that still count."""
    rows: dict[int, list[Version]] = {}
    for version in versions:
        rows.setdefault(version.row, []).append(version)
    for each in rows.values():
        runs = _standing(each, batch_id, undoes)
        if any(run[0].batch_id == batch_id for run in runs):
            yield each[-1], runs


def _standing(versions: Iterable[Version], batch_id: str, undoes: Mapping[str, str]) -> Runs:
    """The versions without what was undone, what undid it, and what came to nothing.

    So batches can be undone one after the other, the newest first.
    """
    runs: Runs = []
    for batch, run in groupby(versions, key=lambda version: version.batch_id):
        top = runs[-1][-1].batch_id if runs else None
        if batch in undoes and undoes[batch] == top and batch != batch_id:
            runs.pop()
            continue
        if batch == top:
            runs[-1].extend(run)
        else:
            runs.append(list(run))
        before = runs[-2][-1].values if len(runs) > 1 else None
        if _same(before, runs[-1][-1].values):
            runs.pop()
    return runs


def _unblocked(stream: Stream, returns: list[_Return], live: Live) -> tuple[list[_Return], list[Key]]:
    """The rows that can go back, and the keys of those that cannot, because their former key is taken by now."""
    blocked: list[Key] = []
    while True:
        going = {each.newest.row for each in returns}
        staying = {version.key for version in live.values() if version.row not in going}
        wanted = Counter(key_of(stream, each.former) for each in returns if each.former is not None)
        stuck = [
            each
            for each in returns
            if each.former is not None and ((key := key_of(stream, each.former)) in staying or wanted[key] > 1)
        ]
        if not stuck:
            return returns, blocked
        blocked += [each.newest.key for each in stuck]
        returns = [each for each in returns if each not in stuck]


def _revisions(stream: Stream, returns: Iterable[_Return]) -> list[Revision]:
    deleted, replaced, inserted = [], [], []
    for each in returns:
        newest, former = each.newest, each.former
        key = None if former is None else key_of(stream, former)
        if former is not None and newest.values is not None and key == newest.key:
            replaced.append(Revision(0, Op.REPLACE, newest.key, former))
            continue
        if newest.values is not None:
            deleted.append(Revision(0, Op.DELETE, newest.key, {}))
        if former is not None and key is not None:
            inserted.append(Revision(0, Op.INSERT, key, former, row=newest.row))
    return [*deleted, *replaced, *inserted]


def _same(one: Row | None, other: Row | None) -> bool:
    return one == other if one is None or other is None else frozen(one) == frozen(other)
