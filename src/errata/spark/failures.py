"""What went wrong in a Spark job, in words."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from pyspark.errors import (
    ArithmeticException,
    ArrayIndexOutOfBoundsException,
    DateTimeException,
    NumberFormatException,
    PySparkException,
)
from pyspark.logger import PySparkLogger

from errata.errors import ErrataError

_OF_SOME_ROW = (ArithmeticException, ArrayIndexOutOfBoundsException, DateTimeException, NumberFormatException)
_LOGGERS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
# Without those rules answers would be wrong, and the state's number tells a person nothing.
_NO_HELP = re.compile(r'\s*If necessary,? set "?spark\.sql\.ansi\.enabled[^.]*\.|\s*SQLSTATE: \w+')


@contextmanager
def spark_failures() -> Iterator[None]:
    """Failures of Spark jobs in words: the last line of what went wrong, which names it."""
    try:
        with _loggers_quiet():
            yield
    except PySparkException as error:
        raise ErrataError(
            "the Spark job failed; nothing was committed",
            why=_reason(error),
            how="mend the cause and run it again: the same command does what is left to do",
        ) from error


@contextmanager
def question_failures() -> Iterator[None]:
    """Failures of Spark jobs that only answer questions, in words."""
    try:
        with _loggers_quiet():
            yield
    except _OF_SOME_ROW as error:
        raise ErrataError(
            "the query cannot be computed for some row",
            why=_NO_HELP.sub("", str(error.getMessage() or error).strip().partition("\n")[0]),
            how="look for the row, or let the query give NULL for it: try_divide, try_cast, nullif",
        ) from error
    except PySparkException as error:
        raise ErrataError("the Spark job failed", why=_reason(error), how="mend the cause and ask again") from error


def _reason(error: PySparkException) -> str:
    lines = [line.strip() for line in str(error.getMessage() or error).splitlines() if line.strip()]
    told = [line for line in lines if not line.startswith(("at ", "File ", "JVM stacktrace", "Traceback"))]
    return next((line for line in reversed(told) if "Error" in line or "Exception" in line), told[-1])


@contextmanager
def _loggers_quiet() -> Iterator[None]:
    """PySpark logs failures before it raises them, with all of Java's stack; a person needs neither."""
    with ExitStack() as restored:
        for name in _LOGGERS:
            logger = PySparkLogger.getLogger(name)
            restored.callback(setattr, logger, "disabled", logger.disabled)
            logger.disabled = True
        yield
