"""Failures of Spark jobs, and loss of Spark itself, as errors in words.

A job that failed because of a row (a cast, an overflow) is told from one that failed for another reason by Spark's SQL
state. When Spark is lost, the error raised is whatever the next call meets: no answer, a refused connection, a broken
pipe. The JVM's exit code gives the reason where this process started it; elsewhere only the lost connection can be
reported.
"""

from __future__ import annotations

import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import TracebackType

from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError
from pyspark.errors import (
    ArithmeticException,
    ArrayIndexOutOfBoundsException,
    DateTimeException,
    NumberFormatException,
    PySparkException,
)
from pyspark.logger import PySparkLogger

from errata.errors import ErrataError

ROW_ERRORS = (ArithmeticException, ArrayIndexOutOfBoundsException, DateTimeException, NumberFormatException)
"""Exceptions for a value that cannot be computed for some row."""
JOB_FAILURES = (PySparkException, Py4JJavaError)
"""Exceptions of a job. An error of Java itself on a worker has no name of Spark's."""
_JAVA_ROW_ERRORS = ("java.lang.ArithmeticException", "java.time.DateTimeException", "java.util.regex.")
_DATA_ERROR_CLASS = "22"
"""Prefixes of the SQL states for errors in data."""
_OUT_OF_MEMORY = re.compile(r"OutOfMemory|UNABLE_TO_ACQUIRE_MEMORY|Java heap space|GC overhead limit")
_DISK_FULL = re.compile(r"No space left on device|the disk is full|Disk quota exceeded")
_LOGGERS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
# Without those rules answers would be wrong, and the state's number tells a person nothing.
_NO_HELP = re.compile(r'\s*If necessary,? set "?spark\.sql\.ansi\.enabled[^.]*\.|\s*SQLSTATE: \w+')


@contextmanager
def spark_errors_in_words() -> Iterator[None]:
    """Raise failures of Spark jobs in words: the last line of the message, which names the cause."""
    try:
        with quiet_loggers():
            yield
    except JOB_FAILURES as error:
        raise ErrataError(
            "the Spark job failed; nothing was committed",
            why=last_line(error),
            how=f"{job_advice(error)} and run it again: the same command does what is left to do",
        ) from error


@contextmanager
def query_errors_in_words() -> Iterator[None]:
    """Raise failures of Spark jobs that only answer a question, in words."""
    try:
        with quiet_loggers():
            yield
    except JOB_FAILURES as error:
        if not is_row_error(error):
            raise ErrataError(
                "the Spark job failed", why=last_line(error), how=f"{job_advice(error)} and ask again"
            ) from error
        raise ErrataError(
            "the query cannot be computed for some row",
            why=error_reason(error),
            how="look for the row, or let the query give NULL for it: try_divide, try_cast, nullif",
        ) from error


def job_advice(error: Exception) -> str:
    """The advice for a job that failed for another reason than a row."""
    if _DISK_FULL.search(str(error)) is not None:
        return "make room on the disk"
    if _OUT_OF_MEMORY.search(str(error)) is None:
        return "mend the cause"
    names = "spark.driver.memory (on a cluster spark.executor.memory)"
    return f"give Spark more memory by {names} under `spark: {{conf: …}}` in errata.yaml,"


def is_row_error(error: Exception) -> bool:
    """Whether a job failed because a value cannot be computed for some row."""
    state = error.getSqlState() if isinstance(error, PySparkException) else None
    return (
        isinstance(error, ROW_ERRORS)
        or (state or "").startswith(_DATA_ERROR_CLASS)
        or last_line(error).startswith(_JAVA_ROW_ERRORS)
    )


def error_reason(error: Exception) -> str:
    """The reason why a value cannot be computed, in Spark's words."""
    if not isinstance(error, PySparkException) or not (isinstance(error, ROW_ERRORS) or error.getCondition()):
        return last_line(error)
    first = str(error.getMessage() or error).strip().partition("\n")[0]
    return _NO_HELP.sub("", first) or type(error).__name__


