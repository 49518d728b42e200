"""The benchmark of kept answers: its figures come out at a tiny scale, and both sides of it say the same."""

import math
from pathlib import Path

import pyarrow as pa
import pytest
from bench.evaluate import AMOUNTS, WINDOWS, Amounts, Found, Round, mix_figures, mix_metrics, together
from bench.evaluate_day import Stretch, as_texts, declared_project
from bench.evaluate_fixed import FixedAmounts, fixed_figures, fixed_project
from bench.evaluate_fixed_queries import QUERIES
from bench.evaluate_plain import differs
from bench.evaluate_planning import one_text, planned
from bench.evaluate_queries import MIX, Engine, Mixed
from bench.evaluate_reads import Amount
from bench.evaluate_reads import Amounts as Reads
from bench.evaluate_windows import PAIRS, WindowAmounts, window_figures
from bench.measure import USUAL, Outcome, Scale
from pyspark.sql import SparkSession

from errata.declare.query_plans import read_plans
from errata.engine.plans.compile import compile_plan
from errata.language.rewrite import rewrite_plan
from errata.language.route import RouteKind, choose_route
from errata.model.query import EmitMode, Query
from errata.model.time import MINUTE, SECOND, parse_instant

TINY = Amounts(day=24_000, bucket_rows=6_000, rounds=1, batch=10_000, idle=1, warm_up=0)
TINY_WINDOWS = WindowAmounts(end=120_000, bucket_rows=30_000, rounds=1, batch=10_000, warm_up=0)
TINY_FIXED = FixedAmounts(areas=20, history=90, corrections=100, days=1, warm_up=0)
FEW = [query for query in MIX if query.name in {"minutes", "moving", "energy", "swings"}]
FRONTIER = parse_instant("2026-11-18T02:07:31.25")


