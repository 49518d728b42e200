"""Summaries: windowed aggregates of a stream that are kept as a stream of their own (Chandrasekaran and Franklin 2004,
section 4.2).

A summary means a query, `SELECT window_start AS at, <group>, <aggregates> FROM <stream> GROUP BY <group>, window(…)`,
and is planned as one: its columns and their types, and what of the stream it needs, are those of the plan. Here it is
also taken apart into what can be kept for each bucket of the stream:

- exact parts (counts, sums, extremes), which add up in any order;
- sketches (distinct counts, quantiles), which can be merged, and from which nothing can be subtracted. In the plan an
  exact aggregate of the same type stands for a sketch;
- approximations (values of greatest impact, histograms), from which corrected results are estimated with bounds. They
  are no columns of the summary.

Parts are known by a digest of all that decides about their values, so that parts of another declaration are not read.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

from errata.errors import ErrataError, UsageError, unknown_name_error
from errata.language.coercion import TypeFamily, type_family
from errata.language.expr import Ref
from errata.language.nodes import Aggregate, Group, Projection, TimeWindow
from errata.language.plan import Plan
from errata.model.columns import FLOATING_KINDS, Column, ColumnType, TypeKind
from errata.model.reduction import SummaryDeclaration
from errata.model.stream import Stream
from errata.model.time import format_duration

AT = "at"
"""The column with the start of the window."""

PARTS_VERSION = 1
"""The version of the parts' layout: raised when older parts cannot be read any more."""

ADDING_UP = ("count", "sum", "avg", "min", "max")
"""Aggregates whose parts add up."""

_CALL = re.compile(r"\s*([a-z_]+)\s*\((.*)\)\s*", re.IGNORECASE | re.DOTALL)
MAX_ARGUMENT = 1_000
"""Values that an approximation keeps of a window and group, or ranges of a histogram, at most."""
_DISTINCT_KINDS = frozenset({TypeKind.INT, TypeKind.BIGINT, TypeKind.STRING})


class SketchKind(StrEnum):
    """What a sketch estimates."""

    DISTINCT = "approx_count_distinct"
    THETA = "approx_count_distinct_theta"
    QUANTILE = "approx_percentile"
    IMPACT = "impact"
    """Sum, average and extremes, from the values of greatest size and the bounds of the others."""
    HISTOGRAM = "histogram"
    """The same from the numbers of values in ranges."""

    @property
    def is_approximation(self) -> bool:
        """Whether it gives bounds to corrections, and is no column."""
        return self in (SketchKind.IMPACT, SketchKind.HISTOGRAM)


@dataclass(frozen=True, slots=True)
class ExactMeasure:
    """An aggregate of a summary that is computed exactly."""

    name: str
    function: str
    column: Column | None
    """The column that it is of; None for count(*)."""
    type: ColumnType


@dataclass(frozen=True, slots=True)
class SketchMeasure:
    """An aggregate of a summary that is estimated from a sketch."""

    name: str
    kind: SketchKind
    column: Column
    type: ColumnType
    arguments: tuple[float, ...] = ()
    """Of a quantile: the share of the values that are at most the result. Of values of impact: how many are kept. Of a
    histogram: the least and greatest value between its ranges, and their number."""

    @property
    def record(self) -> list[object]:
        """What decides about its parts: those of quantiles serve all shares."""
        given = list(self.arguments) if self.kind.is_approximation else []
        return [self.kind.value, _column_record(self.column), given]


@dataclass(frozen=True)
class SummaryForm:
    """A summary of a stream, planned and taken apart."""

    stream: Stream
    declaration: SummaryDeclaration
    text: str
    """The query that it means; an exact aggregate stands for each sketch."""
    plan: Plan
    exact: tuple[ExactMeasure, ...]
    sketches: tuple[SketchMeasure, ...] = ()
    approximations: tuple[SketchMeasure, ...] = ()

    @property
    def name(self) -> str:
        return self.declaration.name

    @property
    def window(self) -> int:
        return self.declaration.window

    @property
    def group(self) -> tuple[Column, ...]:
        return tuple(self.stream.column(name) for name in self.declaration.group)

    @cached_property
    def columns_read(self) -> tuple[str, ...]:
        """The columns of the stream that the parts are computed from."""
        exact = [each.column.name for each in self.exact if each.column is not None]
        others = [each.column.name for each in (*self.sketches, *self.approximations)]
        return tuple(dict.fromkeys((self.stream.order, *self.declaration.group, *exact, *others)))

    @cached_property
    def digest(self) -> str:
        """Of everything that decides about the values of the exact parts."""
        return self._digest([[each.function, _column_record(each.column)] for each in self.exact])

    @cached_property
    def sketch_digest(self) -> str:
        """The same of the sketches."""
        return self._digest([each.record for each in self.sketches])

    @cached_property
    def approximation_digest(self) -> str:
        """The same of the approximations."""
        return self._digest([each.record for each in self.approximations])

    def _digest(self, parts: list[list[object]]) -> str:
        group = [_column_record(each) for each in self.group]
        order = _column_record(self.stream.column(self.stream.order))
        record = [PARTS_VERSION, order, self.window, group, sorted(parts, key=json.dumps)]
        return hashlib.sha256(json.dumps(record).encode()).hexdigest()


