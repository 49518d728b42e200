"""The transactions of `errata doctor --fix`: figures of the catalog corrected from buckets that are undamaged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, delete, select, update

from errata.catalog import streams
from errata.catalog import tables as t
from errata.catalog.bucket_writes import resolution_columns, span_class
from errata.catalog.database import Catalog
from errata.catalog.health import ArchiveInventory
from errata.catalog.transaction import BasisConflict, Transaction
from errata.model.bucket import Bucket, Role
from errata.model.commit import Cause
from errata.model.findings import BucketFigures


@dataclass(frozen=True, slots=True)
class FigureRepair:
    """The correct index figures of a bucket."""

    role: Role
    figures: BucketFigures
    size: int


@dataclass(frozen=True, slots=True)
class ArchiveRepair:
    """The corrections of an archive's figures; None: the figure is right."""

    rows: int | None = None
    inline_bytes: int | None = None
    masked: Mapping[int, int] = field(default_factory=dict)
    """By bucket, the number of its superseded rows."""
    figures: Mapping[int, FigureRepair] = field(default_factory=dict)
    forget: Sequence[Bucket] = ()
    """Damaged buckets that only save a query work, and are deleted."""
    end: bool = False
    """Whether the archive ends, because its query does not exist any more."""

    @property
    def nothing(self) -> bool:
        some = self.masked or self.figures or self.forget or self.end
        return self.rows is None and self.inline_bytes is None and not some

    @property
    def summary(self) -> dict[str, object]:
        """The number of corrections, by kind."""
        counters = sum(each is not None for each in (self.rows, self.inline_bytes))
        counts = {"counters": counters, "masked": len(self.masked), "figures": len(self.figures)}
        counts |= {"caches": len(self.forget), "ended": int(self.end)}
        return {name: count for name, count in counts.items() if count}


def commit_repair(catalog: Catalog, basis: ArchiveInventory, mending: ArchiveRepair, cause: Cause) -> int:
    """Write the corrections, if no other commit has changed the archive since, and return the commit's number."""
    with catalog.writing() as connection:
        row = streams.lock_stream(connection, basis.stream_id)
        if row.changed_in != basis.changed_in:
            raise BasisConflict
        for bucket_id, masked in mending.masked.items():
            connection.execute(update(t.buckets).where(t.buckets.c.bucket_id == bucket_id).values(masked=masked))
        for bucket_id, told in mending.figures.items():
            connection.execute(
                update(t.buckets).where(t.buckets.c.bucket_id == bucket_id).values(_figure_columns(told))
            )
        return Transaction(
            cause=cause,
            summary=mending.summary,
            archive=row,
            ends=[basis.stream_id] if mending.end else [],
            deletes=mending.forget,
            # What was counted is wrong, or right with the deleted caches left out.
            state={
                "rows": row.rows if mending.rows is None else mending.rows,
                "inline_bytes": row.inline_bytes if mending.inline_bytes is None else mending.inline_bytes,
            },
        ).commit(connection, catalog.clock.now())


def _figure_columns(told: FigureRepair) -> dict[str, Any]:
    figures, groups = told.figures, told.figures.groups
    masks, content = figures.masks or (None, None), figures.content or (None, None)
    numbers = figures.revisions or (None, None)
    columns = {
        "rows": figures.rows,
        "bytes": told.size,
        "vs_min": figures.vs_min,
        "vs_max": figures.vs_max,
        "span_class": span_class(figures.vs_min, figures.vs_max),
        "group_low": groups.low,
        "group_high": groups.high,
        "group_members": groups.members_json(),
        **resolution_columns(figures.resolution),
    }
    if figures.ends is not None:
        columns |= {"ve_min": figures.ends[0], "ve_max": figures.ends[1]}
    if told.role is Role.OVERLAY:
        columns |= {"mask_min": masks[0], "mask_max": masks[1], "content_min": content[0], "content_max": content[1]}
        columns |= {"revision_first": numbers[0], "revision_last": numbers[1]}
    return columns


def commit_cleanup(catalog: Catalog, gone: Sequence[str], cause: Cause) -> int | None:
    """Delete expired pins, consumers of dropped streams, and entries of doomed files that a bucket needs or that do not
    exist any more (`gone`); the commit, if there was anything."""
    with catalog.writing() as connection:
        summary = {
            "doomed": _delete_doomed(connection, gone),
            "consumers": _delete_consumers(connection),
            "pins": _delete_expired_pins(connection, catalog.clock.now()),
        }
        if not any(summary.values()):
            return None
        done = {name: count for name, count in summary.items() if count}
        return Transaction(cause=cause, summary=done).commit(connection, catalog.clock.now())


def _delete_doomed(connection: Connection, gone: Sequence[str]) -> int:
    listed = t.doomed.c.path
    needed = select(t.buckets.c.path).where(t.buckets.c.path.is_not(None))
    count = connection.execute(delete(t.doomed).where(listed.in_(needed))).rowcount
    for start in range(0, len(gone), 500):
        count += connection.execute(delete(t.doomed).where(listed.in_(gone[start : start + 500]))).rowcount
    return count


def _delete_consumers(connection: Connection) -> int:
    dropped = select(t.streams.c.stream_id).where(t.streams.c.removed_in.is_not(None))
    return connection.execute(delete(t.consumers).where(t.consumers.c.stream_id.in_(dropped))).rowcount


def _delete_expired_pins(connection: Connection, now: int) -> int:
    return connection.execute(delete(t.pins).where(t.pins.c.expires_at <= now)).rowcount
