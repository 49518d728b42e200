"""Constants that columns are known to have, and how conditions and operators carry them from column to column.

Equality is that of GROUP BY: NULL is a value like any other. Floating point columns are left out: equal values of
theirs can differ (0.0 and -0.0), and every reader would have to know.

These are constants of rows that a given change touches, or that are needed. `rewrite.push_predicates.literal_columns`
is another fact: columns that have one literal in all rows of a node. There a window over rows and a negation keep the
constants of their input, which they lose here, since a change makes other rows come and go.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import singledispatch

from errata.language.expr import EQUAL, SAME, Call, Cast, Expr, Lit, Ref, conjuncts, expr_sql, refs
from errata.language.nodes import (
    Distinct,
    Filter,
    Group,
    Intersect,
    Join,
    Negation,
    Projection,
    RelationJoin,
    Scan,
    Sliding,
    SlidingRows,
    Union,
)
from errata.language.plan import Field, Plan, PlanError, cached_fact
from errata.model.columns import FLOATING_KINDS, WHOLE_KINDS, ColumnType
from errata.model.extent import ColumnValues, Value


def is_exact(kind: ColumnType) -> bool:
    """Whether constants of the type are tracked."""
    return kind.kind not in FLOATING_KINDS


def exact_values(values: ColumnValues, plan: Plan) -> dict[str, Value]:
    """The constants of columns that the node has and whose type is exact."""
    return {name: value for name, value in values.items() if name in plan.types and is_exact(plan.types[name])}


def values_of_columns(values: ColumnValues, names: Iterable[str]) -> dict[str, Value]:
    """The constants of some columns."""
    return {name: values[name] for name in names if name in values}


def merged_values(*parts: ColumnValues) -> dict[str, Value] | None:
    """All constants together; None if a column would have two."""
    whole: dict[str, Value] = {}
    for part in parts:
        for name, value in part.items():
            if name in whole and whole[name] != value:
                return None
            whole[name] = value
    return whole


def integer_constant(expr: Expr) -> int | None:
    """The value of a constant whole number; None for other expressions."""
    if isinstance(expr, Cast) and expr.type.kind in WHOLE_KINDS:
        expr = expr.arg
    if isinstance(expr, Lit) and expr.type.kind in WHOLE_KINDS and isinstance(expr.value, int):
        return expr.value
    return None


@dataclass(frozen=True, slots=True)
class _Equality:
    """A column is equal to another one, or to a constant."""

    column: Ref
    other: Ref | Lit
    nulls: bool
    """Whether it holds where both are NULL."""


def _equalities(condition: Expr | None) -> Iterator[_Equality]:
    for part in conjuncts(condition):
        if not isinstance(part, Call) or part.name not in (EQUAL, SAME, "is_null"):
            continue
        one, two = part.args if len(part.args) == 2 else (part.args[0], Lit(None, part.args[0].type))
        sides = (_constant_operand(one), _constant_operand(two))
        for column, other in (sides, sides[::-1]):
            if isinstance(column, Ref) and isinstance(other, Ref | Lit) and _compares_exactly(column, other):
                yield _Equality(column, other, part.name != EQUAL)


def _constant_operand(expr: Expr) -> Expr:
    """A whole number that is cast to another whole type, as a constant of that type."""
    number = integer_constant(expr) if isinstance(expr, Cast) else None
    return expr if number is None else Lit(number, expr.type)


def _compares_exactly(column: Ref, other: Ref | Lit) -> bool:
    """Whether equal means the same value. Where the types differ, a value may be rounded before it is compared."""
    return column.type == other.type and is_exact(column.type)


def implied_values(values: ColumnValues, condition: Expr | None) -> dict[str, Value] | None:
    """The constants with all that follow from them where the condition is true; None if it cannot be true."""
    whole = dict(values)
    equalities = list(_equalities(condition))
    # Ends, since each round adds at least one column.
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


# Constants passed through an operator: up, from rows of an input to the rows that they touch, and down, from rows of
# the operator to all rows that they are made of.

ColumnConstants = dict[str, Value]


@singledispatch
def constants_up(plan: Plan, _place: int, _values: ColumnValues) -> ColumnConstants | None:
    """The constants of all rows of the node that can be touched by rows of the input at `place`, if these have the
    given constants; None if they touch no row."""
    raise PlanError(f"what rows of {type(plan).__name__} have in common is not known")


@singledispatch
def constants_down(plan: Plan, _values: ColumnValues) -> tuple[ColumnConstants | None, ...]:
    """For each input: the constants of all rows that are needed to make rows of the node with the given constants; None
    if none are needed."""
    raise PlanError(f"what rows of {type(plan).__name__} have in common is not known")


@constants_down.register
def _(_plan: Scan, _values: ColumnValues) -> tuple[ColumnConstants | None, ...]:
    return ()


@constants_up.register(Sliding)
@constants_up.register(Distinct)
def _(plan: Sliding | Distinct, _place: int, values: ColumnValues) -> ColumnConstants | None:
    return values_of_columns(values, plan.types)


@constants_down.register(Sliding)
@constants_down.register(Distinct)
def _(_plan: Plan, values: ColumnValues) -> tuple[ColumnConstants | None, ...]:
    return (dict(values),)


# A row that comes or goes changes the ends of other rows, whatever their values.


@constants_up.register
def _(_plan: SlidingRows, _place: int, _values: ColumnValues) -> ColumnConstants | None:
    return {}


@constants_down.register
def _(_plan: SlidingRows, _values: ColumnValues) -> tuple[ColumnConstants | None, ...]:
    return ({},)


@constants_up.register
def _(plan: Filter, _place: int, values: ColumnValues) -> ColumnConstants | None:
    return implied_values(values, plan.predicate)


@constants_down.register
def _(plan: Filter, values: ColumnValues) -> tuple[ColumnConstants | None, ...]:
    return (implied_values(values, plan.predicate),)


@constants_up.register
def _(plan: Projection, _place: int, values: ColumnValues) -> ColumnConstants | None:
    found = values_of_columns(values, plan.carried)
    for output in plan.outputs:
        match output.expr:
            case Ref(name=name) if name in values:
                found[output.name] = values[name]
            case Lit(value=value, type=kind) if is_exact(kind):
                found[output.name] = value
    return found


@constants_down.register
def _(plan: Projection, values: ColumnValues) -> tuple[ColumnConstants | None, ...]:
    found: list[ColumnValues] = [values_of_columns(values, plan.carried)]
    for output in plan.outputs:
        if output.name not in values:
            continue
        match output.expr:
            case Ref(name=name):
                found.append({name: values[output.name]})
            case Lit(value=value) if value != values[output.name]:
                return (None,)
    return (merged_values(*found),)


@constants_up.register(Join)
@constants_up.register(RelationJoin)
def _(plan: Join | RelationJoin, _place: int, values: ColumnValues) -> ColumnConstants | None:
    return implied_values(values, plan.condition)


@constants_down.register(Join)
@constants_down.register(RelationJoin)
def _(plan: Join | RelationJoin, values: ColumnValues) -> tuple[ColumnConstants | None, ...]:
    told = implied_values(values, plan.condition)
    return tuple(None if told is None else values_of_columns(told, side.types) for side in plan.inputs)


@constants_up.register
def _(plan: Union, place: int, values: ColumnValues) -> ColumnConstants | None:
    branch = plan.branches[place]
    found = _renamed_constants(values, zip(branch.visible, plan.branches[0].visible, strict=True))
    if plan.key_positions is None:
        found |= {plan.key_column(place, name): value for name, value in values_of_columns(values, branch.key).items()}
    return {**found, plan.branch_column: place}


@constants_down.register
def _(plan: Union, values: ColumnValues) -> tuple[ColumnConstants | None, ...]:
    return tuple(_branch_constants(plan, place, values) for place in range(len(plan.branches)))


def _branch_constants(plan: Union, place: int, values: ColumnValues) -> ColumnConstants | None:
    if values.get(plan.branch_column, place) != place:
        return None
    branch = plan.branches[place]
    found = [_renamed_constants(values, zip(plan.branches[0].visible, branch.visible, strict=True))]
    if plan.key_positions is None:
        for number, other in enumerate(plan.branches):
            keys = {name: values.get(plan.key_column(number, name)) for name in other.key}
            keys = {name: value for name, value in keys.items() if value is not None}
            if keys and number != place:
                return None
            found.append(keys)
    return merged_values(*found)


def _renamed_constants(values: ColumnValues, pairs: Iterable[tuple[Field, Field]]) -> ColumnConstants:
    """The constants of the first column of each pair, as the second's."""
    return {new.name: values[old.name] for old, new in pairs if old.name in values}


