"""Queries that stop at a row and go on when it is mended: what counts is history as corrected. No version of a row is
evaluated that a later correction has replaced, and no number on the way from one answer to the next has to exist."""

from __future__ import annotations

from decimal import Decimal, localcontext
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from errata.answer.faults import fault_error
from errata.answer.range_replay import ReplayRange, replay_range
from errata.answer.runs import sweep
from errata.model.commit import Fault
from errata.model.results import VS
from errata.model.technique import Technique
from errata.read.status import QueryProgress, query_statuses
from fixtures.runs import STREAMS, Answering

MOST = "9" * 38
"""The largest number of a decimal(38,0)."""
MUCH = "6" + "0" * 37
WIDE = STREAMS.replace("price: int", "price: 'decimal(38,0)'")
SUMS = {
    "closed": "SELECT window_start, sum(price) AS s FROM quotes GROUP BY window(at, 4)",
    "total": "SELECT sum(price) AS s FROM quotes",
    "slides": "SELECT sum(price) AS s FROM sliding(quotes, 5)",
    "twos": "SELECT window_no, sum(price) AS s FROM quotes GROUP BY row_window(2)",
}
BAD, GOOD = "1,b,1;replace", "1,b,-7;replace"
"""With the first the sum is too large by one."""


def begun(folder: Path, texts: dict[str, str], rows: list[str], declared: str) -> Answering:
    there = Answering.begin(folder, texts, {}, declared=declared)
    there.take(quotes=rows)
    assert there.run().stopped == []
    return there


@pytest.mark.parametrize("name", SUMS)
def test_a_correction_is_corrected_in_the_same_file(tmp_path: Path, spark: SparkSession, name: str) -> None:
    there = begun(tmp_path, {name: SUMS[name]}, [f"1,a,{MOST}", f"1,b,-{MOST}", "9,c,0"], WIDE)
    there.take(quotes=[BAD, GOOD])
    assert there.run().stopped == []
    assert str(there.rows(name)[0]["s"]) == "99999999999999999999999999999999999992"
    there.check()
    there.close()


@pytest.mark.parametrize("name", SUMS)
def test_the_next_file_lets_it_go_on(tmp_path: Path, spark: SparkSession, name: str) -> None:
    there = begun(tmp_path, {name: SUMS[name]}, [f"1,a,{MOST}", f"1,b,-{MOST}", "9,c,0"], WIDE)
    before = there.rows(name)
    there.take(quotes=[BAD])
    ((_, fault),) = there.run().stopped
    assert fault.expression == "sum(quotes.price)"
    assert fault.row or name in ("total", "slides"), "these have one group only"
    assert there.rows(name) == before
    for technique in (Technique.ALL, Technique.MINIMAL, Technique.DIRECT):
        assert [each for each, _ in sweep(there.site, technique=technique).stopped] == [name]
    report = replay_range(there.site, ReplayRange(name, "0", "100"))
    assert (report.verified, report.changed) == (False, 0)
    assert report.fault is not None
    assert [each.state for each in query_statuses(there.site)] == [QueryProgress.STOPPED]

    there.take(quotes=[GOOD])
    assert there.run().stopped == []
    there.check()
    assert replay_range(there.site, ReplayRange(name, "0", "100")).verified
    there.close()


