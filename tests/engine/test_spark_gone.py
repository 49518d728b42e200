"""Spark that is gone: what is told of it, and what is not taken for it."""

from __future__ import annotations

import signal
import subprocess
import sys
from textwrap import dedent

import pytest
from py4j.protocol import Py4JNetworkError
from pyspark.errors import PySparkException, PySparkRuntimeError

from errata.engine.failures import exit_advice, exit_words, lost_spark_error
from errata.errors import ErrataError
from fixtures.connect import RunOnConnect


def told(error: BaseException, cause: BaseException | None = None) -> ErrataError | None:
    error.__cause__ = cause
    return lost_spark_error(error)


def test_a_lost_connection_is_told_as_that_whatever_it_led_to() -> None:
    lost = Py4JNetworkError("Answer from Java side is empty")
    for error, cause in ((lost, None), (ErrataError("query sums could not be taken further"), lost)):
        found = told(error, cause)
        assert found is not None
        assert found.what == "the connection to Spark was lost"
        assert found.why == "Answer from Java side is empty"
        assert "run it again" in str(found.how)


@pytest.mark.parametrize(
    "error",
    [
        ErrataError("the catalog's database does not answer as it should"),
        ConnectionRefusedError(111, "Connection refused"),
        PySparkException("Job aborted due to stage failure"),
        PySparkRuntimeError("the connection of a source was refused: UNAVAILABLE"),
        ValueError("no"),
    ],
)
def test_what_is_no_loss_of_spark_is_not_taken_for_it(error: Exception) -> None:
    assert told(error) is None


def test_how_a_process_has_ended() -> None:
    assert exit_words(-9, "Spark") == "Spark was killed by signal 9; the kernel does so when memory is short"
    assert exit_words(137, "Spark") == exit_words(-9, "Spark")
    assert exit_words(-15, "Spark") == "Spark was ended by signal 15 (SIGTERM)"
    assert exit_words(1, "Spark") == "Spark ended with exit code 1"
    assert exit_words(255, "Spark") == "Spark ended with exit code 255"
    assert exit_words(52, "Spark") == "Spark ran out of memory (exit code 52)"
    assert "spark.driver.memory" in exit_advice(-9)
    assert exit_advice(52).startswith("give Spark more memory")


def test_the_exit_code_is_told_of_a_start_that_has_failed() -> None:
    def launch_gateway() -> None:
        """Called like PySpark's, which keeps its process to itself."""
        proc = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
        proc.send_signal(signal.SIGKILL)
        raise PySparkRuntimeError(errorClass="JAVA_GATEWAY_EXITED", messageParameters={})

    try:
        launch_gateway()
    except PySparkRuntimeError as error:
        found = lost_spark_error(error)
    assert found is not None
    assert found.what == "Spark, while it started, was killed by signal 9; the kernel does so when memory is short"


def test_a_connect_server_that_is_gone_is_told_as_that(run_on_own_connect: RunOnConnect) -> None:
    printed = run_on_own_connect(
        """
        import psutil
        from errata.engine import session
        from errata.engine.failures import lost_spark_error
        from errata.engine.session import _limit_retries

        assert spark.range(3).count() == 3
        session.MAX_CONNECT_TRIES = 1
        _limit_retries(spark)
        for process in psutil.Process().children(recursive=True):
            process.kill()
        try:
            spark.range(3).count()
        except Exception as error:
            print(lost_spark_error(error))
        sys = __import__("sys")
        sys.stdout.flush()
        os._exit(0)
        """
    )
    first = printed.splitlines()[0]
    assert first in (
        "Spark was killed by signal 9; the kernel does so when memory is short",
        "the connection to Spark was lost",
    )


def test_a_process_whose_jvm_has_ended_starts_another() -> None:
    script = """
        from pyspark import SparkContext
        from errata.engine.session import open_session

        counts = []
        for _ in range(2):
            spark = open_session("local[1]", None, {"spark.driver.memory": "512m"}, "errata tests")
            counts.append(spark.range(3).count())
            SparkContext._gateway.proc.kill()
            SparkContext._gateway.proc.wait()
        print(counts)
    """
    made = subprocess.run([sys.executable, "-c", dedent(script)], capture_output=True, text=True, check=True)
    assert made.stdout == "[3, 3]\n"
