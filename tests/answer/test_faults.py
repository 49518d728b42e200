"""Why a query stopped: the row and the expression are found, and told in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from errata.answer import failing_rows
from errata.answer.faults import fault_error, find_fault
from errata.engine.failures import JOB_FAILURES, query_errors_in_words, quiet_loggers
from errata.engine.plans.compile import compile_plan
from errata.errors import ErrataError
from errata.intake.types import arrow_type
from errata.language.expr import INT, STRING, TIMESTAMP, Call, Case, Cast, Expr, Lit, Ref, expr_sql
from errata.language.functions import never_fails
from errata.language.plan import Field, Plan, Source, SourceKind
from errata.language.queries import query_source, read_query
from errata.language.rewrite import rewrite_plan
from errata.model.columns import ColumnType
from errata.model.commit import Fault
from errata.model.time import HIGHEST, MINUTE, parse_instant
from fixtures.evaluation import INTERPRETED, configured

Row = Mapping[str, Any]

NOON = parse_instant("2026-11-18T12:00:00")
LARGE = 2**63 - 1
WIDE = 10**38 - 1


def _fields(**types: str) -> tuple[Field, ...]:
    return tuple(Field(name, ColumnType.parse(kind)) for name, kind in types.items())


TRADES = _fields(
    time="timestamp", symbol="string", size="bigint", parts="bigint", note="string", paid="decimal(38,0)", by="int"
)
SOURCES = {
    "trades": Source("trades", SourceKind.STREAM, TRADES, ("time", "symbol"), "time"),
    "asks": Source("asks", SourceKind.STREAM, TRADES, ("time", "symbol"), "time"),
    "ticks": Source("ticks", SourceKind.STREAM, _fields(at="bigint", id="int", n="int"), ("id",), "at", timed=False),
    "companies": Source(
        "companies",
        SourceKind.NRR,
        _fields(symbol="string", shares="bigint", since="timestamp"),
        ("symbol",),
        "since",
    ),
}


def at(minute: int) -> int:
    return NOON + minute * MINUTE


def trade(minute: int, symbol: str = "IBM", **more: Any) -> Row:
    return {"time": at(minute), "symbol": symbol, "size": 8, "parts": 2, "note": "7", "paid": 1, "by": 0, **more}


GOOD = [trade(minute, symbol) for minute in range(4) for symbol in ("AAPL", "IBM")]
MOMENT = "2026-11-18T12:05:00.000000"


@pytest.fixture(autouse=True)
def interpreted(spark: SparkSession) -> Iterator[None]:
    with configured(spark, INTERPRETED):
        yield


def _column(values: list[Any], kind: ColumnType) -> pa.Array:
    if kind == TIMESTAMP:
        return pa.array(values, pa.int64()).cast(pa.timestamp("us", "UTC"))
    return pa.array(values, arrow_type(kind))


def frame(spark: SparkSession, source: Source, rows: Sequence[Row]) -> DataFrame:
    columns = {each.name: _column([row[each.name] for row in rows], each.type) for each in source.fields}
    # Of rows that are nowhere but here, Spark would work everything out without a job.
    return spark.createDataFrame(pa.table(columns)).repartition(2)


def failure(plan: Plan, frames: Mapping[str, DataFrame]) -> Exception:
    with quiet_loggers(), pytest.raises(JOB_FAILURES) as raised:
        compile_plan(plan, frames).collect()
    return raised.value


def fault(spark: SparkSession, text: str, *, until: int = HIGHEST, **rows: Sequence[Row]) -> Fault:
    """What is found of a query that fails over rows of the streams."""
    plan = rewrite_plan(read_query(text, "query", SOURCES)).plan
    frames = {name: frame(spark, SOURCES[name], given) for name, given in rows.items()}
    return find_fault(plan, frames, failure(plan, frames), until=until)


def of_trade(symbol: str = "IBM", moment: str = MOMENT) -> dict[str, str]:
    return {"time": moment, "symbol": symbol}


NOTE_X = trade(5, note="x")
"""A row whose note is no number."""


@pytest.mark.parametrize(
    ("text", "bad", "expression", "where", "reason"),
    [
        pytest.param(
            "SELECT symbol, size / parts AS each FROM trades AS t",
            trade(5, parts=0),
            "t.size / t.parts",
            "in column each",
            "DIVIDE_BY_ZERO",
            id="division by zero in a projection",
        ),
        pytest.param(
            "SELECT symbol FROM trades AS t WHERE symbol > 'A' AND CAST(note AS INT) > 3",
            NOTE_X,
            "CAST(t.note AS INT)",
            "in WHERE",
            "CAST_INVALID_INPUT",
            id="bad cast in a filter",
        ),
        pytest.param(
            "SELECT size + parts AS both FROM trades AS t",
            trade(5, size=LARGE),
            "t.size + t.parts",
            "in column both",
            "ARITHMETIC_OVERFLOW",
            id="bigint overflow of +",
        ),
        pytest.param(
            "SELECT paid * paid AS squared FROM trades AS t",
            trade(5, paid=10**37),
            "t.paid * t.paid",
            "in column squared",
            "NUMERIC_VALUE_OUT_OF_RANGE",
            id="decimal overflow of *",
        ),
        pytest.param(
            "SELECT CAST(note AS DATE) AS day FROM trades AS t WHERE length(note) > 2",
            trade(5, note="2026-02-30"),
            "CAST(t.note AS DATE)",
            "in column day",
            "CAST_INVALID_INPUT",
            id="a date that is none",
        ),
        pytest.param(
            "SELECT CAST(note AS INT) AS n, count(*) AS c FROM trades AS t GROUP BY CAST(note AS INT)",
            NOTE_X,
            "CAST(t.note AS INT)",
            "in GROUP BY",
            "CAST_INVALID_INPUT",
            id="bad cast in a group's key",
        ),
        pytest.param(
            "SELECT symbol, sum(size / parts) AS s FROM sliding(trades, '2 minutes') AS t GROUP BY symbol",
            trade(5, parts=0),
            "t.size / t.parts",
            "in sum(t.size / t.parts)",
            "DIVIDE_BY_ZERO",
            id="division by zero in an aggregate's argument",
        ),
        pytest.param(
            "SELECT timestamp_seconds(size) AS then FROM trades AS t",
            trade(5, size=LARGE),
            "timestamp_seconds(t.size)",
            "in column then",
            "long overflow",
            id="an instant that no bigint holds, of which Java tells",
        ),
        pytest.param(
            "SELECT symbol FROM trades AS t WHERE symbol RLIKE note",
            trade(5, note="("),
            "t.symbol RLIKE t.note",
            "in WHERE",
            "INVALID_PARAMETER_VALUE",
            id="a pattern that is none",
        ),
        pytest.param(
            "SELECT symbol FROM trades AS t WHERE concat('a', symbol) LIKE concat('a', note)",
            trade(5, note="\\"),
            "concat('a', t.symbol) LIKE concat('a', t.note)",
            "in WHERE",
            "INVALID_FORMAT",
            id="a pattern of LIKE that is none",
        ),
    ],
)
def test_the_row_and_the_expression(
    spark: SparkSession, text: str, bad: Row, expression: str, where: str, reason: str
) -> None:
    found = fault(spark, text, trades=[*GOOD, bad])
    assert (found.expression, found.where) == (expression, where)
    assert found.row == of_trade()
    assert (found.source, found.kind, found.vs) == ("trades", "stream", at(5))
    assert reason in found.reason
    assert "ansi" not in found.reason
    assert "SQLSTATE" not in found.reason
    assert set(found.values) <= {f"t.{each.name}" for each in TRADES}
    assert all(name in expression for name in found.values)


def test_what_the_expression_read(spark: SparkSession) -> None:
    found = fault(spark, "SELECT size / parts AS each FROM trades AS t", trades=[*GOOD, trade(5, parts=0)])
    assert found.values == {"t.size": "8", "t.parts": "0"}


def test_the_first_row_is_told(spark: SparkSession) -> None:
    bad = [trade(minute, symbol, parts=0) for minute in (9, 7, 8) for symbol in ("X", "B")]
    found = fault(spark, "SELECT size / parts AS each FROM trades AS t", trades=[*bad, *GOOD])
    assert found.row == of_trade("B", "2026-11-18T12:07:00.000000")


def test_rows_after_the_end_do_not_count(spark: SparkSession) -> None:
    text = "SELECT size / parts AS each FROM trades AS t"
    rows = [*GOOD, trade(9, parts=0)]
    assert fault(spark, text, until=at(9), trades=rows).row == of_trade("IBM", "2026-11-18T12:09:00.000000")
    later = fault(spark, text, until=at(9) - 1, trades=rows)
    assert later == Fault(later.reason)
    assert "DIVIDE_BY_ZERO" in later.reason


def test_a_guarded_expression_is_not_accused(spark: SparkSession) -> None:
    text = """SELECT CASE WHEN parts = 0 THEN 0 ELSE size DIV parts END AS each,
        if(symbol = 'IBM', CAST(note AS INT), 0) AS n FROM trades AS t"""
    rows = [trade(1, parts=0), trade(2, "AAPL", note="y"), NOTE_X]
    found = fault(spark, text, trades=rows)
    assert (found.expression, found.where) == ("CAST(t.note AS INT)", "in column n")
    assert found.row == of_trade()


def test_the_condition_of_a_join(spark: SparkSession) -> None:
    text = """SELECT t.symbol FROM trades AS t JOIN sliding(asks, '5 minutes') AS a
        ON t.symbol = a.symbol AND t.size / (a.parts - t.parts) > 1"""
    found = fault(spark, text, trades=GOOD[:2], asks=[trade(1, "IBM", parts=2), trade(1, "AAPL", parts=1)])
    assert (found.expression, found.where) == ("t.size / (a.parts - t.parts)", "in the condition of the join")
    assert found.row == {
        "t.time": "2026-11-18T12:00:00.000000",
        "t.symbol": "IBM",
        "a.time": "2026-11-18T12:01:00.000000",
        "a.symbol": "IBM",
    }
    assert (found.source, found.vs) == ("", at(1))
    assert str(fault_error(found, "near")).startswith(
        "query near stopped: t.size / (a.parts - t.parts) cannot be computed for t.time=2026-11-18T12:00:00.000000, "
        "t.symbol=IBM, a.time=2026-11-18T12:01:00.000000, a.symbol=IBM at 2026-11-18T12:01:00.000000\n"
    )


def test_an_equality_of_a_join_tells_its_side(spark: SparkSession) -> None:
    text = "SELECT t.symbol FROM trades AS t JOIN asks AS a ON t.by = CAST(a.note AS INT)"
    found = fault(spark, text, trades=GOOD[:1], asks=[*GOOD, NOTE_X])
    assert (found.expression, found.source, found.row) == ("CAST(a.note AS INT)", "asks", of_trade())


def test_above_a_join_the_row_of_one_side(spark: SparkSession) -> None:
    text = """SELECT t.size + 0 * a.size AS s, a.size / a.parts AS each
        FROM trades AS t JOIN asks AS a ON t.symbol = a.symbol"""
    found = fault(spark, text, trades=[trade(7)], asks=[*GOOD, trade(5, parts=0)])
    assert (found.expression, found.source, found.row) == ("a.size / a.parts", "asks", of_trade())
    assert found.vs == at(5)


def test_a_relation_s_version(spark: SparkSession) -> None:
    versions = [{"symbol": "IBM", "shares": number, "since": at(number)} for number in (0, 1)]
    text = "SELECT t.size / c.shares AS held FROM trades AS t JOIN companies AS c ON t.symbol = c.symbol"
    found = fault(spark, text, trades=GOOD, companies=versions)
    assert (found.expression, found.source) == ("t.size / c.shares", "")
    assert found.row == {"t.time": "2026-11-18T12:00:00.000000", "t.symbol": "IBM", "c.symbol": "IBM"}
    text = "SELECT t.size, 1 / c.shares AS one FROM trades AS t JOIN companies AS c ON t.symbol = c.symbol"
    found = fault(spark, text, trades=GOOD, companies=versions)
    assert (found.source, found.kind, found.vs) == ("companies", "relation", at(0))
    assert found.row == {"symbol": "IBM", "since": "2026-11-18T12:00:00.000000"}


def test_a_sum_that_is_too_large(spark: SparkSession) -> None:
    rows = [trade(1, size=LARGE), trade(2, "AAPL", size=LARGE), trade(3), trade(4, size=None)]
    found = fault(spark, "SELECT symbol, sum(size) AS s FROM trades AS t GROUP BY symbol", trades=rows)
    assert (found.expression, found.row, found.vs) == ("sum(t.size)", {"symbol": "IBM"}, at(3))
    assert "OVERFLOW" in found.reason
    assert str(fault_error(found, "sums")).splitlines()[0] == (
        "query sums stopped: sum(t.size) cannot be computed for symbol=IBM at 2026-11-18T12:03:00.000000"
    )


def test_a_window_s_sum_that_is_too_large(spark: SparkSession) -> None:
    rows = [trade(1, paid=WIDE), trade(6, paid=WIDE - 1), trade(7, paid=WIDE), trade(8, "AAPL", paid=WIDE)]
    text = "SELECT symbol, sum(paid) AS s FROM trades AS t GROUP BY symbol, window(time, '5 minutes')"
    found = fault(spark, text, trades=rows)
    assert found.expression == "sum(t.paid)"
    assert found.row == {"symbol": "IBM", "window_start": MOMENT}
    assert found.vs == at(10)


def test_a_mean_that_is_too_large_of_all_rows_of_a_while(spark: SparkSession) -> None:
    text = "SELECT avg(paid) AS mean FROM sliding(trades, '2 minutes') AS t"
    found = fault(spark, text, trades=[trade(1), trade(3, paid=WIDE), trade(4)])
    assert (found.expression, found.row, found.vs) == ("avg(t.paid)", {}, at(3))
    assert str(fault_error(found, "means")).startswith(
        "query means stopped: avg(t.paid) cannot be computed at 2026-11-18T12:03:00.000000\n"
    )


def test_having(spark: SparkSession) -> None:
    text = """SELECT symbol, count(*) AS n FROM trades AS t GROUP BY symbol, window(time, '5 minutes')
        HAVING sum(size) / (count(*) - 2) > 1"""
    found = fault(spark, text, trades=[*GOOD, trade(6), trade(7)])
    assert (found.expression, found.where) == ("sum(t.size) / (count(*) - 2)", "in HAVING")
    assert found.row == {"symbol": "IBM", "window_start": MOMENT}
    assert found.values == {"sum(t.size)": "16", "count(*)": "2"}
    assert found.source == ""


def test_a_branch_of_a_union(spark: SparkSession) -> None:
    both = "SELECT symbol, size, parts FROM trades AS t UNION ALL SELECT symbol, size, parts FROM asks AS a"
    found = fault(spark, f"SELECT size / parts AS each FROM ({both}) AS u", trades=GOOD, asks=[trade(5, parts=0)])
    assert (found.source, found.row) == ("asks", of_trade())
    text = f"SELECT size / parts AS each, count(*) AS n FROM ({both}) AS u GROUP BY size / parts"
    found = fault(spark, text, trades=GOOD, asks=[trade(5, parts=0)])
    assert (found.source, found.where) == ("asks", "in GROUP BY")


def test_a_query_s_result(spark: SparkSession) -> None:
    inner = read_query("SELECT symbol, size AS s FROM trades", "inner", SOURCES)
    plan = read_query("SELECT 1 / s AS r FROM sizes", "outer", {"sizes": query_source("sizes", inner)})
    frames = {"sizes": compile_plan(inner, {"trades": frame(spark, SOURCES["trades"], [*GOOD, trade(5, size=0)])})}
    found = find_fault(plan, frames, failure(plan, frames), until=at(5))
    assert (found.source, found.kind, found.row) == ("sizes", "query", of_trade())
    assert "correct what query sizes reads" in str(fault_error(found, "outer"))


def test_plain_numbers(spark: SparkSession) -> None:
    ticks = [{"at": number, "id": -number, "n": 4 - number} for number in range(7)]
    text = "SELECT id, 1 DIV n AS r FROM ticks AS t"
    found = fault(spark, text, until=4, ticks=ticks)
    assert (found.row, found.vs) == ({"id": "-4", "at": "4"}, 4)
    assert fault(spark, text, until=3, ticks=ticks).expression == ""


def test_few_jobs(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs: list[str] = []
    for name in ("_job_fails", "_first_rows"):
        run = getattr(failing_rows, name)
        monkeypatch.setattr(failing_rows, name, lambda *given, run=run, name=name: (jobs.append(name), run(*given))[1])
    text = "SELECT abs(by) AS a, size / parts AS each FROM trades AS t WHERE CAST(note AS INT) = 7"
    assert fault(spark, text, trades=[*GOOD, trade(5, parts=0)]).row == of_trade()
    assert jobs == ["_job_fails", "_job_fails", "_first_rows"]


def test_among_many_rows_without_a_hint(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failing_rows, "_LOCAL_ROWS", 8)
    monkeypatch.setattr(failing_rows, "_CUTS", 4)
    text = "SELECT abs(by) AS r FROM trades AS t"
    spread = [trade(minute, f"S{number}") for minute in range(30) for number in range(2)]
    bad = trade(23, "S1", by=-(2**31))
    found = fault(spark, text, trades=[*(each for each in spread if each["time"] < at(23)), bad, *spread[48:]])
    assert (found.expression, found.row["symbol"], found.vs) == ("abs(t.by)", "S1", at(23))
    together = [trade(1, f"S{number}", by=-(2**31) if number == 33 else 0) for number in range(40)]
    assert fault(spark, text, trades=together).row["symbol"] == "S33"


def test_nothing_fails_by_itself(spark: SparkSession) -> None:
    plan = read_query("SELECT size / parts AS each FROM trades AS t", "query", SOURCES)
    bad = {"trades": frame(spark, SOURCES["trades"], [trade(1, parts=0)])}
    good = {"trades": frame(spark, SOURCES["trades"], GOOD)}
    found = find_fault(plan, good, failure(plan, bad), until=HIGHEST)
    assert found.record() == {**Fault("").record(), "reason": found.reason}
    assert found.reason.startswith("[DIVIDE_BY_ZERO] Division by zero.")
    words = str(fault_error(found, "shares"))
    assert "query shares stopped" in words
    assert found.reason in words


def test_what_only_java_tells(spark: SparkSession) -> None:
    text = "SELECT timestamp_seconds(size) AS then FROM trades AS t"
    plan = read_query(text, "query", SOURCES)
    frames = {"trades": frame(spark, SOURCES["trades"], [*GOOD, trade(5, size=LARGE)])}
    with pytest.raises(ErrataError) as raised, query_errors_in_words():
        compile_plan(plan, frames).collect()
    assert raised.value.what == "the query cannot be computed for some row"
    assert raised.value.why == "java.lang.ArithmeticException: long overflow"
    cause = raised.value.__cause__
    assert isinstance(cause, Exception)
    assert find_fault(plan, frames, cause, until=HIGHEST).row == of_trade()


def test_another_failure_on_the_way_hides_nothing(spark: SparkSession) -> None:
    plan = read_query("SELECT size / parts AS each FROM trades AS t", "query", SOURCES)
    error = failure(plan, {"trades": frame(spark, SOURCES["trades"], [trade(1, parts=0)])})
    for frames in ({}, {"trades": spark.range(1).withColumnRenamed("id", "time")}):
        found = find_fault(plan, frames, error, until=HIGHEST)
        assert found == Fault(found.reason)
        assert "DIVIDE_BY_ZERO" in found.reason


def test_what_is_no_rows_fault_starts_no_job() -> None:
    error = PySparkException("Job aborted\njava.io.FileNotFoundException: gone.parquet\nat org.apache.Spark")
    plan = read_query("SELECT size / parts AS each FROM trades AS t", "query", SOURCES)
    assert find_fault(plan, {}, error, until=0) == Fault("java.io.FileNotFoundException: gone.parquet")


def test_in_words() -> None:
    found = Fault(
        "[DIVIDE_BY_ZERO] Division by zero.",
        "t.size / t.parts",
        "in column each",
        row={"time": MOMENT, "symbol": "IBM"},
        values={"t.parts": "0", "t.size": "8"},
        vs=at(5),
        source="trades",
        kind="stream",
    )
    assert str(fault_error(found, "shares")) == (
        f"query shares stopped: t.size / t.parts cannot be computed for the row time={MOMENT}, symbol=IBM of stream "
        "trades\n"
        "  why: in column each, where t.parts is 0 and t.size is 8: [DIVIDE_BY_ZERO] Division by zero.\n"
        "  how to mend: correct the row: errata revise trades FILES; or let query shares give NULL there (try_divide, "
        "try_cast, nullif, a CAST to a wider type), and run `errata apply`"
    )
    assert Fault.of(found.record()) == found


N, S = Ref("n", INT), Ref("s", STRING)


def divided(by: Expr) -> Expr:
    return Call("div", (N, by), INT)


@pytest.mark.parametrize(
    ("expr", "failing", "smallest"),
    [
        (Call("+", (divided(N), Cast(S, INT)), INT), [Cast(S, INT)], Cast(S, INT)),
        (Case(((N, divided(N)), (S, Cast(S, INT))), None, INT), [Cast(S, INT)], Cast(S, INT)),
        (Case(((N, divided(N)),), Cast(S, INT), INT), [Cast(S, INT)], Cast(S, INT)),
        (Call("if", (Cast(S, INT), N, N), INT), [Cast(S, INT)], Cast(S, INT)),
        (Call("abs", (divided(N),), INT), [], Call("abs", (divided(N),), INT)),
    ],
)
def test_the_smallest_part_that_fails(expr: Expr, failing: list[Expr], smallest: Expr) -> None:
    def fails(each: Expr) -> bool:
        return any(expr_sql(part) in expr_sql(each) for part in failing)

    assert failing_rows.innermost_failure(expr, fails) == smallest


def test_a_doubt_is_told_of_what_can_be_tried() -> None:
    found = failing_rows.suspect_condition(Call("+", (Cast(S, INT), Lit(1, INT)), INT))
    assert found is not None
    assert never_fails(found)
    assert expr_sql(found) == (
        "TRY_CAST(s AS INT) IS NOT NULL AND 1 IS NOT NULL AND try_add(TRY_CAST(s AS INT), 1) IS NULL "
        "OR s IS NOT NULL AND TRY_CAST(s AS INT) IS NULL"
    )
    assert failing_rows.suspect_condition(Call("abs", (N,), INT)) is None
