"""Queries over HTTP: registered, listed, shown, unregistered; one's own alone, within quotas and limits."""

from __future__ import annotations

import json

import pytest

from errata.model.access import UserQuota
from errata.model.time import SECOND
from errata.psoup.http.limits import ServiceLimits
from errata.psoup.http.problems import MEDIA_TYPE
from fixtures.registered.service import ANN, BOB, SQL, ServiceCaller, called_service, two_users
from fixtures.registered.source import RecordedSource

INJECTIONS = [
    "'; DROP TABLE registered_queries; --",
    '" OR ""="',
    "k3fq7a2mzxw4c5ed' OR '1'='1",
    "..%2F..%2Fhealthz",
    "%00",
    "a" * 500,
    "🦆",
    "%27%20UNION%20SELECT%20digest%20FROM%20api_tokens--",
]


def test_a_query_goes_from_registering_to_unregistering(call: ServiceCaller) -> None:
    done = call("POST", "/v1/queries", json={"sql": SQL, "strategy": "complete"})
    assert done.status_code == 201
    (made,) = done.json()["queries"]
    assert (made["sql"], made["strategy"], made["registered_in"]) == (SQL, "complete", 2)
    handle = made["handle"]
    assert call("GET", f"/v1/queries/{handle}").json() == made
    assert call("GET", "/v1/queries").json() == {"queries": [made], "next": None}
    assert call("GET", f"/v1/queries/{handle}/answer").json()["rows"] == [{"symbol": "IBM", "price": 100.5}]
    assert call("DELETE", f"/v1/queries/{handle}").status_code == 204
    for method, path in (
        ("GET", ""),
        ("GET", "/answer"),
        ("GET", "/answer?as_of=1"),
        ("DELETE", ""),
        ("GET", "/follow"),
    ):
        gone = call(method, f"/v1/queries/{handle}{path}")
        assert (gone.status_code, gone.headers["content-type"]) == (404, MEDIA_TYPE)
    assert call("GET", "/v1/queries").json()["queries"] == []


def test_many_are_registered_at_once_and_listed_page_by_page(call: ServiceCaller) -> None:
    done = call("POST", "/v1/queries", json={"sql": [f"{SQL} {place}" for place in range(7)]})
    handles = [each["handle"] for each in done.json()["queries"]]
    listed, after = [], 0
    while after is not None:
        page = call("GET", f"/v1/queries?limit=3&after={after}").json()
        listed += [each["handle"] for each in page["queries"]]
        after = page["next"]
    assert listed == handles
    assert len(set(handles)) == 7


def test_all_or_none_are_registered(call: ServiceCaller, source: RecordedSource) -> None:
    done = call("POST", "/v1/queries", json={"sql": [SQL, "DELETE FROM quotes"]})
    assert (done.status_code, done.headers["content-type"]) == (400, MEDIA_TYPE)
    assert done.json() == {
        "type": "about:blank",
        "title": "Bad Request",
        "status": 400,
        "what": "this is no query",
        "where": "query 2",
        "why": "it has no SELECT",
        "how": "write one",
    }
    assert source.registered == {}


def test_other_users_queries_are_as_unknown_as_none(call: ServiceCaller, source: RecordedSource) -> None:
    mine = call.register()
    nobodys = "aaaaaaaaaaaaaaaa"
    assert call("GET", f"/v1/queries/{mine}/answer").status_code == 200
    for path in ("", "/answer", "/answer?as_of=1", "/answer?cursor=1.1000000.0", "/follow", "/consumers"):
        theirs, none = (call("GET", f"/v1/queries/{each}{path}", BOB) for each in (mine, nobodys))
        assert (theirs.status_code, none.status_code) == (404, 404)
        assert theirs.text.replace(mine, "") == none.text.replace(nobodys, "")
    assert call("DELETE", f"/v1/queries/{mine}", BOB).status_code == 404
    assert call("PUT", f"/v1/queries/{mine}/consumers/me", BOB, json={"commit": 1}).status_code == 404
    assert call("DELETE", f"/v1/queries/{mine}/consumers/me", BOB).status_code == 404
    assert call("GET", "/v1/queries", BOB).json()["queries"] == []
    assert list(source.registered) == [mine]
    assert source.stored == {}


def test_a_token_is_needed_and_revoking_it_works_within_a_second(call: ServiceCaller, source: RecordedSource) -> None:
    handle = call.register()
    for token in (None, "nonsense", ANN[:-1], ANN + "a", "x" * 5_000):
        done = call("GET", f"/v1/queries/{handle}/answer", token)
        assert (done.status_code, done.headers["www-authenticate"]) == (401, "Bearer")
    assert call("GET", "/v1/queries", None, headers={"Authorization": "Basic YTpi"}).status_code == 401
    assert call("GET", "/healthz", None).json() == {"commit": source.history.head}
    assert call("GET", "/v1/queries").status_code == 200
    del source.users[ANN]
    source.clock.advance(SECOND)
    assert call("GET", "/v1/queries").status_code == 401


def test_a_user_has_a_number_of_queries(source: RecordedSource) -> None:
    source.users = two_users(UserQuota(queries=3))
    with called_service(source) as (_, call):
        call("POST", "/v1/queries", json={"sql": [SQL, SQL]})
        refused = call("POST", "/v1/queries", json={"sql": [SQL, SQL]})
        assert (refused.status_code, refused.json()["why"]) == (409, "the user's quota is 3")
        assert len(source.registered) == 2
        call.register()
        call.register(token=BOB)
        assert call("POST", "/v1/queries", json={"sql": SQL}).status_code == 409
        call("DELETE", f"/v1/queries/{next(iter(source.registered))}")
        call.register()