@constants_up.register
def _(plan: Intersect, place: int, values: ColumnValues) -> ColumnConstants | None:
    return _renamed_constants(values, zip(plan.inputs[place].visible, plan.fields, strict=True))


@constants_down.register
def _(plan: Intersect, values: ColumnValues) -> tuple[ColumnConstants | None, ...]:
    return tuple(_renamed_constants(values, zip(plan.fields, side.visible, strict=True)) for side in plan.inputs)


@constants_up.register
def _(plan: Negation, place: int, values: ColumnValues) -> ColumnConstants | None:
    # Another row of the same value may come or go in place of the one that changed.
    return merged_values(*({pair[0]: values[pair[place]]} for pair in plan.columns if pair[place] in values))


@constants_down.register
def _(plan: Negation, values: ColumnValues) -> tuple[ColumnConstants | None, ...]:
    # All rows of a value are needed to decide which of them remain.
    told = [(pair, values[pair[0]]) for pair in plan.columns if pair[0] in values]
    return tuple(merged_values(*({pair[place]: value} for pair, value in told)) for place in range(2))


@constants_up.register
def _(plan: Group, _place: int, values: ColumnValues) -> ColumnConstants | None:
    return values_of_columns(values, _label_columns(plan))


@constants_down.register
def _(plan: Group, values: ColumnValues) -> tuple[ColumnConstants | None, ...]:
    return (values_of_columns(values, _label_columns(plan)),)


