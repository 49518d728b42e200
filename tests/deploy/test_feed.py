"""The feed of `make airflow`: up to the present, nothing twice, and corrections of what has been sent."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from deploy.feed import BEFORE, CORRECTED_EVERY, EVERY, SYMBOLS, begun, land

from errata.model.time import HOUR, SECOND, parse_instant

NOW = parse_instant("2026-11-20T09:00:00")


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as lines:
        return list(csv.DictReader(lines))


def feed_for(files: int, landing: Path, kept: Path, moment: int = NOW) -> int:
    """Land so many files, one after the other; the moment of the last."""
    position = begun(kept, moment)
    for number in range(files):
        moment += number and EVERY * SECOND
        position = land(position, moment, landing, kept)
    return moment


@pytest.fixture
def places(tmp_path: Path) -> tuple[Path, Path]:
    return tmp_path / "landing", tmp_path / "feed.json"


def test_it_begins_with_some_minutes_and_goes_on_to_the_present(places: tuple[Path, Path]) -> None:
    last = feed_for(3, *places)
    files = sorted(places[0].glob("quotes-*.csv"))
    assert [len(rows(file)) for file in files] == [
        BEFORE // SECOND * SYMBOLS,
        EVERY * SYMBOLS,
        EVERY * SYMBOLS,
    ]
    times = [parse_instant(row["time"]) for file in files for row in rows(file)]
    assert min(times) >= NOW - BEFORE
    assert last - SECOND <= max(times) < last


def test_a_break_leaves_a_gap_and_nothing_comes_twice(places: tuple[Path, Path]) -> None:
    stopped = feed_for(2, *places)
    feed_for(2, *places, moment=stopped + HOUR)
    seen = [(row["time"], row["symbol"]) for file in places[0].glob("quotes-*.csv") for row in rows(file)]
    assert len(seen) == len(set(seen)) == (BEFORE // SECOND + 2 * EVERY) * SYMBOLS


def test_a_correction_names_a_quote_that_was_sent_with_its_price(places: tuple[Path, Path]) -> None:
    feed_for(CORRECTED_EVERY + 2, *places)
    sent = {
        (row["time"], row["symbol"]): row["price"]
        for file in places[0].glob("quotes-*.csv")
        for row in rows(file)
        if row["price"]
    }
    corrections = [row for file in sorted(places[0].glob("correction-*.csv")) for row in rows(file)]
    assert len(corrections) == 2
    for row in corrections:
        assert row["_op"] == "replace"
        assert float(sent[row["time"], row["symbol"]]) == float(row["_old_price"]) != float(row["price"])


def test_after_a_break_only_what_was_sent_since_is_corrected(places: tuple[Path, Path]) -> None:
    stopped = feed_for(1, *places)
    later = stopped + HOUR
    feed_for(2, *places, moment=later)
    assert list(places[0].glob("correction-*.csv")) == []
