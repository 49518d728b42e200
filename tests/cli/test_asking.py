"""Commands about queries: apply, status, ask and explain."""

from __future__ import annotations

import io
import json
import xml.etree.ElementTree as ET
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from errata.cli import main
from fixtures.commands import YAML, Errata, lines

DECLARED = """
queries:
  dear: queries/dear.sql
  highest: {sql: queries/highest.sql, on_revision: history, retention: 7 days}
"""
DEAR = "SELECT symbol, price, time FROM quotes WHERE price > 111\n"
HIGHEST = "SELECT symbol, max(price) AS high FROM dear GROUP BY symbol\n"

PLAN = """\
+ create query dear of quotes
    columns symbol string, price double, time timestamp
    key time, symbol, pattern MON, on_revision results
+ create query highest of dear
    columns symbol string, high double
    key symbol, pattern WK, on_revision history
    kept: 7 days
done in commit 1
"""


def declare(folder: Path) -> None:
    (folder / "queries").mkdir()
    (folder / "queries" / "dear.sql").write_text(DEAR)
    (folder / "queries" / "highest.sql").write_text(HIGHEST)
    (folder / "errata.yaml").write_text(YAML + DECLARED)


@pytest.fixture
def declared(project: Path) -> Path:
    """Queries that are declared and not yet applied."""
    declare(project)
    return project