def _column_record(column: Column | None) -> list[str] | None:
    return None if column is None else [column.name, str(column.type)]


def summary_forms(stream: Stream) -> tuple[SummaryForm, ...]:
    """The summaries that a stream declares, planned."""
    return tuple(read_summary(stream, each, f"summary {each.name}") for each in stream.reduced.summaries)


def read_summary(stream: Stream, declaration: SummaryDeclaration, where: str) -> SummaryForm:
    """A declared summary, planned over its stream. `where`: what mistakes call the declaration."""
    # Here, since triggers load this module with that of buckets, and the parser of SQL is too heavy for them.
    from errata.language.queries import read_query, stream_source  # noqa: PLC0415

    _check_shape(stream, declaration, where)
    sketches = {name: _read_sketch(stream, name, sql, where) for name, sql in declaration.aggregates.items()}
    plan_items: dict[str, str] = {}
    for name, sql in declaration.aggregates.items():
        sketch = sketches[name]
        if sketch is None:
            plan_items[name] = sql
        elif not sketch.kind.is_approximation:
            plan_items[name] = _stand_in(sketch)
    if not plan_items:
        raise _nothing_error(where, "what it approximates is no column of it")
    text = _query_text(stream, declaration, plan_items)
    plan = read_query(text, where, {stream.name: stream_source(stream)})
    wanted = (AT, *declaration.group, *plan_items)
    if (
        not isinstance(plan, Projection)
        or not isinstance(plan.input, Group)
        or tuple(each.name for each in plan.outputs) != wanted
        or plan.input.window != TimeWindow(declaration.window, declaration.window)
    ):
        raise _no_aggregate_error(where, "what follows `select`", "each column of a summary is one aggregate")
    by_name = {each.name: each for each in plan.input.aggregates}
    exact = tuple(
        _read_exact(stream, output.name, by_name.get(output.expr.name) if isinstance(output.expr, Ref) else None, where)
        for output in plan.outputs[1 + len(declaration.group) :]
        if sketches[output.name] is None
    )
    # In an order of their own: equal digests mean equal columns of parts.
    found = sorted((each for each in sketches.values() if each is not None), key=lambda each: json.dumps(each.record))
    return SummaryForm(
        stream,
        declaration,
        text,
        plan,
        exact,
        tuple(each for each in found if not each.kind.is_approximation),
        tuple(each for each in found if each.kind.is_approximation),
    )


def _check_shape(stream: Stream, declaration: SummaryDeclaration, where: str) -> None:
    if stream.relation is not None:
        raise UsageError(
            f"{stream.name} is a relation and has no summaries",
            where=where,
            why="its versions are valid for a time; a window would count them where they begin",
            how="summarise a stream",
        )
    if declaration.window < 1:
        raise UsageError("the window of a summary is more than zero", where=where, how="write window: 1 hour")
    if not declaration.aggregates:
        raise _nothing_error(where)
    names = [AT, *declaration.group, *declaration.aggregates]
    for name in declaration.group:
        if name not in stream.names:
            raise unknown_name_error("column in group", name, stream.names, where)
        if stream.column(name).type.kind in FLOATING_KINDS:
            raise UsageError(
                f"column {name} is a {stream.column(name).type} and cannot be in the group of a summary",
                where=where,
                why="equality of floating point numbers does not identify anything reliably",
                how="group by another column",
            )
    for name in declaration.aggregates:
        Column(name, stream.order_type)
    if twice := sorted({name for name in names if [each.lower() for each in names].count(name.lower()) > 1}):
        raise UsageError(
            f"a summary has two columns {twice[0]}",
            where=where,
            why=f"its columns are {AT}, the start of the window, the group, and the aggregates",
            how="give the aggregate another name",
        )


def _query_text(stream: Stream, declaration: SummaryDeclaration, items: dict[str, str]) -> str:
    group = [f"`{name}`" for name in declaration.group]
    window = f"'{format_duration(declaration.window)}'" if stream.timed else str(declaration.window)
    shown = [f"window_start AS `{AT}`", *group, *(f"{sql} AS `{name}`" for name, sql in items.items())]
    by = ", ".join([*group, f"window(`{stream.order}`, {window})"])
    return " ".join(("SELECT", ", ".join(shown), f"FROM `{stream.name}`", f"GROUP BY {by}"))


