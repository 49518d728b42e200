"""What stored lineage tells of changes that are in place: exactly the results whose rows a changed row is among, and
exactly the rows that make these (replay-revisions, 2008, section 3.2.2)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from errata.evaluate.ageing import AgedTo
from errata.evaluate.reads import Reach
from errata.evaluate.sameness import Flags
from errata.language.expr import Value
from errata.language.lineage import Axis, Change, Region, backward, replay
from errata.language.nodes import scans
from errata.language.plan import Plan
from errata.model.evaluation import Refusal
from errata.model.interval import Interval, joined
from errata.model.results import FROM, TO, VS
from errata.revise.regions import holds, within
from errata.revise.revised import Cluster
from errata.revise.work import Answered, Stored, Work, as_kept, as_one, refusal

MOST = 2_000
"""Of more results than this it is not asked one by one what they were made of."""

STRETCHES = 64
"""What is read lies in at most so many stretches of time; more are taken together where the gaps are least."""

GROUPS = 16
"""Rows of so many groups are told apart when they are read."""

Names = Mapping[str, str]
"""By the columns of a plan, the names under which results keep them."""


@dataclass(frozen=True, slots=True)
class Moved:
    """Changes in place that are followed together."""

    cluster: Cluster
    moments: np.ndarray
    """Where the rows lie, in order."""


def touched(of: Answered, moved: Moved, lineage: pa.Table, names: Names) -> Flags:
    """Which results, told by their lineage, changed rows are among the rows of."""
    found = np.zeros(lineage.num_rows, np.bool_)
    begins = lineage[VS].to_numpy()
    for place, region in _regions(of, moved.cluster):
        values = {names[name]: value for name, value in region.values.items() if name in of.plan.key}
        mine = holds(lineage, replace(region, values=values)) & _among(moved.moments, lineage, place)
        found |= mine & (begins >= region.interval.start) & (begins < region.interval.end)
    return found


def _regions(of: Answered, cluster: Cluster) -> Iterator[tuple[int, Region]]:
    """For each scan of the source what its rows could touch at all."""
    for place, scan in enumerate(scans(of.plan)):
        if scan.source.name != cluster.source:
            continue
        values = {scan.column(name): value for name, value in cluster.values.items()}
        found = replay(of.plan, Change(place, cluster.interval, cluster.until, values), whole=True)
        region = None if found is None else as_kept(of, found.touched)
        if region is not None and not region.empty:
            yield place, region


def _among(moments: np.ndarray, lineage: pa.Table, place: int) -> Flags:
    """Which results have one of the moments in the stretch of a scan that they were made of."""
    first, last = lineage[f"{FROM}{place}"], lineage[f"{TO}{place}"]
    has = first.is_valid().to_numpy()
    low = np.searchsorted(moments, first.fill_null(0).to_numpy())
    high = np.searchsorted(moments, last.fill_null(0).to_numpy(), side="right")
    among: Flags = has & (low < high)
    return among


def by_stored(
    of: Answered, rest: Work, told: Sequence[tuple[Moved, Flags]], lineage: pa.Table, names: Names, aged_to: AgedTo
) -> Work | None:
    """What there is to be worked out again, where it is known which results changes in place touch. `rest`: what all
    other changes take. None where it is too much to be asked one by one."""
    old = _made_of_aged(of.plan, lineage, aged_to)
    refused: list[Refusal] = []
    good: list[tuple[Cluster, Flags]] = []
    for moved, which in told:
        if too_old := sorted({source for source, flags in old.items() if (flags & which).any()}):
            why = f"the results are made of rows of {', '.join(too_old)} that have been aged out"
            refused.append(refusal(moved.cluster, why))
        else:
            # What other changes touch is worked out with these, from all that they need.
            good.append((moved.cluster, which & ~_inside(rest.regions, lineage, names)))
    chosen = np.zeros(lineage.num_rows, np.bool_)
    for _, which in good:
        chosen |= which
    if np.count_nonzero(chosen) > MOST:
        return None
    rows = lineage.filter(pa.array(chosen))
    regions = tuple(_results(of.plan, rows, names))
    reads = _reads(of.plan, rows, regions)
    stored = Stored(rest, rows, regions, reads, tuple((each, which[chosen]) for each, which in good))
    both = {name: (*rest.reads.get(name, ()), *reads.get(name, ())) for name in {**rest.reads, **reads}}
    return Work((*rest.regions, *regions), both, tuple(as_one([*rest.refused, *_by_number(refused)])), stored=stored)


def _made_of_aged(plan: Plan, lineage: pa.Table, aged_to: AgedTo) -> dict[str, Flags]:
    """By source, which results were made of rows of it that are no longer there."""
    found: dict[str, Flags] = {}
    for place, scan in enumerate(scans(plan)):
        name = scan.source.name
        if (gone := aged_to.get(name)) is not None:
            # Of a relation the version counts that was valid last, and none is aged out.
            first = lineage[f"{FROM}{place}"].fill_null(gone).to_numpy()
            found[name] = found.get(name, np.zeros(lineage.num_rows, np.bool_)) | (first < gone)
    return found


def _inside(regions: Iterable[Region], lineage: pa.Table, names: Names) -> Flags:
    """Which results lie in regions, of which all constants are of columns of the key."""
    found = np.zeros(lineage.num_rows, np.bool_)
    as_kept = [replace(each, values={names[name]: value for name, value in each.values.items()}) for each in regions]
    begins = lineage[VS].to_numpy()
    if as_kept and len(begins):
        found[within(lineage, begins, begins + 1, as_kept).row] = True
    return found


def _results(plan: Plan, rows: pa.Table, names: Names) -> Iterator[Region]:
    """For each result the region that holds it alone."""
    columns = {name: _plain(rows[names[name]]) for name in plan.key}
    for number, begins in enumerate(rows[VS].to_pylist()):
        values: dict[str, Value] = {name: column[number] for name, column in columns.items()}
        yield Region(Axis.START, Interval(begins, begins + 1), values)


def _plain(column: pa.ChunkedArray) -> list[Any]:
    whole = column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column
    return list(whole.to_pylist())


def _reads(plan: Plan, rows: pa.Table, regions: Sequence[Region]) -> dict[str, tuple[Reach, ...]]:
    """Of each source the rows that the results were made of."""
    read = scans(plan)
    ends = [(rows[f"{FROM}{place}"].to_pylist(), rows[f"{TO}{place}"].to_pylist()) for place in range(len(read))]
    found: dict[str, dict[frozenset[tuple[str, Value]], list[Interval]]] = {scan.source.name: {} for scan in read}
    for number, region in enumerate(regions):
        for place, below in backward(plan, region).items():
            first, last = ends[place][0][number], ends[place][1][number]
            if first is not None:
                scan = read[place]
                values = frozenset((scan.of_source(name), value) for name, value in below.values.items())
                found[scan.source.name].setdefault(values, []).append(Interval(first, last + 1))
    return {name: tuple(_few(some)) for name, some in found.items()}


def _few(some: Mapping[frozenset[tuple[str, Value]], Sequence[Interval]]) -> Iterator[Reach]:
    """The stretches that are read, by the constants of their rows; no more of them than can be asked for one by one."""
    apart = {values: joined(each) for values, each in some.items()}
    if sum(len(each) for each in apart.values()) > STRETCHES:
        everything = _taken_together(joined(each for intervals in apart.values() for each in intervals))
        apart = dict.fromkeys(apart if len(apart) <= GROUPS else [frozenset()], everything)
    for values, intervals in apart.items():
        yield from (Reach(Axis.START, each, dict(values)) for each in intervals)


def _taken_together(intervals: Sequence[Interval]) -> list[Interval]:
    """Intervals, which lie apart and in order, cut at the widest gaps only."""
    gaps = np.array([later.start - former.end for former, later in pairwise(intervals)])
    cuts = [0, *(int(each) + 1 for each in np.sort(np.argsort(gaps)[::-1][: STRETCHES - 1])), len(intervals)]
    return [Interval(intervals[low].start, intervals[high - 1].end) for low, high in pairwise(cuts)]


def unlike_stored(stored: Stored, lost: Flags) -> tuple[Flags, list[Refusal]]:
    """Of results that did not come out again as they were known to be made: which others are to be corrected, and why
    not those. Changes that touch some of the lost ones are refused whole."""
    why = "the results were made before rows came or went between theirs, which these results could not take up"
    keep = np.zeros(stored.rows.num_rows, np.bool_)
    refused = []
    for cluster, which in stored.changes:
        if (which & lost).any():
            refused.append(refusal(cluster, why))
        else:
            keep |= which
    return keep, _by_number(refused)


def _by_number(refused: Iterable[Refusal]) -> list[Refusal]:
    """Refusals for one reason as one. The version that was and the one that is stand side by side then."""
    return list(as_one(sorted(refused, key=lambda each: (each.source, each.last))))
