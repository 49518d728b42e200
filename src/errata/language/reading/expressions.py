"""Calls of functions and aggregates, and the reader of expressions that knows all kinds of node.

Functions have Spark's names (`functions.FUNCTIONS`); a few are read in their own way. Aggregates are only read where a
group is (`group_clause`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from sqlglot import exp

from errata.language.coercion import TypeFamily, type_family
from errata.language.expr import BIGINT, BOOLEAN, DATE, DOUBLE, EQUAL, TIMESTAMP, Call, Expr, Lit
from errata.language.functions import ALIASES, FUNCTIONS, WITH_COMMON_TYPE, Function, similar_names
from errata.language.nodes import Aggregate
from errata.language.plan import Plan
from errata.language.reading.literals import TYPES_BY_NAME
from errata.language.reading.mistakes import (
    NONDETERMINISTIC_FUNCTIONS,
    REFUSED_FUNCTIONS,
    LanguageError,
    SqlText,
    nondeterministic_refusal,
)
from errata.language.reading.operators import NODE_READERS, lower_cast, lower_match, negate
from errata.language.reading.parser import refuse_unknown_parts, unknown_construct
from errata.language.reading.reader import BaseExpressionReader, coerce_expr
from errata.language.times import OwnTime, row_times
from errata.model.columns import FLOATING_KINDS, MAX_PRECISION, WHOLE_KINDS, ColumnType, TypeKind

CallReader = Callable[[BaseExpressionReader, exp.Expression, list[exp.Expression]], Expr]


def lower_call(reader: BaseExpressionReader, node: exp.Expression) -> Expr:
    """The expression for the call of a function."""
    refuse_unknown_parts(reader.text, node, {"this", "expressions"})
    name = node.name.lower()
    name = ALIASES.get(name, name)
    written = _CALL_READERS.get(name)
    if written is not None:
        least, most, read = written
        if not least <= len(node.expressions) <= (most or len(node.expressions)):
            raise reader.text.mistake(
                node, f"{node.name}() takes {_argument_count(least, most)}, not {len(node.expressions)}"
            )
        return read(reader, node, node.expressions)
    function = FUNCTIONS.get(name)
    if function is None:
        raise _unknown_function(reader, node, name)
    return _plain_call(reader, node, name, function)


def _argument_count(least: int, most: int) -> str:
    if most == least:
        return "1 argument" if least == 1 else f"{least} arguments"
    return f"{least} arguments or more" if most == 0 else f"{least} to {most} arguments"


def _plain_call(reader: BaseExpressionReader, node: exp.Expression, name: str, function: Function) -> Expr:
    args = tuple(reader.lower(each) for each in node.expressions)
    if name == "date_trunc" and args and isinstance(args[0], Lit) and isinstance(args[0].value, str):
        args = (Lit(args[0].value.lower(), args[0].type), *args[1:])
    kind = function.result_type(args) if function.accepts(args) else None
    if kind is None:
        given = ", ".join(str(each.type) for each in args)
        raise reader.text.mistake(
            node,
            f"{name}({given}) is not a function of the language",
            f"it is {function.usage(name)}",
            "write CAST(x AS type) to say what is meant" if args else None,
        )
    return Call(name, args, kind)


def _unknown_function(reader: BaseExpressionReader, node: exp.Expression, name: str) -> LanguageError:
    if name in NONDETERMINISTIC_FUNCTIONS:
        return reader.text.mistake(node, *nondeterministic_refusal(name))
    if name in REFUSED_FUNCTIONS:
        return reader.text.mistake(node, *REFUSED_FUNCTIONS[name])
    likely = similar_names(name)
    how = f"did you mean {' or '.join(likely)}?" if likely else "the functions are in the documentation of the language"
    return reader.text.mistake(node, f"unknown function {node.name}", how=how)


def _common_type_call(name: str) -> CallReader:
    def read(reader: BaseExpressionReader, _node: exp.Expression, args: list[exp.Expression]) -> Expr:
        together = reader.lower_to_common_type(args, f"{name}()")
        return Call(name, tuple(together), together[0].type)

    return read


def _if_call(reader: BaseExpressionReader, _node: exp.Expression, args: list[exp.Expression]) -> Expr:
    then, otherwise = reader.lower_to_common_type(args[1:], "if()")
    return Call("if", (reader.condition(args[0]), then, otherwise), then.type)


def _nullif_call(reader: BaseExpressionReader, node: exp.Expression, args: list[exp.Expression]) -> Expr:
    compared = reader.compare(node, args[0], args[1], EQUAL)
    if not isinstance(compared, Call):
        raise TypeError("a comparison is a call")
    return Call("nullif", compared.args, compared.args[0].type)


def _predicate_call(name: str) -> CallReader:
    def read(reader: BaseExpressionReader, _node: exp.Expression, args: list[exp.Expression]) -> Expr:
        return Call(name, (reader.lower(args[0]),), BOOLEAN)

    return read


def _match_call(name: str) -> CallReader:
    def read(reader: BaseExpressionReader, node: exp.Expression, args: list[exp.Expression]) -> Expr:
        return lower_match(reader, node, name, reader.lower(args[0]), reader.lower(args[1]))

    return read


def _conversion_call(kind: ColumnType) -> CallReader:
    def read(reader: BaseExpressionReader, node: exp.Expression, args: list[exp.Expression]) -> Expr:
        value = reader.lower_or_null(args[0])
        return Lit(None, kind) if value is None else lower_cast(reader, node, value, kind)

    return read


def _positive_call(reader: BaseExpressionReader, node: exp.Expression, args: list[exp.Expression]) -> Expr:
    value = reader.lower(args[0])
    if type_family(value.type) is not TypeFamily.NUMBER:
        raise reader.text.mistake(node, f"+ {value.type}: only a number has a sign")
    return value


_CALL_READERS: Mapping[str, tuple[int, int, CallReader]] = {
    **{name: (1 if name == "coalesce" else 2, 0, _common_type_call(name)) for name in WITH_COMMON_TYPE[:3]},
    "if": (3, 3, _if_call),
    "nullif": (2, 2, _nullif_call),
    "is_null": (1, 1, _predicate_call("is_null")),
    "is_not_null": (1, 1, _predicate_call("is_not_null")),
    **{name: (2, 2, _match_call(name)) for name in ("like", "ilike", "rlike")},
    "%": (2, 2, lambda reader, node, args: reader.arithmetic(node, "%", reader.lower(args[0]), reader.lower(args[1]))),
    "neg": (1, 1, lambda reader, node, args: negate(reader, node, reader.lower(args[0]))),
    "positive": (1, 1, _positive_call),
    **{name: (1, 1, _conversion_call(kind)) for name, kind in TYPES_BY_NAME.items()},
    "to_date": (1, 1, _conversion_call(DATE)),
    "to_timestamp": (1, 1, _conversion_call(TIMESTAMP)),
}
"""Functions with a reader of their own: the fewest and the most arguments (0: any number), and the reader."""


# SQL expressions to expressions of a plan; every type is checked.

__all__ = ["ExpressionReader", "coerce_expr"]


class ExpressionReader(BaseExpressionReader):
    """Reads the expressions of one place in a query. `resolve` finds columns, or raises that there is none; `special`
    is asked first about each node, and returns None for nodes that it does not know: it reads aggregates and window
    columns.

    `lower` reads an expression, `condition` one that must be a boolean, `together` several that must be of one type,
    and `perhaps` one that may be a NULL without a type, for which it returns None.
    """

    def lower_node(self, node: exp.Expression) -> Expr:
        """The expression for a node, by its kind."""
        if isinstance(node, exp.Anonymous):
            return lower_call(self, node)
        handler = NODE_READERS.get(type(node))
        if handler is None:
            raise unknown_construct(self.text, node)
        return handler(self, node)


# Aggregate functions: names, argument types and result types.

AGGREGATE_NAMES = {
    **{name: name for name in ("count", "sum", "avg", "min", "max", "stddev", "first", "last")},
    "mean": "avg",
    "stddev_samp": "stddev",
    "std": "stddev",
    "first_value": "first",
    "last_value": "last",
}
"""The aggregate functions by Spark's names for them."""
_NUMBER_KINDS = (*WHOLE_KINDS, *FLOATING_KINDS, TypeKind.DECIMAL)


