"""The near engine gives Spark's results wherever `language.near_support` says so; for each difference that it declares
there is a row that shows it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from datetime import date
from decimal import Decimal
from itertools import product

import pytest
from pyspark.sql import SparkSession

from errata.language.coercion import TypeFamily, arithmetic_type, common_type, comparable, type_family
from errata.language.expr import (
    AND,
    BIGINT,
    BOOLEAN,
    DATE,
    DOUBLE,
    INT,
    NOT,
    OR,
    SAME,
    SHIFT,
    STRING,
    TIMESTAMP,
    Call,
    Case,
    Cast,
    Expr,
    Lit,
    children,
    expr_sql,
)
from errata.language.functions import FUNCTIONS, TRUNCATED, NearDifference, castable
from errata.language.near_support import CONVERSIONS, OPERATORS, near_differences, near_support
from errata.language.reading.expressions import coerce_expr
from errata.model.columns import ColumnType, TypeKind
from fixtures.chance import random_for
from fixtures.edges import TYPES, ref, refs, table
from fixtures.engines_compared import Verdict, verdicts

A, B, C, W = map(refs, "abcw")
_MOST_UNLIKE = 6
"""So many expressions that are not the same for one reason are tried."""
NUMBERS = (
    Lit(0, INT),
    Lit(7, INT),
    Lit(-(2**31), INT),
    Lit(5, BIGINT),
    Lit(-(2**63), BIGINT),
    Lit(-1e300, DOUBLE),
    Lit(1.5, ColumnType(TypeKind.FLOAT)),
    Lit(Decimal("0.05"), ColumnType(TypeKind.DECIMAL, 2, 2)),
    Lit(Decimal(-12), ColumnType(TypeKind.DECIMAL, 2, 0)),
)
CONSTANTS = (
    *NUMBERS,
    Lit(2**40, BIGINT),
    Lit(5e-324, DOUBLE),
    Lit(float("inf"), DOUBLE),
    Lit(float("nan"), ColumnType(TypeKind.FLOAT)),
    Lit(Decimal("123456789012345678901234567890.12345678"), ColumnType(TypeKind.DECIMAL, 38, 8)),
    *(Lit(micros, TIMESTAMP) for micros in (0, -1, 1_700_000_000_123_456, -62_135_596_800_000_000)),
    *(Lit(day, DATE) for day in (date(1, 1, 1), date(1969, 12, 31), date(9999, 12, 31))),
    *(Lit(text, STRING) for text in ("", "it's", '"', "\\", "\\\\n", "\n\r\t", "\0", "\x1a", "%\\_", "\\%", "é𝄞")),
    *(Lit(text, STRING) for text in ("\\u0041", "\\x41", "--/*", "\\101", "''", "${x}", "?", ":a", "`", "e\u0301")),
    *(Lit(None, kind) for kind in TYPES.values()),
    Lit(True, BOOLEAN),
)
LIKE = ("a%", "%", "_", "a\\_b", "", "%a%", "a", "\\\\", "A_", "\\%", "_b%", "%\n%")
RLIKE = ("a", "^a", "[a-z]+", "[^a-z]", "^[A-Z][a-z]*", "a|b", "(ab)+", "", "a{2}", "a{2,}", "b*", "\\.", "\\+", "a +")
UNLIKE_RLIKE = ("^.$", "b$", "\\d", "\\w", "\\s", "[[:alpha:]]", "(", "a{")


def _functions() -> Iterator[Expr]:
    for name, function in FUNCTIONS.items():
        for count in range(
            len(function.parameters) - function.optional_count, len(function.parameters) + 1 + function.variadic
        ):
            for args in product(*_arguments(name, count)):
                if function.accepts(args) and (kind := function.result_type(args)) is not None:
                    yield Call(name, args, kind)


def _arguments(name: str, count: int) -> list[list[Expr]]:
    if name == "date_trunc":
        return [[Lit(unit, STRING) for unit in TRUNCATED], list(W)]
    if name == "round":
        return [list(W), [Lit(places, INT) for places in (0, 1, 2, -1, -3, 10)]][:count]
    small = [Lit(value, INT) for value in (-3, 0, 1, 2, 30)]
    texts = [Lit(value, STRING) for value in ("", "a", "xy")]
    return [list(W)] if count == 1 else [list(A), [*B, *small, *texts], [*C, *small, *texts]][:count]


def _operators() -> Iterator[Expr]:
    for left, right in [*product(A, B), *product(A, NUMBERS), *product(NUMBERS[:3], B)]:
        for name in ("+", "-", "*", "/", "%", "div"):
            if (kind := arithmetic_type(name, left, right)) is not None:
                yield Call(name, (left, right), kind)
        if comparable(left.type, right.type):
            yield from (Call(name, (left, right), BOOLEAN) for name in ("=", "<>", "<", "<=", ">", ">=", SAME))
            yield Call("nullif", (left, right), left.type)
    for each in W:
        yield from (Call(name, (each,), BOOLEAN) for name in ("is_null", "is_not_null"))
        if type_family(each.type) is TypeFamily.NUMBER:
            yield Call("neg", (each,), each.type)
    yield from (Call(name, (ref("a", "boolean"), ref("b", "boolean")), BOOLEAN) for name in (AND, OR))
    yield Call(NOT, (ref("a", "boolean"),), BOOLEAN)
    for by in (0, 1, -1_500_000, 60_000_000, 86_400_000_000 * 400, -86_400_000_000 * 400):
        yield Call(SHIFT, (ref("w", "timestamp"), Lit(by, BIGINT)), TIMESTAMP)


def _of_common_type() -> Iterator[Expr]:
    asked = ref("c", "boolean")
    for left, right in product(A, B):
        if (common := common_type([left.type, right.type])) is None:
            continue
        both = (coerce_expr(left, common), coerce_expr(right, common))
        yield from (Call(name, both, common) for name in ("coalesce", "greatest", "least"))
        yield from (Call("if", (asked, *both), common), Case(((asked, both[0]),), both[1], common))
        yield from (Case(((asked, both[0]),), None, common), Call("in", (*both, both[0]), BOOLEAN))
    for each, third in zip(A, C, strict=True):
        yield from (Call(name, (third, each, Lit(None, each.type)), each.type) for name in ("greatest", "least"))
    for kind in ("float", "double"):
        # A NaN that arithmetic makes has a sign.
        one = ref("a", kind)
        made = Call("-", (one, one), one.type)
        yield from (Call(name, (made, one), BOOLEAN) for name in ("=", "<", SAME, "in"))
        yield Call("greatest", (made, one), one.type)
    divided = Call("div", (ref("a", "int"), ref("b", "int")), BIGINT)
    yield Case(((asked, Call(">", (divided, Lit(0, BIGINT)), BOOLEAN)),), ref("a", "boolean"), BOOLEAN)


def _texts() -> Iterator[Expr]:
    one, other, any_text = ref("a", "string"), ref("b", "string"), ref("w", "string")
    yield Call("||", (one, other), STRING)
    for name, patterns in (("like", LIKE), ("rlike", (*RLIKE, *UNLIKE_RLIKE))):
        yield Call(name, (one, other), BOOLEAN)
        yield from (Call(name, (any_text, Lit(pattern, STRING)), BOOLEAN) for pattern in patterns)
    lowered = [Call("lower", (each,), STRING) for each in (any_text, Lit("A%", STRING))]
    yield Call("like", (lowered[0], lowered[1]), BOOLEAN)


def _conversions() -> Iterator[Expr]:
    more = map(ColumnType.parse, ("decimal(3,0)", "decimal(1,1)", "decimal(18,6)"))
    for each, kind in product(W, [*TYPES.values(), *more]):
        if castable(each.type, kind):
            yield from (Cast(each, kind), Cast(each, kind, safe=True))


def _far_times() -> Iterator[Expr]:
    """Times that no column holds, but arithmetic may come to; and parts that must not be looked at."""
    moment = Call("timestamp_micros", (ref("w", "bigint"),), TIMESTAMP)
    for name, function in FUNCTIONS.items():
        args = (Lit("day", STRING), moment) if name == "date_trunc" else (moment,)
        if function.accepts(args) and (kind := function.result_type(args)) is not None:
            yield Call(name, args, kind)
    yield from (Cast(moment, kind, safe) for kind in (STRING, DATE) for safe in (False, True))
    yield from (Call(SHIFT, (moment, Lit(by, BIGINT)), TIMESTAMP) for by in (1, -86_400_000_000, 2**62, -(2**62)))
    yield Call("<", (ref("a", "date"), moment), BOOLEAN)
    zero, divided = (
        Lit(0, INT),
        Call(">", (Call("div", (Lit(7, INT), ref("a", "int")), BIGINT), Lit(1, BIGINT)), BOOLEAN),
    )
    yield Call(AND, (Call("<>", (ref("a", "int"), zero), BOOLEAN), divided), BOOLEAN)
    yield Call(OR, (Call("=", (ref("a", "int"), zero), BOOLEAN), divided), BOOLEAN)


def _name(expr: Expr) -> str:
    return expr.name if isinstance(expr, Call) else type(expr).__name__


def _signature(expr: Expr) -> tuple[str, ...]:
    """Name and kinds of value."""
    return (_name(expr), *(each.type.kind for each in (*children(expr), expr)))


def _reason(expr: Expr) -> tuple[str, NearDifference] | None:
    """What the expression's outermost operator is not the same for, if its parts are the same."""
    known = near_support(expr)
    why = None if known is None else known.obstacle(expr)
    inner = any(next(near_differences(child), None) is not None for child in children(expr))
    return None if why is None or inner else (_name(expr), why)