def test_who_asks_for_a_technique_has_it_tried(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = begun(tmp_path, {"closed": SUMS["closed"]}, [f"1,a,{MOST}", "1,b,0", "9,c,0"], WIDE)
    there.take(quotes=[BAD])
    assert there.run().stopped
    tried: list[str] = []

    def noted(correction: object, **_: object) -> None:
        tried.append("tried")
        raise AssertionError

    monkeypatch.setattr("errata.answer.rounds.correct_query", noted)
    assert sweep(there.site).stopped, "nothing has come that could let it go on"
    assert tried == []
    with pytest.raises(AssertionError):
        sweep(there.site, technique=Technique.MINIMAL)
    assert tried == ["tried"]
    there.close()


def test_no_number_on_the_way_has_to_exist(tmp_path: Path, spark: SparkSession) -> None:
    there = begun(tmp_path, {"closed": SUMS["closed"]}, [f"1,a,-{MUCH}", "9,c,0"], WIDE)
    # Between the two is more than there is room for.
    there.take(quotes=[f"1,a,{MUCH};replace"])
    report = there.run()
    assert report.stopped == []
    (swept,) = report.evaluated
    assert swept.swept is not None
    assert swept.swept.technique == "minimal", "the windows are worked out from their rows"
    assert [str(row["s"]) for row in there.rows("closed")] == [MUCH]
    there.check()
    there.close()


@pytest.mark.parametrize(("scale", "name"), [(0, "closed"), (10, "closed"), (38, "closed"), (10, "slides")])
def test_long_decimals_are_taken_away_without_loss(tmp_path: Path, spark: SparkSession, scale: int, name: str) -> None:
    def number(digits: str) -> str:
        return f"{digits[: 38 - scale]}.{digits[38 - scale :]}" if scale else digits

    one, other = (number(digits) for digits in ("12345678901234567890123456789012345678", "0" * 37 + "9"))
    declared = STREAMS.replace("price: int", f"price: 'decimal(38,{scale})'")
    there = begun(
        tmp_path, {name: SUMS[name]}, [f"1,a,{one}", f"1,b,{one}", f"2,b,-{one}", "9,c,0", "17,c,0"], declared
    )
    there.take(quotes=[f"1,a,{other};replace", f"2,b,{one};replace", f"9,c,{other};replace"])
    (swept,) = there.run().evaluated
    assert swept.swept is not None
    assert swept.swept.technique == ("direct" if name == "closed" else "minimal")
    now = [(1, other), (1, one), (2, one), (9, other), (17, "0")]
    for row in there.rows(name):
        first = row["window_start"] if name == "closed" else row[VS] - 4
        last = first + 3 if name == "closed" else row[VS]
        with localcontext(prec=60):
            assert row["s"] == sum(Decimal(each) for at, each in now if first <= at <= last), row
    there.close()


COMPUTED = {
    "divided": ("SELECT of, 12 / price AS x FROM quotes", ("0", "4")),
    "squared": ("SELECT of, price * price AS x FROM quotes", ("50000", "5")),
    "cast": ("SELECT of, CAST(CAST(price AS DECIMAL(2,0)) AS INT) AS x FROM quotes", ("1000", "10")),
    "added": ("SELECT of, sum(price + 2147483000) AS x FROM sliding(quotes, 5) GROUP BY of", ("1000", "7")),
    "counted": (
        "SELECT window_start, sum(CAST(price AS BIGINT) * 4611686018427387000) AS x FROM quotes GROUP BY window(at, 4)",
        ("3", "1"),
    ),
    "mean": ("SELECT window_start, avg(12 % price) AS x FROM quotes GROUP BY window(at, 4)", ("0", "5")),
}


@pytest.mark.parametrize("name", COMPUTED)
def test_what_cannot_be_computed_of_a_row_is_mended(tmp_path: Path, spark: SparkSession, name: str) -> None:
    text, (bad, good) = COMPUTED[name]
    there = begun(tmp_path, {name: text}, ["1,a,1", "2,c,1", "9,c,1"], STREAMS)
    # In one file, behind what has been answered and in what comes.
    there.take(quotes=[f"2,c,{bad};replace", f"2,c,{good};replace", "12,a,1"])
    assert there.run().stopped == []
    there.check()
    # In two, with a run between.
    there.take(quotes=[f"1,a,{bad};replace"])
    ((_, fault),) = there.run().stopped
    assert fault.expression
    assert fault.row
    there.take(quotes=[f"1,a,{good};replace"])
    assert there.run().stopped == []
    there.check()
    there.close()


def test_where_no_row_is_known_the_way_out_is_named() -> None:
    told = str(fault_error(Fault("it overflows"), "sums"))
    assert "errata run --anew sums" in told
