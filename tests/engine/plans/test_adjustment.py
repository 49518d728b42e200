"""Windows that are corrected by what corrected rows add and take away say what the corrected history says."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import settings
from pyspark.sql import SparkSession

from errata.engine.plans.adjustment import REMOVED, UNCHANGED, UNDECIDED, VERDICT, CorrectedRows, adjust_windows
from errata.engine.plans.partial_groups import MovingRows, advance_group
from errata.engine.plans.partial_state import GroupState
from errata.engine.plans.partial_sums import group_state_of
from errata.language.expr import BIGINT, BOOLEAN, DOUBLE, Call, Expr, Lit
from errata.language.incremental import adjustment_obstacle, find_partial_group
from errata.language.nodes import Aggregate, Filter, Group, Join, Scan, Sliding, TimeWindow, Union
from errata.language.plan import Plan, PlanError
from errata.model.commit import EvaluationSpan
from errata.model.time import LOWEST
from fixtures.chance import seeds
from fixtures.duck import CASE, Row
from fixtures.evaluation import INTERPRETED, Asked, configured, evaluate, taken_out
from fixtures.plans.adjustments import Corrected, Correction, Windows, by_result, by_window, carried, random_corrected
from fixtures.plans.choices import stream
from fixtures.plans.maker import Trial

BATCH, DATA_SETS = 4, 12
BATCHES = max(2, settings.default.max_examples // 12)


def alike(kept: GroupState, got: dict[str, Any], want: dict[str, Any]) -> bool:
    """Whether parts say the same of a window. What values are taken from is chosen once, and what was ever there not
    forgotten, so these may differ."""
    for name, part in kept.parts.items():
        if part.centred or part.includes_removed or equal(got[name], want[name]):
            continue
        return False
    return got["_vs"] == want["_vs"]


def equal(got: Any, want: Any) -> bool:
    """Floating point numbers almost, everything else exactly."""
    if isinstance(got, float) and isinstance(want, float):
        return (
            (math.isnan(got) and math.isnan(want)) or got == want or math.isclose(got, want, rel_tol=1e-9, abs_tol=1e-9)
        )
    if isinstance(got, dict) and isinstance(want, dict):
        return got.keys() == want.keys() and all(equal(got[name], want[name]) for name in got)
    return bool(got == want)


def check_windows(run: Corrected, correction: Correction, told: Windows, parts: Windows, anew: Windows) -> None:
    kept = group_state_of(run.found)
    for key, window in told.items():
        words = f"{key} {window}\n{run.words(correction, key[0])}"
        match window[VERDICT]:
            case "gone":
                assert key not in anew, words
            case "stands":
                assert key in anew, words
                assert alike(kept, window, anew[key]), f"{words}\ninstead of {anew[key]}"
            case fate:
                assert fate == UNDECIDED
                assert kept.doubts or any(not part.subtractable for part in kept.parts.values()), words
    for key in {*parts, *anew} - set(told):
        words = f"{key}\n{run.words(correction, key[0])}"
        assert key in parts, f"{words} has rows"
        assert key in anew, f"{words} has no rows"
        assert alike(kept, parts[key], anew[key]), f"{words}\n{parts[key]}\ninstead of {anew[key]}"


def check_rows(run: Corrected, correction: Correction, told: Windows, *rows: Any) -> None:
    """Results that were touched are right, and those that were not touched are right as they are."""
    before, got, want = (by_result(run.plan, each, run.until) for each in rows)
    assert set(got) <= {key for key, window in told.items() if window[VERDICT] == UNCHANGED}
    for key in {*before, *want, *got}:
        if key in told and told[key][VERDICT] == UNDECIDED:
            continue
        mine, right = (got if key in told else before).get(key), want.get(key)
        same = mine == right or (mine and right and all(map(equal, mine, right)))
        assert same, f"{key}: {mine} instead of {right}\n{run.words(correction, key[0])}"


def split(table: pa.Table, cases: int) -> list[pa.Table]:
    """The windows of some lots of data sets, each with the numbers of its own."""
    numbers = table.column(CASE).to_pylist()
    lots = []
    for lot in range(max(numbers, default=0) // cases + 1):
        part = table.filter(pa.array([number // cases == lot for number in numbers], pa.bool_()))
        place = part.column_names.index(CASE)
        own = pa.array([number % cases for number in part.column(CASE).to_pylist()], pa.int64())
        lots.append(part.set_column(place, CASE, own))
    return [*lots, *[table.slice(0, 0)] * 9]


def closed(table: pa.Table, until: int) -> pa.Table:
    return table.filter(pa.array([end <= until for end in table.column("_vs").to_pylist()], pa.bool_()))


def check(spark: SparkSession, runs: Sequence[Corrected]) -> dict[str, int]:
    """How many windows came to which fate."""
    fates = {UNCHANGED: 0, REMOVED: 0, UNDECIDED: 0}
    found, adjusted = [], []
    for run in runs:
        parts, _ = run.published(spark)
        count, lots = len(run.trial.cases), [run.trial.cases, *(each.after for each in run.corrections)]
        windows = run.anew(spark, [case for lot in lots for case in lot]).windows
        assert windows is not None
        anew = [closed(each, run.until) for each in split(windows.toArrow(), count)]
        told = []
        for number, correction in enumerate(run.corrections, start=1):
            done = run.adjusted(spark, correction, parts)
            told.append(done.windows.toArrow())
            check_windows(run, correction, by_window(told[-1]), by_window(parts), by_window(anew[number]))
            parts = carried(parts, told[-1], anew[number])
            adjusted.append((run.plan, done.rows))
            for fate in told[-1].column(VERDICT).to_pylist():
                fates[fate] += 1
        found.append(told)
    made = iter(taken_out(adjusted))
    asked = [
        Asked(run.plan, cases) for run in runs for cases in (run.trial.cases, *(each.after for each in run.corrections))
    ]
    wholes = iter(evaluate(spark, asked))
    for run, told in zip(runs, found, strict=True):
        before = next(wholes)
        for correction, windows in zip(run.corrections, told, strict=True):
            after = next(wholes)
            check_rows(run, correction, by_window(windows), before, next(made), after)
            before = after
    return fates


@pytest.mark.parametrize("batch", range(BATCHES))
def test_corrected_windows_say_what_the_corrected_history_says(either: SparkSession, batch: int) -> None:
    drawn = seeds(f"{__name__} {batch}", BATCH if batch else 1)
    # The first one runs as in production.
    with configured(either, {"spark.sql.adaptive.enabled": "false"} if batch == 0 else INTERPRETED):
        fates = check(either, [random_corrected(seed, data_sets=DATA_SETS) for seed in drawn])
    assert batch == 0 or fates[UNCHANGED], f"seeds {drawn}: nothing was compared"


LINK = Scan(stream("link1", False), "a")
X, N, PRICE, SRC = (LINK.ref(f"a.{name}") for name in ("x", "n", "price", "src"))
TUMBLING = TimeWindow(10, 10)


def event(time: int, x: float | None = None, *, number: int = 0, n: int | None = 1) -> Row:
    return {"time": time, "id": number, "src": "s", "n": n, "x": x, "price": None, "ok": True}


def of(function: str, argument: Expr | None = X, kind: Any = DOUBLE) -> Aggregate:
    return Aggregate(function, argument, kind)


COUNT = of("count", None, BIGINT)


def grouped(*aggregates: Aggregate, below: Plan = LINK, window: TimeWindow | None = TUMBLING) -> Group:
    return Group(below, (), aggregates, window, timed=False)


class Told:
    """What becomes of windows of a few rows when these are corrected."""

    def __init__(self, spark: SparkSession, plan: Plan, until: int, before: Sequence[Row], *, open_too: bool = False):
        self.spark, self.plan = spark, plan
        steps = [EvaluationSpan(LOWEST, until)]
        self.run = Corrected(Trial(plan, [{"link1": list(before)}]), steps, [])
        with configured(spark, INTERPRETED):
            self.parts, self.state = self.run.published(spark)
        self.open = open_too

    def correct(self, gone: Sequence[Row], came: Sequence[Row]) -> dict[int, str]:
        """The windows' fates, by when they begin; their parts are published."""
        correction = Correction([{}], [{}], [{"link1": list(gone)}], [{"link1": list(came)}])
        with configured(self.spark, INTERPRETED):
            done = self.run.adjusted(self.spark, correction, self.parts, self.state if self.open else None)
            self.rows = {row.values[0]: row.values[2:] for row in taken_out([(self.plan, done.rows)])[0].get(0, [])}
            self.windows = done.windows.toArrow()
        self.done = done
        self.parts = carried(self.parts, self.windows, self.windows.slice(0, 0).drop_columns([VERDICT]))
        return {row["_w"]: row[VERDICT] for row in self.windows.to_pylist()}


