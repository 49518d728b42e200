"""Plans to texts: what is printed is read as the same plan, and rewritten shapes as plans with the same columns."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from errata.language.expr import BIGINT, BOOLEAN, INT, TIMESTAMP, Call, Lit, Ref
from errata.language.nodes import (
    Aggregate,
    Distinct,
    Filter,
    Group,
    Join,
    Negation,
    Output,
    Projection,
    Scan,
    Sliding,
    Union,
)
from errata.language.plan import Plan
from errata.language.queries import query_source, read_query
from errata.model.time import MINUTE
from fixtures.plans.choices import pool
from fixtures.plans.lowered_form import as_lowered, can_be_told, sources_of
from fixtures.plans.maker import Trial, plans_with_data
from fixtures.printing.printing import to_sql
from fixtures.printing.words import quoted

SOURCES = pool(timed=True)


def scan(name: str, alias: str) -> Scan:
    return Scan(SOURCES[name], alias)


def equal(one: Plan, first: str, other: Plan, second: str) -> Call:
    return Call("=", (one.ref(first), other.ref(second)), BOOLEAN)


@given(plans_with_data(data_sets=0, depth=2, early=False))
def test_what_is_printed_is_read_as_the_same_plan(trial: Trial) -> None:
    assume(can_be_told(trial.plan))
    plan = as_lowered(trial.plan)
    assert read_query(to_sql(plan), "printed", sources_of(plan)) == plan


def test_each_clause_has_a_line() -> None:
    text = """SELECT a.src, window_end, count(*) AS packets
