"""Texts to plans: golden files for every construct and every query of both papers, and what is refused."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from errata.language.nodes import Group, TimeWindow, scans_of
from errata.language.plan import Plan, walk_plan
from errata.language.plan_text import plan_tree
from errata.language.queries import query_source, read_query
from errata.language.reading.mistakes import LanguageError
from fixtures.paper_sources import paper_sources
from fixtures.plans.choices import pool
from fixtures.printing.printing import to_sql

PLANS = Path(__file__).parent / "plans"
QUERIES = sorted(PLANS.glob("*.sql"))


@pytest.mark.parametrize("path", QUERIES, ids=[path.stem for path in QUERIES])
def test_a_text_becomes_this_plan(path: Path) -> None:
    plan = read_query(path.read_text(), path.name, paper_sources())
    golden = path.with_suffix(".plan")
    if os.environ.get("ERRATA_GOLDEN") == "write":
        golden.write_text(plan_tree(plan))
    assert plan_tree(plan) == golden.read_text()


def test_there_is_a_text_for_each_plan() -> None:
    assert {path.stem for path in PLANS.glob("*.plan")} == {path.stem for path in QUERIES}


@pytest.mark.parametrize("path", QUERIES, ids=[path.stem for path in QUERIES])
def test_a_plan_printed_is_read_as_the_same_plan(path: Path) -> None:
    plan = read_query(path.read_text(), path.name, paper_sources())
    assert read_query(to_sql(plan), "printed", paper_sources()) == plan


def read(text: str) -> Plan:
    sources = pool(timed=True)
    sources["held"] = query_source(
        "held", read_query("SELECT src, sum(n) AS n FROM link1 GROUP BY src", "held", sources)
    )
    sources["ticks"] = paper_sources()["ticks"]
    return read_query(text, "q", sources)


REFUSED = {
    # what is read
    "SELECT * FROM nowhere": ("1:15", "unknown stream, relation or query 'nowhere'"),
    "SELECT * FROM linc1": ("1:15", "did you mean link1"),
    "SELECT src FROM s.link1": ("1:17", "streams have one name"),
    "SELECT 1 AS x": ("1:8", "no FROM"),
    "SELECT src FROM (SELECT src FROM link1)": ("1:25", "has no name"),
    "SELECT src FROM (SELECT src FROM link1) AS a(b)": ("1:44", "name them in the SELECT within"),
    "SELECT src FROM link1 CROSS JOIN (link2 JOIN items USING (src))": ("1:35", "joins in brackets"),
    "SELECT src FROM link1 AS window": ("1:17", "window cannot be a name"),
    "SELECT src FROM link1 AS _x": ("1:17", "cannot be the name"),
    "SELECT src FROM range(5)": ("1:17", "range is not a table function"),
    "SELECT src FROM link1 JOIN ticks ON TRUE": ("1:28", "link1 is ordered by a timestamp, ticks by a bigint"),
    "SELECT src FROM link1@v3": ("1:22", "not a name"),
    "SELECT AS FROM link1": ("1:1", "something is missing behind SELECT"),
    "SELECT src FROM link1*": ("1:22", "something is missing behind *"),
    "SELECT src FROM link1* WHERE id > 1": ("1:22", "something is missing behind *"),
    "SELECT src FROM link1 ?": ("1:23", "not a name"),
    # columns
    "SELECT src@v3 FROM link1": ("1:11", "not a name"),
    "SELECT srx FROM link1": ("1:8", "did you mean src"),
    "SELECT a.src FROM link1": ("1:8", "a is not in FROM"),
    "SELECT link1.srx FROM link1": ("1:8", "unknown column 'srx' of link1"),
    "SELECT a.link1.src FROM link1": ("1:8", "write alias.column"),
    "SELECT time FROM link1 JOIN link2 ON TRUE": ("1:8", "link1.time or link2.time"),
    "SELECT link1.n FROM link1 JOIN link1 ON TRUE": ("1:32", "link1 is in FROM twice"),
    "SELECT a.n FROM link1 AS a JOIN link2 AS a ON TRUE": ("1:33", "a is in FROM twice"),
    "SELECT a.n FROM link1 AS a JOIN held AS b USING (time)": ("1:50", "unknown column 'time' of b"),
    "SELECT n + 1 FROM link1": ("1:8", "has no name"),
    "SELECT src, SRC FROM link1": ("1:13", "the output name src is there twice"),
    "SELECT * FROM link1 JOIN link2 ON TRUE": ("1:8", "the output name time is there twice"),
    "SELECT src AS _x FROM link1": ("1:15", "cannot be the name of a column"),
    "SELECT * EXCEPT (src) FROM link1": ("1:18", "EXCEPT is not part of the language"),
    # relations
    "SELECT * FROM people": ("1:15", "stands alone or on the left"),
    "SELECT link1.src FROM people JOIN link1 ON TRUE": ("1:23", "stands alone or on the left"),
    "SELECT label FROM people JOIN places USING (name)": ("1:19", "stands alone or on the left"),
    "SELECT a.src FROM link1 AS a JOIN (SELECT * FROM people) AS b ON TRUE": ("1:50", "stands alone"),
    "SELECT name FROM sliding(people, '5 minutes')": ("1:26", "can only be joined"),
    "SELECT src FROM negation(link1, people, 'src')": ("1:33", "can only be joined"),
    "SELECT label FROM held JOIN places ON name = src": ("1:29", "without a time of their own"),
    # windows
    "SELECT src FROM sliding(link1)": ("1:17", "write sliding(stream, '5 minutes')"),
    "SELECT src FROM sliding(link1, 5)": ("1:32", "write it as a text"),
    "SELECT src FROM sliding(link1, '5 months')": ("1:32", "months and years are none"),
    "SELECT src FROM sliding(link1, '1 year')": ("1:32", "months and years are none"),
    "SELECT src FROM sliding(link1, '0 seconds')": ("1:32", "longer than nothing"),
    "SELECT src FROM sliding(link1, '99999999999999 days')": ("1:32", "100,000 years are the most"),
    "SELECT src FROM sliding(link1, INTERVAL 5 MINUTES)": ("1:41", "write it as a text"),
    "SELECT value FROM sliding(ticks, '5 minutes')": ("1:34", "event time is a bigint"),
    "SELECT value FROM sliding(ticks, 0)": ("1:34", "a whole number above 0"),
    "SELECT src FROM sliding_rows(link1, 0)": ("1:37", "a whole number above 0"),
    "SELECT src FROM sliding_rows(sliding(link1, '5 minutes'), 3)": ("1:30", "what does not expire"),
    "SELECT src FROM sliding(held, '5 minutes')": ("1:25", "say what holds, not what happened"),
    "SELECT src FROM sliding(negation(link1, link2, 'src'), '5 minutes')": ("1:25", "later than they happened"),
    "SELECT window(time, '5 minutes') AS w FROM link1": ("1:8", "stands in GROUP BY only"),
    "SELECT n FROM link1 WHERE row_window(3)": ("1:27", "stands in GROUP BY only"),
    "SELECT max(n) AS n FROM held GROUP BY window(event_time(), '1 minute')": ("1:39", "say what holds"),
    "SELECT max(n) AS n FROM link1 GROUP BY window(time)": ("1:40", "write window(time, '5 minutes')"),
    "SELECT max(n) AS n FROM link1 GROUP BY window(id, '1 minute')": ("1:47", "event time is link1.time here"),
    "SELECT max(n) AS n FROM link1 GROUP BY window(time + INTERVAL '1' DAY, '1 minute')": ("1:47", "this is another"),
    "SELECT max(n) AS n FROM link1 GROUP BY window(time, '1 minute', '2 minutes')": ("1:65", "would be lost"),
    "SELECT max(n) AS n FROM link1 GROUP BY window(time, '-1 minute')": ("1:53", "is not a duration"),
    "SELECT max(n) AS n FROM link1 GROUP BY window(time, '999 days', '1 second')": ("1:65", "86,313,600 windows"),
    "SELECT max(n) AS n FROM link1 GROUP BY window(time, '1 day'), row_window(3)": ("1:63", "one window at most"),
    "SELECT max(n) AS n FROM link1 GROUP BY row_window(3, 4)": ("1:54", "would be lost"),
    "SELECT max(n) AS n FROM link1 GROUP BY row_window('3')": ("1:51", "a whole number above 0"),
    "SELECT max(n) AS n FROM sliding(link1, '1 day') GROUP BY row_window(3)": ("1:58", "what does not expire"),
    # groups
    "SELECT src, n FROM link1 GROUP BY src": ("1:13", "add it to GROUP BY, or write first(n)"),
    "SELECT src, n FROM held GROUP BY src": ("1:13", "add it to GROUP BY, or write max(n)"),
    "SELECT n + count(*) AS n FROM link1": ("1:8", "neither grouped by"),
    "SELECT count(*) AS c FROM link1 HAVING src = 'x'": ("1:40", "neither grouped by"),
    "SELECT upper(src) AS s FROM link1 GROUP BY lower(src)": ("1:14", "neither grouped by"),
    "SELECT * FROM link1 GROUP BY src": ("1:8", "* has no meaning over groups"),
    "SELECT count(*) AS c FROM link1 GROUP BY 1": ("1:42", "by position"),
    "SELECT count(*) AS c FROM link1 GROUP BY ALL": ("1:", "GROUP BY ALL"),
    "SELECT count(*) AS c FROM link1 GROUP BY ROLLUP (src)": ("1:50", "ROLLUP"),
    "SELECT count(*) AS c FROM link1 GROUP BY count(*)": ("1:42", "count"),
    "SELECT count(*) AS c FROM link1 GROUP BY c": ("1:8", "count"),
    "SELECT window_end FROM link1 GROUP BY src": ("1:8", "unknown column 'window_end'"),
    "SELECT window_no FROM link1 GROUP BY window(time, '1 day')": ("1:8", "unknown column 'window_no'"),
    "SELECT src, event_time() AS t FROM link1 GROUP BY src": ("1:13", "write max(event_time())"),
    "SELECT event_time() AS t FROM held": ("1:8", "say what holds"),
    "SELECT a.src FROM link1 AS a JOIN link2 AS b ON event_time() = a.time": ("1:49", "event_time(a) or event_time(b)"),
    "SELECT event_time(b) AS t FROM link1 AS a": ("1:19", "b is not in FROM"),
    # aggregates
    "SELECT first(n) AS n FROM held": ("1:8", "no order to go by"),
    "SELECT sum(src) AS s FROM link1": ("1:8", "sum takes a number"),
    "SELECT avg(time) AS s FROM link1": ("1:8", "avg takes a number"),
    "SELECT sum(*) AS s FROM link1": ("1:8", "means nothing"),
    "SELECT count() AS c FROM link1": ("1:8", "one argument"),
    "SELECT count(DISTINCT src, n) AS c FROM link1": ("1:23", "one value is counted at a time"),
    "SELECT sum(DISTINCT n) AS c FROM link1": ("1:8", "remove the duplicates first"),
    "SELECT first(n, TRUE) AS n FROM link1": ("1:8", "NULLs are values of rows"),
    "SELECT first(n) IGNORE NULLS AS n FROM link1": ("1:8", "NULLS"),
    "SELECT sum(n) OVER (PARTITION BY src) AS n FROM link1": ("1:8", "OVER"),
    "SELECT sum(count(*)) AS n FROM link1": ("1:12", "an aggregate is of a group's rows"),
    "SELECT src FROM link1 WHERE count(*) > 1": ("1:29", "an aggregate is of a group's rows"),
    "SELECT a.n FROM link1 AS a JOIN link2 AS b ON count(*) > 1": ("1:47", "an aggregate is of a group's rows"),
    # set operations
    "SELECT src FROM link1 UNION ALL SELECT src, n FROM link1": ("1:40", "2 columns here, and 1"),
    "SELECT src FROM link1 UNION ALL SELECT n FROM link1": ("1:40", "is int here and string before"),
    "SELECT n FROM link1 INTERSECT ALL SELECT n FROM link2": ("1:42", "write INTERSECT"),
    "SELECT x FROM link1 UNION ALL SELECT DISTINCT price FROM link1": ("1:47", "after duplicates are gone"),
    "SELECT src FROM link1 EXCEPT SELECT src FROM people": ("1:46", "stands alone"),
    "SELECT src FROM link1 UNION ALL SELECT src FROM link2 LIMIT 3": ("1:61", "LIMIT"),
    "SELECT src FROM negation(link1, link2)": ("1:17", "write negation(a, b, 'column')"),
    "SELECT src FROM negation(link1, link2, src)": ("1:40", "named by a text"),
    "SELECT src FROM negation(link1, link2, 'srx')": ("1:40", "unknown column 'srx' on the left"),
    "SELECT src FROM negation(link1, held, 'time')": ("1:39", "unknown column 'time' on the right"),
    "SELECT src FROM negation(link1, held, 'n')": ("1:39", "n is int on the left and bigint on the right"),
    "SELECT src FROM negation(link1, link2, 'src', 'SRC')": ("1:17", "named twice"),
    # with
    "WITH c AS (SELECT 1 AS a FROM link1), C AS (SELECT 2 AS a FROM link1) SELECT * FROM c": ("1:39", "twice"),
    "WITH c AS (SELECT srx FROM link1) SELECT src FROM link1": ("1:19", "unknown column 'srx'"),
    "WITH c(a) AS (SELECT src FROM link1) SELECT * FROM c": ("1:6", "name them in the SELECT within"),
    "WITH c AS (SELECT * FROM d), d AS (SELECT * FROM link1) SELECT * FROM c": ("1:26", "'d'"),
    "WITH RECURSIVE c AS (SELECT * FROM c) SELECT * FROM c": ("1:", "recursive"),
    # clauses
    "SELECT src FROM link1 WHERE n": ("1:29", "a condition is a boolean"),
    "SELECT src FROM link1 JOIN link2 ON link1.n": ("1:37", "a condition is a boolean"),
    "SELECT src FROM link1 GROUP BY src HAVING src": ("1:43", "boolean"),
    "SELECT src FROM link1 ORDER BY src": ("1:32", "ORDER BY"),
    "SELECT src FROM link1 LIMIT 3": ("1:29", "LIMIT"),
    "SELECT src FROM link1 OUTER JOIN link2 USING (src)": ("1:34", "this kind of join"),
    "SELECT src FROM link1 LEFT CROSS JOIN link2": ("1:39", "LEFT JOIN, RIGHT JOIN or FULL JOIN"),
    "SELECT src FROM link1 SEMI JOIN link2 USING (src)": ("1:33", "JOIN (SELECT DISTINCT x FROM b)"),
    "SELECT src FROM link1 LEFT ANTI JOIN link2 USING (src)": ("1:38", "JOIN (SELECT x FROM a EXCEPT SELECT x FROM b)"),
    "SELECT src FROM link1 WHERE src IN (SELECT src FROM link2)": ("1:44", "JOIN (SELECT DISTINCT x FROM b)"),
    "SELECT src FROM link1 WHERE src NOT IN (SELECT src FROM link2)": ("1:48", "(SELECT x FROM a EXCEPT SELECT"),
    "SELECT src FROM link1 WHERE NOT EXISTS (SELECT src FROM link2)": ("1:48", "(SELECT x FROM a EXCEPT SELECT"),
    "SELECT src FROM link1 WHERE n > (SELECT n FROM link2)": ("1:41", "JOIN (SELECT ...) AS name ON"),
    "SELECT time, time FROM link1": ("1:14", "expression AS time_2"),
    "SELECT src FROM tumble(link1, '5 minutes')": ("1:17", "write window(time, '5 minutes') in GROUP BY"),
    "SELECT max(n) AS n FROM link1 GROUP BY hop(time, '5 minutes')": ("1:40", "in GROUP BY"),
    "SELECT src FROM link1 NATURAL JOIN link2": ("1:36", "NATURAL"),
    "SELECT src FROM link1 WHERE n IN (SELECT n FROM link2)": ("1:42", "subquery"),
    "SELECT DISTINCT ON (src) src FROM link1": ("1:21", "DISTINCT ON"),
}


@pytest.mark.parametrize("text", REFUSED)
def test_what_is_refused_is_shown_at_its_place_with_its_reason(text: str) -> None:
    place, part = REFUSED[text]
    with pytest.raises(LanguageError) as caught:
        read(text)
    assert str(caught.value).startswith(f"q:{place}")
    assert part in str(caught.value)


@pytest.mark.parametrize(
    "text",
    ["SELECT src FROM sliding(link1, '5 minuts')", "SELECT time + INTERVAL '5 minuts' AS t FROM link1"],
)
def test_months_are_spoken_of_only_where_they_are_written(text: str) -> None:
    with pytest.raises(LanguageError) as caught:
        read(text)
    assert caught.value.why is None
    with pytest.raises(LanguageError, match="months and years"):
        read(text.replace("minuts", "months"))


def test_names_of_any_case_mean_the_same() -> None:
    assert read("SELECT SRC, A.N FROM LINK1 AS a WHERE a.Id = 1") == read(
        "SELECT src, a.n FROM link1 AS a WHERE id = 1"
    )


def test_an_alias_used_twice_gets_a_number_in_the_plan() -> None:
    plan = read(
        "SELECT a.src FROM (SELECT a.src FROM link1 AS a) AS a JOIN (SELECT a.src FROM link1 AS a) AS b USING (src)"
    )
    assert [scan.alias for scan in scans_of(plan)] == ["a_2", "a_3"]


def test_using_shows_its_columns_once_and_first() -> None:
    plan = read("SELECT * FROM (SELECT n, src FROM link1) AS a JOIN (SELECT src, id FROM link1) AS b USING (src)")
    assert [each.name for each in plan.visible] == ["src", "n", "id"]
    assert read("SELECT b.src FROM link1 AS a JOIN link2 AS b USING (src, n) WHERE src = 'x' AND b.n = 1").visible


def test_what_is_under_with_is_read_for_each_use_and_can_hide_a_stream() -> None:
    plan = read("WITH link1 AS (SELECT src FROM link1) SELECT a.src FROM link1 AS a JOIN link1 AS b ON TRUE")
    assert [scan.source.name for scan in scans_of(plan)] == ["link1", "link1"]


def test_on_true_and_no_condition_are_a_cross_join() -> None:
    texts = ["CROSS JOIN link2 AS b", ", link2 AS b", "JOIN link2 AS b ON TRUE", "JOIN link2 AS b"]
    assert len({plan_tree(read(f"SELECT a.n FROM link1 AS a {text}")) for text in texts}) == 1


def test_early_windows_are_those_of_the_outermost_select() -> None:
    text = "SELECT max(c) AS c FROM (SELECT count(*) AS c FROM link1 GROUP BY window(time, '1 minute')) AS a"
    text += " GROUP BY window(event_time(), '1 hour')"
    plan = read_query(text, "q", pool(timed=True), early=True)
    assert [_early(node) for node in walk_plan(plan) if isinstance(node, Group)] == [True, False]
    branches = "SELECT count(*) AS c FROM link1 GROUP BY window(time, '1 minute')"
    plan = read_query(f"{branches} UNION ALL {branches}", "q", pool(timed=True), early=True)
    assert [_early(node) for node in walk_plan(plan) if isinstance(node, Group)] == [True, True]


def _early(group: Group) -> bool:
    return isinstance(group.window, TimeWindow) and group.window.early


def test_early_results_need_a_window() -> None:
    with pytest.raises(LanguageError, match="without a window of time"):
        read_query("SELECT src, count(*) AS c FROM link1 GROUP BY src", "q", pool(timed=True), early=True)


def test_hidden_key_columns_of_two_windows_and_two_unions_differ() -> None:
    window = "(SELECT count(*) AS c FROM link1 GROUP BY window(time, '1 minute'))"
    plan = read(f"SELECT a.c FROM {window} AS a JOIN {window} AS b USING (c)")
    assert plan.key == ("window_start", "window_start_2")
    union = "(SELECT src FROM link1 UNION ALL SELECT src FROM link2)"
    plan = read(f"SELECT a.src FROM {union} AS a JOIN {union} AS b USING (src)")
    assert {"_branch", "_branch_2"} <= set(plan.key)


def test_names_of_columns_that_tell_results_apart_are_refused_for_others() -> None:
    with pytest.raises(LanguageError, match="tells the results apart"):
        read("SELECT count(*) AS window_start FROM link1 GROUP BY window(time, '1 minute')")
    assert read("SELECT window_start, count(*) AS c FROM link1 GROUP BY window(time, '1 minute')").key == (
        "window_start",
    )


def test_a_query_with_too_many_inputs_is_refused() -> None:
    doubled = ", ".join(f"c{n + 1} AS (SELECT a.src FROM c{n} AS a JOIN c{n} AS b USING (src))" for n in range(20))
    with pytest.raises(LanguageError, match="more than 300 inputs"):
        read(f"WITH c0 AS (SELECT src FROM link1), {doubled} SELECT * FROM c20")


def test_a_query_that_is_too_deep_is_refused() -> None:
    nested = ", ".join(f"c{n + 1} AS (SELECT src FROM c{n})" for n in range(150))
    with pytest.raises(LanguageError, match="nested too deeply"):
        read(f"WITH c0 AS (SELECT src FROM link1), {nested} SELECT * FROM c150")
    joined = " ".join(f"JOIN link1 AS a{n} USING (src)" for n in range(150))
    with pytest.raises(LanguageError, match="nested too deeply"):
        read(f"SELECT a.src FROM link1 AS a {joined}")


def test_a_union_of_very_many_is_one_operator() -> None:
    text = " UNION ALL ".join(["SELECT src FROM link1"] * 250)
    assert len(read(text).inputs) == 250