@pytest.mark.parametrize(("function", "extreme", "other", "beyond"), [("max", 5.0, 2.0, 7.0), ("min", 2.0, 5.0, 1.0)])
def test_an_extreme_that_was_taken_away_is_told_by_nobody_but_the_rows(
    either: SparkSession, function: str, extreme: float, other: float, beyond: float
) -> None:
    before = [event(0, extreme), event(1, other), event(10, extreme), event(20, extreme), event(21, other)]
    told = Told(either, grouped(of(function), COUNT), 30, [*before, event(22), event(11, other)])
    # The extreme goes; what is no extreme goes; what takes its place is beyond it.
    fates = told.correct(
        [event(0, extreme), event(11, other), event(20, extreme)], [event(12, other), event(20, beyond)]
    )
    assert fates == {0: UNDECIDED, 10: UNCHANGED, 20: UNCHANGED}
    assert told.done.undecided.toArrow().column("_w").to_pylist() == [0]
    assert sorted(told.done.parts.toArrow().column("_w").to_pylist()) == [10, 20]
    assert told.rows == {10: (extreme, 2), 20: (beyond, 3)}


def test_an_extreme_whose_row_is_corrected_elsewhere_stays(either: SparkSession) -> None:
    told = Told(either, grouped(of("max"), of("sum", N, BIGINT)), 10, [event(0, 5.0), event(1, 2.0)])
    assert told.correct([event(0, 5.0)], [event(0, 5.0, n=8)]) == {0: UNCHANGED}
    assert told.rows == {0: (5.0, 9)}


