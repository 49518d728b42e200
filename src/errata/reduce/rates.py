"""The rates that a TABLESAMPLE clause means, found before the scan begins: `resolve_rates`.

    uniform(0.1)                           the same rate for all rows
    by_age('1 day', 0.5 [, least])         all of the last day, half of the day before, a quarter of the one before that
    by_value(symbol, 'A', 1, 'B', 0.1, 0.01)   a rate for each value of a column, and one for all others
    by_load(0.05)                          from 1 where the machine is idle down to 0.05 where it is loaded
    by_error(0.01 [, column])              as many rows as a 95% interval of that relative half-width needs
    anything else                          a function of the user (`functions`)

The paper (section 3.1) lets a function decide as the scan goes. Here it decides for the whole axis beforehand, so that
the index can choose versions of buckets before any is opened, and the answer can say what was read.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from errata.engine.load import machine_load
from errata.errors import UsageError, candidates_text, count_text
from errata.language.sampling import CLAUSE, UNIFORM, ColumnArgument, SampleArgument, SampleClause
from errata.model.columns import Column, TypeKind
from errata.model.reduction import FULL_RATE, SamplingRates, check_rate, uniform_rates
from errata.model.stream import Stream
from errata.model.time import LOWEST, parse_duration
from errata.reduce.functions import Portion, find_reduction, function_rates

MAX_AGE_STEPS = 10_000
"""Steps of a reduction by age, at most."""
LEAST_RATE = 1e-9
"""The rate at which a reduction by age ends."""
CONFIDENCE_QUANTILE = 1.959963984540054
"""Of the normal distribution, for intervals of 95%."""
_LOAD_STEPS = 100
_VALUE_KINDS = (TypeKind.STRING, TypeKind.INT, TypeKind.BIGINT, TypeKind.BOOLEAN, TypeKind.DATE)


@dataclass(frozen=True)
class ReductionContext:
    """What a reduction can follow from."""

    stream: Stream
    newest: int
    """The event time at which the question is asked: age is counted from it."""
    portions: Sequence[Portion] = ()
    """The portions of what is read, in their order."""
    root: Path | None = None
    """The project's folder, with the functions of its user."""
    load: Callable[[], float] = machine_load
    """How loaded the machines are that do the work, from 0."""
    error_rate: Callable[[float, str | None], float] | None = None
    """The rate at which a relative error is met, of a column or of all that is estimated. None: that of a count."""
    where: str | None = None
    """What messages call the place of the clause."""

    @property
    def rows(self) -> int:
        """About how many rows there are."""
        return sum(each.rows for each in self.portions)


def resolve_rates(clause: SampleClause, context: ReductionContext) -> SamplingRates:
    """The rate at which each row is read."""
    known = _BUILT_IN.get(clause.function.lower())
    if known is not None:
        return known.rates(_Arguments(clause, context, known.usage), context)
    try:
        function, where = find_reduction(clause.function, context.root)
    except UsageError as error:
        close = candidates_text(clause.function, list(_BUILT_IN))
        how = close if close.startswith("did you mean") else error.how
        raise UsageError(error.what, where=error.where or context.where, why=error.why, how=how) from None
    return function_rates(clause, function, where, context.portions)


@dataclass(frozen=True)
class _Arguments:
    """The arguments of a clause, checked one by one."""

    clause: SampleClause
    context: ReductionContext
    usage: str

    def mistake(self, what: str, why: str | None = None) -> UsageError:
        return UsageError(
            f"{self.clause.text}: {what}", where=self.context.where, why=why, how=f"write {CLAUSE} {self.usage}"
        )

    def take(self, least: int, most: int) -> tuple[SampleArgument, ...]:
        """The arguments, if there are so many."""
        if not least <= len(self.clause.arguments) <= most:
            wanted = count_text(most, "argument") if least == most else f"{least} or {most} arguments"
            raise self.mistake(f"{self.clause.function} takes {wanted}, not {len(self.clause.arguments)}")
        return self.clause.arguments

    def number(self, value: SampleArgument, what: str) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.mistake(f"{what} is a number")
        return float(value)

    def rate(self, value: SampleArgument, what: str = "a rate") -> float:
        try:
            return check_rate(self.number(value, what))
        except UsageError as error:
            raise self.mistake(error.what, error.why) from None

    def column(self, value: SampleArgument) -> Column:
        name = value.name if isinstance(value, ColumnArgument) else value
        columns = {each.name.lower(): each for each in self.context.stream.columns}
        if not isinstance(name, str) or name.lower() not in columns:
            told = candidates_text(str(name), self.context.stream.names)
            raise self.mistake(f"{name} is no column of {self.context.stream.name}", told)
        return columns[name.lower()]

    def span(self, value: SampleArgument) -> int:
        """A span of event time, as the stream is ordered."""
        if self.context.stream.timed:
            if not isinstance(value, str):
                raise self.mistake("a span of time is a text, such as '1 day'")
            try:
                span = parse_duration(value)
            except UsageError as error:
                raise self.mistake(error.what, error.why) from None
        else:
            if isinstance(value, bool) or not isinstance(value, int):
                raise self.mistake("a span is a whole number here", "event time is a bigint")
            span = value
        if span <= 0:
            raise self.mistake("a span is longer than nothing")
        return span


def _uniform(given: _Arguments, _: ReductionContext) -> SamplingRates:
    (rate,) = given.take(1, 1)
    return uniform_rates(given.rate(rate), given.clause.text)


