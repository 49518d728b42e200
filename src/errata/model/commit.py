"""Commits: the axis of what Errata knew, and what made each step on it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Cause:
    """What made a commit: the flow, and everything known about who ran it."""

    flow: str
    user: str = ""
    host: str = ""
    dag_id: str = ""
    run_id: str = ""
    task_id: str = ""
    try_number: int | None = None
    spark_app: str = ""

    @property
    def owner(self) -> str:
        """The task of a scheduler that does it, `dag/run/task/try`; empty where somebody does it by hand."""
        if not self.dag_id:
            return ""
        number = "" if self.try_number is None else self.try_number
        return f"{self.dag_id}/{self.run_id}/{self.task_id}/{number}"


@dataclass(frozen=True, slots=True)
class Commit:
    """One numbered step of knowledge."""

    commit_id: int
    at: int
    cause: Cause
    stream: str | None
    batch_id: str | None
    summary: Mapping[str, object] = field(default_factory=dict)
    """What it did, in counts and ranges, for people and scripts."""