def test_where_all_rows_are_new_nothing_else_has_to_be_known(either: SparkSession) -> None:
    told = Told(either, grouped(of("max"), of("first"), of("last")), 10, [event(0, 5.0)])
    assert told.correct([event(0, 5.0)], [event(3, 2.0), event(4, 1.0)]) == {0: UNCHANGED}
    assert told.rows == {0: (2.0, 2.0, 1.0)}
    assert told.correct([event(3, 2.0), event(4, 1.0)], []) == {0: REMOVED}
    assert told.rows == {}
    assert told.parts.num_rows == 0
    assert told.correct([], [event(5, 3.0)]) == {0: UNCHANGED}
    assert told.rows == {0: (3.0, 3.0, 3.0)}


@pytest.mark.parametrize(("time", "value"), [(0, 1.0), (0, None), (0, 9.0), (2, 1.0), (2, 9.0)])
def test_the_first_and_the_last_row_are_known_by_their_order(
    either: SparkSession, time: int, value: float | None
) -> None:
    values = {0: 5.0, 1: 6.0, 2: 5.0}
    told = Told(either, grouped(of("first"), of("last")), 10, [event(at, x) for at, x in values.items()])
    assert told.correct([event(time, values[time])], [event(time, value)]) == {0: UNCHANGED}
    values[time] = value
    assert told.rows == {0: (values[0], values[2])}
    assert told.correct([event(time, value)], []) == {0: UNDECIDED}


