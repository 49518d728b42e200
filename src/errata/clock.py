"""The only place that reads the wall clock; everything else is told the time."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Tells the time in microseconds since 1970, UTC."""

    def now(self) -> int: ...


class SystemClock:
    """The machine's clock."""

    def now(self) -> int:
        return time.time_ns() // 1_000


class FixedClock:
    """A clock that stands still until it is moved: for tests and for the demo."""

    def __init__(self, at: int) -> None:
        self.at = at

    def now(self) -> int:
        return self.at

    def advance(self, micros: int) -> None:
        self.at += micros


SYSTEM: Clock = SystemClock()
