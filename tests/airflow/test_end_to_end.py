"""Everything at work by itself: the scheduler, the API server, the DAG processor and the triggerer on PostgreSQL, jobs
through spark-submit; and in the end in a browser. The services are started once; each test goes on from where the one
before left the project."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import psutil
import pytest
from deploy.rest import NotAnswering
from playwright.sync_api import Browser, expect

from errata.model.time import to_micros
from fixtures.airflow_up import Exchange, exchange, trades, tried_for
from fixtures.browser import Scheme, Screen, chromium, logged_in

HOUSE = Path(__file__).resolve().parents[2]
NINE = datetime(2026, 11, 16, 9, 0, 5, tzinfo=UTC)


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Exchange]:
    with exchange(tmp_path_factory.mktemp("up")) as found:
        yield found
        assert [line for line in found.told if "started again" in line] == [], "no service has ended by itself"


def test_files_land_and_results_appear(up: Exchange) -> None:
    up.land(trades(16, range(4)))
    up.await_answer()
    assert len(up.answered()) == 6, "the last minute is not over yet"
    flows = up.commits()
    assert [row[:4] for row in flows] == [("append", "append", "append[0]", 1), ("run", "append", "answer", 1)]
    assert flows[0].run_id == flows[1].run_id != ""


def test_what_moved_is_told_as_asset_events(up: Exchange) -> None:
    def told() -> dict[str, dict[str, object]]:
        try:
            events = up.here.api("GET", "/assets/events?limit=100")["asset_events"]
        except NotAnswering:  # Airflow does not list an event while a run that it has started is queued
            return {}
        return {each["uri"]: each["extra"] for each in events if each["uri"].startswith("errata://exchange/")}

    found = tried_for(lambda: told() if len(told()) == 2 else None, "an event for the stream and one for the query")
    stream = found["errata://exchange/streams/trades"]
    assert (stream["rows"], stream["from"]) == (16, "2026-11-16T09:00:05.000000")
    query = found["errata://exchange/queries/by_minute"]
    assert (query["rows"], query["from"]) == (6, "2026-11-16T09:01:00.000000")


def test_commits_start_the_matching_of_registered_queries_and_so_does_a_form(up: Exchange) -> None:
    tried_for(lambda: up.runs("materialise", run_type="asset_triggered"), "a commit has started `materialise`")
    assert up.rows("SELECT count(*) AS n FROM match_segments") == [(0,)], "nobody has asked for anything"
    asked = "SELECT symbol, price FROM trades WHERE price >= 0 BEGIN (NOW - '1 day') END (NOW)"
    handle = up.command("errata", "--project", str(up.here.project), "query", "register", "--later", asked).strip()
    up.await_run("materialise", up.start("materialise", {"stream": "trades"}))
    ((matched,),) = up.rows("SELECT sum(rows) AS n FROM match_segments")
    assert matched == 16
    answer = up.command("errata", "--project", str(up.here.project), "invoke", handle, "--format", "csv")
    assert len(answer.splitlines()) == 17
    up.command("errata", "--project", str(up.here.project), "query", "unregister", handle)


def test_a_correction_reaches_the_answers_with_no_hand_on_it(up: Exchange) -> None:
    before = up.answered()
    up.land({("IBM", NINE): 100.0}, corrections=True)
    up.await_answer()
    changed = {key for key, value in up.answered().items() if before[key] != value}
    assert changed == {("IBM", NINE.replace(second=0))}
    (swept,) = up.rows("SELECT dag_id, task_id, run_id FROM commits WHERE summary->>'technique' IS NOT NULL")
    assert (swept.dag_id, swept.task_id) == ("revisions", "sweep")
    told = up.command("errata", "--project", str(up.here.project), "changes", "by_minute", "--format", "json")
    (change,) = [each for each in map(json.loads, told.splitlines()) if each["op"] == "replace"]
    assert (change["key"]["symbol"], change["old"]["total"], change["new"]["total"]) == ("IBM", 20.0, 110.0)
    assert change["cause"]["type"] == "revisions"


def test_a_correction_while_the_triggerer_is_away_is_not_lost(up: Exchange) -> None:
    up.here.stop("triggerer")
    up.land({("SUN", NINE): None}, corrections=True)
    # Nobody watches the landing folder now: taken in by hand.
    up.command("errata", "--project", str(up.here.project), "ingest", "trades", "--landed")
    assert up.answered() != up.expected(), "nobody has swept"
    up.here.start("triggerer")
    up.await_answer()


def documented_backfill(since: str, until: str, query: str) -> str:
    """The command in the docs, for other days and another query."""
    page = (HOUSE / "docs" / "operations.md").read_text(encoding="utf-8")
    (found,) = re.findall(r"^ +(airflow backfill create (?:.*\\\n)*.*)$", page, re.MULTILINE)
    command = re.sub(r"\\\n\s*", "", found)
    for told, meant in (("2026-11-01", since), ("2026-11-07", until), ("avg_5m", query)):
        assert told in command
        command = command.replace(told, meant)
    return command


def test_the_documented_backfill_replays_one_day_a_run_and_again(up: Exchange) -> None:
    """In a shell that has nothing but the environment's file."""
    up.land(trades(17, range(3)))
    up.land(trades(18, range(3)))
    up.await_answer()
    before = up.answered()
    day, midnight = 86_400_000_000, int(datetime(2026, 11, 16, tzinfo=UTC).timestamp()) * 1_000_000
    for time_of_it in (1, 2):
        known = up.rows("SELECT coalesce(max(replay_id), 0) AS last FROM replays")[0].last
        up.shell(documented_backfill("2026-11-16", "2026-11-18", "by_minute"))
        assert len(backfills(up)) == time_of_it
        # Airflow marks a backfill as completed now and then, and until it has done so refuses the next.
        tried_for(lambda: all(each["completed_at"] for each in backfills(up)), "the backfill is completed")
        runs = up.runs("replay", run_type="backfill")
        assert [run["state"] for run in runs] == ["success"] * 3, "\n".join(
            up.log_of("replay", run["dag_run_id"]) for run in runs
        )
        replayed = up.rows(f"SELECT since, changed, ended FROM replays WHERE replay_id > {known} ORDER BY since")
        assert [row.changed for row in replayed] == [0, 0, 0], "each day once, verified"
        assert [(row.since - midnight) // day for row in replayed][1:] == [1, 2]
        assert all(row.ended is not None for row in replayed)
    assert up.answered() == before


def backfills(up: Exchange) -> list[dict[str, object]]:
    found: list[dict[str, object]] = up.here.api("GET", "/backfills?dag_id=replay")["backfills"]
    return found


def test_a_task_killed_in_the_middle_is_tried_again_and_right(up: Exchange) -> None:
    up.land(trades(19, range(5)))
    job = tried_for(lambda: up.jobs("append"), "the job has started")
    time.sleep(1.5)
    for process in up.jobs("append") or job:
        if process.is_running():
            process.kill()
    up.await_answer()
    taken = [row for row in up.commits() if row.flow == "append"]
    assert taken[-1].try_number == 2


def test_a_task_marked_as_failed_takes_its_spark_work_along_and_gives_its_leases_back(up: Exchange) -> None:
    conf = {"query": "by_minute", "since": "2026-11-16T09:00", "until": "2026-11-16T09:03"}
    run_id = up.start("replay", conf)
    tried_for(lambda: up.jobs("replay"), "the job has started")
    tried_for(lambda: up.rows("SELECT 1 FROM leases WHERE owner LIKE 'replay/%'"), "the job has its lease")
    processes = up.jobs("replay")
    up.here.api("PATCH", f"/dags/replay/dagRuns/{run_id}/taskInstances/replay/0", {"new_state": "failed"})
    gone, alive = psutil.wait_procs(processes, timeout=60)
    assert (len(gone), alive) == (len(processes), [])
    tried_for(lambda: not up.rows("SELECT 1 FROM leases WHERE owner LIKE 'replay/%'"), "the lease is given back", 30)


def test_a_mistake_is_told_in_the_last_lines_and_not_tried_again(up: Exchange) -> None:
    run_id = up.start("replay", {"query": "by_minute", "since": "2027-01-01", "until": "2027-01-02"})
    up.await_run("replay", run_id, "failed")
    said = up.log_of("replay", run_id)
    assert "query by_minute has no answers from 2027-01-01 to before 2027-01-02" in said
    assert "attempt=2" not in said


# In a browser, with what has been corrected before somebody looks


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


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_tells_it_all(up: Exchange, browser: Browser, corrected: datetime, scheme: Scheme) -> None:
    with logged_in(browser, up.here, scheme) as screen:
        screen.open_errata()
        expect(screen.errata.locator(".health")).to_contain_text("All is well")
        expect(screen.errata.locator(".tiles")).to_contain_text(f"stream, {len(up.trades)} rows")
        assert screen.is_dark == (scheme == "dark")
        check_streams(screen)
        check_corrections(screen, up.files)
        check_queries(screen)
        for name in ("Quarantine", "Health", "Overview"):
            screen.open_tab(name)
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


def test_no_secret_is_in_any_log(up: Exchange) -> None:
    folder = Path(up.here.environ["AIRFLOW__LOGGING__BASE_LOG_FOLDER"])
    secrets = [up.here.password, up.here.environ["AIRFLOW__API_AUTH__JWT_SECRET"], up.here.catalog_url or ""]
    secrets.append(up.catalog.engine.url.password or "")
    for log in folder.rglob("*.log"):
        said = log.read_text(errors="replace")
        assert not [each for each in secrets if each and each in said], log
