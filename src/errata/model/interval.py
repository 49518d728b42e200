"""Half-open intervals of the order field."""

from __future__ import annotations

from dataclasses import dataclass

LOWEST = -(2**63)
HIGHEST = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Interval:
    """[start, end): start counts, end does not. The default is everything."""

    start: int = LOWEST
    end: int = HIGHEST

    @property
    def empty(self) -> bool:
        return self.start >= self.end

    def __contains__(self, moment: int) -> bool:
        return self.start <= moment < self.end

    def meets(self, low: int, high: int) -> bool:
        """Whether values from low to high, both included, can have one in the interval."""
        return not self.empty and low < self.end and high >= self.start


EVERYTHING = Interval()
