"""Everything at work by itself: the scheduler, the API server, the DAG processor and the triggerer on PostgreSQL, jobs
through spark-submit."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import psutil

from fixtures.airflow import HOUSE
from fixtures.airflow_up import PATIENCE, Exchange, trades, tried_for

NINE = datetime(2026, 11, 16, 9, 0, 5, tzinfo=UTC)


def test_files_land_and_results_appear(up: Exchange) -> None:
    up.land(trades(16, range(4)))
    up.await_answer()
    assert len(up.answered()) == 6, "the last minute is not over yet"
    flows = up.commits()
    assert [row[:4] for row in flows] == [("append", "append", "append[0]", 1), ("run", "append", "answer", 1)]
    assert flows[0].run_id == flows[1].run_id != ""


def test_what_moved_is_told_as_asset_events(up: Exchange) -> None:
    def told() -> dict[str, dict[str, object]]:
        events = up.api("GET", "/assets/events?limit=100")["asset_events"]
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
    handle = up.errata("query", "register", "--later", asked).strip()
    up.await_run("materialise", up.start("materialise", {"stream": "trades"}))
    ((matched,),) = up.rows("SELECT sum(rows) AS n FROM match_segments")
    assert matched == 16
    answer = up.errata("invoke", handle, "--format", "csv")
    assert len(answer.splitlines()) == 17
    up.errata("query", "unregister", handle)
    # From here on every commit would start it anew, to find that nobody has asked for anything.
    up.api("PATCH", "/dags/materialise", {"is_paused": True})


def test_a_correction_reaches_the_answers_with_no_hand_on_it(up: Exchange) -> None:
    before = up.answered()
    up.land({("IBM", NINE): 100.0}, corrections=True)
    up.await_answer()
    changed = {key for key, value in up.answered().items() if before[key] != value}
    assert changed == {("IBM", NINE.replace(second=0))}
    (swept,) = up.rows("SELECT dag_id, task_id, run_id FROM commits WHERE summary->>'technique' IS NOT NULL")
    assert (swept.dag_id, swept.task_id) == ("revisions", "sweep")
    told = up.errata("changes", "by_minute", "--format", "json")
    (change,) = [each for each in map(json.loads, told.splitlines()) if each["op"] == "replace"]
    assert (change["key"]["symbol"], change["old"]["total"], change["new"]["total"]) == ("IBM", 20.0, 110.0)
    assert change["cause"]["type"] == "revisions"


def test_a_correction_while_the_triggerer_is_away_is_not_lost(up: Exchange) -> None:
    up.here.stop("triggerer")
    up.land({("SUN", NINE): None}, corrections=True)
    # Nobody watches the landing folder now: taken in by hand.
    up.errata("ingest", "trades", "--landed")
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


def replayed(up: Exchange) -> list[Any]:
    """The replays that have ended, in the order of their days."""
    return up.rows("SELECT replay_id, since, changed FROM replays WHERE ended IS NOT NULL ORDER BY since, replay_id")


def backfill(up: Exchange) -> None:
    """Replay three days as documented, in a shell that has nothing but the environment's file: one day a run."""
    before, known = up.answered(), {row.replay_id for row in replayed(up)}
    up.shell(documented_backfill("2026-11-16", "2026-11-18", "by_minute"))

    def new() -> list[Any]:
        return [row for row in replayed(up) if row.replay_id not in known]

    def ended() -> bool:
        return [run["state"] for run in up.runs("replay", run_type="backfill")] == ["success"] * 3 and len(new()) >= 3

    try:
        tried_for(ended, "all three days are replayed")
    except AssertionError as error:
        runs = up.runs("replay", run_type="backfill")
        raise AssertionError("\n".join(up.log_of("replay", run["dag_run_id"]) for run in runs)) from error
    assert [row.changed for row in new()] == [0, 0, 0], "each day once, verified"
    day, midnight = 86_400_000_000, int(datetime(2026, 11, 16, tzinfo=UTC).timestamp()) * 1_000_000
    assert [(row.since - midnight) // day for row in new()][1:] == [1, 2]
    assert up.answered() == before


def test_the_documented_backfill_replays_one_day_a_run(up: Exchange) -> None:
    up.land(trades(17, range(3)) | trades(18, range(3)))
    up.await_answer()
    backfill(up)


def backfills(up: Exchange) -> list[dict[str, object]]:
    found: list[dict[str, object]] = up.api("GET", "/backfills?dag_id=replay")["backfills"]
    return found


def test_a_task_killed_in_the_middle_is_tried_again_and_right(up: Exchange) -> None:
    with up.standing_still("batches") as stands:
        up.land(trades(19, range(5)))
        stands()
        processes = up.jobs("append")
        for each in processes:
            with suppress(psutil.NoSuchProcess):  # the end of one may have ended another
                each.kill()
        gone, alive = psutil.wait_procs(processes, timeout=PATIENCE)
        assert (bool(gone), alive) == (True, [])
    up.await_answer()
    taken = [row for row in up.commits() if row.flow == "append"]
    assert taken[-1].try_number == 2


def test_a_task_marked_as_failed_takes_its_spark_work_along_and_gives_its_leases_back(up: Exchange) -> None:
    conf = {"query": "by_minute", "since": "2026-11-16T09:00", "until": "2026-11-16T09:03"}
    held = "SELECT 1 FROM leases WHERE owner LIKE 'replay/%'"
    with up.standing_still("replays") as stands:
        run_id = up.start("replay", conf)
        stands()
        assert len(up.rows(held)) == 1
        processes = up.jobs("replay")
        up.api("PATCH", f"/dags/replay/dagRuns/{run_id}/taskInstances/replay/0", {"new_state": "failed"})
        gone, alive = psutil.wait_procs(processes, timeout=PATIENCE)
        assert (bool(gone), alive) == (True, [])
    tried_for(lambda: not up.rows(held), "the lease is given back")


def test_a_mistake_is_told_in_the_last_lines_and_not_tried_again(up: Exchange) -> None:
    run_id = up.start("replay", {"query": "by_minute", "since": "2027-01-01", "until": "2027-01-02"})
    up.await_run("replay", run_id, "failed")
    said = up.log_of("replay", run_id)
    assert "query by_minute has no answers from 2027-01-01 to before 2027-01-02" in said
    assert "attempt=2" not in said


def test_the_same_backfill_can_be_done_again(up: Exchange) -> None:
    # Airflow marks a backfill as completed now and then, and until it has done so refuses the next.
    tried_for(lambda: all(each["completed_at"] for each in backfills(up)), "the backfill is completed")
    backfill(up)
    assert len(backfills(up)) == 2
