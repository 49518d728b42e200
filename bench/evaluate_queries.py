"""The fixed mix of queries that `errata bench evaluate` keeps answered: each in Errata's language, and as plain SQL
that recomputes its result from the archive's files, as someone writes it who refreshes a table.

Of what is windowed plain SQL makes the whole table of windows; of what slides, the answer at the frontier, with the
predicate on time written as a constant, so that the statistics of Parquet files say what need not be read.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from errata.model.query import EmitMode
from errata.model.time import SECOND, format_instant


class Engine(StrEnum):
    """Who recomputes."""

    SPARK = "spark"
    DUCKDB = "duckdb"


@dataclass(frozen=True, slots=True)
class Mixed:
    """A query of the mix."""

    name: str
    text: str
    """For Errata."""
    plain: str
    """For Spark SQL, and for DuckDB where it has no text of its own: `{frontier}` is the last instant that is answered,
    `{frontier - 60}` so many seconds before it, `{closed 60}` the end of the last window of 60 seconds that is closed
    by then, `{closed 60 - 300}` the same as of 300 seconds before."""
    duckdb: str | None = None
    emit: EmitMode = EmitMode.FINAL
    came: str | None = None
    """The column that says when a result came, of those that stay for good: earlier ones may not be kept."""

    def recomputed(self, engine: Engine, frontier: int) -> str:
        """The plain text, with constants for what depends on the frontier."""
        text = self.duckdb if engine is Engine.DUCKDB and self.duckdb is not None else self.plain
        return _PLACE.sub(lambda found: _constant(found, engine, frontier), text)


_PLACE = re.compile(r"\{(?:frontier|closed (?P<window>\d+))(?: - (?P<back>\d+))?\}")


def _constant(found: re.Match[str], engine: Engine, frontier: int) -> str:
    at = frontier - int(found["back"] or 0) * SECOND
    if found["window"] is not None:
        at -= at % (int(found["window"]) * SECOND)
    kind = "TIMESTAMP" if engine is Engine.SPARK else "TIMESTAMPTZ"
    return f"{kind} '{format_instant(at).replace('T', ' ').removesuffix('Z')}+00:00'"


_VERSIONS = "*, lead(since) OVER (PARTITION BY symbol ORDER BY since) AS until"

_HOPS = """\
SELECT symbol, begun AS window_start, count(*) AS quotes, avg(price) AS mean, max(price) AS highest
FROM (
  SELECT symbol, price, unnest([date_trunc('minute', time) - to_minutes(hop) for hop in range(5)]) AS begun
  FROM quotes
  WHERE time < {closed 60}
)
WHERE begun <= {closed 60 - 300}
GROUP BY symbol, begun
"""

MIX: Sequence[Mixed] = (
    Mixed(
        "dear",
        "SELECT time, symbol, price * 1.1D AS gross FROM quotes WHERE price > 500",
        "SELECT time, symbol, price * 1.1D AS gross FROM quotes WHERE price > 500 AND time <= {frontier}",
        "SELECT time, symbol, price * 1.1::DOUBLE AS gross FROM quotes WHERE price > 500 AND time <= {frontier}",
        came="time",
    ),
    Mixed(
        "extremes",
        """\
SELECT time, symbol, price, 'high' AS side FROM quotes WHERE price > 480
UNION ALL
SELECT time, symbol, price, 'low' AS side FROM quotes WHERE price < 30
""",
        """\
SELECT time, symbol, price, 'high' AS side FROM quotes WHERE price > 480 AND time <= {frontier}
UNION ALL
SELECT time, symbol, price, 'low' AS side FROM quotes WHERE price < 30 AND time <= {frontier}
""",
        came="time",
    ),
    Mixed(
        "minutes",
        """\
SELECT window_end AS time, symbol, count(*) AS quotes, avg(price) AS mean, min(price) AS lowest, max(price) AS highest
FROM quotes
GROUP BY symbol, window(time, '1 minute')
""",
        """\
SELECT date_trunc('minute', time) + INTERVAL '1' MINUTE AS time, symbol, count(*) AS quotes, avg(price) AS mean,
  min(price) AS lowest, max(price) AS highest
FROM quotes
WHERE time < {closed 60}
GROUP BY symbol, date_trunc('minute', time)
""",
        came="time",
    ),
    Mixed(
        "hopping",
        """\
SELECT symbol, window_start, count(*) AS quotes, avg(price) AS mean, max(price) AS highest
FROM quotes
GROUP BY symbol, window(time, '5 minutes', '1 minute')
""",
        """\
