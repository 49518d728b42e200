"""Why a task ended: from what its job said or how that was ended, and as the last line of the task's log."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from airflow.sdk.exceptions import AirflowException, AirflowFailException

TAIL = 40
"""Lines of a job's output in which its reason is looked for."""

_DETAIL = re.compile(r"\s*(why|where|how to mend)\b.*")
_OUT_OF_MEMORY = re.compile(r"OutOfMemoryError[^\n]*")

log = logging.getLogger("airflow.task.errata")


def reason(lines: Iterable[str]) -> str:
    """Of a job's output the sentence that it ended with, and what goes with it: why, where, how to mend."""
    found: list[str] = []
    for line in reversed([each for each in lines if each.strip()]):
        found.append(line.strip())
        if not _DETAIL.match(line):
            break
    return "\n".join(reversed(found))


def reason_of(code: int, lines: Sequence[str], job: str) -> str:
    """Why a job has failed: how it was ended if something has ended it, else what it said last."""
    from errata.engine.failures import OUT_OF_MEMORY_EXIT, exit_advice, exit_words, signal_of  # noqa: PLC0415 - DAGs are read without it

    if code == OUT_OF_MEMORY_EXIT or signal_of(code) is not None:
        words = exit_words(code, f"jobs/{job}.py")
        short = next((found[0] for line in reversed(lines) if (found := _OUT_OF_MEMORY.search(line))), "")
        why = f"\nwhy: {short}" if short else ""
        return f"{words}{why}\nhow to mend: {exit_advice(code)}"
    return reason(lines) or f"jobs/{job}.py ended with exit code {code}"


@contextmanager
def in_words() -> Iterator[None]:
    """Errors of Errata as Airflow's: without tracebacks of how they came about, and tried again only where that can
    help."""
    from errata.errors import ErrataError, UsageError  # noqa: PLC0415 - DAGs are read without it

    try:
        yield
    except UsageError as error:
        raise AirflowFailException(str(error)) from None
    except ErrataError as error:
        raise AirflowException(str(error)) from None


def tell_last(context: Any) -> None:
    """Called when a try has failed: Airflow logs where in its code that was, and the reason belongs behind it."""
    error = context.get("exception")
    if error is not None:
        log.error("%s", str(error).strip() or type(error).__name__)
