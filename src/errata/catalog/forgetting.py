"""What vacuum takes of the records of the past: evaluations and positions behind the horizon, and pins that expired.

All of it is one transaction that holds the lock on pins from its beginning, so no reader can begin to need what goes.
`model/forgetting.py` says what stays.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Row, delete, func, select, update

from errata.catalog import pins, vacuum
from errata.catalog.open import Catalog
from errata.catalog.tables import evaluations, positions
from errata.catalog.tables import pins as pins_table
from errata.catalog.tables import streams as streams_table
from errata.model.forgetting import (
    PastEvaluation,
    PastPosition,
    first_kept,
    forgettable_evaluations,
    forgettable_positions,
)

_AT_ONCE = 500
"""So many values go into one statement."""


@dataclass(frozen=True, slots=True)
class Forgotten:
    """How many records of each kind were removed, or would be."""

    pins: int = 0
    evaluations: int = 0
    positions: int = 0


def forget(catalog: Catalog) -> Forgotten:
    """Remove what nobody needs any more."""
    with catalog.writing() as connection:
        pins.oldest_held(connection, catalog.clock.now())
        plan = _Plan(connection, catalog.clock.now())
        for archive, numbers in plan.evaluations.items():
            _delete(connection, evaluations.c.stream_id == archive, evaluations.c.number, numbers)
        for stream, commits in plan.positions.items():
            _delete(connection, positions.c.stream_id == stream, positions.c.commit_id, commits)
        for stream, commit_id in plan.whole_from.items():
            whole = func.coalesce(streams_table.c.vacuumed, 0) < commit_id
            mark = update(streams_table).where(streams_table.c.stream_id == stream, whole)
            connection.execute(mark.values(vacuumed=commit_id))
        return plan.counted(0)


def forgettable(catalog: Catalog) -> Forgotten:
    """What `forget` would remove."""
    with catalog.reading() as connection:
        now = catalog.clock.now()
        return _Plan(connection, now).counted(_expired(connection, now))


def _expired(connection: Connection, now: int) -> int:
    count = select(func.count()).select_from(pins_table).where(pins_table.c.expires_at <= now)
    return int(connection.execute(count).scalar_one())


def _delete(connection: Connection, of: Any, column: Any, values: Sequence[int]) -> None:
    table = column.table
    for start in range(0, len(values), _AT_ONCE):
        connection.execute(delete(table).where(of, column.in_(values[start : start + _AT_ONCE])))


class _Plan:
    """What goes, of all streams and all archives of results."""

    def __init__(self, connection: Connection, now: int) -> None:
        self._connection = connection
        self.evaluations: dict[int, list[int]] = {}
        self.positions: dict[int, list[int]] = {}
        self.whole_from: dict[int, int] = {}
        """Of each, the first commit of which all is known still."""
        every = connection.execute(select(streams_table)).all()
        kept_from = {each.stream_id: vacuum.kept_whole_from(connection, each, now) for each in every}
        archives = [each for each in every if each.query_id is not None]
        past = {each.stream_id: list(self._past(each, kept_from[each.stream_id])) for each in archives}
        begun = self._begun([each.stream_id for each in archives if each.removed_in is None])
        # Queries that are read together are read of one state of the streams: the one at which the last of them stands.
        stand_at = [past[of][-1].data_commit if past[of] else at for of, at in begun.items()]
        read_from = dict(begun)
        for each in archives:
            first = self._of_archive(each, past[each.stream_id], min(stand_at, default=0))
            if first is not None and each.removed_in is None:
                read_from[each.stream_id] = first.data_commit
        for each in every:
            self._of_stream(each, min([kept_from[each.stream_id], *read_from.values()]), set(begun.values()))

    def counted(self, expired: int) -> Forgotten:
        """How many that are."""
        return Forgotten(expired, *(sum(map(len, some.values())) for some in (self.evaluations, self.positions)))

    def _past(self, archive: Row[Any], kept_from: int) -> Iterator[PastEvaluation]:
        known = evaluations.c
        query = select(known.number, known.commit_id, known.data_commit, known.swept, known.cause, known.refused)
        query = query.where(known.stream_id == archive.stream_id, known.commit_id <= kept_from).order_by(known.number)
        for row in self._connection.execute(query):
            goes_on = row.swept is None and not row.cause.get("part")
            yield PastEvaluation(row.number, row.commit_id, row.data_commit, goes_on, row.refused is not None)

    def _begun(self, archives: Sequence[int]) -> dict[int, int]:
        """Of each archive the state of the streams that its first evaluation had read."""
        known = evaluations.c
        query = select(known.stream_id, known.data_commit).where(known.number == 1, known.stream_id.in_(archives))
        return {row.stream_id: row.data_commit for row in self._connection.execute(query)}

    def _of_archive(self, archive: Row[Any], past: Sequence[PastEvaluation], together: int) -> PastEvaluation | None:
        """What goes of its evaluations; the one from which they stay, or None where all do."""
        first = first_kept(past, together) if archive.removed_in is None else (past[-1] if past else None)
        if first is not None and (numbers := forgettable_evaluations(past, first)):
            self.evaluations[archive.stream_id] = numbers
            self.whole_from[archive.stream_id] = first.commit_id
        return first

    def _of_stream(self, stream: Row[Any], kept_from: int, looked_at: set[int]) -> None:
        known = positions.c
        query = select(known.commit_id, known.applied, known.aged_to)
        query = query.where(known.stream_id == stream.stream_id, known.commit_id <= kept_from)
        past = [PastPosition(*row) for row in self._connection.execute(query.order_by(known.commit_id))]
        if commits := forgettable_positions(past, looked_at):
            self.positions[stream.stream_id] = commits
            self.whole_from[stream.stream_id] = max(past[-1].commit_id, self.whole_from.get(stream.stream_id, 0))
