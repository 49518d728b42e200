"""Leases, on both databases: one holder at a time, renewed while it is at work, given back when its task is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import select

from errata.catalog import leases
from errata.catalog.database import Catalog, open_catalog
from errata.catalog.leases import Lease, WaitPolicy
from errata.catalog.processes import Liveness, this_process
from errata.catalog.tables import leases as table
from errata.clock import SYSTEM
from errata.errors import ErrataError
from errata.model.commit import Cause
from errata.model.time import SECOND
from fixtures.clock import FixedClock
from fixtures.lease_cases import left_elsewhere

TESTS = Path(__file__).resolve().parents[1]
SHORT = SECOND * 3 // 10
OWNER = Cause("sweep", dag_id="revisions", run_id="manual__1", task_id="sweep", try_number=2).owner


def until(true: Callable[[], bool], seconds: float = 5.0) -> bool:
    end = time.monotonic() + seconds
    while not true():
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


def rows(catalog: Catalog) -> dict[str, tuple[int, int, str]]:
    with catalog.reading() as connection:
        found = connection.execute(select(table))
        return {row.name: (row.fence, row.expires_at, row.owner) for row in found}


def test_an_owner_is_the_try_of_a_task() -> None:
    assert OWNER == "revisions/manual__1/sweep/2"
    assert Cause("sweep", user="ann").owner == ""
    assert Cause("sweep", dag_id="revisions", run_id="r", task_id="t").owner == "revisions/r/t/"


@contextmanager
def a_process_that_holds(catalog_url: str, name: str) -> Iterator[subprocess.Popen[str]]:
    """Another process on this machine, which has the lease."""
    command = [sys.executable, str(Path(__file__)), catalog_url, name]
    environ = {**os.environ, "PYTHONPATH": str(TESTS)}
    with subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "held\n"
            yield process
        finally:
            process.kill()


@pytest.fixture
def real(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> Catalog:
    """The catalog by the machine's clock, with leases that last a moment."""
    monkeypatch.setattr(leases, "LEASE_MICROS", SHORT)
    return Catalog(catalog.engine, SYSTEM)


def test_one_holder_at_a_time(catalog: Catalog) -> None:
    with leases.hold_lease(catalog, "query one", OWNER) as first, leases.hold_lease(catalog, "query one") as second:
        assert (first.is_held, second.is_held) == (True, False)
        assert second.other_holder is not None
        assert (second.other_holder.owner, second.other_holder.process, second.other_holder.life) == (
            OWNER,
            this_process(),
            Liveness.LIVING,
        )
        assert second.other_holder.description.startswith(f"{OWNER} (process {os.getpid()} of ")
        assert leases.living_lease_names(catalog) == {"query one"}
        assert rows(catalog)["query one"][2] == OWNER
    assert rows(catalog) == {}


def test_what_a_killed_holder_left_is_taken_when_its_term_is_over(catalog: Catalog, clock: FixedClock) -> None:
    with leases.hold_lease(catalog, "query one", OWNER) as first:
        assert first.is_held
        clock.advance(leases.LEASE_MICROS)
        assert leases.living_lease_names(catalog) == set()
        with leases.hold_lease(catalog, "query one", "other") as second:
            assert second.is_held
            assert rows(catalog)["query one"][::2] == (2, "other")
    assert rows(catalog) == {}


def test_what_a_process_that_was_killed_here_left_is_taken_at_once(catalog: Catalog, catalog_url: str) -> None:
    with a_process_that_holds(catalog_url, "query one") as process:
        with leases.hold_lease(catalog, "query one") as theirs:
            assert theirs.other_holder is not None
            assert (theirs.other_holder.process.pid, theirs.other_holder.life) == (process.pid, Liveness.LIVING)
        process.send_signal(signal.SIGKILL)
        # A process that has ended and that nobody has asked how is dead, too.
        assert until(lambda: theirs.other_holder is not None and theirs.other_holder.life is Liveness.DEAD)
        began = time.monotonic()
        with leases.hold_lease(catalog, "query one") as ours:
            assert ours.is_held
        assert time.monotonic() - began < leases.LEASE_MICROS / SECOND / 3
    assert rows(catalog) == {}