def _by_age(given: _Arguments, context: ReductionContext) -> SamplingRates:
    first, factor, *rest = given.take(2, 3)
    span, factor = given.span(first), given.rate(factor, "the factor")
    least = given.rate(rest[0], "the least rate") if rest else LEAST_RATE
    oldest = context.portions[0].start if context.portions else context.newest
    starts, rates = [LOWEST], [FULL_RATE]
    start = context.newest - span
    while start > max(oldest, LOWEST) and rates[0] > least and factor < FULL_RATE:
        if len(starts) > MAX_AGE_STEPS:
            why = f"the stream would be read at more than {MAX_AGE_STEPS:,} rates"
            raise given.mistake("the span is too short, or the factor too close to 1", why)
        starts[0:1] = [LOWEST, start]
        rates.insert(0, max(rates[0] * factor, least))
        start -= span
    return SamplingRates(tuple(starts), tuple(rates), label=given.clause.text)


def _by_value(given: _Arguments, _: ReductionContext) -> SamplingRates:
    if len(given.clause.arguments) < 2 or len(given.clause.arguments) % 2:
        raise given.mistake("by_value takes a column, values each with its rate, and the rate of all others")
    column = given.column(given.clause.arguments[0])
    if column.type.kind not in _VALUE_KINDS:
        raise given.mistake(f"{column.name} is of type {column.type}", "values of this type are not compared as text")
    pairs, others = given.clause.arguments[1:-1], given.rate(given.clause.arguments[-1])
    rates: dict[str | None, float] = {}
    for value, rate in zip(pairs[::2], pairs[1::2], strict=True):
        text = _value_text(given, column, value)
        if text in rates:
            raise given.mistake(f"the value {text} is there twice")
        rates[text] = given.rate(rate)
    return SamplingRates(rates=(others,), column=column.name, by_value=rates, label=given.clause.text)


def _value_text(given: _Arguments, column: Column, value: SampleArgument) -> str | None:
    """The value as text, as a column of this type is cast to it."""
    kind = column.type.kind
    match value:
        case None:
            return None
        case bool() if kind is TypeKind.BOOLEAN:
            return str(value).lower()
        case str() if kind in (TypeKind.STRING, TypeKind.DATE):
            return value
        case int() if kind in (TypeKind.INT, TypeKind.BIGINT) and not isinstance(value, bool):
            return str(value)
    shown = value.name if isinstance(value, ColumnArgument) else repr(value)
    raise given.mistake(f"{shown} is no value of {column.name}", f"it is of type {column.type}")


def _by_load(given: _Arguments, context: ReductionContext) -> SamplingRates:
    (least,) = given.take(1, 1)
    bottom = given.rate(least, "the least rate")
    load = min(max(context.load(), 0.0), 1.0)
    # In steps: many readers then ask for the same few rates.
    rate = math.ceil(round((FULL_RATE - load * (FULL_RATE - bottom)) * _LOAD_STEPS, 6)) / _LOAD_STEPS
    return uniform_rates(max(bottom, min(rate, FULL_RATE)), given.clause.text)


def _by_error(given: _Arguments, context: ReductionContext) -> SamplingRates:
    target, *rest = given.take(1, 2)
    error = given.number(target, "the error")
    if not 0 < error < 1:
        raise given.mistake("the error is relative: above 0 and below 1")
    name: str | None = None
    if rest:
        name = rest[0].name if isinstance(rest[0], ColumnArgument) else None
        if name is None:
            raise given.mistake("the second argument is the name of a column of the answer")
    find = context.error_rate
    rate = rate_for_error(error, context.rows) if find is None else find(error, name)
    return uniform_rates(min(max(rate, LEAST_RATE), FULL_RATE), given.clause.text)


def rate_for_error(error: float, rows: int, variation: float = 0.0) -> float:
    """The rate at which the total of a value over `rows` rows has a 95% interval of this relative half-width.
    `variation`: the square of the value's coefficient of variation, 0 for a count.

    The estimate's variance is N (1 + variation) mean^2 (1 - p) / p; so p = c / (c + error^2) with c = z^2 (1 +
    variation) / N.
    """
    if rows <= 0:
        return FULL_RATE
    needed = CONFIDENCE_QUANTILE**2 * (1 + variation) / rows
    return needed / (needed + error**2)


def rate_after_pilot(error: float, pilot: float, width: float) -> float:
    """The rate for a relative half-width, after a pilot at a rate had the given width: variance goes with
    (1 - p) / p."""
    if not math.isfinite(width) or pilot >= FULL_RATE:
        return FULL_RATE
    unit = width**2 * pilot / (1 - pilot)
    return unit / (unit + error**2)


@dataclass(frozen=True)
class _BuiltIn:
    rates: Callable[[_Arguments, ReductionContext], SamplingRates]
    usage: str


_BUILT_IN: Mapping[str, _BuiltIn] = {
    UNIFORM: _BuiltIn(_uniform, "(10 PERCENT) or uniform(0.1)"),
    "by_age": _BuiltIn(_by_age, "by_age('1 day', 0.5), or with the least rate behind it"),
    "by_value": _BuiltIn(_by_value, "by_value(column, 'value', 1, 0.1): values each with a rate, then that of others"),
    "by_load": _BuiltIn(_by_load, "by_load(0.05)"),
    "by_error": _BuiltIn(_by_error, "by_error(0.01), or with a column of the answer behind it"),
}
BY_ERROR = "by_error"


def describe_rates(rates: SamplingRates) -> str:
    """The rates in words: 10%, or from 0.1% to 100%."""
    every = {*rates.rates, *rates.by_value.values()}
    low, high = f"{min(every):.4g}", f"{max(every):.4g}"
    shown = [f"{float(each) * 100:.6g}%" for each in (low, high)]
    return shown[0] if shown[0] == shown[1] else f"{shown[0]} to {shown[1]}"


__all__ = [
    "BY_ERROR",
    "ReductionContext",
    "describe_rates",
    "rate_after_pilot",
    "rate_for_error",
    "resolve_rates",
]
