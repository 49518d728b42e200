"""The only place that reads the wall clock; everything else gets the time as an argument."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Returns the time in microseconds since 1970, UTC."""

    def now(self) -> int: ...


class SystemClock:
    """The machine's clock."""

    def now(self) -> int:
        return time.time_ns() // 1_000


SYSTEM: Clock = SystemClock()
