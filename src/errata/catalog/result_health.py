"""What the catalog alone can tell of the health of a query's results, as of one moment."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, select

from errata.catalog import buckets
from errata.catalog import tables as t
from errata.catalog.health import misclassed, one_moment, positions
from errata.catalog.open import Catalog
from errata.model.bucket import Bucket, Role
from errata.model.horizon import spent
from errata.model.result_health import Advance
from errata.model.results import Shape, from_record
from errata.model.wholeness import Position


@dataclass(frozen=True, slots=True)
class ResultCase:
    """All that the catalog has of an archive of results."""

    stream_id: int
    name: str
    query_id: int
    """The form of the query that the results are of."""
    shape: Shape
    dropped: bool
    """Whether the archive has ended."""
    changed_in: int
    inline_bytes: int
    now: Position
    positions: Sequence[Position]
    advances: Sequence[Advance]
    buckets: Sequence[Bucket]
    """Those that some readable commit sees."""
    misclassed: frozenset[int]
    names: frozenset[str]
    """The queries that there are."""
    newest: int

    @property
    def live(self) -> list[Bucket]:
        return [bucket for bucket in self.buckets if bucket.removed_in is None]


def result_case(catalog: Catalog, stream_id: int, kept_from: int) -> ResultCase:
    """What the catalog has of an archive of results, as far back as a commit that is pinned."""
    with one_moment(catalog) as connection:
        row = connection.execute(select(t.streams).where(t.streams.c.stream_id == stream_id)).one()
        shape = connection.execute(select(t.shapes.c.shape).where(t.shapes.c.stream_id == stream_id)).scalar_one()
        names = select(t.queries.c.name).where(t.queries.c.removed_in.is_(None))
        return ResultCase(
            stream_id,
            row.name,
            row.query_id,
            from_record(shape),
            row.removed_in is not None,
            row.changed_in,
            row.inline_bytes,
            Position(row.changed_in, row.stable, row.vs_max, row.rows, row.applied, row.aged_to, row.folded),
            positions(connection, stream_id),
            _advances(connection, stream_id),
            [each for each in buckets.ever(connection, stream_id) if needed(each, kept_from)],
            frozenset(misclassed(connection, stream_id)),
            frozenset(connection.execute(names).scalars()),
            connection.execute(select(t.head.c.commit_id)).scalar_one(),
        )


def needed(bucket: Bucket, kept_from: int) -> bool:
    """Whether somebody may read it; a state that is over nobody does, whatever the commit."""
    return bucket.removed_in is None or (bucket.role is not Role.STATE and not spent(bucket.removed_in, kept_from))


def _advances(connection: Connection, stream_id: int) -> list[Advance]:
    columns = t.evaluations.c
    query = select(columns.number, columns.commit_id, columns.until).where(columns.stream_id == stream_id)
    return [Advance(*row) for row in connection.execute(query.order_by(columns.number))]
