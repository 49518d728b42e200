"""The greatest and the least of rows that cease to count, in time that grows with the rows and not with the span.

Time is cut into blocks as long as a row counts. At an instant there count the rows of its block up to the instant, and
those of the block before that have not ended: a running extreme from the block's beginning on, and one from the end of
the next block back (van Herk, 1992; Gil and Werman, 1993). Kept are only rows that no later row outdoes, since those
are the ones that will ever be told.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame

from errata.engine.frames import selected, stacked
from errata.engine.plans.partial_kept import OWN, Extreme
from errata.engine.plans.rows import missing
from errata.model.interval import HIGHEST

AT = "_at"
_BLOCK, _LATE, _OLDER, _BEST = "_b", "_late", "_e", "_best"
ORDER = f"{_BLOCK}, {AT}"
"""What the rows of a group go by in one pass over all blocks."""
_BEYOND = {"max": ">", "min": "<"}


@dataclass(frozen=True)
class Extremes:
    """Extremes of groups, by the columns that the values are in."""

    extremes: Mapping[str, Extreme]
    group: Sequence[str]
    span: int
    since: int
    """A block begins here."""
    near: bool

    def _together(self, name: str, text: str) -> str:
        return self.extremes[name].together(text, near=self.near)

    def _block(self, moment: str) -> str:
        """The number of the block that an instant is in; nothing overflows on the way."""
        down = f"{moment} DIV {self.span}L - IF({moment} % {self.span}L < 0, 1L, 0L)"
        return f"{down} - IF(pmod({moment}, {self.span}L) < {self.since % self.span}L, 1L, 0L)"

    def swept(self, events: DataFrame, others: Mapping[str, str], late: DataFrame | None) -> DataFrame:
        """The events with what is extreme among rows of the block before that still count; `late` are rows that may.

        The events' columns are the group, the instant, the others, told by their types, and the values of rows that
        begin then.
        """
        columns = [*self.group, AT, *others, *self.extremes]
        marked = selected(events, *columns, f"{self._block(AT)} AS {_BLOCK}", f"FALSE AS {_LATE}")
        if late is None:
            return selected(
                marked, "*", *(f"{missing(each.type)} AS {_OLDER}{name}" for name, each in self.extremes.items())
            )
        last = f"least({OWN}, {HIGHEST - self.span}L) + {self.span - 1}L AS {AT}"
        unknown = [f"{missing(kind)} AS {name}" for name, kind in others.items()]
        next_block = f"{self._block(OWN)} + 1L AS {_BLOCK}"
        ends = selected(late, *self.group, last, *unknown, *self.extremes, next_block, f"TRUE AS {_LATE}")
        whole = stacked(marked, ends)
        # By group, so that what comes next needs no other order of tasks.
        apart = whole.repartition(*self.group) if self.group else whole.repartition(1)
        back = f"OVER (PARTITION BY {', '.join([*self.group, _BLOCK])} ORDER BY {AT} DESC)"
        older = (
            f"{self._together(name, f'IF({_LATE}, {name}, NULL)')} {back} AS {_OLDER}{name}" for name in self.extremes
        )
        return selected(apart, "*", *older).filter(f"NOT {_LATE}")

    def found(self) -> list[str]:
        """The extremes at each event of a sweep, as columns of their own."""
        upto = f"OVER (PARTITION BY {', '.join([*self.group, _BLOCK])} ORDER BY {AT})"
        either = {"max": "greatest", "min": "least"}
        return [
            f"{either[each.function]}({_OLDER}{name}, {self._together(name, name)} {upto}) AS {name}"
            for name, each in self.extremes.items()
        ]

    def undone(self, rows: DataFrame) -> DataFrame:
        """Of rows with their group, own time and values those that no later one outdoes; other values become NULL."""
        partition = f"PARTITION BY {', '.join(self.group)} " if self.group else ""
        after = f"OVER ({partition}ORDER BY {OWN} DESC ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)"
        best = [f"{self._together(name, name)} {after} AS {_BEST}{name}" for name in self.extremes]
        stands = [
            f"IF({_BEST}{name} IS NULL OR {name} {_BEYOND[each.function]} {_BEST}{name}, {name}, NULL) AS {name}"
            for name, each in self.extremes.items()
        ]
        left = selected(selected(rows, *self.group, OWN, *self.extremes, *best), *self.group, OWN, *stands)
        return left.filter(" OR ".join(f"{name} IS NOT NULL" for name in self.extremes))
