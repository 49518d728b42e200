"""Following an answer: after each commit that changes it, the rows that came and the rows that went.

    commits of the sources    11        14   15        19
    answer as of              A11       A14  A15       A19
    events                 answer A11   A14-A11        A19-A15     none for 15, where A15 = A14
                                     ▲
                           a client that has stored up to 12 resumes behind 12: A14-A11 is the first it gets

The answer as of a commit never changes, so the events behind a commit are a function of that commit alone: they are the
same whoever follows, however often it is interrupted, and however late it comes. A client that stores an event's commit
together with its rows therefore has every change once: it resumes behind the commit that it has stored, and repeated
events, if any, carry commits that it knows.

A commit that is no longer readable cannot be resumed from. The first event is then the whole answer, which replaces
what the client has. The difference of two answers costs one pass over both.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa

from errata.archive.tables import sort_by_columns
from errata.errors import ErrataError


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer of a registered query at an event time, as of a commit."""

    handle: str
    commit_id: int
    now: int
    timed: bool
    """Whether event times are instants; else they are numbers."""
    rows: pa.Table


@dataclass(frozen=True, slots=True)
class AnswerChange:
    """What a commit has changed in an answer, or the whole answer."""

    answer: Answer
    """The answer as of the commit."""
    added: pa.Table
    gone: pa.Table
    whole: bool
    """Whether `added` is the whole answer, and replaces whatever the client has."""


class AnswerHistory(Protocol):
    """Where a follower reads the answers of one registered query."""

    def newest_commit(self) -> int: ...

    def next_commit(self, after: int, up_to: int) -> int | None:
        """The first commit after `after`, up to `up_to`, that has changed a source of the query."""

    def is_readable(self, commit_id: int) -> bool:
        """Whether the answer as of the commit can still be read."""

    def answer(self, commit_id: int) -> Answer: ...


MAX_FOLLOWED_ROWS = 100_000
"""Rows of an answer that is followed at most: an event is one message, and two answers are in memory."""


class AnswerFollower:
    """Follows one answer. `position` is the commit up to which the changes have been told."""

    def __init__(self, history: AnswerHistory, after: int | None) -> None:
        """`after`: the last commit whose change the client has; None begins with the whole answer."""
        self._history = history
        self._after = after
        self._last: Answer | None = None
        self.position = 0 if after is None else after

    def changes(self) -> Iterator[AnswerChange]:
        """The changes up to the newest commit, oldest first."""
        newest = self._history.newest_commit()
        if self._last is None:
            yield from self._begin(newest)
        while (commit_id := self._history.next_commit(self.position, newest)) is not None:
            if not self._history.is_readable(commit_id):
                # The follower was so slow that the horizon has overtaken it.
                yield self._restart(newest)
                return
            yield from self._step(commit_id)
        self.position = newest

    def _begin(self, newest: int) -> Iterator[AnswerChange]:
        if self._after is None or not self._history.is_readable(self._after):
            yield self._restart(newest)
        else:
            self._last = self._read(self._after)

    def _restart(self, commit_id: int) -> AnswerChange:
        self._last = self._read(commit_id)
        self.position = commit_id
        return AnswerChange(self._last, self._last.rows, self._last.rows.slice(0, 0), whole=True)

    def _step(self, commit_id: int) -> Iterator[AnswerChange]:
        former, self._last = self._last, self._read(commit_id)
        self.position = commit_id
        if former is None or former.rows.schema != self._last.rows.schema:
            yield AnswerChange(self._last, self._last.rows, self._last.rows.slice(0, 0), whole=True)
            return
        added, gone = table_difference(former.rows, self._last.rows)
        if added.num_rows or gone.num_rows:
            yield AnswerChange(self._last, added, gone, whole=False)

    def _read(self, commit_id: int) -> Answer:
        answer = self._history.answer(commit_id)
        if answer.rows.num_rows > MAX_FOLLOWED_ROWS:
            raise ErrataError(
                f"the answer of {answer.handle} has {answer.rows.num_rows:,} rows",
                why=f"an answer that is followed has {MAX_FOLLOWED_ROWS:,} at most",
                how="read it page by page, or register a query with a narrower window or more conditions",
            )
        return answer


def table_difference(before: pa.Table, after: pa.Table) -> tuple[pa.Table, pa.Table]:
    """The rows that `after` has more often than `before`, and those that it has less often, each in its order of
    columns. Rows are equal when their bits are, so that NULL equals NULL and NaN equals NaN."""
    if before.num_rows == after.num_rows and before.equals(after):
        return after.slice(0, 0), before.slice(0, 0)
    places = [str(place) for place in range(after.num_columns)]
    both = pa.concat_tables([before.rename_columns(places), after.rename_columns(places)])
    signs = np.repeat(np.array([-1, 1], dtype=np.int64), [before.num_rows, after.num_rows])
    grouped = both.append_column("sign", pa.array(signs)).group_by(places, use_threads=False)
    counted = grouped.aggregate([("sign", "sum")])
    more = counted["sign_sum"].to_numpy()
    return _repeat_rows(counted, more, after.schema), _repeat_rows(counted, -more, after.schema)


def _repeat_rows(counted: pa.Table, times: np.ndarray, schema: pa.Schema) -> pa.Table:
    index = np.repeat(np.arange(len(times)), np.maximum(times, 0))
    names = [str(place) for place in range(len(schema))]
    rows = counted.select(names).take(pa.array(index))
    return sort_by_columns(rows, names).rename_columns(schema.names).cast(schema)
