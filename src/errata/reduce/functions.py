"""Reduction functions of users: Python functions that say at which rate a portion of a stream is read.

    import errata

    @errata.reduction
    def quiet_nights(portion, daytime=1.0):
        return daytime if 6 <= portion.start_time.hour < 22 else 0.05

stands in a file of the project's folder `reductions`, or in a package that names it under the entry points
`errata.reductions`, and is asked for by `TABLESAMPLE quiet_nights(0.5)`. Before a scan begins it is called for each
portion of the axis, twice, with the portion and the arguments of the clause. What it gives is checked: a function that
raises, gives no rate, or gives another rate the second time is refused with the reason. It costs two calls for each of
MAX_PORTIONS portions at most.
"""

from __future__ import annotations

import importlib.util
import sys
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from errata.errors import UsageError, count_text
from errata.language.sampling import ColumnArgument, SampleClause
from errata.model.bucket import Bucket
from errata.model.reduction import SamplingRates, check_rate
from errata.model.time import LOWEST, Interval, to_datetime

FOLDER = "reductions"
"""The folder of a project with reduction functions."""
ENTRY_POINTS = "errata.reductions"
MAX_PORTIONS = 1_000
"""Portions that an axis is cut into, at most."""

_MARK = "__errata_reduction__"
ReductionFunction = Callable[..., Any]
F = TypeVar("F", bound=ReductionFunction)


@dataclass(frozen=True, slots=True)
class Portion:
    """A part of a stream, `[start, end)` in the unit of its order field."""

    start: int
    end: int
    rows: int
    """About how many rows it has, as the bucket index knows them."""
    newest: int
    """The event time at which the question is asked."""

    @property
    def age(self) -> int:
        """How far the portion's end is behind the event time; 0 for the newest."""
        return max(0, self.newest - self.end)

    @property
    def start_time(self) -> datetime:
        """The start as a time, for streams that are ordered by a timestamp."""
        return to_datetime(self.start)

    @property
    def end_time(self) -> datetime:
        """The end as a time, for streams that are ordered by a timestamp."""
        return to_datetime(self.end)


def mark_reduction(function: F) -> F:
    """The function, marked as a reduction by its name."""
    if not callable(function):
        raise TypeError("errata.reduction stands above a function")
    setattr(function, _MARK, True)
    return function


def cut_portions(found: Sequence[Bucket], interval: Interval, newest: int) -> list[Portion]:
    """The portions of an interval: they begin where buckets begin. A portion has the rows of the buckets that begin in
    it."""
    inside = [each for each in found if interval.start <= each.vs_max and each.vs_min < interval.end]
    starts = sorted({max(each.vs_min, interval.start) for each in inside})
    if not starts:
        return []
    step = -(-len(starts) // MAX_PORTIONS)
    starts = starts[::step]
    rows = [0] * len(starts)
    for each in inside:
        rows[max(0, bisect_right(starts, each.vs_min) - 1)] += each.rows
    last = min(interval.end, max(each.vs_max for each in inside) + 1)
    ends = [*starts[1:], last]
    return [Portion(*cut, newest) for cut in zip(starts, ends, rows, strict=True)]


def find_reduction(name: str, root: Path | None) -> tuple[ReductionFunction, str]:
    """The function of that name, and where it is from: a file of the project, or an entry point."""
    known: dict[str, tuple[ReductionFunction, str]] = {}
    for file in sorted((root / FOLDER).glob("*.py")) if root is not None else ():
        for own, function in _marked_functions(_load_file(file)):
            if own in known:
                raise UsageError(f"reduction {own} is there twice", where=f"{known[own][1]} and {file}")
            known[own] = function, str(file)
    if name in known:
        return known[name]
    for point in entry_points(group=ENTRY_POINTS, name=name):
        return _load_entry(point.load, f"entry point {point.name} = {point.value}"), point.value
    there = sorted({*known, *(point.name for point in entry_points(group=ENTRY_POINTS))})
    raise UsageError(
        f"there is no reduction {name}",
        why="built in are uniform, by_age, by_value, by_load and by_error"
        + (f"; registered are {', '.join(there)}" if there else "; none is registered"),
        how=f"write a function {name} below @errata.reduction in a file of the project's folder {FOLDER}",
    )


def _marked_functions(module: ModuleType) -> Iterable[tuple[str, ReductionFunction]]:
    return [(name, each) for name, each in vars(module).items() if getattr(each, _MARK, False)]


def _load_file(file: Path) -> ModuleType:
    name = f"errata_project_{FOLDER}_{file.stem}"
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise UsageError("this file cannot be loaded as Python", where=str(file))
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # code within it may look its module up
    _load_entry(partial(spec.loader.exec_module, module), str(file))
    return module


def _load_entry(load: Callable[[], Any], where: str) -> Any:
    try:
        return load()
    except Exception as error:
        raise UsageError("reductions cannot be loaded", where=where, why=_words(error)) from error


def function_rates(
    clause: SampleClause, function: ReductionFunction, where: str, portions: Sequence[Portion]
) -> SamplingRates:
    """The rates that a function gives for portions, in their order; the first and last go on beyond the ends."""
    arguments = [each.name if isinstance(each, ColumnArgument) else each for each in clause.arguments]
    given = [_portion_rate(clause, function, where, each, arguments) for each in portions]
    starts: dict[int, float] = {}
    for portion, rate in zip(portions, given, strict=True):
        if not starts or rate != [*starts.values()][-1]:
            starts[portion.start if starts else LOWEST] = rate
    return SamplingRates(tuple(starts), tuple(starts.values()), label=clause.text) if starts else SamplingRates()


def _portion_rate(
    clause: SampleClause, function: ReductionFunction, where: str, portion: Portion, arguments: Sequence[object]
) -> float:
    try:
        first, second = function(portion, *arguments), function(portion, *arguments)
    except Exception as error:
        raise _unusable(clause, where, f"it raises {_words(error)}", _AVOID, portion) from error
    for given in (first, second):
        if isinstance(given, bool) or not isinstance(given, int | float):
            raise _unusable(clause, where, f"it gives {given!r}, which is no number", _RANGE, portion)
    if first != second:
        why = f"it gives {first:g} at the first call and {second:g} at the second: it is not deterministic"
        raise _unusable(clause, where, why, "let it follow from the portion and the arguments alone", portion)
    try:
        return check_rate(float(first))
    except UsageError as error:
        why = f"it gives {first:g}, and {error.why}"
        raise _unusable(clause, where, why, _RANGE, portion) from None


_AVOID = "mend the function, or call it with other arguments"
_RANGE = "let it give a number above 0 and at most 1, such as 0.1"


def _unusable(clause: SampleClause, where: str, why: str, how: str, portion: Portion) -> UsageError:
    told = f"for the portion from {portion.start} to {portion.end} of about {count_text(portion.rows, 'row')}"
    return UsageError(f"reduction {clause.text} cannot be used", where=where, why=f"{told} {why}", how=how)


def _words(error: Exception) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
