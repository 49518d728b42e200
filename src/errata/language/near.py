"""Whether the near engine gives for a plan what Spark gives: what stands in the way, if anything does.

Functions tell it of themselves, in `functions`; operators, conversions and aggregates are told of here. Whatever is
said, either way, is compared with Spark by tests/engine/test_differential.py. `python -m errata.language.near` prints
it as docs/near.md has it.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import assert_never

from errata.language.expr import AND, NOT, OR, SAME, SHIFT, Call, Case, Cast, Expr, Lit, Ref, children, walk
from errata.language.functions import (
    DECIMALS,
    FUNCTIONS,
    LONG_DIVISION,
    OVER_DIGITS,
    SIGNED_DIGITS,
    Near,
    Unlike,
)
from errata.language.functions import SAME as ALIKE
from errata.language.nodes import Aggregate, Group
from errata.language.partial import AVERAGED
from errata.language.plan import Plan, fact
from errata.language.plan import walk as nodes
from errata.language.tree import aggregate_text, expressions, text
from errata.language.widening import common_type
from errata.model.columns import ColumnType, Kind

_FLOATING = (Kind.FLOAT, Kind.DOUBLE)

_HASHED = 18
"""Decimals of more digits are hashed by their bytes, which the engines lay out differently."""


def _without_common_type(call: Expr) -> bool:
    return common_type([each.type for each in children(call)]) is None


def _pattern(call: Expr) -> str | None:
    """The constant that a text is compared with; of ILIKE the one that it is made of."""
    pattern = children(call)[1]
    if isinstance(pattern, Call) and pattern.name == "lower":
        pattern = pattern.args[0]
    return pattern.value if isinstance(pattern, Lit) and isinstance(pattern.value, str) else None


_TOLD = r"[A-Za-z0-9 _:;,@#/<>=!\"'~%-]"
_SET = r"\[\^?(?:[A-Za-z0-9]-[A-Za-z0-9]|[A-Za-z0-9 _])+\]"
_TIMES = r"(?:[*+?]|\{\d{1,3}(?:,\d{0,3})?\})?"
_PLAIN_PATTERN = re.compile(rf"(?:\^|\||\(|\){_TIMES}|(?:{_TOLD}|\\[.*+?(){{}}|^$\[\]/-]|{_SET}){_TIMES})*")
"""Regular expressions that Java and Rust take for the same."""


def _is_plain(pattern: str | None) -> bool:
    if pattern is None or not _PLAIN_PATTERN.fullmatch(pattern):
        return False
    try:
        re.compile(pattern)
    except re.error:
        return False
    return True


def _breaks_off(pattern: str | None) -> bool:
    """Whether a backslash stands before what needs none: Spark fails then."""
    return pattern is None or re.fullmatch(r"(?:[^\\]|\\[\\%_])*", pattern, re.DOTALL) is None


_COMPARED = Near((Unlike("decimals that no type holds together", _without_common_type),))
_EXACT = Near((OVER_DIGITS,))
_NULL_BY_ZERO = "NULL divided by 0"

OPERATORS: Mapping[str, Near] = {
    **dict.fromkeys(("+", "-", "*"), _EXACT),
    "neg": Near((SIGNED_DIGITS,)),
    "/": Near((LONG_DIVISION,), _NULL_BY_ZERO),
    "%": Near((OVER_DIGITS,), _NULL_BY_ZERO),
    "div": Near((DECIMALS,), _NULL_BY_ZERO),
    **dict.fromkeys(("=", "<>", "<", "<=", ">", ">=", SAME, "nullif"), _COMPARED),
    **dict.fromkeys((AND, OR, NOT, "is_null", "is_not_null", "in", "||", SHIFT), ALIKE),
    **dict.fromkeys(("coalesce", "greatest", "least", "if"), ALIKE),
    "like": Near((Unlike("a pattern that is no constant, or that Spark refuses", lambda x: _breaks_off(_pattern(x))),)),
    "rlike": Near(
        (Unlike("patterns of more than letters, sets, groups, ^ | * + ? {n}", lambda x: not _is_plain(_pattern(x))),)
    ),
}
"""Operators, and functions whose arguments are brought to one type."""


def _converts(sources: Callable[[ColumnType], bool], targets: Callable[[ColumnType], bool]) -> Callable[[Expr], bool]:
    return lambda expr: isinstance(expr, Cast) and sources(expr.arg.type) and targets(expr.type)


def _safely(conversion: Callable[[Expr], bool]) -> Callable[[Expr], bool]:
    return lambda expr: isinstance(expr, Cast) and expr.safe and conversion(expr)


def _of(*kinds: Kind) -> Callable[[ColumnType], bool]:
    return lambda kind: kind.kind in kinds


_DECIMAL, _TEXT, _BOOLEAN, _FLOATS = _of(Kind.DECIMAL), _of(Kind.STRING), _of(Kind.BOOLEAN), _of(*_FLOATING)

CONVERSIONS = Near(
    (
        Unlike("string to decimal", _converts(_TEXT, _DECIMAL)),
        Unlike("float and double to string", _converts(_FLOATS, _TEXT)),
        Unlike("float and double to decimal", _converts(_FLOATS, _DECIMAL)),
        Unlike("boolean to decimal", _converts(_BOOLEAN, _DECIMAL)),
        Unlike("decimal to boolean", _converts(_DECIMAL, _BOOLEAN)),
        Unlike(
            "decimal of more than 15 digits to int: Spark goes by way of a double",
            _converts(lambda kind: kind.kind is Kind.DECIMAL and kind.precision > 15 and kind.scale > 0, _of(Kind.INT)),
        ),
        Unlike("string to float, double and date by TRY_CAST", _safely(_converts(_TEXT, _of(*_FLOATING, Kind.DATE)))),
        Unlike("float and double to bigint by TRY_CAST", _safely(_converts(_FLOATS, _of(Kind.BIGINT)))),
    ),
    "texts such as '1D' as numbers, dates with more behind them, 2^63 as a bigint, times after the year 262142",
)
"""CAST and TRY_CAST."""

_LONG_SUM = Unlike(
    "decimals of more than 28 digits",
    lambda argument: argument.type.kind is Kind.DECIMAL and argument.type.precision > 28,
)

_LONG_AVERAGE = Unlike(
    f"decimals of more than {AVERAGED} digits",
    lambda argument: argument.type.kind is Kind.DECIMAL and argument.type.precision > AVERAGED,
)

AGGREGATES: Mapping[str, Near] = {
    **dict.fromkeys(("count", "min", "max", "stddev", "first", "last"), ALIKE),
    "sum": Near((_LONG_SUM,)),
    "avg": Near((_LONG_AVERAGE,)),
}
"""Aggregates by their arguments. Those of floating point numbers are the same but for the order of adding up."""


@fact
def obstacle(plan: Plan) -> str | None:
    """Why the near engine cannot be used for a plan; None: it gives what Spark gives."""
    return next(_obstacles(plan), None)


def hash_obstacle(plan: Plan) -> str | None:
    """Why hashes of a plan's keys, as stored lineage keeps them, are not the same near."""
    for name in plan.key:
        kind = plan.types[name]
        if kind.kind in _FLOATING or (kind.kind is Kind.DECIMAL and kind.precision > _HASHED):
            return f"the hash of {name}, a {kind}, is not the same near"
    return None


