"""How each aggregate is computed from a group's state, exactly also where rows are removed again.

A part is a sum that rows are added to and, where they expire or are corrected, subtracted from, so that it equals what
the remaining rows would give. Whole numbers and decimals are exact anyway. Doubles of common sizes are added up
exactly: as multiples of 2^-40 in a decimal, with the smaller fractions in a separate double, where their few bits add
up without loss. Numbers from 2^53 on are counted apart: while there are any, removed ones may have left a rounding
error; without them there is none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from errata.engine.plans.partial_state import INFINITE_SQL, NAN_SQL, NEGATABLE_DIGITS, OWN_TIME, GroupState, StatePart
from errata.language.expr import BIGINT, expr_sql
from errata.language.incremental import INT_KINDS, MAX_AVERAGE_DIGITS, PartialGroup
from errata.language.nodes import Aggregate
from errata.model.columns import FLOATING_KINDS, ColumnType, TypeKind

_UNIT = 1 << 40
_HUGE_DOUBLE = f"{1 << 53}D"
_NOISE_LEVEL = 2.0**-48
"""Share of a difference between sums of squares that is only rounding."""
_FINEST_LEVEL = 2.0**-57
"""Precision of differences of squares that are computed exactly."""


@dataclass(frozen=True, slots=True)
class FiniteSum:
    """A sum of doubles in parts."""

    units: str
    """In 2^-40."""
    rest: str
    """The fractions below one unit, in units."""
    any_far: str
    """The count of numbers too large for units."""
    far: str

    @property
    def text(self) -> str:
        return f"((CAST({self.units} AS DOUBLE) + {self.rest}) / {_UNIT}D + IF({self.any_far} > 0, {self.far}, 0D))"


def finite_sum(kept: GroupState, pieces: Sequence[str], *, centred: bool = False) -> FiniteSum:
    """The sum of the finite doubles, from which any can be removed again. Each is given in pieces."""

    def part(of_piece: Callable[[str], str], only_if: str = "", kind: str = "DOUBLE") -> str:
        row = " + ".join(map(of_piece, pieces))
        if of_piece is _units_of:
            return kept.part_column(StatePart(f"CAST({row} AS DECIMAL(38,0))", "DECIMAL(38,0)", centred, only_if))
        return kept.part_column(StatePart(row, kind, centred, only_if))

    any_far = part(lambda of: f"IF({_far_column(of)}, 1L, 0L)", kind="BIGINT")
    return FiniteSum(
        part(_units_of), part(_rest_of), any_far, part(lambda of: f"IF({_far_column(of)}, {of}, 0D)", any_far)
    )


def _common_column(of: str) -> str:
    return f"abs({of}) < {_HUGE_DOUBLE}"


def _far_column(of: str) -> str:
    return f"abs({of}) >= {_HUGE_DOUBLE} AND abs({of}) < {INFINITE_SQL}"


def _units_of(of: str) -> str:
    whole = f"CAST(CAST({of} AS BIGINT) AS DECIMAL(20,0)) * {_UNIT}BD"
    return f"IF({_common_column(of)}, {whole} + CAST(CAST({_fraction_of(of)} AS BIGINT) AS DECIMAL(20,0)), 0BD)"


def _rest_of(of: str) -> str:
    return f"IF({_common_column(of)}, {_fraction_of(of)} - CAST({_fraction_of(of)} AS BIGINT), 0D)"


def _fraction_of(of: str) -> str:
    """The fraction of a number, in units."""
    return f"({of} - CAST({of} AS BIGINT)) * {_UNIT}D"


def stddev_of_doubles(kept: GroupState, of: str) -> str:
    """The standard deviation, from sums of values minus a centre near them, and of their squares."""
    number, count = f"CAST({of} AS DOUBLE)", kept.count(of)
    away = kept.add_row_expr(0, f"{number} - {kept.centre(number, count)}")
    if kept.for_ever:
        once, squares = (kept.part_or_null(row, of, "DOUBLE", centred=True) for row in (away, f"{away} * {away}"))
        infinite = f"isnan({squares}) OR {squares} = {INFINITE_SQL}"
        rough = kept.add_result_expr(1, _approximate_deviations(once, squares, count))
        variance = _without_noise(rough, f"{squares} / {count} * {_NOISE_LEVEL!r}D")
        if kept.corrected:
            traces = kept.part_or_null(f"{away} * {away}", of, "DOUBLE", centred=True, ever=True)
            kept.track_rounding(of, squares, traces, f"{count} > 1", f"({rough} * {count})")
    else:
        infinite = f"{kept.part(f'IF(abs({number}) >= {INFINITE_SQL}, 1L, 0L)')} > 0"
        squared = finite_sum(kept, _split_square(kept, away), centred=True)
        variance = _exact_deviations(kept, finite_sum(kept, [away], centred=True), squared, count)
    spread = f"sqrt({variance} * ({count} / ({count} - 1)))"
    return f"CASE WHEN {count} <= 1 THEN NULL WHEN {infinite} THEN {NAN_SQL} ELSE {spread} END"


def _split_square(kept: GroupState, of: str) -> list[str]:
    """A square in pieces without loss of digits (Dekker, 1971)."""
    high = kept.add_row_expr(1, f"IF({_common_column(of)}, CAST(CAST({of} AS FLOAT) AS DOUBLE), {of})")
    low = f"({of} - {high})"
    pieces = (
        f"{high} * {high}",
        *(f"IF({_common_column(of)}, {each}, 0D)" for each in (f"2D * {high} * {low}", f"{low} * {low}")),
    )
    return [kept.add_row_expr(2, piece) for piece in pieces]


def _approximate_deviations(once: str, squares: str, count: str) -> str:
    """The mean squared deviation from the mean."""
    return f"IF({count} > 0, ({squares} - {once} * {once} / {count}) / {count}, NULL)"


def _without_noise(value: str, noise: str) -> str:
    """The value, or 0 where it is only the rounding of two nearly equal sums."""
    return f"IF({value} < {noise}, 0D, {value})"


def decimal_product(one: str, other: str) -> str:
    """The product of two whole decimals, where it has few enough digits."""
    return f"IF(abs(CAST({one} AS DOUBLE) * CAST({other} AS DOUBLE)) < 1e37D, {one} * {other}, NULL)"


def _exact_deviations(kept: GroupState, once: FiniteSum, squares: FiniteSum, count: str) -> str:
    """The squared deviations without loss, where values are far enough from zero for units and not too large for
    them."""
    some = f"nullif({count}, 0L)"
    mean = kept.add_result_expr(0, f"CAST({once.units} / {some} AS DECIMAL(38,0))")
    sums = kept.add_result_expr(0, once.text), kept.add_result_expr(0, squares.text)
    more = f"((CAST({once.units} - {mean} * {count} AS DOUBLE) + {once.rest}) / {some})"
    apart = f"CAST({squares.units} / {some} - {decimal_product(mean, mean)} / {_UNIT}BD AS DOUBLE)"
    crossed = f"(2D * CAST({mean} AS DOUBLE) + {more}) * {more} / {_UNIT}D"
    exact = kept.add_result_expr(1, f"({apart} + {squares.rest} / {some} - {crossed}) / {_UNIT}D")
    rough = kept.add_result_expr(1, _approximate_deviations(*sums, count))
    roughly = _without_noise(rough, f"{sums[1]} / {count} * {_NOISE_LEVEL!r}D")
    small = f"{squares.any_far} > 0 OR {once.any_far} > 0 OR {sums[1]} < 0.01D * {count}"
    return f"IF({small} OR {exact} IS NULL, {roughly}, {_without_noise(exact, f'{_FINEST_LEVEL!r}D')})"


# The parts and the result of each aggregate.


def group_state_of(found: PartialGroup) -> GroupState:
    """The state of a group: the parts that its aggregates need."""
    below = found.node.input
    types = [BIGINT, *(below.types[name] for name in below.key)]
    order = {f"_o{number}": str(each) for number, each in enumerate(types)}
    kept = GroupState(found.span is None, order, corrected=not found.covering)
    if kept.has_removals:
        kept.row_count = kept.part("1L")
    for number, aggregate in enumerate(found.node.aggregates):
        kept.results[f"_r{number}"] = _aggregate_result(kept, aggregate, found.node.aggregates)
    return kept


def _aggregate_result(kept: GroupState, aggregate: Aggregate, others: Iterable[Aggregate]) -> str:
    if aggregate.argument is None:
        return kept.part("1L")
    of, kind, function = kept.argument_column(aggregate.argument), aggregate.argument.type, aggregate.function
    if function in ("first", "last"):
        return _first_or_last(kept, aggregate, others)
    if function in ("min", "max"):
        return (kept.part if kept.for_ever else kept.extreme_column)(of, function, str(kind))
    if function == "count":
        return kept.count(of)
    results = {"sum": _sum_result, "avg": _average_result, "stddev": _stddev_result}
    return results[function](kept, of, kind, aggregate.type)


def _first_or_last(kept: GroupState, aggregate: Aggregate, others: Iterable[Aggregate]) -> str:
    """The first or the last row's value. All values of that row are kept together, after the columns that order
    rows."""
    texts = {
        expr_sql(each.argument): each.argument for each in others if _same_value(each, aggregate) and each.argument
    }
    columns = {**kept.order, **{kept.argument_column(each): str(each.type) for each in texts.values()}}
    fields = ", ".join(f"v{place}: {kind}" for place, kind in enumerate(columns.values()))
    # Where a struct can be NULL, Arrow requires that its fields can be.
    row = ", ".join(f"'v{place}', IF({OWN_TIME} IS NULL, NULL, {name})" for place, name in enumerate(columns))
    total = "min" if aggregate.function == "first" else "max"
    part = kept.part_column(
        StatePart(f"named_struct({row})", f"STRUCT<{fields}>", total=total, order_types=tuple(kept.order.values()))
    )
    mine = len(kept.order) + (list(texts).index(expr_sql(aggregate.argument)) if aggregate.argument is not None else 0)
    return f"named_struct('v', {part}.v{mine})"


def _same_value(one: Aggregate, other: Aggregate) -> bool:
    return one.function == other.function


def _exact_sum(kept: GroupState, of: str, kind: ColumnType) -> str:
    """The sum of whole numbers or decimals."""
    wide = kind.kind is TypeKind.DECIMAL and kind.precision > NEGATABLE_DIGITS
    exact = f"DECIMAL(38,{kind.scale})"
    return kept.part_or_null(f"CAST({of} AS {exact})", of, exact, scale=kind.scale if wide else None)


def _sum_result(kept: GroupState, of: str, kind: ColumnType, to: ColumnType) -> str:
    if kind.kind in FLOATING_KINDS:
        return _double_sum(kept, of)
    return _null_if_none(kept, of, f"CAST({_exact_sum(kept, of, kind)} AS {str(to).upper()})")


def _null_if_none(kept: GroupState, of: str, text: str) -> str:
    """NULL for no values. Where none is removed, a sum is NULL by itself."""
    return text if not kept.has_removals else f"IF({kept.count(of)} > 0, {text}, NULL)"


def _average_result(kept: GroupState, of: str, kind: ColumnType, to: ColumnType) -> str:
    count = kept.count(of)
    if kind.kind in FLOATING_KINDS:
        return f"{_double_sum(kept, of)} / nullif({count}, 0L)"
    whole = _exact_sum(kept, of, kind)
    if kind.kind is TypeKind.DECIMAL:
        # The near engine truncates a quotient to four more digits; with a fifth the fourth is rounded correctly.
        more = 1 if kind.precision <= MAX_AVERAGE_DIGITS else 0
        digits = min(kind.precision + 10 + more, 38)
        whole = f"CAST({whole} AS DECIMAL({digits},{kind.scale + more}))"
        return f"CAST({whole} / CAST(nullif({count}, 0L) AS DECIMAL(20,0)) AS {str(to).upper()})"
    return f"CAST({whole} AS DOUBLE) / nullif({count}, 0L)"


def _double_sum(kept: GroupState, of: str) -> str:
    number = f"CAST({of} AS DOUBLE)"
    if kept.for_ever:
        if kept.corrected:
            sizes, traces = (kept.part_or_null(f"abs({number})", of, "DOUBLE", ever=ever) for ever in (False, True))
            kept.track_rounding(of, sizes, traces, f"{kept.count(of)} > 0", sizes)
        return _null_if_none(kept, of, kept.part_or_null(number, of, "DOUBLE"))
    of = number
    up = kept.part(f"IF(isnan({of}) OR {of} = {INFINITE_SQL}, 1L, 0L)")
    down = kept.part(f"IF(isnan({of}) OR {of} = -{INFINITE_SQL}, 1L, 0L)")
    finite = finite_sum(kept, [of]).text
    return (
        f"CASE WHEN {kept.count(of)} <= 0 THEN NULL WHEN {up} > 0 AND {down} > 0 THEN {NAN_SQL} "
        f"WHEN {up} > 0 THEN {INFINITE_SQL} WHEN {down} > 0 THEN -{INFINITE_SQL} ELSE {finite} END"
    )


def _stddev_result(kept: GroupState, of: str, kind: ColumnType, _to: ColumnType) -> str:
    return _whole_stddev(kept, of) if kind.kind in INT_KINDS else stddev_of_doubles(kept, of)


def _whole_stddev(kept: GroupState, of: str) -> str:
    """The standard deviation of whole numbers, exact except for the last two steps."""
    count = kept.count(of)
    plain = f"CAST({of} AS DECIMAL(10,0))"
    rows = (f"CAST({of} AS DECIMAL(38,0))", f"CAST({plain} * {plain} AS DECIMAL(38,0))")
    once, squares = (kept.part_or_null(row, of, "DECIMAL(38,0)") for row in rows)
    exact = f"{decimal_product(f'CAST({count} AS DECIMAL(20,0))', squares)} - {decimal_product(once, once)}"
    rough = f"CAST({squares} AS DOUBLE) * {count} - CAST({once} AS DOUBLE) * CAST({once} AS DOUBLE)"
    return f"IF({count} > 1, sqrt(coalesce(CAST({exact} AS DOUBLE), {rough}) / {count} / ({count} - 1)), NULL)"
