"""What an evaluation finds of the one before: results that are open or at the tip, what its strategy kept, and buckets
that are due to be merged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from errata.archive.health import look
from errata.archive.result_inspect import ResultWard
from errata.archive.wire import unpacked
from errata.archive.written import checksum
from errata.catalog import buckets
from errata.catalog.published import Published
from errata.errors import ErrataError
from errata.flows.answering.holding import lost_for_good
from errata.flows.answering.inputs import Inputs
from errata.flows.answering.merged_results import is_due, merged
from errata.flows.answering.task import Task
from errata.flows.site import Site
from errata.model.bucket import Bucket, NewBucket, Role, masking


@dataclass(frozen=True)
class Former:
    """What the evaluation before has left."""

    results: Sequence[Bucket] = ()
    """Results that are open or at the tip, and buckets that mask some of them."""
    state: pa.Table | None = None
    """What the strategy kept; None if it is not there, or was kept for another form of the plan."""
    merged: Sequence[Bucket] = ()
    """Buckets of which what counts is in those that follow."""
    merged_into: Sequence[NewBucket] = ()
    rows: int = 0
    """How many more settled results there are by that: the masked ones go."""
    written: Sequence[NewBucket] = ()
    """Of an evaluation that is done in parts, all that it has written of the answer so far."""
    goes_on: bool = False
    """Whether it is the same evaluation that has left this."""

    @property
    def unsettled(self) -> list[NewBucket]:
        """What has been written and is open or at the tip."""
        return [each for each in self.written if each.role in (Role.OPEN, Role.TIP)]


def former(site: Site, task: Task) -> Former:
    """What there is of the evaluation before."""
    basis = task.basis
    if basis is None:
        return Former()
    roles = (Role.OPEN, Role.TIP, Role.MASK, Role.STATE)
    there = buckets.of_roles(site.catalog, basis.stream_id, basis.last.commit_id, roles)
    results = [each for each in there if each.role in (Role.OPEN, Role.TIP)]
    masks = [each for each in there if each.role is Role.MASK]
    state = _state(site, [each for each in there if each.role is Role.STATE]) if task.route.keeps_state else None
    results += masking(masks, results)
    if not is_due(basis, task.number, masks):
        return Former(results, state)
    done = merged(site, basis, task.number)
    return Former(results, state, done.gone, done.into, done.rows)


def state_of(site: Site, of: Published) -> pa.Table | None:
    """What was kept with results; None if it is not there, or is not what was written."""
    return _state(site, buckets.visible(site.catalog, of.stream_id, of.last.commit_id, role=Role.STATE))


def _state(site: Site, found: Sequence[Bucket]) -> pa.Table | None:
    """What was kept; None if it is not there, or is not what was written: it can be made anew."""
    if len(found) != 1:
        return None
    (bucket,) = found
    if bucket.inline:
        data = buckets.inline_data(site.catalog, [bucket.bucket_id]).get(bucket.bucket_id)
    else:
        data = _file(site, bucket.path or "")
    if data is None or checksum(data) != bucket.checksum:
        return None
    return unpacked(data) if bucket.inline else pq.read_table(pa.BufferReader(data), use_threads=False)


def _file(site: Site, path: str) -> bytes | None:
    try:
        return site.warehouse.read(path)
    except FileNotFoundError:
        return None


def check_can_be_made_anew(task: Task, inputs: Inputs) -> None:
    """Refuse to go on without what the strategy kept, if rows that it was made of have been aged out since."""
    if task.basis is None:
        return
    lost = lost_for_good(inputs.site.catalog, task.rewritten, task.route, task.basis)
    if lost:
        raise ErrataError(
            f"query {task.name} cannot go on: what it kept of earlier rows is lost",
            why=f"rows of {', '.join(lost)} that it was made of have been aged out",
            how=f"errata run --anew {task.name} works it out from the rows that are left, and publishes the difference",
        )


def still_whole(inputs: Inputs, of: Published, some: Sequence[Bucket]) -> list[Bucket]:
    """Those that are what was written: results may be worked out anew because some are not."""
    site = inputs.site
    seen = look(lambda: inputs.session, site.catalog, ResultWard(of.shape, site.warehouse), some).seen
    return [each for each in some if seen[each.bucket_id].whole(each)]
