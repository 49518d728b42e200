"""A job beside its task is the same whether it is a fork of the task or a Python of its own, and takes nothing of the
task's along. The tasks here are processes of their own, since a fork takes over all that its process has."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from fixtures.airflow import HOUSE, PROJECT, airflow_environment

WAYS = {"forked": ("json",), "begun": ("no.such.module",)}
"""What a job is said to import: where that is loaded it is forked."""

JOB = """
import os, sys
print("argued", *sys.argv[1:])
print("told", os.environ.get("ERRATA_SPARK_REMOTE"), os.environ.get("LEFT"), file=sys.stderr)
print("beside", os.path.basename(sys.path[0]), __name__)
sys.exit(3)
"""


def in_a_task(folder: Path, code: str, *, way: str, job: str = JOB, **environ: str) -> dict[str, Any]:
    """What a task tells that has started the job by `start()`, with `code` after it."""
    script = folder / "jobs" / "job.py"
    script.parent.mkdir(exist_ok=True)
    script.write_text(job)
    task = f"""
import json, os, signal, sys, time
from errata_airflow import beside

beside.JOB = {WAYS[way]!r}
os.environ["LEFT"] = "by the task"
told = {{}}

def start(*arguments):
    environ = {{"PATH": os.environ["PATH"], "ERRATA_SPARK_REMOTE": "sc://there", "PYTHONUNBUFFERED": "1"}}
    return beside.start({str(script)!r}, arguments, environ)

{textwrap.dedent(code)}
with open({str(folder / "told.json")!r}, "w") as out:
    json.dump(told, out)
"""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", task],
        env={**os.environ, "PYTHONPATH": str(HOUSE / "plugins"), **environ},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads((folder / "told.json").read_text())
    return found


@pytest.mark.parametrize("way", WAYS)
def test_a_job_gets_its_arguments_and_its_environment_and_all_that_it_says_is_heard(tmp_path: Path, way: str) -> None:
    told = in_a_task(
        tmp_path,
        """
        job = start("--landed", "quotes")
        told["said"] = [line.rstrip() for line in job.said]
        told["code"] = job.wait()
        """,
        way=way,
    )
    assert sorted(told["said"]) == ["argued --landed quotes", "beside jobs __main__", "told sc://there None"]
    assert told["code"] == 3


@pytest.mark.parametrize("way", WAYS)
def test_why_a_job_has_failed_is_heard(tmp_path: Path, way: str) -> None:
    told = in_a_task(
        tmp_path,
        """
        job = start()
        told["said"] = [line.rstrip() for line in job.said]
        told["code"] = job.wait()
        """,
        way=way,
        job="raise ValueError('the disk is full')",
    )
    assert (told["said"][-1], told["code"]) == ("ValueError: the disk is full", 1)


@pytest.mark.parametrize("way", WAYS)
def test_a_job_can_be_ended_whatever_the_task_makes_of_signals(tmp_path: Path, way: str) -> None:
    told = in_a_task(
        tmp_path,
        """
        signal.signal(signal.SIGTERM, lambda *_: None)
        job = start()
        told["first"] = next(iter(job.said)).rstrip()
        job.terminate()
        told["code"] = job.wait()
        job.terminate()
        """,
        way=way,
        job="import time\nprint('here', flush=True)\ntime.sleep(600)",
    )
    assert told == {"first": "here", "code": -signal.SIGTERM}


@pytest.mark.parametrize("way", WAYS)
def test_a_job_holds_nothing_on_whose_end_others_wait(tmp_path: Path, way: str) -> None:
    told = in_a_task(
        tmp_path,
        """
        reading, writing = os.pipe()
        os.set_inheritable(writing, True)
        job = start()
        told["first"] = next(iter(job.said)).rstrip()
        os.close(writing)
        told["read"] = os.read(reading, 1).decode()
        job.terminate()
        job.wait()
        """,
        way=way,
        job="import time\nprint('here', flush=True)\ntime.sleep(600)",
    )
    assert told == {"first": "here", "read": ""}


def test_what_the_task_speaks_by_may_be_closed_in_a_fork(tmp_path: Path) -> None:
    """Airflow's tasks own the files behind 1 and 2: when nobody needs these objects any more, they close them."""
    told = in_a_task(
        tmp_path,
        """
        sys.__stdout__ = sys.__stderr__ = None
        sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w")
        job = start("one")
        told["said"] = len(list(job.said))
        told["code"] = job.wait()
        """,
        way="forked",
    )
    assert told == {"said": 3, "code": 3}


def test_a_process_that_is_told_to_has_loaded_what_tasks_and_jobs_import(tmp_path: Path) -> None:
    (tmp_path / "errata.yaml").write_text(PROJECT)
    code = """
import json, sys, airflow
from errata_airflow import beside
from airflow import plugins_manager
_, errors = plugins_manager._get_plugins()
print(json.dumps([sorted(set(beside.JOB + beside.TASK) - sys.modules.keys()), errors]))
"""
    environ = airflow_environment(tmp_path) | {"ERRATA_PRELOAD": "yes", "AIRFLOW__CORE__LAZY_LOAD_PLUGINS": "False"}
    done = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout.splitlines()[-1]) == [[], {}]
