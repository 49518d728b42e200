"""What waits on the triggerer for a project's catalog, and holds no worker meanwhile.

Each looks at the catalog, in a thread, whenever something has been committed (PostgreSQL sends word; of SQLite the
newest commit is asked), and every `poll` seconds besides. None keeps anything that matters: whoever is started anew
looks again, and two that run at once tell the same. Errata is imported when they run: DAGs name them, and are to be
read quickly.
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
"""Seconds after which the catalog is looked at though no word has come."""


class CatalogTrigger(BaseEventTrigger):
    """Waits until a question about a project is answered. `once`: it is a task that waits, and the first answer is all;
    otherwise there is an event of each answer that differs from the last. `ends`: the task ends with it, without a
    worker, and returns it; Airflow makes JSON text of it then."""

    question: ClassVar[str]
    told: ClassVar[bool] = True
    """Whether a commit may change the answer."""

    def __init__(self, project: str, poll: float = POLL, once: bool = True, ends: bool = False) -> None:
        BaseEventTrigger.__init__(self)
        self.project, self.poll, self.once, self.ends = project, poll, once, ends

    def arguments(self) -> dict[str, Any]:
        """What the question is about."""
        return {}

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """What it takes to make it again: plain JSON."""
        kind = type(self)
        options = {"project": self.project, "poll": self.poll, "once": self.once, "ends": self.ends}
        return f"{kind.__module__}.{kind.__qualname__}", {**self.arguments(), **options}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Look until there is something to tell."""
        questions = await asyncio.to_thread(import_module, "errata_airflow.questions")
        asked = questions.asked(self.question, self.arguments())
        looks = questions.looks(
            Path(self.project), asked, self.poll, self._trouble, told=self.told, stubborn=not self.once
        )
        known = None
        async with aclosing(looks):
            async for found in looks:
                if found is None or found["fingerprint"] == known:
                    continue
                known = found["fingerprint"]
                yield TaskSuccessEvent(xcoms={"return_value": found}) if self.ends else TriggerEvent(found)
                if self.once:
                    return

    def _trouble(self, error: Exception, pause: float) -> None:
        self.log.warning("The catalog gave no answer; it is asked again in %g seconds.\n%s", pause, error)


class RevisionArrivalTrigger(CatalogTrigger):
    """Corrections are there and due: of some queries and those that they read, or of all."""

    question = "arrived"

    def __init__(
        self, project: str, names: Sequence[str] = (), poll: float = POLL, once: bool = True, ends: bool = False
    ) -> None:
        super().__init__(project, poll, once, ends)
        self.names = list(names)

    def arguments(self) -> dict[str, Any]:
        return {"names": self.names}


class StreamStableTrigger(CatalogTrigger):
    """A stream is final up to a time: all before it has come, and no correction of that is pending."""

    question = "stable"

    def __init__(
        self, project: str, stream: str, until: str, poll: float = POLL, once: bool = True, ends: bool = False
    ) -> None:
        super().__init__(project, poll, once, ends)
        self.stream, self.until = stream, until

    def arguments(self) -> dict[str, Any]:
        return {"stream": self.stream, "until": self.until}


class LandedTrigger(CatalogTrigger):
    """Files have landed in some stream's folder, have settled, and are not taken in. Nobody sends word of files, so the
    folders are looked at every `poll` seconds."""

    question = "landed"
    told = False

    def __init__(self, project: str, poll: float = 5.0, once: bool = False, ends: bool = False) -> None:
        super().__init__(project, poll, once, ends)
