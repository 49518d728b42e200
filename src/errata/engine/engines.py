"""Runs pieces of work on the engine that suits them: near, in a process beside this one, or far, Spark; and again on
the far one where the near one fails.

A piece of work is a function of a session that has no effect until its caller commits, so that it can be repeated. The
choice itself is in `engine.budget`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from errata.engine.budget import EngineChoice, EngineDemand, EngineKind, NearBudget, choose_engine, near_is_installed
from errata.engine.failures import last_line
from errata.engine.frames import fetch_rows
from errata.engine.near import is_near, near_session
from errata.errors import ErrataError

T = TypeVar("T")

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class Engines:
    """The two engines of a process. The far one is opened when it is first needed."""

    open_far: Callable[[], SparkSession]
    budget: NearBudget | None = field(default_factory=lambda: NearBudget() if near_is_installed() else None)
    """None: the far engine does all work."""
    far_opened: SparkSession | None = None
    """The far engine's session; None until it is needed."""

    def choice(self, demand: EngineDemand) -> EngineChoice:
        """The engine for a piece of work."""
        return choose_engine(demand, self.budget)

    def run(self, demand: EngineDemand, work: Callable[[SparkSession], T]) -> tuple[T, EngineChoice]:
        """Do a piece of work on the engine that suits it. Where the near engine fails, the far engine does it again,
        and its result or error counts."""
        choice = self.choice(demand)
        _log.info("%s: %s", choice.engine.value, choice.why)
        if choice.engine is EngineKind.NEAR:
            try:
                with near_session() as session:
                    return work(session), choice
            except ErrataError:
                raise  # told by the work itself, and the same there
            except Exception as error:  # noqa: BLE001 - for whatever reason near fails, far decides
                why = last_line(error)
                choice = EngineChoice(EngineKind.FAR, f"near failed: {why}")
                _log.info("%s: %s", choice.engine.value, choice.why)
        return work(self.far()), choice

    def read(
        self, demand: EngineDemand, made: Callable[[SparkSession], DataFrame]
    ) -> tuple[DataFrame | pa.Table, EngineChoice]:
        """The rows of a frame: in memory if the near engine made them, otherwise the far engine's frame, not read
        yet."""

        def work(session: SparkSession) -> DataFrame | pa.Table:
            frame = made(session)
            if not is_near(session) or self.budget is None:
                return frame
            rows = fetch_rows(frame.limit(self.budget.rows + 1))
            if rows.num_rows > self.budget.rows:
                raise PySparkException(f"more than {self.budget.rows:,} rows come of it")
            return rows

        return self.run(demand, work)

    def far(self) -> SparkSession:
        """The far engine's session."""
        if self.far_opened is None:
            self.far_opened = self.open_far()
        return self.far_opened