def last_line(error: Exception) -> str:
    """The last line of an error's message, which names the cause."""
    text = str((error.getMessage() if isinstance(error, PySparkException) else None) or error) or type(error).__name__
    lines = [line.strip().removeprefix("Caused by: ") for line in text.splitlines() if line.strip()]
    told = [line for line in lines if not line.startswith(("at ", "File ", "JVM stacktrace", "Traceback"))]
    return next((line for line in reversed(told) if "Error" in line or "Exception" in line), told[-1])


@contextmanager
def quiet_loggers() -> Iterator[None]:
    """Silences PySpark's logs: it logs each failure with Java's whole stack before it raises it."""
    with ExitStack() as restored:
        for name in _LOGGERS:
            logger = PySparkLogger.getLogger(name)
            restored.callback(setattr, logger, "disabled", logger.disabled)
            logger.disabled = True
        yield


# Loss of Spark in the middle of work.

EXIT_WAIT_SECONDS = 3.0
"""Seconds to wait for the exit of a JVM whose connection is lost."""

OUT_OF_MEMORY_EXIT = 52
"""The exit code of a Spark process that ran out of memory."""

_SIGNAL_EXIT_BASE = 128
_START_FAILED = "JAVA_GATEWAY_EXITED"
_SESSION_GONE = ("SESSION_CLOSED", "SESSION_NOT_FOUND", "SESSION_CHANGED", "RETRIES_EXCEEDED")
"""Error conditions of a Spark Connect client whose server has ended or been replaced."""
_UNREACHABLE = "UNAVAILABLE"
"""The gRPC status of a call that no server answers."""
_NO_ANSWER = "Answer from Java side is empty"
_CLIENT_PACKAGES = ("py4j", "grpc")
"""Packages that are clients of Spark."""


class SparkLostError(ErrataError):
    """Spark is gone. A retry may help."""


def lost_spark_error(error: BaseException) -> SparkLostError | None:
    """The error in words if it was caused by the loss of Spark; otherwise None."""
    errors = list(_error_chain(error))
    if not any(_is_spark_error(each) for each in errors):
        return None
    lost = any(_is_connection_error(each) for each in errors)
    code = _jvm_exit_code(errors, EXIT_WAIT_SECONDS if lost else 0.0)
    if code is None and not lost:
        return None
    starting = any(_START_FAILED in str(each) for each in errors)
    if code is None:
        what = "Spark could not be started" if starting else "the connection to Spark was lost"
        return SparkLostError(what, why=_error_line(errors), how=f"see that Spark runs, and {_RETRY_ADVICE}")
    return SparkLostError(exit_words(code, "Spark, while it started," if starting else "Spark"), how=exit_advice(code))


def forget_lost_spark() -> None:
    """Let a new JVM be started where the one started by this process has ended. PySpark would otherwise call the ended
    one for as long as the process lives."""
    process = _running_jvm()
    if process is None or process.poll() is None:
        return
    from pyspark.core.context import SparkContext  # noqa: PLC0415 - a client of Spark Connect may not have it
    from pyspark.sql import SparkSession  # noqa: PLC0415 - as above

    for of in ("_gateway", "_jvm", "_active_spark_context"):  # PySpark has no other way
        setattr(SparkContext, of, None)
    setattr(SparkSession, "_instantiatedSession", None)  # noqa: B010 - as above


_RETRY_ADVICE = "run it again: what is committed stands, and the same command does what is left"


def signal_of(code: int) -> signal.Signals | None:
    """The signal that ended a process. A child's exit code is below 0; a shell or JVM reports its own child's above
    128."""
    number = -code if code < 0 else code - _SIGNAL_EXIT_BASE
    return signal.Signals(number) if number in {int(each) for each in signal.Signals} else None


