"""Whether the near engine gives the same result as Spark for a plan, and what prevents it.

The support of functions is declared in `functions`; that of operators, conversions and aggregates here. Every
statement, in either direction, is compared with Spark by tests/engine/test_differential.py. `python -m
errata.language.near_support` prints the table as docs/near.md has it.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import assert_never

from errata.language.coercion import common_type
from errata.language.expr import AND, NOT, OR, SAME, SHIFT, Call, Case, Cast, Expr, Lit, Ref, children, walk_expr
from errata.language.functions import (
    DECIMALS,
    FUNCTIONS,
    LONG_DIVISION,
    OVER_DIGITS,
    SIGNED_DIGITS,
    NearDifference,
    NearSupport,
)
from errata.language.functions import SAME_ON_NEAR as ALIKE
from errata.language.incremental import MAX_AVERAGE_DIGITS
from errata.language.nodes import Aggregate, Group
from errata.language.plan import Plan, cached_fact
from errata.language.plan import walk_plan as nodes
from errata.language.plan_text import aggregate_text, expr_text, operator_exprs
from errata.model.columns import FLOATING_KINDS, ColumnType, TypeKind

_HASHED = 18
"""Digits of a decimal above which it is hashed by its bytes, which the engines lay out differently."""


def _has_no_common_type(call: Expr) -> bool:
    return common_type([each.type for each in children(call)]) is None


def _constant_pattern(call: Expr) -> str | None:
    """The constant pattern that a text is matched with; of ILIKE the one that it is made of."""
    pattern = children(call)[1]
    if isinstance(pattern, Call) and pattern.name == "lower":
        pattern = pattern.args[0]
    return pattern.value if isinstance(pattern, Lit) and isinstance(pattern.value, str) else None


_SAFE_CHARACTER = r"[A-Za-z0-9 _:;,@#/<>=!\"'~%-]"
_CHARACTER_SET = r"\[\^?(?:[A-Za-z0-9]-[A-Za-z0-9]|[A-Za-z0-9 _])+\]"
_QUANTIFIER = r"(?:[*+?]|\{\d{1,3}(?:,\d{0,3})?\})?"
_PLAIN_PATTERN = re.compile(
    rf"(?:\^|\||\(|\){_QUANTIFIER}|(?:{_SAFE_CHARACTER}|\\[.*+?(){{}}|^$\[\]/-]|{_CHARACTER_SET}){_QUANTIFIER})*"
)
"""Regular expressions that mean the same to Java and Rust."""


def _is_plain(pattern: str | None) -> bool:
    if pattern is None or not _PLAIN_PATTERN.fullmatch(pattern):
        return False
    try:
        re.compile(pattern)
    except re.error:
        return False
    return True


def _has_bad_escape(pattern: str | None) -> bool:
    """Whether a backslash stands before a character that needs none: Spark fails then."""
    return pattern is None or re.fullmatch(r"(?:[^\\]|\\[\\%_])*", pattern, re.DOTALL) is None


_COMPARISON = NearSupport((NearDifference("decimals that no type holds together", _has_no_common_type),))
_EXACT = NearSupport((OVER_DIGITS,))
_NULL_BY_ZERO = "NULL divided by 0"

OPERATORS: Mapping[str, NearSupport] = {
    **dict.fromkeys(("+", "-", "*"), _EXACT),
    "neg": NearSupport((SIGNED_DIGITS,)),
    "/": NearSupport((LONG_DIVISION,), _NULL_BY_ZERO),
    "%": NearSupport((OVER_DIGITS,), _NULL_BY_ZERO),
    "div": NearSupport((DECIMALS,), _NULL_BY_ZERO),
    **dict.fromkeys(("=", "<>", "<", "<=", ">", ">=", SAME, "nullif"), _COMPARISON),
    **dict.fromkeys((AND, OR, NOT, "is_null", "is_not_null", "in", "||", SHIFT), ALIKE),
    **dict.fromkeys(("coalesce", "greatest", "least", "if"), ALIKE),
    "like": NearSupport(
        (
            NearDifference(
                "a pattern that is no constant, or that Spark refuses", lambda x: _has_bad_escape(_constant_pattern(x))
            ),
        )
    ),
    "rlike": NearSupport(
        (
            NearDifference(
                "patterns of more than letters, sets, groups, ^ | * + ? {n}",
                lambda x: not _is_plain(_constant_pattern(x)),
            ),
        )
    ),
}
"""Operators, and functions whose arguments are converted to one type."""


def _converts(sources: Callable[[ColumnType], bool], targets: Callable[[ColumnType], bool]) -> Callable[[Expr], bool]:
    return lambda expr: isinstance(expr, Cast) and sources(expr.arg.type) and targets(expr.type)


def _safely(conversion: Callable[[Expr], bool]) -> Callable[[Expr], bool]:
    return lambda expr: isinstance(expr, Cast) and expr.safe and conversion(expr)


def _has_kind(*kinds: TypeKind) -> Callable[[ColumnType], bool]:
    return lambda kind: kind.kind in kinds


_DECIMAL, _TEXT, _BOOLEAN, _FLOATS = (
    _has_kind(TypeKind.DECIMAL),
    _has_kind(TypeKind.STRING),
    _has_kind(TypeKind.BOOLEAN),
    _has_kind(*FLOATING_KINDS),
)

CONVERSIONS = NearSupport(
    (
        NearDifference("string to decimal", _converts(_TEXT, _DECIMAL)),
        NearDifference("float and double to string", _converts(_FLOATS, _TEXT)),
        NearDifference("float and double to decimal", _converts(_FLOATS, _DECIMAL)),
        NearDifference("boolean to decimal", _converts(_BOOLEAN, _DECIMAL)),
        NearDifference("decimal to boolean", _converts(_DECIMAL, _BOOLEAN)),
        NearDifference(
            "decimal of more than 15 digits to int: Spark goes by way of a double",
            _converts(
                lambda kind: kind.kind is TypeKind.DECIMAL and kind.precision > 15 and kind.scale > 0,
                _has_kind(TypeKind.INT),
            ),
        ),
        NearDifference(
            "string to float, double and date by TRY_CAST",
            _safely(_converts(_TEXT, _has_kind(*FLOATING_KINDS, TypeKind.DATE))),
        ),
        NearDifference(
            "float and double to bigint by TRY_CAST", _safely(_converts(_FLOATS, _has_kind(TypeKind.BIGINT)))
        ),
    ),
    "texts such as '1D' as numbers, dates with more behind them, 2^63 as a bigint, times after the year 262142",
)
"""CAST and TRY_CAST."""

_LONG_SUM = NearDifference(
    "decimals of more than 28 digits",
    lambda argument: argument.type.kind is TypeKind.DECIMAL and argument.type.precision > 28,
)

_LONG_AVERAGE = NearDifference(
    f"decimals of more than {MAX_AVERAGE_DIGITS} digits",
    lambda argument: argument.type.kind is TypeKind.DECIMAL and argument.type.precision > MAX_AVERAGE_DIGITS,
)

AGGREGATES: Mapping[str, NearSupport] = {
    **dict.fromkeys(("count", "min", "max", "stddev", "first", "last"), ALIKE),
    "sum": NearSupport((_LONG_SUM,)),
    "avg": NearSupport((_LONG_AVERAGE,)),
}
"""Aggregates by their arguments. Sums of floating point numbers are the same except for the order of addition."""


@cached_fact
def near_obstacle(plan: Plan) -> str | None:
    """Why the near engine cannot be used for a plan; None if it gives Spark's result."""
    return next(_near_obstacles(plan), None)


