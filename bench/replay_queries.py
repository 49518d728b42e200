"""The paper's three queries (replay-revisions-2008, 4.2): Errata's text of each, and plain SQL that recomputes it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bench.corrections import FEED, RATE
from bench.evaluate_queries import Mixed
from errata.generate.feed import IntArray
from errata.model.time import MINUTE, Interval

_QUERIES = Path(__file__).parent.parent / "examples" / "quotes" / "queries"

_HOPS = """\
SELECT symbol, begun AS window_start, begun + INTERVAL 5 MINUTES AS window_end, avg(price) AS mean
FROM (
  SELECT symbol, price, unnest([date_trunc('minute', time) - to_minutes(hop) for hop in range(5)]) AS begun
  FROM quotes
  WHERE time < {closed 60}
)
WHERE begun <= {closed 60 - 300}
GROUP BY symbol, begun
"""

EITHER = "EITHER"
"""What DuckDB answers where two averages are equal: which is the greater is then decided by their last bits, and so by
the order in which prices are added up. In the first minute of a feed both are of the same quotes."""

_SIGNALS = """\
SELECT minute.time, minute.symbol, CASE {either}WHEN minute.mean > five.mean THEN 'BUY' ELSE 'SELL' END AS signal
FROM minute JOIN five ON minute.time = five.time AND minute.symbol = five.symbol
"""
_PLAIN_SIGNALS = _SIGNALS.format(either="")
_CHECKED_SIGNALS = _SIGNALS.format(
    either=f"WHEN abs(minute.mean - five.mean) <= 1e-9 * abs(five.mean) THEN '{EITHER}' "
)


def _text(name: str) -> str:
    return (_QUERIES / f"{name}.sql").read_text(encoding="utf-8")


@dataclass(frozen=True, slots=True)
class Asked:
    """A query of the paper."""

    label: str
    """The paper's name for it."""
    query: Mixed
    reach: Interval
    """Results touched by a row lie in windows that reach so far before and after its minute."""
    ibm: bool = False
    """Whether only quotes of IBM have a say, so that those are corrected."""

    @property
    def name(self) -> str:
        return self.query.name

    @property
    def decides(self) -> bool:
        """Whether an answer hangs on which of two averages is the greater."""
        return self.query.duckdb is not None and EITHER in self.query.duckdb

    def rows(self, numbers: IntArray) -> IntArray:
        """Rows to be corrected: those of the numbers, or the quotes of IBM in the same seconds."""
        return np.array([_ibm(int(each)) for each in numbers], np.int64) if self.ibm else numbers

    def window(self, moment: int) -> Interval:
        """Where the rows lie that make the results which a row of this moment touches."""
        if self.reach.start == 0:
            start = moment - moment % self.reach.end
            return Interval(start, start + self.reach.end)
        minute = moment - moment % MINUTE
        return Interval(minute + self.reach.start, minute + self.reach.end)


def _ibm(row: int) -> int:
    first = row - row % RATE
    symbols = FEED.rows_between(first, first + RATE).symbol
    return first + int(np.flatnonzero(symbols == FEED.names.index("IBM"))[0])


QUERIES: Sequence[Asked] = (
    Asked(
        "Q1",
        Mixed(
            "avg_5m",
            _text("avg_5m"),
            """\
SELECT symbol, window.start AS window_start, avg(price) AS mean
FROM quotes
WHERE time < {closed 300}
GROUP BY symbol, window(time, '5 minutes')
""",
            """\
SELECT symbol, time_bucket(INTERVAL 5 MINUTES, time) AS window_start, avg(price) AS mean
FROM quotes
WHERE time < {closed 300}
GROUP BY symbol, time_bucket(INTERVAL 5 MINUTES, time)
""",
        ),
        Interval(0, 5 * MINUTE),
    ),
    Asked(
        "Q2",
        Mixed(
            "moving_avg",
            _text("moving_avg"),
            """\
SELECT symbol, window.start AS window_start, window.end AS window_end, avg(price) AS mean
FROM quotes
WHERE time < {closed 60}
GROUP BY symbol, window(time, '5 minutes', '1 minute')
HAVING window.end <= {closed 60}
""",
            _HOPS,
        ),
        Interval(-4 * MINUTE, 5 * MINUTE),
    ),
    Asked(
        "Q3",
        Mixed(
            "signals",
            _text("signals"),
            f"""\
WITH minute AS (
  SELECT window.end AS time, symbol, avg(price) AS mean
  FROM quotes
  WHERE symbol = 'IBM' AND time < {{closed 60}}
  GROUP BY symbol, window(time, '1 minute')
), five AS (
  SELECT window.end AS time, symbol, avg(price) AS mean
  FROM quotes
  WHERE symbol = 'IBM' AND time < {{closed 60}}
  GROUP BY symbol, window(time, '5 minutes', '1 minute')
)
{_PLAIN_SIGNALS}""",
            f"""\
WITH minute AS (
  SELECT date_trunc('minute', time) + INTERVAL 1 MINUTE AS time, symbol, avg(price) AS mean
  FROM quotes
  WHERE symbol = 'IBM' AND time < {{closed 60}}
  GROUP BY ALL
), five AS (
  SELECT begun + INTERVAL 5 MINUTES AS time, symbol, avg(price) AS mean
  FROM (
    SELECT symbol, price, unnest([date_trunc('minute', time) - to_minutes(hop) for hop in range(5)]) AS begun
    FROM quotes
    WHERE symbol = 'IBM' AND time < {{closed 60}}
  )
  GROUP BY ALL
)
{_CHECKED_SIGNALS}""",
        ),
        Interval(-4 * MINUTE, 5 * MINUTE),
        ibm=True,
    ),
)
