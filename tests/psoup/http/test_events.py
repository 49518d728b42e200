"""Following over HTTP: over a real connection, interrupted anywhere, nothing is lost and nothing doubled."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import httpx
import pytest

from errata.model.time import SECOND
from errata.psoup.http import events
from errata.psoup.http.app import build_app
from errata.psoup.http.limits import ServiceLimits
from errata.psoup.http.service import QueryService
from fixtures.registered.service import ANN, BOB, SQL, served, two_users
from fixtures.registered.source import RecordedSource

Event = tuple[str, int | None, dict[str, object]]


@dataclass
class Follower:
    """A client that keeps an answer by folding events."""

    address: str
    source: RecordedSource
    handle: str

    @contextmanager
    def events(self, query: str = "", token: str = ANN, **headers: str) -> Iterator[Iterator[Event]]:
        with (
            httpx.Client(headers={"Authorization": f"Bearer {token}", **headers}, timeout=10) as client,
            client.stream("GET", f"{self.address}/v1/queries/{self.handle}/follow?{query}") as response,
        ):
            assert response.status_code == 200, response.read()
            assert response.headers["content-type"].startswith("text/event-stream")
            yield _parse(response.iter_lines())


def _parse(lines: Iterator[str]) -> Iterator[Event]:
    fields: dict[str, str] = {}
    for line in lines:
        if line:
            name, _, value = line.partition(":")
            fields[name] = value.strip()
        else:
            if "data" in fields:
                number = int(fields["id"]) if "id" in fields else None
                yield fields["event"], number, json.loads(fields["data"])
            fields = {}


def bag(rows: object) -> Counter[tuple[str, float]]:
    assert isinstance(rows, list)
    return Counter((row["symbol"], float(row["price"])) for row in rows)


def fold(held: Counter[tuple[str, float]], event: Event) -> Counter[tuple[str, float]]:
    name, _, data = event
    if name == "answer":
        return bag(data["rows"])
    assert name == "change"
    assert bag(data["gone"]) <= held
    return held - bag(data["gone"]) + bag(data["added"])


@pytest.fixture
def follower(source: RecordedSource, monkeypatch: pytest.MonkeyPatch) -> Iterator[Follower]:
    monkeypatch.setattr(events, "ALIVE_SECONDS", 0.2)
    service = QueryService(source, ServiceLimits(user_followers=2))
    with served(build_app(service)) as address:
        done = httpx.post(
            f"{address}/v1/queries", json={"sql": SQL}, headers={"Authorization": f"Bearer {ANN}"}, timeout=10
        )
        yield Follower(address, source, done.json()["queries"][0]["handle"])
    service.close()


def test_first_the_whole_then_each_change_then_signs_of_life(follower: Follower) -> None:
    history = follower.source.history
    with follower.events() as stream:
        name, number, data = next(stream)
        assert (name, number, data["rows"]) == ("answer", 2, [{"symbol": "IBM", "price": 100.5}])
        history.commit([("IBM", 100.5), ("AAPL", 1.0)])
        name, number, data = next(stream)
        assert (name, number, data["added"], data["gone"]) == ("change", 3, [{"symbol": "AAPL", "price": 1.0}], [])
        history.commit_elsewhere()
        name, number, _ = next(stream)
        assert (name, number) == ("position", 4)


def test_a_client_that_is_cut_off_anywhere_folds_to_the_answer(follower: Follower, chance: random.Random) -> None:
    history = follower.source.history
    held: Counter[tuple[str, float]] = Counter()
    stored: int | None = None
    told: list[int] = []
    for _ in range(8):
        for _ in range(chance.randrange(1, 4)):
            rows = [row for row in history.current() if chance.random() < 0.8]
            history.commit([*rows, (chance.choice("abc"), float(chance.randrange(3)))])
        with follower.events(**({} if stored is None else {"Last-Event-ID": str(stored)})) as stream:
            for event in stream:
                if event[0] == "position":
                    break
                held, stored = fold(held, event), event[1]
                assert stored is not None
                told.append(stored)
                if stored == history.head or chance.random() < 0.3:
                    break
    history.commit_elsewhere()
    with follower.events(f"after={stored}") as stream:
        for event in stream:
            if event[0] == "position":
                break
            held = fold(held, event)
    answer = history.answer(history.head).rows.to_pylist()
    assert held == bag(answer)
    assert told == sorted(set(told)), "each change once, in order"


def test_a_named_consumer_resumes_behind_what_it_has_acknowledged(follower: Follower) -> None:
    history, own = follower.source.history, {"Authorization": f"Bearer {ANN}"}
    with follower.events("consumer=warehouse") as stream:
        assert next(stream)[2] == {
            "consumer": "warehouse",
            "acknowledged": None,
            "held_until": "2024-10-05T00:00:00.000000",
        }
        assert next(stream)[:2] == ("answer", 2)
    with follower.events("consumer=warehouse") as stream:
        next(stream)
        assert next(stream)[:2] == ("answer", 2), "nothing was acknowledged"
    path = f"{follower.address}/v1/queries/{follower.handle}/consumers/warehouse"
    assert httpx.put(path, json={"commit": 2}, headers=own, timeout=10).status_code == 200
    for price in (1.0, 2.0):
        history.commit([("a", price)])
    with follower.events("consumer=warehouse") as stream:
        assert next(stream)[2]["acknowledged"] == 2
        assert [next(stream)[:2], next(stream)[:2]] == [("change", 3), ("change", 4)]


def test_a_stream_ends_when_the_token_or_the_query_is_gone(follower: Follower) -> None:
    source = follower.source
    source.users = two_users()
    with follower.events() as stream:
        next(stream)
        source.clock.advance(SECOND)
        del source.users[ANN]
        ((name, _, data),) = list(stream)
        assert (name, data["status"]) == ("error", 401)
    source.users = two_users()
    source.clock.advance(SECOND)
    with follower.events() as stream:
        next(stream)
        source.unregister(follower.handle, "ann")
        ((name, _, data),) = (each for each in stream if each[0] != "position")
        assert (name, data["status"]) == ("error", 404)


def test_what_cannot_be_followed_is_told(follower: Follower) -> None:
    own = {"Authorization": f"Bearer {ANN}"}
    path = f"{follower.address}/v1/queries/{follower.handle}/follow"
    for headers, query, code in (
        (own | {"Last-Event-ID": "x"}, "", 400),
        (own | {"Last-Event-ID": "99"}, "", 400),
        (own, "?after=99", 400),
        (own, "?after=-1", 422),
        (own, "?consumer=a%27%3BDROP%20TABLE%20pins", 400),
        ({"Authorization": f"Bearer {BOB}"}, "", 404),
        ({}, "", 401),
    ):
        with httpx.stream("GET", path + query, headers=headers, timeout=10) as refused:
            assert refused.status_code == code, query
    with follower.events() as one, follower.events() as two:
        next(one), next(two)
        refused = httpx.get(path, headers=own, timeout=10)
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "10")


def test_who_was_away_too_long_gets_the_whole_answer(follower: Follower) -> None:
    history = follower.source.history
    for price in (1.0, 2.0):
        history.commit([("a", price)])
    history.forget_before(4)
    with follower.events("after=2") as stream:
        name, number, data = next(stream)
        assert (name, number, data["rows"]) == ("answer", 4, [{"symbol": "a", "price": 2.0}])
