"""Half-open intervals of the order field."""

from __future__ import annotations

from collections.abc import Iterable
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


def joined(some: Iterable[Interval]) -> list[Interval]:
    """The same places as intervals that do not touch, in order."""
    found: list[Interval] = []
    for each in sorted(some, key=lambda each: each.start):
        if found and each.start <= found[-1].end:
            found[-1] = Interval(found[-1].start, max(found[-1].end, each.end))
        else:
            found.append(each)
    return found
