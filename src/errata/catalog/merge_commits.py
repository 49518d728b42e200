"""What a merged batch adds to the transaction of an append: the state that takes the place of the former one, feeds,
disagreements, and the stable point of the merge.

A merge was decided on how the feeds stood and on what the stream's state remembered. Under the lock on the stream's row
both must still be so; else nothing is committed, and the batch is merged again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Row

from errata.catalog import bucket_writes, streams
from errata.catalog.feeds import FeedChange, FeedState, MergeRecord, feeds_within, merge_within
from errata.catalog.streams import StreamState
from errata.catalog.transaction import BasisConflict
from errata.model.batch import Batch
from errata.model.bucket import Bucket
from errata.model.time import LOWEST


@dataclass(frozen=True, slots=True)
class MergeCommit:
    """A merged batch about to be committed, beside its buckets."""

    feeds: Sequence[FeedState]
    """The feeds that the catalog knew when the batch was merged."""
    record: MergeRecord | None
    former: Sequence[Bucket]
    """The state that the batch was merged into; it is deleted, since only the next batch needs a state."""
    change: FeedChange
    stable: int
    """The stable point of the merged stream after the batch."""
    compared: bool = False
    """Whether rows were compared with the archive."""

    def recheck(self, connection: Connection, now: Row[Any], basis: StreamState) -> None:
        """Raise if the batch would be merged otherwise now."""
        if now.removed_in is not None or now.stable != basis.stable:
            raise BasisConflict
        if now.changed_in == basis.changed_in:
            return
        if streams.is_declared_since(connection, basis.stream_id, basis.changed_in):
            raise BasisConflict
        if self.compared and (now.applied, now.revisions) != (basis.applied, basis.revisions):
            raise BasisConflict
        if feeds_within(connection, basis.stream_id) != list(self.feeds):
            raise BasisConflict
        if merge_within(connection, basis.stream_id) != self.record:
            raise BasisConflict
        if not bucket_writes.are_visible(connection, {each.bucket_id for each in self.former}):
            raise BasisConflict

    @property
    def summary(self) -> dict[str, int]:
        """What the log tells of the feeds."""
        counts = {"disagreements": len(self.change.disagreements), "agreed": len(self.change.agreed)}
        return {name: count for name, count in counts.items() if count}

    def state_after(self, now: Row[Any], arrived: Batch) -> dict[str, int | None]:
        """The stream's row after the commit: its stable point is the merge's, however far its rows reach."""
        after: dict[str, int | None] = {"rows": now.rows + arrived.counts.appended}
        if arrived.on_time is not None:
            newest = arrived.on_time[1]
            after["vs_max"] = newest if now.vs_max is None else max(now.vs_max, newest)
        stable = max(self.stable, LOWEST if now.stable is None else now.stable)
        return after | ({} if stable == LOWEST else {"stable": stable})
