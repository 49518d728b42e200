"""Registered texts: each says the plan that it was made of, and what is not understood is refused with its place."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from errata.language.reading.mistakes import LanguageError
from errata.language.registered.read import read_registered
from errata.model.registered import (
    Bound,
    ColumnFactor,
    Comparison,
    ConstantFactor,
    MemberFactor,
    NullFactor,
    RegisteredPlan,
    RegisteredSource,
    RegisteredWindow,
    Relation,
)
from errata.model.stream import RelationKind
from errata.model.time import MINUTE, parse_instant
from fixtures.chance import seeds
from fixtures.fuzz import mutated
from fixtures.registered.one_time import one_time_answer
from fixtures.registered.oracle import answer_of, same_answers
from fixtures.registered.streams import STREAMS, TRADES, random_rows
from fixtures.registered.texts import random_now, random_text

WINDOW = " BEGIN (NOW - '10 minutes') END (NOW)"
PRICES = replace(TRADES, name="prices", key=("sym", "at"), relation=RelationKind.NRR)
KNOWN = {**STREAMS, "prices": PRICES}


def read(text: str) -> RegisteredPlan:
    return read_registered(text, KNOWN, where="q", queries=["daily"])


def refused(text: str) -> LanguageError:
    with pytest.raises(LanguageError) as caught:
        read(text)
    return caught.value


def read_or_refused(text: str) -> RegisteredPlan | LanguageError:
    try:
        return read(text)
    except LanguageError as error:
        return error


# Texts at random.


@pytest.mark.parametrize("seed", seeds(__name__, 6))
def test_a_text_says_the_plan_that_it_was_made_of(seed: int) -> None:
    drawn = random.Random(seed)
    for _ in range(150):
        made = random_text(drawn)
        assert read_registered(made.text, STREAMS) == made.plan, made.text


@pytest.mark.parametrize("seed", seeds(f"{__name__} answers", 4))
def test_the_oracle_answers_what_duckdb_answers(seed: int) -> None:
    drawn = random.Random(seed)
    rows = {name: random_rows(drawn, stream, 25) for name, stream in STREAMS.items()}
    for _ in range(25):
        plan = random_text(drawn).plan
        if "weight" in plan.statement and " + ?" in plan.statement:
            continue  # DuckDB has no type for the sum, on whichever side the widest decimal is
        now = random_now(drawn, plan)
        answer = answer_of(plan, rows, now)
        other = one_time_answer(plan, rows, now)
        assert same_answers(answer, other), (plan.statement, plan.parameters, now, answer, other)


@pytest.mark.parametrize("seed", seeds(f"{__name__} mistakes", 2))
def test_any_text_is_read_or_refused_with_its_place(seed: int, pytestconfig: pytest.Config) -> None:
    """With `--long` 50,000 of them."""
    drawn = random.Random(seed)
    texts = [random_text(drawn).text for _ in range(60)]
    found = 0
    for text in mutated(seed=seed, count=50_000 if pytestconfig.getoption("--long") else 1_200, texts=texts):
        outcome = read_or_refused(text)
        if isinstance(outcome, LanguageError):
            lines = text.split("\n")
            assert 1 <= outcome.line <= len(lines), text
            assert 1 <= outcome.column <= len(lines[outcome.line - 1]) + 1, text
            assert str(outcome).startswith(f"q:{outcome.line}:{outcome.column}: "), text
        else:
            assert outcome.statement.count("?") == len(outcome.parameters) > 0
            found += 1
    assert found > 20


def test_texts_that_differ_in_constants_have_one_statement() -> None:
    one = read("SELECT sym FROM trades WHERE price > 5 AND sym IN ('a', 'b')" + WINDOW)
    other = read(
        "select SYM from trades where trades.sym in ('x', 'y') and 7.5 < price begin (now - '1 hour') end (now)"
    )
    assert one.statement == other.statement
    assert one.statement == (
        "SELECT trades.sym AS sym FROM trades AS trades WHERE trades.price > ? AND trades.sym IN (?, ?)"
        " BEGIN (NOW - ?) END (NOW)"
    )
    assert one.parameters == (5.0, "a", "b", 10 * MINUTE)
    assert other.parameters == (7.5, "x", "y", 60 * MINUTE)


# Each part.


def test_a_text_with_every_part() -> None:
    plan = read(
        "SELECT a.sym, b.bid AS best FROM trades a JOIN quotes b ON a.sym = b.sym AND a.at >= b.at"
        " - INTERVAL '5' SECOND WHERE a.price > 5 AND a.note IS NULL AND b.size BETWEEN 1 AND 10 AND b.firm"
        " AND a.qty IN (3, 1, 3)"
        " AND b.ask > b.bid + 0.5 FOR a BEGIN (NOW - 100 ROWS) END (NOW), FOR b BEGIN ('2026-11-18') END (NOW);"
    )
    assert plan.sources == (RegisteredSource("trades", "a"), RegisteredSource("quotes", "b"))
    assert plan.conjunctions == (
        (
            NullFactor("note", is_null=True),
            ConstantFactor("price", Comparison.GREATER, 5.0),
            MemberFactor("qty", (1, 3)),
        ),
        (
            ColumnFactor("ask", Comparison.GREATER, "bid", 0.5),
            ConstantFactor("firm", Comparison.EQUAL, True),
            ConstantFactor("size", Comparison.AT_MOST, 10),
            ConstantFactor("size", Comparison.AT_LEAST, 1),
        ),
    )
    assert plan.relations == (
        Relation(0, "at", Comparison.AT_LEAST, 1, "at", -5_000_000),
        Relation(0, "sym", Comparison.EQUAL, 1, "sym"),
    )
    now = Bound(relative=True, value=0)
    assert plan.windows == (
        RegisteredWindow(end=now, rows=100),
        RegisteredWindow(begin=Bound(False, parse_instant("2026-11-18")), end=now),
    )
    assert [each.output.name for each in plan.items] == ["sym", "best"]


def test_star_over_several_sources_puts_the_alias_before_names_that_are_there_twice() -> None:
    names = [each.output.name for each in read("SELECT * FROM trades a, quotes b" + WINDOW).items]
    assert names[:4] == ["a_sym", "a_at", "a_no", "price"]
    assert names[-3:] == ["firm", "b_note", "b_rate"]


def test_aggregates_have_names_of_their_own() -> None:
    plan = read("SELECT count(*), sum(cost), AVG(price) mean, min(sym) FROM trades" + WINDOW)
    assert [(each.output.name, str(each.output.type)) for each in plan.items] == [
        ("count", "bigint"),
        ("sum_cost", "decimal(22,2)"),
        ("mean", "double"),
        ("min_sym", "string"),
    ]


def test_words_of_the_window_within_quotes_comments_and_names_are_no_window() -> None:
    text = "SELECT note AS `begin` FROM trades /* BEGIN (NOW) */ WHERE note = 'FOR a BEGIN (NOW - ''1 day'') END (NOW)'"
    assert refused(text).what == "a registered query ends with its window, and there is none"
    plan = read(text + " -- END (NOW)\n" + WINDOW)
    assert plan.windows == (RegisteredWindow(begin=Bound(True, 10 * MINUTE), end=Bound(True, 0)),)
    assert plan.conjunctions == ((ConstantFactor("note", Comparison.EQUAL, "FOR a BEGIN (NOW - '1 day') END (NOW)"),),)


def test_a_window_is_half_open_and_now_is_the_end_of_its_instant() -> None:
    window = read("SELECT * FROM ticks BEGIN (NOW - 10) END (NOW)").windows[0]
    assert (window.interval(100).start, window.interval(100).end) == (91, 101)
    snapshot = read("SELECT * FROM ticks BEGIN (5) END (50)").windows[0]
    assert (snapshot.interval(20).start, snapshot.interval(20).end) == (5, 21)
    assert (snapshot.interval(70).start, snapshot.interval(70).end) == (5, 50)


def test_negated_comparisons_are_the_opposite_ones() -> None:
    plan = read("SELECT * FROM trades WHERE NOT (price < 5) AND NOT live AND NOT (NOT qty >= 2)" + WINDOW)
    assert plan.conjunctions[0] == (
        ConstantFactor("live", Comparison.EQUAL, False),
        ConstantFactor("price", Comparison.AT_LEAST, 5.0),
        ConstantFactor("qty", Comparison.AT_LEAST, 2),
    )


# Refusals: what is refused, and a word of how to mend it.


@pytest.mark.parametrize(
    ("window", "what"),
    [
        ("", "a registered query ends with its window, and there is none"),
        ("BEGIN NOW END (NOW)", "a registered query ends with its window, and there is none"),
        ("BEGIN (NOW - '1 day')", "the window is not complete: END is missing"),
        ("BEGIN (NOW - '1 day' END (NOW)", "the window is not complete: ) is missing"),
        ("BEGIN () END (NOW)", "a bound of the window is missing"),
        ("BEGIN (NOW - '1 day') END (NOW + '1 day')", "this is not a bound of a window"),
        ("BEGIN (NOW, NOW) END (NOW)", "this is not a bound of a window"),
        (
            "BEGIN (NOW - '1 day') END ('2026-01-01')",
            "the window begins at a distance from NOW, and ends at a fixed time",
        ),
        ("BEGIN (NOW) END (NOW)", "the window is empty"),
        ("BEGIN ('2026-01-02') END ('2026-01-02')", "the window is empty"),
        ("BEGIN (NOW - '2 months') END (NOW)", "'2 months' is not a duration"),
        ("BEGIN (NOW - INTERVAL '0' DAY) END (NOW)", "a distance from NOW is more than nothing"),
        ("BEGIN (NOW - 10) END (NOW)", "a distance from NOW is a duration here"),
        ("BEGIN (5) END (NOW)", "a bound of the window is a time here"),
        ("BEGIN (at) END (NOW)", "this is not a constant"),
        ("BEGIN ('soon') END (NOW)", "'soon' is not a date and time"),
        ("BEGIN (NOW - 0 ROWS) END (NOW)", "a number of rows is a whole number above 0"),
        ("BEGIN (10 ROWS) END (NOW)", "a window that counts rows begins with NOW - n ROWS"),
        ("BEGIN (NOW - 5 ROWS) END (NOW - 3 ROWS)", "only the begin of a window counts rows"),
        (f"{WINDOW} LIMIT 5", "the window is the end of a registered query, and this stands behind it"),
        (f"FOR x {WINDOW}", "x is not in FROM"),
        (f"FOR trades {WINDOW}, FOR trades {WINDOW}", "trades has two windows"),
    ],
)
def test_windows_that_are_refused(window: str, what: str) -> None:
    error = refused(f"SELECT * FROM trades {window}")
    assert error.what == what
    assert error.excerpt


def test_bigint_streams_have_windows_of_whole_numbers() -> None:
    assert refused("SELECT * FROM ticks" + WINDOW).what == "a distance from NOW is a whole number here"
    assert refused("SELECT * FROM ticks BEGIN ('2026-01-01') END (NOW)").what == (
        "a bound of the window is a whole number here"
    )


def test_every_source_has_a_window() -> None:
    error = refused(f"SELECT a.sym FROM trades a, trades b FOR a {WINDOW}")
    assert error.what == "b has no window"
    assert "FOR b BEGIN" in str(error.how)


@pytest.mark.parametrize(
    ("query", "what", "place"),
    [
        ("* FROM tradez", "unknown stream 'tradez'", "tradez"),
        ("* FROM prices", "prices is a relation", "prices"),
        ("* FROM daily", "daily is a query", "daily"),
        ("* FROM trades, ticks", "ticks and trades cannot be read together", "ticks"),
        ("* FROM trades, trades", "trades is in FROM twice", "trades"),
        ("* FROM (SELECT * FROM trades) t", "a SELECT in FROM is not part of registered queries", "* FROM trades"),
        ("* FROM sliding(trades, '1 day')", "sliding(...) is not part of registered queries", "sliding"),
        (
            "* FROM trades t LEFT JOIN quotes q ON t.sym = q.sym",
            "LEFT JOIN is not part of registered queries",
            "quotes q",
        ),
        ("* FROM trades JOIN quotes USING (sym)", "USING is not part of registered queries", "quotes"),
        ("* FROM trades NATURAL JOIN quotes", "NATURAL is not part of registered queries", "quotes"),
        ("sym, count(*) FROM trades GROUP BY sym", "GROUP BY is not part of registered queries", "sym"),
        ("sym, count(*) FROM trades", "a column stands beside an aggregate", "sym"),
        ("count(DISTINCT sym) FROM trades", "count(DISTINCT ...) is not part of registered queries", "count"),
        ("first(sym) FROM trades", "first() is not part of registered queries", "first"),
        ("sum(sym) FROM trades", "sum takes a number, and sym is a string", "sum"),
        ("sum(*) FROM trades", "sum(*) means nothing", "sum"),
        ("sum(price + 1) FROM trades", "an aggregate is of a column here", "price + 1"),
        ("price + 1 FROM trades", "an expression is selected here", "price + 1"),
        ("sym, SYM FROM trades", "the output name sym is there twice", "SYM"),
        ("DISTINCT count(*) FROM trades", "aggregates give one row", "DISTINCT"),
        ("* FROM trades ORDER BY at", "ORDER BY is not part of the language", "at"),
        ("* FROM trades UNION SELECT * FROM trades", "UNION is not part of registered queries", "*"),
        ("* FROM trades TABLESAMPLE (5 ROWS)", "TABLESAMPLE is not part of registered queries", "TABLESAMPLE"),
        ("t.sym FROM trades", "t is not in FROM", "t.sym"),
        ("prise FROM trades", "unknown column 'prise'", "prise"),
        ("sym FROM trades, quotes", "sym can be a column of several sources", "sym"),
    ],
)
def test_queries_that_are_refused(query: str, what: str, place: str) -> None:
    error = refused(f"SELECT {query}{WINDOW}")
    assert error.what == what
    assert error.excerpt.split("\n")[0].strip()[error.column - 1 :].startswith(place)


@pytest.mark.parametrize(
    ("condition", "what"),
    [
        ("price <> 5", "<> is not part of registered queries"),
        ("NOT (qty = 1)", "<> is not part of registered queries"),
        ("qty = 1 OR qty = 2", "OR is not part of registered queries"),
        ("qty NOT IN (1, 2)", "NOT is not part of registered queries here"),
        ("NOT (qty BETWEEN 1 AND 2)", "NOT is not part of registered queries here"),
        ("qty IN (1, NULL)", "NULL compares with nothing"),
        ("qty IN (1, no)", "IN lists constants here"),
        ("qty IN (SELECT no FROM quotes)", "a subquery is not part of registered queries"),
        ("EXISTS (SELECT 1 FROM quotes)", "a subquery is not part of registered queries"),
        ("qty > (SELECT 1)", "a subquery is not part of registered queries"),
        ("sym LIKE 'a%'", "LIKE is not part of registered queries"),
        ("qty <=> 5", "<=> is not part of registered queries"),
        ("live IS NOT TRUE", "IS NOT TRUE and IS NOT FALSE are not part of registered queries"),
        ("price * 2 > qty", "an expression is compared here"),
        ("qty + no > 5", "an expression is compared here"),
        ("qty + 1 > 5", "a constant is added to a column that is compared with another constant"),
        ("qty + 1 = no + 2", "a constant is added on both sides"),
        ("sym > 5", "string > int: the two are not of one kind"),
        ("sym > price", "string > double: the two are not of one kind"),
        ("sym = NULL", "NULL compares with nothing"),
        ("qty", "a condition is a boolean, and qty is of type int"),
        ("5 = 5", "two constants are compared"),
        ("FALSE", "no row satisfies this"),
        ("at > 'yesterday'", "'yesterday' is not a date and time"),
        ("day > '2026-11-18 05:00:00'", "a date stands beside '2026-11-18 05:00:00', which has a time of day"),
        ("cost > 1e3", "a decimal(12,2) is compared with a floating constant"),
        ("total > 1e30", "a bigint is compared with a floating constant"),
        ("price > 1e400", "the number is too large for a double"),
        ("price > double('many')", "'many' is not a number"),
        ("sym = lower('A')", "this is not a plain constant"),
        ("at > seen + 5", "a timestamp is shifted by an INTERVAL"),
        ("day > seen + 1", "a timestamp is shifted beside a date"),
        ("day > day + INTERVAL '1' DAY", "a date is shifted by a whole number of days"),
        ("qty > no + 0.5", "0.5 is added to a int beside a int"),
        ("qty > no + 1e0", "a floating number is added to a int"),
        ("sym > note + 1", "this cannot be added to note, a string"),
        ("price > rate + 1F", "a float is added to a column"),
        ("at > now()", "now() is not deterministic"),
        ("qty = ?", "parameters are not part of the language"),
        ("qty BETWEEN 1", "BETWEEN is without its AND"),
        ("qty > 5 AND", "a value is missing before this"),
    ],
)
def test_conditions_that_are_refused(condition: str, what: str) -> None:
    error = refused(f"SELECT * FROM trades WHERE {condition}{WINDOW}")
    assert error.what == what
    assert error.line == 1
    assert error.column >= len("SELECT * FROM trades ")


def test_a_refusal_shows_the_place_and_says_why_and_how() -> None:
    assert str(refused(f"SELECT sym,\n  price\nFROM trades\nWHERE sym = 'a' OR price <> 5{WINDOW}")).split("\n") == [
        "q:4:7: OR is not part of registered queries",
        "    WHERE sym = 'a' OR price <> 5 BEGIN (NOW - '10 minutes') END (NOW)",
        "          ^^^^^^^^^^^^^^^^^^^^^^^",
        "  why: rows are matched to all registered queries at once, by look-up of what their conditions name",
        "  how to mend: write x IN (1, 2) for alternatives of one column, or register a query for each alternative",
    ]


def test_deep_and_long_texts_are_refused_with_words() -> None:
    assert refused(f"SELECT * FROM trades WHERE {'(' * 50}live{')' * 50}{WINDOW}").what == (
        "the query is nested too deeply"
    )
    many = " AND ".join(f"qty > {each}" for each in range(3_000))
    assert len(read(f"SELECT * FROM trades WHERE {many}{WINDOW}").conjunctions[0]) == 3_000
    sources = ", ".join(f"trades t{each}" for each in range(20))
    assert refused(f"SELECT t0.sym FROM {sources}{WINDOW}").what == "FROM has 20 sources"
