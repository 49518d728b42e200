"""The page in Airflow's navigation: what it shows, to whom, and what it says when it cannot."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from airflow.api_fastapi.app import create_auth_manager
from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser
from fastapi import FastAPI
from fastapi.testclient import TestClient

from errata.catalog import quarantine, streams
from errata.catalog.activity import TimelineStrip
from errata.catalog.database import Catalog
from errata.catalog.leases import LEASE_MICROS
from errata.catalog.quarantine import QuarantineFile
from errata.catalog.registered import InvocationCount, record_invocations
from errata.clock import SYSTEM
from errata.declare.apply import apply_plan, plan_apply
from errata.declare.project import load_project
from errata.errors import ErrataError
from errata.language.route import RouteKind
from errata.model.bucket import Role
from errata.model.commit import Cause, RefusedRevisions
from errata.model.reduction import OnReadCopies, ReducedArchives, uniform_rates
from errata.model.technique import Technique
from errata.model.time import Interval
from errata.psoup.materialise import materialise
from errata.psoup.register import register
from errata.read.details import StreamTimeline
from errata.reduce import requests
from errata.reduce.copies import vacuum_copies
from errata_airflow.links import ReportLink, report_path
from errata_airflow.page import LazyPage
from errata_airflow.page.app import admitted, build
from errata_airflow.page.drawing import coverage_path, sparkline_path, timeline_drawing
from errata_airflow.page.panel import all_panels
from errata_airflow.page.words import ROUTES, ago, lasting, span, task_path, ticks, where
from fixtures.airflow import HOUSE
from fixtures.catalog import NOW
from fixtures.lease_cases import left_elsewhere
from fixtures.sample_project import Looked, looked

TABS = [
    "Overview",
    "Streams",
    "Merged feeds",
    "Reduced archives",
    "Corrections",
    "Queries",
    "Registered queries",
    "Quarantine",
    "Health",
]
PATHS = ["", "streams", "feeds", "reduced", "corrections", "queries", "registered", "quarantine", "health"]


def the_app(*, guarded: bool) -> FastAPI:
    """The page as Airflow mounts it."""
    page = build()
    if not guarded:
        page.dependency_overrides[admitted] = lambda: None
    around = FastAPI()
    around.mount("/errata", page)
    return around


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Looked]:
    monkeypatch.setenv("ERRATA_PROJECT", str(tmp_path / "errata.yaml"))
    with looked(tmp_path) as found:
        yield found


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient]:
    with TestClient(the_app(guarded=False)) as found:
        yield found


def seen(client: TestClient, path: str, status: int = 200) -> str:
    """What a person reads on a page, without its tags."""
    answer = client.get(f"/errata/{path}")
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"].startswith("text/html")
    text = re.sub(r"<(script|style|title)\b.*?</\1>", " ", answer.text, flags=re.DOTALL)
    return " ".join(re.sub(r"<[^>]+>", " ", text).split())


# Who may see it


@pytest.mark.parametrize("path", [*PATHS, "corrections/dear/3", "nowhere", "static/errata.css"])
def test_a_stranger_sees_nothing(path: str, place: Looked) -> None:
    place.bring(5, 60)
    answer = TestClient(the_app(guarded=True)).get(f"/errata/{path}")
    assert answer.status_code == 401
    assert "not logged in" in answer.text
    assert "feed" not in answer.text


def test_a_stranger_at_the_address_bar_is_led_to_the_login_and_back(place: Looked) -> None:
    client = TestClient(the_app(guarded=True), follow_redirects=False)
    answer = client.get("/errata/queries?x=1", headers={"Sec-Fetch-Dest": "document"})
    assert answer.status_code == 303
    assert answer.headers["location"].endswith("/api/v2/auth/login?next=%2Ferrata%2Fqueries%3Fx%3D1")
    assert client.get("/errata/queries", headers={"Sec-Fetch-Dest": "iframe"}).status_code == 401


def test_a_token_of_airflow_opens_it_and_a_forged_one_does_not(place: Looked, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__API_AUTH__JWT_SECRET", "x" * 64)
    # Tokens that were given back are in Airflow's database, which there is none of here.
    monkeypatch.setattr("airflow.models.revoked_token.RevokedToken.is_revoked", staticmethod(lambda _: False))
    guard = create_auth_manager()
    token = guard.generate_jwt(SimpleAuthManagerUser(username="ann", role="viewer"))
    client = TestClient(the_app(guarded=True), cookies={"_token": token})
    assert "feed" in seen(client, "streams")
    assert seen(TestClient(the_app(guarded=True)), "streams", 401)
    forged = TestClient(the_app(guarded=True), cookies={"_token": token[:-2]}, follow_redirects=False)
    said = seen(forged, "streams", 403)
    assert "Your token is not valid" in said
    assert "POST /auth/token" in said
    assert "administrator" not in said
    assert forged.get("/errata/streams", headers={"Sec-Fetch-Dest": "document"}).status_code == 303
    by_header = TestClient(the_app(guarded=True), headers={"Authorization": "Bearer no.token.atall"})
    assert "Your token is not valid" in seen(by_header, "streams", 403)


def test_an_account_that_may_not_see_the_page_is_told_so(place: Looked, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__API_AUTH__JWT_SECRET", "x" * 64)
    monkeypatch.setattr("airflow.models.revoked_token.RevokedToken.is_revoked", staticmethod(lambda _: False))
    guard = create_auth_manager()
    monkeypatch.setattr(type(guard), "is_authorized_view", lambda *_, **__: False)
    token = guard.generate_jwt(SimpleAuthManagerUser(username="bob", role="viewer"))
    said = seen(TestClient(the_app(guarded=True), cookies={"_token": token}), "streams", 403)
    assert "Your account may not see Airflow" in said
    assert "token" not in said


def test_every_answer_keeps_to_itself(client: TestClient, place: Looked) -> None:
    for path in ("", "nowhere", "static/errata.js"):
        rules = client.get(f"/errata/{path}").headers
        assert "frame-ancestors 'self'" in rules["content-security-policy"]
        assert "default-src 'none'" in rules["content-security-policy"]
        assert rules["cache-control"] == "private, no-store"


# What it shows


def test_the_panels_register_themselves() -> None:
    assert [each.page.title for each in all_panels()] == TABS
    assert [each.slug for each in all_panels()] == PATHS
    for panel in all_panels():
        assert panel.page.plain.endswith(".")


@pytest.mark.parametrize("path", PATHS)
def test_an_empty_project_is_friendly(client: TestClient, place: Looked, path: str) -> None:
    text = seen(client, path)
    assert all(tab in text for tab in TABS)
    expected = {
        "": "no rows have come yet. Put files into a stream&rsquo;s landing folder",
        "streams": "feed no rows nothing has come yet",
        "corrections": "No published result has been corrected yet.",
        "queries": "no rows yet",
        "registered": "There are no registered queries.",
        "feeds": "No stream has feeds.",
        "reduced": "No stream has smaller versions.",
        "quarantine": "Nothing is in quarantine.",
        "health": "Nothing: no stream has enough corrections",
    }
    assert expected[path] in text


def test_a_project_without_streams_tells_the_next_step(
    client: TestClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "errata.yaml").write_text("project: p\n")
    monkeypatch.setenv("ERRATA_PROJECT", str(tmp_path))
    assert "the catalog has no tables yet" in seen(client, "", 503)
    apply_plan(plan_apply(load_project(tmp_path, {})))
    assert "This project has no streams yet." in seen(client, "")
    assert "There are no queries yet." in seen(client, "queries")


def test_the_overview_tells_health_numbers_and_who_was_last(client: TestClient, place: Looked) -> None:
    place.bring(5, 60)
    place.answer("dear")
    place.answer("most")
    place.sweep("dear", [("replace", "a", 5, 5.0, 99.0)])
    place.pend(20, 7.0)
    text = seen(client, "")
    assert "All is well" in text
    assert "2 streams, 2 rows" in text
    assert "Corrections that wait" in text
    assert "dear , most up to 1 correction are due: the next sweep takes them up" in text
    place.sweep("dear", [], (1, 1))
    answer = client.get("/errata/").text
    assert 'href="/dags/revisions/runs/by%20hand/tasks/sweep?try_number=2"' in answer
    assert "data-airflow" in answer


def test_a_stopped_query_is_seen_everywhere(client: TestClient, place: Looked) -> None:
    place.bring(5, 60)
    place.stop("dear")
    assert "1 of 2 queries has stopped, and 1 other waits for it." in seen(client, "")
    assert "stopped at 1 / price : [DIVIDE_BY_ZERO] Use try_divide ." in seen(client, "queries")
    text = seen(client, "queries/dear")
    for part in (
        "at 7 of stream feed",
        "price 0",
        "errata run dear",
        "SELECT at, who, price FROM feed WHERE price &gt; 10",
    ):
        assert part in text


def test_a_query_that_waits_for_a_silent_holder_is_amber_everywhere(client: TestClient, place: Looked) -> None:
    place.bring(5, 60)
    owner = "append/scheduled__1/answer/1"
    left_elsewhere(Catalog(place.site.catalog.engine, SYSTEM), "query dear", owner, lasts=LEASE_MICROS // 3)
    text = seen(client, "")
    assert f"dear waits for {owner} (process 4711 of " in text
    assert "errata leases release dear" in text
    assert 'class="sheet health look"' in client.get("/errata/").text
    for page in ("queries", "queries/dear"):
        assert f"waits for {owner} (process 4711 of " in seen(client, page)
        assert "look" in client.get(f"/errata/{page}").text.partition("waits for append")[0].rpartition("<span")[2]
    assert f"work on query dear {owner}, process 4711 of " in seen(client, "health")


def test_streams_have_a_timeline(client: TestClient, place: Looked) -> None:
    place.bring(5, 60)
    place.correct(5, 99.0)
    place.pend(60, 7.0)
    page = client.get("/errata/streams").text
    for part in ('class="bars"', 'class="corrected"', 'class="pending"', 'class="stable"'):
        assert part in page
    assert 'class="aged"' not in page.replace('<i class="aged">', "")
    assert "1 waiting" in seen(client, "streams")
    text = seen(client, "streams/feed")
    for part in ("2 in 1 bucket", "Read by dear", "revise feed revision 1: 1 changed", "1 correction or late row"):
        assert part in text


def test_corrections_and_their_reports(client: TestClient, place: Looked) -> None:
    place.bring(5, 60)
    place.answer("dear")
    place.correct(5, 99.0)
    records: list[Any] = [("replace", "a", 5, 5.0, 99.0), ("delete", "c", 9, 3.0, None)]
    refused = [RefusedRevisions("feed", 4, 5, 2, "rows of it have been aged out")]
    commit = place.sweep("dear", records, (0, 1), refused=refused)
    place.replayed("dear", 0)
    text = seen(client, "corrections")
    assert "dear revision 1 of feed 2 results changed 2 refused 7 minimal 1.5 s revisions / sweep try 2" in text
    assert "dear by hand verified 12 — 3 s" in text
    assert f'href="/errata/corrections/dear/{commit}"' in client.get("/errata/corrections").text
    text = seen(client, f"corrections/dear/{commit}")
    for part in (
        "minimal — it reads least",
        "feed 4–5 2 rows of it have been aged out",
        "who a 5 open price 5 99 revision 1 of feed",
        "who c 9 open gone price 3",
        "What feed said anew",
        f"errata changes dear --since {commit - 1}",
    ):
        assert part in text
    assert "12 results looked at" in seen(client, "replays/1")
    assert "verified" in seen(client, "replays/1")


def test_quarantine_tells_why_and_how(client: TestClient, place: Looked) -> None:
    place.hold(2)
    text = seen(client, "quarantine?stream=feed")
    for part in ("price: 'x' is not a double", "x1", "bad.csv , line 3", "errata quarantine retry feed"):
        assert part in text.replace("&#39;", "'")
    assert "2 rows are in quarantine, of feed" in seen(client, "")
    assert "Nothing of other is in quarantine." in seen(client, "quarantine?stream=other")


def test_files_that_were_set_aside_are_told_with_the_way_out(client: TestClient, place: Looked) -> None:
    catalog = place.site.catalog
    file = QuarantineFile(
        "other", "landing/other/cut.csv.gz", 10, 5, "the gzip file ends too early", "send it anew", NOW
    )
    quarantine.quarantine_files(catalog, streams.stream_state(catalog, "other").stream_id, [file])
    text = seen(client, "quarantine")
    for part in ("cut.csv.gz", "the gzip file ends too early", "send it anew", "errata quarantine retry other"):
        assert part in text
    place.hold(2)
    assert "Landed files" in seen(client, "quarantine")
    assert "cut.csv.gz" not in seen(client, "quarantine?stream=feed")


def test_what_rows_say_is_never_taken_for_a_page(client: TestClient, place: Looked) -> None:
    place.bring(5, 60)
    place.answer("dear")
    commit = place.sweep("dear", [("insert", "<script>alert(1)</script>", 5, None, 1.0)])
    page = client.get(f"/errata/corrections/dear/{commit}").text
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page


def test_what_a_task_has_done(client: TestClient, place: Looked) -> None:
    place.bring(5, 60)
    place.answer("dear")
    place.sweep("dear", [("replace", "a", 5, 5.0, 99.0)])
    path = report_path("revisions", "by hand", "sweep", try_number=2)
    assert path == "/plugin/errata/errata/run?dag_id=revisions&run_id=by+hand&task_id=sweep&try_number=2"
    inner = path.removeprefix("/plugin/errata/errata/")
    assert "dear corrected because of revision 1 of feed 1 result changed" in seen(client, inner)
    assert "This try has committed nothing." in seen(client, inner.replace("=2", "=1"))
    assert "This task has committed nothing." in seen(client, "run?dag_id=a&run_id=b&task_id=c")


# What it says when it cannot


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("streams/fed", "unknown stream &#39;fed&#39; How to mend did you mean feed? there is feed, other"),
        ("queries/deer", "unknown query &#39;deer&#39; How to mend did you mean dear?"),
        ("corrections/dear/1", "commit 1 has corrected no results of query dear"),
        ("corrections?query=deer", "did you mean dear?"),
        ("corrections?before=soon", "before=soon is no whole number"),
        ("replays/7", "there is no replay 7"),
        ("run?dag_id=a", "the address lacks run_id"),
        ("nowhere/at/all", "there is no page /nowhere/at/all"),
        ("corrections/dear/x", "there is no page /corrections/dear/x"),
    ],
)
def test_wrong_names_get_a_page_that_helps(client: TestClient, place: Looked, path: str, said: str) -> None:
    text = seen(client, path, 404)
    assert said in text
    assert "Overview Streams Merged feeds Reduced archives Corrections" in text


def test_a_catalog_that_is_away_is_said_without_a_traceback(
    client: TestClient, place: Looked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ERRATA_PROJECT", str(place.written.folder))
    (place.written.folder / "errata.yaml").write_text(
        "project: p\ncatalog: postgresql+psycopg2://ann:secret@127.0.0.1:9/none\n"
    )
    text = seen(client, "", 503)
    assert "Errata cannot look at the project right now" in text
    assert "the catalog&#39;s database does not answer as it should" in text
    assert "secret" not in text
    assert "Traceback" not in text


def test_a_catalog_that_goes_away_while_it_is_asked(
    client: TestClient, place: Looked, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(_: Catalog) -> None:
        raise ErrataError("the catalog's database does not answer as it should", how="check that it is up")

    monkeypatch.setattr("errata.read.maintenance.activity.living_pins", gone)
    assert "check that it is up" in seen(client, "health", 503)


def test_a_project_that_is_not_there(client: TestClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ERRATA_PROJECT", str(tmp_path / "none.yaml"))
    assert "there is no file" in seen(client, "", 503)


# The plugin, links and drawings


def test_the_plugin_is_cheap_to_import_and_mounts_the_page() -> None:
    script = """
