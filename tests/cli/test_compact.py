"""`errata archive compact`: what is due and why, what was done, in words and as data."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fixtures.commands import Errata, lines


@pytest.fixture
def corrected(project: Path, errata: Errata) -> Path:
    """Sixty quotes in one bucket, of which two are corrected."""
    (project / "one.csv").write_text(lines(range(60)))
    wrong = [("replace", "02:00:10", 7), ("delete", "02:00:11", "")]
    rows = [f"{op},2026-11-18T{time},IBM,{price}" for op, time, price in wrong]
    (project / "two.csv").write_text("\n".join(["_op,time,symbol,price", *rows, ""]))
    assert errata("apply", "--yes").code == 0
    assert errata("ingest", "quotes", "one.csv").code == 0
    assert errata("ingest", "quotes", "two.csv").code == 0
    assert errata("revise", "quotes").code == 0
    return project


def test_corrections_are_worked_in(corrected: Path, errata: Errata) -> None:
    before = errata("archive", "scan", "quotes", "--format", "csv").out
    status = errata("status")
    assert "compaction of quotes is due: errata archive compact quotes" in status.err

    plan = errata("archive", "compact", "--plan", "--format", "json")
    (planned,) = map(json.loads, plan.out.splitlines())
    assert plan.code == 0
    assert planned["why"] == "corrections to be worked in"
    assert [planned[name] for name in ("buckets", "masked", "overlays", "corrections", "rows")] == [1, 2, 1, 2, 60]
    assert "corrections to be worked in" in errata("archive", "compact", "--plan").out
    assert errata("log", "--last", "1").out.count("compact") == 0

    done = errata("archive", "compact", "quotes", "--format", "json")
    (record,) = map(json.loads, done.out.splitlines())
    assert [record[name] for name in ("buckets", "into", "overlays", "corrections", "rows")] == [1, 1, 1, 2, 59]
    assert record["bytes_before"] > record["bytes"] > 0
    assert errata("archive", "scan", "quotes", "--format", "csv").out == before
    log = errata("log", "--last", "1").out
    assert str(record["commit"]) in log
    assert "1 bucket rewritten into 1, 2 corrections worked in" in " ".join(log.split())

    again = errata("archive", "compact")
    assert (again.code, again.out, again.err) == (0, "", "quotes: nothing is due\n")
    assert errata("archive", "compact", "--all").err == "quotes: nothing to compact\n"
    assert errata("archive", "compact", "--format", "json").out == ""
    assert "compaction of quotes" not in errata("status").err


def test_a_stream_that_is_not_there(project: Path, errata: Errata) -> None:
    errata("apply", "--yes")
    done = errata("archive", "compact", "qoutes")
    assert done.code != 0
    assert "quotes" in done.err
