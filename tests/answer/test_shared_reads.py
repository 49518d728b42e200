"""A corrected stream that several queries read in a run is read once, and each of them gets its own part of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from errata.answer import inputs
from errata.answer.runs import RunReport
from fixtures.runs import Answering

QUERIES = {
    "latest": "SELECT of, sum(price) AS s FROM sliding(quotes, 5) GROUP BY of",
    "pairs": "SELECT a.of, b.price FROM sliding(quotes, 4) AS a JOIN sliding(quotes, 4) AS b ON a.of = b.of",
    "closed": "SELECT window_start, sum(price) AS s FROM quotes GROUP BY window(at, 4)",
    "dear": "SELECT at, of, price FROM quotes WHERE price > 3",
}
LINES = [f"{at},{'abc'[at % 3]},{at % 7}" for at in range(30)]


@pytest.fixture
def there(tmp_path: Path) -> Iterator[Answering]:
    answering = Answering.begin(tmp_path, QUERIES, {})
    answering.take(quotes=LINES)
    assert answering.run().stopped == []
    yield answering
    answering.close()


def scans_in(there: Answering, monkeypatch: pytest.MonkeyPatch) -> tuple[RunReport, list[Any]]:
    """A run, and the scans that it made of streams."""
    made = []

    def counted(*given: Any) -> Any:
        made.append(given[3])
        return scan_rows(*given)

    scan_rows = inputs.scan_rows
    with monkeypatch.context() as patched:
        patched.setattr(inputs, "scan_rows", counted)
        report = there.run()
    return report, made


def test_a_corrected_stream_is_read_once(there: Answering, monkeypatch: pytest.MonkeyPatch) -> None:
    there.take(quotes=["21,a,9;replace", "24,a,1;replace", "25,b,;delete", "31,c,5"])
    report, made = scans_in(there, monkeypatch)
    assert {each.measures.engine for each in report.evaluated} == {"near"}
    assert len([each for each in made if each.interval.start <= 25]) == 1, "the others read what nothing has corrected"
    there.check()


def test_what_each_asks_for_is_told_as_if_it_were_alone(there: Answering, monkeypatch: pytest.MonkeyPatch) -> None:
    there.take(quotes=["21,a,9;replace", "31,c,5"])
    shared = {(each.name, each.swept is None): each.measures for each in there.run().evaluated}
    there.check()
    there.take(quotes=["21,a,8;replace", "32,c,5"])
    monkeypatch.setattr(inputs, "SHARED_SCAN_VALUES", 0)
    report, made = scans_in(there, monkeypatch)
    assert len(made) > 1
    alone = {(each.name, each.swept is None): each.measures for each in report.evaluated}
    assert {name: each.rows_asked for name, each in shared.items()} == pytest.approx(
        {name: each.rows_asked for name, each in alone.items()}, abs=2
    )
    there.check()


def test_a_stream_without_corrections_is_read_as_it_lies(there: Answering, monkeypatch: pytest.MonkeyPatch) -> None:
    there.take(quotes=["31,c,5"])
    _, made = scans_in(there, monkeypatch)
    assert len(made) > 1
    there.check()
