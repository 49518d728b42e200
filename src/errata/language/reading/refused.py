"""What SQL has and the language has not: what it is called, why it is refused, and what to write instead."""

from __future__ import annotations

Refusal = tuple[str, str | None, str | None]

TOO_DEEP: Refusal = (
    "the query is nested too deeply",
    "brackets within brackets are followed a few dozen deep, and operators some more",
    "give a part of it a name, with WITH or as a query of its own; write x IN (1, 2, 3) for many comparisons",
)

_ORDER = "the answer of a continuous query is a set of rows, which has no order"
_WITH = "JOIN (SELECT DISTINCT x FROM b) AS chosen ON a.x = chosen.x"
_WITHOUT = "JOIN (SELECT x FROM a EXCEPT SELECT x FROM b) AS rest ON a.x = rest.x"
_JOINS = "write JOIN, LEFT JOIN, RIGHT JOIN or FULL JOIN, with ON or USING, or CROSS JOIN"
_NO_SUBQUERY = "a subquery within an expression is not part of the language"
_SUBQUERY: Refusal = (_NO_SUBQUERY, None, "give it a name and join it: JOIN (SELECT ...) AS name ON ...")
_IN: Refusal = (_NO_SUBQUERY, None, f"write {_WITH}")
_NOT_IN: Refusal = (_NO_SUBQUERY, None, f"write {_WITHOUT}")
_SETS = (
    "only plain GROUP BY is part of the language",
    "ROLLUP, CUBE and GROUPING SETS are several groupings in one",
    "write each grouping as a query, and put them together with UNION ALL",
)
_SAMPLE = (
    "TABLESAMPLE is not part of the language",
    "a sample that differs from time to time gives no answer that could be corrected",
    None,
)