SELECT symbol, window.start AS window_start, count(*) AS quotes, avg(price) AS mean, max(price) AS highest
FROM quotes
WHERE time < {closed 60}
GROUP BY symbol, window(time, '5 minutes', '1 minute')
HAVING window.end <= {closed 60}
""",
        _HOPS,
        came="window_start",
    ),
    Mixed(
        "early",
        """\
SELECT symbol, window_start, count(*) AS quotes, sum(price) AS total, last(price) AS latest
FROM quotes
GROUP BY symbol, window(time, '10 minutes')
""",
        """\
SELECT symbol, window.start AS window_start, count(*) AS quotes, sum(price) AS total, max_by(price, time) AS latest
FROM quotes
WHERE time <= {frontier}
GROUP BY symbol, window(time, '10 minutes')
""",
        """\
SELECT symbol, time_bucket(INTERVAL 10 MINUTES, time) AS window_start, count(*) AS quotes, sum(price) AS total,
  max_by(price, time) AS latest
FROM quotes
WHERE time <= {frontier}
GROUP BY symbol, time_bucket(INTERVAL 10 MINUTES, time)
""",
        emit=EmitMode.EARLY,
        came="window_start",
    ),
    Mixed(
        "moving",
        """\
SELECT symbol, count(*) AS quotes, avg(price) AS mean, stddev(price) AS deviation
FROM sliding(quotes, '10 minutes')
GROUP BY symbol
""",
        """\
SELECT symbol, count(*) AS quotes, avg(price) AS mean, stddev(price) AS deviation
FROM quotes
WHERE time > {frontier - 600} AND time <= {frontier}
GROUP BY symbol
""",
    ),
    Mixed(
        "range",
        """\
SELECT symbol, min(price) AS lowest, max(price) AS highest
FROM sliding(quotes, '5 minutes')
GROUP BY symbol
""",
        """\
SELECT symbol, min(price) AS lowest, max(price) AS highest
FROM quotes
WHERE time > {frontier - 300} AND time <= {frontier}
GROUP BY symbol
""",
    ),
    Mixed(
        "pace",
        "SELECT count(*) AS quotes FROM sliding(quotes, '10 minutes')",
        "SELECT count(*) AS quotes FROM quotes WHERE time > {frontier - 600} AND time <= {frontier}",
    ),
    Mixed(
        "running",
        "SELECT symbol, count(*) AS quotes, avg(price) AS mean, stddev(price) AS deviation FROM quotes GROUP BY symbol",
        """\
SELECT symbol, count(*) AS quotes, avg(price) AS mean, stddev(price) AS deviation
FROM quotes
WHERE time <= {frontier}
GROUP BY symbol
""",
    ),
    Mixed(
        "records",
        "SELECT symbol, min(price) AS lowest, max(price) AS highest FROM quotes GROUP BY symbol",
        """\
SELECT symbol, min(price) AS lowest, max(price) AS highest
FROM quotes
WHERE time <= {frontier}
GROUP BY symbol
""",
    ),
    Mixed(
        "bands",
        "SELECT DISTINCT symbol, CAST(floor(price) AS int) AS dollars FROM sliding(quotes, '1 minute')",
        """\
SELECT DISTINCT symbol, CAST(floor(price) AS int) AS dollars
FROM quotes
WHERE time > {frontier - 60} AND time <= {frontier}
""",
    ),
    Mixed(
        "ever",
        "SELECT DISTINCT symbol, CAST(floor(price) AS int) AS dollars FROM quotes",
        "SELECT DISTINCT symbol, CAST(floor(price) AS int) AS dollars FROM quotes WHERE time <= {frontier}",
    ),
    Mixed(
        "jumps",
        """\
SELECT a.symbol, a.time AS before, b.time AS after, b.price - a.price AS rise
FROM sliding(quotes, '5 seconds') AS a
JOIN sliding(quotes, '5 seconds') AS b ON a.symbol = b.symbol AND b.time > a.time
WHERE b.price > a.price * 1.001D
""",
        """\
SELECT a.symbol, a.time AS before, b.time AS after, b.price - a.price AS rise
FROM quotes AS a
JOIN quotes AS b ON a.symbol = b.symbol AND b.time > a.time
WHERE b.price > a.price * 1.001D
  AND a.time > {frontier - 5} AND a.time <= {frontier} AND b.time > {frontier - 5} AND b.time <= {frontier}
""",
        """\
SELECT a.symbol, a.time AS before, b.time AS after, b.price - a.price AS rise
FROM quotes AS a
JOIN quotes AS b ON a.symbol = b.symbol AND b.time > a.time
WHERE b.price > a.price * 1.001::DOUBLE
  AND a.time > {frontier - 5} AND a.time <= {frontier} AND b.time > {frontier - 5} AND b.time <= {frontier}
""",
    ),
    Mixed(
        "energy",
        """\
