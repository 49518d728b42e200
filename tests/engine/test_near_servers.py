"""The near engine's servers: replaced as they grow, and gone with whoever has started them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from textwrap import dedent

import psutil
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from errata.engine import near
from errata.engine.budget import EngineDemand, EngineKind, NearBudget
from errata.engine.engines import Engines
from errata.engine.frames import fetch_rows, frame_of_rows
from errata.engine.near import is_near, near_session, stop_near

ROWS = pa.table({"a": [1, 2, 3]})


def total(session: SparkSession) -> int:
    found = fetch_rows(frame_of_rows(session, ROWS, "a bigint").selectExpr("sum(a) AS s"))["s"].to_pylist()[0]
    assert isinstance(found, int)
    return found


def pids() -> list[int]:
    return [each.process.pid for each in near._servers]


def until(true: Callable[[], bool]) -> bool:
    for _ in range(500):
        if true():
            return True
        time.sleep(0.02)
    return False


@pytest.fixture(autouse=True)
def own_servers(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Those of other tests stay as they are."""
    monkeypatch.setattr(near, "_servers", [])
    yield
    stop_near()


def test_one_server_does_what_follows() -> None:
    with near_session() as first:
        assert total(first) == 6
    with near_session() as second:
        assert second is first
        assert is_near(second)
    assert len(pids()) == 1


def test_a_server_that_has_grown_finishes_what_it_has_begun_and_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    with near_session() as first:
        (old,) = pids()
        monkeypatch.setattr(near, "MAX_GROWTH_BYTES", 1)
        with near_session() as second:
            assert second is not first
            assert (total(first), total(second)) == (6, 6)
            assert is_near(first)
            assert is_near(second)
            assert len(pids()) == 2
        assert pids()[0] == old
    assert old not in pids()
    assert until(lambda: not psutil.pid_exists(old))


def test_where_a_server_is_killed_far_decides_and_the_next_work_has_another(spark: SparkSession) -> None:
    engines = Engines(lambda: spark, NearBudget())

    def killed(session: SparkSession) -> int:
        if is_near(session):
            os.kill(pids()[-1], signal.SIGKILL)
        return total(session)

    found, choice = engines.run(EngineDemand(3), killed)
    assert (found, choice.engine) == (6, EngineKind.FAR)
    assert choice.why.startswith("near failed: ")
    found, choice = engines.run(EngineDemand(3), total)
    assert (found, choice.engine) == (6, EngineKind.NEAR)


SCRIPT = """
    import os, sys, time
    import pyarrow as pa
    from errata.engine import near
    from errata.engine.frames import fetch_rows, frame_of_rows

    def total():
        with near.near_session() as session:
            rows = frame_of_rows(session, pa.table({"a": [1, 2]}), "a bigint")
            return fetch_rows(rows.selectExpr("sum(a) AS s"))["s"][0].as_py()

    """


def begun(body: str) -> subprocess.Popen[str]:
    script = dedent(SCRIPT) + dedent(body)
    return subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)


def test_a_server_does_not_outlive_a_process_that_is_killed() -> None:
    process = begun("assert total() == 3; print(near._servers[0].process.pid, flush=True); time.sleep(60)")
    assert process.stdout is not None
    server = int(process.stdout.readline())
    assert psutil.pid_exists(server)
    process.kill()
    process.wait()
    process.stdout.close()
    assert until(lambda: not psutil.pid_exists(server))


def test_a_forked_process_has_no_near_engine_and_leaves_that_of_the_other_alone() -> None:
    process = begun(
        """
        assert total() == 3
        first = near._servers[0].process.pid
        child = os.fork()
        if child == 0:
            try:
                total()
            except near.NearError:
                os._exit(0)
            os._exit(1)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), total(), near._servers[0].process.pid == first)
        """
    )
    told, _ = process.communicate(timeout=120)
    assert (process.returncode, told.split()) == (0, ["0", "3", "True"])
