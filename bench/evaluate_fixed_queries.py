"""The queries of `errata bench evaluate --only fixed`: each in Errata's language, and as DuckDB recomputes it."""

from __future__ import annotations

from collections.abc import Sequence

from bench.evaluate_queries import Mixed

_WEEK = "time_bucket(INTERVAL 7 DAYS, day, TIMESTAMPTZ '1970-01-01 00:00:00+00:00')"
_DAYS = 24 * 3600


def _sliding(days: int, alias: str = "") -> str:
    """The rows of the last days, as of the frontier."""
    day = f"{alias}.day" if alias else "day"
    return f"{day} > {{frontier - {days * _DAYS}}} AND {day} <= {{frontier}}"


def _mixed(name: str, text: str, plain: str) -> Mixed:
    return Mixed(name, text, plain)


QUERIES: Sequence[Mixed] = (
    _mixed(
        "weekly",
        "SELECT area, window_start, sum(tested) AS tested, sum(positive) AS positive FROM cases "
        "GROUP BY area, window(day, '7 days')",
        f"SELECT area, {_WEEK} AS window_start, sum(tested) AS tested, sum(positive) AS positive FROM cases "
        f"WHERE {_WEEK} + INTERVAL 7 DAYS <= {{frontier}} GROUP BY ALL",
    ),
    _mixed(
        "weekly_city",
        "SELECT window_start, count(*) AS reports, sum(tested) AS tested, sum(positive) AS positive FROM cases "
        "GROUP BY window(day, '7 days')",
        f"SELECT {_WEEK} AS window_start, count(*) AS reports, sum(tested) AS tested, sum(positive) AS positive "
        f"FROM cases WHERE {_WEEK} + INTERVAL 7 DAYS <= {{frontier}} GROUP BY ALL",
    ),
    _mixed(
        "weekly_peak",
        "SELECT area, window_start, min(positive) AS least, max(positive) AS most FROM cases "
        "GROUP BY area, window(day, '7 days')",
        f"SELECT area, {_WEEK} AS window_start, min(positive) AS least, max(positive) AS most FROM cases "
        f"WHERE {_WEEK} + INTERVAL 7 DAYS <= {{frontier}} GROUP BY ALL",
    ),
    _mixed(
        "daily_city",
        "SELECT window_start AS day, window_end, sum(tested) AS tested, sum(positive) AS positive FROM cases "
        "GROUP BY window(day, '1 day')",
        "SELECT day, day + INTERVAL 1 DAY AS window_end, sum(tested) AS tested, sum(positive) AS positive FROM cases "
        "WHERE day + INTERVAL 1 DAY <= {frontier} GROUP BY ALL",
    ),
    _mixed(
        "fortnights",
        "SELECT area, window_start, avg(positive) AS mean FROM cases GROUP BY area, window(day, '14 days', '7 days')",
        f"SELECT area, begun AS window_start, avg(positive) AS mean FROM (SELECT area, positive, "
        f"unnest([{_WEEK}, {_WEEK} - INTERVAL 7 DAYS]) AS begun FROM cases) "
        "WHERE begun + INTERVAL 14 DAYS <= {frontier} GROUP BY ALL",
    ),
    _mixed(
        "week_now",
        "SELECT area, sum(tested) AS tested, sum(positive) AS positive FROM sliding(cases, '7 days') GROUP BY area",
        f"SELECT area, sum(tested) AS tested, sum(positive) AS positive FROM cases WHERE {_sliding(7)} GROUP BY ALL",
    ),
    _mixed(
        "month_now",
        "SELECT area, avg(positive) AS mean, stddev(positive) AS deviation FROM sliding(cases, '28 days') "
        "GROUP BY area",
        f"SELECT area, avg(positive) AS mean, stddev(positive) AS deviation FROM cases WHERE {_sliding(28)} "
        "GROUP BY ALL",
    ),
    _mixed(
        "high",
        "SELECT day, area, positive FROM cases WHERE positive > 190",
        "SELECT day, area, positive FROM cases WHERE positive > 190 AND day <= {frontier}",
    ),
    _mixed(
        "share",
        "SELECT day, area, CAST(positive AS double) / nullif(tested, 0) AS share FROM cases "
        "WHERE positive * 2 > tested",
        "SELECT day, area, CAST(positive AS double) / nullif(tested, 0) AS share FROM cases "
        "WHERE positive * 2 > tested AND day <= {frontier}",
    ),
    _mixed(
        "ever",
        "SELECT DISTINCT area, CAST(floor(positive / 100.0D) AS int) AS band FROM cases",
        "SELECT DISTINCT area, CAST(floor(positive / 100.0) AS int) AS band FROM cases WHERE day <= {frontier}",
    ),
    _mixed(
        "bands_now",
        "SELECT DISTINCT area, CAST(floor(positive / 100.0D) AS int) AS band FROM sliding(cases, '7 days')",
        f"SELECT DISTINCT area, CAST(floor(positive / 100.0) AS int) AS band FROM cases WHERE {_sliding(7)}",
    ),
    _mixed(
        "by_district",
        "SELECT c.day, c.area, a.district, c.positive FROM cases AS c JOIN areas AS a ON c.area = a.area "
        "WHERE c.positive > 150",
        "SELECT c.day, c.area, a.district, c.positive FROM cases AS c JOIN areas AS a ON c.area = a.area "
        "WHERE c.positive > 150 AND c.day <= {frontier}",
    ),
    _mixed(
        "districts_now",
        "SELECT a.district, count(*) AS reports, sum(c.positive) AS positive FROM sliding(cases, '7 days') AS c "
        "JOIN areas AS a ON c.area = a.area GROUP BY a.district",
        f"SELECT a.district, count(*) AS reports, sum(c.positive) AS positive FROM cases AS c "
        f"JOIN areas AS a ON c.area = a.area WHERE {_sliding(7, 'c')} GROUP BY ALL",
    ),
    _mixed(
        "rises",
        "SELECT a.area, a.day AS before, b.day AS after, b.positive - a.positive AS rise "
        "FROM sliding(cases, '7 days') AS a JOIN sliding(cases, '7 days') AS b ON a.area = b.area AND b.day > a.day "
        "WHERE b.positive > a.positive + 120",
        "SELECT a.area, a.day AS before, b.day AS after, b.positive - a.positive AS rise FROM cases AS a "
        "JOIN cases AS b ON a.area = b.area AND b.day > a.day WHERE b.positive > a.positive + 120 "
        f"AND {_sliding(7, 'a')} AND {_sliding(7, 'b')}",
    ),
    _mixed(
        "quiet",
        "SELECT day, area, positive FROM negation(sliding(cases, '7 days'), "
        "(SELECT area FROM sliding(cases, '7 days') WHERE positive >= 100), 'area')",
        "WITH younger AS (SELECT day, area, positive, "
        "row_number() OVER (PARTITION BY area ORDER BY day DESC) AS place, "
        f"count(*) OVER (PARTITION BY area) AS there FROM cases WHERE {_sliding(7)}), partners AS ("
        f"SELECT area, count(*) AS taken FROM cases WHERE {_sliding(7)} AND positive >= 100 GROUP BY area) "
        "SELECT y.day, y.area, y.positive FROM younger AS y LEFT JOIN partners AS p ON y.area = p.area "
        "WHERE y.place <= y.there - coalesce(p.taken, 0)",
    ),
    _mixed(
        "tens",
        "SELECT area, window_no, min(positive) AS least, max(positive) AS most FROM cases "
        "GROUP BY area, row_window(10)",
        "SELECT area, CAST(floor((number - 1) / 10) AS bigint) AS window_no, min(positive) AS least, "
        "max(positive) AS most FROM (SELECT area, positive, row_number() OVER (PARTITION BY area ORDER BY day) "
        "AS number FROM cases WHERE day <= {frontier}) GROUP BY ALL HAVING count(*) = 10",
    ),
    _mixed(
        "latest",
        "SELECT count(*) AS reports, avg(positive) AS mean FROM sliding_rows(cases, 500)",
        "SELECT count(*) AS reports, avg(positive) AS mean FROM (SELECT positive FROM cases "
        "WHERE day <= {frontier} ORDER BY day DESC, area DESC LIMIT 500)",
    ),
    _mixed(
        "weekly_top",
        "SELECT area, window_start, positive FROM weekly WHERE positive > 800",
        f"SELECT area, {_WEEK} AS window_start, sum(positive) AS positive FROM cases "
        f"WHERE {_WEEK} + INTERVAL 7 DAYS <= {{frontier}} GROUP BY ALL HAVING sum(positive) > 800",
    ),
    _mixed(
        "trend",
        "SELECT sum(positive) AS positive, count(*) AS days FROM sliding(daily_city, '14 days')",
        "SELECT sum(positive) AS positive, count(DISTINCT day) AS days FROM cases "
        f"WHERE day + INTERVAL 1 DAY > {{frontier - {14 * _DAYS}}} AND day + INTERVAL 1 DAY <= {{frontier}}",
    ),
)
