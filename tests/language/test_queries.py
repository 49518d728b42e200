"""One query, and the queries of a project: order, circles, all mistakes at once, and thousands of them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

import pytest
from sqlglot.tokenizer_core import Token

from errata.errors import ErrataError, UsageError
from errata.language import queries
from errata.language.nodes import Group, TimeWindow, scans_of
from errata.language.plan import SourceKind, walk_plan
from errata.language.queries import (
    QueryText,
    naming_advice,
    query_source,
    read_names,
    read_queries,
    read_query,
    stream_source,
)
from errata.language.reading.mistakes import LanguageError, SqlText
from errata.language.reading.parser import parse_tokens
from errata.model.columns import Column, ColumnType, TypeKind
from errata.model.stream import Stream
from fixtures.paper_sources import paper_sources
from fixtures.plans.choices import pool

SOURCES = pool(timed=True)


def declared(name: str, text: str, *, early: bool = False) -> QueryText:
    return QueryText(name, text, f"queries/{name}.sql", early)


def test_a_stream_is_a_source() -> None:
    columns = (Column("time", ColumnType(TypeKind.TIMESTAMP)), Column("symbol", ColumnType(TypeKind.STRING)))
    source = stream_source(Stream("quotes", columns, ("symbol", "time"), "time"))
    assert (source.name, source.kind, source.key, source.order) == (
        "quotes",
        SourceKind.STREAM,
        ("symbol", "time"),
        "time",
    )
    assert [each.name for each in source.fields] == ["time", "symbol"]
    assert source.timed


def test_a_query_is_a_source_with_its_hidden_columns() -> None:
    plan = read_query("SELECT src FROM link1", "q", SOURCES)
    source = query_source("q", plan)
    assert [(each.name, each.hidden) for each in source.fields] == [
        *(("src", False), ("link1.time", True), ("link1.id", True))
    ]
    assert source.key == ("link1.time", "link1.id")
    assert source.timed
    assert not query_source("n", read_query("SELECT value FROM ticks", "n", paper_sources())).timed
    above = read_query("SELECT * FROM q", "above", {"q": source})
    assert [each.name for each in above.visible] == ["src"]
    assert above.key == ("q.link1.time", "q.link1.id")


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("SELECT * FROM a", ("a",)),
        ("SELECT * FROM b JOIN a ON a.x = b.y JOIN B USING (z), c", ("b", "a", "B", "c")),
        ("SELECT * FROM sliding(a, '5 minutes') JOIN sliding_rows(b, 5) ON TRUE", ("a", "b")),
        ("SELECT * FROM negation(sliding(a, '1 day'), (SELECT x FROM b), 'x')", ("a", "b")),
        ("SELECT * FROM (SELECT * FROM a UNION SELECT * FROM (SELECT x FROM b) AS d) AS c", ("a", "b")),
        (
            "WITH c AS (SELECT * FROM a), d AS (SELECT * FROM C) SELECT * FROM d JOIN sliding(c, '1 day') ON x = y",
            ("a",),
        ),
        ("WITH a AS (SELECT * FROM a) SELECT * FROM a", ("a",)),
        ("SELECT * FROM (WITH c AS (SELECT * FROM a) SELECT * FROM c) AS d JOIN c ON TRUE", ("a", "c")),
        ("SELECT * FROM a EXCEPT (SELECT x FROM b INTERSECT SELECT x FROM c)", ("a", "b", "c")),
    ],
)
def test_the_names_that_a_text_reads(text: str, names: tuple[str, ...]) -> None:
    assert read_names(text, "q") == names


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT src FROM link1 WHERE " + " OR ".join(["n = 1"] * 1_000),
        "SELECT " + " + ".join(["n"] * 3_000) + " AS n FROM link1",
        "SELECT n" + "::int" * 2_000 + " AS n FROM link1",
    ],
)
def test_long_chains_are_refused_at_every_door(sql: str) -> None:
    for read in (
        lambda: read_query(sql, "q", SOURCES),
        lambda: read_names(sql, "q"),
        lambda: read_queries([declared("q", sql)], SOURCES),
    ):
        with pytest.raises(LanguageError, match="nested too deeply"):
            read()


@pytest.mark.parametrize(
    ("name", "how"),
    [
        ("quotes", None),
        ("time", None),
        ("select", "write it in backticks: `select`"),
        ("values", "write it in backticks: `values`"),
        ("window", "write it in backticks, and another name behind it: `window` AS window_2"),
    ],
)
def test_a_name_that_is_a_word_of_sql_says_how_to_write_it(name: str, how: str | None) -> None:
    sources = {name: replace(SOURCES["link1"], name=name)}
    assert naming_advice(name) == how
    if how is not None:
        with pytest.raises(LanguageError, match=f"`{name}`"):
            read_query(f"SELECT src FROM {name}", "q", sources)
        assert read_query(f"SELECT src FROM {how.split(': ')[1]}", "q", sources)


def test_queries_can_be_meant_that_are_not_read_and_none_means_itself() -> None:
    with pytest.raises(LanguageError, match=r"did you mean avg_5\?"):
        read_query("SELECT src FROM avg_6", "q", SOURCES, others=["avg_5"])
    texts = [declared("avg_7", "SELECT src FROM avg_8")]
    with pytest.raises(LanguageError) as caught:
        read_queries(texts, SOURCES, ["avg_5"])
    assert "avg_5" in str(caught.value.how)
    assert "avg_7" not in str(caught.value.how)


def test_queries_come_after_what_they_read() -> None:
    plans = read_queries(
        [
            declared("top", "SELECT a.src FROM Middle AS a JOIN base AS b USING (src)"),
            declared("middle", "SELECT src FROM sliding(base, '1 day')"),
            declared("base", "SELECT src, time FROM link1"),
            declared("other", "SELECT src FROM link2"),
        ],
        SOURCES,
    )
    assert list(plans) == ["base", "middle", "top", "other"]
    scanned = {scan.source.name: scan.source.plan for scan in scans_of(plans["top"])}
    assert scanned == {"middle": plans["middle"], "base": plans["base"]}


def test_early_is_asked_of_the_declared_query_only() -> None:
    text = "SELECT count(*) AS c FROM link1 GROUP BY window(time, '1 minute')"
    plans = read_queries([declared("soon", text, early=True), declared("final", text)], SOURCES)
    windows = {
        name: next(node.window for node in walk_plan(plan) if isinstance(node, Group)) for name, plan in plans.items()
    }
    assert windows == {
        "soon": TimeWindow(60_000_000, 60_000_000, early=True),
        "final": TimeWindow(60_000_000, 60_000_000),
    }


@pytest.mark.parametrize(
    ("texts", "circle"),
    [
        ({"a": "SELECT * FROM A"}, "a reads a"),
        ({"a": "SELECT * FROM b", "b": "SELECT * FROM c", "c": "SELECT * FROM a"}, "a reads b reads c reads a"),
        (
            {
                "z": "SELECT * FROM a",
                "a": "SELECT * FROM link1 JOIN b ON TRUE",
                "b": "SELECT x FROM sliding(a, '1 day')",
            },
            "a reads b reads a",
        ),
    ],
)
def test_a_circle_is_refused_and_named(texts: dict[str, str], circle: str) -> None:
    with pytest.raises(ErrataError) as caught:
        read_queries([declared(name, text) for name, text in texts.items()], SOURCES)
    assert f"in a circle: {circle}" in caught.value.what


def test_one_mistake_is_told_as_it_is() -> None:
    with pytest.raises(LanguageError) as caught:
        read_queries([declared("a", "SELECT srx FROM link1"), declared("b", "SELECT src FROM a")], SOURCES)
    assert caught.value.where == "queries/a.sql:1:8"


def test_mistakes_of_several_queries_are_told_together() -> None:
    wrong = [
        declared("a", "SELECT srx FROM link1"),
        declared("b", "SELECT FROM"),
        declared("c", "SELECT src FROM bases"),
        declared("base", "SELECT src FROM link1"),
        declared("reads_a", "SELECT nothing FROM a"),
        declared("x", "SELECT * FROM y"),
        declared("y", "SELECT * FROM x"),
        declared("link1", "SELECT src FROM link2"),
        declared("BASE", "SELECT src FROM link2"),
    ]
    with pytest.raises(ErrataError) as caught:
        read_queries(wrong, SOURCES)
    said = str(caught.value)
    assert said.startswith("6 mistakes in queries:")
    for part in (
        "queries/a.sql:1:8: unknown column 'srx'",
        "queries/b.sql:1:",
        "queries/c.sql:1:17: unknown stream, relation or query 'bases'",
        "did you mean base",
        "x reads y reads x",
        "link1 is the name of a stream or relation already",
        "BASE is the name of a query already",
    ):
        assert part in said
    assert "reads_a" not in said.replace("base, items, link1, link2, people, places, reads_a, x, y", "")


def test_only_ten_of_many_mistakes_are_shown() -> None:
    with pytest.raises(ErrataError) as caught:
        read_queries([declared(f"q{n}", "SELECT srx FROM link1") for n in range(25)], SOURCES)
    assert str(caught.value).count("did you mean src") == 10
    assert "and 15 more" in str(caught.value)


def test_each_text_is_parsed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[str] = []

    def counting(text: SqlText, tokens: Sequence[Token]) -> object:
        parsed.append(text.name)
        return parse_tokens(text, tokens)

    monkeypatch.setattr(queries, "parse_tokens", counting)
    read_queries([declared("b", "SELECT src FROM a"), declared("a", "SELECT src FROM link1")], SOURCES)
    assert parsed == ["queries/b.sql", "queries/a.sql"]


def test_a_long_chain_of_queries_declared_backwards_is_read() -> None:
    chain = [declared(f"q{n}", f"SELECT src FROM q{n - 1}") for n in range(2_000, 0, -1)]
    plans = read_queries([*chain, declared("q0", "SELECT src FROM link1")], SOURCES)
    assert list(plans) == [f"q{n}" for n in range(2_001)]


def test_a_mistake_among_thousands_is_found_at_once() -> None:
    right = [declared(f"query_{n}", "SELECT src FROM link1") for n in range(1_000)]
    wrong = [declared(f"wrong_{n}", f"SELECT src FROM querx_{n}") for n in range(100)]
    begun = time.process_time()
    with pytest.raises(ErrataError, match="100 mistakes") as caught:
        read_queries([*right, *wrong], SOURCES)
    assert time.process_time() - begun < 10
    assert "did you mean query_" in str(caught.value)


def test_queries_that_double_their_keys_again_and_again_are_refused() -> None:
    plans = [QueryText("d0", "SELECT src FROM link1", "d0.sql")]
    for number in range(1, 12):
        below = f"d{number - 1}"
        text = f"SELECT src FROM {below} UNION ALL SELECT src FROM {below}"
        plans.append(QueryText(f"d{number}", text, f"d{number}.sql"))
    with pytest.raises(UsageError, match="a query has 1,000 at most"):
        read_queries(plans, SOURCES)
