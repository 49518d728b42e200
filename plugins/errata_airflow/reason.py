"""Why a task ended: from the end of its job's output or its exit code, as the last line of the task's log."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from airflow.sdk.exceptions import AirflowException, AirflowFailException

TAIL = 40
"""Last lines of a job's output that are searched for its reason."""

_DETAIL = re.compile(r"\s*(why|where|how to mend)\b.*")
_OUT_OF_MEMORY = re.compile(r"OutOfMemoryError[^\n]*")

log = logging.getLogger("airflow.task.errata")


def reason(lines: Iterable[str]) -> str:
    """The last sentence of a job's output, with its details: why, where, how to mend."""
    found: list[str] = []
    for line in reversed([each for each in lines if each.strip()]):
        found.append(line.strip())
        if not _DETAIL.match(line):
            break
    return "\n".join(reversed(found))


def reason_of(code: int, lines: Sequence[str], job: str) -> str:
    """Why a job failed: the signal or the lack of memory that ended it, else the end of its output."""
    from errata.engine.failures import OUT_OF_MEMORY_EXIT, exit_advice, exit_words, signal_of  # noqa: PLC0415 - DAGs are read without it

    if code == OUT_OF_MEMORY_EXIT or signal_of(code) is not None:
        words = exit_words(code, f"jobs/{job}.py")
        short = next((found[0] for line in reversed(lines) if (found := _OUT_OF_MEMORY.search(line))), "")
        why = f"\nwhy: {short}" if short else ""
        return f"{words}{why}\nhow to mend: {exit_advice(code)}"
    return reason(lines) or f"jobs/{job}.py ended with exit code {code}"


@contextmanager
def airflow_errors() -> Iterator[None]:
    """Raise errors of Errata as errors of Airflow, without their tracebacks; an error that a retry cannot change
    fails the task at once."""
    from errata.errors import ErrataError, UsageError  # noqa: PLC0415 - DAGs are read without it

    try:
        yield
    except UsageError as error:
        raise AirflowFailException(str(error)) from None
    except ErrataError as error:
        raise AirflowException(str(error)) from None


def log_reason(context: Any) -> None:
    """Callback for a failed try: logs the reason after Airflow's own traceback."""
    error = context.get("exception")
    if error is not None:
        log.error("%s", str(error).strip() or type(error).__name__)