@pytest.mark.parametrize("function", ["sum", "avg", "stddev"])
def test_numbers_that_leave_a_trace_are_added_up_anew(either: SparkSession, function: str) -> None:
    rows = [event(0, 0.1), event(1, 0.4)]
    for far in (1e17, float("inf"), float("nan")):
        told = Told(either, grouped(of(function)), 10, [*rows, event(2, far)])
        assert told.correct([event(2, far)], [event(2, 0.2)]) == {0: UNDECIDED}
    told = Told(either, grouped(of(function)), 10, [*rows, event(2, 5.0)])
    assert told.correct([event(2, 5.0)], [event(2, 0.2)]) == {0: UNCHANGED}
    want = {"sum": 0.7, "avg": 0.7 / 3, "stddev": (0.07 / 3) ** 0.5}[function]
    assert told.rows == {0: (pytest.approx(want, rel=1e-9),)}


def test_traces_are_not_forgotten(either: SparkSession) -> None:
    """Each time what is there becomes less by so little that it could be endured once."""
    told = Told(either, grouped(of("sum")), 10, [event(0, 1e9), event(1, 0.1)])
    assert told.correct([event(0, 1e9)], [event(0, 1e6)]) == {0: UNCHANGED}
    assert told.correct([event(0, 1e6)], [event(0, 1e3)]) == {0: UNDECIDED}


@pytest.mark.parametrize("far", [1e17, float("inf"), float("nan")])
def test_traces_are_found_when_they_come_to_matter(either: SparkSession, far: float) -> None:
    """Of one value there is no spread, and so no trace either; of two there is."""
    told = Told(either, grouped(of("stddev")), 10, [event(0, far)])
    fates = [told.correct(gone, came) for gone, came in ([[event(0, far)], [event(0, 0.5)]], [[], [event(1, 1.1)]])]
    assert fates == ([{0: UNCHANGED}, {0: UNDECIDED}] if far == 1e17 else [{0: UNDECIDED}, {0: UNCHANGED}])


def test_of_no_values_there_is_no_sum_and_no_trace(either: SparkSession) -> None:
    plan = grouped(of("sum"), of("avg"), of("stddev"), of("count", X, BIGINT), COUNT)
    told = Told(either, plan, 10, [event(0, 1e300), event(1)])
    assert told.correct([event(0, 1e300)], []) == {0: UNCHANGED}
    assert told.rows == {0: (None, None, None, 0, 1)}
    assert told.correct([], [event(0, 0.1), event(2, 0.1)]) == {0: UNCHANGED}
    assert told.rows == {0: (0.2, 0.1, 0.0, 2, 3)}


def test_parts_that_are_not_of_the_rows_are_not_believed(either: SparkSession) -> None:
    told = Told(either, grouped(COUNT), 20, [event(0)])
    assert told.correct([event(0), event(1)], []) == {0: UNDECIDED}
    assert told.correct([event(10)], [event(10), event(11)]) == {10: UNDECIDED}


def test_a_row_that_comes_to_lie_elsewhere_leaves_its_windows_for_others(either: SparkSession) -> None:
    told = Told(either, grouped(COUNT, window=TimeWindow(4, 2)), 10, [event(0), event(1), event(5)])
    assert told.correct([event(1)], [event(7)]) == {-2: UNCHANGED, 0: UNCHANGED, 4: UNCHANGED, 6: UNCHANGED}
    assert told.rows == {-2: (1,), 0: (1,), 4: (2,), 6: (1,)}