def _chosen() -> list[Expr]:
    """All that shall be the same, and some of what shall not."""
    chosen: list[Expr] = []
    unlikes: dict[tuple[str, NearDifference], list[Expr]] = defaultdict(list)
    everything = (_functions(), _operators(), _of_common_type(), _texts(), _conversions(), _far_times(), CONSTANTS)
    for expr in (each for some in everything for each in some):
        if (reason := _reason(expr)) is not None:
            unlikes[reason].append(expr)
        elif next(near_differences(expr), None) is None:
            chosen.append(expr)
    for some in unlikes.values():
        chosen += some[:: max(1, len(some) // _MOST_UNLIKE)]
    return chosen


def _drawn(exprs: Sequence[Expr]) -> list[Expr]:
    """All that may fail or differ; of the others the first of each signature, and one that is drawn."""
    rng = random_for(__name__)
    drawn: list[Expr] = []
    alike: dict[tuple[str, ...], list[Expr]] = defaultdict(list)
    for expr in exprs:
        known = near_support(expr)
        plain = _reason(expr) is None and known is not None and known.fails_for is None
        (alike[_signature(expr)] if plain else drawn).append(expr)
    for first, *more in alike.values():
        drawn += [first, *rng.sample(more, min(len(more), 1))]
    return drawn


@pytest.fixture(scope="module")
def compared(spark: SparkSession, near: SparkSession, pytestconfig: pytest.Config) -> list[Verdict]:
    chosen = _chosen()
    return verdicts(spark, near, table(), chosen if pytestconfig.getoption("--long") else _drawn(chosen))


def test_what_shall_be_the_same_is(compared: list[Verdict]) -> None:
    wrong = [
        each.wrong for each in compared if each.wrong is not None and next(near_differences(each.expr), None) is None
    ]
    assert not wrong, f"{len(wrong)} differ\n" + "\n".join(wrong[:20])


def test_what_fails_near_is_said_to(compared: list[Verdict]) -> None:
    failing = [
        each for each in compared if each.failure is not None and next(near_differences(each.expr), None) is None
    ]
    untold = [each.failure for each in failing if (known := near_support(each.expr)) is None or known.fails_for is None]
    assert not untold, "\n".join(filter(None, untold[:20]))
    answers: dict[tuple[str, ...], int] = defaultdict(int)
    for each in compared:
        answers[_signature(each.expr)] += each.answers
    assert not [each.failure for each in failing if not answers[_signature(each.expr)]]
    fail = {_name(each.expr) for each in failing}
    told = {name for name, function in FUNCTIONS.items() if function.near.fails_for}
    told |= {name for name, known in OPERATORS.items() if known.fails_for} | (
        {"Cast"} if CONVERSIONS.fails_for else set()
    )
    assert told == fail


def test_what_goes_to_spark_would_be_otherwise_near(compared: list[Verdict]) -> None:
    unproven: dict[tuple[str, str], list[Verdict]] = defaultdict(list)
    for each in compared:
        if (reason := _reason(each.expr)) is not None:
            unproven[reason[0], reason[1].words].append(each)
    known = {(name, each.words) for name, function in FUNCTIONS.items() for each in function.near.differences}
    known |= {(name, each.words) for name, known in OPERATORS.items() for each in known.differences}
    known |= {("Cast", each.words) for each in CONVERSIONS.differences}
    assert set(unproven) == known
    same = [key for key, some in unproven.items() if not any(each.wrong or each.failure for each in some)]
    assert not same, f"they are the same near after all: {same}"


def test_everything_is_compared(compared: list[Verdict]) -> None:
    names = {_name(each.expr) for each in compared}
    assert names >= {*FUNCTIONS, *OPERATORS, "Cast", "Case", "Lit"}
    assert len({expr_sql(each.expr) for each in compared}) > 1_500
