"""Triggers as the triggerer runs them: made from what was stored of them, in an event loop, over a real catalog."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import AssetWatcher
from airflow.sdk.module_loading import import_string
from airflow.triggers.base import BaseEventTrigger, TaskSuccessEvent
from sqlalchemy import text

from errata.archive.ingest.batch import IngestRequest, ingest_batch
from errata.archive.revisions.apply import apply_revisions
from errata.catalog import commits
from errata.declare.site import open_site
from errata.errors import UsageError
from errata.read import watch
from errata_airflow.triggers import CatalogTrigger, LandedTrigger, RevisionArrivalTrigger, StreamStableTrigger
from fixtures.postgres import FreshDatabase
from fixtures.waiting import CORRECTION, Place

POLL = 0.1
LONG = 3600.0
"""So long that only word of a commit can wake anybody."""
PATIENCE = 60.0
"""Seconds after which what is to come has not come, also on a busy machine."""


@pytest.fixture(params=["sqlite", "postgresql"])
def place(request: pytest.FixtureRequest, tmp_path: Path, fresh_database: FreshDatabase) -> Place:
    there = Place(tmp_path, fresh_database(request.param))
    there.take("1,a,5,insert", "20,b,7,insert")
    return there


def stored(trigger: CatalogTrigger) -> CatalogTrigger:
    """The trigger as another process makes it."""
    path, kwargs = trigger.serialize()
    again = import_string(path)(**json.loads(json.dumps(kwargs)))
    assert type(again) is type(trigger)
    assert again.serialize() == (path, kwargs)
    assert isinstance(again, CatalogTrigger)
    return again


def events(trigger: CatalogTrigger) -> AsyncIterator[Any]:
    return stored(trigger).run()


@dataclass
class Rounds:
    """How often triggers have asked and had no event to tell, and which of them had trouble."""

    count: int = 0
    troubled: set[CatalogTrigger] = field(default_factory=set)


@pytest.fixture(autouse=True)
def rounds(monkeypatch: pytest.MonkeyPatch) -> Rounds:
    found, wait = Rounds(), watch._wait_for_notice

    async def counted(*how: Any) -> None:
        found.count += 1
        await wait(*how)

    def troubled(trigger: CatalogTrigger, _error: Exception, _pause: float) -> None:
        found.count += 1
        found.troubled.add(trigger)

    monkeypatch.setattr(watch, "_wait_for_notice", counted)
    monkeypatch.setattr(CatalogTrigger, "_trouble", troubled)
    return found


async def following(running: AsyncIterator[Any]) -> Any:
    return await coming(asyncio.ensure_future(anext(running)))


async def coming(waiting: asyncio.Future[Any]) -> Any:
    """The event that is waited for."""
    return await asyncio.wait_for(waiting, PATIENCE)


async def no_event(running: AsyncIterator[Any], rounds: Rounds, asked: int = 2) -> asyncio.Task[Any]:
    """None comes; what waits for it goes on."""
    waiting = asyncio.ensure_future(anext(running))
    await still_none(waiting, rounds, asked)
    return waiting


async def still_none(waiting: asyncio.Task[Any], rounds: Rounds, asked: int = 2) -> None:
    """None has come when it was asked so often: of two times at least one has begun after this."""
    enough = rounds.count + asked
    await until(lambda: waiting.done() or rounds.count >= enough)
    assert not waiting.done(), waiting.result()


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not true():
            await asyncio.sleep(0.01)


def of_arrivals(place: Place, **how: Any) -> RevisionArrivalTrigger:
    return RevisionArrivalTrigger(str(place.file), **{"poll": POLL, **how})


def test_it_fires_when_corrections_come_and_not_before(place: Place, rounds: Rounds) -> None:
    async def course() -> None:
        async with aclosing(events(of_arrivals(place))) as running:
            waiting = await no_event(running, rounds)
            await asyncio.to_thread(place.take, "25,c,1,insert")
            await still_none(waiting, rounds)  # what only goes on is no correction
            await asyncio.to_thread(place.take, CORRECTION)
            event = await coming(waiting)
            assert event.payload["streams"] == {"quotes": {"count": 1, "first": 1, "last": 1}}
            assert event.payload["queries"] == []
            assert json.loads(json.dumps(event.payload)) == event.payload
            with pytest.raises(StopAsyncIteration):
                await following(running)

    asyncio.run(course())


def test_it_fires_after_a_restart_and_two_tell_the_same(place: Place, rounds: Rounds) -> None:
    async def course() -> None:
        first = events(of_arrivals(place))
        waiting = await no_event(first, rounds)
        waiting.cancel()
        await asyncio.wait([waiting])
        await first.aclose()
        await asyncio.to_thread(place.take, CORRECTION)
        one, other = events(of_arrivals(place)), events(of_arrivals(place))
        found = await asyncio.gather(following(one), following(other))
        assert found[0] == found[1]
        await asyncio.gather(one.aclose(), other.aclose())

    asyncio.run(course())


def test_word_of_a_commit_wakes_it(place: Place, rounds: Rounds, monkeypatch: pytest.MonkeyPatch) -> None:
    if place.is_postgres:  # the server sends word: nobody looks for the newest commit
        monkeypatch.setattr(commits, "NOTICE_POLL_SECONDS", LONG)

    async def course() -> None:
        async with aclosing(events(of_arrivals(place, poll=LONG))) as running:
            waiting = await no_event(running, rounds, asked=1)
            await asyncio.to_thread(place.take, CORRECTION)
            await coming(waiting)

    asyncio.run(course())


def test_a_watcher_tells_each_change_once(place: Place, rounds: Rounds) -> None:
    async def course() -> None:
        async with aclosing(events(of_arrivals(place, once=False))) as running:
            await asyncio.to_thread(place.take, CORRECTION)
            first = await following(running)
            waiting = await no_event(running, rounds)
            await asyncio.to_thread(place.take, "20,b,8,replace")
            second = await coming(waiting)
            assert second.payload["streams"]["quotes"]["count"] == 2
            assert first.payload["fingerprint"] != second.payload["fingerprint"]
            await asyncio.to_thread(place.do, apply_revisions)
            waiting = await no_event(running, rounds)
            await asyncio.to_thread(place.take, CORRECTION.replace("9", "3"))
            assert (await coming(waiting)).payload["streams"]["quotes"]["first"] == 3

    asyncio.run(course())


def test_what_is_declared_anew_is_seen(place: Place, rounds: Rounds) -> None:
    place.declare("sweep: {when: never}")
    place.take(CORRECTION)

    async def course() -> None:
        async with aclosing(events(of_arrivals(place))) as running:
            waiting = await no_event(running, rounds)
            await asyncio.to_thread(place.declare)
            assert (await coming(waiting)).payload["streams"]

    asyncio.run(course())


def test_a_catalog_that_is_away_for_a_while_is_asked_again(place: Place, rounds: Rounds) -> None:
    """It goes while the trigger waits, and is not there when another one starts."""

    def away() -> None:
        with place_engine.begin() as connection:
            connection.execute(text("ALTER TABLE alembic_version RENAME TO away"))
            if place.is_postgres:
                others = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database()"
                connection.execute(text(f"{others} AND pid <> pg_backend_pid()"))

    def back() -> None:
        with place_engine.begin() as connection:
            connection.execute(text("ALTER TABLE away RENAME TO alembic_version"))

    async def course() -> None:
        running = events(of_arrivals(place))
        waiting = await no_event(running, rounds)
        await asyncio.to_thread(away)
        other = events(of_arrivals(place))
        started = asyncio.ensure_future(anext(other))
        await until(lambda: len(rounds.troubled) == 2)
        assert [each.done() for each in (waiting, started)] == [False, False]
        await asyncio.to_thread(back)
        await asyncio.to_thread(place.take, CORRECTION)
        found = await asyncio.gather(coming(waiting), coming(started))
        # Which commit was the newest when each began to look is its own.
        assert found[0].payload | {"commit": 0} == found[1].payload | {"commit": 0}
        await asyncio.gather(running.aclose(), other.aclose())

    with open_site(place.file) as site:
        place_engine = site.catalog.engine
        asyncio.run(course())


def test_what_cannot_be_meant_fails_a_task_and_not_a_watcher(place: Place, rounds: Rounds) -> None:
    async def course() -> None:
        async with aclosing(events(of_arrivals(place, names=["none"]))) as running:
            with pytest.raises(UsageError, match="unknown query 'none'"):
                await following(running)
        watching = events(of_arrivals(place, names=["none"], once=False))
        (await no_event(watching, rounds)).cancel()

    asyncio.run(course())


def test_of_a_sensor_it_ends_the_task_with_what_has_come(place: Place) -> None:
    place.take(CORRECTION)

    async def course() -> Any:
        async with aclosing(events(of_arrivals(place, ends=True))) as running:
            return await following(running)

    event = asyncio.run(course())
    assert isinstance(event, TaskSuccessEvent)
    assert event.xcoms is not None
    returned: Any = event.xcoms["return_value"]
    assert returned["streams"] == {"quotes": {"count": 1, "first": 1, "last": 1}}


def test_a_stream_becomes_stable(place: Place, rounds: Rounds) -> None:
    def until(moment: str) -> StreamStableTrigger:
        return StreamStableTrigger(str(place.file), "quotes", moment, poll=POLL)

    async def course() -> None:
        async with aclosing(events(until("15"))) as running:
            assert (await following(running)).payload == {
                "stream": "quotes",
                "stable": 15,
                "until": "15",
                "fingerprint": "quotes 15",
            }
        running = events(until("16"))
        waiting = await no_event(running, rounds)
        await asyncio.to_thread(place.take, CORRECTION, "21,c,1,insert")
        await still_none(waiting, rounds)  # a correction is pending
        await asyncio.to_thread(place.do, apply_revisions)
        assert (await coming(waiting)).payload["stable"] == 16
        await running.aclose()

    asyncio.run(course())


def test_files_land(place: Place, rounds: Rounds) -> None:
    folder = place.file.parent / "landing"

    def land(number: int) -> None:
        """A file that appears whole."""
        part = folder / f"{number}.part"
        part.write_text(f"n,value\n{number},1\n")
        part.rename(folder / f"{number}.csv")

    async def course() -> None:
        async with aclosing(events(LandedTrigger(str(place.file), poll=POLL))) as running:
            waiting = await no_event(running, rounds)
            land(1)
            first = await coming(waiting)
            assert first.payload["streams"] == {"ticks": 1}
            waiting = await no_event(running, rounds)
            land(2)
            assert (await coming(waiting)).payload["streams"] == {"ticks": 2}
            await asyncio.to_thread(place.do, lambda site: ingest_batch(site, IngestRequest("ticks", landed=True)))
            waiting = await no_event(running, rounds)
            land(3)
            assert (await coming(waiting)).payload["streams"] == {"ticks": 1}

    asyncio.run(course())


def test_an_asset_can_be_watched_with_each(tmp_path: Path) -> None:
    project = str(tmp_path / "errata.yaml")
    watching = [
        RevisionArrivalTrigger(project, once=False),
        RevisionArrivalTrigger(project, ["sums"], once=False),
        StreamStableTrigger(project, "quotes", "16"),
        LandedTrigger(project),
    ]
    for each in watching:
        assert AssetWatcher(name="errata", trigger=each).trigger is each
    hashes = [BaseEventTrigger.hash(*each.serialize()) for each in watching]
    assert len(set(hashes)) == len(watching)
    assert hashes == [BaseEventTrigger.hash(*stored(each).serialize()) for each in watching]
