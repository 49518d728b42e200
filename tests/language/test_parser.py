from __future__ import annotations

import logging

import pytest
from sqlglot import exp

from errata.language.expr import INT, Ref
from errata.language.reading.expressions import ExpressionReader
from errata.language.reading.mistakes import LanguageError, SqlText
from errata.language.reading.parser import MAX_LENGTH, parse_sql, refuse_unknown_parts
from fixtures.fuzz import mutated
from fixtures.plans.expressions import COLUMNS

QUERIES = (
    "SELECT n0, s FROM t WHERE t > '2020-01-01' AND o",
    "SELECT a.src, b.n AS m FROM sliding(l, '2000 seconds') AS a JOIN sliding(m, '5 s') AS b ON a.src = b.src",
    "select s, window_end, avg(n3) as a, count(*) + 1 as c from t group by s, window(t, '5 minutes', '1 minute') "
    "having count(distinct n0) > 1 and a > 2",
    "SELECT CASE WHEN n0 > 5 THEN 'x' ELSE s END AS k, coalesce(n1, 0L), CAST(s AS DECIMAL(10,2)), -5.5, 'it''s', "
    "t + INTERVAL '5' MINUTE, date_trunc('hour', t), 1e3 FROM t -- comment\nUNION ALL SELECT 1, 2 FROM b /* c */",
    "WITH c AS (SELECT s, t FROM t) SELECT DISTINCT c.s FROM c JOIN c AS d USING (s) EXCEPT ALL SELECT n0 IN (1, 2), "
    "n0 BETWEEN 1 AND 2, s LIKE 'a%', n0 IS NOT NULL, NOT o, extract(year from t) FROM negation(t, u, 's') AS n",
)


def mistake(sql: str) -> LanguageError:
    with pytest.raises(LanguageError) as caught:
        parse_sql(SqlText(sql, "q"))
    return caught.value


@pytest.mark.parametrize("sql", QUERIES)
def test_queries_are_parsed(sql: str) -> None:
    assert isinstance(parse_sql(SqlText(sql, "q")), exp.Query)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT a.where, a.on, b.from FROM a, b",
        "SELECT a FROM t WHERE a IS DISTINCT FROM b AND a BETWEEN 1 AND (SELECT b BETWEEN 2 AND 3)",
        "SELECT now(), count(DISTINCT a) AS b FROM t JOIN (SELECT 1) AS u ON (a) GROUP BY (a), b HAVING (b)",
    ],
)
def test_where_nothing_is_missing_nothing_is_said(sql: str) -> None:
    assert isinstance(parse_sql(SqlText(sql, "q")), exp.Query)


def test_no_function_is_rewritten() -> None:
    (select,) = [
        parse_sql(SqlText("SELECT year(a), nvl(a, b), count(DISTINCT c), if(a, b, c), current_date FROM t", "q"))
    ]
    assert [type(each) for each in select.selects] == [exp.Anonymous] * 5
    assert [each.name for each in select.selects] == ["year", "nvl", "count", "if", "current_date"]


def test_intersect_binds_more_strongly_than_union() -> None:
    tree = parse_sql(SqlText("SELECT 1 UNION ALL SELECT 2 INTERSECT SELECT 3", "q"))
    assert (type(tree), type(tree.expression.unnest())) == (exp.Union, exp.Intersect)