FROM sliding(link1, '5 minutes') AS a
JOIN sliding_rows(
  (
    SELECT link2.src
    FROM link2
    WHERE link2.n > 1
  )
, 10) AS b ON a.src = b.src
WHERE a.n > 2
GROUP BY a.src, window(event_time(), '5 minutes', '1 minute')
HAVING count(*) > 3"""
    plan = read_query(text, "q", SOURCES)
    printed = to_sql(plan)
    assert [line.strip().split()[0] for line in printed.splitlines()] == [
        *("SELECT", "FROM", "JOIN", "SELECT", "FROM", "WHERE", "),", "WHERE", "GROUP", "HAVING")
    ]
    assert read_query(printed, "printed", SOURCES) == plan


def test_a_long_list_has_a_line_for_each_column() -> None:
    plan = read_query("SELECT *, upper(src) || lower(src) AS both, n * 1000 + id AS number FROM link1", "q", SOURCES)
    assert to_sql(plan).splitlines()[:3] == ["SELECT", "  link1.time,", "  link1.id,"]


@pytest.mark.parametrize(
    "name", ["select", "order", "end", "window", "values", "union", "current_date", "case", "time"]
)
def test_names_that_are_words_of_sql_are_quoted(name: str) -> None:
    if name != "window":
        text = f"SELECT `{name}`.n AS `{name}` FROM link1 AS `{name}` WHERE `{name}`.n > 1"
        plan = read_query(text, "q", SOURCES)
        assert read_query(to_sql(plan), "printed", SOURCES) == plan
    inner = read_query(f"SELECT n AS `{name}` FROM link1", "q", SOURCES)
    sources = {name: query_source(name, inner)}
    text = f"SELECT a.`{name}` AS x FROM `{name}` AS a JOIN sliding(`{name}`, '1 day') AS b USING (`{name}`)"
    plan = read_query(text, "q", sources)
    assert read_query(to_sql(plan), "printed", sources) == plan


@given(st.from_regex(r"[A-Za-z][A-Za-z0-9_]{0,8}", fullmatch=True))
def test_any_name_can_be_that_of_a_column(name: str) -> None:
    plan = (
        read_query(f"SELECT {quoted(name)}.n AS {quoted(name)} FROM link1 AS {quoted(name)}", "q", SOURCES)
        if (name.lower() != "window")
        else read_query("SELECT n AS `window` FROM link1", "q", SOURCES)
    )
    assert read_query(to_sql(plan), "printed", SOURCES) == plan


def test_names_that_need_no_quotes_have_none() -> None:
    assert [quoted(name) for name in ("src", "time", "date", "symbol", "price")] == [
        *("src", "time", "date", "symbol", "price")
    ]


def test_own_times_that_no_column_tells_are_printed() -> None:
    inner = "(SELECT src FROM sliding(link1, '1 hour'))"
    text = f"""SELECT a.src, event_time(b) AS since, event_time() AS time FROM {inner} AS a JOIN {inner} AS b
        ON event_time(a) <= event_time(b) WHERE event_time(a) > '2026-11-18'
        GROUP BY a.src, event_time(b), event_time()"""
    plan = read_query(text, "q", SOURCES)
    printed = to_sql(plan)
    assert "ON event_time(a) <= event_time(b)" in printed
    assert read_query(printed, "printed", SOURCES) == plan


def test_windows_beside_columns_of_the_same_name_are_told_apart() -> None:
    text = """SELECT window.end AS outer_end, a.window_end AS inner_end
        FROM (SELECT window_end FROM link1 GROUP BY window(time, '1 minute')) AS a
        GROUP BY a.window_end, window(event_time(), '1 hour')"""
    plan = read_query(text, "q", SOURCES)
    assert "window.end AS outer_end" in to_sql(plan)
    assert read_query(to_sql(plan), "printed", SOURCES) == plan


def test_constants_that_are_grouped_by_make_no_groups() -> None:
    plan = read_query("SELECT 'x' AS one, count(*) AS c FROM link1 GROUP BY one", "q", SOURCES)
    assert plan == read_query("SELECT 'x' AS one, count(*) AS c FROM link1", "q", SOURCES)
    assert plan == read_query(to_sql(plan), "q", SOURCES)


A = scan("link1", "a")
B = scan("link2", "b")
C = scan("items", "c")
BUSY = Call(">", (Ref("b.n", INT), Lit(1, INT)), BOOLEAN)
OUTPUTS = (Output("src", Ref("a.src", A.types["a.src"])), Output("n", Ref("b.n", INT)))

REWRITTEN = {
    "a filter below a join": Projection(Join(A, Filter(B, BUSY), equal(A, "a.src", B, "b.src")), OUTPUTS),
    "a filter below a window": Projection(Join(A, Sliding(Filter(B, BUSY), MINUTE), None), OUTPUTS),
    "a join on the right": Projection(Join(A, Join(B, C, equal(B, "b.id", C, "c.id"))), OUTPUTS),
    "distinct below a join": Projection(Join(A, Distinct(B)), OUTPUTS),
    "a negation above a join": Projection(Negation(Join(A, B), C, (("a.src", "c.src"),)), OUTPUTS),
    "a negation of columns called differently": Projection(Join(Negation(A, C, (("a.n", "c.id"),)), B), OUTPUTS),
    "a union of scans": Projection(Join(Union((A, scan("link2", "d"))), B), OUTPUTS),
    "a group without a select": Group(A, (A.ref("a.src"),), (Aggregate("count", None, BIGINT),)),
    "a group whose aggregates nobody asks for": Projection(
        Group(A, (), (Aggregate("count", None, BIGINT),)), (Output("one", Lit(1, INT)),)
    ),
    "filters above one another": Projection(
        Filter(Filter(Join(A, B), BUSY), Call("is_null", (Ref("a.n", INT),), BOOLEAN)), OUTPUTS
    ),
    "a select above a select": Projection(
        Projection(A, (Output("t", A.ref("a.time")),)), (Output("u", Ref("t", TIMESTAMP)),)
    ),
    "distinct of distinct": Distinct(Distinct(Projection(A, (Output("t", A.ref("a.time")),)))),
}


@pytest.mark.parametrize("name", REWRITTEN)
def test_rewritten_plans_have_a_text_too(name: str) -> None:
    plan = REWRITTEN[name]
    read = read_query(to_sql(plan), "printed", SOURCES)
    assert [each.type for each in read.visible] == [each.type for each in plan.visible]
    assert [each.source.name for each in _scans(read)] == [each.source.name for each in _scans(plan)]
    # Its text is its own: what is read from it is printed as it was.
    assert read_query(to_sql(read), "printed again", SOURCES) == read


def _scans(plan: Plan) -> list[Scan]:
    return [plan] if isinstance(plan, Scan) else [found for each in plan.inputs for found in _scans(each)]