def test_windows_that_have_not_closed_are_left_out_unless_the_state_is_there(either: SparkSession) -> None:
    before = [event(0), event(12), event(22), event(23)]
    gone, came = [event(0), event(12)], [event(1), event(11), event(24), event(40), event(25)]
    assert Told(either, grouped(COUNT), 25, before).correct(gone, came) == {0: UNCHANGED, 10: UNCHANGED}
    told = Told(either, grouped(COUNT), 20, [*before, event(13), event(18)], open_too=True)
    # Of windows that are open rows from the last instant on are not in the state.
    assert told.correct(gone, [*came, event(19)]) == {0: UNCHANGED, 10: UNCHANGED}
    assert told.rows == {0: (1,), 10: (4,)}
    told = Told(either, grouped(COUNT), 24, before, open_too=True)
    assert told.correct([event(22)], [event(21), event(20), event(24)]) == {20: UNCHANGED}
    assert told.rows == {}
    assert told.windows.column("_p0").to_pylist() == [3]
    assert told.correct([event(0)], []) == {0: REMOVED, 20: UNCHANGED}
    assert told.windows.filter(pa.array([begin == 20 for begin in told.windows.column("_w").to_pylist()])).column(
        "_p0"
    ).to_pylist() == [2]


def test_windows_that_a_filter_above_leaves_out_are_kept(either: SparkSession) -> None:
    group = grouped(COUNT)
    plan = Filter(group, Call(">", (group.ref("count(*)"), Lit(1, BIGINT)), BOOLEAN))
    told = Told(either, plan, 20, [event(0), event(10), event(11)])
    assert told.parts.num_rows == 2
    assert told.correct([event(11)], [event(1)]) == {0: UNCHANGED, 10: UNCHANGED}
    assert told.rows == {0: (2,)}
    assert sorted(told.parts.column("_p0").to_pylist()) == [1, 2]


def test_parts_of_a_window_are_told_when_it_closes(either: SparkSession) -> None:
    run = Corrected(Trial(grouped(COUNT), [{"link1": [event(time) for time in (0, 1, 11)]}]), [], [])
    with configured(either, INTERPRETED):
        for steps, ends in (
            ([EvaluationSpan(LOWEST, 10), EvaluationSpan(10, 20)], [10, 20]),
            ([EvaluationSpan(LOWEST, 9), EvaluationSpan(9, 19)], [10]),
        ):
            run.steps = [*steps, EvaluationSpan(steps[-1].until, steps[-1].until)]
            parts, state = run.published(either)
            assert parts.column("_vs").to_pylist() == ends
            assert state.column("_vs").to_pylist() == [20]


def reason(plan: Plan) -> str | None:
    found = find_partial_group(plan)
    assert found is not None
    return adjustment_obstacle(found)


def test_what_cannot_be_adjusted_is_told_from_the_plan(either: SparkSession) -> None:
    other = Scan(stream("link2", False), "b")
    joined = Join(LINK, other, Call("=", (SRC, other.ref("b.src")), BOOLEAN))
    assert "depends on other rows" in (reason(grouped(COUNT, below=joined)) or "")
    assert "depends on other rows" in (reason(grouped(COUNT, below=grouped(COUNT))) or "")
    for plan in (
        grouped(COUNT, window=None),
        grouped(COUNT, window=TimeWindow(4, 2, early=True)),
        grouped(COUNT, below=Sliding(LINK, 4), window=None),
    ):
        assert "when they close" in (reason(plan) or "")
    assert reason(grouped(COUNT)) is None
    assert reason(grouped(COUNT, below=Union((LINK, other)))) is None
    found = find_partial_group(grouped(COUNT, below=joined))
    assert found is not None
    nothing = either.createDataFrame([], "_w BIGINT")
    with pytest.raises(PlanError, match="depends on other rows"):
        adjust_windows(found, CorrectedRows({}, {}), nothing, 10)
    early = find_partial_group(grouped(COUNT, window=TimeWindow(4, 2, early=True)))
    assert early is not None
    with pytest.raises(PlanError, match="final windows"):
        advance_group(early, MovingRows({}), None, EvaluationSpan(LOWEST, 10), parts=True)
