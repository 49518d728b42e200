"""The statement of a plan: its text with `?` for each constant, and the constants in the order of the text.

Plans that differ only in constants have one statement. The text is printed from the plan, not cut out of what was
written, so spelling, spacing and the order of conditions make no difference:

    SELECT a.sym AS sym FROM trades AS a WHERE a.price > ? BEGIN (NOW - ?) END (NOW)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from errata.model.registered import (
    Bound,
    ColumnFactor,
    Constant,
    ConstantFactor,
    Factor,
    MemberFactor,
    NullFactor,
    OutputItem,
    RegisteredPlan,
    RegisteredSource,
    RegisteredWindow,
    Relation,
)


def with_statement(plan: RegisteredPlan) -> RegisteredPlan:
    """The plan with its statement and parameters filled in."""
    printing = _Printing(plan.sources)
    return replace(plan, statement=printing.text(plan), parameters=tuple(printing.parameters))


class _Printing:
    """Prints one plan, and gathers its constants on the way."""

    def __init__(self, sources: Sequence[RegisteredSource]) -> None:
        self.aliases = [each.alias for each in sources]
        self.parameters: list[Constant] = []

    def text(self, plan: RegisteredPlan) -> str:
        items = ", ".join(map(self._item, plan.items))
        sources = ", ".join(f"{each.stream} AS {each.alias}" for each in plan.sources)
        conditions = [
            self._factor(self.aliases[at], each)
            for at, conjunction in enumerate(plan.conjunctions)
            for each in conjunction
        ]
        conditions += map(self._relation, plan.relations)
        clauses = ["SELECT DISTINCT" if plan.distinct else "SELECT", items, "FROM", sources]
        clauses += ["WHERE", " AND ".join(conditions)] if conditions else []
        return " ".join([*clauses, self._windows(plan.windows)])

    def _item(self, item: OutputItem) -> str:
        column = "*" if item.column is None else f"{self.aliases[item.source]}.{item.column}"
        return f"{column if item.function is None else f'{item.function.value}({column})'} AS {item.output.name}"

    def _mark(self, constant: Constant) -> str:
        self.parameters.append(constant)
        return "?"

    def _factor(self, alias: str, factor: Factor) -> str:
        match factor:
            case ConstantFactor(column, comparison, constant):
                return f"{alias}.{column} {comparison.value} {self._mark(constant)}"
            case MemberFactor(column, constants):
                return f"{alias}.{column} IN ({', '.join(map(self._mark, constants))})"
            case NullFactor(column, is_null):
                return f"{alias}.{column} IS {'' if is_null else 'NOT '}NULL"
            case ColumnFactor(left, comparison, right, offset):
                return f"{alias}.{left} {comparison.value} {alias}.{right}{self._offset(offset)}"

    def _relation(self, relation: Relation) -> str:
        left = f"{self.aliases[relation.left_source]}.{relation.left}"
        right = f"{self.aliases[relation.right_source]}.{relation.right}"
        return f"{left} {relation.comparison.value} {right}{self._offset(relation.offset)}"

    def _offset(self, offset: Constant) -> str:
        return "" if offset == 0 else f" + {self._mark(offset)}"

    def _windows(self, windows: Sequence[RegisteredWindow]) -> str:
        if all(each == windows[0] for each in windows):
            return self._window(windows[0])
        return ", ".join(f"FOR {alias} {self._window(each)}" for alias, each in zip(self.aliases, windows, strict=True))

    def _window(self, window: RegisteredWindow) -> str:
        if window.begin is None:
            begin = f"NOW - {self._mark(window.rows)} ROWS" if window.rows is not None else ""
        else:
            begin = self._bound(window.begin)
        return f"BEGIN ({begin}) END ({self._bound(window.end)})"

    def _bound(self, bound: Bound) -> str:
        if not bound.relative:
            return self._mark(bound.value)
        return "NOW" if bound.value == 0 else f"NOW - {self._mark(bound.value)}"