def _obstacles(plan: Plan) -> Iterator[str]:
    for node in nodes(plan):
        for expr in expressions(node):
            yield from (f"{text(part)} is not the same near: {why.words}" for part, why in unlike(expr))
        if isinstance(node, Group):
            for aggregate in node.aggregates:
                if (why := _of_aggregate(aggregate)) is not None:
                    yield f"{aggregate_text(aggregate)} is not the same near: {why.words}"


def unlike(expr: Expr) -> Iterator[tuple[Expr, Unlike]]:
    """The parts of an expression that are not the same near, and why."""
    for part in walk(expr):
        known = proof(part)
        why = None if known is None else known.obstacle(part)
        if why is not None:
            yield part, why


def proof(expr: Expr) -> Near | None:
    """What is known of an operator, a function or a conversion; None of columns, constants and CASE."""
    match expr:
        case Call(name=name):
            return FUNCTIONS[name].near if name in FUNCTIONS else OPERATORS[name]
        case Cast():
            return CONVERSIONS
        case Case():
            return ALIKE
        case Ref() | Lit():
            return None
    assert_never(expr)


def _of_aggregate(aggregate: Aggregate) -> Unlike | None:
    if aggregate.argument is None:
        return None
    return AGGREGATES[aggregate.function].obstacle(aggregate.argument)


_PAGE = """# What the near engine does

Small work is done by the near engine, beside the process, and large work by Spark. Both give the same answers, for near
does only what is known to be the same: this page lists it, and `tests/engine/test_differential.py` compares each line
with Spark, over values at the edges of all types. What is not the same goes to Spark, whatever the size. So does what
near fails at: then the work is done again by Spark, and what Spark says counts.

Sums, averages and standard deviations of floating point numbers are the same within 1e-9: the order in which numbers
are added up tells in the last bits, in Spark, too. Beyond 1e150, where squares are infinite, the order tells more.

The page is what `python -m errata.language.near` prints.
"""


def page() -> str:
    """The table for people, in Markdown."""
    parts = (
        ("Operators", OPERATORS),
        ("Conversions", {"CAST, TRY_CAST": CONVERSIONS}),
        ("Functions", {name: each.near for name, each in FUNCTIONS.items()}),
        ("Aggregates", AGGREGATES),
    )
    return "\n".join([_PAGE, *(_table(title, entries) for title, entries in parts)])


def _table(title: str, entries: Mapping[str, Near]) -> str:
    rows = [f"| {_written(name)} | {_told(near)} | {near.fails or ''} |" for name, near in sorted(entries.items())]
    head = f"## {title}\n\n| | goes to Spark | fails near, and is done again by Spark |\n|---|---|---|\n"
    return head + "".join(f"{row}\n" for row in rows)


_WORDS = {"neg": "- (sign)", "is_null": "IS NULL", "is_not_null": "IS NOT NULL", SHIFT: "timestamp + INTERVAL"}


def _written(name: str) -> str:
    words = _WORDS.get(name, name.upper() if name in (AND, OR, NOT, "in", "like", "rlike", "div") else name)
    return f"`{words}`".replace("|", "\\|")


def _told(near: Near) -> str:
    return "; ".join(each.words for each in near.unlike).replace("|", "\\|")


if __name__ == "__main__":
    sys.stdout.write(page())