@pytest.fixture(scope="module")
def outcome(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    folder = tmp_path_factory.mktemp("evaluate")
    return together(
        [
            mix_figures(TINY, FEW, folder / "mix"),
            window_figures(TINY_WINDOWS, PAIRS[:1], folder / "windows"),
            fixed_figures(TINY_FIXED, folder / "fixed"),
        ]
    )


def test_every_figure_comes_out(outcome: Outcome) -> None:
    assert all(math.isfinite(metric.value) and metric.value > 0 for metric in outcome.metrics)
    goals = {metric.metric: metric.goal for metric in outcome.metrics if metric.goal is not None}
    assert goals == {
        "10,000 rows: recomputing with Spark, beside a run": ">= 15",
        "10,000 rows: recomputing with DuckDB, beside a run": ">= 8",
        "a run over ten times the archive": "<= 1.2",
        "a run in which nothing is due": "< 300",
        "200 rows: a run, for each query": "< 25",
        "rows read beside those asked for": "<= 2",
        "bytes read beside those asked for": "<= 2",
        "closed: ten times the window": "<= 1.3",
        "fixed: a day's ingest, sweep and run": "< 1.0",
    }


def test_each_query_has_a_line(outcome: Outcome) -> None:
    queries, windows, fixed = outcome.grids
    assert list(queries.rows) == [query.name for query in FEW]
    asked, read = (queries.columns.index(name) for name in ("rows asked", "rows read"))
    assert all(0 < line[asked] <= line[read] for line in queries.rows.values())
    assert list(windows.rows) == ["closed narrow", "closed wide"]
    # Both lengths of windows touch as many results: one of each of the 200 symbols.
    assert [line[windows.columns.index("results")] for line in windows.rows.values()] == [200, 200]
    assert list(fixed.rows) == ["taking in", "sweep", "run", "together", "DuckDB"]


def test_one_text_makes_the_same_columns_as_the_steps(spark: SparkSession, tmp_path: Path) -> None:
    plans, frames = planned(spark, fixed_project(tmp_path / "fixed", QUERIES))
    for plan in plans:
        by_steps, by_text = compile_plan(plan, frames, since=0), one_text(spark, plan, frames)
        assert by_text.schema == by_steps.schema


def test_the_mix_is_of_all_kinds(tmp_path: Path) -> None:
    assert len({query.name for query in MIX}) == len(MIX) == 20
    project = declared_project(tmp_path, Stretch(0, 24_000, 6_000), as_texts(MIX))
    texts = {query.name: Query(query.name, "query.sql", query.text, emit=query.emit) for query in MIX}
    plans = read_plans(project.streams, texts, list(texts))
    assert {choose_route(rewrite_plan(plan).plan).kind for plan in plans.values()} == set(RouteKind)


def test_what_depends_on_the_frontier_is_a_constant() -> None:
    query = Mixed("q", "", "WHERE t > {frontier - 90} AND t < {closed 60} AND t >= {closed 60 - 300}", "{frontier}")
    assert query.recomputed(Engine.SPARK, FRONTIER) == (
        "WHERE t > TIMESTAMP '2026-11-18 02:06:01.250000+00:00' AND t < TIMESTAMP '2026-11-18 02:07:00.000000+00:00' "
        "AND t >= TIMESTAMP '2026-11-18 02:02:00.000000+00:00'"
    )
    assert query.recomputed(Engine.DUCKDB, FRONTIER) == "TIMESTAMPTZ '2026-11-18 02:07:31.250000+00:00'"
    assert not any("{" in query.recomputed(engine, FRONTIER) for query in MIX for engine in Engine)


def test_pairs_differ_in_their_windows_alone() -> None:
    for pair in PAIRS:
        narrow, wide = pair.texts().values()
        assert narrow.replace("'60 seconds'", "'600 seconds'") == wide != narrow


@pytest.mark.parametrize("scale", USUAL)
def test_the_batch_closes_a_long_window(scale: Scale) -> None:
    amounts = WINDOWS[scale]
    assert amounts.stretch.ends % (10 * MINUTE) == 0
    assert amounts.stretch.end - amounts.stretch.first == 360_000
    assert AMOUNTS[scale].batch == amounts.batch == 10_000
    with pytest.raises(ValueError, match="no window of 600 seconds ends"):
        WindowAmounts(end=121_000, bucket_rows=1, rounds=1)


def test_results_are_the_same_rows_in_any_order() -> None:
    ours = pa.table(
        {"mean": [1.0, None, 2.0], "symbol": ["A", "B", None], "at": pa.array([1, 2, 3], pa.timestamp("us"))}
    )
    assert differs(ours, ours.take([2, 0, 1])) is None
    almost = ours.set_column(0, "mean", pa.array([1.0 + 1e-12, None, 2.0]))
    assert differs(ours, almost) is None
    assert differs(ours, ours.slice(1)) == "3 rows and 2"
    for name, values in (("mean", [1.1, None, 2.0]), ("mean", [1.0, 0.0, 2.0]), ("symbol", ["A", "C", None])):
        changed = ours.set_column(ours.column_names.index(name), name, pa.array(values))
        assert differs(ours, changed) is not None


def test_goals_are_held_against_ratios_of_the_same_round() -> None:
    reads = {"q": Reads(Amount(100, 1_000), Amount(250, 1_500))}
    rounds = [
        Round(1.0, 1.0, {}, reads, {"q": 4.0, "r": 8.0}, {"q": 1.0}),
        Round(2.0, 1.0, {}, reads, {"q": 8.0, "r": 8.0}, {"q": 1.0}),
        Round(1.0, 0.8, {}, reads, {"q": 8.0, "r": 8.0}, {"q": 1.0}),
    ]
    told = {each.metric: each for each in mix_metrics(TINY, Found(rounds, [0.1, 0.2, 0.9], [0.3]))}
    held = [(each.value, each.holds) for each in told.values() if each.goal is not None]
    ratios = [(12.0, False), (1.0, False), (1.25, False)]
    assert held == [*ratios, (200.0, True), (300.0, False), (2.5, False), (1.5, True)]


def test_a_stretch_ends_where_the_feed_goes_on() -> None:
    assert Stretch(0, 17_280_000, 1).ends == parse_instant("2026-11-19T00:00:00")
    assert Stretch(0, 400, 1).ends - Stretch(0, 200, 1).ends == SECOND
    assert {emit for _, emit in as_texts(MIX).values()} == {EmitMode.FINAL, EmitMode.EARLY}
