"""Constants that columns are known to have, and how conditions carry them from column to column.

Equality is that of GROUP BY: NULL is a value like any other. Floating point columns are left out: there a row can be
equal to one that it differs from (0.0 and -0.0), and no reader should have to know.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from errata.language.expr import EQUAL, SAME, Call, Cast, Expr, Lit, Ref, Value, conjuncts
from errata.language.plan import Plan
from errata.model.columns import ColumnType, Kind

Values = Mapping[str, Value]

_VAGUE = (Kind.FLOAT, Kind.DOUBLE)
_WHOLE = (Kind.INT, Kind.BIGINT)


def exact(kind: ColumnType) -> bool:
    """Whether constants of the type are kept track of."""
    return kind.kind not in _VAGUE


def known(values: Values, plan: Plan) -> dict[str, Value]:
    """The constants that are about columns of the node, and exact."""
    return {name: value for name, value in values.items() if name in plan.types and exact(plan.types[name])}


def only(values: Values, names: Iterable[str]) -> dict[str, Value]:
    """The constants of some columns."""
    return {name: values[name] for name in names if name in values}


def merged(*parts: Values) -> dict[str, Value] | None:
    """All constants together; None if a column would have two."""
    whole: dict[str, Value] = {}
    for part in parts:
        for name, value in part.items():
            if name in whole and whole[name] != value:
                return None
            whole[name] = value
    return whole


def whole_number(expr: Expr) -> int | None:
    """The number that a constant expression of whole numbers is."""
    if isinstance(expr, Cast) and expr.type.kind in _WHOLE:
        expr = expr.arg
    if isinstance(expr, Lit) and expr.type.kind in _WHOLE and isinstance(expr.value, int):
        return expr.value
    return None


@dataclass(frozen=True, slots=True)
class _Equality:
    """A column is equal to another one, or to a constant."""

    column: Ref
    other: Ref | Lit
    nulls: bool
    """Whether two NULLs fulfil it."""


def _equalities(condition: Expr | None) -> Iterator[_Equality]:
    for part in conjuncts(condition):
        if not isinstance(part, Call) or part.name not in (EQUAL, SAME, "is_null"):
            continue
        one, two = part.args if len(part.args) == 2 else (part.args[0], Lit(None, part.args[0].type))
        sides = (_constant(one), _constant(two))
        for column, other in (sides, sides[::-1]):
            if isinstance(column, Ref) and isinstance(other, Ref | Lit) and _comparable(column, other):
                yield _Equality(column, other, part.name != EQUAL)


def _constant(expr: Expr) -> Expr:
    """A number that is cast to another type of whole numbers, as that type's."""
    number = whole_number(expr) if isinstance(expr, Cast) else None
    return expr if number is None else Lit(number, expr.type)


def _comparable(column: Ref, other: Ref | Lit) -> bool:
    """Whether equal means the same value: of two types, a value may be rounded before it is compared."""
    return column.type == other.type and exact(column.type)


def closed(values: Values, condition: Expr | None) -> dict[str, Value] | None:
    """The constants with all that follow from them where the condition is true; None if it cannot be."""
    whole = dict(values)
    equalities = list(_equalities(condition))
    # Each round adds a column at least.
    while True:
        before = len(whole)
        for each in equalities:
            if isinstance(each.other, Ref) and each.other.name not in whole:
                continue
            value = each.other.value if isinstance(each.other, Lit) else whole[each.other.name]
            if (value is None and not each.nulls) or whole.setdefault(each.column.name, value) != value:
                return None
        if len(whole) == before:
            return whole
