"""The base class of expression readers: parts, type matching, and errors that name both types."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

from sqlglot import exp

from errata.language.coercion import TypeFamily, arithmetic_type, common_type, comparable, type_family
from errata.language.expr import BIGINT, BOOLEAN, DATE, TIMESTAMP, Call, Cast, Expr, Lit, Ref
from errata.language.reading.literals import lower_moment
from errata.language.reading.mistakes import TOO_DEEP, SqlText
from errata.language.reading.parser import refuse_unknown_parts
from errata.model.columns import WHOLE_KINDS, ColumnType, TypeKind

MAX_DEPTH = 120
"""Nested operators, at most: code that reads an expression calls itself for each."""

ColumnResolver = Callable[[exp.Column], Ref]
SpecialReader = Callable[[exp.Expression], Expr | None]


def coerce_expr(expr: Expr, kind: ColumnType) -> Expr:
    """The expression converted to a type. A whole number becomes a constant of that type at once."""
    if expr.type == kind:
        return expr
    if isinstance(expr, Lit):
        if expr.value is None:
            return Lit(None, kind)
        if isinstance(expr.value, int) and expr.type.kind in WHOLE_KINDS:
            if kind.kind is TypeKind.BIGINT:
                return Lit(expr.value, BIGINT)
            if kind.kind is TypeKind.DOUBLE and abs(expr.value) < 2**53:
                return Lit(float(expr.value), kind)
    return Cast(expr, kind)


class BaseExpressionReader(ABC):
    """Reads the expressions of one place in a query; `lower_node` knows the kinds of node."""

    def __init__(self, text: SqlText, resolve: ColumnResolver, special: SpecialReader) -> None:
        self.text = text
        self.resolve = resolve
        self.special = special
        self._depth = 0

    def lower(self, node: exp.Expression) -> Expr:
        """The expression for a node."""
        expr = self.lower_or_null(node)
        if expr is None:
            raise self.text.mistake(node, "NULL alone is of no type", how="say of which, as in CAST(NULL AS DOUBLE)")
        return expr

    def condition(self, node: exp.Expression) -> Expr:
        """The expression for a node that must be a boolean."""
        expr = self.lower_or_null(node)
        if expr is None:
            return Lit(None, BOOLEAN)
        if expr.type != BOOLEAN:
            raise self.text.mistake(
                node, f"a condition is a boolean, and this is of type {expr.type}", how="compare it with something"
            )
        return expr

    def lower_or_null(self, node: exp.Expression) -> Expr | None:
        """The expression for a node; None for a NULL that has no type yet."""
        self._depth += 1
        try:
            if self._depth > MAX_DEPTH:
                raise self.text.mistake(node, *TOO_DEEP)
            return self._read(node)
        finally:
            self._depth -= 1

    def _read(self, node: exp.Expression) -> Expr | None:
        known = self.special(node)
        if known is not None:
            return known
        if isinstance(node, exp.Null):
            return None
        if isinstance(node, exp.Paren):
            refuse_unknown_parts(self.text, node, {"this"})
            return self.lower_or_null(node.this)
        return self.lower_node(node)

    @abstractmethod
    def lower_node(self, node: exp.Expression) -> Expr:
        """The expression for a node other than NULL and brackets."""

    def lower_to_common_type(self, nodes: Sequence[exp.Expression], what: str) -> list[Expr]:
        """The expressions converted to one type: the common type of all, or a NULL of it."""
        read = [self.lower_or_null(node) for node in nodes]
        known = [each for each in read if each is not None]
        if not known:
            raise self.text.mistake(nodes[0], f"{what} of NULL alone is of no type", how="write CAST(NULL AS DOUBLE)")
        known = self._texts_as_times(nodes, read)
        kind = common_type([each.type for each in known])
        if kind is None:
            types = " and ".join(sorted({str(each.type) for each in known}))
            raise self.text.mistake(
                nodes[0],
                f"{types} have no type in common, which {what} needs",
                how="write CAST(x AS type) to say what is meant",
            )
        whole = iter(known)
        return [Lit(None, kind) if each is None else coerce_expr(next(whole), kind) for each in read]

    def _texts_as_times(self, nodes: Sequence[exp.Expression], read: Sequence[Expr | None]) -> list[Expr]:
        """The expressions that have a type; texts that are compared with times are read as times."""
        pairs = [(node, each) for node, each in zip(nodes, read, strict=True) if each is not None]
        times = {each.type for _, each in pairs if type_family(each.type) is TypeFamily.TIME}
        if not times:
            return [each for _, each in pairs]
        kind = TIMESTAMP if TIMESTAMP in times else DATE
        return [self._moment(node, each, kind) for node, each in pairs]

    def _moment(self, node: exp.Expression, expr: Expr, kind: ColumnType) -> Expr:
        if isinstance(expr, Lit) and isinstance(expr.value, str):
            if kind == DATE and len(expr.value.strip()) > len("2026-11-18"):
                raise self.text.mistake(
                    node,
                    f"a date stands beside {expr.value!r}, which has a time of day",
                    "the time of day would be dropped, or the date taken for its midnight",
                    f"write DATE '{expr.value.strip()[:10]}' or TIMESTAMP '{expr.value.strip()}'",
                )
            return lower_moment(self.text, node, expr.value, kind)
        return expr

    def compare(self, node: exp.Expression, left: exp.Expression, right: exp.Expression, name: str) -> Expr:
        """A comparison of two values of one family."""
        read = [self.lower_or_null(left), self.lower_or_null(right)]
        known = self._texts_as_times((left, right), read)
        if not known:
            raise self.text.mistake(node, "NULL is compared with NULL", how="leave it out, or write IS NULL")
        one, other = known if len(known) == 2 else (known[0], Lit(None, known[0].type))
        if not comparable(one.type, other.type):
            raise self.text.mistake(
                node,
                f"{one.type} {name} {other.type}: the two are not of one kind",
                "Errata guesses no conversion",
                "write CAST(x AS type) to say what is meant",
            )
        return Call(name, (other, one) if read[0] is None and len(known) == 1 else (one, other), BOOLEAN)

    def arithmetic(self, node: exp.Expression, name: str, left: Expr, right: Expr) -> Expr:
        """Arithmetic on two numbers."""
        kind = arithmetic_type(name, left, right)
        if kind is None:
            raise self.text.mistake(
                node,
                f"{left.type} {name} {right.type}: {name} takes two {_operand_words(name)}",
                how=_cast_advice(left, right),
            )
        return Call(name, (left, right), kind)


def _operand_words(name: str) -> str:
    return "numbers without a floating point" if name == "div" else "numbers"


def _cast_advice(left: Expr, right: Expr) -> str | None:
    kinds = {type_family(left.type), type_family(right.type)}
    if TypeFamily.TIME in kinds:
        return "write ts + INTERVAL '5' MINUTE, unix_micros(a) - unix_micros(b), date_add(d, 1) or datediff(a, b)"
    return "write a || b for texts" if kinds == {TypeFamily.STRING} else "write CAST(x AS type) to say what is meant"