@pytest.mark.parametrize(
    ("sql", "what", "line", "column"),
    [
        ("", "there is no query in the text", 1, 1),
        ("-- nothing\n", "there is no query in the text", 1, 1),
        ("INSERT INTO t VALUES (1)", "a query begins with SELECT or WITH", 1, 1),
        ("FROM t", "a query begins with SELECT or WITH", 1, 1),
        ("SELECT a FROM t;\nSELECT b FROM t", "a query is one statement", 2, 8),
        ("SELECT a\nFROM t WHERE 'open", "a quote or comment that is opened here is not closed", 2, 14),
        ("SELECT a, FROM t", "something is missing between the comma and this", 1, 11),
        ("SELECT f(a,) FROM t", "something is missing between the comma and this", 1, 12),
        ("SELECT a\nFROM t WHERE x = = 5", "a value is missing before this", 2, 18),
        ("SELECT a -> '[' FROM t", "this is not expected here", 1, 10),
        ("SELECT a FROM", "something is missing behind FROM", 1, 10),
        ("SELECT , a FROM t", "something is missing before the comma", 1, 8),
        ("SELECT DISTINCT , a FROM t", "something is missing before the comma", 1, 17),
        ("SELECT a,, b FROM t", "something is missing between the two commas", 1, 10),
        ("SELECT a FROM t WHERE x IN ('a',,'b')", "something is missing between the two commas", 1, 33),
        ("SELECT a FROM t WHERE x IN (,'b')", "something is missing before the comma", 1, 29),
        ("SELECT a FROM t,, u", "something is missing between the two commas", 1, 17),
        ("SELECT a FROM t,", "something is missing behind the comma", 1, 16),
        ("SELECT FROM t", "something is missing behind SELECT", 1, 1),
        ("SELECT DISTINCT FROM t", "something is missing behind DISTINCT", 1, 8),
        ("SELECT a FROM t GROUP BY", "something is missing behind GROUP BY", 1, 17),
        ("SELECT a FROM t GROUP BY HAVING a", "something is missing behind GROUP BY", 1, 17),
        ("SELECT a FROM t GROUP BY a HAVING", "something is missing behind HAVING", 1, 28),
        ("SELECT a FROM (SELECT a FROM t WHERE) AS u", "something is missing behind WHERE", 1, 32),
        ("SELECT a FROM t JOIN u ON", "something is missing behind ON", 1, 24),
        ("SELECT a FROM t JOIN u ON WHERE a", "something is missing behind ON", 1, 24),
        ("SELECT a FROM t JOIN u USING", "something is missing behind USING", 1, 24),
        ("SELECT a FROM t WHERE a BETWEEN 1 2", "BETWEEN is without its AND", 1, 25),
        ("SELECT (a FROM t", "a ) is missing before this", 1, 11),
        ("SELECT CAST(a int) FROM t", "the word AS is missing beside this", 1, 15),
        ("SELECT /*+ BROADCAST(t) */ a FROM t", "hints are not part of the language", 1, 8),
        ("SELECT " + "(" * 200 + "a" + ")" * 200, "the query is nested too deeply", 1, 38),
        ("SELECT " + "NOT " * 3_000 + "a", "the query is nested too deeply", 1, 1),
        ("SELECT '\ud800'", "half of a character cannot be stored as text", 1, 9),
        ("SELECT a" + " " * MAX_LENGTH, "the text has 1,000,008 characters", 1, 1),
        ("SELECT a " + ", a" * 60_000, "a query has 100,000 words and signs at most", 1, 150007),
    ],
)
def test_what_is_no_query_is_refused_with_its_place(sql: str, what: str, line: int, column: int) -> None:
    error = mistake(sql)
    assert (error.what, error.line, error.column) == (what, line, column)


@pytest.mark.parametrize(
    ("sql", "part", "what"),
    [
        ("SELECT a FROM t LIMIT 5", "limit", "LIMIT is not part of the language"),
        ("SELECT a FROM t ORDER BY a", "order", "ORDER BY is not part of the language"),
        ("SELECT a FROM t QUALIFY a > 1", "qualify", "QUALIFY is not part of the language"),
        ("SELECT a FROM t LATERAL VIEW explode(b) AS c", "laterals", "LATERAL VIEW is not part of the language"),
        ("SELECT a FROM t FOR UPDATE", "locks", "FOR UPDATE is not part of the language"),
        ("SELECT a FROM t CLUSTER BY a", "cluster", "CLUSTER BY is not part of the language"),
    ],
)
def test_a_part_that_is_not_understood_is_refused(sql: str, part: str, what: str) -> None:
    text = SqlText(sql, "q")
    tree = parse_sql(text)
    known = {"expressions", "from_"}
    with pytest.raises(LanguageError) as caught:
        refuse_unknown_parts(text, tree, known)
    assert caught.value.what == what
    refuse_unknown_parts(text, tree, {*known, part})


@pytest.mark.parametrize(
    ("join", "what"),
    [
        ("LEFT CROSS JOIN u", "this kind of join is not part of the language"),
        ("OUTER JOIN u ON a = b", "this kind of join is not part of the language"),
        ("LEFT ANTI JOIN u ON a = b", "ANTI JOIN is not part of the language"),
        ("LEFT SEMI JOIN u ON a = b", "SEMI JOIN is not part of the language"),
        ("NATURAL JOIN u", "NATURAL JOIN is not part of the language"),
        ("SEMI JOIN u ON a = b", "SEMI JOIN is not part of the language"),
    ],
)
def test_other_joins_are_refused(join: str, what: str) -> None:
    text = SqlText(f"SELECT a FROM t {join}", "q")
    with pytest.raises(LanguageError) as caught:
        refuse_unknown_parts(text, parse_sql(text).args["joins"][0], {"this", "on"})
    assert caught.value.what == what


def test_any_text_is_read_or_refused_with_its_place(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    texts = ("SELECT a -> '[' FROM t", *mutated(seed=7, count=2_000, texts=QUERIES))
    refused = [error for sql in texts if (error := _refusal(sql)) is not None]
    assert 1_000 < len(refused) < 1_990, "both good and bad texts are among them"
    assert all(error.line >= 1 <= error.column for error in refused)
    assert all(str(error).startswith(f"q:{error.line}:{error.column}: ") for error in refused)
    assert not caplog.records, "sqlglot does not talk"


def _refusal(sql: str) -> LanguageError | None:
    try:
        _read_all(SqlText(sql, "q"))
    except LanguageError as error:
        return error
    return None


def _read_all(text: SqlText) -> None:
    expressions = ExpressionReader(text, lambda node: Ref(node.name, COLUMNS.get(node.name, INT)), lambda _node: None)
    for each in parse_sql(text).selects:
        expressions.lower(each.unalias())
