"""TABLESAMPLE: what a clause says, to which stream it belongs, and where it is refused, with the place in the text."""

from __future__ import annotations

import pytest

from errata.language.nodes import scans_of
from errata.language.plan import Field, Source, SourceKind
from errata.language.queries import QueryText as Declared
from errata.language.queries import query_source, read_names, read_one_time_query, read_queries, read_query
from errata.language.reading.mistakes import LanguageError
from errata.language.reading.samples import read_reduction
from errata.language.sampling import ColumnArgument, SampleClause, SampledSource, sampled_sources
from errata.model.columns import ColumnType, TypeKind

_FIELDS = (
    Field("time", ColumnType(TypeKind.TIMESTAMP)),
    Field("symbol", ColumnType(TypeKind.STRING)),
    Field("price", ColumnType(TypeKind.DOUBLE)),
    Field("tablesample", ColumnType(TypeKind.INT)),
)
QUOTES = Source("quotes", SourceKind.STREAM, _FIELDS, ("time", "symbol"), "time")
TRADES = Source("trades", SourceKind.STREAM, _FIELDS, ("time", "symbol"), "time")
COMPANIES = Source("companies", SourceKind.RETROACTIVE, _FIELDS, ("symbol",), "time")
HIGHS = "SELECT symbol, max(price) AS high FROM quotes GROUP BY symbol"
SOURCES = {
    "quotes": QUOTES,
    "trades": TRADES,
    "companies": COMPANIES,
    "highs": query_source(
        "highs",
        read_query("SELECT symbol, max(price) AS high FROM quotes GROUP BY symbol", "highs", {"quotes": QUOTES}),
    ),
}
COUNT = "SELECT count(*) AS n FROM "


def sampled(sql: str) -> list[SampleClause | None]:
    """The clause of each scan, from left to right."""
    sources = [each.source for each in scans_of(read_one_time_query(sql, "query", SOURCES))]
    return [each.clause if isinstance(each, SampledSource) else None for each in sources]


def mistake(sql: str) -> LanguageError:
    with pytest.raises(LanguageError) as caught:
        read_one_time_query(sql, "query", SOURCES)
    return caught.value


TENTH = SampleClause("uniform", (0.1,))


@pytest.mark.parametrize(
    ("part", "clauses"),
    [
        ("quotes TABLESAMPLE (10 PERCENT)", [TENTH]),
        ("quotes TABLESAMPLE (10.0 percent)", [TENTH]),
        ("quotes tablesample uniform(0.1)", [TENTH]),
        ("`quotes` TABLESAMPLE (10 PERCENT) AS q", [TENTH]),
        ("quotes q TABLESAMPLE (10 PERCENT)", [TENTH]),
        ("quotes AS q TABLESAMPLE (10 PERCENT) WHERE q.price > 1", [TENTH]),
        ("sliding(quotes TABLESAMPLE (10 PERCENT), '5 minutes')", [TENTH]),
        ("quotes", [None]),
        ("quotes q WHERE q.tablesample = 1", [None]),
        ("quotes TABLESAMPLE by_age('1 day', 0.5)", [SampleClause("by_age", ("1 day", 0.5))]),
        (
            "quotes TABLESAMPLE by_value(symbol, 'A', 1, NULL, 0.5, -1, 1e-3)",
            [SampleClause("by_value", (ColumnArgument("symbol"), "A", 1, None, 0.5, -1, 0.001))],
        ),
        ("quotes TABLESAMPLE mine()", [SampleClause("mine", ())]),
        ("quotes a TABLESAMPLE (10 PERCENT) JOIN trades b ON a.symbol = b.symbol", [TENTH, None]),
        ("trades b JOIN quotes TABLESAMPLE (10 PERCENT) a ON a.symbol = b.symbol", [None, TENTH]),
        ("(SELECT price FROM quotes TABLESAMPLE (10 PERCENT)) AS q", [TENTH]),
        ("quotes TABLESAMPLE (10 PERCENT) q LEFT JOIN companies c ON q.symbol = c.symbol", [TENTH, None, TENTH]),
    ],
)
def test_a_clause_belongs_to_the_stream_before_it(part: str, clauses: list[SampleClause | None]) -> None:
    assert sampled(COUNT + part)[: len(clauses)] == clauses


def test_a_query_under_with_is_sampled_wherever_it_is_read() -> None:
    sql = (
        "WITH s AS (SELECT symbol, price FROM quotes TABLESAMPLE (10 PERCENT))"
        " SELECT a.price FROM s AS a JOIN s AS b ON a.symbol = b.symbol"
    )
    assert sampled(sql) == [TENTH, TENTH]


