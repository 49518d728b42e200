"""Calls of functions: by their names, as Spark has them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from sqlglot import exp

from errata.language.expr import BOOLEAN, DATE, EQUAL, TIMESTAMP, Call, Expr, Lit
from errata.language.functions import ALIASES, FUNCTIONS, WITH_COMMON_TYPE, Function, similar
from errata.language.reading.literals import TYPES
from errata.language.reading.mistakes import LanguageError
from errata.language.reading.operators import converted, matched, negated
from errata.language.reading.parse import only_known
from errata.language.reading.reader import Reader
from errata.language.reading.refused import ELSEWHERE, NOT_DETERMINISTIC, not_deterministic
from errata.language.widening import Family, family
from errata.model.columns import ColumnType

Written = Callable[[Reader, exp.Expression, list[exp.Expression]], Expr]


def call(reader: Reader, node: exp.Expression) -> Expr:
    """What the call of a function means."""
    only_known(reader.text, node, {"this", "expressions"})
    name = node.name.lower()
    name = ALIASES.get(name, name)
    written = _WRITTEN.get(name)
    if written is not None:
        least, most, read = written
        if not least <= len(node.expressions) <= (most or len(node.expressions)):
            raise reader.text.mistake(node, f"{node.name}() takes {_counted(least, most)}, not {len(node.expressions)}")
        return read(reader, node, node.expressions)
    function = FUNCTIONS.get(name)
    if function is None:
        raise _unknown(reader, node, name)
    return _plain(reader, node, name, function)


def _counted(least: int, most: int) -> str:
    if most == least:
        return "1 argument" if least == 1 else f"{least} arguments"
    return f"{least} arguments or more" if most == 0 else f"{least} to {most} arguments"


def _plain(reader: Reader, node: exp.Expression, name: str, function: Function) -> Expr:
    args = tuple(reader.lower(each) for each in node.expressions)
    if name == "date_trunc" and args and isinstance(args[0], Lit) and isinstance(args[0].value, str):
        args = (Lit(args[0].value.lower(), args[0].type), *args[1:])
    kind = function.gives(args) if function.accepts(args) else None
    if kind is None:
        given = ", ".join(str(each.type) for each in args)
        raise reader.text.mistake(
            node,
            f"{name}({given}) is not a function of the language",
            f"it is {function.usage(name)}",
            "write CAST(x AS type) to say what is meant" if args else None,
        )
    return Call(name, args, kind)


def _unknown(reader: Reader, node: exp.Expression, name: str) -> LanguageError:
    if name in NOT_DETERMINISTIC:
        return reader.text.mistake(node, *not_deterministic(name))
    if name in ELSEWHERE:
        return reader.text.mistake(node, *ELSEWHERE[name])
    likely = similar(name)
    how = f"did you mean {' or '.join(likely)}?" if likely else "the functions are in the documentation of the language"
    return reader.text.mistake(node, f"unknown function {node.name}", how=how)


def _of_common_type(name: str) -> Written:
    def read(reader: Reader, _node: exp.Expression, args: list[exp.Expression]) -> Expr:
        together = reader.together(args, f"{name}()")
        return Call(name, tuple(together), together[0].type)

    return read


def _if(reader: Reader, _node: exp.Expression, args: list[exp.Expression]) -> Expr:
    then, otherwise = reader.together(args[1:], "if()")
    return Call("if", (reader.condition(args[0]), then, otherwise), then.type)


def _nullif(reader: Reader, node: exp.Expression, args: list[exp.Expression]) -> Expr:
    compared = reader.compare(node, args[0], args[1], EQUAL)
    if not isinstance(compared, Call):
        raise TypeError("a comparison is a call")
    return Call("nullif", compared.args, compared.args[0].type)


def _asked(name: str) -> Written:
    def read(reader: Reader, _node: exp.Expression, args: list[exp.Expression]) -> Expr:
        return Call(name, (reader.lower(args[0]),), BOOLEAN)

    return read


def _matched(name: str) -> Written:
    def read(reader: Reader, node: exp.Expression, args: list[exp.Expression]) -> Expr:
        return matched(reader, node, name, reader.lower(args[0]), reader.lower(args[1]))

    return read


def _converted(kind: ColumnType) -> Written:
    def read(reader: Reader, node: exp.Expression, args: list[exp.Expression]) -> Expr:
        value = reader.perhaps(args[0])
        return Lit(None, kind) if value is None else converted(reader, node, value, kind)

    return read


def _positive(reader: Reader, node: exp.Expression, args: list[exp.Expression]) -> Expr:
    value = reader.lower(args[0])
    if family(value.type) is not Family.NUMBER:
        raise reader.text.mistake(node, f"+ {value.type}: only a number has a sign")
    return value


_WRITTEN: Mapping[str, tuple[int, int, Written]] = {
    **{name: (1 if name == "coalesce" else 2, 0, _of_common_type(name)) for name in WITH_COMMON_TYPE[:3]},
    "if": (3, 3, _if),
    "nullif": (2, 2, _nullif),
    "is_null": (1, 1, _asked("is_null")),
    "is_not_null": (1, 1, _asked("is_not_null")),
    **{name: (2, 2, _matched(name)) for name in ("like", "ilike", "rlike")},
    "%": (2, 2, lambda reader, node, args: reader.calculate(node, "%", reader.lower(args[0]), reader.lower(args[1]))),
    "neg": (1, 1, lambda reader, node, args: negated(reader, node, reader.lower(args[0]))),
    "positive": (1, 1, _positive),
    **{name: (1, 1, _converted(kind)) for name, kind in TYPES.items()},
    "to_date": (1, 1, _converted(DATE)),
    "to_timestamp": (1, 1, _converted(TIMESTAMP)),
}
"""Functions that are read in ways of their own: the fewest and the most arguments (0: any number), and how."""
