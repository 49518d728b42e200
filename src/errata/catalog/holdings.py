"""How much the archives hold, in sums over the bucket index."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import case, func, select

from errata.catalog.open import Catalog
from errata.catalog.tables import buckets
from errata.model.bucket import Role


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much of one role a stream holds now."""

    buckets: int = 0
    rows: int = 0
    bytes: int = 0
    inline: int = 0
    """How many of the buckets live in the catalog."""
    vs_min: int | None = None
    vs_max: int | None = None


def sizes(catalog: Catalog, only: Sequence[int] = ()) -> dict[tuple[int, Role], Sizes]:
    """How much each stream holds now, by the stream's id and the role; only of some streams, if told."""
    inline = func.sum(case((buckets.c.path.is_(None), 1), else_=0))
    query = (
        select(
            buckets.c.stream_id,
            buckets.c.role,
            func.count(),
            func.sum(buckets.c.rows),
            func.sum(buckets.c.bytes),
            inline,
            func.min(buckets.c.vs_min),
            func.max(buckets.c.vs_max),
        )
        .where(buckets.c.removed_in.is_(None))
        .group_by(buckets.c.stream_id, buckets.c.role)
    )
    if only:
        query = query.where(buckets.c.stream_id.in_(only))
    with catalog.reading() as connection:
        return {
            # PostgreSQL's sums are decimals.
            (row[0], Role(row[1])): Sizes(row[2], int(row[3]), int(row[4]), int(row[5]), row[6], row[7])
            for row in connection.execute(query)
        }


def superseded(catalog: Catalog, only: Sequence[int] = ()) -> dict[int, tuple[int, int]]:
    """For each stream how many base buckets are no longer live, kept for readers of old commits, and their bytes; only
    of some streams, if told."""
    query = (
        select(buckets.c.stream_id, func.count(), func.sum(buckets.c.bytes))
        .where(buckets.c.removed_in.is_not(None), buckets.c.role == Role.BASE.value)
        .group_by(buckets.c.stream_id)
    )
    if only:
        query = query.where(buckets.c.stream_id.in_(only))
    with catalog.reading() as connection:
        return {row[0]: (row[1], int(row[2])) for row in connection.execute(query)}