def test_a_number_that_was_given_to_another_process_is_not_taken_for_the_holder() -> None:
    mine = this_process()
    assert mine.life is Liveness.LIVING
    assert replace(mine, started=mine.started - 1).life is Liveness.DEAD
    assert replace(mine, namespace="pid:[1]").life is Liveness.UNKNOWN
    assert replace(mine, boot="").life is Liveness.UNKNOWN


def test_a_holder_elsewhere_that_died_is_waited_for_and_no_longer_than_a_term(real: Catalog) -> None:
    said: list[str] = []
    left_elsewhere(real, "query one", OWNER, lasts=SHORT)
    with leases.hold_lease(real, "query one", patience=WaitPolicy(0, said.append)) as lease:
        assert lease.is_held
        assert rows(real)["query one"][0] == 2
    (line,) = said
    assert line.startswith(f"query one: held by {OWNER} (process 4711 of ")
    assert "on host elsewhere), since " in line
    assert "to see whether that is alive" in line


def test_a_holder_elsewhere_whose_clock_is_wrong_is_waited_for_no_longer(real: Catalog) -> None:
    left_elsewhere(real, "query one", lasts=3600 * SECOND)
    with leases.hold_lease(real, "query one") as lease:
        assert lease.is_held


def test_a_holder_elsewhere_that_renews_its_lease_lives(real: Catalog) -> None:
    left_elsewhere(real, "query one", lasts=SHORT)
    theirs = Lease("query one", token="somebody")
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(leases._wait_for_lease, real, Lease("query one"), "", WaitPolicy())
        while not asked.done():
            assert leases._renew_tokens(real, [theirs.token])
            time.sleep(0.05)
        found = asked.result()
    assert found is not None
    assert found.process.host == "elsewhere"


def test_who_is_patient_waits_for_a_holder_that_lives(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "LEASE_POLL_SECONDS", 0.01)
    waiting, said = threading.Event(), list[str]()

    def tell(words: str) -> None:
        said.append(words)
        waiting.set()

    def second() -> bool:
        with leases.hold_lease(catalog, "query one", "second", WaitPolicy(60, tell)) as lease:
            return lease.is_held

    with ThreadPoolExecutor(1) as pool:
        with leases.hold_lease(catalog, "query one", OWNER):
            asked = pool.submit(second)
            assert waiting.wait(10)
            assert not asked.done()
        assert asked.result(10)
    assert said[0].startswith(f"query one: waiting for {OWNER} (process {os.getpid()} of ")
    assert rows(catalog) == {}


def test_patience_has_an_end(catalog: Catalog) -> None:
    with (
        leases.hold_lease(catalog, "query one"),
        leases.hold_lease(catalog, "query one", "", WaitPolicy(0.05)) as lease,
    ):
        assert not lease.is_held


def test_only_what_is_held_for_an_owner_is_released(catalog: Catalog) -> None:
    with (
        leases.hold_lease(catalog, "query one", OWNER),
        leases.hold_lease(catalog, "query two", OWNER),
        leases.hold_lease(catalog, "query three", OWNER.replace("/2", "/1")),
        leases.hold_lease(catalog, "query four"),
    ):
        assert leases.release_owned(catalog, "") == []
        assert leases.release_owned(catalog, OWNER) == ["query one", "query two"]
        assert leases.release_owned(catalog, OWNER) == []
        assert leases.living_lease_names(catalog) == {"query three", "query four"}
        with leases.hold_lease(catalog, "query one", "other") as again:
            assert again.is_held


def test_a_lease_is_taken_away_from_the_holder_that_was_looked_at_only(catalog: Catalog) -> None:
    with leases.hold_lease(catalog, "query one"):
        (found,) = leases.list_holders(catalog)
    with leases.hold_lease(catalog, "query one"):
        assert not leases.revoke_lease(catalog, found)
        (found,) = leases.list_holders(catalog)
        assert leases.revoke_lease(catalog, found)
    assert leases.list_holders(catalog) == []


