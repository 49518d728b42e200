"""The load of Spark's machines is asked by its tasks, and of this machine where there is no session."""

from __future__ import annotations

import os

import pytest
from pyspark.sql import SparkSession

from errata.engine.load import current_load, machine_load, spark_load
from fixtures.connect import RunOnConnect

ABSURD = 1e9
"""A load that no machine has; only this process, and no task of Spark's, is told it."""


def test_tasks_ask_the_machines_that_they_run_on(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getloadavg", lambda: (ABSURD,) * 3)
    assert machine_load() == ABSURD / (os.cpu_count() or 1)
    assert 0 <= spark_load(spark) < machine_load()
    assert 0 <= current_load() < machine_load(), "the session that is there"


def test_without_a_session_it_is_that_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getloadavg", lambda: (ABSURD,) * 3)
    monkeypatch.setattr(SparkSession, "getActiveSession", lambda: None)
    assert current_load() == machine_load()


def test_spark_connect_can_be_asked(run_on_connect: RunOnConnect) -> None:
    printed = run_on_connect(
        """
        from unittest import mock
        from errata.engine.load import current_load, machine_load, spark_load
        with mock.patch("os.getloadavg", lambda: (1e9,) * 3):
            print(0 <= spark_load(spark) < machine_load(), 0 <= current_load() < machine_load())
        """
    )
    assert printed.split() == ["True", "True"]