REFUSED: dict[str, Refusal] = {
    "limit": ("LIMIT is not part of the language", _ORDER, "keep all rows, and limit where the answer is read"),
    "fetch": ("FETCH is not part of the language", _ORDER, "keep all rows, and limit where the answer is read"),
    "offset": ("OFFSET is not part of the language", _ORDER, "leave it out"),
    "order": ("ORDER BY is not part of the language", _ORDER, "order the rows where the answer is read"),
    "sort": ("SORT BY is not part of the language", _ORDER, "order the rows where the answer is read"),
    "cluster": ("CLUSTER BY is not part of the language", _ORDER, "leave it out"),
    "distribute": ("DISTRIBUTE BY is not part of the language", _ORDER, "leave it out"),
    "window": (
        "window functions (OVER) are not part of the language",
        "the place of a row among others changes with every row",
        "group by window(...) or row_window(...), or use first() and last()",
    ),
    "windows": ("WINDOW is not part of the language", None, "group by window(...) or row_window(...)"),
    "qualify": ("QUALIFY is not part of the language", "there are no window functions", "filter in a query around it"),
    "lateral": ("LATERAL is not part of the language", "a row has no rows within it", None),
    "laterals": ("LATERAL VIEW is not part of the language", "a row has no rows within it", None),
    "pivot": ("PIVOT is not part of the language", None, "write an aggregate of CASE WHEN ... for each column"),
    "pivots": ("PIVOT is not part of the language", None, "write an aggregate of CASE WHEN ... for each column"),
    "hint": ("hints are not part of the language", "Errata decides how a query is run", "leave it out"),
    "sample": _SAMPLE,
    "tablesample": _SAMPLE,
    "join.side": ("this kind of join is not part of the language", None, _JOINS),
    "join.kind": ("this kind of join is not part of the language", None, _JOINS),
    "semi join": ("SEMI JOIN is not part of the language", None, f"write {_WITH}"),
    "anti join": ("ANTI JOIN is not part of the language", None, f"write {_WITHOUT}"),
    "join.method": (
        "NATURAL JOIN is not part of the language",
        "a new column in a stream would change its meaning",
        "write JOIN ... ON, or USING (column)",
    ),
    "in.query": _IN,
    "not in.query": _NOT_IN,
    "exists": _IN,
    "not exists": _NOT_IN,
    "subquery": _SUBQUERY,
    "select": _SUBQUERY,
    "any": _SUBQUERY,
    "all": _SUBQUERY,
    "group.rollup": _SETS,
    "group.cube": _SETS,
    "group.grouping_sets": _SETS,
    "group.totals": _SETS,
    "group.all": ("GROUP BY ALL is not part of the language", None, "name the columns to group by"),
    "filter": (
        "FILTER is not part of the language",
        None,
        "write the condition into the aggregate, as in sum(CASE WHEN condition THEN x END)",
    ),
    "ignorenulls": ("IGNORE NULLS is not part of the language", None, "filter the rows with IS NOT NULL before"),
    "respectnulls": ("RESPECT NULLS is what first() and last() do anyway", None, "leave it out"),
    "into": ("INTO is not part of the language", "a query reads, and changes nothing", "leave it out"),
    "locks": ("FOR UPDATE is not part of the language", "a query reads, and changes nothing", "leave it out"),
    "kind": ("SELECT AS STRUCT is not part of the language", None, "name the columns"),
    "operation_modifiers": ("what stands after SELECT is not understood", None, "write SELECT or SELECT DISTINCT"),
    "select.match": ("MATCH_RECOGNIZE is not part of the language", None, None),
    "connect": ("CONNECT BY is not part of the language", None, None),
    "distinct.on": ("DISTINCT ON is not part of the language", _ORDER, "group by the columns, with first() and last()"),
    "with.recursive": ("a recursive query is not part of the language", "it may never end", None),
    "by_name": ("BY NAME is not part of the language", None, "write the columns of both sides in the same order"),
    "placeholder": ("parameters are not part of the language", "a declared query is complete", "write the value"),
    "parameter": ("parameters are not part of the language", "a declared query is complete", "write the value"),
    "bracket": ("arrays and maps are not part of the language", None, None),
    "lambda": ("lambdas are not part of the language", "there are no arrays", None),
    "kwarg": ("arguments go by their position", None, "leave out the name"),
    "propertyeq": ("arguments go by their position", None, "leave out the name"),
    "tuple": ("rows as values are not part of the language", None, "compare the columns one by one"),
    "dot": ("columns within columns are not part of the language", None, "write alias.column"),
    "distinct": ("DISTINCT has a place only in SELECT DISTINCT and in aggregates", None, "leave it out"),
    "escape": ("ESCAPE is not part of the language", None, "write a backslash before % and _, as in LIKE '10\\\\%'"),
    **dict.fromkeys(
        ("bitwiseand", "bitwiseor", "bitwisexor", "bitwisenot", "bitwiseleftshift", "bitwiserightshift"),
        ("operators on bits are not part of the language", None, None),
    ),
    "attimezone": ("AT TIME ZONE is not part of the language", "all times are UTC", "shift by an INTERVAL"),
    "collate": ("COLLATE is not part of the language", None, "compare upper(x) or lower(x)"),
    "hexstring": ("numbers to the base 16 are not part of the language", None, "write the number"),
    "bitstring": ("numbers to the base 2 are not part of the language", None, "write the number"),
    "concat": ("texts side by side are not one text here", None, "write a || b"),
    "alias": ("a name has no place within an expression", None, "give names in the list of SELECT: expression AS name"),
    "aliases": ("one expression has one name", None, "write expression AS name"),
    "star": ("* has a place only in SELECT * and count(*)", None, "name the columns"),
    "values": ("VALUES is not part of the language", "a query reads streams, relations and queries", None),
    "interval": (
        "an INTERVAL has a place only in timestamp + INTERVAL and timestamp - INTERVAL",
        None,
        "write ts + INTERVAL '5' MINUTE",
    ),
}

_REPLAY = "the same rows must give the same answer whenever they are replayed, and this differs from run to run"
_NOW = "use the stream's order column, or event_time()"
_CHANCE = "use a column of the stream, such as its key, to choose or to number rows"
_MACHINE = "leave it out: where and by whom a query is run is no part of its answer"

