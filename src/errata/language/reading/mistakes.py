"""Mistakes in a query with their place in the text, and the list of SQL that the language refuses, each with the reason
and the alternative.

Messages are part of the interface: tests and docs/language.md repeat them.
"""

from __future__ import annotations

import re
from functools import partial

from sqlglot import exp

from errata.errors import UsageError

_MAX_EXCERPT = 160
TextPlace = exp.Expr | int | tuple[int, int]
"""The place of a mistake: a node, an offset into the text, or the offsets of a first character and of the one after the
last."""


class LanguageError(UsageError):
    """A query that cannot be read, or that Errata cannot answer."""

    def __init__(
        self,
        what: str,
        *,
        where: str | None = None,
        why: str | None = None,
        how: str | None = None,
        line: int = 1,
        column: int = 1,
        excerpt: str = "",
    ) -> None:
        super().__init__(what, where=where, why=why, how=how)
        self.line = line
        self.column = column
        self.excerpt = excerpt

    def __str__(self) -> str:
        lines = [f"{self.where}: {self.what}" if self.where else self.what]
        lines += [self.excerpt] if self.excerpt else []
        lines += [f"  why: {self.why}"] if self.why else []
        lines += [f"  how to mend: {self.how}"] if self.how else []
        return "\n".join(lines)

    def __reduce__(self) -> tuple[object, ...]:
        rebuild = partial(LanguageError, self.what, where=self.where, why=self.why, how=self.how)
        return (partial(rebuild, line=self.line, column=self.column, excerpt=self.excerpt), ())


