"""Cuts a step that reads very much history into parts, each a commit, so that memory does not grow with the archive.

Where to cut is estimated from the bucket index alone: the rows of a bucket are taken to be spread evenly over its
event times, and a binary search finds the event time up to which about STEP_PART_ROWS rows are read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from errata.answer.inputs import RunInputs
from errata.language.nodes import scans_of
from errata.language.plan import Plan
from errata.language.route import Route
from errata.language.source_reads import reads_of_step
from errata.model.bucket import Bucket
from errata.model.commit import EvaluationSpan
from errata.model.extent import Extent, ExtentAxis
from errata.model.time import HIGHEST, LOWEST, Interval

STEP_PART_ROWS = 20_000_000
"""Rows that a part of a step reads, about. Its results, and the partial aggregates of all windows that rows lie in, may
be fetched into this process, which bounds it. With far fewer rows the fixed cost of a part would show: its jobs, its
commit, and the rows of open windows that are read again."""


_PartSource = tuple[str, str]
"""A part of the read (see `source_reads`), and the source."""


@dataclass(frozen=True, slots=True)
class StepPart:
    """A step, or a part of one that is a commit of its own."""

    step: EvaluationSpan
    rows_left: int = 0
    """About how many rows are left for the parts that follow; 0 where it is the whole step."""


def first_part(
    plan: Plan, route: Route, step: EvaluationSpan, begins: int, inputs: RunInputs, *, beginning: bool
) -> StepPart:
    """A step, or the first part of it where it reads very many rows. `plan` has been rewritten. The part ends after
    `begins`, the first instant that is answered. `beginning`: no result has been published yet."""
    if _stored_rows(plan, inputs) <= STEP_PART_ROWS:
        return StepPart(step)  # the usual case, decided without the index
    ahead = _StepEstimate(plan, route, step, inputs, beginning=beginning)
    rows = ahead.rows(step.until)
    if rows <= STEP_PART_ROWS or ahead.reads_all_each_time:
        return StepPart(step)
    low = max(step.since, begins, ahead.lowest)
    cut = find_cut(ahead.rows, low, step.until, STEP_PART_ROWS)
    return StepPart(step) if cut is None else StepPart(EvaluationSpan(step.since, cut), max(1, rows - ahead.rows(cut)))


def split_step(
    plan: Plan, route: Route, step: EvaluationSpan, begins: int, inputs: RunInputs
) -> Iterator[EvaluationSpan]:
    """All parts of a query's first step."""
    part = first_part(plan, route, step, begins, inputs, beginning=True)
    while part.rows_left:
        yield part.step
        rest = EvaluationSpan(part.step.until, step.until)
        part = first_part(plan, route, rest, begins, inputs, beginning=False)
    yield part.step


def find_cut(rows: Callable[[int], int], low: int, until: int, most: int) -> int | None:
    """An event time after `low` up to which about `most` rows are read, such that all parts are about equal; None where
    a cut is not worth it. `rows` gives the number of rows read up to an event time, and never decreases. Rows up to
    `low` are read by each part, so that no part has fewer new rows than these."""
    known, every = rows(low), rows(until)
    size = max(most, known)
    number = round((every - known) / size)
    if number <= 1 or low >= until:
        return None
    aim = known + (every - known) / number
    high = until
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if rows(middle) < aim else (low, middle)
    # The first instant with as many rows. It is after `low`, however many rows a single instant has.
    return high if high < until else None


def _stored_rows(plan: Plan, inputs: RunInputs) -> int:
    """The number of rows of all sources that a plan reads."""
    names = {scan.source.name for scan in scans_of(plan)}
    return sum((inputs.standings if name in inputs.standings else inputs.published)[name].rows for name in names)


@dataclass(frozen=True, slots=True)
class RowDensity:
    """How the rows of a source lie in time, by the bucket index."""

    begins: npt.NDArray[np.float64]
    ends: npt.NDArray[np.float64]
    rows: npt.NDArray[np.float64]

    @classmethod
    def of(cls, some: Sequence[Bucket]) -> RowDensity:
        figures = np.array([(each.vs_min, each.vs_max, each.rows) for each in some], np.float64).reshape(-1, 3)
        return cls(figures[:, 0], figures[:, 1] + 1, figures[:, 2])

    @property
    def lowest(self) -> int:
        """The first event time of a row."""
        return int(self.begins.min()) if len(self.begins) else HIGHEST

    def within(self, interval: Interval) -> float:
        """About how many rows begin in an interval."""
        low, high = np.maximum(self.begins, interval.start), np.minimum(self.ends, interval.end)
        return float((self.rows * np.maximum(0.0, high - low) / np.maximum(1.0, self.ends - self.begins)).sum())


@dataclass
class _StepEstimate:
    """The rows that a step reads, by where it ends: of all sources together, except relations, which are read whole
    each time."""

    plan: Plan
    route: Route
    step: EvaluationSpan
    inputs: RunInputs
    beginning: bool
    _densities: dict[_PartSource, RowDensity] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for (part, name), extent in self._reaches(self.step.until).items():
            buckets, _ = self.inputs.buckets_for(name, extent, self.step.until)
            self._densities[part, name] = RowDensity.of(buckets)

    @property
    def lowest(self) -> int:
        """The first event time of a row that is read."""
        return min((each.lowest for each in self._densities.values()), default=HIGHEST)

    @property
    def reads_all_each_time(self) -> bool:
        """Whether a source is read from its beginning however short the step is. Parts would then read it again and
        again; results of such steps are not fetched into this process."""
        until = self.step.until
        later = self._needed(EvaluationSpan(until, until), beginning=False)
        return any(not extent.interval.empty and self._start(key, extent) == LOWEST for key, extent in later.items())

    def rows(self, until: int) -> int:
        """About how many rows are read up to an event time."""
        found = 0.0
        for key, extent in self._reaches(until).items():
            interval = Interval(self._start(key, extent), min(extent.interval.end, until + 1))
            if key in self._densities and not extent.interval.empty:
                found += self._densities[key].within(interval)
        return round(found)

    def _reaches(self, until: int) -> Mapping[_PartSource, Extent]:
        return self._needed(EvaluationSpan(self.step.since, until), beginning=self.beginning)

    def _needed(self, step: EvaluationSpan, *, beginning: bool) -> Mapping[_PartSource, Extent]:
        relations = {scan.source.name for scan in scans_of(self.plan) if scan.source.kind.is_relation}
        return {
            (part, name): extent
            for part, extents in reads_of_step(self.plan, self.route, step, beginning=beginning).items()
            for name, extent in extents.items()
            if name not in relations
        }

    def _start(self, key: _PartSource, extent: Extent) -> int:
        """Where the rows of an extent begin: rows of a stream that are valid at an instant began at any time before."""
        counting = extent.axis is ExtentAxis.INSTANT and key[1] in self.inputs.standings
        return LOWEST if counting else extent.interval.start
