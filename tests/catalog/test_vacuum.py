"""What may leave the index: by the horizon, by pins, and by pins that come in the very moment."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from sqlalchemy import Connection, select

from errata.catalog import bucket_writes, buckets, commits, declarations, pins, streams, tables, vacuum
from errata.catalog.bucket_writes import BucketAddition
from errata.catalog.database import Catalog
from errata.catalog.migration import prepare_catalog
from errata.catalog.vacuum import SpentBucket
from errata.errors import ErrataError
from errata.model.bucket import NewBucket, Role
from errata.model.commit import Cause
from errata.model.stream import Stream
from errata.model.time import DAY
from fixtures.catalog import NOW, a_bucket, a_stream
from fixtures.chance import seeds
from fixtures.clock import FixedClock
from fixtures.oracle.horizon import readable_commits
from fixtures.postgres import FreshDatabase

CAUSE = Cause("vacuum")


def declare(catalog: Catalog, *changed: Stream, drop: Sequence[str] = ()) -> int:
    return declarations.apply_changes(catalog, CAUSE, write=changed, drop=drop, summary={})


def change(catalog: Catalog, stream_id: int = 1, add: Sequence[NewBucket] = (), remove: Sequence[int] = ()) -> int:
    """A commit that adds buckets and removes others."""
    with catalog.writing() as connection:
        streams.lock_stream(connection, stream_id)
        commit_id = commits.record_commit(
            connection, catalog.clock.now(), Cause("test"), stream_id=stream_id, summary={}
        )
        bucket_writes.add_buckets(connection, stream_id, commit_id, BucketAddition(add))
        assert bucket_writes.remove_buckets(connection, remove, commit_id) == len(remove)
        return commit_id


def an_overlay(high: int, path: str) -> NewBucket:
    return replace(a_bucket(0, high, path=path), role=Role.OVERLAY, revisions=(1, 1))


def indexed(catalog: Catalog) -> dict[int, str | None]:
    with catalog.reading() as connection:
        query = select(tables.buckets.c.bucket_id, tables.buckets.c.path)
        return {row.bucket_id: row.path for row in connection.execute(query)}


def paths(found: Sequence[SpentBucket]) -> set[str | None]:
    return {each.path for each in found}


def test_the_oldest_readable_commit_is_the_one_that_the_model_tells(catalog: Catalog, clock: FixedClock) -> None:
    times = dict(enumerate([0, 0, 5, 5, 5, 9, 20, 20, 30], start=1))
    for at in times.values():
        clock.at = NOW + at
        declare(catalog, a_stream("ticks", slack=at))
    with catalog.reading() as connection:
        for now in range(30, 36):
            for horizon in range(40):
                expected = readable_commits(times, now, horizon)[0]
                assert vacuum.oldest_readable(connection, NOW + now, horizon) == expected, (now, horizon)
        assert vacuum.oldest_readable(connection, NOW, 2**70) == 1


@pytest.mark.parametrize("seed", seeds(__name__, 4))
def test_what_no_readable_commit_and_no_reader_sees_goes_and_nothing_else(
    catalog: Catalog, clock: FixedClock, seed: int
) -> None:
    rand = random.Random(seed)
    horizon = rand.choice([0, 3, 8])
    times = {declare(catalog, a_stream("ticks", horizon=horizon)): clock.now()}
    live: list[int] = []
    for number in range(2, 12):
        clock.advance(rand.choice([0, 1, 3]))
        going = rand.sample(live, rand.randint(0, len(live)))
        times[change(catalog, add=[a_bucket(number, number, path=f"{number}")], remove=going)] = clock.now()
        live = [*sorted(set(live) - set(going)), max(indexed(catalog))]
    pinned = rand.choice([None, 4, 9])
    expired, pin = pins.Pin(catalog, 1, "gone"), None
    with catalog.writing() as connection:
        connection.execute(tables.pins.update().values(expires_at=clock.now()))
    if pinned is not None:
        pin = pins.Pin(catalog, pinned, "reader")
    kept = {*readable_commits(times, clock.now(), horizon), *range(pinned or len(times), len(times) + 1)}
    with catalog.reading() as connection:
        rows = connection.execute(select(tables.buckets)).all()
    needed = {
        row.path
        for row in rows
        if row.removed_in is None or any(row.added_in <= commit < row.removed_in for commit in kept)
    }
    expected = {row.path for row in rows} - needed
    assert paths(vacuum.spent_buckets(catalog, 1)) == expected
    seen = {commit: buckets.visible_buckets(catalog, 1, commit) for commit in kept}
    commit_id, removed = vacuum.remove_spent(catalog, 1, CAUSE)
    assert (paths(removed), commit_id is not None) == (expected, bool(expected))
    assert set(indexed(catalog).values()) == needed
    assert {commit: buckets.visible_buckets(catalog, 1, commit) for commit in kept} == seen
    assert {path for path, _ in vacuum.doomed_files(catalog)} == expected
    # With no horizon the first one's commit makes the one before it unreadable, and nothing more is spent by that.
    assert vacuum.remove_spent(catalog, 1, CAUSE) == (None, [])
    if expected:
        assert not expired.renew(), "a pin that was not heeded is gone for good"
    if pin is not None:
        pin.check()


def a_spent_bucket(catalog: Catalog, clock: FixedClock, **declared: object) -> int:
    """Stream 1, whose bucket of commit 2 became invisible in commit 3, a day ago: that commit's number."""
    declare(catalog, a_stream("ticks", **({"horizon": DAY} | declared)))
    inline = a_bucket(5, 9, path=None, data=b"123", size=3)
    change(catalog, add=[a_bucket(0, 9, path="old"), inline])
    removed_in = change(catalog, add=[a_bucket(0, 9, path="new")], remove=[1, 2])
    clock.advance(DAY)
    return removed_in


