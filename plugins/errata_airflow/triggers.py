"""Triggers that wait for a project's catalog on the triggerer, without a worker.

Each asks its question, in a thread, whenever something has been committed (PostgreSQL sends a notice; SQLite's newest
commit is polled), and every `poll` seconds besides. A trigger keeps no state: one that is restarted asks again, and two
that run at once report the same. Errata is imported only when a trigger runs, since DAG files import this module and
must be parsed quickly.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

from airflow.triggers.base import BaseEventTrigger, TaskSuccessEvent, TriggerEvent

POLL = 30.0
"""Seconds after which the question is asked again without a notice."""


class CatalogTrigger(BaseEventTrigger):
    """Waits until a question about a project is answered. `once`: a task waits, and the first answer ends the
    trigger; otherwise each answer that differs from the last is an event. `ends`: the event ends the task without a
    worker, and the answer is its result, which Airflow turns into JSON text."""

    question: ClassVar[str]
    on_commits: ClassVar[bool] = True
    """Whether a commit may change the answer."""

    def __init__(self, project: str, poll: float = POLL, once: bool = True, ends: bool = False) -> None:
        BaseEventTrigger.__init__(self)
        self.project, self.poll, self.once, self.ends = project, poll, once, ends

    def arguments(self) -> dict[str, Any]:
        """The arguments of the question."""
        return {}

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """The class and its arguments as plain JSON."""
        kind = type(self)
        options = {"project": self.project, "poll": self.poll, "once": self.once, "ends": self.ends}
        return f"{kind.__module__}.{kind.__qualname__}", {**self.arguments(), **options}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Ask until there is an answer."""
        questions = await asyncio.to_thread(import_module, "errata_airflow.questions")
        asked = questions.asked(self.question, self.arguments())
        answers = questions.watch_catalog(
            Path(self.project), asked, self.poll, self._trouble, on_commits=self.on_commits, retry_refused=not self.once
        )
        known = None
        async with aclosing(answers):
            async for found in answers:
                if found is None or found["fingerprint"] == known:
                    continue
                known = found["fingerprint"]
                yield TaskSuccessEvent(xcoms={"return_value": found}) if self.ends else TriggerEvent(found)
                if self.once:
                    return

    def _trouble(self, error: Exception, pause: float) -> None:
        self.log.warning("The catalog gave no answer; it is asked again in %g seconds.\n%s", pause, error)


class RevisionArrivalTrigger(CatalogTrigger):
    """Fires when corrections are due, of some queries and their inputs, or of all."""

    question = "arrived"

    def __init__(
        self, project: str, names: Sequence[str] = (), poll: float = POLL, once: bool = True, ends: bool = False
    ) -> None:
        super().__init__(project, poll, once, ends)
        self.names = list(names)

    def arguments(self) -> dict[str, Any]:
        return {"names": self.names}


class StreamStableTrigger(CatalogTrigger):
    """Fires when a stream is final up to a time: all rows before it have arrived, and none of their revisions is
    pending."""

    question = "stable"

    def __init__(
        self, project: str, stream: str, until: str, poll: float = POLL, once: bool = True, ends: bool = False
    ) -> None:
        super().__init__(project, poll, once, ends)
        self.stream, self.until = stream, until

    def arguments(self) -> dict[str, Any]:
        return {"stream": self.stream, "until": self.until}


class LandedTrigger(CatalogTrigger):
    """Fires when files have landed in some stream's folder, have settled and are not ingested. There are no notices
    of files, so folders are listed every `poll` seconds."""

    question = "landed"
    on_commits = False

    def __init__(self, project: str, poll: float = 5.0, once: bool = False, ends: bool = False) -> None:
        super().__init__(project, poll, once, ends)
