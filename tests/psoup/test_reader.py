"""The reader: one commit for all sources, buckets that vacuum takes away, threads, and what is had from memory."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from errata.archive.upkeep.compaction import compact_streams
from errata.archive.upkeep.vacuum import run_vacuum
from errata.catalog import commits, registered
from errata.errors import ErrataError
from errata.model.time import DAY
from errata.psoup import reader as reading
from errata.psoup.byte_cache import ByteCache
from errata.psoup.materialise import materialise
from errata.psoup.reader import RegisteredReader
from errata.psoup.register import register, registered_queries, unregister
from errata.psoup.snapshot import BucketColumns, StreamSnapshot, stream_snapshot
from fixtures.registered.archives import History

TEXT = "SELECT sym, no, bid FROM quotes BEGIN ('2026-11-18T02:00:00') END (NOW)"
PAIRS = "SELECT a.no, b.no AS other FROM quotes AS a, quotes AS b WHERE a.no = b.no BEGIN (NOW - 1000 ROWS) END (NOW)"


@pytest.fixture
def history(tmp_path: Path, chance: Random) -> Iterator[History]:
    made = History.begin(tmp_path, f"sqlite:///{tmp_path}/errata.db", chance)
    for _ in range(4):
        made.arrive("quotes")
    made.note()
    yield made
    made.house.site.catalog.close()


def check(history: History, reader: RegisteredReader, handle: str) -> None:
    history.note()
    stable = history.newest.stable["quotes"]
    assert stable is not None
    assert history.newest.is_answered_by(reader.invoke(handle).rows, reader.query(handle).plan, stable)


def test_what_has_been_read_is_not_read_again(history: History, monkeypatch: pytest.MonkeyPatch) -> None:
    site = history.house.site
    (made,) = register(site, [TEXT], owner="me")
    materialise(site)
    reader = RegisteredReader(site)
    check(history, reader, made.handle)
    read: list[int] = []
    before = BucketColumns._read
    monkeypatch.setattr(
        BucketColumns, "_read", lambda self, missing, *rest: read.append(len(missing)) or before(self, missing, *rest)
    )
    check(history, reader, made.handle)
    assert read == []
    history.revise("quotes")
    check(history, reader, made.handle)
    assert all(count == 1 for count in read), "the overlay alone"


def test_buckets_that_vacuum_took_away_are_looked_up_again(history: History, monkeypatch: pytest.MonkeyPatch) -> None:
    site = history.house.site
    (made,) = register(site, [TEXT], owner="me")
    history.revise("quotes")
    reader, begun = RegisteredReader(site), list[int]()

    def compacted_meanwhile(*given: object) -> StreamSnapshot:
        found = stream_snapshot(*given)  # type: ignore[arg-type]
        if not begun:
            begun.append(found.commit_id)
            (done,) = compact_streams(site, ["quotes"], everything=True)
            assert done.commit_id is not None
            history.house.clock.advance(30 * DAY)  # past the horizon, with whatever is committed then
            history.revise("quotes")
            run_vacuum(site)
            assert commits.whole_since(site.catalog, "quotes") > found.commit_id
        return found

    monkeypatch.setattr(reading, "stream_snapshot", compacted_meanwhile)
    found = reader.invoke(made.handle)
    assert found.commit_id > begun[0]
    history.note()
    assert history.at[found.commit_id].is_answered_by(found.rows, made.plan, found.now)
    with pytest.raises(ErrataError, match=r"(behind the horizon|no longer whole)"):
        reader.invoke(made.handle, as_of=begun[0])


def test_threads_get_whole_answers_while_rows_come(history: History) -> None:
    site = history.house.site
    plain, pairs = register(site, [TEXT, PAIRS], owner="me")
    reader, failed, stopped = RegisteredReader(site), list[BaseException](), threading.Event()
    sizes: dict[int, set[tuple[int, int]]] = {}

    def ask() -> None:
        try:
            while not stopped.is_set():
                one, two = reader.invoke(plain.handle), reader.invoke(pairs.handle)
                sizes.setdefault(one.commit_id, set()).add((0, one.rows.num_rows))
                sizes.setdefault(two.commit_id, set()).add((1, two.rows.num_rows))
        except BaseException as error:  # noqa: BLE001 - told by the test
            failed.append(error)

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for each in threads:
        each.start()
    for _ in range(6):
        history.arrive("quotes")
        history.revise("quotes")
        materialise(site)
        history.note()
    stopped.set()
    for each in threads:
        each.join()
    assert failed == []
    noted = {commit: moment for commit, moment in history.at.items() if commit in sizes}
    assert len(noted) > 1
    for commit, moment in noted.items():
        live = moment.rows["quotes"]
        right = sum(mine["no"] == other["no"] for mine in live for other in live)
        assert sizes[commit] <= {(0, len(live)), (1, right)}, commit
    check(history, reader, plain.handle)


def test_a_handle_that_is_gone_is_gone_at_once(history: History) -> None:
    site = history.house.site
    mine, other = register(site, [TEXT, TEXT], owner="me")
    reader = RegisteredReader(site)
    reader.invoke(mine.handle)
    with pytest.raises(ErrataError, match="no query has handle"):
        unregister(site, mine.handle, "somebody else")
    unregister(site, mine.handle, "me")
    with pytest.raises(ErrataError, match="was unregistered"):
        reader.invoke(mine.handle)
    assert [each.handle for each in registered_queries(site)] == [other.handle]
    assert registered_queries(site, "somebody else") == []
    check(history, reader, other.handle)


def test_a_small_memory_gives_the_same_answers(history: History, monkeypatch: pytest.MonkeyPatch) -> None:
    site = history.house.site
    (made,) = register(site, [TEXT], owner="me")
    monkeypatch.setattr(ByteCache, "put", lambda *_: None)
    reader = RegisteredReader(site)
    history.revise("quotes")
    check(history, reader, made.handle)


def test_the_least_recently_used_goes_first() -> None:
    cache: ByteCache[str, int] = ByteCache(10)
    for name in "abc":
        cache.put(name, ord(name), 3)
    assert cache.get("a") == ord("a")
    cache.put("d", ord("d"), 4)
    assert (cache.get("b"), cache.get("a"), cache.get("d"), cache.bytes) == (None, ord("a"), ord("d"), 10)
    cache.put("e", ord("e"), 11)
    assert (cache.get("e"), cache.bytes) == (None, 10)
    cache.put("a", 0, 1)
    assert (cache.get("a"), cache.bytes, len(cache)) == (0, 8, 3)


def test_a_query_is_looked_up_again_only_after_a_change_of_queries(
    history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = history.house.site
    mine, other = register(site, [TEXT, TEXT], owner="me")
    reader, looked_up = RegisteredReader(site), list[str]()
    before = registered.registration
    monkeypatch.setattr(
        registered, "registration", lambda catalog, handle: looked_up.append(handle) or before(catalog, handle)
    )
    for _ in range(3):
        check(history, reader, mine.handle)
        history.revise("quotes")
        register(site, [PAIRS], owner="me")
    assert looked_up == [mine.handle]
    unregister(site, other.handle)
    check(history, reader, mine.handle)
    assert looked_up == [mine.handle] * 2