def test_a_lease_is_renewed_while_it_is_held(real: Catalog) -> None:
    with leases.hold_lease(real, "query one") as ours:
        assert ours.is_held
        time.sleep(0.8)
        with leases.hold_lease(real, "query one") as theirs:
            assert not theirs.is_held, "it has been held for longer than its term"
        assert not ours.lost


def test_who_has_lost_a_lease_notices_and_does_not_take_it_back(real: Catalog) -> None:
    with leases.hold_lease(real, "query one", OWNER) as lease:
        leases.release_owned(real, OWNER)
        with leases.hold_lease(real, "query one", "other"):
            assert until(lambda: lease.lost)
            assert rows(real)["query one"][2] == "other"
        assert leases.living_lease_names(real) == set()


def test_leases_are_taken_and_given_back_together_but_for_those_that_somebody_has(real: Catalog) -> None:
    with leases.hold_lease(real, "query two", OWNER):
        with leases.hold_free_leases(real, ["query one", "query two", "query three"], "run") as held:
            assert sorted(held) == ["query one", "query three"]
            assert all(each.is_held for each in held.values())
            time.sleep(0.8)  # longer than a term: they are renewed
            assert {name: row[2] for name, row in rows(real).items()} == {
                "query one": "run",
                "query three": "run",
                "query two": OWNER,
            }
            leases.release_owned(real, OWNER)
            assert not any(each.lost for each in held.values())
        assert rows(real) == {}


def test_of_leases_held_together_one_can_be_lost(real: Catalog) -> None:
    with leases.hold_free_leases(real, ["query one", "query two"]) as held:
        (found,) = (each for each in leases.list_holders(real) if each.name == "query two")
        assert leases.revoke_lease(real, found)
        assert until(lambda: held["query two"].lost)
        assert until(lambda: not held["query one"].lost and leases.living_lease_names(real) == {"query one"})
        time.sleep(0.5)
        assert not held["query one"].lost


class Away:
    """A catalog that is away for so many questions."""

    def __init__(self, work: Callable[..., object], times: int) -> None:
        self.work, self.left = work, times

    def __call__(self, *given: object) -> object:
        if self.left > 0:
            self.left -= 1
            raise ErrataError("the catalog's database does not answer as it should")
        return self.work(*given)


def test_a_catalog_that_is_away_for_longer_than_a_term_does_not_end_the_renewal(
    real: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    away = Away(leases._renew_tokens, 30)
    monkeypatch.setattr(leases, "_renew_tokens", away)
    with leases.hold_lease(real, "query one") as lease:
        assert until(lambda: leases.living_lease_names(real) == set()), "it has run out"
        assert until(lambda: leases.living_lease_names(real) == {"query one"}), (
            "and is renewed when the catalog is back"
        )
        assert (away.left, lease.lost) == (0, False)


def test_a_lease_is_given_back_when_a_catalog_that_was_away_is_back(
    real: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leases, "_return_where", Away(leases._return_where, 3))
    with leases.hold_lease(real, "query one"):
        pass
    assert rows(real) == {}


def test_a_catalog_that_stays_away_keeps_nobody_for_longer_than_the_lease_lasts(
    real: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    away = Away(leases._return_where, 1_000_000)
    monkeypatch.setattr(leases, "_return_where", away)
    with pytest.raises(ErrataError, match="why the work ended"), leases.hold_lease(real, "query one"):
        raise ErrataError("why the work ended")
    assert away.left < 1_000_000
    assert until(lambda: leases.living_lease_names(real) == set())


def hold(url: str, name: str) -> None:
    """Hold a lease until killed."""
    with leases.hold_lease(open_catalog(url), name) as lease:
        assert lease.is_held
        sys.stdout.write("held\n")
        sys.stdout.flush()
        time.sleep(600)


if __name__ == "__main__":
    hold(*sys.argv[1:])
