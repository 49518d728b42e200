"""The budgets of this process and of the near engine, and the choice between near and far for one piece of work.

All are decided from rows and bytes that the bucket index knows before anything is read. No engine is imported here:
a command that turns out to need none does not load PySpark.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum
from importlib.util import find_spec

from errata.model.bucket import Bucket

NEAR_MAX_ROWS = 2_000_000
"""Rows of a piece of work above which the far engine does it."""
NEAR_MAX_BYTES = 256 * 1024 * 1024
"""Bytes in buckets of a piece of work above which the far engine does it."""


LOCAL_TASK_BYTES = 16 * 1024 * 1024
"""Bytes in buckets up to which tasks over them run in this process: a Spark job would take longer to start."""


def runs_in_process(size: int) -> bool:
    """Whether tasks that read `size` bytes in total run in this process, without an engine."""
    return size <= LOCAL_TASK_BYTES


def near_is_installed() -> bool:
    """Whether this machine has the near engine."""
    return find_spec("pysail") is not None


class EngineKind(Enum):
    """The engines."""

    NEAR = "near"
    FAR = "far"


@dataclass(frozen=True, slots=True)
class NearBudget:
    """The largest piece of work that the near engine gets."""

    rows: int = NEAR_MAX_ROWS
    size: int = NEAR_MAX_BYTES


@dataclass(frozen=True, slots=True)
class EngineDemand:
    """The size of what a piece of work reads, by the bucket index."""

    rows: int = 0
    size: int = 0
    """Bytes in buckets."""
    obstacle: str | None = None
    """Why the near engine cannot be asked, whatever the size: a function whose results there are not proven, say."""

    @classmethod
    def of(cls, found: Collection[Bucket], obstacle: str | None = None) -> EngineDemand:
        """To read all of some buckets."""
        return cls(sum(each.rows for each in found), sum(each.size for each in found), obstacle)


@dataclass(frozen=True, slots=True)
class EngineChoice:
    """The engine that does a piece of work, and why."""

    engine: EngineKind
    why: str


def choose_engine(demand: EngineDemand, budget: NearBudget | None) -> EngineChoice:
    """The engine for a demand; without a budget there is no near engine."""
    if budget is None:
        return EngineChoice(EngineKind.FAR, "near is off")
    if demand.obstacle is not None:
        return EngineChoice(EngineKind.FAR, demand.obstacle)
    if demand.rows > budget.rows:
        return EngineChoice(EngineKind.FAR, f"{demand.rows:,} rows are more than near's {budget.rows:,}")
    if demand.size > budget.size:
        return EngineChoice(EngineKind.FAR, f"{demand.size:,} bytes are more than near's {budget.size:,}")
    return EngineChoice(EngineKind.NEAR, f"{demand.rows:,} rows")