def is_aggregate(node: exp.Expression) -> bool:
    """Whether it is a call of an aggregate function."""
    return isinstance(node, exp.Anonymous) and node.name.lower() in AGGREGATE_NAMES


def aggregate_type(function: str, argument: ColumnType | None) -> ColumnType | None:
    """The result type of an aggregate for an argument type; None if it does not accept it."""
    if function == "count":
        return BIGINT
    if argument is None or function in ("min", "max", "first", "last"):
        return argument
    if argument.kind not in _NUMBER_KINDS:
        return None
    if argument.kind is TypeKind.DECIMAL and function in ("sum", "avg"):
        more = (10, 0) if function == "sum" else (4, 4)
        precision, scale = argument.precision + more[0], argument.scale + more[1]
        return ColumnType(TypeKind.DECIMAL, min(precision, MAX_PRECISION), min(scale, MAX_PRECISION))
    return BIGINT if function == "sum" and argument.kind in WHOLE_KINDS else DOUBLE


def lower_aggregate(text: SqlText, node: exp.Expression, expressions: ExpressionReader, plan: Plan) -> Aggregate:
    """An aggregate over the rows of a node."""
    written, function = node.name.lower(), AGGREGATE_NAMES[node.name.lower()]
    inner, distinct = _aggregate_argument(text, node, function)
    argument = None if inner is None else expressions.lower(inner)
    kind = aggregate_type(function, None if argument is None else argument.type)
    if kind is None:
        raise _type_mistake(text, node, written, argument)
    if function in ("first", "last") and row_times(plan).own is OwnTime.NONE:
        raise text.mistake(
            node,
            f"{written}() has no order to go by",
            "the rows say what holds, not what happened: they have no time of their own",
            f"write min() or max(), or take {written}() of the rows below, where they happen",
        )
    return Aggregate(function, argument, kind, distinct)


def _type_mistake(text: SqlText, node: exp.Expression, written: str, argument: Expr | None) -> Exception:
    if argument is None:
        return text.mistake(node, f"{written}(*) means nothing", how=f"write count(*), or {written}(column)")
    return text.mistake(
        node, f"{written} takes a number, and this is a {argument.type}", how="write CAST(... AS double) if it is meant"
    )


def _aggregate_argument(text: SqlText, node: exp.Expression, function: str) -> tuple[exp.Expression | None, bool]:
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
        return _distinct_argument(text, only), False
    if function != "count":
        raise text.mistake(
            node,
            f"{written}(DISTINCT ...) is not part of the language",
            None,
            "remove the duplicates first: FROM (SELECT DISTINCT ... FROM ...) AS a",
        )
    return _distinct_argument(text, only), True


def _distinct_argument(text: SqlText, node: exp.Distinct) -> exp.Expression:
    """The arguments after DISTINCT."""
    if node.args.get("on") is not None or len(node.expressions) != 1:
        raise text.mistake(
            node, "one value is counted at a time", None, "write count(*) FROM (SELECT DISTINCT a, b FROM ...) AS c"
        )
    only: exp.Expression = node.expressions[0]
    return only
