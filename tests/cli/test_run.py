"""`errata run`: what it does and says, and what `status`, `archive` and `log` tell afterwards."""

from __future__ import annotations

import io
import json
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from errata.answer.runs import RunReport, exit_code
from errata.archive.ingest.batch import IngestReport
from errata.cli import main
from errata.cli.run import MAX_FAULTS, run_lines
from errata.model.batch import BatchCounts
from errata.model.commit import Fault
from fixtures.commands import YAML, Done, Errata, lines

DECLARED = """
queries:
  dear: queries/dear.sql
  highest: queries/highest.sql
  inverse: queries/inverse.sql
  later: queries/later.sql
"""
TEXTS = {
    "dear": "SELECT symbol, price, time FROM quotes WHERE price > 111",
    "highest": "SELECT symbol, max(price) AS high FROM dear GROUP BY symbol",
    "inverse": "SELECT symbol, 1 / (price - 110) AS r, time FROM quotes",
    "later": "SELECT symbol, time FROM inverse WHERE r > 0",
}
STABLE = "2026-11-18T02:00:54.000000"


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> tuple[Path, Done]:
    """A project in which a minute of quotes and a bad row have landed, and what its first run said. The price is 110 at
    one instant, at which a query divides by zero."""
    folder = tmp_path_factory.mktemp("ran")
    (folder / "queries").mkdir()
    (folder / "landing").mkdir()
    for name, text in TEXTS.items():
        (folder / "queries" / f"{name}.sql").write_text(text)
    (folder / "errata.yaml").write_text(YAML + DECLARED)
    (folder / "landing" / "one.csv").write_text(lines(range(60)) + "2026-11-18T02:00:59,ORCL,x\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.delenv("ERRATA_PROJECT", raising=False)
        assert main(["apply", "--yes"]) == 0
        out, err = io.StringIO(), io.StringIO()
        with redirect_stdout(out), redirect_stderr(err):
            code = main(["run"])
    return folder, Done(code, out.getvalue(), err.getvalue())


@pytest.fixture
def there(ran: tuple[Path, Done], monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(ran[0])
    monkeypatch.delenv("ERRATA_PROJECT", raising=False)
    return ran[0]


def records(text: str) -> dict[str, dict[str, object]]:
    found = [json.loads(line) for line in text.splitlines()]
    return {each.get("name") or each["query"]: each for each in found}


def test_the_first_run_takes_in_and_evaluates(ran: tuple[Path, Done]) -> None:
    done = ran[1]
    assert done.code == 1
    header, *found = [line.split() for line in done.out.splitlines()]
    assert header == ["query", "answered", "up", "to", "commit", "results", "route", "engine", "rows", "read", "ms"]
    assert [(name, until, route) for name, until, _, _, route, *_ in found] == [
        ("dear", STABLE[:23], "appended"),
        ("highest", STABLE[:23], "grouped"),
    ]
    told = done.err.splitlines()
    assert told[0].startswith("quotes: 60 rows appended in commit 2 (batch ")
    assert told[1:3] == ["  1 row in quarantine:", "    landing/one.csv:62: price: 'x' is not a double"]


def test_a_query_that_stops_is_told_with_row_and_expression(ran: tuple[Path, Done]) -> None:
    told = ran[1].err
    assert (
        "query inverse stopped: 1 / (quotes.price - 110) cannot be computed for the row time=2026-11-18T02:00:40"
        in told
    )
    assert "Division by zero" in told
    assert "how to mend: correct the row: errata revise quotes FILES" in told
    assert told.endswith("query later waits for query inverse\n")
    assert "answered already" not in told


def test_a_run_with_nothing_new_counts_what_is_current(errata: Errata, there: Path) -> None:
    done = errata("run")
    assert (done.code, done.out) == (1, "")
    assert done.err.startswith(
        "2 queries are answered already as far as the streams reach\nquery inverse stopped: 1 / ("
    )
    assert errata("run", "highest").err == ("nothing is due: 2 queries are answered as far as the streams reach\n"), (
        "only what the query reads is looked at"
    )
    assert errata("run", "highest").code == 0


def test_for_scripts_every_query_has_an_outcome(errata: Errata, there: Path) -> None:
    done = errata("run", "--no-take", "--format", "json")
    found = records(done.out)
    assert done.code == 1
    assert {name: each["outcome"] for name, each in found.items()} == {
        "dear": "current",
        "highest": "current",
        "inverse": "stopped",
        "later": "held",
    }
    fault = found["inverse"]["fault"]
    assert isinstance(fault, dict)
    assert (fault["source"], fault["values"]) == ("quotes", {"quotes.price": "110"})
    assert found["later"]["waits_for"] == "inverse"
    header, *cells = errata("run", "--no-take", "--format", "csv").out.splitlines()
    assert (
        header
        == "what,name,outcome,commit,until,rows,batch,counts,route,engine,engine_why,rows_read,ms,waits_for,fault"
    )
    assert [line.split(",")[:3] for line in cells][-1] == ["query", "later", "held"]


def test_the_status_tells_how_far_queries_are_answered(errata: Errata, there: Path) -> None:
    found = records(errata("status", "--queries", "--format", "json").out)
    told = ("state", "answered", "as_of", "commits_behind", "behind", "waits_for")
    assert [[found[name][each] for each in told] for name in found] == [
        ["current", STABLE, 2, 0, 0, None],
        ["current", STABLE, 2, 0, 0, None],
        ["stopped", None, None, 0, None, None],
        ["held", None, None, 0, None, "inverse"],
    ]
    done = errata("status", "--queries")
    assert done.out.splitlines()[1].split() == ["dear", "quotes", "MON", "current", STABLE[:23], "2"]
    assert done.err.splitlines() == [
        "query inverse has stopped at 1 / (quotes.price - 110): [DIVIDE_BY_ZERO] Division by zero. Use `try_divide` to "
        "tolerate divisor being 0 and return NULL instead; errata run inverse tells what to do"
    ]


def test_the_archive_of_results_is_looked_into_by_the_querys_name(errata: Errata, there: Path) -> None:
    done = errata("archive", "ls", "dear", "--format", "json")
    buckets = [json.loads(line) for line in done.out.splitlines()]
    assert [(each["role"], each["rows"], each["to"]) for each in buckets] == [
        ("base", 9, "2026-11-18T02:00:53.000000"),
        ("tip", 1, STABLE),
    ]
    shown = errata("archive", "ls", "highest").out
    assert [line.split()[1] for line in shown.splitlines()[1:4]] == ["base", "open", "tip"]
    assert f"answered up to {STABLE}" in shown
    assert errata("archive", "ls", "later").err.startswith("later has no buckets as of commit ")
    assert "did you mean later?" in errata("archive", "ls", "latr").err
    assert errata("archive", "ls", "dear", "--as-of", "2").err == "dear has no buckets as of commit 2\n"


def test_result_archives_are_no_streams(errata: Errata, there: Path) -> None:
    assert list(records_of_streams(errata)) == ["quotes"]
    assert "query dear answered as of commit 2: 10 new results" in errata("log").out


def records_of_streams(errata: Errata) -> list[object]:
    return [json.loads(line)["stream"] for line in errata("archive", "stats", "--format", "json").out.splitlines()]


def test_an_unknown_query_is_told_with_the_candidates(errata: Errata, there: Path) -> None:
    done = errata("run", "deer")
    assert (done.code, done.out) == (2, "")
    assert "unknown query 'deer'" in done.err
    assert "did you mean dear?" in done.err


def batch(quarantined: int, *, already: bool = False) -> IngestReport:
    return IngestReport("quotes", "b", 2, BatchCounts(9, 9 - quarantined, quarantined=quarantined), 1, already)


@pytest.mark.parametrize(
    ("report", "code"),
    [
        (RunReport(), 0),
        (RunReport([batch(0)], current=["a"], busy=["b"]), 0),
        (RunReport([batch(0), batch(2)]), 3),
        (RunReport([batch(2, already=True)]), 0),
        (RunReport([batch(2)], stopped=[("a", Fault("why"))]), 1),
        (RunReport(held=[("b", "a")]), 1),
    ],
)
def test_the_exit_code(report: RunReport, code: int) -> None:
    assert exit_code(report) == code


@pytest.mark.parametrize(
    ("report", "told"),
    [
        (RunReport(), ["nothing is due"]),
        (RunReport(current=["a"]), ["nothing is due: 1 query is answered as far as the streams reach"]),
        (
            RunReport([batch(0)], current=["a", "b"]),
            ["2 queries are answered already as far as the streams reach"],
        ),
        (RunReport(busy=["a"]), ["query a is being evaluated by another runner"]),
        (RunReport(held=[("b", "a")]), ["query b waits for query a"]),
    ],
)
def test_what_is_said_of_queries_that_were_not_evaluated(report: RunReport, told: list[str]) -> None:
    assert list(run_lines(report, [])) == told


def test_of_very_many_queries_the_first_are_named() -> None:
    said = list(run_lines(RunReport(held=[(f"q{at}", "a") for at in range(MAX_FAULTS + 7)]), []))
    assert len(said) == MAX_FAULTS + 1
    assert said[-1] == "and 7 more queries waiting: errata status --queries"
