"""How loaded the machines are that do the work: this one, or those on which Spark's tasks run.

A load is the number of processes that want to run, for each core, over the last minute: 0 on an idle machine, 1 where
every core is busy. Spark Connect has no call for the state of a cluster, so a few small tasks ask the machines that
they happen to run on. That is one small Spark job.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PROBES = 8
"""Tasks that ask: the number of machines of a cluster that are looked at, at most."""
_LOAD = "load"


def machine_load() -> float:
    """The load of this machine."""
    return os.getloadavg()[0] / (os.cpu_count() or 1)


def spark_load(session: SparkSession) -> float:
    """The greatest load of the machines that the tasks of a session ran on: the slowest task decides."""
    from errata.engine.frames import fetch_rows  # noqa: PLC0415 - it imports PySpark, which takes a second

    asked = session.range(0, PROBES, 1, PROBES).mapInArrow(_task_load, f"{_LOAD} DOUBLE")
    return float(max(fetch_rows(asked)[_LOAD].to_pylist()))


def current_load() -> float:
    """The load of Spark's machines if this process has a session of it, else of this machine."""
    from pyspark.sql import SparkSession  # noqa: PLC0415

    from errata.engine.failures import forget_lost_spark  # noqa: PLC0415
    from errata.engine.near import is_near  # noqa: PLC0415

    forget_lost_spark()
    session = SparkSession.getActiveSession()
    return machine_load() if session is None or is_near(session) else spark_load(session)


def _task_load(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for _ in batches:
        yield pa.record_batch([pa.array([machine_load()])], names=[_LOAD])
