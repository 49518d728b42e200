"""Numbers, commits and small tables as persons and programs read them."""

from __future__ import annotations

import csv
import io
import json

import pytest

from errata.errors import count_text
from errata.model.commit import Cause, Commit
from errata.read.tables import TableField, print_records
from errata.read.wording import (
    OutputFormat,
    byte_size_text,
    commit_author,
    commit_summary,
    event_time_distance,
    event_time_short,
    event_time_text,
    short_batch_id,
)


@pytest.mark.parametrize(
    ("count", "words"),
    [(0, "0 B"), (999, "999 B"), (1000, "1 KB"), (137_400, "137 KB"), (1_234_567, "1.23 MB"), (5 * 10**15, "5e+03 TB")],
)
def test_sizes(count: int, words: str) -> None:
    assert byte_size_text(count) == words


def test_counts() -> None:
    assert [count_text(n, "row") for n in (0, 1, 2000)] == ["no rows", "1 row", "2,000 rows"]


def test_places() -> None:
    assert event_time_text(0, timed=True) == "1970-01-01T00:00:00.000000"
    assert event_time_short(1_500, timed=True) == "1970-01-01T00:00:00.001"
    assert [event_time_text(7, timed=False), event_time_short(-7, timed=False), event_time_text(None, timed=True)] == [
        "7",
        "-7",
        "",
    ]


@pytest.mark.parametrize(
    ("value", "timed", "words"),
    [
        (0, True, "00:00:00"),
        (1_500_000, True, "00:00:01.5"),
        (3_661_000_001, True, "01:01:01.000001"),
        (3 * 86_400_000_000 + 310_000_000, True, "3 days 00:05:10"),
        (86_400_000_000, True, "1 day 00:00:00"),
        (1_234, False, "1,234 units"),
        (1, False, "1 unit"),
    ],
)
def test_distances(value: int, timed: bool, words: str) -> None:
    assert event_time_distance(value, timed) == words


def test_a_batch_named_by_its_content_is_shortened() -> None:
    assert short_batch_id("0123456789ab" + "c" * 52) == "0123456789ab…"
    assert short_batch_id("undo-0123456789ab" + "c" * 52) == "undo-0123456789ab…"
    assert short_batch_id("monday") == "monday"


def commit(flow: str, **summary: object) -> Commit:
    return Commit(1, 0, Cause(flow), None, None, summary)


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (commit("apply", created=["a", "b"], dropped=["c"]), "created a, b; dropped c"),
        (commit("append", appended=0, pending=2), "no rows appended, 2 pending"),
        (commit("append", appended=1, buckets=1, inline=1), "1 row appended in 1 bucket (inline)"),
        (
            commit("append", appended=5000, buckets=3, inline=1, dropped=1, replaced=2, quarantined=4),
            "5,000 rows appended in 3 buckets (1 of them inline), 1 dropped, 2 replaced, 4 in quarantine",
        ),
        (
            commit("age-out", dropped_buckets=2, dropped_rows=1),
            "2 buckets with 1 row dropped, past the retention",
        ),
        (commit("run", query="dear", data_commit=3, results=0), "query dear answered as of commit 3: no new results"),
        (
            commit("run", query="dear", data_commit=3, results=1, new_form=True),
            "query dear in its new form answered as of commit 3: 1 new result",
        ),
        (
            commit("sweep", query="dear", data_commit=1003, technique="direct", compared=5000, changed=2),
            "query dear corrected as of commit 1003 (direct): 2 of 5,000 results came out different",
        ),
        (
            commit("sweep", query="dear", data_commit=3, technique="minimal", compared=0, changed=0, refused=1),
            "query dear corrected as of commit 3 (minimal): no result touched, 1 correction refused",
        ),
        (
            commit("sweep", query="dear", data_commit=3, technique="all", compared=1, changed=0, replayed=True),
            "query dear replayed as of commit 3 (all): 0 of 1 result came out different",
        ),
        (
            commit("sweep", query="dear", data_commit=3, technique="none"),
            "query dear stays as it was published, as it declares, though its streams were corrected as of commit 3",
        ),
        (commit("another", rows=3), "rows 3"),
    ],
)
def test_what_a_commit_did(made: Commit, words: str) -> None:
    assert commit_summary(made) == words


def test_who_made_a_commit() -> None:
    assert commit_author(Cause("append", user="ann", host="desk")) == "ann@desk"
    assert (
        commit_author(Cause("append", "ann", "desk", "errata_append", "run-1", "quotes", 2))
        == "errata_append/quotes/run-1 try 2"
    )


FIELDS = (
    TableField("n", "number", right=True),
    TableField("s", "text", fold=True),
    TableField("yes", "yes"),
    TableField("o", "object"),
)
RECORDS = [
    {"n": 1200, "s": 'a "b", c', "yes": True, "o": {"k": [1]}},
    {"n": None, "s": "[red]plain[/red]", "yes": False, "o": []},
]


def printed(kind: OutputFormat) -> str:
    out = io.StringIO()
    print_records(FIELDS, RECORDS, RECORDS, kind, out)
    return out.getvalue()


def test_a_small_table_in_each_format() -> None:
    assert [line.rstrip() for line in printed(OutputFormat.TABLE).splitlines()] == [
        "number  text              yes    object",
        " 1,200  a \"b\", c          True   {'k': [1]}",
        "        [red]plain[/red]  False  []",
    ]
    assert [json.loads(line) for line in printed(OutputFormat.JSON).splitlines()] == RECORDS
    assert list(csv.reader(io.StringIO(printed(OutputFormat.CSV)))) == [
        ["n", "s", "yes", "o"],
        ["1200", 'a "b", c', "true", '{"k": [1]}'],
        ["", "[red]plain[/red]", "false", "[]"],
    ]
