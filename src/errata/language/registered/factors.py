"""Conditions under WHERE and ON to factors: over the rows of one source, or relations of two.

All conditions hold together (AND), and each is one of few kinds, so that rows can be matched to thousands of queries by
look-up: a column and a constant, a column and another one plus a constant, IN, BETWEEN, IS NULL.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from sqlglot import exp

from errata.language.coercion import comparable
from errata.language.expr import BOOLEAN
from errata.language.reading.mistakes import LanguageError, SqlText
from errata.language.reading.parser import refuse_unknown_parts, unknown_construct
from errata.language.registered.conditions import (
    column_factor,
    conjunction_of,
    mirrored,
    plain_constant,
    relations_of,
)
from errata.language.registered.constants import compare_with_constant, constants_of_in, read_offset
from errata.language.registered.scope import ColumnPlace, SourceScope
from errata.model.registered import Comparison, Conjunction, ConstantFactor, Factor, NullFactor, Relation

_COMPARISONS: dict[type[exp.Expression], Comparison] = {
    exp.LT: Comparison.LESS,
    exp.LTE: Comparison.AT_MOST,
    exp.EQ: Comparison.EQUAL,
    exp.GTE: Comparison.AT_LEAST,
    exp.GT: Comparison.GREATER,
}
_OPPOSITES: dict[type[exp.Expression], type[exp.Expression]] = {
    exp.LT: exp.GTE,
    exp.LTE: exp.GT,
    exp.GTE: exp.LT,
    exp.GT: exp.LTE,
}
_BINARY_PARTS = {"this", "expression"}
_INDEX_REASON = "rows are matched to all registered queries at once, by look-up of what their conditions name"
_DECLARE = "declare the query under queries:, where all conditions can be written"
_CONDITIONS = "a condition is column < <= = >= > constant, a.x = b.y + constant, BETWEEN, IN, IS NULL or IS NOT NULL"
_NOT_EQUAL = (
    "<> is not part of registered queries",
    _INDEX_REASON,
    f"write it as two registered queries, with < and with >; or {_DECLARE}",
)
_OR = (
    "OR is not part of registered queries",
    _INDEX_REASON,
    "write x IN (1, 2) for alternatives of one column, or register a query for each alternative",
)
_SUBQUERY = (
    "a subquery is not part of registered queries",
    _INDEX_REASON,
    "name the stream in FROM, and relate its columns; or " + _DECLARE,
)
_REFUSED: dict[type[exp.Expression], tuple[str, str, str]] = {
    exp.Or: _OR,
    exp.Exists: _SUBQUERY,
    exp.NEQ: _NOT_EQUAL,
    exp.NullSafeEQ: ("<=> is not part of registered queries", _INDEX_REASON, "write =, or IS NULL"),
    exp.NullSafeNEQ: ("IS DISTINCT FROM is not part of registered queries", _INDEX_REASON, _DECLARE),
    **{
        kind: (f"{name} is not part of registered queries", _INDEX_REASON, _DECLARE)
        for kind, name in ((exp.Like, "LIKE"), (exp.ILike, "ILIKE"), (exp.RegexpLike, "RLIKE"), (exp.Case, "CASE"))
    },
}


@dataclass(frozen=True, slots=True)
class _Operand:
    """A side of a comparison: a constant, or a column with what is added to it."""

    node: exp.Expression
    place: ColumnPlace | None = None
    added: exp.Expression | None = None
    sign: int = 1


class ConditionReader:
    """Reads the conditions of one text, one after the other."""

    def __init__(self, text: SqlText, scope: SourceScope) -> None:
        self.text = text
        self.scope = scope
        self._factors: list[list[Factor]] = [[] for _ in scope.sources]
        self._relations: list[Relation] = []

    @property
    def conjunctions(self) -> tuple[Conjunction, ...]:
        """The factors over the rows of each source."""
        return tuple(map(conjunction_of, self._factors))

    @property
    def relations(self) -> tuple[Relation, ...]:
        return relations_of(self._relations)

    def read(self, conditions: Iterable[exp.Expression]) -> None:
        """Read conditions that all hold."""
        waiting = list(conditions)[::-1]
        while waiting:
            node = waiting.pop()
            match node:
                case exp.Paren():
                    refuse_unknown_parts(self.text, node, {"this"})
                    waiting.append(node.this)
                case exp.And():
                    refuse_unknown_parts(self.text, node, _BINARY_PARTS)
                    waiting += [node.expression, node.this]
                case exp.Between():
                    refuse_unknown_parts(self.text, node, {"this", "low", "high"})
                    self._compare(node, node.this, Comparison.AT_LEAST, node.args["low"])
                    self._compare(node, node.this, Comparison.AT_MOST, node.args["high"])
                case exp.Not():
                    refuse_unknown_parts(self.text, node, {"this"})
                    self._read_negated(node)
                case _:
                    self._read_condition(node)

    def _read_condition(self, node: exp.Expression) -> None:
        match node:
            case exp.LT() | exp.LTE() | exp.EQ() | exp.GTE() | exp.GT():
                refuse_unknown_parts(self.text, node, _BINARY_PARTS)
                self._compare(node, node.this, _COMPARISONS[type(node)], node.expression)
            case exp.In():
                self._read_in(node)
            case exp.Is():
                self._read_is(node, negated=False)
            case exp.Column():
                self._read_flag(node, holds=True)
            case exp.Boolean():
                self._read_boolean(node, holds=bool(node.this))
            case _:
                raise self._refusal(node)

    def _refusal(self, node: exp.Expression) -> LanguageError:
        known = _REFUSED.get(type(node))
        if known is not None:
            return self.text.mistake(node, *known)
        if isinstance(node, exp.Predicate):
            return unknown_construct(self.text, node)
        return self.text.mistake(node, "this is not a condition of registered queries", _INDEX_REASON, _CONDITIONS)

    def _read_negated(self, node: exp.Not) -> None:
        inner = node.this
        while isinstance(inner, exp.Paren):
            refuse_unknown_parts(self.text, inner, {"this"})
            inner = inner.this
        match inner:
            case exp.Not():
                refuse_unknown_parts(self.text, inner, {"this"})
                self.read([inner.this])
            case exp.Is():
                self._read_is(inner, negated=True)
            case exp.LT() | exp.LTE() | exp.GTE() | exp.GT():
                refuse_unknown_parts(self.text, inner, _BINARY_PARTS)
                opposite = _COMPARISONS[_OPPOSITES[type(inner)]]
                self._compare(inner, inner.this, opposite, inner.expression)
            case exp.EQ():
                raise self.text.mistake(inner, *_NOT_EQUAL)
            case exp.Column():
                self._read_flag(inner, holds=False)
            case exp.Boolean():
                self._read_boolean(inner, holds=not inner.this)
            case _:
                raise self.text.mistake(node, "NOT is not part of registered queries here", _INDEX_REASON, _DECLARE)

    # kinds of condition

    def _read_boolean(self, node: exp.Boolean, *, holds: bool) -> None:
        if not holds:
            raise self.text.mistake(node, "no row satisfies this", how="leave the query out, or the condition")

    def _read_flag(self, node: exp.Column, *, holds: bool) -> None:
        found = self.scope.column(node)
        if found.column.type != BOOLEAN:
            raise self.text.mistake(
                node,
                f"a condition is a boolean, and {node.name} is of type {found.column.type}",
                how="compare it with something",
            )
        self._factors[found.source].append(ConstantFactor(found.column.name, Comparison.EQUAL, holds))

    def _read_is(self, node: exp.Is, *, negated: bool) -> None:
        refuse_unknown_parts(self.text, node, _BINARY_PARTS)
        asked, column = node.expression, self._unwrapped(node.this)
        if not isinstance(column, exp.Column):
            raise self.text.mistake(node.this, "IS asks about a column here", _INDEX_REASON, "write column IS NULL")
        if isinstance(asked, exp.Null):
            found = self.scope.column(column)
            self._factors[found.source].append(NullFactor(found.column.name, is_null=not negated))
        elif isinstance(asked, exp.Boolean) and not negated:
            self._read_flag(column, holds=bool(asked.this))
        elif isinstance(asked, exp.Boolean):
            raise self.text.mistake(
                node,
                "IS NOT TRUE and IS NOT FALSE are not part of registered queries",
                _INDEX_REASON,
                "write column = FALSE, and register another query for column IS NULL if it is meant",
            )
        else:
            raise self.text.mistake(node, "IS asks for NULL, TRUE or FALSE", how="compare other values with =")

    def _read_in(self, node: exp.In) -> None:
        if node.args.get("query") is not None:
            raise self.text.mistake(node, *_SUBQUERY)
        refuse_unknown_parts(self.text, node, {"this", "expressions"})
        column = self._unwrapped(node.this)
        if not isinstance(column, exp.Column):
            raise self.text.mistake(node.this, "IN asks about a column here", _INDEX_REASON, "write column IN (1, 2)")
        if not node.expressions:
            raise self.text.mistake(node, "IN needs a value at least")
        found = self.scope.column(column)
        for each in node.expressions:
            if each.find(exp.Column) is not None:
                how = f"write a condition with =, or {_DECLARE}"
                raise self.text.mistake(each, "IN lists constants here", _INDEX_REASON, how)
        self._factors[found.source].append(constants_of_in(self.text, node, found.column, node.expressions))

    # comparisons

    def _compare(
        self, node: exp.Expression, left: exp.Expression, comparison: Comparison, right: exp.Expression
    ) -> None:
        one, other = self._operand(left), self._operand(right)
        if one.place is None or (one.added is not None and other.place is not None and other.added is None):
            one, other, comparison = other, one, mirrored(comparison)
        if one.place is None:
            raise self.text.mistake(node, "two constants are compared", how="leave the condition out")
        if one.added is not None:
            raise self.text.mistake(
                one.node,
                "a constant is added to a column that is compared with another constant"
                if other.place is None
                else "a constant is added on both sides",
                _INDEX_REASON,
                "add up the constants, and write column = constant or a.x = b.y + constant",
            )
        if other.place is None:
            factor = compare_with_constant(self.text, node, one.place.column, comparison, other.node)
            self._factors[one.place.source].append(factor)
        else:
            self._relate(node, one.place, comparison, other, other.place)

    def _relate(
        self, node: exp.Expression, left: ColumnPlace, comparison: Comparison, other: _Operand, right: ColumnPlace
    ) -> None:
        if not comparable(left.column.type, right.column.type):
            raise self.text.mistake(
                node,
                f"{left.column.type} {comparison.value} {right.column.type}: the two are not of one kind",
                "Errata guesses no conversion",
                "compare columns of one kind",
            )
        offset = (
            0 if other.added is None else read_offset(self.text, other.added, left.column, right.column, other.sign)
        )
        if left.source == right.source:
            self._factors[left.source].append(column_factor(left.column.name, comparison, right.column.name, offset))
        else:
            self._relations.append(
                Relation(
                    left.source, left.column.name, comparison, right.source, right.column.name, plain_constant(offset)
                )
            )

    def _unwrapped(self, node: exp.Expression) -> exp.Expression:
        while isinstance(node, exp.Paren):
            refuse_unknown_parts(self.text, node, {"this"})
            node = node.this
        return node

    def _operand(self, node: exp.Expression) -> _Operand:
        node = self._unwrapped(node)
        if isinstance(node, exp.Column):
            return _Operand(node, self.scope.column(node))
        if node.find(exp.Query) is not None:
            raise self.text.mistake(node, *_SUBQUERY)
        if node.find(exp.Column) is None:
            return _Operand(node)
        if isinstance(node, exp.Add | exp.Sub):
            refuse_unknown_parts(self.text, node, _BINARY_PARTS)
            column, added = self._unwrapped(node.this), self._unwrapped(node.expression)
            if isinstance(node, exp.Add) and isinstance(added, exp.Column):
                column, added = added, column
            if isinstance(column, exp.Column) and added.find(exp.Column) is None:
                sign = 1 if isinstance(node, exp.Add) else -1
                return _Operand(node, self.scope.column(column), added, sign)
        raise self.text.mistake(
            node,
            "an expression is compared here",
            _INDEX_REASON,
            f"{_CONDITIONS}; or {_DECLARE}",
        )
