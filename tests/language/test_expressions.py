from __future__ import annotations

import pytest
from hypothesis import given
from sqlglot import exp

from errata.language.expr import BIGINT, DOUBLE, INT, TIMESTAMP, Call, Cast, Expr, Lit, Ref, expr_sql
from errata.language.functions import FUNCTIONS, never_fails
from errata.language.reading.expressions import ExpressionReader, coerce_expr
from errata.language.reading.mistakes import LanguageError, SqlText
from errata.language.reading.parser import parse_sql
from errata.model.columns import ColumnType
from fixtures.plans.expressions import COLUMNS, expressions, read


@given(expressions)
def test_what_is_printed_is_read_as_the_same(expr: Expr) -> None:
    assert read(expr_sql(expr)) == expr


@pytest.mark.parametrize(
    ("written", "printed", "kind"),
    [
        ("n0 + 1", "n0 + 1", "int"),
        ("n0 + n1", "n0 + n1", "bigint"),
        ("n0 / 2", "n0 / 2", "double"),
        ("n2 + n0", "n2 + n0", "double"),
        ("n4 * 5", "n4 * 5", "decimal(12,2)"),
        ("n4 * n0", "n4 * n0", "decimal(21,2)"),
        ("n5 / n5", "n5 / n5", "decimal(38,6)"),
        ("n0 div 2", "n0 DIV 2", "bigint"),
        ("mod(n0, 2)", "n0 % 2", "int"),
        ("2147483648", "2147483648", "bigint"),
        ("-2147483648", "-2147483648", "int"),
        ("-(5)", "-(5)", "int"),
        ("+n0", "n0", "int"),
        ("5L", "5L", "bigint"),
        ("1e3", "1000.0D", "double"),
        ("1.50", "1.50", "decimal(3,2)"),
        ("5BD", "5BD", "decimal(1,0)"),
        ("'it''s' || \"x\"", "'it\\'s' || 'x'", "string"),
        ("n0 != 1 or n0 == 2", "n0 <> 1 OR n0 = 2", "boolean"),
        ("n0 between 1 and 2", "n0 >= 1 AND n0 <= 2", "boolean"),
        ("n0 not in (1, n1, null)", "NOT CAST(n0 AS BIGINT) IN (1L, n1, CAST(NULL AS BIGINT))", "boolean"),
        ("NOT s is null", "s IS NOT NULL", "boolean"),
        ("o is not true", "NOT o <=> TRUE", "boolean"),
        ("n0 is distinct from n1", "NOT n0 <=> n1", "boolean"),
        ("s ilike 'A%'", "lower(s) LIKE lower('A%')", "boolean"),
        ("s not like 'a'", "NOT s LIKE 'a'", "boolean"),
        ("s regexp 'a'", "s RLIKE 'a'", "boolean"),
        ("o <=> ((n0) > (1))", "o <=> (n0 > 1)", "boolean"),
        ("(n0) > (1) <=> (cast(s as int) > 1)", "(n0 > 1) <=> (CAST(s AS INT) > 1)", "boolean"),
        ("n0 = null", "n0 = CAST(NULL AS INT)", "boolean"),
        ("t > '2020-01-01'", "t > TIMESTAMP '2020-01-01 00:00:00.000000'", "boolean"),
        ("'2020-01-01 01:00:00+01:00' < t", "TIMESTAMP '2020-01-01 00:00:00.000000' < t", "boolean"),
        ("d >= '2020-01-01'", "d >= DATE '2020-01-01'", "boolean"),
        ("d in ('2020-01-01')", "d IN (DATE '2020-01-01')", "boolean"),
        ("t + interval 5 minutes", "t + INTERVAL '5' MINUTE", "timestamp"),
        ("interval '1.5' second + t", "t + INTERVAL '1500000' MICROSECOND", "timestamp"),
        ("t - interval '1 day 2 hours'", "t - INTERVAL '26' HOUR", "timestamp"),
        ("t - interval 1 day 2 hours", "t - INTERVAL '26' HOUR", "timestamp"),
        ("t + interval '-1' week", "t - INTERVAL '7' DAY", "timestamp"),
        ("case n0 when 1 then 'a' else null end", "CASE WHEN n0 = 1 THEN 'a' ELSE CAST(NULL AS STRING) END", "string"),
        ("case when o then n0 else n3 end", "CASE WHEN o THEN CAST(n0 AS DOUBLE) ELSE n3 END", "double"),
        ("nvl(n1, 0)", "coalesce(n1, 0L)", "bigint"),
        ("coalesce(n4, 0)", "coalesce(CAST(n4 AS DECIMAL(12,2)), CAST(0 AS DECIMAL(12,2)))", "decimal(12,2)"),
        ("greatest(d, t)", "greatest(CAST(d AS TIMESTAMP), t)", "timestamp"),
        ("if(o, 1, 2.5)", "if(o, CAST(1 AS DECIMAL(11,1)), CAST(2.5 AS DECIMAL(11,1)))", "decimal(11,1)"),
        ("nullif(n0, 0L)", "nullif(n0, 0L)", "int"),
        ("cast(s as dec(5))", "CAST(s AS DECIMAL(5,0))", "decimal(5,0)"),
        ("s::numeric", "CAST(s AS DECIMAL(10,0))", "decimal(10,0)"),
        ("int(s)", "CAST(s AS INT)", "int"),
        ("to_date(t)", "CAST(t AS DATE)", "date"),
        ("try_cast(s as double)", "TRY_CAST(s AS DOUBLE)", "double"),
        ("cast(null as timestamp)", "CAST(NULL AS TIMESTAMP)", "timestamp"),
        ("extract(year from t)", "year(t)", "int"),
        ("date_trunc('HOUR', t)", "date_trunc('hour', t)", "timestamp"),
        ("round(n4, 1)", "round(n4, 1)", "decimal(10,1)"),
        ("ceil(n4)", "ceil(n4)", "decimal(9,0)"),
        ("starts_with(s, 'a')", "startswith(s, 'a')", "boolean"),
    ],
)
def test_what_is_written_means(written: str, printed: str, kind: str) -> None:
    expr = read(written)
    assert (expr_sql(expr), str(expr.type)) == (printed, kind)
    assert read(printed) == expr


