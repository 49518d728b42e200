"""Groups carried on from partial aggregates, step by step, say what the whole history says."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from itertools import permutations
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import settings
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from errata.engine.plans.partial_groups import CARRIED_COUNT
from errata.language.expr import BIGINT, BOOLEAN, DOUBLE, Call, Expr, Lit
from errata.language.nodes import Aggregate, Filter, Group, Scan, Sliding, TimeWindow
from errata.language.plan import Plan
from errata.language.plan_text import plan_tree
from errata.model.commit import EvaluationSpan
from errata.model.time import to_micros
from fixtures.chance import seeds
from fixtures.duck import Row, same
from fixtures.evaluation import INTERPRETED, Asked, Lived, configured, evaluate, live, taken_out
from fixtures.plans.choices import stream
from fixtures.plans.maker import Trial, instants
from fixtures.plans.partial_groups import Run, random_run, steps_to

BATCH, DATA_SETS = 6, 12
BATCHES = max(2, settings.default.max_examples // 12)

Found = dict[int, list[Lived]]


def difference(run: Run, found: Sequence[Found], whole: Found) -> str:
    """The first instant at which a step says something else than the whole history, in words; nothing if none does."""
    for case, data in enumerate(run.trial.cases):
        for number, step in enumerate(run.steps):
            for at in seen(run, step, case):
                got, want = (said(run, step, rows.get(case, []), at) for rows in (found[number], whole))
                if not same(got, want):
                    words = [f"step {number} of {run.steps}", f"at {at} the plan", plan_tree(run.trial.plan), "over"]
                    words += [f"  {name}: {row}" for name, rows in data.items() for row in rows]
                    return "\n".join([*words, f"in case {case} gave", *map(str, got), "instead of", *map(str, want)])
    return ""


def said(run: Run, step: EvaluationSpan, rows: Sequence[Lived], at: int) -> list[tuple[object, ...]]:
    """What counts at an instant; of final windows, which are only added, those that end then."""
    if run.found.closing_column is not None:
        # Of windows that had closed by the beginning of the step nothing is said any more.
        name, size = run.found.closing_column
        place = [each.name for each in run.trial.plan.fields].index(name)
        rows = [row for row in rows if moment(row.values[place]) + size > step.since]
    if run.found.covering:
        return live(rows, at)
    return [row.values for row in rows if row.start == at]


def moment(value: Any) -> int:
    return value if isinstance(value, int) else to_micros(value)


def seen(run: Run, step: EvaluationSpan, case: int) -> Iterator[int]:
    """The instants that a step answers; the last only where all that happens then has come."""
    return (at for at in instants(run.trial.plan) if step.since <= at <= step.until - case % 2)


def check(spark: SparkSession, runs: Sequence[Run]) -> int:
    """All in one job. How many results were compared."""
    steps = [(run.trial.plan, step.rows) for run in runs for step in run.advanced(spark)]
    found = iter(taken_out(steps))
    wholes = evaluate(spark, [Asked(run.trial.plan, run.trial.cases) for run in runs])
    for run, whole in zip(runs, wholes, strict=True):
        wrong = difference(run, [next(found) for _ in run.steps], whole)
        assert not wrong, wrong
    return sum(len(rows) for whole in wholes for rows in whole.values())


@pytest.mark.parametrize("batch", range(BATCHES))
def test_steps_say_what_the_whole_history_says(either: SparkSession, batch: int) -> None:
    # The first ones run as in production.
    drawn = seeds(f"{__name__} {batch}", BATCH if batch else 2)
    with configured(either, {"spark.sql.adaptive.enabled": "false"} if batch == 0 else INTERPRETED):
        compared = check(either, [random_run(seed, data_sets=DATA_SETS) for seed in drawn])
    assert compared or len(drawn) < BATCH, f"seeds {drawn}: nothing was compared"


LINK = Scan(stream("link1", False), "a")
X, ID, SRC, TIME = (LINK.ref(f"a.{name}") for name in ("x", "id", "src", "time"))


def event(time: int, x: float | None = None, src: str | None = "s") -> Row:
    return {"time": time, "id": time, "src": src, "n": 1, "x": x, "price": None, "ok": True}


def grouped(plan: Plan, *aggregates: Aggregate, by: tuple[Expr, ...] = (), window: TimeWindow | None = None) -> Group:
    return Group(plan, by, aggregates, window, timed=False)


def of(function: str, argument: Expr | None = X, kind: Any = DOUBLE) -> Aggregate:
    return Aggregate(function, argument, kind)


COUNT = of("count", None, BIGINT)


def go(spark: SparkSession, plan: Plan, events: Sequence[Row], *ends: int) -> tuple[list[Lived], pa.Table]:
    """What the last of some steps yields, and what it keeps."""
    run = Run(Trial(plan, [{"link1": list(events)}]), steps_to(*ends))
    with configured(spark, INTERPRETED):
        last = run.advanced(spark)[-1]
        assert last.state is not None
        rows = taken_out([(plan, last.rows)])[0].get(0, [])
        return sorted(rows, key=lambda row: (row.start, str(row.values))), last.state.toArrow()


def test_numbers_that_are_gone_leave_no_trace(either: SparkSession) -> None:
    far = [1e300, -1e300, 1e17, float("inf"), float("nan"), -float("inf"), 1e308, 1e308]
    near = [(10, 0.1), (11, 0.3), (12, 1e-9)]
    events = [*(event(time, x) for time, x in enumerate(far)), *(event(time, x) for time, x in near)]
    rows, _ = go(either, grouped(Sliding(LINK, 8), of("sum"), of("avg")), events, 4, 9, 12, 16)
    assert live(rows, 16) == [pytest.approx((0.400000001, 0.400000001 / 3), rel=1e-15, abs=0)]


def test_equal_values_do_not_differ_whatever_was_there_before(either: SparkSession) -> None:
    events = [event(0, 7.3), event(1, -4.1), *(event(time, 1.1) for time in (3, 4, 5))]
    rows, _ = go(either, grouped(Sliding(LINK, 4), of("stddev")), events, 2, 6)
    assert live(rows, 6) == [(0.0,)]


@pytest.mark.parametrize(("first", "values"), [(0.0, [64_000.2, 64_000.7, 64_000.5]), (1e6, [0.1, 0.3, 0.2])])
def test_values_far_from_the_first_ones_differ_as_they_do(
    either: SparkSession, first: float, values: list[float]
) -> None:
    events = [event(0, first), *(event(time + 6, x) for time, x in enumerate(values))]
    rows, _ = go(either, grouped(Sliding(LINK, 6), of("stddev")), events, 2, 7, 9)
    assert live(rows, 9) == [pytest.approx((statistics.stdev(values),), rel=1e-12, abs=0)]


def test_a_sum_that_does_not_fit_is_an_error_and_only_that(either: SparkSession) -> None:
    most = Call("+", (Call("*", (TIME, Lit(0, BIGINT)), BIGINT), Lit(2**63 - 5, BIGINT)), BIGINT)
    plan = grouped(LINK, of("sum", most, BIGINT))
    assert live(go(either, plan, [event(0)], 1, 2)[0], 2) == [(2**63 - 5,)]
    with pytest.raises(PySparkException, match=r"OVERFLOW|Int64|OUT_OF_RANGE"):
        go(either, plan, [event(0), event(3)], 1, 4)
    gone = grouped(Sliding(LINK, 3), of("sum", most, BIGINT))
    assert live(go(either, gone, [event(0), event(3)], 1, 4)[0], 4) == [(2**63 - 5,)]


def test_what_ceased_to_count_is_not_kept(either: SparkSession) -> None:
    plan = grouped(Sliding(LINK, 4), COUNT, of("max"), of("last"), by=(SRC,))
    events = [event(0, 1.0, "a"), event(1, 2.0, None), event(5, 3.0, "b")]
    rows, state = go(either, plan, events, 2, 6)
    # What counts for the last time just before the last instant is taken out there by the next step.
    assert live(rows, 6) == [("b", 1, 3.0, 3.0)]
    assert state.column("_g0").to_pylist() == ["b", "b"]
    assert go(either, plan, events, 2, 9)[1].num_rows == 2
    assert go(either, plan, events, 2, 10)[1].num_rows == 0


@pytest.mark.parametrize(("values", "kept"), [([5.0] * 6, 1), ([1.0, 2.0, 3.0], 1), ([3.0, 2.0, 1.0], 3)])
def test_of_rows_that_a_later_one_outdoes_none_is_kept(either: SparkSession, values: list[float], kept: int) -> None:
    plan = grouped(Sliding(LINK, 100), of("max"))
    _, state = go(either, plan, [event(time, x) for time, x in enumerate(values)], 4, 50)
    assert sum(own is not None for own in state.column("_own").to_pylist()) == kept


def test_windows_that_have_ended_are_not_kept(either: SparkSession) -> None:
    plan = grouped(LINK, COUNT, window=TimeWindow(4, 2))
    rows, state = go(either, plan, [event(time) for time in range(8)], 5, 8)
    assert [(row.values[1], row.values[2]) for row in rows] == [(6, 4), (8, 4)]
    assert sorted(zip(state.column("_w").to_pylist(), state.column("_p0").to_pylist(), strict=True)) == [(4, 4), (6, 2)]


@pytest.mark.parametrize("by", [(), (SRC,)])
@pytest.mark.parametrize("below", [LINK, Sliding(LINK, 3)])
def test_of_no_rows_nothing_is_said_and_nothing_kept(either: SparkSession, below: Plan, by: tuple[Expr, ...]) -> None:
    plan = grouped(below, COUNT, of("sum"), of("max"), of("stddev"), by=by)
    rows, state = go(either, plan, [event(20, 1.0)], 3, 3, 9)
    assert rows == []
    assert state.num_rows == 0


def test_nothing_that_happens_changes_nothing(either: SparkSession) -> None:
    plan = grouped(LINK, COUNT, of("sum"), by=(SRC,))
    events = [event(0, 1.0, "a"), event(1, 2.0, "b")]
    rows, state = go(either, plan, events, 5, 5, 9)
    assert [(row.values, row.start) for row in rows] == [(("a", 1, 1.0), 5), (("b", 1, 2.0), 5)]
    assert state.num_rows == 2


def test_sums_that_may_drift_tell_how_often_they_were_carried_on(either: SparkSession) -> None:
    events = [event(time, 1.5) for time in range(9)]
    assert go(either, grouped(Sliding(LINK, 4), of("sum")), events, 2, 4, 6)[1].column(CARRIED_COUNT).to_pylist() == [3]
    assert CARRIED_COUNT not in go(either, grouped(LINK, of("sum")), events, 2, 4, 6)[1].column_names


def test_what_stands_above_the_group_is_asked_of_each_result(either: SparkSession) -> None:
    group = grouped(LINK, COUNT, by=(SRC,))
    plan = Filter(group, Call(">", (group.ref("count(*)"), Lit(1, BIGINT)), BOOLEAN))
    rows, _ = go(either, plan, [event(0), event(3), event(4, src="t")], 2, 5)
    assert [(row.values, row.start) for row in rows] == [(("s", 2), 3)]


@pytest.mark.parametrize("function", ["first", "last"])
def test_rows_of_one_instant_are_ordered_by_key_and_null_is_the_least_key(either: SparkSession, function: str) -> None:
    inner = grouped(LINK, of("max"), by=(SRC,), window=TimeWindow(4, 4))
    outer = Group(inner, (), (of(function, inner.ref("max(a.x)")),), TimeWindow(8, 8), timed=False, number=2)
    keys = {None: 1.0, "": 2.0, "s": 3.0}
    cases = [
        {"link1": [event(time, keys[src], src) for time, src in enumerate(chosen)]}
        for count in (2, 3)
        for chosen in permutations(keys, count)
    ]
    wanted = min if function == "first" else max
    with configured(either, INTERPRETED):
        whole = evaluate(either, [Asked(outer, cases)])[0]
        run = Run(Trial(outer, cases), steps_to(2, 9))
        steps = taken_out([(outer, step.rows) for step in run.advanced(either)])
    for number, case in enumerate(cases):
        expected = [(0, 8, wanted(row["x"] for row in case["link1"]))]
        assert [row.values for row in whole[number]] == expected
        assert [row.values for row in steps[-1][number]] == expected
