"""What went wrong in a Spark job, in words."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from py4j.protocol import Py4JJavaError
from pyspark.errors import (
    ArithmeticException,
    ArrayIndexOutOfBoundsException,
    DateTimeException,
    NumberFormatException,
    PySparkException,
)
from pyspark.logger import PySparkLogger

from errata.errors import ErrataError

OF_SOME_ROW = (ArithmeticException, ArrayIndexOutOfBoundsException, DateTimeException, NumberFormatException)
"""What is raised where something cannot be computed for some row."""
JOB_FAILURES = (PySparkException, Py4JJavaError)
"""What a job raises. What Java itself throws on a worker comes without a name of Spark's."""
_OF_SOME_ROW_IN_JAVA = ("java.lang.ArithmeticException", "java.time.DateTimeException", "java.util.regex.")
_OF_DATA = "22"
"""How the states begin that SQL gives to what is wrong with data."""
_OUT_OF_MEMORY = re.compile(r"OutOfMemory|UNABLE_TO_ACQUIRE_MEMORY|Java heap space|GC overhead limit")
_DISK_FULL = re.compile(r"No space left on device|the disk is full|Disk quota exceeded")
_LOGGERS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
# Without those rules answers would be wrong, and the state's number tells a person nothing.
_NO_HELP = re.compile(r'\s*If necessary,? set "?spark\.sql\.ansi\.enabled[^.]*\.|\s*SQLSTATE: \w+')


@contextmanager
def spark_failures() -> Iterator[None]:
    """Failures of Spark jobs in words: the last line of what went wrong, which names it."""
    try:
        with loggers_quiet():
            yield
    except JOB_FAILURES as error:
        raise ErrataError(
            "the Spark job failed; nothing was committed",
            why=last_word(error),
            how=f"{how_to_mend(error)} and run it again: the same command does what is left to do",
        ) from error


@contextmanager
def question_failures() -> Iterator[None]:
    """Failures of Spark jobs that only answer questions, in words."""
    try:
        with loggers_quiet():
            yield
    except JOB_FAILURES as error:
        if not of_some_row(error):
            raise ErrataError(
                "the Spark job failed", why=last_word(error), how=f"{how_to_mend(error)} and ask again"
            ) from error
        raise ErrataError(
            "the query cannot be computed for some row",
            why=reason_of(error),
            how="look for the row, or let the query give NULL for it: try_divide, try_cast, nullif",
        ) from error


def how_to_mend(error: Exception) -> str:
    """What a person can do where a job failed, but not for the rows."""
    if _DISK_FULL.search(str(error)) is not None:
        return "make room on the disk"
    if _OUT_OF_MEMORY.search(str(error)) is None:
        return "mend the cause"
    names = "spark.driver.memory (on a cluster spark.executor.memory)"
    return f"give Spark more memory by {names} under `spark: {{conf: …}}` in errata.yaml,"


def of_some_row(error: Exception) -> bool:
    """Whether a job failed because something cannot be computed for some row."""
    state = error.getSqlState() if isinstance(error, PySparkException) else None
    return (
        isinstance(error, OF_SOME_ROW)
        or (state or "").startswith(_OF_DATA)
        or last_word(error).startswith(_OF_SOME_ROW_IN_JAVA)
    )


def reason_of(error: Exception) -> str:
    """Why something cannot be computed, as Spark says it."""
    if not isinstance(error, PySparkException) or not (isinstance(error, OF_SOME_ROW) or error.getCondition()):
        return last_word(error)
    first = str(error.getMessage() or error).strip().partition("\n")[0]
    return _NO_HELP.sub("", first) or type(error).__name__


def last_word(error: Exception) -> str:
    """The last line of what went wrong, which names it."""
    text = str((error.getMessage() if isinstance(error, PySparkException) else None) or error) or type(error).__name__
    lines = [line.strip().removeprefix("Caused by: ") for line in text.splitlines() if line.strip()]
    told = [line for line in lines if not line.startswith(("at ", "File ", "JVM stacktrace", "Traceback"))]
    return next((line for line in reversed(told) if "Error" in line or "Exception" in line), told[-1])


@contextmanager
def loggers_quiet() -> Iterator[None]:
    """PySpark logs failures before it raises them, with all of Java's stack; a person needs neither."""
    with ExitStack() as restored:
        for name in _LOGGERS:
            logger = PySparkLogger.getLogger(name)
            restored.callback(setattr, logger, "disabled", logger.disabled)
            logger.disabled = True
        yield