@pytest.fixture(scope="module")
def answered(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Path:
    """A project with queries and a minute of quotes, from 100 to 114.75."""
    folder = tmp_path_factory.mktemp("answered")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.delenv("ERRATA_PROJECT", raising=False)
        declare(folder)
        (folder / "one.csv").write_text(lines(range(60)))
        assert main(["apply", "--yes"]) == 0
        assert main(["ingest", "quotes", "one.csv"]) == 0
    return folder


@pytest.fixture
def there(answered: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(answered)
    monkeypatch.delenv("ERRATA_PROJECT", raising=False)
    return answered


def test_the_plan_shows_queries(errata: Errata, declared: Path) -> None:
    assert errata("apply", "--yes").err.endswith(PLAN)
    assert errata("apply").err == "nothing to do: the catalog agrees with what is declared\n"
    assert "created quotes; created queries dear, highest" in errata("log").out
    (declared / "queries" / "dear.sql").write_text("SELECT symbol, price FROM quotes")
    (declared / "errata.yaml").write_text(YAML + "queries: {dear: queries/dear.sql}\n")
    assert errata("apply", "--yes").err == (
        "~ change query dear\n"
        "    text changed, and what it does\n"
        "    column time dropped\n"
        "    key [time, symbol] -> [quotes.time, symbol]\n"
        "- drop query highest\n"
        "done in commit 2\n"
    )


def test_of_many_queries_the_first_are_shown(errata: Errata, declared: Path) -> None:
    names = [f"  q{n:02}: queries/dear.sql" for n in range(30)]
    (declared / "errata.yaml").write_text("\n".join([f"{YAML}queries:", *names, ""]))
    done = errata("apply", "--yes")
    assert done.err.count("+ create query") == 20
    assert "+ create 10 more queries\n" in done.err
    assert "created 30 queries" in errata("log").out
    assert "10 more queries: errata status --queries" in errata("status").err
    assert len(errata("status", "--queries", "--format", "csv").out.splitlines()) == 31


def test_a_mistake_is_told_with_its_place(errata: Errata, declared: Path) -> None:
    (declared / "queries" / "dear.sql").write_text("SELECT symbol,\n       prize\nFROM quotes")
    done = errata("apply", "--yes")
    assert (done.code, (declared / "errata.db").exists()) == (2, False)
    assert done.err.startswith("queries/dear.sql:2:8: ")
    assert "       ^^^^^\n" in done.err
    assert "price" in done.err


def test_queries_stand_below_the_streams(errata: Errata, declared: Path) -> None:
    errata("apply", "--yes")
    done = errata("status")
    assert [line.split() for line in done.out.splitlines()[-3:]] == [
        ["query", "reads", "pattern", "state", "on_revision"],
        ["dear", "quotes", "MON", "no", "rows", "yet"],
        ["highest", "dear", "WK", "no", "rows", "yet", "history"],
    ]
    assert [json.loads(line)["stream"] for line in errata("status", "--format", "json").out.splitlines()] == ["quotes"]
    found = [json.loads(line) for line in errata("status", "--queries", "--format", "json").out.splitlines()]
    assert found[1] == {
        "query": "highest",
        "reads": ["dear"],
        "columns": {"symbol": "string", "high": "double"},
        "pattern": "WK",
        "state": "no rows yet",
        "answered": None,
        "as_of": None,
        "commit": None,
        "commits_behind": 0,
        "engine": None,
        "engine_why": None,
        "behind": None,
        "pending": 0,
        "left_out": {},
        "deferred": None,
        "refused": [],
        "on_revision": "history",
        "waits_for": None,
        "fault": None,
        "lease": None,
        "declared": "as declared",
    }


def test_what_is_not_applied_is_told(errata: Errata, declared: Path) -> None:
    errata("apply", "--yes")
    (declared / "errata.yaml").write_text(YAML + "queries: {dear: queries/dear.sql, new: queries/dear.sql}\n")
    done = errata("status", "--queries")
    assert "highest  dear" in done.out
    assert [line.split("  ")[-1].strip() for line in map(str.rstrip, done.out.splitlines()[2:])] == [
        "no longer declared",
        "not applied",
    ]
    assert done.err == "errata.yaml and the catalog differ: errata apply\n"
    assert "query new is not in the catalog yet" in errata("ask", "new").err


def test_a_project_without_queries(errata: Errata, project: Path) -> None:
    errata("apply", "--yes")
    done = errata("status", "--queries")
    assert (done.out, done.err) == ("", "no queries: declare some in errata.yaml and run `errata apply`\n")
    header = errata("status", "--queries", "--format", "csv").out
    assert header.startswith("query,reads,columns,pattern,state,answered,as_of,")
    assert (header.count("\n"), header.endswith(",fault,lease,declared\n")) == (1, True)


def test_a_table(errata: Errata, there: Path) -> None:
    done = errata("ask", "highest", "--at", "2026-11-18T02:00:50")
    assert done.code == 0
    assert done.out.split() == ["symbol", "high", "IBM", "112.5"]
    assert done.err == "the answer at 2026-11-18T02:00:50.000000, as of commit 2\n"


def test_a_reduced_answer_says_so_wherever_it_appears(errata: Errata, there: Path) -> None:
    sql = "SELECT count(*) AS n FROM quotes TABLESAMPLE (50 PERCENT)"
    label = "quotes at 50% by uniform(0.5)"
    table = errata("ask", "--sql", sql, "--with-error")
    assert table.out.split()[:3] == ["n", "n_low", "n_high"]
    assert f"reduced: {label}; read originals (1 bucket), " in table.err
    assert "it saved nothing, as there is no smaller version" in table.err
    printed = errata("ask", "--sql", sql, "--format", "json")
    assert json.loads(printed.out) == {"n": int(table.out.split()[3]), "_reduced": label}
    assert f"reduced: {label}; " in printed.err
    errata("ask", "--sql", sql, "--format", "parquet", "--out", "sample.parquet")
    assert pq.read_table(there / "sample.parquet").to_pylist() == [json.loads(printed.out)]
    exact = errata("ask", "--sql", sql.replace("50", "100"), "--format", "json")
    assert json.loads(exact.out) == {"n": 55}


def test_what_is_kept_up_to_date_is_no_sample(errata: Errata, there: Path) -> None:
    done = errata("explain", "--sql", "SELECT count(*) AS n FROM quotes TABLESAMPLE (50 PERCENT)")
    assert done.code == 2
    assert "TABLESAMPLE is not part of queries whose answers are kept" in done.err


def test_rows_are_sorted_by_their_columns(errata: Errata, there: Path) -> None:
    text = "SELECT price % 2 AS odd, time FROM dear"
    done = errata("ask", "--sql", text, "--format", "csv", "--limit", "3", "--at", "2026-11-18T02:00:53")
    assert done.out.splitlines() == [
        "odd,time",
        "0,2026-11-18T02:00:48.000000",
        "0.25,2026-11-18T02:00:49.000000",
        "0.5,2026-11-18T02:00:50.000000",
    ]
    assert done.err == ""


def test_a_file_to_a_file(errata: Errata, there: Path) -> None:
    (there / "own.sql").write_text("SELECT count(*) AS n FROM quotes")
    done = errata("ask", "own.sql", "--format", "parquet", "--out", "n.parquet")
    assert done.err == "wrote n.parquet, the answer at 2026-11-18T02:00:54.000000, as of commit 2\n"
    assert pq.read_table("n.parquet").to_pydict() == {"n": [55]}


def test_the_input(errata: Errata, there: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("SELECT\n  tme FROM quotes"))
    done = errata("ask", "-")
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("the input:2:3: ")


@pytest.mark.parametrize(
    ("argv", "told"),
    [
        (["ask"], "no query is named"),
        (["ask", "dear", "--sql", "SELECT 1"], "a query is named and written out, too"),
        (["ask", "deer"], "did you mean dear?"),
        (["ask", "SELECT time FROM quotes"], "write a text behind --sql"),
        (["ask", "dear", "--format", "parquet"], "Parquet goes into files only"),
        (["ask", "--sql", "SELECT rand() AS r FROM quotes"], "--sql:1:8: "),
        (["ask", "dear", "--at", "noon"], "'noon' is not a date and time"),
        (["ask", "Quotes"], "quotes is a stream, and no query"),
        (["ask", "quotes"], "`errata archive scan quotes` reads its rows, `errata ask --sql 'SELECT * FROM quotes'`"),
        (["ask", "dear", "--as-of", "1"], "ask as of a later commit"),
        (["explain", "quotes"], "'quotes' is neither a query's name nor a file"),
        (["explain", "--sql", "SELECT 'x FROM quotes"], "--sql:1:"),
    ],
)
def test_what_is_wrong(errata: Errata, there: Path, argv: list[str], told: str) -> None:
    done = errata(*argv)
    assert (done.code, done.out) == (2, "")
    assert told in done.err


def test_a_later_time_is_refused(errata: Errata, there: Path) -> None:
    done = errata("ask", "dear", "--at", "2026-11-18T02:00:55")
    assert (done.code, done.out) == (2, "")
    assert "stream quotes is stable only up to 2026-11-18T02:00:54" in done.err


def test_without_a_catalog(errata: Errata, declared: Path) -> None:
    done = errata("explain", "HIGHEST", "--svg", "plan.svg")
    assert (done.code, done.err) == (0, "drew plan.svg\n")
    assert done.out.startswith("highest reads dear\n")
    assert "group by" in done.out
    assert ET.fromstring((declared / "plan.svg").read_text()).tag.endswith("svg")
    assert not (declared / "errata.db").exists()


def test_what_the_catalog_knows_betters_the_estimates(errata: Errata, there: Path) -> None:
    known = errata("explain", "--sql", "SELECT symbol FROM quotes")
    assert known.code == 0
    # 60 rows in 59 seconds.
    assert "1.02" in known.out


def test_a_file_that_cannot_be_drawn_to(errata: Errata, declared: Path) -> None:
    done = errata("explain", "dear", "--svg", "none/plan.svg")
    assert done.code == 1
    assert "cannot write none/plan.svg" in done.err


def test_only_files_that_are_needed_are_read(errata: Errata, declared: Path) -> None:
    (declared / "queries" / "highest.sql").unlink()
    assert errata("explain", "dear").code == 0
    assert "there is no file queries/highest.sql" in errata("explain", "highest").err


def test_a_row_that_cannot_be_computed(there: Path, capfd: pytest.CaptureFixture[str]) -> None:
    capfd.readouterr()
    code = main(["ask", "--sql", "SELECT time, 1/(price-price) AS x FROM quotes"])
    out, err = capfd.readouterr()
    assert (code, out) == (1, "")
    assert err.splitlines() == [
        "the query cannot be computed for some row",
        "  why: [DIVIDE_BY_ZERO] Division by zero. "
        "Use `try_divide` to tolerate divisor being 0 and return NULL instead.",
        "  how to mend: look for the row, or let the query give NULL for it: try_divide, try_cast, nullif",
    ]


def test_a_query_that_has_changed_is_answered_as_applied_and_that_is_told(errata: Errata, there: Path) -> None:
    file = there / "queries" / "dear.sql"
    told = "queries/dear.sql has changed since it was applied; `errata apply` makes it count\n"
    try:
        file.write_text("SELEC")
        done = errata("ask", "HIGHEST", "--format", "csv")
        assert (done.code, done.err) == (0, told)
        assert done.out.startswith("symbol,high\nIBM,")
        rows = [json.loads(line) for line in errata("status", "--queries", "--format", "json").out.splitlines()]
        assert [row["declared"] for row in rows] == ["changed, not applied", "as declared"]
        file.unlink()
        assert "queries/dear.sql is gone: query dear is answered" in errata("ask", "dear").err
        assert "changed, not applied" in errata("status").out
    finally:
        file.write_text(DEAR)
    assert "applied" not in errata("ask", "dear").err


def test_changed_options_and_a_query_that_is_no_longer_declared(errata: Errata, there: Path) -> None:
    file = there / "errata.yaml"
    try:
        file.write_text(YAML + "queries: {highest: queries/highest.sql}\n")
        told = errata("ask", "highest", "--format", "csv").err.splitlines()
    finally:
        file.write_text(YAML + DECLARED)
    assert told == [
        "query dear is no longer declared; `errata apply` drops it",
        "the declaration of query highest has changed since it was applied; `errata apply` makes it count",
    ]


def test_of_many_queries_the_files_are_not_compared(
    errata: Errata, there: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("errata.read.status.MAX_COMPARED_QUERIES", 1)
    file = there / "queries" / "dear.sql"
    try:
        file.write_text("SELEC")
        assert "changed" not in errata("status", "--queries").out
    finally:
        file.write_text(DEAR)


@pytest.mark.parametrize(
    "argv", [["ask", "dear", "--format", "csv", "--out"], ["explain", "dear", "--svg"]], ids=["ask", "explain"]
)
def test_a_folder_that_is_not_there_is_told_before_anything_runs(
    errata: Errata, there: Path, argv: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_project(*_: object) -> None:
        raise AssertionError("it ran")

    monkeypatch.setattr("errata.declare.site.load_project", no_project)
    monkeypatch.setattr("errata.cli.explain.load_project", no_project)
    done = errata(*argv, "none/there.csv")
    assert (done.code, done.out) == (1, "")
    assert "cannot write none/there.csv: there is no folder none" in done.err


def test_the_plan_tells_what_is_declared(errata: Errata, declared: Path) -> None:
    text = "SELECT symbol, count(*) AS n FROM quotes GROUP BY symbol, window(time, '1 minute')"
    (declared / "queries" / "per.sql").write_text(text)
    options = "{sql: queries/per.sql, emit: early, on_revision: ignore, retention: 3 days}"
    (declared / "errata.yaml").write_text(f"{YAML}queries: {{per: {options}}}\n")
    told = errata("apply", "--yes").err
    assert "on_revision ignore, emit early\n    kept: 3 days\n" in told


def test_a_query_needs_no_drop(errata: Errata, declared: Path) -> None:
    errata("apply", "--yes")
    done = errata("apply", "--drop", "dear")
    assert (done.code, done.out) == (2, "")
    assert "dear is a query, and queries need no --drop" in done.err