class SqlText:
    """The text of a query, and where it stands: a file's name, or a query's."""

    def __init__(self, sql: str, name: str) -> None:
        self.sql = sql
        self.name = name

    def mistake(self, place: TextPlace, what: str, why: str | None = None, how: str | None = None) -> LanguageError:
        """The error that shows the place: of a node, of its nearest part, or else of what it is a part of."""
        start, end = self._span(place)
        before = self.sql[:start]
        line, column = before.count("\n") + 1, start - (before.rfind("\n") + 1) + 1
        return LanguageError(
            what,
            where=f"{self.name}:{line}:{column}",
            why=why,
            how=how,
            line=line,
            column=column,
            excerpt=self._excerpt(start, end),
        )

    def _span(self, place: TextPlace) -> tuple[int, int]:
        match place:
            case int():
                start, end = place, place + 1
            case tuple():
                start, end = place
            case _:
                start, end = node_span(self.sql, place)
        start = max(0, min(start, len(self.sql)))
        return start, max(start + 1, end)

    def _excerpt(self, start: int, end: int) -> str:
        """The line, with carets under the place; of a very long line the part around the place."""
        begin = self.sql.rfind("\n", 0, start) + 1
        finish = self.sql.find("\n", start)
        finish = len(self.sql) if finish < 0 else finish
        if finish - begin > _MAX_EXCERPT:
            begin = max(begin, start - _MAX_EXCERPT // 2)
            finish = min(finish, begin + _MAX_EXCERPT)
        line = "".join(each if each.isprintable() else " " for each in self.sql[begin:finish])
        carets = "^" * max(1, min(end, finish) - start)
        return f"    {line}\n    {' ' * (start - begin)}{carets}" if line.strip() else ""


def node_span(sql: str, node: exp.Expr) -> tuple[int, int]:
    """The place of a node: from its first token with a known place to its last; else between its neighbours."""
    places = _node_places(node)
    if places:
        return places[0][0], max(end for _, end in places)
    parent, begin, finish = node.parent, 0, len(sql)
    while parent is not None:
        # Places are ordered by their starts; the tree decides which of them come before the node.
        before, after = _neighbour_places(parent, node)
        if before or after:
            begin = max((end for _, end in before), default=0)
            finish = min((start for start, _ in after if start >= begin), default=len(sql))
            break
        parent = parent.parent
    word = _NODE_SIGNS.get(node.key) or node.name or node.key
    found = re.compile(re.escape(word), re.IGNORECASE).search(sql, begin, finish)
    return found.span() if found is not None else _trim_span(sql, begin, finish)


_NODE_SIGNS = {"star": "*", "parameter": "@"}


def _node_places(node: exp.Expr) -> list[tuple[int, int]]:
    return sorted((each.meta["start"], each.meta["end"] + 1) for each in node.walk() if "start" in each.meta)


def _neighbour_places(parent: exp.Expr, node: exp.Expr) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """The places of what comes before the node under the parent, and of what comes after."""
    before: list[tuple[int, int]] = []
    after: list[tuple[int, int]] = []
    found = False
    for each in parent.walk(bfs=False):
        if each is node:
            found = True
        elif "start" in each.meta:
            (after if found else before).append((each.meta["start"], each.meta["end"] + 1))
    return before, after


def _trim_span(sql: str, begin: int, finish: int) -> tuple[int, int]:
    inside = sql[begin:finish]
    skipped = len(inside) - len(inside.lstrip(" \t\r\n,("))
    return begin + skipped, max(begin + skipped + 1, begin + len(inside.rstrip()))


# SQL that the language does not have: its name, the reason, and the alternative.

SyntaxRefusal = tuple[str, str | None, str | None]

TOO_DEEP: SyntaxRefusal = (
    "the query is nested too deeply",
    "brackets within brackets are followed a few dozen deep, and operators some more",
    "give a part of it a name, with WITH or as a query of its own; write x IN (1, 2, 3) for many comparisons",
)

_ORDER_REASON = "the answer of a continuous query is a set of rows, which has no order"
_SEMIJOIN_EXAMPLE = "JOIN (SELECT DISTINCT x FROM b) AS chosen ON a.x = chosen.x"
_ANTIJOIN_EXAMPLE = "JOIN (SELECT x FROM a EXCEPT SELECT x FROM b) AS rest ON a.x = rest.x"
_JOIN_ADVICE = "write JOIN, LEFT JOIN, RIGHT JOIN or FULL JOIN, with ON or USING, or CROSS JOIN"
_NO_SUBQUERY = "a subquery within an expression is not part of the language"
_SUBQUERY_REFUSAL: SyntaxRefusal = (_NO_SUBQUERY, None, "give it a name and join it: JOIN (SELECT ...) AS name ON ...")
_IN_REFUSAL: SyntaxRefusal = (_NO_SUBQUERY, None, f"write {_SEMIJOIN_EXAMPLE}")
_NOT_IN_REFUSAL: SyntaxRefusal = (_NO_SUBQUERY, None, f"write {_ANTIJOIN_EXAMPLE}")
_GROUPING_SETS_REFUSAL = (
    "only plain GROUP BY is part of the language",
    "ROLLUP, CUBE and GROUPING SETS are several groupings in one",
    "write each grouping as a query, and put them together with UNION ALL",
)
REFUSED_SYNTAX: dict[str, SyntaxRefusal] = {
    "limit": ("LIMIT is not part of the language", _ORDER_REASON, "keep all rows, and limit where the answer is read"),
    "fetch": ("FETCH is not part of the language", _ORDER_REASON, "keep all rows, and limit where the answer is read"),
    "offset": ("OFFSET is not part of the language", _ORDER_REASON, "leave it out"),
    "order": ("ORDER BY is not part of the language", _ORDER_REASON, "order the rows where the answer is read"),
    "sort": ("SORT BY is not part of the language", _ORDER_REASON, "order the rows where the answer is read"),
    "cluster": ("CLUSTER BY is not part of the language", _ORDER_REASON, "leave it out"),
    "distribute": ("DISTRIBUTE BY is not part of the language", _ORDER_REASON, "leave it out"),
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
    "join.side": ("this kind of join is not part of the language", None, _JOIN_ADVICE),
    "join.kind": ("this kind of join is not part of the language", None, _JOIN_ADVICE),
    "semi join": ("SEMI JOIN is not part of the language", None, f"write {_SEMIJOIN_EXAMPLE}"),
    "anti join": ("ANTI JOIN is not part of the language", None, f"write {_ANTIJOIN_EXAMPLE}"),
    "join.method": (
        "NATURAL JOIN is not part of the language",
        "a new column in a stream would change its meaning",
        "write JOIN ... ON, or USING (column)",
    ),
    "in.query": _IN_REFUSAL,
    "not in.query": _NOT_IN_REFUSAL,
    "exists": _IN_REFUSAL,
    "not exists": _NOT_IN_REFUSAL,
    "subquery": _SUBQUERY_REFUSAL,
    "select": _SUBQUERY_REFUSAL,
    "any": _SUBQUERY_REFUSAL,
    "all": _SUBQUERY_REFUSAL,
    "group.rollup": _GROUPING_SETS_REFUSAL,
    "group.cube": _GROUPING_SETS_REFUSAL,
    "group.grouping_sets": _GROUPING_SETS_REFUSAL,
    "group.totals": _GROUPING_SETS_REFUSAL,
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
    "distinct.on": (
        "DISTINCT ON is not part of the language",
        _ORDER_REASON,
        "group by the columns, with first() and last()",
    ),
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

_REPLAY_REASON = "the same rows must give the same answer whenever they are replayed, and this differs from run to run"
_NOW_ADVICE = "use the stream's order column, or event_time()"
_RANDOM_ADVICE = "use a column of the stream, such as its key, to choose or to number rows"
_MACHINE_ADVICE = "leave it out: where and by whom a query is run is no part of its answer"

NONDETERMINISTIC_FUNCTIONS: dict[str, str] = {
    **dict.fromkeys(
        ("now", "current_timestamp", "current_date", "current_time", "curdate", "localtimestamp", "current_timezone"),
        _NOW_ADVICE,
    ),
    **dict.fromkeys(("unix_timestamp", "getdate", "sysdate", "today"), _NOW_ADVICE),
    **dict.fromkeys(("rand", "random", "randn", "uuid", "shuffle", "randstr", "uniform"), _RANDOM_ADVICE),
    **dict.fromkeys(("monotonically_increasing_id", "spark_partition_id", "row_number"), _RANDOM_ADVICE),
    **dict.fromkeys(("input_file_name", "input_file_block_start", "input_file_block_length"), _MACHINE_ADVICE),
    **dict.fromkeys(("current_user", "user", "session_user", "current_database", "current_schema"), _MACHINE_ADVICE),
    **dict.fromkeys(("current_catalog", "version", "current_role", "reflect", "java_method"), _MACHINE_ADVICE),
}
"""Functions that are refused because they depend on more than the rows, and the alternative."""


def nondeterministic_refusal(name: str) -> SyntaxRefusal:
    """The refusal of such a function."""
    return f"{name}() is not deterministic", _REPLAY_REASON, NONDETERMINISTIC_FUNCTIONS[name]


_UNORDERED_REASON = "the rows of a group have no order of their own, so that the answer would differ from run to run"
_EXACT_REASON = "it keeps all values of a group, and a correction would change them all"

REFUSED_FUNCTIONS: dict[str, SyntaxRefusal] = {
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
        name: (f"{name}() is not part of the language", _UNORDERED_REASON, "use first(), last(), min() or max()")
        for name in ("collect_list", "collect_set", "array_agg", "any_value", "first_value", "last_value", "listagg")
    },
    **{
        name: (f"{name}() is not part of the language", _EXACT_REASON, "use avg(), min() or max()")
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
