"""Requests for reduced readings in the catalog: recorded by readers, settled by vacuum.

A request is demand and no fact: one that is lost costs work and no answer. So a record is not durable against a power
cut, and of more than `MAX_REQUESTS` of a stream the ones asked for the longest ago are forgotten. The stream's row is
locked while they change, since a count is read and written.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sqlalchemy import ColumnElement, Connection, delete, func, insert, select, update

from errata.catalog import streams
from errata.catalog.database import Catalog
from errata.catalog.reduction_tables import reduction_requests
from errata.catalog.tables import streams as streams_table
from errata.model.reduction_request import (
    AskedReduction,
    ReductionRequest,
    RequestMethod,
    asked_from_record,
    asked_to_record,
)

MAX_REQUESTS = 200
"""Different requests of one stream that are kept. Rates by age begin at other places with each reading, so that each is
a request of its own; a round of vacuum looks at all of them for each bucket."""

_REQUESTS = reduction_requests.c


def record_request(
    catalog: Catalog, stream_id: int, asked: AskedReduction, user: str, from_copies: int = 0, from_originals: int = 0
) -> None:
    """Count one more reader who asked for this, and the bytes that it read."""
    now = catalog.clock.now()
    with catalog.writing(durable=False) as connection:
        streams.lock_stream(connection, stream_id)
        counted = update(reduction_requests).where(_is_request(stream_id, asked.digest))
        counted = counted.values(
            readers=_REQUESTS.readers + 1,
            all_readers=_REQUESTS.all_readers + 1,
            from_copies=_REQUESTS.from_copies + from_copies,
            from_originals=_REQUESTS.from_originals + from_originals,
            user_name=user,
            asked_at=now,
        )
        if connection.execute(counted).rowcount:
            return
        _forget_oldest(connection, stream_id)
        values = {
            "stream_id": stream_id,
            "digest": asked.digest,
            "method": asked.method.value,
            "label": asked.label,
            "asked": asked_to_record(asked),
            "readers": 1,
            "last_readers": 0,
            "all_readers": 1,
            "from_copies": from_copies,
            "from_originals": from_originals,
            "user_name": user,
            "asked_at": now,
        }
        connection.execute(insert(reduction_requests).values(values))


def recorded_requests(catalog: Catalog, stream_id: int, method: RequestMethod | None = None) -> list[ReductionRequest]:
    """The requests of a stream, of one method or of all, the one asked last first."""
    query = select(reduction_requests).where(_REQUESTS.stream_id == stream_id)
    if method is not None:
        query = query.where(_REQUESTS.method == method.value)
    with catalog.reading() as connection:
        return [
            ReductionRequest(
                asked_from_record(row.asked, row.label),
                row.readers,
                row.last_readers,
                row.all_readers,
                row.from_copies,
                row.from_originals,
                row.user_name,
                row.asked_at,
                row.settled_at,
            )
            for row in connection.execute(query.order_by(_REQUESTS.asked_at.desc(), _REQUESTS.digest))
        ]


def settle_requests(catalog: Catalog, stream_id: int, seen: Iterable[ReductionRequest]) -> None:
    """Begin a new round: what vacuum has seen is done. Readers who came meanwhile count for the next round. Without any
    reader in this round the one before stays the last."""
    done = list(seen)
    if not any(each.readers for each in done):
        return
    now = catalog.clock.now()
    with catalog.writing() as connection:
        streams.lock_stream(connection, stream_id)
        for each in done:
            settled = update(reduction_requests).where(_is_request(stream_id, each.asked.digest))
            values = {"readers": _REQUESTS.readers - each.readers, "last_readers": each.readers}
            # Never below zero, if another vacuum has settled the same readers.
            connection.execute(settled.where(_REQUESTS.readers >= each.readers).values(settled_at=now, **values))


def forget_requests(catalog: Catalog) -> int:
    """Delete the requests of streams that have ended, and return their number."""
    ended = select(streams_table.c.stream_id).where(streams_table.c.removed_in.is_not(None))
    with catalog.writing() as connection:
        return int(connection.execute(delete(reduction_requests).where(_REQUESTS.stream_id.in_(ended))).rowcount)


def _is_request(stream_id: int, digest: str) -> ColumnElement[bool]:
    return (_REQUESTS.stream_id == stream_id) & (_REQUESTS.digest == digest)


def _forget_oldest(connection: Connection, stream_id: int) -> None:
    """Make room for one more."""
    of_stream = _REQUESTS.stream_id == stream_id
    count = connection.execute(select(func.count()).where(of_stream)).scalar_one()
    if count < MAX_REQUESTS:
        return
    oldest = select(_REQUESTS.digest).where(of_stream).order_by(_REQUESTS.readers > 0, _REQUESTS.asked_at)
    going: Sequence[str] = connection.execute(oldest.limit(count - MAX_REQUESTS + 1)).scalars().all()
    connection.execute(delete(reduction_requests).where(of_stream, _REQUESTS.digest.in_(going)))
