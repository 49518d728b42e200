"""Spark that is gone in the middle of something: why, as far as it can be told from here.

What is raised then is whatever the next call finds: no answer, a connection that is refused, a broken pipe. Why, the
JVM's exit code knows where this process has started it; elsewhere there is only the lost connection to tell.
"""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from types import TracebackType

from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError
from pyspark.errors import PySparkException

from errata.errors import ErrataError

PATIENCE = 3.0
"""Seconds that a JVM is waited for to end whose connection is lost."""

MEMORY = 52
"""The exit code of Spark's processes that ran out of memory."""

_OF_CHILD = 128
_NOT_STARTED = "JAVA_GATEWAY_EXITED"
_GONE = ("SESSION_CLOSED", "SESSION_NOT_FOUND", "SESSION_CHANGED", "RETRIES_EXCEEDED")
"""Conditions of a client of Spark Connect whose server has ended, or is another one now."""
_UNREACHABLE = "UNAVAILABLE"
"""The state of a call that no server answers."""
_NO_ANSWER = "Answer from Java side is empty"
_BEHIND = ("py4j", "grpc")
"""Packages that speak to Spark."""


class SparkLostError(ErrataError):
    """Spark is gone. To try again may help."""


def lost_spark(error: BaseException) -> SparkLostError | None:
    """The error in words where it came of Spark being gone; None where it did not."""
    errors = list(_chain(error))
    if not any(_of_spark(each) for each in errors):
        return None
    lost = any(_of_connection(each) for each in errors)
    code = _exit_code(errors, PATIENCE if lost else 0.0)
    if code is None and not lost:
        return None
    starting = any(_NOT_STARTED in str(each) for each in errors)
    if code is None:
        what = "Spark could not be started" if starting else "the connection to Spark was lost"
        return SparkLostError(what, why=_line(errors), how=f"see that Spark runs, and {_AGAIN}")
    return SparkLostError(ended(code, "Spark, while it started," if starting else "Spark"), how=how_to_mend_end(code))


def forget_lost_spark() -> None:
    """Let a new JVM be started where the one that this process had started has ended: PySpark would go on asking that
    one for as long as the process lives."""
    process = _started()
    if process is None or process.poll() is None:
        return
    from pyspark.core.context import SparkContext  # noqa: PLC0415 - a client of Spark Connect may not have it
    from pyspark.sql import SparkSession  # noqa: PLC0415 - as above

    for of in ("_gateway", "_jvm", "_active_spark_context"):  # PySpark has no other way
        setattr(SparkContext, of, None)
    setattr(SparkSession, "_instantiatedSession", None)  # noqa: B010 - as above


_AGAIN = "run it again: what is committed stands, and the same command does what is left"


def signal_of(code: int) -> signal.Signals | None:
    """The signal that has ended a process: less than 0 is told of a child, more than 128 by a shell or a JVM of its
    own child."""
    number = -code if code < 0 else code - _OF_CHILD
    return signal.Signals(number) if number in {int(each) for each in signal.Signals} else None


def ended(code: int, what: str) -> str:
    """How a process has ended, by its exit code."""
    if code == MEMORY:
        return f"{what} ran out of memory (exit code {code})"
    by = signal_of(code)
    if by is None:
        return f"{what} ended with exit code {code}"
    if by is signal.SIGKILL:
        return f"{what} was killed by signal 9; the kernel does so when memory is short"
    return f"{what} was ended by signal {int(by)} ({by.name})"


def how_to_mend_end(code: int) -> str:
    """What a person can do."""
    names = "spark.driver.memory under `spark: {conf: …}` in errata.yaml"
    if code == MEMORY:
        return f"give Spark more memory by {names}, and {_AGAIN}"
    if signal_of(code) is signal.SIGKILL:
        return f"if memory was short, give the machine more of it, or Spark less by {names}; {_AGAIN}"
    return _AGAIN


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The error and what led to it."""
    seen = set[int]()
    following: BaseException | None = error
    while following is not None and id(following) not in seen:
        seen.add(id(following))
        yield following
        following = following.__cause__ or following.__context__


def _of_spark(error: BaseException) -> bool:
    return isinstance(error, (Py4JError, PySparkException)) or _is_behind(error)


def _is_behind(error: BaseException) -> bool:
    """Whether a failure of a connection was met by what speaks to Spark, and not by the catalog or the warehouse."""
    if not isinstance(error, (OSError, EOFError)):
        return False
    return any(_package(frame) in _BEHIND for frame in _frames(error.__traceback__))


def _of_connection(error: BaseException) -> bool:
    if isinstance(error, Py4JJavaError):
        return False  # an answer
    if isinstance(error, PySparkException):
        condition = error.getCondition() or ""
        status = getattr(getattr(error, "_grpc_status_code", None), "name", "")
        return condition.endswith((_NOT_STARTED, *_GONE)) or status == _UNREACHABLE
    return isinstance(error, Py4JNetworkError) or _NO_ANSWER in str(error) or _is_behind(error)


def _exit_code(errors: list[BaseException], patience: float) -> int | None:
    """Of the JVM, if this process has started it and it has ended, or does so in a moment."""
    process = _starting(errors) or _started()
    if process is None:
        return None
    try:
        return process.wait(patience)
    except subprocess.TimeoutExpired:
        return None


def _started() -> subprocess.Popen[bytes] | None:
    from pyspark.core.context import SparkContext  # noqa: PLC0415 - a client of Spark Connect may not have it

    found = getattr(getattr(SparkContext, "_gateway", None), "proc", None)
    return found if isinstance(found, subprocess.Popen) else None


def _starting(errors: list[BaseException]) -> subprocess.Popen[bytes] | None:
    """The JVM whose start has failed: nobody but the function that starts it knows its process."""
    for error in errors:
        for frame in _frames(error.__traceback__):
            if frame.tb_frame.f_code.co_name == "launch_gateway":
                found = frame.tb_frame.f_locals.get("proc")
                return found if isinstance(found, subprocess.Popen) else None
    return None


def _frames(traceback: TracebackType | None) -> Iterator[TracebackType]:
    while traceback is not None:
        yield traceback
        traceback = traceback.tb_next


def _package(frame: TracebackType) -> str:
    return str(frame.tb_frame.f_globals.get("__name__", "")).partition(".")[0]


def _line(errors: list[BaseException]) -> str:
    """What the innermost of the errors says, in a line."""
    told = [line.strip() for each in reversed(errors) for line in str(each).splitlines() if line.strip()]
    return told[0] if told else type(errors[-1]).__name__
