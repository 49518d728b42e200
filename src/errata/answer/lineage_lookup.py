"""The replay sequence by stored lineage, for revisions in place (replay-revisions, 2008, section 3.2.2).

Stored lineage holds for each result the interval of rows, by scan, that it was made of. It tells exactly which results
a revised row is among the rows of, and exactly which rows make these; derived lineage tells a superset. It is read
only around the revised rows, and used where it asks for fewer rows or refuses fewer revisions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from errata.answer import replay_sequence
from errata.answer.extents import parts_in_extents, rows_with_constants
from errata.answer.inputs import RunInputs
from errata.answer.replay_sequence import (
    ReplaySequence,
    ResultScope,
    StoredLineageMatch,
    cluster_refusal,
    extent_in_scope,
    merge_refusals,
)
from errata.answer.row_comparison import BoolArray
from errata.answer.source_revisions import RevisionCluster, SourceRevisions, cluster_revisions, split_in_place
from errata.answer.stored_lineage import stored_lineage_schema, stores_lineage
from errata.answer.task import EvaluationTask
from errata.archive.bucket_frames import read_buckets
from errata.archive.results import latest_rows, match_results, published_starting_in
from errata.catalog import buckets
from errata.catalog.result_archives import ResultArchive
from errata.language.lineage import InputChange, backward, replay_scope
from errata.language.nodes import scans_of
from errata.language.plan import Plan
from errata.language.source_reads import AgeLimits
from errata.model.bucket import Bucket, Role
from errata.model.commit import RefusedRevisions
from errata.model.extent import Extent, ExtentAxis, Value
from errata.model.results import LINEAGE_FROM, LINEAGE_TO, VS
from errata.model.time import Interval, merge_intervals

MAX_RESULTS = 2_000
"""Results that are looked up one by one, at most. Beyond it derived lineage decides."""

MAX_READ_INTERVALS = 64
"""Intervals of a source that are read, at most. More are merged where the gaps between them are least."""

MAX_READ_GROUPS = 16
"""Groups of a source whose rows are read apart, at most."""

KeptNames = Mapping[str, str]
"""For the columns of a plan, their names in the results."""


@dataclass(frozen=True, slots=True)
class InPlaceChange:
    """Revisions in place that are followed together."""

    cluster: RevisionCluster
    moments: np.ndarray
    """The event times of the rows, in order."""


def touched_results(of: ResultScope, change: InPlaceChange, lineage: pa.Table, names: KeptNames) -> BoolArray:
    """Which results, by their lineage, were made of revised rows among others."""
    found = np.zeros(lineage.num_rows, np.bool_)
    begins = lineage[VS].to_numpy()
    for place, region in _reachable_extents(of, change.cluster):
        values = {names[name]: value for name, value in region.values.items() if name in of.plan.key}
        mine = rows_with_constants(lineage, replace(region, values=values)) & _made_of_moments(
            change.moments, lineage, place
        )
        found |= mine & (begins >= region.interval.start) & (begins < region.interval.end)
    return found


def _reachable_extents(of: ResultScope, cluster: RevisionCluster) -> Iterator[tuple[int, Extent]]:
    """For each scan of the source the region that its revised rows could touch by derived lineage."""
    for place, scan in enumerate(scans_of(of.plan)):
        if scan.source.name != cluster.source:
            continue
        found = replay_scope(of.plan, InputChange(place, cluster.rows.renamed(scan.column)), whole=True)
        region = None if found is None else extent_in_scope(of, found.touched)
        if region is not None and not region.empty:
            yield place, region


def _made_of_moments(moments: np.ndarray, lineage: pa.Table, place: int) -> BoolArray:
    """Which results have one of the event times in the interval of a scan that they were made of."""
    first, last = lineage[f"{LINEAGE_FROM}{place}"], lineage[f"{LINEAGE_TO}{place}"]
    has = first.is_valid().to_numpy()
    low = np.searchsorted(moments, first.fill_null(0).to_numpy())
    high = np.searchsorted(moments, last.fill_null(0).to_numpy(), side="right")
    among: BoolArray = has & (low < high)
    return among


def sequence_by_stored_lineage(
    of: ResultScope,
    rest: ReplaySequence,
    touched: Sequence[tuple[InPlaceChange, BoolArray]],
    lineage: pa.Table,
    names: KeptNames,
    aged_to: AgeLimits,
) -> ReplaySequence | None:
    """The sequence, where it is known which results revisions in place touch. `rest`: the sequence for all other
    revisions. None where there are too many results to look up."""
    old = _results_of_aged_rows(of.plan, lineage, aged_to)
    refused: list[RefusedRevisions] = []
    good: list[tuple[RevisionCluster, BoolArray]] = []
    for change, which in touched:
        if too_old := sorted({source for source, flags in old.items() if (flags & which).any()}):
            why = f"the results are made of rows of {', '.join(too_old)} that have been aged out"
            refused.append(cluster_refusal(change.cluster, why))
        else:
            # Results that other revisions touch are recomputed with these.
            good.append((change.cluster, which & ~_results_in_regions(rest.regions, lineage, names)))
    chosen = np.zeros(lineage.num_rows, np.bool_)
    for _, which in good:
        chosen |= which
    if np.count_nonzero(chosen) > MAX_RESULTS:
        return None
    rows = lineage.filter(pa.array(chosen))
    regions = tuple(_result_regions(of.plan, rows, names))
    reads = _reads_of_results(of.plan, rows, regions)
    stored = StoredLineageMatch(rest, rows, regions, reads, tuple((each, which[chosen]) for each, which in good))
    both = {name: (*rest.reads.get(name, ()), *reads.get(name, ())) for name in {**rest.reads, **reads}}
    return ReplaySequence(
        (*rest.regions, *regions),
        both,
        tuple(merge_refusals([*rest.refused, *_sorted_refusals(refused)])),
        stored=stored,
    )


def _results_of_aged_rows(plan: Plan, lineage: pa.Table, aged_to: AgeLimits) -> dict[str, BoolArray]:
    """For each source, which results were made of rows of it that have been aged out."""
    found: dict[str, BoolArray] = {}
    for place, scan in enumerate(scans_of(plan)):
        name = scan.source.name
        if (gone := aged_to.get(name)) is not None:
            # Relations are not aged out: a result may need the last version before it.
            first = lineage[f"{LINEAGE_FROM}{place}"].fill_null(gone).to_numpy()
            found[name] = found.get(name, np.zeros(lineage.num_rows, np.bool_)) | (first < gone)
    return found


def _results_in_regions(regions: Iterable[Extent], lineage: pa.Table, names: KeptNames) -> BoolArray:
    """Which results lie in regions whose constants are all of key columns."""
    found = np.zeros(lineage.num_rows, np.bool_)
    as_kept = [replace(each, values={names[name]: value for name, value in each.values.items()}) for each in regions]
    begins = lineage[VS].to_numpy()
    if as_kept and len(begins):
        found[parts_in_extents(lineage, begins, begins + 1, as_kept).row] = True
    return found


def _result_regions(plan: Plan, rows: pa.Table, names: KeptNames) -> Iterator[Extent]:
    """For each result the region that holds only it."""
    columns = {name: _plain_values(rows[names[name]]) for name in plan.key}
    for number, begins in enumerate(rows[VS].to_pylist()):
        values: dict[str, Value] = {name: column[number] for name, column in columns.items()}
        yield Extent(ExtentAxis.START, Interval(begins, begins + 1), values)


def _plain_values(column: pa.ChunkedArray) -> list[Any]:
    whole = column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column
    return list(whole.to_pylist())


def _reads_of_results(plan: Plan, rows: pa.Table, regions: Sequence[Extent]) -> dict[str, tuple[Extent, ...]]:
    """For each source the extents of the rows that the results were made of."""
    read = scans_of(plan)
    ends = [
        (rows[f"{LINEAGE_FROM}{place}"].to_pylist(), rows[f"{LINEAGE_TO}{place}"].to_pylist())
        for place in range(len(read))
    ]
    found: dict[str, dict[frozenset[tuple[str, Value]], list[Interval]]] = {scan.source.name: {} for scan in read}
    for number, region in enumerate(regions):
        for place, below in backward(plan, region).items():
            first, last = ends[place][0][number], ends[place][1][number]
            if first is not None:
                scan = read[place]
                values = frozenset((scan.of_source(name), value) for name, value in below.values.items())
                found[scan.source.name].setdefault(values, []).append(Interval(first, last + 1))
    return {name: tuple(_limit_reads(some)) for name, some in found.items()}


def _limit_reads(some: Mapping[frozenset[tuple[str, Value]], Sequence[Interval]]) -> Iterator[Extent]:
    """The extents that are read, at most MAX_READ_INTERVALS of them."""
    apart = {values: merge_intervals(each) for values, each in some.items()}
    if sum(len(each) for each in apart.values()) > MAX_READ_INTERVALS:
        everything = _merge_intervals(merge_intervals(each for intervals in apart.values() for each in intervals))
        apart = dict.fromkeys(apart if len(apart) <= MAX_READ_GROUPS else [frozenset()], everything)
    for values, intervals in apart.items():
        yield from (Extent(ExtentAxis.START, each, dict(values)) for each in intervals)


def _merge_intervals(intervals: Sequence[Interval]) -> list[Interval]:
    """Intervals, which lie apart and in order, merged except at the widest gaps."""
    gaps = np.array([later.start - former.end for former, later in pairwise(intervals)])
    cuts = [0, *(int(each) + 1 for each in np.sort(np.argsort(gaps)[::-1][: MAX_READ_INTERVALS - 1])), len(intervals)]
    return [Interval(intervals[low].start, intervals[high - 1].end) for low, high in pairwise(cuts)]


def results_to_keep(stored: StoredLineageMatch, lost: BoolArray) -> tuple[BoolArray, list[RefusedRevisions]]:
    """Which results are corrected where some, `lost`, did not come out again from the rows that they were made of.
    Clusters that touch lost ones are refused whole."""
    why = "the results were made before rows came or went between theirs, which these results could not take up"
    keep = np.zeros(stored.rows.num_rows, np.bool_)
    refused = []
    for cluster, which in stored.changes:
        if (which & lost).any():
            refused.append(cluster_refusal(cluster, why))
        else:
            keep |= which
    return keep, _sorted_refusals(refused)


def _sorted_refusals(refused: Iterable[RefusedRevisions]) -> list[RefusedRevisions]:
    """Refusals of one reason merged. They are sorted, so that former and current version of a revision are adjacent."""
    return list(merge_refusals(sorted(refused, key=lambda each: (each.source, each.last))))


# Stored lineage read from its buckets.


@dataclass(frozen=True)
class LineageRequest:
    """What stored lineage is asked."""

    task: EvaluationTask
    basis: ResultArchive
    in_place: tuple[SourceRevisions, ...]
    rest: tuple[RevisionCluster, ...]
    """Clusters that are not in place: derived lineage follows them."""


def lineage_request(
    task: EvaluationTask,
    basis: ResultArchive,
    revised: Iterable[SourceRevisions],
    others: Iterable[RevisionCluster] = (),
) -> LineageRequest | None:
    """What stored lineage can be asked; None where none is kept, or no revision is in place. `others`: further clusters
    whose versions are not known."""
    if not stores_lineage(task):
        return None
    parts = [split_in_place(task.rewritten, each) for each in revised]
    in_place = tuple(each for each, _ in parts if each is not None)
    rest = [cluster for _, each in parts if each is not None for cluster in cluster_revisions(each)]
    return LineageRequest(task, basis, in_place, (*rest, *others)) if in_place else None


def cheaper_sequence(
    of: ResultScope, wanted: LineageRequest, inputs: RunInputs, found: ReplaySequence, aged: AgeLimits
) -> tuple[ReplaySequence, str] | None:
    """The sequence by stored lineage, and why it is used, if it is less than the one found by derived lineage."""
    names = wanted.task.kept_names
    changes = [each for revised in wanted.in_place for each in _in_place_changes(revised)]
    lineage = _current_lineage(wanted, inputs, of, changes)
    touched = [(each, touched_results(of, each, lineage, names)) for each in changes]
    rest = replay_sequence.sequence_for_changes(of, wanted.rest, aged)
    done = sequence_by_stored_lineage(of, rest, touched, lineage, names, aged)
    if done is None:
        return None
    rows, derived = (rows_to_read(inputs, each, of.until) for each in (done, found))
    refused, too_many = (sum(each.count for each in some.refused) for some in (done, found))
    if refused < too_many:
        return done, f"by stored lineage: about {rows:,} rows; derived lineage asks for rows that have been aged out"
    if refused == too_many and rows < derived:
        return done, f"by stored lineage: about {rows:,} rows instead of {derived:,}"
    return None


def rows_to_read(inputs: RunInputs, needed: ReplaySequence, until: int) -> int:
    """About how many rows a replay sequence reads."""
    return sum(inputs.size_of_all(name, some, until) for name, some in needed.reads.items())


def _in_place_changes(revised: SourceRevisions) -> Iterator[InPlaceChange]:
    moments = np.unique(revised.rows[VS].to_numpy())
    for each in cluster_revisions(revised):
        low, high = np.searchsorted(moments, (each.rows.interval.start, each.rows.interval.end))
        yield InPlaceChange(each, moments[low:high])


def _current_lineage(
    wanted: LineageRequest, inputs: RunInputs, of: ResultScope, changes: Sequence[InPlaceChange]
) -> pa.Table:
    """The current lineage of all results that revisions can touch, and of some others."""
    schema, spans = stored_lineage_schema(wanted.task), merge_intervals(each.cluster.rows.interval for each in changes)
    rows = _read_lineage(wanted, inputs, schema, spans)
    some = np.zeros(rows.num_rows, np.bool_)
    for each in changes:
        some |= touched_results(of, each, rows, wanted.task.kept_names)
    # Later lineage of a result may lie in other buckets, since the result is made of other rows now.
    begins = np.unique(rows[VS].to_numpy()[some])
    spans = merge_intervals(Interval(int(each), int(each) + 1) for each in begins)
    rows = _read_lineage(wanted, inputs, schema, spans)
    rows = latest_rows(rows.filter(pa.array(np.isin(rows[VS].to_numpy(), begins))), wanted.task.shape)
    return _lineage_of_published(wanted, inputs, rows, spans)


def _read_lineage(wanted: LineageRequest, inputs: RunInputs, schema: pa.Schema, spans: Iterable[Interval]) -> pa.Table:
    site, basis = inputs.site, wanted.basis
    at = (site.catalog, basis.stream_id, basis.last.commit_id)
    found: dict[int, Bucket] = {}
    for each in spans:
        found |= {bucket.bucket_id: bucket for bucket in buckets.visible_buckets(*at, each, role=Role.LINEAGE)}
    return read_buckets(site.catalog, site.warehouse, schema, found.values())


def _lineage_of_published(
    wanted: LineageRequest, inputs: RunInputs, rows: pa.Table, spans: Sequence[Interval]
) -> pa.Table:
    """The lineage of results that are published; that of masked ones may still be stored."""
    if not rows.num_rows:
        return rows
    results = published_starting_in(inputs.site.catalog, inputs.site.warehouse, wanted.basis, spans)
    mine, _ = match_results(rows, results, wanted.task.shape)
    return rows.take(pa.array(np.unique(mine)))