def test_index_rows_go_in_a_commit_that_says_so(catalog: Catalog, clock: FixedClock) -> None:
    a_spent_bucket(catalog, clock)
    commit_id, removed = vacuum.remove_spent(catalog, 1, CAUSE)
    assert [(each.path, each.size, each.role) for each in removed] == [("old", 100, Role.BASE), (None, 3, Role.BASE)]
    [commit] = commits.list_commits(catalog, last=1)
    assert (commit.commit_id, commit.stream, commit.cause.flow) == (commit_id, "ticks", "vacuum")
    assert commit.summary == {
        "removed_buckets": 2,
        "removed_files": 1,
        "removed_bytes": 103,
        "removed": {"base": 2},
    }
    assert buckets.inline_data(catalog, [2]) == {}
    assert vacuum.doomed_files(catalog) == [("old", 100)]
    vacuum.drop_doomed(catalog, ["old", "never heard of"])
    assert vacuum.doomed_files(catalog) == []


def test_one_stream_is_vacuumed_and_another_is_not(catalog: Catalog, clock: FixedClock) -> None:
    a_spent_bucket(catalog, clock)
    declare(catalog, a_stream("other", horizon=0))
    change(catalog, 2, add=[a_bucket(0, 9, path="other")])
    change(catalog, 2, remove=[4])
    assert paths(vacuum.remove_spent(catalog, 2, CAUSE)[1]) == {"other"}
    assert "old" in indexed(catalog).values()


def test_a_dropped_stream_goes_by_its_last_horizon(catalog: Catalog, clock: FixedClock) -> None:
    declare(catalog, a_stream("ticks", horizon=0))
    change(catalog, add=[a_bucket(0, 9, path="a"), an_overlay(9, "b")])
    declare(catalog, a_stream("ticks", horizon=DAY))
    declare(catalog, drop=["ticks"])
    declare(catalog, a_stream("ticks", horizon=0))
    assert [(each.stream_id, each.name) for each in vacuum.all_archives(catalog, ["ticks"])] == [
        (1, "ticks"),
        (2, "ticks"),
    ]
    clock.advance(DAY - 1)
    assert vacuum.remove_spent(catalog, 1, CAUSE) == (None, [])
    clock.advance(1)
    assert paths(vacuum.remove_spent(catalog, 1, CAUSE)[1]) == {"a", "b"}
    assert vacuum.all_archives(catalog, ["nobody"]) == []


def test_folded_corrections_stay_as_long_as_the_rows_they_corrected(catalog: Catalog, clock: FixedClock) -> None:
    declare(catalog, a_stream("ticks", horizon=0))
    overlays = [an_overlay(high, f"to {high}") for high in (9, 10)]
    change(catalog, add=overlays)
    change(catalog, remove=[1, 2])

    def age(to: int | None) -> None:
        with catalog.writing() as connection:
            connection.execute(tables.streams.update().values(aged_to=to))

    assert vacuum.remove_spent(catalog, 1, CAUSE) == (None, [])
    age(9)
    assert vacuum.remove_spent(catalog, 1, CAUSE) == (None, [])
    age(10)
    assert paths(vacuum.remove_spent(catalog, 1, CAUSE)[1]) == {"to 9"}
    age(11)
    assert paths(vacuum.remove_spent(catalog, 1, CAUSE)[1]) == {"to 10"}


def test_a_file_goes_with_the_last_index_row_that_names_it(catalog: Catalog) -> None:
    declare(catalog, a_stream("ticks", horizon=0))
    change(catalog, add=[a_bucket(0, 9, path="same")])
    change(catalog, add=[a_bucket(0, 9, path="same")], remove=[1])
    assert paths(vacuum.remove_spent(catalog, 1, CAUSE)[1]) == {"same"}
    assert vacuum.doomed_files(catalog) == []
    change(catalog, remove=[2])
    vacuum.remove_spent(catalog, 1, CAUSE)
    assert vacuum.doomed_files(catalog) == [("same", 100)]


