from __future__ import annotations

import os
import signal
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from errata.engine import session
from errata.engine.session import (
    SESSION_RULES,
    SESSION_TUNING,
    is_local,
    local_threads,
    open_session,
    prepare_environment,
    session_settings,
)


@pytest.mark.parametrize(
    ("master", "threads"), [("local", 1), ("local[3]", 3), ("local[*]", 8), ("local[2,4]", 2), ("spark://h:7077", None)]
)
def test_local_masters_and_their_threads(master: str, threads: int | None) -> None:
    assert is_local(master) == (threads is not None)
    if threads is not None:
        assert local_threads(master, cores=8) == threads


def test_what_the_project_declares_is_the_last_word() -> None:
    _, options = session_settings("local[2]", {"spark.driver.memory": "8g"}, submitted=False, cores=4)
    assert options["spark.driver.memory"] == "8g"
    assert options["spark.sql.shuffle.partitions"] == "2"


def test_a_cluster_keeps_its_own_settings_but_for_the_rules() -> None:
    master, options = session_settings("spark://master:7077", {"spark.executor.memory": "4g"}, submitted=False, cores=4)
    assert master == "spark://master:7077"
    assert options == {**SESSION_RULES, **SESSION_TUNING, "spark.executor.memory": "4g"}


def test_nothing_overrides_the_master_that_spark_submit_was_given() -> None:
    assert session_settings("local[*]", {}, submitted=True, cores=4) == (None, {**SESSION_RULES, **SESSION_TUNING})


def test_the_operators_environment_is_respected(tmp_path: Path) -> None:
    environ = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PYSPARK_PYTHON": "/chosen/python"}
    prepare_environment(environ, local=True)
    assert environ["PYSPARK_PYTHON"] == "/chosen/python"
    assert environ["SPARK_LOCAL_IP"] == "127.0.0.1"
    plain = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    prepare_environment(plain, local=False)
    assert plain["PYSPARK_PYTHON"] == sys.executable
    assert "SPARK_LOCAL_IP" not in plain


def test_the_active_session_is_used_and_brought_to_the_rules(spark: SparkSession) -> None:
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    same = open_session("local[7]", None, {"spark.sql.shuffle.partitions": "3", "spark.driver.memory": "9g"}, "other")
    try:
        assert same is spark
        assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
        assert spark.conf.get("spark.sql.shuffle.partitions") == "3"
        assert spark.conf.get("spark.driver.memory") == "2g"
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", "2")


def test_times_are_utc_and_overflow_is_an_error(spark: SparkSession) -> None:
    row = spark.sql("SELECT unix_micros(TIMESTAMP '2026-11-18T02:00:00') AS micros").first()
    assert row is not None
    assert row.micros == int(datetime(2026, 11, 18, 2, tzinfo=UTC).timestamp()) * 1_000_000
    with pytest.raises(Exception, match="OVERFLOW"):
        spark.sql("SELECT 2147483647 + 1").collect()


def test_an_interrupt_waits_until_spark_has_started() -> None:
    after: list[str] = []

    def start() -> None:
        with session._delayed_interrupts():
            signal.raise_signal(signal.SIGINT)
            after.append("started")

    # A shell may have told the tests to take no notice of interrupts.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            start()
        assert after == ["started"]
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)