import sys
import errata_plugin as p
plugin = p.ErrataPlugin
print(plugin.fastapi_apps[0]["url_prefix"], plugin.external_views[0]["href"], plugin.external_views[0]["url_route"])
print(sorted({each.partition(".")[0] for each in sys.modules} & {"errata", "fastapi", "jinja2", "pyarrow", "pyspark"}))
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=HOUSE / "plugins"
    )
    assert done.stdout.splitlines()[-2] == "/errata /errata/ errata"
    told = done.stdout.splitlines()[-1]
    assert "errata'" not in told
    assert "pyarrow" not in told
    assert "pyspark" not in told


def test_the_door_opens_with_the_first_request(place: Looked) -> None:
    around = FastAPI()
    door = LazyPage()
    around.mount("/errata", door)
    assert door._app is None
    client = TestClient(around)
    assert client.get("/errata/").status_code == 401
    first = door._app
    assert first is not None
    assert client.get("/errata/streams").status_code == 401
    assert door._app is first


def test_a_link_names_the_task_as_commits_do() -> None:
    class Key:
        dag_id, run_id, task_id, map_index, try_number = "append", "r+1", "append", 3, 2

    said = ReportLink().get_link(None, ti_key=Key())  # type: ignore[arg-type]
    assert said == "/plugin/errata/errata/run?dag_id=append&run_id=r%2B1&task_id=append%5B3%5D&try_number=2"