def _read_exact(stream: Stream, name: str, found: Aggregate | None, where: str) -> ExactMeasure:
    """An output of the plan as an aggregate whose parts add up."""
    if found is None:
        raise _no_aggregate_error(where, name, "each column of a summary is one aggregate")
    if found.distinct or found.function not in ADDING_UP:
        shown = f"{found.function}(DISTINCT …)" if found.distinct else f"{found.function}(…)"
        raise _no_aggregate_error(where, name, f"{shown} of a window does not follow from those of its parts")
    if found.argument is None:
        return ExactMeasure(name, found.function, None, found.type)
    if not isinstance(found.argument, Ref):
        raise _no_aggregate_error(where, name, "a summary aggregates columns, not expressions over them")
    return ExactMeasure(name, found.function, _argument_column(stream, found.argument), found.type)


def _argument_column(stream: Stream, argument: Ref) -> Column:
    return stream.column(argument.name.rpartition(".")[2])


def _no_aggregate_error(where: str, name: str, why: str) -> UsageError:
    return UsageError(
        f"{name} cannot be kept in a summary",
        where=where,
        why=why,
        how=f"write one of {', '.join(ADDING_UP)} of a column, count(*), approx_count_distinct(column) or"
        " approx_percentile(column, 0.5)",
    )


def _nothing_error(where: str, why: str | None = None) -> UsageError:
    return UsageError("a summary computes something", where=where, why=why, how="write select: {n: count(*)}")


def _read_sketch(stream: Stream, name: str, sql: str, where: str) -> SketchMeasure | None:
    """The sketch or approximation that an aggregate's text asks for; None if it is an exact aggregate."""
    found = _CALL.fullmatch(sql)
    if found is None or found[1].lower() not in [*SketchKind]:
        return None
    kind = SketchKind(found[1].lower())
    column_name, *rest = (each.strip().strip("`") for each in found[2].split(","))
    known = {each.lower(): each for each in stream.names}
    if column_name.lower() not in known:
        raise unknown_name_error("column", column_name, stream.names, f"{where}, {name}")
    column = stream.column(known[column_name.lower()])
    if kind in (SketchKind.DISTINCT, SketchKind.THETA):
        if rest or column.type.kind not in _DISTINCT_KINDS:
            raise _sketch_error(where, name, kind, "it counts the distinct values of one int, bigint or string column")
        return SketchMeasure(name, kind, column, ColumnType(TypeKind.BIGINT))
    if type_family(column.type) is not TypeFamily.NUMBER:
        raise _sketch_error(where, name, kind, f"{column.name} is a {column.type}, and no column of numbers")
    try:
        arguments = tuple(map(float, rest))
    except ValueError as error:
        raise _sketch_error(where, name, kind, f"{', '.join(rest)}: not a number") from error
    if why := _argument_mistake(kind, arguments):
        raise _sketch_error(where, name, kind, why)
    return SketchMeasure(name, kind, column, ColumnType(TypeKind.DOUBLE), arguments)


def _argument_mistake(kind: SketchKind, arguments: tuple[float, ...]) -> str | None:
    """What is wrong with the numbers behind the column; None if nothing is."""
    if kind is SketchKind.QUANTILE:
        right = len(arguments) == 1 and 0 <= arguments[0] <= 1
        return None if right else "behind the column stands a share from 0 to 1"
    count = arguments[-1] if arguments else 0.0
    if not (count.is_integer() and 1 <= count <= MAX_ARGUMENT):
        return f"the last argument is a whole number from 1 to {MAX_ARGUMENT}"
    if kind is SketchKind.IMPACT:
        return None if len(arguments) == 1 else "behind the column stands how many values are kept"
    right = len(arguments) == 3 and arguments[0] < arguments[1]
    return None if right else "behind the column stand the least and the greatest value, and the number of ranges"


_SKETCH_EXAMPLES = {
    SketchKind.DISTINCT: "approx_count_distinct(buyer)",
    SketchKind.THETA: "approx_count_distinct_theta(buyer)",
    SketchKind.QUANTILE: "approx_percentile(price, 0.5)",
    SketchKind.IMPACT: "impact(price, 20)",
    SketchKind.HISTOGRAM: "histogram(price, 0, 1000, 20)",
}


def _sketch_error(where: str, name: str, kind: SketchKind, why: str) -> ErrataError:
    return UsageError(
        f"{name} cannot be estimated", where=where, why=why, how=f"write it like {_SKETCH_EXAMPLES[kind]}"
    )


def _stand_in(sketch: SketchMeasure) -> str:
    """An exact aggregate of the type of a sketch's result."""
    if sketch.kind in (SketchKind.DISTINCT, SketchKind.THETA):
        return f"count(`{sketch.column.name}`)"
    return f"max(CAST(`{sketch.column.name}` AS double))"