@pytest.mark.parametrize(
    ("written", "what", "marked"),
    [
        ("s > 5", "string > int: the two are not of one kind", "s > 5"),
        ("s + 1", "string + int: + takes two numbers", "s + 1"),
        ("t - t", "timestamp - timestamp: - takes two numbers", "t - t"),
        ("d + interval 1 day", "date + INTERVAL: only a timestamp is shifted so", "d"),
        ("t + interval 1 month", "only an INTERVAL of fixed length is part of the language", None),
        ("t + interval '1:30' hour to minute", "only an INTERVAL of fixed length is part of the language", None),
        ("t + interval '0.0000001' second", "only an INTERVAL of fixed length is part of the language", None),
        ("interval 1 day", "an INTERVAL has a place only in timestamp + INTERVAL and timestamp - INTERVAL", None),
        ("n3 div 2", "double div int: div takes two numbers without a floating point", "n3 div 2"),
        ("n0 || s", "int || string: || joins two strings", "n0 || s"),
        ("n0 and o", "a condition is a boolean, and this is of type int", "n0"),
        ("case when n0 then 1 end", "a condition is a boolean, and this is of type int", "n0"),
        ("coalesce(s, n0)", "int and string have no type in common, which coalesce() needs", "s"),
        ("n5 in (n5, 123456789012345678901234567890123)", None, None),
        ("null is null", "NULL alone is of no type", "null"),
        ("coalesce(null, null)", "coalesce() of NULL alone is of no type", "null"),
        ("null = null", "NULL is compared with NULL", "null"),
        ("t > 'yesterday'", "'yesterday' is not a date and time", "'yesterday'"),
        ("d > '2020-02-30'", "'2020-02-30' is not a date", "'2020-02-30'"),
        ("TIMESTAMP '2020'", "'2020' is not a date and time", "'2020'"),
        ("d = '20200229'", "'20200229' is not a date", "'20200229'"),
        ("t > '2020-W01-1'", "'2020-W01-1' is not a date and time", "'2020-W01-1'"),
        (
            "d < '2020-02-29 05:00'",
            "a date stands beside '2020-02-29 05:00', which has a time of day",
            "'2020-02-29 05:00'",
        ),
        ("TIMESTAMP_NTZ '2020-01-01'", "TIMESTAMP_NTZ is not a type of the language", "'2020-01-01'"),
        ("cast(t as bigint)", "timestamp is not converted to bigint", "t"),
        ("cast(n0 as smallint)", "SMALLINT is not a type of the language", "n0"),
        ("cast(n0 as decimal(50,2))", "decimal(50,2) is not a type", "n0 as decimal(50,2"),
        ("cast(n0 as array<int>)", "ARRAY<INT> is not a type of the language", "n0"),
        ("cast(s as date format 'yyyy')", None, None),
        ("5S", "smallint and tinyint are not types of the language", "5S"),
        ("1e999", "the number is too large for a double", "1e999"),
        ("9" * 39, "the number has 39 digits", "9" * 39),
        ("9223372036854775808L", "the number is too large for a bigint", "9223372036854775808L"),
        ("upper(n0)", "upper(int) is not a function of the language", "upper(n0"),
        ("substring(s)", "substring(string) is not a function of the language", "substring(s"),
        ("lpad(s, n0)", "lpad(string, int) is not a function of the language", "lpad(s, n0"),
        ("if(o, 1)", "if() takes 3 arguments, not 2", "if(o, 1"),
        ("date_trunc('fortnight', t)", "date_trunc(string, timestamp) is not a function of the language", None),
        ("uper(s)", "unknown function uper", "uper(s"),
        ("db.upper(s)", "columns within columns are not part of the language", None),
        ("rand()", "rand() is not deterministic", "rand"),
        ("n0 + current_date", "current_date() is not deterministic", "current_date"),
        ("current_timestamp()", "current_timestamp() is not deterministic", "current_timestamp"),
        ("sum(n0)", "sum() has no place here", "sum(n0"),
        ("sum(n0) OVER (PARTITION BY s)", "window functions (OVER) are not part of the language", None),
        ("sum(n0) FILTER (WHERE o)", "FILTER is not part of the language", None),
        ("first(n0) IGNORE NULLS", "IGNORE NULLS is not part of the language", None),
        ("count(DISTINCT n0)", "count() has no place here", None),
        ("upper(DISTINCT s)", "DISTINCT has a place only in SELECT DISTINCT and in aggregates", None),
        ("n0 in (select 1)", "a subquery within an expression is not part of the language", None),
        ("exists (select 1)", "a subquery within an expression is not part of the language", None),
        ("(select 1)", "a subquery within an expression is not part of the language", None),
        ("n0 = any (select 1)", None, None),
        ("s like any ('a', 'b')", None, None),
        ("s like 'a' escape '/'", "ESCAPE is not part of the language", None),
        ("(n0, n1) = (1, 2)", "rows as values are not part of the language", None),
        ("s[0]", "arrays and maps are not part of the language", "s[0"),
        ("x'1F'", "numbers to the base 16 are not part of the language", None),
        ("t at time zone 'UTC'", "AT TIME ZONE is not part of the language", None),
        ("n0 & 1", "operators on bits are not part of the language", "n0 & 1"),
        ("s like 'a' = o", "a comparison within a comparison needs brackets", "s like 'a'"),
        ("o <=> n0 > 1", "a comparison within a comparison needs brackets", "n0 > 1"),
        ("o <=> (n0) > (1)", "a comparison within a comparison needs brackets", None),
        ("o is distinct from cast(s as int) > 1", "a comparison within a comparison needs brackets", None),
        ("upper(a => s)", "arguments go by their position", None),
        ("*", "* has a place only in SELECT * and count(*)", "*"),
        (":p", "parameters are not part of the language", None),
        ("upper(s AS x)", "a name has no place within an expression", None),
    ],
)
def test_what_is_no_expression_is_refused(written: str, what: str | None, marked: str | None) -> None:
    with pytest.raises(LanguageError) as caught:
        read(written)
    error = caught.value
    assert what is None or error.what == what
    line, carets = error.excerpt.splitlines()
    assert marked is None or "".join(c for c, mark in zip(line, carets, strict=False) if mark == "^") == marked