def test_no_later_horizon_brings_back_what_is_gone(catalog: Catalog, clock: FixedClock) -> None:
    removed_in = a_spent_bucket(catalog, clock)
    commits.check_readable(catalog, 2, 2 * DAY, "ticks")
    assert not removed_since(catalog, removed_in - 1, low=10)
    vacuum.remove_spent(catalog, 1, CAUSE)
    with pytest.raises(ErrataError, match="no longer whole"):
        commits.check_readable(catalog, 2, 2 * DAY, "ticks")
    commits.check_readable(catalog, removed_in, 2 * DAY, "ticks")
    # Whoever decided on commit 2 cannot be told any more where the bucket lay.
    assert removed_since(catalog, removed_in - 1, low=10)
    assert not removed_since(catalog, removed_in, low=0)
    declare(catalog, drop=["ticks"])
    with pytest.raises(ErrataError, match="no longer whole"):
        commits.check_not_vacuumed(catalog, 2, "ticks")
    declare(catalog, a_stream("ticks"))
    commits.check_not_vacuumed(catalog, commits.newest_commit(catalog), "ticks")


def removed_since(catalog: Catalog, since: int, low: int) -> bool:
    with catalog.reading() as connection:
        return buckets.is_removed_since(connection, 1, since, low)


def test_names_are_looked_up_in_the_index_and_in_the_list(catalog: Catalog, clock: FixedClock) -> None:
    a_spent_bucket(catalog, clock)
    asked = ["x", "old", *map(str, range(2 * vacuum.VALUES_PER_STATEMENT)), "new", "y"]
    left = [path for path in asked if path not in ("old", "new")]
    assert vacuum.unreferenced_paths(catalog, asked) == left
    vacuum.remove_spent(catalog, 1, CAUSE)
    assert "old" not in indexed(catalog).values()
    assert vacuum.unreferenced_paths(catalog, asked) == left


def test_the_list_is_read_in_portions(catalog: Catalog) -> None:
    declare(catalog, a_stream("ticks", horizon=0))
    count = vacuum.VALUES_PER_STATEMENT + 7
    change(catalog, add=[a_bucket(0, 9, path=f"{number:04}") for number in range(count)])
    change(catalog, remove=list(indexed(catalog)))
    assert len(vacuum.remove_spent(catalog, 1, CAUSE)[1]) == count
    first = vacuum.doomed_files(catalog)
    second = vacuum.doomed_files(catalog, first[-1][0])
    assert [path for path, _ in [*first, *second]] == [f"{number:04}" for number in range(count)]
    vacuum.drop_doomed(catalog, [path for path, _ in [*first, *second]])
    assert vacuum.doomed_files(catalog) == []


def just_before(monkeypatch: pytest.MonkeyPatch, place: object, name: str, act: Callable[[], None], times: int) -> None:
    """Do something just before a function is called, the first so many times."""
    called, left = getattr(place, name), [times]

    def patched(*args: object, **kwargs: object) -> object:
        if left[0]:
            left[0] -= 1
            act()
        return called(*args, **kwargs)

    monkeypatch.setattr(place, name, patched)