SELECT q.time, q.symbol, q.price, c.name
FROM quotes AS q
JOIN companies AS c ON q.symbol = c.symbol
WHERE c.sector = 'energy'
""",
        f"""\
WITH versions AS (SELECT {_VERSIONS} FROM companies)
SELECT q.time, q.symbol, q.price, c.name
FROM quotes AS q
JOIN versions AS c ON q.symbol = c.symbol AND c.since <= q.time AND (c.until IS NULL OR q.time < c.until)
WHERE c.sector = 'energy' AND q.time <= {{frontier}}
""",
        came="time",
    ),
    Mixed(
        "suspects",
        """\
SELECT q.time, q.symbol, q.price, w.reason
FROM sliding(quotes, '1 minute') AS q
JOIN watched AS w ON q.symbol = w.symbol
""",
        f"""\
WITH versions AS (SELECT {_VERSIONS} FROM watched)
SELECT q.time, q.symbol, q.price, w.reason
FROM quotes AS q
JOIN versions AS w ON q.symbol = w.symbol
WHERE q.time > {{frontier - 60}} AND q.time <= {{frontier}} AND w.gone IS NOT TRUE
  AND w.since <= {{frontier}} AND (w.until IS NULL OR w.until > {{frontier}})
""",
    ),
    Mixed(
        "unmatched",
        """\
SELECT time, symbol, price
FROM negation(
  sliding(quotes, '30 seconds'),
  (SELECT symbol FROM sliding(quotes, '30 seconds') WHERE price >= 100),
  'symbol'
)
""",
        """\
WITH younger AS (
  SELECT time, symbol, price, row_number() OVER (PARTITION BY symbol ORDER BY time DESC) AS place,
    count(*) OVER (PARTITION BY symbol) AS there
  FROM quotes
  WHERE time > {frontier - 30} AND time <= {frontier}
), partners AS (
  SELECT symbol, count(*) AS taken
  FROM quotes
  WHERE time > {frontier - 30} AND time <= {frontier} AND price >= 100
  GROUP BY symbol
)
SELECT y.time, y.symbol, y.price
FROM younger AS y
LEFT JOIN partners AS p ON y.symbol = p.symbol
WHERE y.place <= y.there - coalesce(p.taken, 0)
""",
    ),
    Mixed(
        "both",
        """\
SELECT symbol, CAST(floor(price) AS int) AS dollars FROM sliding(quotes, '30 seconds')
INTERSECT
SELECT symbol, CAST(ceil(price) AS int) AS dollars FROM sliding(quotes, '1 minute')
""",
        """\
SELECT symbol, CAST(floor(price) AS int) AS dollars FROM quotes
WHERE time > {frontier - 30} AND time <= {frontier}
INTERSECT
SELECT symbol, CAST(ceil(price) AS int) AS dollars FROM quotes
WHERE time > {frontier - 60} AND time <= {frontier}
""",
    ),
    Mixed(
        "hundreds",
        """\
SELECT symbol, window_no, min(price) AS lowest, max(price) AS highest, max(time) AS filled
FROM quotes
GROUP BY symbol, row_window(100)
""",
        """\
SELECT symbol, CAST(floor((number - 1) / 100) AS bigint) AS window_no, min(price) AS lowest, max(price) AS highest,
  max(time) AS filled
FROM (
  SELECT time, symbol, price, row_number() OVER (PARTITION BY symbol ORDER BY time) AS number
  FROM quotes
  WHERE time <= {frontier}
) AS numbered
GROUP BY symbol, CAST(floor((number - 1) / 100) AS bigint)
HAVING count(*) = 100
""",
        came="filled",
    ),
    Mixed(
        "latest",
        """\
SELECT symbol, count(*) AS quotes, avg(price) AS mean
FROM sliding_rows(quotes, 1000)
GROUP BY symbol
""",
        """\
SELECT symbol, count(*) AS quotes, avg(price) AS mean
FROM (
  SELECT symbol, price FROM quotes WHERE time > {frontier - 60} AND time <= {frontier} ORDER BY time DESC LIMIT 1000
) AS last_rows
GROUP BY symbol
""",
    ),
    Mixed(
        "swings",
        """\
SELECT symbol, count(*) AS minutes, max(highest) - min(lowest) AS swing
FROM sliding(minutes, '5 minutes')
GROUP BY symbol
HAVING max(highest) - min(lowest) > 1
""",
        """\
SELECT symbol, count(DISTINCT date_trunc('minute', time)) AS minutes, max(price) - min(price) AS swing
FROM quotes
WHERE time >= {closed 60 - 300} AND time < {closed 60}
GROUP BY symbol
HAVING max(price) - min(price) > 1
""",
    ),
)
