"""The same jobs on a real standalone cluster and in one process: the same rows, the same changes, and the right ones.

The operator of our DAGs submits each job, over an Airflow connection to the master. The workers are set to other time
zones, have no UTF-8, and are told nothing but where Spark and Java are.
"""

from __future__ import annotations

import json
import os
import runpy
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deploy.ports import HOST
from pyspark.sql import SparkSession
from sqlalchemy import text

from errata.archive.scan import scan_rows
from errata.archive.scan_plan import ArchiveScan
from errata.catalog import commits, streams
from errata.clock import SYSTEM
from errata.engine.java import require_java, wheel_java
from errata.model.results import VE, VS
from errata.model.time import format_instant, to_micros
from fixtures.airflow import HOUSE
from fixtures.cluster import WORKERS, Cluster, standalone
from fixtures.duck import answers
from fixtures.market import BEGIN, NOTE_BYTES, QUERIES, STREAMS, Market, Rows
from fixtures.runs import Answering, same_as
from fixtures.tasks import DAG, RUN, execute

FEED = ("quotes", "deals")
PYTHON = "MapInArrow"
"""What Spark calls the step of a job in which our own functions run."""

Do = Callable[..., None]
"""`do("append", "--landed", "quotes", task_id="first")`: a job, its arguments, and how Airflow's task is called."""


@dataclass(frozen=True, slots=True)
class Done:
    """What came of a job on a cluster."""

    applications: set[str]
    tasks: Counter[str]
    """How many of Spark's tasks each worker did."""
    python: Counter[str]
    """How many of them ran our own functions."""
    begun: set[str]
    """The programs with which executors were begun."""
    moved: set[str]
    """The streams and queries of which the operator told an asset event."""


@dataclass
class Morning:
    """A project on two sides, and what is known of it from elsewhere."""

    submitted: Answering
    """Where all is done on a cluster."""
    alone: Answering
    """Where the same is done in one process."""
    market: Market
    answered: int = 0
    """The commit by which all was answered, and nothing corrected."""
    before: Rows = field(default_factory=dict)
    """The rows of the streams by then."""
    done: dict[str, Done] = field(default_factory=dict)
    """What each task of Airflow's was to the cluster."""

    @contextmanager
    def on(self, cluster: Cluster) -> Iterator[Do]:
        """How to have a job done, there and in one process: Airflow's connection leads to this cluster meanwhile."""
        connection = {"conn_type": "spark", "host": f"spark://{HOST}", "port": cluster.port}
        environ = cluster.environ | {
            "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps(connection),
            "ERRATA_PROJECT": str(self.submitted.written.folder),
            "ERRATA_SPARK_CONF": json.dumps(cluster.conf),
            "ERRATA_NEAR": "off",
        }
        with pytest.MonkeyPatch.context() as patch:
            for name in [each for each in os.environ if each.startswith(("ERRATA_", "SPARK_HOME"))]:
                patch.delenv(name)
            for name, value in environ.items():
                patch.setenv(name, value)
            yield partial(self._do, cluster)

    def _do(self, cluster: Cluster, job: str, *arguments: str, task_id: str = "") -> None:
        task_id, known = task_id or job, cluster.applications()
        told = execute(job, *arguments, task_id=task_id)
        new = [each for each in cluster.applications() if each not in known]
        tasks, python = (sum((cluster.tasks(each, of) for each in new), Counter()) for of in (None, PYTHON))
        begun = {command.partition(" ")[0] for each in new for command in cluster.commands(each)}
        moved = {str(each["uri"]).rpartition("/")[2] for each in told}
        self.done[task_id] = Done(set(new), tasks, python, begun, moved)
        main = runpy.run_path(str(HOUSE / "jobs" / f"{job}.py"))["main"]
        assert main(["--project", str(self.alone.written.folder), *arguments]) == 0, job


@pytest.fixture(scope="module")
def much(pytestconfig: pytest.Config) -> bool:
    """Whether there is so much that archives are compacted and looked at by Spark, too; and a second cluster."""
    return bool(pytestconfig.getoption("--long"))


@pytest.fixture(scope="module")
def javas(much: bool) -> list[Path]:
    """On which Java the cluster runs first, and on which then: the one that comes in a wheel, and with `--long` the
    machine's own where it has one."""
    wheel = wheel_java(os.environ)
    assert wheel is not None
    return [wheel, require_java(os.environ) if much else wheel]


@pytest.fixture(scope="module")
def morning(
    tmp_path_factory: pytest.TempPathFactory, javas: list[Path], spark: SparkSession, much: bool
) -> Iterator[Morning]:
    folder = tmp_path_factory.mktemp("morning")
    submitted = Answering.begin(folder / "submitted", QUERIES, {}, declared=STREAMS)
    alone = submitted.copied(folder / "alone")
    for each in (submitted, alone):
        each.at(SYSTEM.now())
    projects = [each.written.folder for each in (submitted, alone)]
    of = Morning(submitted, alone, Market(projects, NOTE_BYTES if much else 0))
    of.market.open()
    with ExitStack() as running:
        do = running.enter_context(of.on(running.enter_context(standalone(folder / "first", javas[0]))))
        do("append", "--landed", "--accept-quarantine", *FEED)
        do("run", "--no-take")
        of.answered, of.before = commits.newest_commit(submitted.site.catalog), of.market.rows()
        of.market.correct()
        if much:
            running.close()
            do = running.enter_context(of.on(running.enter_context(standalone(folder / "second", javas[1]))))
        do("append", "--landed", *FEED, task_id="corrections")
        do("sweep")
        until = format_instant(max(of.market.quotes)[0])
        do("replay", "around", "--from", format_instant(BEGIN), "--to", until, "--technique", "all")
        if much:
            do("compact", "--all")
            do("doctor")
    yield of
    for each in (submitted, alone):
        each.close()