WINDOWED = "SELECT at, who FROM feed WHERE price > {} BEGIN (NOW - 100) END (NOW)"


def test_registered_queries_are_shown_with_owner_window_cost_and_freshness(place: Looked, client: TestClient) -> None:
    place.bring(1, 20, 30)
    register(place.site, [WINDOWED.format(10), WINDOWED.format(25)], owner="ann")
    (asked,) = register(place.site, ["SELECT count(*) FROM feed BEGIN (5) END (NOW)"], owner="bob")
    counted = InvocationCount(asked.number, 3, 6_000_000, place.clock.now())
    record_invocations(place.site.catalog, [counted])
    text = seen(client, "registered")
    assert "ann 2" in text
    assert "bob 1" in text
    assert "feed: the last 100 units" in text
    assert "feed: since 5" in text
    assert "3 of 3 registered queries, of 2 different statements" in text
    assert "1 bucket to match" in text
    assert re.search(r" 3 2 s \d+ days ago", text), "asked three times, each for two seconds"
    assert text.index(asked.handle) < text.index(" ann SELECT"), "what was asked last comes first"
    mine = seen(client, "registered?owner=bob")
    assert asked.handle in mine
    assert WINDOWED.format(10)[:20] not in mine
    assert "carl has no registered queries." in seen(client, "registered?owner=carl")


