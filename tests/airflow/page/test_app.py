"""The page in Airflow's navigation: to whom it opens, how it is mounted, and what it says when it cannot."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from airflow.api_fastapi.app import create_auth_manager
from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser
from fastapi import FastAPI
from fastapi.testclient import TestClient

from errata.catalog.database import Catalog
from errata.errors import ErrataError
from errata_airflow.page import LazyPage
from fixtures.airflow import HOUSE
from fixtures.airflow_page import PATHS, seen, the_app
from fixtures.sample_project import Looked


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
