"""Commands whose Spark is killed: a process of its own each, and a JVM that really dies."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from errata.catalog import leases
from errata.catalog.database import Catalog, open_catalog
from fixtures.commands import YAML, Errata, lines

PATIENCE = 60.0


@pytest.fixture
def catalog(errata: Errata, project: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Catalog]:
    """The catalog of a project in which a run is due, which only Spark can do."""
    monkeypatch.setenv("ERRATA_NEAR", "off")
    (project / "sums.sql").write_text(
        "SELECT symbol, sum(price) AS total FROM sliding(quotes, '9 seconds') GROUP BY symbol"
    )
    (project / "errata.yaml").write_text(f"{YAML}queries: {{sums: sums.sql}}\n")
    (project / "one.csv").write_text(lines(range(60)))
    assert errata("apply", "--yes").code == 0
    assert errata("ingest", "quotes", "one.csv").code == 0
    found = open_catalog(f"sqlite:///{project / 'errata.db'}")
    yield found
    found.close()


def spark_of(command: int) -> list[psutil.Process]:
    """The JVM that a command has started, without the one that only works out how to start it."""
    found = []
    for process in psutil.Process(command).children(recursive=True):
        try:
            words = process.cmdline()
        except psutil.Error:
            continue
        if "org.apache.spark.deploy.SparkSubmit" in words and "org.apache.spark.launcher.Main" not in words:
            found.append(process)
    return found


@pytest.mark.parametrize(
    ("moment", "what"),
    [("starting", "Spark, while it started, was killed by signal 9"), ("working", "Spark was killed")],
)
def test_a_run_whose_spark_is_killed_says_so_and_the_next_one_does_what_is_left(
    errata: Errata, catalog: Catalog, moment: str, what: str
) -> None:
    def now(command: int) -> list[psutil.Process]:
        return spark_of(command) if moment == "starting" or leases.living_lease_names(catalog) else []

    code, said = killed(now)
    assert code == 1
    first, *more = said.splitlines()
    assert first.startswith(what)
    assert "signal 9; the kernel does so when memory is short" in first
    assert [line.split(":")[0].strip() for line in more] == ["how to mend"]
    assert leases.list_holders(catalog) == [], "what was held has been given back"
    done = errata("run")
    assert (done.code, "sums" in done.out) == (0, True)


def killed(now: Callable[[int], list[psutil.Process]]) -> tuple[int, str]:
    """`errata run`, whose Spark is killed as soon as there is one to be killed: the exit code, and what it said."""
    words = [str(Path(sys.executable).with_name("errata")), "run"]
    command = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        end = time.monotonic() + PATIENCE
        while not (found := now(command.pid)):
            assert command.poll() is None, command.communicate()[0]
            assert time.monotonic() < end
            time.sleep(0.02)
        for process in found:
            process.kill()
        said, _ = command.communicate(timeout=PATIENCE)
        return command.returncode, said
    finally:
        command.kill()
        command.wait()
