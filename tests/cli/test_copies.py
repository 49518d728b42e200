"""`errata archive copies`, and what `errata archive vacuum` and its job say of copies."""

from __future__ import annotations

import json
import random
import runpy
from pathlib import Path

import pytest

from errata.catalog import streams
from errata.cli.copies import draw_coverage
from errata.declare.site import open_site
from errata.model.reduction import uniform_rates
from errata.reduce import requests
from fixtures.commands import Errata

HOUSE = Path(__file__).resolve().parents[2]


@pytest.fixture
def copied(errata: Errata, project: Path) -> Path:
    """A project whose stream has rows, follows its readers, and has been read at 10%."""
    declared = project / "errata.yaml"
    summaries = "summaries: {minutes: {window: 1 minute, select: {n: count(*)}}}"
    reduce = f"reduce: {{copies: [50%], on_read: true, {summaries}}}"
    text = declared.read_text().replace("retention: 1 minute", reduce)
    assert "on_read" in text
    declared.write_text(text)
    assert errata("apply", "--yes").code == 0
    rows = "".join(
        f"2026-01-01T00:00:{at // 10:02}.{at % 10}00000,{symbol},{at}.5\n" for at in range(300) for symbol in "AB"
    )
    (project / "rows.csv").write_text(f"time,symbol,price\n{rows}")
    assert errata("ingest", "quotes", "rows.csv").code == 0
    ask(0.1)
    return project


def ask(rate: float) -> None:
    with open_site() as site:
        stream_id = streams.stream_state(site.catalog, "quotes").stream_id
        requests.record(site, stream_id, uniform_rates(rate), from_copies=10, from_originals=2_000)


def test_versions_readers_and_work_are_listed(errata: Errata, copied: Path) -> None:
    listed = errata("archive", "copies")
    assert listed.code == 0
    assert "copies" in listed.out
    assert "uniform(0.1)" in listed.out
    assert "would build 6 copies at 10%" in listed.out
    planned = errata("archive", "vacuum", "--plan")
    assert "quotes: would build 6 copies at 10%, about" in planned.err
    done = errata("archive", "vacuum")
    assert (done.code, done.err.splitlines()[0].split(", ")[0]) == (0, "quotes: built 6 copies at 10%")
    (found,) = map(json.loads, errata("archive", "copies", "--format", "json").out.splitlines())
    assert [(each["version"], each["rate"], each["buckets"]) for each in found["versions"]] == [
        ("originals", 1.0, 6),
        ("copies", 0.5, 6),
        ("copies", 0.1, 6),
        ("summaries", None, 6),
    ]
    assert [(each["asked"], each["readers"], each["all_readers"]) for each in found["asked"]] == [
        ("uniform(0.1)", 0, 1)
    ]
    assert found["next"] == []
    again = errata("archive", "copies", "quotes")
    assert "the next vacuum has nothing to do for its copies" in again.out
    assert "vacuum last worked in commit" in again.out
    assert "6 smaller versions of buckets built" in again.out
    assert "6 smaller versions of buckets built" in errata("log").out
    lines = errata("archive", "copies", "--format", "csv").out.splitlines()
    assert len(lines) == 5
    assert lines[0].startswith("stream,version,rate,buckets,rows,bytes,share")


def test_smaller_versions_are_among_the_buckets_and_in_the_status(errata: Errata, copied: Path) -> None:
    listed = errata("archive", "ls", "quotes", "--format", "json").out.splitlines()
    found = [json.loads(line) for line in listed]
    assert [each["role"] for each in found] == ["base"] * 6 + ["copy"] * 6 + ["summary"] * 6
    base, copies, parts = found[:6], found[6:12], found[12:]
    assert {each["rate"] for each in copies} == {0.5}
    assert {each["rate"] for each in (*base, *parts)} == {None}
    for smaller in (copies, parts):
        assert [each["original"] for each in smaller] == [each["bucket"] for each in base]
    table = errata("archive", "ls", "quotes").out.splitlines()
    assert table[0].split()[:6] == ["bucket", "role", "rate", "of", "rows", "size"]
    assert table[7].split()[1:4] == ["copy", "50%", str(base[0]["bucket"])]
    (status,) = map(json.loads, errata("status", "--format", "json").out.splitlines())
    sizes = [sum(each["bytes"] for each in some) for some in (base, copies, parts)]
    assert [status[name] for name in ("bytes", "copy_bytes", "summary_bytes")] == sizes
    header = errata("status").out.splitlines()[0].split()
    assert header[:7] == ["stream", "rows", "buckets", "size", "copies", "summaries", "inline"]


def test_a_stream_that_is_not_there_is_refused(errata: Errata, copied: Path) -> None:
    refused = errata("archive", "copies", "qotes")
    assert refused.code == 2
    assert "quotes" in refused.err


def test_without_smaller_versions_there_is_nothing_to_list(errata: Errata, project: Path) -> None:
    assert errata("apply", "--yes").code == 0
    listed = errata("archive", "copies")
    assert (listed.code, listed.out) == (0, "")
    assert listed.err == "no stream has smaller versions, declares some, or was asked for some\n"


def test_the_job_keeps_copies(
    errata: Errata, copied: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["vacuum.py", "--project", str(copied / "errata.yaml"), "quotes"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(HOUSE / "jobs" / "vacuum.py"), run_name="__main__")
    assert ended.value.code == 0
    assert "quotes: built 6 copies at 10%" in capsys.readouterr().err


def test_coverage_is_drawn_by_cells(chance: random.Random) -> None:
    assert draw_coverage([(0, 4), (5, 9)], 0, 9, 5) == "█████"
    assert draw_coverage([(0, 2), (8, 9)], 0, 9, 5) == "█▄  █"
    assert draw_coverage([(0, 5), (2, 3)], 0, 9, 5) == "███  "
    assert draw_coverage([(0, 48), (50, 99)], 0, 99, 2) == "██", "the gap between two buckets is no hole"
    for _ in range(200):
        spans = [(low, low + chance.randrange(6)) for low in chance.sample(range(40), chance.randrange(5))]
        low, high = min([0, *(low for low, _ in spans)]), max([9, *(high for _, high in spans)])
        width = chance.randrange(1, 9)
        length, expected = high + 1 - low, ""
        places = {place for start, last in spans for place in range(start, last + 1)}
        for cell in range(width):  # a place is cut into as many parts as there are cells
            parts = [part // width + low in places for part in range(cell * length, (cell + 1) * length)]
            expected += "█" if sum(parts) >= 0.95 * len(parts) else "▄" if any(parts) else " "
        assert draw_coverage(spans, low, high, width) == expected
