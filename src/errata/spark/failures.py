"""What went wrong in a Spark job, in words."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.errors import PySparkException

from errata.errors import ErrataError


@contextmanager
def spark_failures() -> Iterator[None]:
    """Failures of Spark jobs in words: the last line of what went wrong, which names it."""
    try:
        yield
    except PySparkException as error:
        lines = [line.strip() for line in str(error.getMessage() or error).splitlines() if line.strip()]
        told = [line for line in lines if not line.startswith(("at ", "File ", "JVM stacktrace", "Traceback"))]
        raise ErrataError(
            "the Spark job failed; nothing was committed",
            why=next((line for line in reversed(told) if "Error" in line or "Exception" in line), told[-1]),
            how="mend the cause and run it again: the same command does what is left to do",
        ) from error
