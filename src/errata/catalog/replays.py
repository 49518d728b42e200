"""Replays that persons have asked for: how far each has come, so that one that was killed is gone on with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlalchemy import Row, insert, select, update

from errata.catalog.open import Catalog
from errata.catalog.tables import replays
from errata.model.interval import Interval


@dataclass(frozen=True, slots=True)
class Replay:
    """A range of a query's results that is worked out again."""

    replay_id: int
    stream_id: int
    interval: Interval
    done_to: int
    """Results before this have been seen to."""
    results: int
    """So many results were compared so far."""
    changed: int
    """So many of them came out different."""
    begun: int
    ended: int | None

    @property
    def left(self) -> Interval:
        """What is still to be done."""
        return Interval(self.done_to, self.interval.end)


def begin(catalog: Catalog, stream_id: int, interval: Interval) -> Replay:
    """A replay of the range: the one that was begun and has not ended, else a new one."""
    same = (replays.c.stream_id == stream_id, replays.c.since == interval.start, replays.c.until == interval.end)
    with catalog.writing() as connection:
        row = connection.execute(select(replays).where(*same, replays.c.ended.is_(None))).first()
        if row is None:
            values = {
                "stream_id": stream_id,
                "since": interval.start,
                "until": interval.end,
                "done_to": interval.start,
                "results": 0,
                "changed": 0,
                "begun": catalog.clock.now(),
            }
            row = connection.execute(insert(replays).values(values).returning(replays)).one()
        return as_replay(row)


def progress(catalog: Catalog, of: Replay, done_to: int, results: int, changed: int) -> Replay:
    """A part is done; with the last one the replay has ended."""
    ended = catalog.clock.now() if done_to >= of.interval.end else None
    told = {"done_to": done_to, "results": of.results + results, "changed": of.changed + changed, "ended": ended}
    with catalog.writing() as connection:
        query = update(replays).where(replays.c.replay_id == of.replay_id).values(told).returning(replays)
        return as_replay(connection.execute(query).one())


def of_archive(catalog: Catalog, stream_id: int) -> list[Replay]:
    """All replays of the results in an archive, the oldest first."""
    with catalog.reading() as connection:
        rows = connection.execute(select(replays).where(replays.c.stream_id == stream_id).order_by(replays.c.replay_id))
        return [as_replay(row) for row in rows]


def as_replay(row: Row[Any]) -> Replay:
    """The replay that a row of the table is."""
    return Replay(
        row.replay_id,
        row.stream_id,
        Interval(row.since, row.until),
        row.done_to,
        row.results,
        row.changed,
        row.begun,
        row.ended,
    )