def _label_columns(plan: Group) -> Iterator[str]:
    """The columns of the input that are also columns of the group, under the same name."""
    return (expr_sql(expr) for expr in plan.by if isinstance(expr, Ref))


# Columns of the sources that decide which results there are and of which rows each is made.
#
# A row of which only other columns are corrected stays in the same results; only their values may change. Then what is
# known of the results' lineage still holds.


@cached_fact
def membership_columns(plan: Plan) -> tuple[frozenset[str], ...]:
    """For each scan, by its place in `scans_of(plan)`: the deciding columns, by the source's names."""
    return tuple(_columns_by_scan(plan, frozenset(plan.key)))


def _columns_by_scan(plan: Plan, wanted: frozenset[str]) -> Iterable[frozenset[str]]:
    """The deciding columns of each scan below, where the `wanted` columns of the node are deciding ones."""
    if isinstance(plan, Scan):
        source = plan.source
        also = {each for each in (*source.key, source.order, source.deleted) if each is not None}
        yield frozenset({plan.of_source(name) for name in wanted} | also)
        return
    for place, child in enumerate(plan.inputs):
        yield from _columns_by_scan(child, _input_columns(plan, place, wanted) | frozenset(child.key))


def _input_columns(plan: Plan, place: int, wanted: frozenset[str]) -> frozenset[str]:
    """The deciding columns of an input."""
    child = plan.inputs[place]
    match plan:
        case Sliding():
            found = wanted
        case Filter():
            found = wanted | refs(plan.predicate)
        case Projection():
            found = _columns_in(each.expr for each in plan.outputs if each.name in wanted) | (
                wanted & set(plan.carried)
            )
        case Join() | RelationJoin():
            condition = frozenset() if plan.condition is None else frozenset(refs(plan.condition))
            found = (wanted | condition) & set(child.types)
        case Union():
            names = [each.name for each in plan.branches[0].visible]
            found = frozenset(each.name for name, each in zip(names, child.visible, strict=True) if name in wanted)
        case Group():
            told = [each.argument for each in plan.aggregates if each.name in wanted and each.argument is not None]
            found = _columns_in([*plan.by, *told])
        case SlidingRows() | Distinct() | Intersect() | Negation():
            # Rows are compared as a whole: every column decides.
            found = frozenset(child.types)
        case _:
            raise PlanError(f"which columns have a say in what rows of {type(plan).__name__} there are is not known")
    return found


def _columns_in(exprs: Iterable[Expr]) -> frozenset[str]:
    return frozenset(name for each in exprs for name in refs(each))