def test_matched_queries_show_how_many_rows_match_lately(place: Looked, client: TestClient) -> None:
    place.bring(1, 20, 30)
    register(place.site, [WINDOWED.format(10)], owner="<b>ann")
    materialise(place.site)
    answer = client.get("/errata/registered").text
    assert 'aria-label="2 matching rows in the newest buckets"' in answer
    assert f'd="{sparkline_path([2])}"' in answer
    assert "<b>ann" not in answer, "what people name is text"
    assert "to match" not in answer


def test_a_sparkline_keeps_within_its_bounds() -> None:
    assert sparkline_path([]) == ""
    assert sparkline_path([0, 4, 0, 1]) == "M1.1 100V0H1.9V100zM3.1 100V75H3.9V100z"
    assert sparkline_path([1000, 1]) == "M0.1 100V0H0.9V100zM1.1 100V92H1.9V100z"


def test_a_commit_leads_to_its_task() -> None:
    assert task_path(Cause("run", dag_id="d", run_id="a+b", task_id="t[3]", try_number=2)) == (
        "/dags/d/runs/a%2Bb/tasks/t/mapped/3?try_number=2"
    )
    assert task_path(Cause("run", dag_id="d", run_id="r", task_id="t")) == "/dags/d/runs/r/tasks/t"


