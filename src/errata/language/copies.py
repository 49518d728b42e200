"""A part of a plan read once more: the same rows at every instant, under column names of their own.

A rewriting that needs the same rows in two places of a plan cannot put the same nodes there: the columns of a plan have
names that are there once, and lineage is kept for each scan. Cost: each scan of the part is read again.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Protocol

from errata.language.expr import Expr, Ref, transform
from errata.language.nodes import (
    Distinct,
    Filter,
    Group,
    Intersect,
    Join,
    Negation,
    Output,
    Project,
    RelationJoin,
    Scan,
    Sliding,
    SlidingRows,
    Union,
)
from errata.language.plan import Plan, PlanError


class Names(Protocol):
    """Where names come from that nothing else in the statement has."""

    def alias(self, wanted: str, /) -> str:
        """The wanted name of a part of FROM, or the next free one like it."""

    def next_window(self) -> int:
        """The number of one more group with a window."""

    def next_union(self) -> int:
        """The number of one more union."""


@dataclass
class Copy:
    """One copy of a part of a plan, and what its columns are called."""

    names: Names
    columns: dict[str, str] = field(default_factory=dict)
    """By the name of a column of the part: its name in the copy."""
    _aliases: dict[str, str] = field(default_factory=dict)

    def of(self, plan: Plan) -> Plan:
        """The copy of the node and of all below it."""
        inputs = [self.of(each) for each in plan.inputs]
        copied = self._over(plan, inputs)
        self.columns.update(
            zip((each.name for each in plan.fields), (each.name for each in copied.fields), strict=True)
        )
        return copied

    def expr(self, expr: Expr) -> Expr:
        """An expression over columns of the part, over those of the copy."""
        return transform(expr, self._renamed)

    def _renamed(self, expr: Expr) -> Expr:
        return Ref(self.columns[expr.name], expr.type) if isinstance(expr, Ref) else expr

    def _perhaps(self, expr: Expr | None) -> Expr | None:
        return None if expr is None else self.expr(expr)

    def _alias(self, alias: str) -> str:
        if alias not in self._aliases:
            self._aliases[alias] = self.names.alias(alias)
        return self._aliases[alias]

    def _output(self, output: Output) -> Output:
        """A column that is passed on unchanged keeps a common name; others are called by their part of FROM."""
        if isinstance(output.expr, Ref) and output.expr.name == output.name:
            return Output(self.columns[output.name], self.expr(output.expr))
        alias, dot, rest = output.name.partition(".")
        known = self.columns.get(output.name)
        name = known or (f"{self._alias(alias)}.{rest}" if dot else output.name)
        return Output(name, self.expr(output.expr))

    def _over(self, plan: Plan, inputs: list[Plan]) -> Plan:
        copied: Plan
        match plan:
            case Scan():
                copied = replace(plan, alias=self._alias(plan.alias))
            case Filter():
                copied = Filter(inputs[0], self.expr(plan.predicate))
            case Project():
                copied = Project(inputs[0], tuple(map(self._output, plan.outputs)))
            case Join() | RelationJoin():
                copied = type(plan)(inputs[0], inputs[1], self._perhaps(plan.condition))
            case Union():
                copied = replace(plan, branches=tuple(inputs), number=self.names.next_union())
            case Negation():
                copied = self._negation(plan, inputs)
            case Group():
                copied = self._group(plan, inputs[0])
            case Sliding() | SlidingRows() | Distinct() | Intersect():
                copied = plan.with_inputs(inputs)
            case _:
                raise PlanError(f"how {type(plan).__name__} is read once more is not known")
        return copied

    def _negation(self, plan: Negation, inputs: list[Plan]) -> Negation:
        pairs = tuple((self.columns[left], self.columns[right]) for left, right in plan.columns)
        rank = None if plan.rank is None else tuple(self.columns[name] for name in plan.rank)
        return Negation(inputs[0], inputs[1], pairs, rank)

    def _group(self, plan: Group, below: Plan) -> Group:
        by = tuple(map(self.expr, plan.by))
        aggregates = tuple(replace(each, argument=self._perhaps(each.argument)) for each in plan.aggregates)
        number = plan.number if plan.window is None else self.names.next_window()
        return replace(plan, input=below, by=by, aggregates=aggregates, number=number)