def test_both_workers_share_the_work(morning: Morning, much: bool) -> None:
    for task_id in ("append", "run", "sweep", "replay"):
        assert set(morning.done[task_id].tasks) == set(WORKERS), task_id
    assert set(morning.done["append"].python) == set(WORKERS)
    for task_id in ("run", *(("compact", "doctor") if much else ())):
        assert morning.done[task_id].python, f"{task_id} has run none of our functions on the cluster"


def test_executors_run_on_the_java_of_their_worker(morning: Morning, javas: list[Path]) -> None:
    first, second = ({str(java / "bin" / "java")} for java in javas)
    assert [morning.done[task_id].begun for task_id in ("append", "run", "sweep", "replay")] == [
        *(first, first),
        *(second, second),
    ]


def test_what_is_published_and_told_is_the_same_as_in_one_process(morning: Morning) -> None:
    same_as(morning.alone, morning.submitted, *QUERIES)


def test_what_is_archived_is_what_came_and_was_corrected(morning: Morning) -> None:
    known = {"quotes": ("price", morning.market.quotes), "deals": ("shares", morning.market.deals)}
    for name, (column, right) in known.items():
        found = archived(morning.submitted, name)
        keys = zip(found["time"].cast(pa.int64()).to_pylist(), found["symbol"].to_pylist(), strict=True)
        assert dict(zip(keys, found[column].to_pylist(), strict=True)) == right
        assert found.num_rows == len(right)
        assert found == archived(morning.alone, name)


def test_what_cannot_be_read_waits_with_the_same_reason(morning: Morning) -> None:
    submitted, alone = quarantined(morning.submitted), quarantined(morning.alone)
    assert submitted == alone
    assert [line.partition(":")[0] for *_, line in submitted] == ["price", "duplicate key"]


def test_the_answers_are_right_before_and_after_the_corrections(morning: Morning) -> None:
    of = morning.submitted
    check(of, morning.market, morning.before, morning.answered)
    check(of, morning.market, morning.market.rows(), commits.newest_commit(of.site.catalog))
    assert of.rows("by_minute", morning.answered) != of.rows("by_minute")


def test_a_replay_finds_nothing_that_differs_and_has_looked_at_all(morning: Morning) -> None:
    looked = "SELECT since, until, results, changed, ended IS NOT NULL FROM replays"
    ((*_, results, changed, ended),) = found = rows(morning.submitted, looked)
    assert (results, changed, bool(ended)) == (len(morning.submitted.rows("around")), 0, True)
    assert found == rows(morning.alone, looked)


def test_every_commit_names_the_task_and_the_application_that_made_it(morning: Morning, much: bool) -> None:
    made = commits.list_commits(morning.submitted.site.catalog, since=1)
    by_task = {each.cause.task_id: set[str]() for each in made}
    for each in made:
        assert (each.cause.dag_id, each.cause.run_id, each.cause.try_number) == (DAG, RUN, 1)
        by_task[each.cause.task_id].add(each.cause.spark_app)
    assert set(by_task) == {"append", "run", "corrections", "sweep"} | ({"compact"} if much else set())
    for task_id in ("append", "run", "sweep"):
        # What is small is done by the driver alone.
        assert by_task[task_id] - {""} == morning.done[task_id].applications, task_id


def test_what_moved_is_found_in_the_catalog_wherever_the_job_ran(morning: Morning) -> None:
    moved = {task_id: done.moved for task_id, done in morning.done.items()}
    assert moved["append"] == moved["corrections"] == set(FEED)
    assert moved["run"] == set(QUERIES)
    assert moved["sweep"] == {*FEED, *QUERIES}
    assert all(moved[task_id] == set() for task_id in ("replay", "doctor") if task_id in moved)


def check(of: Answering, market: Market, data: Rows, commit_id: int) -> None:
    """What is published of all queries as of a commit is what DuckDB makes of these rows."""
    for name, plan in of.plans().items():
        published = of.of(name, commit_id)
        ats = market.instants(published.frontier)
        right = answers(plan, [data], ats)
        kept = of.rows(name, commit_id)
        for at in ats:
            mine = [tuple(map(plain, (row[each] for each in published.shape.names))) for row in kept if counts(row, at)]
            assert sorted(mine) == sorted(right.get((0, at), [])), f"{name} at {format_instant(at)}"
        assert any(right.values()), name


def counts(row: dict[str, Any], at: int) -> bool:
    return bool(row[VS] <= at < row[VE])


def plain(value: object) -> object:
    return to_micros(value) if isinstance(value, datetime) else value


def archived(of: Answering, stream: str) -> pa.Table:
    """The rows of a stream, in its order."""
    catalog = of.site.catalog
    scan = ArchiveScan(streams.stream_state(catalog, stream), commits.newest_commit(catalog))
    found = scan_rows(of.site.session(), catalog, of.site.warehouse, scan).toArrow()
    return found.sort_by([("time", "ascending"), ("symbol", "ascending")])


def quarantined(of: Answering) -> list[tuple[object, ...]]:
    """What is in quarantine, with where and why, as if each project were in the same folder."""
    found = rows(of, "SELECT file, line, text, reason FROM quarantine ORDER BY reason DESC")
    folder = str(of.written.folder)
    return [tuple(str(each).replace(folder, "") for each in row) for row in found]


def rows(of: Answering, query: str) -> list[tuple[Any, ...]]:
    """What the catalog says."""
    with of.site.catalog.reading() as connection:
        return [tuple(row) for row in connection.execute(text(query))]
