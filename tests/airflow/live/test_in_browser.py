"""What a person sees of it in a browser, with results that have been corrected before somebody looks."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from playwright.sync_api import Browser, expect

from errata.model.time import to_micros
from fixtures.airflow_up import Exchange, trades, tried_for
from fixtures.browser import Screen, chromium, logged_in

NINE = datetime(2026, 11, 16, 9, 0, 5, tzinfo=UTC)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


@pytest.fixture(scope="module")
def corrected(up: Exchange) -> datetime:
    """A minute of IBM whose total was 40, and is 120 since one of its two prices was corrected from 20 to 100."""
    up.land(trades(19, range(10, 13)))
    up.await_answer()
    moment = NINE.replace(day=19, minute=10)
    up.land({("IBM", moment): 100.0}, corrections=True)
    up.await_answer()
    return moment.replace(second=0)


def test_the_page_tells_it_all(up: Exchange, browser: Browser, corrected: datetime) -> None:
    with logged_in(browser, up.here) as screen:
        screen.open_errata()
        expect(screen.errata.locator(".health")).to_contain_text("All is well")
        expect(screen.errata.locator(".tiles")).to_contain_text(f"stream, {len(up.trades)} rows")
        assert not screen.is_dark
        check_streams(screen)
        check_corrections(screen, up.files)
        check_queries(screen)
        for name in ("Quarantine", "Health", "Overview"):
            screen.open_tab(name)
            assert screen.too_wide() == []
        assert screen.complaints == []


def test_who_wants_it_dark_gets_every_page_dark(up: Exchange, browser: Browser, corrected: datetime) -> None:
    with logged_in(browser, up.here, "dark") as screen:
        screen.open_errata()
        for name in ("Overview", "Streams", "Corrections", "Queries", "Quarantine", "Health"):
            screen.open_tab(name)
            assert screen.is_dark
            assert screen.too_wide() == []
        assert screen.complaints == []


def check_streams(screen: Screen) -> None:
    screen.open_tab("Streams")
    lane = screen.errata.locator(".lane").filter(has_text="trades")
    expect(lane).to_contain_text("stable up to 2026-11-19 09:12:35")
    for path in ("bars", "corrected"):
        drawn = lane.locator(f"svg path.{path}").bounding_box()
        assert drawn is not None
        assert min(drawn["width"], drawn["height"]) > 1
    assert screen.too_wide() == []
    lane.get_by_role("link", name="trades").click()
    expect(screen.errata.locator("svg.timeline.tall")).to_be_visible()
    expect(screen.errata.locator(".facts")).to_contain_text("by_minute")
    assert screen.too_wide() == []


def check_corrections(screen: Screen, number: int) -> None:
    screen.open_tab("Corrections")
    entry = screen.errata.get_by_role("row").filter(has_text="1 result changed").first
    expect(entry).to_contain_text("by_minute")
    assert screen.too_wide() == []
    entry.get_by_role("link", name="by_minute").click()
    result = screen.errata.get_by_role("row").filter(has_text="window_start 2026-11-19T09:10:00")
    expect(result).to_contain_text("symbol IBM")
    expect(result.locator(".was")).to_have_text("40")
    expect(result.locator(".is")).to_have_text("120")
    expect(result.get_by_role("cell").last).to_have_text(re.compile(r"revision \d+ of trades"))
    said = screen.errata.get_by_role("row").filter(has_text=f"{number:03}.csv, line 2")
    expect(said.locator(".was")).to_have_text("20")
    expect(said.locator(".is")).to_have_text("100")
    assert screen.too_wide() == []
    # A link to Airflow's own pages leaves the frame, and the task there has one that leads back.
    screen.errata.get_by_role("link", name="revisions / sweep").click()
    screen.page.wait_for_url("**/dags/revisions/runs/*/tasks/sweep*")
    screen.page.get_by_role("link", name="Details").click()
    screen.page.get_by_role("link", name="Errata report").click()
    expect(screen.errata.get_by_role("heading", level=1)).to_contain_text("revisions / sweep")
    expect(screen.errata.get_by_role("row").filter(has_text="1 result changed")).to_contain_text("by_minute")


def check_queries(screen: Screen) -> None:
    screen.open_tab("Queries")
    query = screen.errata.get_by_role("row").filter(has_text="by_minute")
    expect(query).to_contain_text("current")
    expect(query).to_contain_text("2026-11-19 09:12:35")
    assert screen.too_wide() == []
    query.get_by_role("link", name="by_minute").click()
    expect(screen.errata.locator("pre")).to_contain_text("GROUP BY symbol, window(time, '1 minute')")
    assert screen.too_wide() == []


def test_a_replay_is_started_by_the_form(up: Exchange, browser: Browser, corrected: datetime) -> None:
    filled = {"query": "by_minute", "since": "2026-11-19T09:10", "until": "2026-11-19T09:12"}
    known = {run["dag_run_id"] for run in up.runs("replay")}
    with logged_in(browser, up.here) as screen:
        screen.page.goto(f"{up.here.url}/dags/replay")
        screen.page.get_by_role("button", name="Trigger").first.click()
        form = screen.page.get_by_role("dialog")
        for name, value in filled.items():
            form.locator(f"[name=element_{name}]").fill(value)
        form.get_by_role("button", name="Trigger").click()
        (run,) = tried_for(
            lambda: [run for run in up.runs("replay") if run["dag_run_id"] not in known], "the form starts a run"
        )
        assert run["conf"].items() >= filled.items()
        up.await_run("replay", run["dag_run_id"])
        (row,) = up.rows("SELECT since, until, changed, ended FROM replays ORDER BY replay_id DESC LIMIT 1")
        minute = 60_000_000
        assert (row.since, row.until) == (to_micros(corrected), to_micros(corrected) + 2 * minute)
        assert row.ended is not None
        assert row.changed == 0
        screen.open_errata()
        screen.open_tab("Corrections")
        newest = screen.errata.get_by_role("row").nth(1)
        expect(newest).to_contain_text("verified")
        newest.get_by_role("link", name="by_minute").click()
        expect(screen.errata.get_by_role("heading", level=1)).to_have_text("Replay of by_minute")
        expect(screen.errata.locator(".facts")).to_contain_text("2026-11-19 09:10:00 to before 2026-11-19 09:12:00")
        assert screen.complaints == []


def test_no_service_has_ended_by_itself(up: Exchange) -> None:
    assert [line for line in up.told if "started again" in line] == []