def exit_words(code: int, what: str) -> str:
    """The end of a process in words, by its exit code."""
    if code == OUT_OF_MEMORY_EXIT:
        return f"{what} ran out of memory (exit code {code})"
    by = signal_of(code)
    if by is None:
        return f"{what} ended with exit code {code}"
    if by is signal.SIGKILL:
        return f"{what} was killed by signal 9; the kernel does so when memory is short"
    return f"{what} was ended by signal {int(by)} ({by.name})"


def exit_advice(code: int) -> str:
    """The advice for an exit code."""
    names = "spark.driver.memory under `spark: {conf: …}` in errata.yaml"
    if code == OUT_OF_MEMORY_EXIT:
        return f"give Spark more memory by {names}, and {_RETRY_ADVICE}"
    if signal_of(code) is signal.SIGKILL:
        return f"if memory was short, give the machine more of it, or Spark less by {names}; {_RETRY_ADVICE}"
    return _RETRY_ADVICE


def _error_chain(error: BaseException) -> Iterator[BaseException]:
    """The error and its causes."""
    seen = set[int]()
    following: BaseException | None = error
    while following is not None and id(following) not in seen:
        seen.add(id(following))
        yield following
        following = following.__cause__ or following.__context__


def _is_spark_error(error: BaseException) -> bool:
    return isinstance(error, (Py4JError, PySparkException)) or _is_client_error(error)


def _is_client_error(error: BaseException) -> bool:
    """Whether a connection failed in a client of Spark, and not in the catalog or the warehouse."""
    if not isinstance(error, (OSError, EOFError)):
        return False
    return any(_frame_package(frame) in _CLIENT_PACKAGES for frame in _traceback_frames(error.__traceback__))


def _is_connection_error(error: BaseException) -> bool:
    if isinstance(error, Py4JJavaError):
        return False  # an answer
    if isinstance(error, PySparkException):
        condition = error.getCondition() or ""
        status = getattr(getattr(error, "_grpc_status_code", None), "name", "")
        return condition.endswith((_START_FAILED, *_SESSION_GONE)) or status == _UNREACHABLE
    return isinstance(error, Py4JNetworkError) or _NO_ANSWER in str(error) or _is_client_error(error)


def _jvm_exit_code(errors: list[BaseException], patience: float) -> int | None:
    """The exit code of the JVM, if this process started it and it has ended or ends within the patience."""
    process = _starting_jvm(errors) or _running_jvm()
    if process is None:
        return None
    try:
        return process.wait(patience)
    except subprocess.TimeoutExpired:
        return None


def _running_jvm() -> subprocess.Popen[bytes] | None:
    from pyspark.core.context import SparkContext  # noqa: PLC0415 - a client of Spark Connect may not have it

    found = getattr(getattr(SparkContext, "_gateway", None), "proc", None)
    return found if isinstance(found, subprocess.Popen) else None


def _starting_jvm(errors: list[BaseException]) -> subprocess.Popen[bytes] | None:
    """The JVM whose start has failed. Only the function that starts it holds its process, so it is taken from the
    traceback."""
    for error in errors:
        for frame in _traceback_frames(error.__traceback__):
            if frame.tb_frame.f_code.co_name == "launch_gateway":
                found = frame.tb_frame.f_locals.get("proc")
                return found if isinstance(found, subprocess.Popen) else None
    return None


def _traceback_frames(traceback: TracebackType | None) -> Iterator[TracebackType]:
    while traceback is not None:
        yield traceback
        traceback = traceback.tb_next


def _frame_package(frame: TracebackType) -> str:
    return str(frame.tb_frame.f_globals.get("__name__", "")).partition(".")[0]


def _error_line(errors: list[BaseException]) -> str:
    """The message of the innermost error, in one line."""
    told = [line.strip() for each in reversed(errors) for line in str(each).splitlines() if line.strip()]
    return told[0] if told else type(errors[-1]).__name__