def test_a_drawing_keeps_within_its_bounds() -> None:
    strips = [TimelineStrip(Role.BASE, 0, 4, 1, 100, 0), TimelineStrip(Role.BASE, 4, 9, 1, 1, 0)]
    strips += [
        TimelineStrip(Role.OVERLAY, 1, 3, 1, 2, 0),
        TimelineStrip(Role.OVERLAY, 3, 4, 1, 2, 0),
        TimelineStrip(Role.OVERLAY, 8, 8, 1, 2, 0),
    ]
    found = timeline_drawing(StreamTimeline(0, 99, 10, strips, stable=50, aged_to=0), 3)
    assert found.bars == "M0.75 100V0H4.25V100zM4.75 100V92H9.25V100z"
    assert found.corrected == "M1 0H5V18H1zM8 0H9V18H8z"
    assert (found.stable, found.ticks) == (5.0, [0, 49, 99])
    assert found.left == -found.aged
    assert found.width == 10 + found.aged


def test_every_way_to_an_answer_has_its_sentence() -> None:
    ways = {*RouteKind, *Technique} - {Technique.AUTO, Technique.NONE}
    assert set(ROUTES) == ways


def test_words() -> None:
    second = 1_000_000
    assert [ago(0, at * second) for at in (0, 1, 59, 60, 7200, 86400 * 3)] == [
        "just now",
        "1 second ago",
        "59 seconds ago",
        "1 minute ago",
        "2 hours ago",
        "3 days ago",
    ]
    assert ago(90 * second, 0) == "in 1 minute"
    assert [lasting(round(at * second)) for at in (0, 0.0004, 0.123, 12, 75, 3700, 180_000)] == [
        "0 s",
        "under 0.01 s",
        "0.12 s",
        "12 s",
        "1 min 15 s",
        "1 h 1 min",
        "2 days 2 h",
    ]
    nine = 1_762_000_000 * second  # at 12:26:40
    assert [where(nine + micros, timed=True) for micros in (0, 1_500, 250_000)] == [
        "2025-11-01 12:26:40",
        "2025-11-01 12:26:40.001",
        "2025-11-01 12:26:40.250",
    ]
    assert where(7, timed=False) == "7"
    assert [span(75 * second, timed=True), span(3, timed=False)] == ["1 min 15 s", "3 units"]
    assert str(ticks("a `b<` c")) == "a <code>b&lt;</code> c"


