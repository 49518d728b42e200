"""What the chain of tasks that do nothing waits with: the same kinds of trigger and sensor as Errata's, which look at a
folder and at nothing else."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

from airflow.sdk import BaseSensorOperator
from airflow.triggers.base import BaseEventTrigger, StartTriggerArgs, TaskSuccessEvent, TriggerEvent

FOLDER = Path(os.environ["ERRATA_BENCH_NOOP"])
LANDING, WORD, DONE = (FOLDER / name for name in ("landing", "word", "done"))
"""Where a file lands, where the first DAG leaves it for the second, and where that one leaves it at the end."""

POLL = float(os.environ["ERRATA_LANDING_SECONDS"])
"""How often the landing folder is looked at: as often as Errata's."""

SOON = 0.05
"""How often the sensor looks: it stands for word that comes at once."""


class FolderTrigger(BaseEventTrigger):
    """There are files in a folder. `ends`: it is a task that waits, and ends with the first event."""

    def __init__(self, folder: str, poll: float, ends: bool = False) -> None:
        super().__init__()
        self.folder, self.poll, self.ends = folder, poll, ends

    def serialize(self) -> tuple[str, dict[str, Any]]:
        kind = type(self)
        return f"{kind.__module__}.{kind.__qualname__}", {"folder": self.folder, "poll": self.poll, "ends": self.ends}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        known: list[str] = []
        while True:
            found = sorted(os.listdir(self.folder))  # noqa: PTH208 - names
            if found and found != known:
                yield TaskSuccessEvent(xcoms={"return_value": found}) if self.ends else TriggerEvent(found)
                if self.ends:
                    return
            known = found
            await asyncio.sleep(self.poll)


class FolderSensor(BaseSensorOperator):
    """Waits on the triggerer until there are files; begins and ends there."""

    def __init__(self, *, folder: Path, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.start_from_trigger = True
        self.start_trigger_args = StartTriggerArgs(
            trigger_cls=f"{FolderTrigger.__module__}.{FolderTrigger.__qualname__}",
            trigger_kwargs={"folder": str(folder), "poll": SOON, "ends": True},
            next_method="execute_complete",
            timeout=timedelta(days=1),
        )

    def execute_complete(self, context: Any, event: Any) -> Any:  # noqa: ARG002
        return event


def handed_on(name: str, source: Path, target: Path) -> None:
    """The one thing that a task does."""
    (source / name).rename(target / name)
