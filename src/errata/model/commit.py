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