def test_a_refusal_of_chance_says_why_and_what_instead() -> None:
    with pytest.raises(LanguageError) as caught:
        read("now()")
    assert caught.value.why is not None
    assert "replayed" in caught.value.why
    assert "event_time()" in str(caught.value.how)


def test_an_unknown_function_has_its_candidates() -> None:
    with pytest.raises(LanguageError, match="did you mean upper"):
        read("uper(s)")


def test_deep_nesting_is_refused_and_a_long_list_is_not() -> None:
    with pytest.raises(LanguageError, match="nested too deeply"):
        read(" + ".join(["n0"] * 200))
    assert read(" + ".join(["n0"] * 100)).type == INT
    assert len(read(f"n0 IN ({', '.join(map(str, range(5_000)))})").args) == 5_001  # type: ignore[union-attr]


def test_special_is_asked_first_and_resolve_finds_columns() -> None:
    text = SqlText("SELECT a.x + sum(1) FROM t", "q")
    special = Ref("sum(1)", BIGINT)

    def aggregate(node: exp.Expression) -> Expr | None:
        return special if isinstance(node, exp.Anonymous) else None

    found = ExpressionReader(text, lambda node: Ref(f"{node.table}.{node.name}", INT), aggregate).lower(
        parse_sql(text).selects[0]
    )
    assert found == Call("+", (Ref("a.x", INT), special), BIGINT)