def test_a_pin_between_the_look_and_the_transaction_is_heeded(
    catalog: Catalog, clock: FixedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    a_spent_bucket(catalog, clock)
    just_before(monkeypatch, vacuum, "_remove_spent", lambda: held.append(pins.Pin(catalog, 2, "reader")), 1)
    held: list[pins.Pin] = []
    assert vacuum.remove_spent(catalog, 1, CAUSE) == (None, [])
    assert len(held) == 1
    assert buckets.inline_data(catalog, [2]) == {2: b"123"}
    held[0].drop()
    assert len(vacuum.remove_spent(catalog, 1, CAUSE)[1]) == 2


@pytest.fixture
def postgres(fresh_database: FreshDatabase, clock: FixedClock) -> Iterator[Catalog]:
    catalog = prepare_catalog(fresh_database("postgresql"), clock)
    yield catalog
    catalog.close()


@pytest.mark.parametrize("pinned", [2, 3])
def test_a_pin_that_commits_while_index_rows_are_being_removed_is_heeded(
    postgres: Catalog, clock: FixedClock, monkeypatch: pytest.MonkeyPatch, pinned: int
) -> None:
    """READ COMMITTED: the transaction has looked at the pins, and a reader pins and looks up before it commits."""
    a_spent_bucket(postgres, clock)
    found = []

    def read() -> None:
        pins.Pin(postgres, pinned, "reader")
        found.append([bucket.path for bucket in buckets.visible_buckets(postgres, 1, pinned)])

    just_before(monkeypatch, vacuum, "_delete_spent", read, 1)
    commit_id, removed = vacuum.remove_spent(postgres, 1, CAUSE)
    if pinned == 2:
        assert (commit_id, removed, vacuum.doomed_files(postgres)) == (None, [], [])
        assert set(found[0]) == {"old", None}
    else:
        assert (len(removed), found) == (2, [["new"]])
    assert [bucket.path for bucket in buckets.visible_buckets(postgres, 1, pinned)] == found[0]


def test_readers_that_keep_pinning_ever_older_commits_put_it_off(
    postgres: Catalog, clock: FixedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    declare(postgres, a_stream("ticks", horizon=0))
    for number in range(2, 12):
        change(postgres, add=[a_bucket(0, 9, path=f"{number}")], remove=sorted(indexed(postgres))[-1:])
    older = iter(range(10, 1, -1))

    def pin(commit_id: int) -> None:
        pins.Pin(postgres, commit_id, "reader")

    just_before(monkeypatch, vacuum, "_delete_spent", lambda: pin(next(older)), 20)
    assert vacuum.remove_spent(postgres, 1, CAUSE) == (None, [])
    assert len(indexed(postgres)) == 10


def waiting(catalog: Catalog) -> bool:
    """Whether somebody waits for a lock."""
    with catalog.reading() as connection:
        return bool(connection.exec_driver_sql("SELECT count(*) FROM pg_locks WHERE NOT granted").scalar_one())


def test_a_pin_that_comes_after_the_last_look_waits_and_finds_what_is_gone(
    postgres: Catalog, clock: FixedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise its reader would find index rows, and then no files."""
    a_spent_bucket(postgres, clock)
    with ThreadPoolExecutor(1) as pool:
        reading = []

        def read() -> str:
            with pins.hold_pin(postgres, 2, "reader"):
                try:
                    commits.check_readable(postgres, 2, 2 * DAY, "ticks")
                except ErrataError as error:
                    return error.what
                return "readable"

        def begin() -> None:
            reading.append(pool.submit(read))
            deadline = time.monotonic() + 10
            while not waiting(postgres) and time.monotonic() < deadline:
                time.sleep(0.005)
            assert not reading[0].done()

        just_before(monkeypatch, commits, "record_commit", begin, 1)
        assert len(vacuum.remove_spent(postgres, 1, CAUSE)[1]) == 2
        assert reading[0].result(30) == "commit 2 of stream ticks is no longer whole"


def test_two_at_once_remove_each_bucket_once(catalog: Catalog, clock: FixedClock) -> None:
    declare(catalog, a_stream("ticks", horizon=0))
    for number in range(5):
        change(catalog, add=[a_bucket(0, 9, path=f"{number}")], remove=sorted(indexed(catalog))[-1:])
    together = threading.Barrier(2)

    def run() -> list[SpentBucket]:
        together.wait(10)
        return vacuum.remove_spent(catalog, 1, CAUSE)[1]

    with ThreadPoolExecutor(2) as pool:
        both = [each for job in [pool.submit(run), pool.submit(run)] for each in job.result(60)]
    assert sorted(str(each.path) for each in both) == ["0", "1", "2", "3"]
    assert [path for path, _ in vacuum.doomed_files(catalog)] == ["0", "1", "2", "3"]
    assert [each.cause.flow for each in commits.list_commits(catalog, last=2)] == ["test", "vacuum"]


def test_the_lock_on_pins_is_had_without_waiting_for_readers_at_work(postgres: Catalog, clock: FixedClock) -> None:
    """A pin is a row and no open transaction: many of them do not hold vacuum up, nor it them for long."""
    a_spent_bucket(postgres, clock)
    held = [pins.Pin(postgres, 3, f"reader {number}") for number in range(20)]
    began = time.monotonic()
    assert len(vacuum.remove_spent(postgres, 1, CAUSE)[1]) == 2
    assert time.monotonic() - began < 5
    for pin in held:
        pin.check()


def test_a_vacuum_that_fails_takes_nothing(
    catalog: Catalog, clock: FixedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    a_spent_bucket(catalog, clock)
    before = indexed(catalog)

    def fails(_connection: Connection, _now: int) -> int | None:
        raise ErrataError("the catalog's database does not answer as it should")

    monkeypatch.setattr(pins, "oldest_pinned_locked", fails)
    with pytest.raises(ErrataError):
        vacuum.remove_spent(catalog, 1, CAUSE)
    assert (indexed(catalog), vacuum.doomed_files(catalog)) == (before, [])
    commits.check_not_vacuumed(catalog, 2, "ticks")
