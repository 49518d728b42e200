"""Stored lineage asked: which results changes in place touch, and which rows these were made of."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from errata.archive.masked_results import last_told, same_results
from errata.archive.published_between import results_beginning
from errata.archive.tasks import rows_in
from errata.catalog import buckets
from errata.catalog.published import Published
from errata.evaluate.ageing import AgedTo
from errata.flows.answering.inputs import Inputs
from errata.flows.answering.lineage_kept import schema_of, stores
from errata.flows.answering.task import Task
from errata.model.bucket import Bucket, Role
from errata.model.interval import Interval, joined
from errata.model.results import VS
from errata.revise import work
from errata.revise.in_place import parted
from errata.revise.revised import Cluster, Revised, clusters
from errata.revise.stored import Moved, by_stored, touched
from errata.revise.work import Answered, Work


@dataclass(frozen=True)
class Asked:
    """What is to be told of a query's results."""

    task: Task
    basis: Published
    in_place: tuple[Revised, ...]
    rest: tuple[Cluster, ...]
    """Changes that are not in place: derived lineage follows them."""


def asked(task: Task, basis: Published, revised: Iterable[Revised], others: Iterable[Cluster] = ()) -> Asked | None:
    """What stored lineage can be asked; None where none is kept, or nothing was revised in place. `others`: further
    changes of which no more is known."""
    if not stores(task):
        return None
    parts = [parted(task.rewritten, each) for each in revised]
    in_place = tuple(each for each, _ in parts if each is not None)
    rest = [cluster for _, each in parts if each is not None for cluster in clusters(each)]
    return Asked(task, basis, in_place, (*rest, *others)) if in_place else None


def instead(of: Answered, wanted: Asked, inputs: Inputs, found: Work, aged: AgedTo) -> tuple[Work, str] | None:
    """What there is to be worked out again as stored lineage tells it, and why, if that is less than what was found
    without."""
    names = wanted.task.kept_names
    moved = [each for revised in wanted.in_place for each in _moved(revised)]
    lineage = _lineage(wanted, inputs, of, moved)
    told = [(each, touched(of, each, lineage, names)) for each in moved]
    rest = work.following(of, wanted.rest, aged)
    done = by_stored(of, rest, told, lineage, names, aged)
    if done is None:
        return None
    rows, derived = (_rows(inputs, each, of.until) for each in (done, found))
    refused, too_many = (sum(each.count for each in some.refused) for some in (done, found))
    if refused < too_many:
        return done, f"by stored lineage: about {rows:,} rows; derived lineage asks for rows that have been aged out"
    if refused == too_many and rows < derived:
        return done, f"by stored lineage: about {rows:,} rows instead of {derived:,}"
    return None


def _rows(inputs: Inputs, needed: Work, until: int) -> int:
    return sum(inputs.size_of_all(name, some, until) for name, some in needed.reads.items())


def _moved(revised: Revised) -> Iterator[Moved]:
    moments = np.unique(revised.rows[VS].to_numpy())
    for each in clusters(revised):
        low, high = np.searchsorted(moments, (each.interval.start, each.interval.end))
        yield Moved(each, moments[low:high])


def _lineage(wanted: Asked, inputs: Inputs, of: Answered, moved: Sequence[Moved]) -> pa.Table:
    """The lineage that counts of all results that changes can touch, and of some others."""
    schema, spans = schema_of(wanted.task), joined(each.cluster.interval for each in moved)
    rows = _read(wanted, inputs, schema, spans)
    some = np.zeros(rows.num_rows, np.bool_)
    for each in moved:
        some |= touched(of, each, rows, wanted.task.kept_names)
    # What was told later of a result may lie in other buckets, since it is made of other rows now.
    begins = np.unique(rows[VS].to_numpy()[some])
    spans = joined(Interval(int(each), int(each) + 1) for each in begins)
    rows = _read(wanted, inputs, schema, spans)
    rows = last_told(rows.filter(pa.array(np.isin(rows[VS].to_numpy(), begins))), wanted.task.shape)
    return _published(wanted, inputs, rows, spans)


def _read(wanted: Asked, inputs: Inputs, schema: pa.Schema, spans: Iterable[Interval]) -> pa.Table:
    site, basis = inputs.site, wanted.basis
    at = (site.catalog, basis.stream_id, basis.last.commit_id)
    found: dict[int, Bucket] = {}
    for each in spans:
        found |= {bucket.bucket_id: bucket for bucket in buckets.visible(*at, each, role=Role.LINEAGE)}
    return rows_in(site.catalog, site.warehouse, schema, found.values())


def _published(wanted: Asked, inputs: Inputs, rows: pa.Table, spans: Sequence[Interval]) -> pa.Table:
    """The lineage of results that there are: of others it may stand there still."""
    if not rows.num_rows:
        return rows
    results = results_beginning(inputs.site.catalog, inputs.site.warehouse, wanted.basis, spans)
    mine, _ = same_results(rows, results, wanted.task.shape)
    return rows.take(pa.array(np.unique(mine)))
