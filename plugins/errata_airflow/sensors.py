"""Sensors that wait for a project's catalog. Deferrable by default: they begin and end on the triggerer and hold no
worker. Otherwise they look every `poll` seconds, in Airflow's modes `poke` and `reschedule`.

They return JSON text in every mode, since Airflow passes the result of a task that ends on the triggerer as text.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

from airflow.sdk import BaseSensorOperator
from airflow.sdk.bases.sensor import PokeReturnValue
from airflow.triggers.base import StartTriggerArgs

from errata_airflow import settings, triggers


class CatalogSensor(BaseSensorOperator):
    """Waits until a question about the project is answered, and returns the answer as JSON text."""

    trigger: ClassVar[type[triggers.CatalogTrigger]]
    ui_color = "#f3ead7"

    def __init__(
        self,
        *,
        about: dict[str, Any],
        project: str | None = None,
        poll: float = triggers.POLL,
        deferrable: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(**{"poke_interval": poll, **kwargs})
        self.project = project or str(settings.project_path())
        self.poll = poll
        self.deferrable = deferrable
        self.start_from_trigger = deferrable
        self.start_trigger_args = StartTriggerArgs(
            trigger_cls=f"{self.trigger.__module__}.{self.trigger.__qualname__}",
            trigger_kwargs={**about, "project": self.project, "poll": poll, "once": True, "ends": True},
            next_method="execute_complete",
            next_kwargs=None,
            timeout=timedelta(seconds=self.timeout),
        )

    def waits_for(self) -> triggers.CatalogTrigger:
        """The trigger that waits for it."""
        raise NotImplementedError

    def execute(self, context: Any) -> Any:
        """Wait. A deferrable sensor begins here only where nothing starts on a triggerer, as in `dag.test()`."""
        if not self.deferrable:
            return super().execute(context)
        found = self.poke(context)
        if not found:
            self.defer(
                trigger=self.waits_for(), method_name="execute_complete", timeout=timedelta(seconds=self.timeout)
            )
        return found.xcom_value

    def execute_complete(self, context: Any, event: Any) -> Any:  # noqa: ARG002
        """Return the answer of the trigger's event."""
        return json.dumps(event)

    def poke(self, context: Any) -> PokeReturnValue:  # noqa: ARG002
        """Look once. If the catalog does not answer, the next look follows."""
        waiting = self.waits_for()
        questions = import_module("errata_airflow.questions")
        found, trouble = questions.ask(Path(self.project), waiting.question, waiting.arguments())
        if trouble:
            self.log.warning("The catalog gave no answer; it is asked again.\n%s", trouble)
        return PokeReturnValue(found is not None, None if found is None else json.dumps(found))


class RevisionArrivalSensor(CatalogSensor):
    """Waits for corrections that are due, of some queries and their inputs, or of all. It returns the streams and
    queries that they concern."""

    template_fields: Sequence[str] = ("names",)
    trigger = triggers.RevisionArrivalTrigger

    def __init__(self, *, names: Sequence[str] = (), **kwargs: Any) -> None:
        self.names = list(names)
        super().__init__(about={"names": self.names}, **kwargs)

    def waits_for(self) -> triggers.CatalogTrigger:
        return triggers.RevisionArrivalTrigger(self.project, self.names, self.poll)


class StreamStableSensor(CatalogSensor):
    """Waits until a stream is final up to a time: all rows before it have arrived, and none of their revisions is
    pending. The time is ISO 8601, or a whole number if the stream is ordered by one; `{{ data_interval_end }}` is
    accepted."""

    template_fields: Sequence[str] = ("stream", "until")
    trigger = triggers.StreamStableTrigger

    def __init__(self, *, stream: str, until: str, **kwargs: Any) -> None:
        self.stream, self.until = stream, until
        super().__init__(about={"stream": stream, "until": until}, **kwargs)

    def waits_for(self) -> triggers.CatalogTrigger:
        return triggers.StreamStableTrigger(self.project, self.stream, self.until, self.poll)