def near_hash_obstacle(plan: Plan) -> str | None:
    """Why the near engine's hashes of a plan's keys, as stored lineage keeps them, differ from Spark's; None if they
    agree."""
    for name in plan.key:
        kind = plan.types[name]
        if kind.kind in FLOATING_KINDS or (kind.kind is TypeKind.DECIMAL and kind.precision > _HASHED):
            return f"the hash of {name}, a {kind}, is not the same near"
    return None


def _near_obstacles(plan: Plan) -> Iterator[str]:
    for node in nodes(plan):
        for expr in operator_exprs(node):
            yield from (f"{expr_text(part)} is not the same near: {why.words}" for part, why in near_differences(expr))
        if isinstance(node, Group):
            for aggregate in node.aggregates:
                if (why := _aggregate_support(aggregate)) is not None:
                    yield f"{aggregate_text(aggregate)} is not the same near: {why.words}"


def near_differences(expr: Expr) -> Iterator[tuple[Expr, NearDifference]]:
    """The parts of an expression for which the near engine differs, and why."""
    for part in walk_expr(expr):
        known = near_support(part)
        why = None if known is None else known.obstacle(part)
        if why is not None:
            yield part, why


def near_support(expr: Expr) -> NearSupport | None:
    """The support of an operator, function or conversion; None for columns, constants and CASE."""
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


def _aggregate_support(aggregate: Aggregate) -> NearDifference | None:
    if aggregate.argument is None:
        return None
    return AGGREGATES[aggregate.function].obstacle(aggregate.argument)


_PAGE = """# What the near engine does

Small work is done by the near engine, in a process beside this one, and large work by Spark. Both give the same
answers: the near engine only gets work for which it is known to agree with Spark. This page lists that work, and
`tests/engine/test_differential.py` compares each line with Spark, over values at the edges of all types. Work for which
the engines differ goes to Spark, whatever its size. Work at which the near engine fails is done again by Spark, and
Spark's result or error counts.

Sums, averages and standard deviations of floating point numbers agree within 1e-9: the order of addition changes the
last bits, in Spark, too. Beyond 1e150, where squares are infinite, the order changes more.

`python -m errata.language.near_support` prints this page.
"""


def near_page() -> str:
    """The table as Markdown."""
    parts = (
        ("Operators", OPERATORS),
        ("Conversions", {"CAST, TRY_CAST": CONVERSIONS}),
        ("Functions", {name: each.near for name, each in FUNCTIONS.items()}),
        ("Aggregates", AGGREGATES),
    )
    return "\n".join([_PAGE, *(_page_table(title, entries) for title, entries in parts)])


def _page_table(title: str, entries: Mapping[str, NearSupport]) -> str:
    rows = [
        f"| {_printed_name(name)} | {_support_words(near)} | {near.fails_for or ''} |"
        for name, near in sorted(entries.items())
    ]
    head = f"## {title}\n\n| | goes to Spark | fails near, and is done again by Spark |\n|---|---|---|\n"
    return head + "".join(f"{row}\n" for row in rows)


_WORDS = {"neg": "- (sign)", "is_null": "IS NULL", "is_not_null": "IS NOT NULL", SHIFT: "timestamp + INTERVAL"}


def _printed_name(name: str) -> str:
    words = _WORDS.get(name, name.upper() if name in (AND, OR, NOT, "in", "like", "rlike", "div") else name)
    return f"`{words}`".replace("|", "\\|")


def _support_words(near: NearSupport) -> str:
    return "; ".join(each.words for each in near.differences).replace("|", "\\|")


if __name__ == "__main__":
    sys.stdout.write(near_page())
