"""Aggregate functions: their names, what they take and what they give."""

from __future__ import annotations

from sqlglot import exp

from errata.language.expr import BIGINT, DOUBLE, Expr
from errata.language.nodes import Aggregate
from errata.language.plan import Plan
from errata.language.reading.expressions import Expressions
from errata.language.reading.mistakes import Text
from errata.language.times import Own, timing
from errata.model.columns import MAX_PRECISION, ColumnType, Kind

NAMES = {
    **{name: name for name in ("count", "sum", "avg", "min", "max", "stddev", "first", "last")},
    "mean": "avg",
    "stddev_samp": "stddev",
    "std": "stddev",
    "first_value": "first",
    "last_value": "last",
}
"""The aggregate functions by the names that Spark knows them by."""
_NUMBERS = (Kind.INT, Kind.BIGINT, Kind.FLOAT, Kind.DOUBLE, Kind.DECIMAL)
_WHOLE = (Kind.INT, Kind.BIGINT)


def is_aggregate(node: exp.Expression) -> bool:
    """Whether it is a call of an aggregate function."""
    return isinstance(node, exp.Anonymous) and node.name.lower() in NAMES


def aggregate_type(function: str, argument: ColumnType | None) -> ColumnType | None:
    """The type of an aggregate of an argument of a type; None if there is no such."""
    if function == "count":
        return BIGINT
    if argument is None or function in ("min", "max", "first", "last"):
        return argument
    if argument.kind not in _NUMBERS:
        return None
    if argument.kind is Kind.DECIMAL and function in ("sum", "avg"):
        more = (10, 0) if function == "sum" else (4, 4)
        precision, scale = argument.precision + more[0], argument.scale + more[1]
        return ColumnType(Kind.DECIMAL, min(precision, MAX_PRECISION), min(scale, MAX_PRECISION))
    return BIGINT if function == "sum" and argument.kind in _WHOLE else DOUBLE


def lower_aggregate(text: Text, node: exp.Expression, expressions: Expressions, plan: Plan) -> Aggregate:
    """An aggregate over the rows of a node."""
    written, function = node.name.lower(), NAMES[node.name.lower()]
    inner, distinct = _argument(text, node, function)
    argument = None if inner is None else expressions.lower(inner)
    kind = aggregate_type(function, None if argument is None else argument.type)
    if kind is None:
        raise _untyped(text, node, written, argument)
    if function in ("first", "last") and timing(plan).own is Own.NONE:
        raise text.mistake(
            node,
            f"{written}() has no order to go by",
            "the rows say what holds, not what happened: they have no time of their own",
            f"write min() or max(), or take {written}() of the rows below, where they happen",
        )
    return Aggregate(function, argument, kind, distinct)


def _untyped(text: Text, node: exp.Expression, written: str, argument: Expr | None) -> Exception:
    if argument is None:
        return text.mistake(node, f"{written}(*) means nothing", how=f"write count(*), or {written}(column)")
    return text.mistake(
        node, f"{written} takes a number, and this is a {argument.type}", how="write CAST(... AS double) if it is meant"
    )


def _argument(text: Text, node: exp.Expression, function: str) -> tuple[exp.Expression | None, bool]:
    """The only argument, None for *; and whether each value counts once."""
    written, arguments = node.name.lower(), node.expressions
    if len(arguments) != 1:
        why = "NULLs are values of rows, too" if function in ("first", "last") and len(arguments) == 2 else None
        raise text.mistake(node, f"{written} takes one argument", why, f"write {written}(column)")
    only = arguments[0]
    if isinstance(only, exp.Star):
        return None, False
    if not isinstance(only, exp.Distinct):
        return only, False
    if function in ("min", "max"):
        return _once(text, only), False
    if function != "count":
        raise text.mistake(
            node,
            f"{written}(DISTINCT ...) is not part of the language",
            None,
            "remove the duplicates first: FROM (SELECT DISTINCT ... FROM ...) AS a",
        )
    return _once(text, only), True


def _once(text: Text, node: exp.Distinct) -> exp.Expression:
    """What stands after DISTINCT."""
    if node.args.get("on") is not None or len(node.expressions) != 1:
        raise text.mistake(
            node, "one value is counted at a time", None, "write count(*) FROM (SELECT DISTINCT a, b FROM ...) AS c"
        )
    only: exp.Expression = node.expressions[0]
    return only