NOT_DETERMINISTIC: dict[str, str] = {
    **dict.fromkeys(
        ("now", "current_timestamp", "current_date", "current_time", "curdate", "localtimestamp", "current_timezone"),
        _NOW,
    ),
    **dict.fromkeys(("unix_timestamp", "getdate", "sysdate", "today"), _NOW),
    **dict.fromkeys(("rand", "random", "randn", "uuid", "shuffle", "randstr", "uniform"), _CHANCE),
    **dict.fromkeys(("monotonically_increasing_id", "spark_partition_id", "row_number"), _CHANCE),
    **dict.fromkeys(("input_file_name", "input_file_block_start", "input_file_block_length"), _MACHINE),
    **dict.fromkeys(("current_user", "user", "session_user", "current_database", "current_schema"), _MACHINE),
    **dict.fromkeys(("current_catalog", "version", "current_role", "reflect", "java_method"), _MACHINE),
}
"""Functions that are refused because they do not depend on the rows alone, and what to use instead."""


def not_deterministic(name: str) -> Refusal:
    """The refusal of such a function."""
    return f"{name}() is not deterministic", _REPLAY, NOT_DETERMINISTIC[name]


_UNORDERED = "the rows of a group have no order of their own, so that the answer would differ from run to run"
_EXACT = "it keeps all values of a group, and a correction would change them all"

ELSEWHERE: dict[str, Refusal] = {
    **{
        name: (f"{name}() has no place here", "an aggregate is of a group's rows", "write it in SELECT or HAVING")
        for name in ("count", "sum", "avg", "mean", "min", "max", "stddev", "stddev_samp", "first", "last")
    },
    **{
        name: (f"{name}() has no place here", "it says how rows are grouped", f"write GROUP BY {name}(...)")
        for name in ("window", "row_window")
    },
    **{
        name: (f"{name}() has no place here", "it stands for a table", f"write FROM {name}(...)")
        for name in ("sliding", "sliding_rows", "negation")
    },
    **{
        name: (
            f"{name}() has no place here",
            "the query groups by no window",
            "group by window(...) or row_window(...)",
        )
        for name in ("window_start", "window_end", "window_no")
    },
    **{
        name: (f"{name}() is not a function of the language", None, how)
        for names, how in (
            (("tumble", "tumbling", "tumbling_window"), "write window(time, '5 minutes') in GROUP BY"),
            (
                ("hop", "hopping", "hopping_window", "slide"),
                "write window(time, '10 minutes', '5 minutes') in GROUP BY",
            ),
            (("session", "session_window"), "windows are of one length: write window(time, '5 minutes') in GROUP BY"),
        )
        for name in names
    },
    "event_time": ("event_time() has no place here", "it is the own time of a row that a query reads", None),
    **{
        name: (f"{name}() is not part of the language", _UNORDERED, "use first(), last(), min() or max()")
        for name in ("collect_list", "collect_set", "array_agg", "any_value", "first_value", "last_value", "listagg")
    },
    **{
        name: (f"{name}() is not part of the language", _EXACT, "use avg(), min() or max()")
        for name in ("median", "percentile", "percentile_approx", "approx_percentile", "mode")
    },
    "approx_count_distinct": ("approx_count_distinct() is not part of the language", None, "use count(DISTINCT x)"),
    "if_null": ("if_null() is not a function", None, "use coalesce(a, b)"),
    "nvl2": ("nvl2() is not part of the language", None, "write if(x IS NOT NULL, a, b)"),
    "date_part": ("date_part() is not part of the language", None, "use year(x), month(x), hour(x) and so on"),
    "trunc": ("trunc() is not part of the language", None, "use date_trunc('month', timestamp)"),
    "date_format": ("date_format() is not part of the language", None, "use year(x), month(x), or CAST(x AS STRING)"),
    "concat_ws": ("concat_ws() is not part of the language", None, "write a || ',' || b"),
}
"""Names that are known, but not here."""
