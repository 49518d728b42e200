"""UNION, INTERSECT and EXCEPT: columns match by position, and numbers are converted to their common type."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from sqlglot import exp

from errata.language.coercion import common_type
from errata.language.expr import Cast
from errata.language.nodes import Distinct, Intersect, Negation, Output, Projection, Union
from errata.language.plan import Plan
from errata.language.reading.mistakes import SqlText
from errata.language.reading.parser import refuse_unknown_parts
from errata.language.reading.scope import StatementScope
from errata.model.columns import ColumnType, TypeKind

LowerBranch = Callable[[exp.Expression, Sequence[str]], Plan]
"""Lowers a branch; the names are for columns without one."""
_EXACT_WIDENINGS = {
    TypeKind.INT: (TypeKind.BIGINT, TypeKind.DOUBLE, TypeKind.DECIMAL),
    TypeKind.BIGINT: (TypeKind.DECIMAL,),
    TypeKind.FLOAT: (TypeKind.DOUBLE,),
    TypeKind.DECIMAL: (TypeKind.DECIMAL,),
    TypeKind.DATE: (TypeKind.TIMESTAMP,),
}
"""Conversions that keep different values different."""


def lower_set(statement: StatementScope, node: exp.SetOperation, branch: LowerBranch, names: Sequence[str]) -> Plan:
    """The plan of a set operation."""
    text = statement.text
    statement.unions += isinstance(node, exp.Union)
    number = statement.unions
    nodes = _set_branches(text, node)
    first = branch(nodes[0], names)
    default = [each.name.rpartition(".")[2] for each in first.visible]
    branches = _widen_branches(text, nodes, [first, *(branch(each, default) for each in nodes[1:])])
    every = not node.args.get("distinct")
    match node:
        case exp.Union():
            union = Union(tuple(branches), number)
            return union if every else Distinct(union)
        case exp.Intersect() if every:
            raise text.mistake(
                nodes[1],
                "INTERSECT ALL is not part of the language",
                "which of several equal rows stand on both sides cannot be told",
                "write INTERSECT, or a EXCEPT ALL (a EXCEPT ALL b)",
            )
        case exp.Intersect():
            return Intersect(*branches)
    left, right = branches if every else (Distinct(each) for each in branches)
    pairs = tuple((one.name, other.name) for one, other in zip(left.visible, right.visible, strict=True))
    if len({other for _, other in pairs}) < len(pairs):
        raise text.mistake(nodes[1], "two columns are called alike")
    return Negation(left, right, pairs)


def _set_branches(text: SqlText, node: exp.SetOperation) -> list[exp.Expression]:
    """Both sides; of consecutive UNIONs (all but the last with ALL) the sides of all."""
    sides: list[exp.Expression] = []
    while True:
        refuse_unknown_parts(text, node, {"this", "expression", "distinct", "with_"})
        sides.append(node.expression)
        left = node.this
        more = isinstance(node, exp.Union) and isinstance(left, exp.Union) and not left.args.get("distinct")
        if not more:
            return [left, *reversed(sides)]
        node = left


def _widen_branches(text: SqlText, nodes: Sequence[exp.Expression], branches: list[Plan]) -> list[Plan]:
    """The branches with each column converted to one type in all of them."""
    first = branches[0].visible
    for node, branch in zip(nodes, branches, strict=True):
        if len(branch.visible) != len(first):
            raise text.mistake(
                _listed_column(node),
                f"{len(branch.visible)} columns here, and {len(first)} in the first SELECT",
                how="columns go by position: list as many in each",
            )
    types = [_common_column_type(text, nodes, branches, place) for place in range(len(first))]
    return [_cast_branch(text, node, branch, types) for node, branch in zip(nodes, branches, strict=True)]


def _common_column_type(text: SqlText, nodes: Sequence[exp.Expression], branches: list[Plan], place: int) -> ColumnType:
    kinds = [branch.visible[place].type for branch in branches]
    common = common_type(kinds)
    if common is None:
        at = next(number for number in range(1, len(kinds)) if common_type(kinds[: number + 1]) is None)
        name = branches[0].visible[place].name.rpartition(".")[2]
        raise text.mistake(
            _listed_column(nodes[at], place),
            f"column {place + 1}, {name}, is {kinds[at]} here and {common_type(kinds[:at])} before",
            "no type holds the values of both",
            "write CAST(... AS type) in one of them",
        )
    return common


def _listed_column(node: exp.Expression, place: int | None = None) -> exp.Expression:
    """The place of a column in a SELECT's list, or the list's first."""
    while isinstance(node, exp.Subquery | exp.SetOperation):
        node = node.this
    items = node.expressions
    stars = any(each.is_star for each in items)
    return items[0 if place is None or stars or place >= len(items) else place] if items else node


def _cast_branch(text: SqlText, node: exp.Expression, plan: Plan, types: Sequence[ColumnType]) -> Plan:
    """The branch with its columns converted in the SELECTs that make them."""
    if all(each.type == kind for each, kind in zip(plan.visible, types, strict=True)):
        return plan
    match plan:
        case Projection():
            return replace(plan, outputs=tuple(map(_cast_output, plan.outputs, types)))
        case Union():
            return replace(plan, branches=tuple(_cast_branch(text, node, each, types) for each in plan.branches))
    for place, (each, kind) in enumerate(zip(plan.visible, types, strict=True)):
        if each.type != kind and kind.kind not in _EXACT_WIDENINGS.get(each.type.kind, ()):
            raise text.mistake(
                _listed_column(node, place),
                f"column {place + 1} would be converted from {each.type} to {kind} after duplicates are gone",
                "values that differ can become equal by that",
                f"write CAST(... AS {kind}) in this SELECT",
            )
    return plan.with_inputs([_cast_branch(text, node, each, types) for each in plan.inputs])


def _cast_output(output: Output, kind: ColumnType) -> Output:
    return output if output.expr.type == kind else Output(output.name, Cast(output.expr, kind))
