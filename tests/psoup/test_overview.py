"""What the page shows of registered queries: windows in words, and how fresh their matches are."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from errata.language.registered.read import read_registered
from errata.model.registered import ResultStrategy
from errata.psoup.materialise import materialise
from errata.psoup.overview import MARKS, registered_overview, window_text
from errata.psoup.register import register, unregister
from fixtures.registered.archives import History
from fixtures.registered.streams import STREAMS

WINDOW = "BEGIN (NOW - '10 minutes') END (NOW)"


@pytest.mark.parametrize(
    ("stream", "window", "words"),
    [
        ("trades", WINDOW, "the last 10 minutes"),
        ("trades", "BEGIN (NOW - '90 seconds') END (NOW - '5 seconds')", "the last 90 seconds up to 5 seconds ago"),
        ("trades", "BEGIN ('2026-11-18') END (NOW)", "since 2026-11-18T00:00:00.000000"),
        ("ticks", "BEGIN (5) END (10)", "from 5 to 10"),
        ("ticks", "BEGIN (NOW - 7) END (NOW)", "the last 7 units"),
        ("ticks", "BEGIN (NOW - 1000 ROWS) END (NOW)", "the last 1,000 rows"),
        ("ticks", "BEGIN (NOW - 10 ROWS) END (50)", "the last 10 rows to 50"),
    ],
)
def test_windows_in_words(stream: str, window: str, words: str) -> None:
    plan = read_registered(f"SELECT * FROM {stream} {window}", STREAMS)
    assert window_text(STREAMS[stream], plan.windows[0]) == words


def test_buckets_are_to_match_until_they_are_matched(tmp_path: Path, chance: Random) -> None:
    history = History.begin(tmp_path, f"sqlite:///{tmp_path}/errata.db", chance, 80)
    site = history.house.site
    for _ in range(6):
        history.arrive("quotes")
    texts = [f"SELECT sym FROM quotes WHERE size > 0 {WINDOW}", f"SELECT sym FROM quotes {WINDOW}"]
    some, every = register(site, texts, owner="me")
    (unkept,) = register(
        site, [f"SELECT sym FROM quotes WHERE size > 2 {WINDOW}"], owner="you", strategy=ResultStrategy.NONE
    )
    before = registered_overview(site)
    assert (before.total, before.owners, before.statements) == (3, {"me": 2, "you": 1}, 2)
    lines = {each.query.handle: each for each in before.lines}
    assert lines[some.handle].unmatched > 0
    assert not any(lines[some.handle].marks)
    assert (lines[unkept.handle].unmatched, lines[unkept.handle].marks) == (0, [])
    materialise(site)
    lines = {each.query.handle: each for each in registered_overview(site, "me").lines}
    assert set(lines) == {some.handle, every.handle}
    assert all(each.unmatched == 0 for each in lines.values())
    live = history.live["quotes"].values()
    matching = sum(row["size"] is not None and row["size"] > 0 for row in live)  # type: ignore[operator]
    assert len(lines[some.handle].marks) <= MARKS
    assert 0 < sum(lines[some.handle].marks) <= matching
    assert sum(lines[every.handle].marks) <= len(live)
    unregister(site, some.handle)
    assert registered_overview(site).total == 2
    site.catalog.close()