def test_the_quota_holds_for_those_who_come_at_once(source: RecordedSource) -> None:
    source.users = two_users(UserQuota(queries=5))
    with called_service(source) as (_, call):
        codes = [each.status_code for each in call.gather([("POST", "/v1/queries")] * 20, json={"sql": SQL})]
    assert sorted(codes) == [201] * 5 + [409] * 15


def test_a_user_has_a_number_of_requests_a_second(source: RecordedSource) -> None:
    source.users = two_users(UserQuota(rate=4))
    with called_service(source) as (_, call):
        codes = [call("GET", "/v1/queries").status_code for _ in range(6)]
        assert codes == [200] * 4 + [429] * 2
        refused = call("GET", "/v1/queries")
        assert (refused.headers["retry-after"], refused.headers["content-type"]) == ("1", MEDIA_TYPE)
        assert call("GET", "/v1/queries", BOB).status_code == 200
        source.clock.advance(SECOND // 2)
        assert [call("GET", "/v1/queries").status_code for _ in range(3)] == [200, 200, 429]


def test_what_is_too_large_is_refused(source: RecordedSource) -> None:
    limits = ServiceLimits(body_bytes=2_000, text_letters=500, texts=3)
    with called_service(source, limits) as (_, call):
        for sql in ("SELECT " + "x" * 500, [SQL] * 4, "SELECT " + "x" * 3_000):
            done = call("POST", "/v1/queries", json={"sql": sql})
            assert (done.status_code, done.headers["content-type"]) == (413, MEDIA_TYPE)

        async def drip():  # a body that does not tell its size
            for _ in range(5):
                yield b" " * 999

        assert call("POST", "/v1/queries", content=drip()).status_code == 413
        assert source.registered == {}


@pytest.mark.parametrize(
    "body",
    [
        *(b"", b"{", b"[]", b'{"sql": []}', b'{"sql": ""}', b'{"sql": 7}', b"\xff\xfe"),
        *(b'{"sql": "SELECT", "owner": "bob"}', b'{"sql": "SELECT", "strategy": "fast"}'),
    ],
)
def test_what_does_not_fit_is_a_problem(call: ServiceCaller, source: RecordedSource, body: bytes) -> None:
    done = call("POST", "/v1/queries", content=body, headers={"content-type": "application/json"})
    assert (done.status_code, done.headers["content-type"]) == (422, MEDIA_TYPE)
    assert done.json()["what"] == "the request does not fit"
    assert source.registered == {}


@pytest.mark.parametrize(("text", "code"), [("SELECT \x00", 400), ("SELECT \ud800", 422)])
def test_a_text_that_is_no_text_is_refused(call: ServiceCaller, text: str, code: int) -> None:
    body = json.dumps({"sql": text}).encode()
    done = call("POST", "/v1/queries", content=body, headers={"content-type": "application/json"})
    assert (done.status_code, done.headers["content-type"]) == (code, MEDIA_TYPE)


@pytest.mark.parametrize("text", INJECTIONS)
def test_what_is_no_handle_finds_nothing(call: ServiceCaller, text: str) -> None:
    call.register()
    for method, path in (("GET", ""), ("GET", "/answer"), ("DELETE", ""), ("GET", "/follow")):
        done = call(method, f"/v1/queries/{text}{path}")
        assert done.status_code in (404, 405), done.text
        assert done.headers["content-type"] == MEDIA_TYPE


def test_paths_that_are_none_are_problems(call: ServiceCaller) -> None:
    for method, path, code in (("GET", "/nowhere", 404), ("PATCH", "/v1/queries", 405), ("POST", "/healthz", 405)):
        done = call(method, path)
        assert (done.status_code, done.headers["content-type"]) == (code, MEDIA_TYPE)


def test_an_unexpected_failure_tells_nothing_of_the_inside(call: ServiceCaller, source: RecordedSource) -> None:
    source.queries = None  # type: ignore[assignment,method-assign]
    done = call("GET", "/v1/queries")
    assert (done.status_code, done.json()["what"]) == (500, "errata failed unexpectedly")
    assert "NoneType" not in done.text


def test_consumers_are_kept_listed_and_dropped(call: ServiceCaller, source: RecordedSource) -> None:
    handle = call.register()
    path = f"/v1/queries/{handle}/consumers"
    assert call("PUT", f"{path}/warehouse", json={"commit": 1}).status_code == 400, "nobody has followed under the name"
    source.open_consumer(handle, "warehouse")
    kept = call("PUT", f"{path}/warehouse", json={"commit": 1})
    assert (kept.status_code, kept.json()["acknowledged"]) == (200, 1)
    assert call("GET", path).json() == [kept.json()]
    assert call("PUT", f"{path}/warehouse", json={"commit": 99}).status_code == 400
    assert call("PUT", f"{path}/warehouse", json={"commit": 0}).status_code == 422
    assert call("DELETE", f"{path}/warehouse").status_code == 204
    assert call("DELETE", f"{path}/warehouse").status_code == 400
    assert call("GET", path).json() == []


def test_the_description_names_every_path_and_needs_no_network(call: ServiceCaller) -> None:
    schema = call("GET", "/openapi.json", None).json()
    page = call("GET", "/docs", None).text
    assert all(path in page for path in schema["paths"])
    assert "//" not in page.replace("<!doctype", "")
    assert schema["paths"]["/healthz"]["get"]["security"] == []
    assert schema["paths"]["/v1/queries"]["post"]["security"] == [{"token": []}]
