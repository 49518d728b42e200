"""The expression for each operator and clause of SQL, one function for each kind of node of sqlglot."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from sqlglot import exp

from errata.language.coercion import TypeFamily, type_family
from errata.language.expr import (
    AND,
    BIGINT,
    BOOLEAN,
    DATE,
    EQUAL,
    NOT,
    OR,
    SAME,
    SHIFT,
    STRING,
    TIMESTAMP,
    TRUE,
    Call,
    Case,
    Cast,
    Expr,
    Lit,
)
from errata.language.functions import EXTRACTED, FUNCTIONS, castable
from errata.language.reading.literals import is_interval, lower_interval, lower_moment, lower_number, lower_type
from errata.language.reading.mistakes import node_span
from errata.language.reading.parser import refuse_unknown_parts, unknown_construct
from errata.language.reading.reader import BaseExpressionReader
from errata.model.columns import ColumnType

NodeReader = Callable[[BaseExpressionReader, exp.Expression], Expr]

_BINARY_PARTS = {"this", "expression"}
_COMPARISONS = (exp.Predicate, exp.Between, exp.In, exp.Not)
_FALSE = Lit(False, BOOLEAN)


def _column_expr(reader: BaseExpressionReader, node: exp.Expression) -> Expr:
    refuse_unknown_parts(reader.text, node, {"this", "table", "db", "catalog"})
    if not isinstance(node, exp.Column) or isinstance(node.this, exp.Star):
        raise unknown_construct(reader.text, node.this)
    return reader.resolve(node)


def _literal_expr(reader: BaseExpressionReader, node: exp.Expression) -> Expr:
    refuse_unknown_parts(reader.text, node, {"this", "is_string"})
    if node.args.get("is_string"):
        return Lit(str(node.this), STRING)
    return lower_number(reader.text, node, str(node.this))


def _raw_text(reader: BaseExpressionReader, node: exp.Expression) -> Expr:
    refuse_unknown_parts(reader.text, node, {"this"})
    return Lit(str(node.this), STRING)


def _boolean_expr(reader: BaseExpressionReader, node: exp.Expression) -> Expr:
    refuse_unknown_parts(reader.text, node, {"this"})
    return TRUE if node.this else _FALSE


def _negated_value(reader: BaseExpressionReader, node: exp.Expression) -> Expr:
    refuse_unknown_parts(reader.text, node, {"this"})
    inner = node.this
    if isinstance(inner, exp.Literal) and not inner.args.get("is_string"):
        return lower_number(reader.text, inner, str(inner.this), "-")
    return negate(reader, node, reader.lower(inner))


def negate(reader: BaseExpressionReader, node: exp.Expression, value: Expr) -> Expr:
    """The number with the other sign."""
    if type_family(value.type) is not TypeFamily.NUMBER:
        raise reader.text.mistake(node, f"- {value.type}: only a number has a sign")
    return Call("neg", (value,), value.type)


def _logical_operator(name: str) -> NodeReader:
    def read(reader: BaseExpressionReader, node: exp.Expression) -> Expr:
        refuse_unknown_parts(reader.text, node, _BINARY_PARTS)
        return Call(name, (reader.condition(node.this), reader.condition(node.expression)), BOOLEAN)

    return read


def _not_predicate(reader: BaseExpressionReader, node: exp.Expression) -> Expr:
    refuse_unknown_parts(reader.text, node, {"this"})
    asked = reader.condition(node.this)
    # sqlglot reads x IS NOT NULL as NOT (x IS NULL); both mean the same.
    if isinstance(asked, Call) and asked.name == "is_null":
        return Call("is_not_null", asked.args, BOOLEAN)
    return Call(NOT, (asked,), BOOLEAN)


def _is_predicate(reader: BaseExpressionReader, node: exp.Expression) -> Expr:
    refuse_unknown_parts(reader.text, node, _BINARY_PARTS)
    _check_brackets(reader, node.this)
    asked = node.expression
    if isinstance(asked, exp.Null):
        return Call("is_null", (reader.lower(node.this),), BOOLEAN)
    if isinstance(asked, exp.Boolean):
        return Call(SAME, (reader.condition(node.this), _boolean_expr(reader, asked)), BOOLEAN)
    raise reader.text.mistake(node, "IS asks for NULL, TRUE or FALSE", how="compare other values with =, or with <=>")


def _check_brackets(reader: BaseExpressionReader, *operands: exp.Expression) -> None:
    """Spark and sqlglot bind a comparison within a comparison differently."""
    for each in operands:
        comparison = isinstance(each, _COMPARISONS) and not isinstance(each, exp.SubqueryPredicate)
        if comparison or _has_added_brackets(reader, each):
            raise reader.text.mistake(
                each,
                "a comparison within a comparison needs brackets",
                "without them it can be read in two ways",
                "write (a = b) = c, or a = (b = c)",
            )


def _has_added_brackets(reader: BaseExpressionReader, operand: exp.Expression) -> bool:
    """Whether sqlglot has put brackets around the right side of <=>, where the text has none."""
    above = operand.parent
    if not isinstance(operand, exp.Paren) or not isinstance(above, exp.NullSafeEQ | exp.NullSafeNEQ):
        return False
    if operand is above.this or not isinstance(operand.this, _COMPARISONS):
        return False
    sql = reader.text.sql
    begin, end = node_span(sql, operand.this)
    before = sql[node_span(sql, above.this)[1] : begin].lstrip(") ")
    deep, deepest = 0, 0
    for each in sql[begin:end]:
        deep += (each == "(") - (each == ")")
        deepest = min(deep, deepest)
    return before.count("(") + deepest <= 0


def _comparison_operator(name: str) -> NodeReader:
    def read(reader: BaseExpressionReader, node: exp.Expression) -> Expr:
        refuse_unknown_parts(reader.text, node, _BINARY_PARTS)
        _check_brackets(reader, node.this, node.expression)
        return reader.compare(node, node.this, node.expression, name)

    return read


def _distinct_from(reader: BaseExpressionReader, node: exp.Expression) -> Expr:
    return Call(NOT, (_comparison_operator(SAME)(reader, node),), BOOLEAN)


def _between_predicate(reader: BaseExpressionReader, node: exp.Expression) -> Expr:
    refuse_unknown_parts(reader.text, node, {"this", "low", "high"})
    _check_brackets(reader, node.this, node.args["low"], node.args["high"])
    low = reader.compare(node, node.this, node.args["low"], ">=")
    return Call(AND, (low, reader.compare(node, node.this, node.args["high"], "<=")), BOOLEAN)


def _in_predicate(reader: BaseExpressionReader, node: exp.Expression) -> Expr:
    refuse_unknown_parts(reader.text, node, {"this", "expressions"})
    if not node.expressions:
        raise reader.text.mistake(node, "IN needs a value at least")
    _check_brackets(reader, node.this)
    return Call("in", tuple(reader.lower_to_common_type([node.this, *node.expressions], "IN")), BOOLEAN)


def _arithmetic_operator(name: str) -> NodeReader:
    def read(reader: BaseExpressionReader, node: exp.Expression) -> Expr:
        # `typed` and `safe` of a division tell how the dialect divides: as the plan's operators do.
        refuse_unknown_parts(reader.text, node, {*_BINARY_PARTS, "typed", "safe"})
        return reader.arithmetic(node, name, reader.lower(node.this), reader.lower(node.expression))

    return read


def _interval_arithmetic(name: str, sign: int) -> NodeReader:
    plain = _arithmetic_operator(name)

    def read(reader: BaseExpressionReader, node: exp.Expression) -> Expr:
        moved, by = node.this, node.expression
        if sign > 0 and is_interval(moved):
            moved, by = by, moved
        if not is_interval(by):
            return plain(reader, node)
        refuse_unknown_parts(reader.text, node, _BINARY_PARTS)
        if is_interval(moved):
            raise unknown_construct(reader.text, exp.Interval())
        value = reader.lower(moved)
        if value.type != TIMESTAMP:
            how = "write date_add(d, 1)" if value.type == DATE else "a bigint time is shifted by a number"
            raise reader.text.mistake(node, f"{value.type} {name} INTERVAL: only a timestamp is shifted so", how=how)
        return Call(SHIFT, (value, Lit(sign * lower_interval(reader.text, by), BIGINT)), TIMESTAMP)

    return read


def _concatenation(reader: BaseExpressionReader, node: exp.Expression) -> Expr:
    refuse_unknown_parts(reader.text, node, {*_BINARY_PARTS, "safe"})
    left, right = reader.lower(node.this), reader.lower(node.expression)
    if (left.type, right.type) != (STRING, STRING):
        raise reader.text.mistake(
            node, f"{left.type} || {right.type}: || joins two strings", how="write CAST(x AS STRING)"
        )
    return Call("||", (left, right), STRING)


def _match_operator(name: str) -> NodeReader:
    def read(reader: BaseExpressionReader, node: exp.Expression) -> Expr:
        refuse_unknown_parts(reader.text, node, {*_BINARY_PARTS, "negate"})
        _check_brackets(reader, node.this, node.expression)
        found = lower_match(reader, node, name, reader.lower(node.this), reader.lower(node.expression))
        return Call(NOT, (found,), BOOLEAN) if node.args.get("negate") else found

    return read


def lower_match(reader: BaseExpressionReader, node: exp.Expression, name: str, value: Expr, pattern: Expr) -> Expr:
    """Whether a text matches a pattern: by like, ilike or rlike."""
    if (value.type, pattern.type) != (STRING, STRING):
        raise reader.text.mistake(
            node, f"{value.type} {name.upper()} {pattern.type}: it takes two strings", how="write CAST(x AS STRING)"
        )
    if name == "ilike":
        name, value, pattern = "like", Call("lower", (value,), STRING), Call("lower", (pattern,), STRING)
    return Call(name, (value, pattern), BOOLEAN)


def _case_expr(reader: BaseExpressionReader, node: exp.Expression) -> Expr:
    refuse_unknown_parts(reader.text, node, {"this", "ifs", "default"})
    given, conditions, values = node.args.get("this"), [], []
    for branch in node.args["ifs"]:
        refuse_unknown_parts(reader.text, branch, {"this", "true"})
        asked = branch.this
        conditions.append(reader.condition(asked) if given is None else reader.compare(branch, given, asked, EQUAL))
        values.append(branch.args["true"])
    default = node.args.get("default")
    read = reader.lower_to_common_type([*values, *([] if default is None else [default])], "CASE")
    otherwise = None if default is None else read.pop()
    return Case(tuple(zip(conditions, read, strict=True)), otherwise, read[0].type)


def _extract_expr(reader: BaseExpressionReader, node: exp.Expression) -> Expr:
    refuse_unknown_parts(reader.text, node, _BINARY_PARTS)
    name = node.name.lower()
    value = reader.lower(node.expression)
    function = FUNCTIONS.get(name) if name in EXTRACTED else None
    kind = function.result_type((value,)) if function is not None and function.accepts((value,)) else None
    if kind is None:
        how = (
            f"EXTRACT takes {', '.join(EXTRACTED).upper()} FROM a date or timestamp, the smaller ones from a timestamp"
        )
        raise reader.text.mistake(node, f"EXTRACT({node.name} FROM {value.type}) is not of the language", how=how)
    return Call(name, (value,), kind)


def _cast_expr(reader: BaseExpressionReader, node: exp.Expression) -> Expr:
    refuse_unknown_parts(reader.text, node, {"this", "to", "safe"})
    kind = lower_type(reader.text, node)
    if type(node) is exp.Cast:
        # So sqlglot reads TIMESTAMP '...' and DATE '...'; CAST is a TryCast of it, safe or not.
        if kind not in (TIMESTAMP, DATE) or not isinstance(node.this, exp.Literal):
            raise reader.text.mistake(
                node, "only TIMESTAMP and DATE stand before a text", how="write CAST('...' AS type)"
            )
        return lower_moment(reader.text, node, str(node.this.this), kind)
    value = reader.lower_or_null(node.this)
    return Lit(None, kind) if value is None else lower_cast(reader, node, value, kind, safe=bool(node.args.get("safe")))


def lower_cast(
    reader: BaseExpressionReader, node: exp.Expression, value: Expr, kind: ColumnType, *, safe: bool = False
) -> Expr:
    """The value converted to a type, if that can be meant."""
    if not castable(value.type, kind):
        raise reader.text.mistake(
            node,
            f"{value.type} is not converted to {kind}",
            "a number of seconds, or of microseconds, may be meant",
            "write timestamp_micros(n), timestamp_seconds(n), unix_micros(ts) or unix_seconds(ts)",
        )
    return Cast(value, kind, safe)


NODE_READERS: Mapping[type[exp.Expression], NodeReader] = {
    exp.Column: _column_expr,
    exp.Literal: _literal_expr,
    exp.RawString: _raw_text,
    exp.Boolean: _boolean_expr,
    exp.Neg: _negated_value,
    exp.And: _logical_operator(AND),
    exp.Or: _logical_operator(OR),
    exp.Not: _not_predicate,
    exp.Is: _is_predicate,
    exp.EQ: _comparison_operator(EQUAL),
    exp.NEQ: _comparison_operator("<>"),
    exp.LT: _comparison_operator("<"),
    exp.LTE: _comparison_operator("<="),
    exp.GT: _comparison_operator(">"),
    exp.GTE: _comparison_operator(">="),
    exp.NullSafeEQ: _comparison_operator(SAME),
    exp.NullSafeNEQ: _distinct_from,
    exp.Between: _between_predicate,
    exp.In: _in_predicate,
    exp.Add: _interval_arithmetic("+", 1),
    exp.Sub: _interval_arithmetic("-", -1),
    exp.Mul: _arithmetic_operator("*"),
    exp.Div: _arithmetic_operator("/"),
    exp.Mod: _arithmetic_operator("%"),
    exp.IntDiv: _arithmetic_operator("div"),
    exp.DPipe: _concatenation,
    exp.Like: _match_operator("like"),
    exp.ILike: _match_operator("ilike"),
    exp.RegexpLike: _match_operator("rlike"),
    exp.Case: _case_expr,
    exp.Extract: _extract_expr,
    exp.Cast: _cast_expr,
    exp.TryCast: _cast_expr,
}