def test_a_stream_at_two_rates_is_two_sources_and_at_one_rate_is_one() -> None:
    both = read_one_time_query(
        "SELECT a.price FROM quotes TABLESAMPLE (10 PERCENT) a JOIN quotes TABLESAMPLE (20 PERCENT) b"
        " ON a.symbol = b.symbol JOIN quotes c TABLESAMPLE uniform(0.1) ON c.symbol = a.symbol JOIN quotes d"
        " ON d.symbol = a.symbol",
        "query",
        SOURCES,
    )
    found = sampled_sources(both)
    assert {name: (each.stream, each.clause.arguments) for name, each in found.items()} == {
        "quotes TABLESAMPLE uniform(0.1)": ("quotes", (0.1,)),
        "quotes TABLESAMPLE uniform(0.2)": ("quotes", (0.2,)),
    }


@pytest.mark.parametrize(
    ("sql", "what", "place"),
    [
        (COUNT + "sliding(quotes, '1 day') TABLESAMPLE (1 PERCENT) q", "TABLESAMPLE has no place here", "TABLESAMPLE"),
        ("SELECT price TABLESAMPLE (5 PERCENT) FROM quotes", "TABLESAMPLE has no place here", "TABLESAMPLE"),
        (COUNT + "highs TABLESAMPLE (5 PERCENT)", "TABLESAMPLE stands behind the name of a stream", "TABLESAMPLE"),
        (
            COUNT + "quotes q JOIN companies TABLESAMPLE (5 PERCENT) c ON q.symbol = c.symbol",
            "TABLESAMPLE stands behind the name of a stream",
            "TABLESAMPLE",
        ),
        (
            "WITH s AS (SELECT price FROM quotes) SELECT count(*) AS n FROM s TABLESAMPLE (5 PERCENT)",
            "TABLESAMPLE stands behind the name of a stream",
            "TABLESAMPLE",
        ),
        (COUNT + "quotes TABLESAMPLE (5 ROWS)", "a sample is a share of the rows here, in PERCENT", "5"),
        (
            COUNT + "quotes TABLESAMPLE (BUCKET 1 OUT OF 2)",
            "a sample is a share of the rows here, in PERCENT",
            "BUCKET",
        ),
        (COUNT + "quotes TABLESAMPLE 5", "a reduction with its arguments is expected behind TABLESAMPLE", "5"),
        (COUNT + "quotes TABLESAMPLE ('a' PERCENT)", "a percentage is a number", "'a'"),
        (COUNT + "quotes TABLESAMPLE (", "a percentage is missing behind TABLESAMPLE", "("),
        (COUNT + "quotes TABLESAMPLE", "the name of a reduction is missing behind TABLESAMPLE", "TABLESAMPLE"),
        (COUNT + "quotes TABLESAMPLE f(1", ") is missing behind TABLESAMPLE", "1"),
        (COUNT + "quotes TABLESAMPLE f(1 2)", ") is missing before this", "2"),
        (COUNT + "quotes TABLESAMPLE f(1,)", "an argument of a reduction is a number, a text or the name of a", ")"),
        (COUNT + "quotes TABLESAMPLE (5 PERCENT) REPEATABLE (7)", "REPEATABLE is not part of TABLESAMPLE", "REPEAT"),
        (COUNT + "quotes TABLESAMPLE (5 PERCENT) q TABLESAMPLE (5 PERCENT)", "TABLESAMPLE is there twice", "TABLE"),
    ],
)
def test_clauses_that_are_refused(sql: str, what: str, place: str) -> None:
    error = mistake(sql)
    assert error.what.startswith(what)
    assert error.excerpt.split("\n")[0].strip()[error.column - 1 :].startswith(place)


def test_queries_whose_answers_are_kept_have_no_samples() -> None:
    sql = COUNT + "quotes TABLESAMPLE (10 PERCENT)"
    with pytest.raises(LanguageError, match="TABLESAMPLE is not part of queries whose answers are kept"):
        read_query(sql, "query", SOURCES)
    with pytest.raises(LanguageError, match="TABLESAMPLE is not part of queries whose answers are kept"):
        read_queries([Declared("counted", sql, "counted.sql")], SOURCES)


def test_names_are_found_beside_clauses() -> None:
    sql = COUNT + "quotes TABLESAMPLE by_value(symbol, 'A', 1, 0.1) q JOIN trades t ON q.symbol = t.symbol"
    assert read_names(sql, "query") == ("quotes", "trades")


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("(10 PERCENT)", "uniform(0.1)"),
        ("by_error(0.01, price)", "by_error(0.01, price)"),
        ("f()", "f()"),
        ("f(-1, 'it''s', TRUE, NULL)", r"f(-1, 'it\'s', TRUE, NULL)"),
    ],
)
def test_a_reduction_by_itself(text: str, written: str) -> None:
    assert read_reduction(text, "--reduce").text == written


@pytest.mark.parametrize("text", ["f() x", "f", "", "(10)", "f(1)) "])
def test_a_reduction_by_itself_is_one_clause(text: str) -> None:
    with pytest.raises(LanguageError):
        read_reduction(text, "--reduce")
