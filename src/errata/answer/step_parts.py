"""Steps that cover very much history are done in parts, each a commit. Where to cut one is told from the bucket index
alone: no rows are read for it."""

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
"""A step reads about so many rows. What it makes may be brought here whole, results and the partial aggregates of all
windows that rows lie in, so that it must not grow with the archive. With far fewer rows it would begin to show what a
part costs whatever it reads: its jobs, its commit, and the rows of open windows that it reads again."""


_PartSource = tuple[str, str]
"""A part of what is read, and the source."""


@dataclass(frozen=True, slots=True)
class StepPart:
    """A step as far as it is taken at once."""

    step: EvaluationSpan
    rows_left: int = 0
    """About how many rows are left for those that follow; 0 where it is the whole."""


def first_part(
    plan: Plan, route: Route, step: EvaluationSpan, begins: int, inputs: RunInputs, *, beginning: bool
) -> StepPart:
    """A step, or the first part of it if it reads very many rows. `plan` has been rewritten; the part goes to `begins`
    at least, the first instant that is answered; `beginning` tells that no result has been published yet."""
    if _stored_rows(plan, inputs) <= STEP_PART_ROWS:
        return StepPart(step)  # mostly, and the index need not be asked for that
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
    """The first step of a query in all its parts."""
    part = first_part(plan, route, step, begins, inputs, beginning=True)
    while part.rows_left:
        yield part.step
        rest = EvaluationSpan(part.step.until, step.until)
        part = first_part(plan, route, rest, begins, inputs, beginning=False)
    yield part.step


def find_cut(rows: Callable[[int], int], low: int, until: int, most: int) -> int | None:
    """An event time behind `low` up to which about so many rows are read, in parts that are about alike; None if it is
    not worth a cut. `rows` tells how many are read up to an event time, and never falls. What is read also by those who
    go no further than `low` is read by each part: so none has fewer rows that are new."""
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
    # The first instant that brings as many: it is behind the beginning, however many it brings by itself.
    return high if high < until else None


def _stored_rows(plan: Plan, inputs: RunInputs) -> int:
    """The rows of all that a plan reads, whenever they begin."""
    names = {scan.source.name for scan in scans_of(plan)}
    return sum((inputs.standings if name in inputs.standings else inputs.published)[name].rows for name in names)


@dataclass(frozen=True, slots=True)
class RowDensity:
    """What the index tells of the rows of a source."""

    begins: npt.NDArray[np.float64]
    ends: npt.NDArray[np.float64]
    rows: npt.NDArray[np.float64]

    @classmethod
    def of(cls, some: Sequence[Bucket]) -> RowDensity:
        told = np.array([(each.vs_min, each.vs_max, each.rows) for each in some], np.float64).reshape(-1, 3)
        return cls(told[:, 0], told[:, 1] + 1, told[:, 2])

    @property
    def lowest(self) -> int:
        """No row begins before."""
        return int(self.begins.min()) if len(self.begins) else HIGHEST

    def within(self, interval: Interval) -> float:
        """About how many lie in an interval."""
        low, high = np.maximum(self.begins, interval.start), np.minimum(self.ends, interval.end)
        return float((self.rows * np.maximum(0.0, high - low) / np.maximum(1.0, self.ends - self.begins)).sum())


@dataclass
class _StepEstimate:
    """The rows that a step reads, by how far it goes: those of all inputs together, but for relations, which are read
    whole each time."""

    plan: Plan
    route: Route
    step: EvaluationSpan
    inputs: RunInputs
    beginning: bool
    _held: dict[_PartSource, RowDensity] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for (part, name), reach in self._reaches(self.step.until).items():
            buckets, _ = self.inputs.buckets_for(name, reach, self.step.until)
            self._held[part, name] = RowDensity.of(buckets)

    @property
    def lowest(self) -> int:
        """No row that is read begins before."""
        return min((each.lowest for each in self._held.values()), default=HIGHEST)

    @property
    def reads_all_each_time(self) -> bool:
        """Whether a source is read from its beginning, however little one goes on: then parts would read it again and
        again, and the results of such are not brought here."""
        until = self.step.until
        later = self._needed(EvaluationSpan(until, until), beginning=False)
        return any(not reach.interval.empty and self._start(key, reach) == LOWEST for key, reach in later.items())

    def rows(self, until: int) -> int:
        """About how many are read up to an event time."""
        found = 0.0
        for key, reach in self._reaches(until).items():
            interval = Interval(self._start(key, reach), min(reach.interval.end, until + 1))
            if key in self._held and not reach.interval.empty:
                found += self._held[key].within(interval)
        return round(found)

    def _reaches(self, until: int) -> Mapping[_PartSource, Extent]:
        return self._needed(EvaluationSpan(self.step.since, until), beginning=self.beginning)

    def _needed(self, step: EvaluationSpan, *, beginning: bool) -> Mapping[_PartSource, Extent]:
        relations = {scan.source.name for scan in scans_of(self.plan) if scan.source.kind.is_relation}
        return {
            (part, name): reach
            for part, reaches in reads_of_step(self.plan, self.route, step, beginning=beginning).items()
            for name, reach in reaches.items()
            if name not in relations
        }

    def _start(self, key: _PartSource, reach: Extent) -> int:
        """Where the rows of a source begin: those of a stream that count at an instant, at any time before."""
        counting = reach.axis is ExtentAxis.INSTANT and key[1] in self.inputs.standings
        return LOWEST if counting else reach.interval.start