def test_constants_are_coerced_at_once_and_columns_by_a_conversion() -> None:
    assert coerce_expr(Lit(5, INT), BIGINT) == Lit(5, BIGINT)
    assert coerce_expr(Lit(5, INT), DOUBLE) == Lit(5.0, DOUBLE)
    assert coerce_expr(Lit(None, INT), TIMESTAMP) == Lit(None, TIMESTAMP)
    assert coerce_expr(Ref("n", INT), INT) == Ref("n", INT)
    assert coerce_expr(Ref("n", INT), DOUBLE) == Cast(Ref("n", INT), DOUBLE)


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("n3 + n2 > 1.0D", True),
        ("n0 + 1 > 0", False),
        ("n3 / n3", False),
        ("n3 / 2", True),
        ("n0 % 7", True),
        ("n0 % 0", False),
        ("n0 div -1", False),
        ("t + interval 1 day < t", True),
        ("cast(n0 as bigint)", True),
        ("cast(n1 as int)", False),
        ("cast(s as int)", False),
        ("try_cast(s as int)", True),
        ("cast(n4 as decimal(10,1))", True),
        ("cast(n4 as decimal(9,1))", False),
        ("cast(n4 as decimal(8,0))", False),
        ("s like 'a\\\\%'", True),
        ("s like 'a\\\\b'", False),
        ("s rlike '['", False),
        ("case when o then cast(s as int) end", False),
        ("upper(s) in ('A', 'B')", True),
    ],
)
def test_what_can_fail_is_known(written: str, expected: bool) -> None:
    assert never_fails(read(written)) is expected


def test_the_registry_says_how_functions_are_written() -> None:
    assert FUNCTIONS["substring"].usage("substring") == "substring(string, int, [int])"
    assert FUNCTIONS["concat"].usage("concat") == "concat(string, ...)"
    assert set(COLUMNS.values()) >= {ColumnType.parse("decimal(10,2)")}
