"""Constants on their way through an operator: up, from rows of an input to what they touch, and down, from rows of the
operator to all that they are made of."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import singledispatch

from errata.language.expr import Lit, Ref, Value, sql
from errata.language.lineage.equalities import Values, closed, exact, merged, only
from errata.language.nodes import (
    Distinct,
    Filter,
    Group,
    Intersect,
    Join,
    Negation,
    Project,
    RelationJoin,
    Scan,
    Sliding,
    SlidingRows,
    Union,
)
from errata.language.plan import Field, Plan, PlanError

Constants = dict[str, Value]


@singledispatch
def up(plan: Plan, _place: int, _values: Values) -> Constants | None:
    """What all rows of the node have in common that rows of its input at the place touch, if these have the constants;
    None if they can touch none."""
    raise PlanError(f"what rows of {type(plan).__name__} have in common is not known")


@singledispatch
def down(plan: Plan, _values: Values) -> tuple[Constants | None, ...]:
    """What the rows of each input have in common that are needed to make rows of the node with the constants; None if
    none are needed."""
    raise PlanError(f"what rows of {type(plan).__name__} have in common is not known")


@down.register
def _(_plan: Scan, _values: Values) -> tuple[Constants | None, ...]:
    return ()


@up.register(Sliding)
@up.register(Distinct)
def _(plan: Sliding | Distinct, _place: int, values: Values) -> Constants | None:
    return only(values, plan.types)


@down.register(Sliding)
@down.register(Distinct)
def _(_plan: Plan, values: Values) -> tuple[Constants | None, ...]:
    return (dict(values),)


# A row that comes or goes makes others, of any value, end earlier or later.


@up.register
def _(_plan: SlidingRows, _place: int, _values: Values) -> Constants | None:
    return {}


@down.register
def _(_plan: SlidingRows, _values: Values) -> tuple[Constants | None, ...]:
    return ({},)


@up.register
def _(plan: Filter, _place: int, values: Values) -> Constants | None:
    return closed(values, plan.predicate)


@down.register
def _(plan: Filter, values: Values) -> tuple[Constants | None, ...]:
    return (closed(values, plan.predicate),)


@up.register
def _(plan: Project, _place: int, values: Values) -> Constants | None:
    found = only(values, plan.carried)
    for output in plan.outputs:
        match output.expr:
            case Ref(name=name) if name in values:
                found[output.name] = values[name]
            case Lit(value=value, type=kind) if exact(kind):
                found[output.name] = value
    return found


@down.register
def _(plan: Project, values: Values) -> tuple[Constants | None, ...]:
    found: list[Values] = [only(values, plan.carried)]
    for output in plan.outputs:
        if output.name not in values:
            continue
        match output.expr:
            case Ref(name=name):
                found.append({name: values[output.name]})
            case Lit(value=value) if value != values[output.name]:
                return (None,)
    return (merged(*found),)


@up.register(Join)
@up.register(RelationJoin)
def _(plan: Join | RelationJoin, _place: int, values: Values) -> Constants | None:
    return closed(values, plan.condition)


@down.register(Join)
@down.register(RelationJoin)
def _(plan: Join | RelationJoin, values: Values) -> tuple[Constants | None, ...]:
    told = closed(values, plan.condition)
    return tuple(None if told is None else only(told, side.types) for side in plan.inputs)


@up.register
def _(plan: Union, place: int, values: Values) -> Constants | None:
    branch = plan.branches[place]
    found = _renamed(values, zip(branch.visible, plan.branches[0].visible, strict=True))
    if plan.key_positions is None:
        found |= {plan.key_column(place, name): value for name, value in only(values, branch.key).items()}
    return {**found, plan.branch_column: place}


@down.register
def _(plan: Union, values: Values) -> tuple[Constants | None, ...]:
    return tuple(_of_branch(plan, place, values) for place in range(len(plan.branches)))


def _of_branch(plan: Union, place: int, values: Values) -> Constants | None:
    if values.get(plan.branch_column, place) != place:
        return None
    branch = plan.branches[place]
    found = [_renamed(values, zip(plan.branches[0].visible, branch.visible, strict=True))]
    if plan.key_positions is None:
        for number, other in enumerate(plan.branches):
            keys = {name: values.get(plan.key_column(number, name)) for name in other.key}
            keys = {name: value for name, value in keys.items() if value is not None}
            if keys and number != place:
                return None
            found.append(keys)
    return merged(*found)


def _renamed(values: Values, pairs: Iterable[tuple[Field, Field]]) -> Constants:
    """The constants of the first column of each pair, as the second's."""
    return {new.name: values[old.name] for old, new in pairs if old.name in values}


@up.register
def _(plan: Intersect, place: int, values: Values) -> Constants | None:
    return _renamed(values, zip(plan.inputs[place].visible, plan.fields, strict=True))


@down.register
def _(plan: Intersect, values: Values) -> tuple[Constants | None, ...]:
    return tuple(_renamed(values, zip(plan.fields, side.visible, strict=True)) for side in plan.inputs)


@up.register
def _(plan: Negation, place: int, values: Values) -> Constants | None:
    # Another row of the same value may stand or fall in place of the one that changed.
    return merged(*({pair[0]: values[pair[place]]} for pair in plan.columns if pair[place] in values))


@down.register
def _(plan: Negation, values: Values) -> tuple[Constants | None, ...]:
    # All rows of a value are needed to tell which of them stand.
    told = [(pair, values[pair[0]]) for pair in plan.columns if pair[0] in values]
    return tuple(merged(*({pair[place]: value} for pair, value in told)) for place in range(2))


@up.register
def _(plan: Group, _place: int, values: Values) -> Constants | None:
    return only(values, _labels(plan))


@down.register
def _(plan: Group, values: Values) -> tuple[Constants | None, ...]:
    return (only(values, _labels(plan)),)


def _labels(plan: Group) -> Iterator[str]:
    """The columns of the input that are columns of the group, under the same name."""
    return (sql(expr) for expr in plan.by if isinstance(expr, Ref))
