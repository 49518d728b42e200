"""Commands that only look: log, status, quarantine, archive ls, stats and scan."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import errata as package
from fixtures.commands import Errata

Records = list[dict[str, object]]


@pytest.fixture(autouse=True)
def here(taken: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(taken)
    monkeypatch.delenv("ERRATA_PROJECT", raising=False)


def records(text: str) -> Records:
    return [json.loads(line) for line in text.splitlines()]


def rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_the_log_says_what_each_commit_did(errata: Errata) -> None:
    done = errata("log")
    assert (done.code, done.err) == (0, "")
    header, *commits = done.out.splitlines()
    assert header.split() == ["commit", "time", "(UTC)", "flow", "stream", "what", "it", "did", "batch", "by"]
    assert [line.split()[0] for line in commits] == ["1", "2", "3"]
    assert "created quotes" in commits[0]
    assert "60 rows appended in 1 bucket (inline)" in commits[1]
    assert "30 rows appended in 1 bucket (inline), 1 pending, 2 in quarantine" in commits[2]
    assert "two" in commits[2]


def test_the_log_for_programs_is_whole(errata: Errata) -> None:
    found = records(errata("log", "quotes", "--last", "1", "--format", "json").out)
    assert [each["commit"] for each in found] == [3]
    assert (found[0]["flow"], found[0]["batch"], found[0]["dag"]) == ("append", "two", "")
    assert isinstance(found[0]["summary"], dict)
    assert found[0]["summary"]["appended"] == 30
    told = rows(errata("log", "--format", "csv").out)
    assert [each["commit"] for each in told] == ["1", "2", "3"]
    assert json.loads(told[2]["summary"])["quarantined"] == 2


def test_the_status_of_a_stream(errata: Errata) -> None:
    done = errata("status", "--format", "json")
    (found,) = records(done.out)
    size = found.pop("bytes")
    inline = found.pop("inline_bytes")
    assert isinstance(size, int)
    assert isinstance(inline, int)
    assert inline > size > 0
    assert found == {
        "stream": "quotes",
        "rows": 90,
        "buckets": 2,
        "copy_bytes": 0,
        "summary_bytes": 0,
        "stable": "2026-11-18T02:01:24.000000",
        "overlaid": 0,
        "pending": 1,
        "quarantined": 2,
        "waiting": 0,
        "set_aside": 0,
        "feeds": None,
        "compaction_due": False,
        "declared": "as declared",
    }
    done = errata("status")
    assert done.out.split()[:2] == ["stream", "rows"]
    assert "2026-11-18T02:01:24.000 " in done.out
    assert done.err.splitlines() == [
        "1 correction of quotes pending: errata sweep",
        "2 rows of quotes in quarantine: errata quarantine ls quotes",
    ]


def test_the_status_tells_what_is_not_applied(errata: Errata, taken: Path, tmp_path: Path) -> None:
    text = (taken / "errata.yaml").read_text().replace("sqlite:///errata.db", f"sqlite:///{taken}/errata.db")
    extra = "  more:\n    columns: {n: bigint}\n    key: [n]\n    order: n\n"
    (tmp_path / "errata.yaml").write_text(text.replace("1 minute", "1 hour") + extra)
    done = errata("status", "--project", str(tmp_path))
    assert [line.rstrip().split("  ")[-1].strip() for line in done.out.splitlines()] == [
        "declaration",
        "not applied",
        "changed, not applied",
    ]
    assert "errata.yaml and the catalog differ: errata apply" in done.err


def test_quarantine_explains_each_row(errata: Errata, taken: Path) -> None:
    held = {"stream": "quotes", "batch": "two", "file": str(taken / "two.csv")}
    held |= {"form": "csv", "revision": "", "state": "held", "settled_in": ""}
    found = rows(errata("quarantine", "ls", "--format", "csv").out)
    assert found == [
        {
            "id": "1",
            **held,
            "line": "33",
            "reason": "price: 'x' is not a double",
            "text": "2026-11-18T02:01:40,ORCL,x",
        },
        {
            "id": "2",
            **held,
            "line": "34",
            "reason": "symbol: empty, and it is part of the key",
            "text": "2026-11-18T02:01:41,,1",
        },
    ]
    shown = errata("quarantine", "ls", "quotes").out.splitlines()
    assert shown[0].split() == ["id", "batch", "file", "line", "reason", "text"]
    assert shown[1].split()[:5] == ["1", "two", "two.csv", "33", "price:"]
    limited = errata("quarantine", "ls", "--limit", "1")
    assert "symbol: empty" in limited.out
    assert "price" not in limited.out
    assert limited.err == "these are the last 1 row, there are more; use --limit or --format csv\n"
    assert errata("quarantine", "ls", "--batch", "one").err == "nothing in quarantine\n"
    assert errata("quarantine", "ls", "quots").code == 2


def test_archive_ls_lists_and_draws(errata: Errata) -> None:
    done = errata("archive", "ls", "quotes")
    assert done.code == 0
    table, _, drawing = done.out.partition("\n\n")
    assert [line.split()[1:3] for line in table.splitlines()[1:]] == [["base", "60"], ["base", "30"], ["pending", "1"]]
    line, axis, stable = drawing.splitlines()
    assert len(line) == len(axis) == 80
    assert line.index("┃") == 84 * 80 // 89
    assert axis.startswith("2026-11-18T02:00:00.000 ")
    assert axis.endswith(" 2026-11-18T02:01:29.000")
    assert stable == "┃ stable point 2026-11-18T02:01:24.000000"


def test_archive_ls_as_of(errata: Errata) -> None:
    found = records(errata("archive", "ls", "quotes", "--as-of", "2", "--format", "json").out)
    assert [(each["role"], each["rows"], each["groups"], each["path"]) for each in found] == [
        ("base", 60, [["IBM"]], None)
    ]
    assert errata("archive", "ls", "quotes", "--as-of", "1").err == "quotes has no buckets as of commit 1\n"
    done = errata("archive", "ls", "quotes", "--as-of", "9")
    assert (done.code, "commits are 1 to 3" in done.err) == (2, True)


def test_archive_stats(errata: Errata) -> None:
    (found,) = records(errata("archive", "stats", "quotes", "--format", "json").out)
    assert (found["buckets"], found["inline"], found["rows"], found["rows_per_bucket"]) == (2, 2, 90, 45)
    assert (found["from"], found["to"]) == ("2026-11-18T02:00:00.000000", "2026-11-18T02:01:29.000000")
    header, line = errata("archive", "stats").out.splitlines()
    assert header.split()[:4] == ["stream", "buckets", "inline", "rows"]
    assert line.split()[:5] == ["quotes", "2", "2", "90", "45"]


BORDER = ("archive", "scan", "quotes", "--from", "2026-11-18T02:00:58", "--to", "2026-11-18T02:01:02")


def test_a_scan_as_a_table(errata: Errata) -> None:
    done = errata(*BORDER, "--as-of", "2")
    assert done.code == 0
    assert [line.rstrip() for line in done.out.splitlines()] == [
        "time                        symbol   price",
        "2026-11-18T02:00:58.000000  IBM      114.5",
        "2026-11-18T02:00:59.000000  IBM     114.75",
    ]
    assert done.err == "as of commit 2; 1 bucket opened\n"
    done = errata(*BORDER, "--limit", "3")
    assert len(done.out.splitlines()) == 4
    assert (
        done.err
        == "more rows; a greater --limit shows them, --format csv gives all\nas of commit 3; 2 buckets opened\n"
    )


@pytest.mark.parametrize("limit", [[], ["--limit", "5"]])
def test_a_scan_as_csv_and_json(errata: Errata, limit: list[str]) -> None:
    expected = (
        "time,symbol,price\n2026-11-18T02:00:58.000000,IBM,114.5\n2026-11-18T02:00:59.000000,IBM,114.75\n"
        "2026-11-18T02:01:00.000000,AAPL,100\n2026-11-18T02:01:01.000000,AAPL,100.25\n"
    )
    done = errata(*BORDER, "--format", "csv", *limit)
    assert (done.code, done.out, done.err) == (0, expected, "")
    found = records(errata(*BORDER, "--format", "json", *limit).out)
    assert found[2] == {"time": "2026-11-18T02:01:00.000000", "symbol": "AAPL", "price": 100}


def test_a_scan_into_files(errata: Errata, tmp_path: Path) -> None:
    out = tmp_path / "answer.parquet"
    done = errata("archive", "scan", "quotes", "--format", "parquet", "--out", str(out))
    assert (done.code, done.out, done.err) == (0, "", f"wrote {out}, as of commit 3\n")
    table = pq.read_table(out)
    assert table.num_rows == 90
    assert table["time"].to_pylist() == sorted(table["time"].to_pylist())
    assert errata(*BORDER, "--format", "csv", "--out", str(tmp_path / "a.csv")).code == 0
    assert (tmp_path / "a.csv").read_text() == errata(*BORDER, "--format", "csv").out
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.csv", "answer.parquet"]


def test_a_scan_of_groups(errata: Errata) -> None:
    found = rows(errata(*BORDER, "--group", "symbol=AAPL", "--format", "csv").out)
    assert {row["symbol"] for row in found} == {"AAPL"}
    both = errata(*BORDER, "--group", "symbol=AAPL", "--group", "symbol=IBM", "--format", "csv").out
    assert len(rows(both)) == 4
    assert errata("archive", "scan", "quotes", "--group", "symbol=NONE", "--format", "csv").out == "time,symbol,price\n"


@pytest.mark.parametrize(
    ("argv", "told"),
    [
        (["--format", "parquet"], "name a file with --out"),
        (["--out", "x"], "add --format csv, json or parquet"),
        (["--group", "IBM"], "write --group symbol=IBM"),
        (["--group", "symbl=IBM"], "did you mean symbol?"),
        (["--from", "yesterday"], "is not a date and time"),
        (["--as-of", "77"], "there is no commit 77"),
        (["--as-of", "2001-01-01"], "nothing was known yet"),
    ],
)
def test_a_scan_that_cannot_be_meant(errata: Errata, argv: list[str], told: str) -> None:
    done = errata("archive", "scan", "quotes", *argv)
    assert (done.code, done.out) == (2, "")
    assert told in done.err


def test_a_file_that_cannot_be_written(errata: Errata, tmp_path: Path) -> None:
    done = errata(*BORDER, "--format", "csv", "--out", str(tmp_path / "absent" / "a.csv"))
    assert done.code == 1
    assert "cannot write" in done.err


def test_the_same_in_python(spark: SparkSession) -> None:
    found = package.table(spark, "quotes", as_of=2, start="2026-11-18T02:00:58", groups=[{"symbol": "IBM"}])
    assert sorted(row.price for row in found.collect()) == [114.5, 114.75]