def test_reduced_archives_are_shown_with_their_rates_readers_and_what_vacuum_does(
    place: Looked, client: TestClient
) -> None:
    place.feed.stream = replace(place.feed.stream, reduced=ReducedArchives((0.5,), OnReadCopies()))
    place.feed.house.declare(place.feed.stream)
    place.bring(*range(100))
    stream_id = place.feed.standing.stream_id
    for _ in range(2):
        requests.record(place.site, stream_id, uniform_rates(0.1), Interval(0, 50), 10, 0)
    text = seen(client, "reduced")
    assert "copies written with every append; copies follow what readers ask for; layout buckets" in text
    assert re.search(r"originals 1 100 \S+ KB 100\.0% copies at 50% 1 \d\d ", text), text
    assert "uniform(0.1) 2 2 20 B 0 B" in text
    assert "Vacuum has done nothing for it yet. The next one: feed: would build 1 copy at 10%" in text
    vacuum_copies(place.site, "feed")
    text = seen(client, "reduced")
    assert re.search(r"copies at 50% .* copies at 10% 1 ", text), text
    assert re.search(r"Vacuum last worked \d+ days ago, in commit \d+: .*built", text), text
    assert "readers were spared about" in text
    assert "The next one has nothing to do here." in text


def test_what_a_version_covers_is_drawn_as_high_as_its_rate() -> None:
    assert coverage_path([(0, 4), (5, 9)], 0, 9, 100, 0.5) == "M0 100V50H100V100z"
    assert coverage_path([(0, 1), (8, 9)], 0, 9, 100, None) == "M0 100V0H20V100zM80 100V0H100V100z"
    assert coverage_path([(0, 0)], 0, 10**6, 100, 0.001) == "M0 100V92H1V100z", "little is drawn, too"
