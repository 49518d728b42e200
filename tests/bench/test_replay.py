"""The benchmark of sweeps: its parts come out at a tiny scale, and everyone who corrects answers says the same."""

import math
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from bench.archive import MIXES
from bench.corrections import FEED
from bench.measure import Outcome, Scale, Timings
from bench.replay import AMOUNTS, Amounts, figures
from bench.replay_day import OPEN, Contender, Stretch, check_same, in_turns
from bench.replay_direct import DirectAmounts
from bench.replay_direct import metrics as direct_metrics
from bench.replay_one import ManyAmounts, OneAmounts, one_metrics
from bench.replay_overhead import OverheadAmounts, overhead_metrics
from bench.replay_peers import PeerAmounts, crossing
from bench.replay_queries import QUERIES, Asked
from bench.replay_table import PAPER, Cell, Found, TableAmounts, metrics, paper_ratio
from pyspark.sql import SparkSession

import bench
from bench import replay
from errata.errors import UsageError
from errata.model.time import MINUTE, SECOND

FEW = Stretch(0, 140_000)
Q1, Q2, Q3 = QUERIES
TINY = Amounts(
    bucket_rows=70_000,
    table=TableAmounts(FEW, more=70_000, batch=70_000, rounds=1, mixes={"MOD": 2}, queries=[Q1]),
    overhead=OverheadAmounts(FEW, more=70_000, batch=70_000, rounds=1, warm_up=0, queries=[Q2]),
    one=OneAmounts(FEW, FEW.last(70_000), rounds=1, warm_up=0, queries=[Q3]),
    many=ManyAmounts(FEW, corrections=30, rounds=1, warm_up=0),
    peers=PeerAmounts([FEW], corrections=2, rounds=1, warm_up=0),
    direct=DirectAmounts(FEW, rounds=1, warm_up=0),
)
PARTS = ("table3", "overhead", "one", "many", "peers", "direct")


@pytest.fixture(scope="module")
def outcome(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    return figures(TINY, tmp_path_factory.mktemp("replay"), PARTS)


def test_every_figure_comes_out(outcome: Outcome) -> None:
    assert all(math.isfinite(metric.value) and metric.value > 0 for metric in outcome.metrics)
    goals = {metric.metric: metric.goal for metric in outcome.metrics if metric.goal is not None}
    assert goals == {
        "Q2: rows without a revision, beside no support for revisions": "<= 1.2",
        "Q3: replay-all of one, beside a plain Spark recompute": "<= 1.2",
        "Q3: replay-minimal of one, beside Spark that reads just its windows": "<= 4",
        "Q3: replay-minimal of one, ten times the archive": "<= 1.2",
        "Q3: replay-minimal of one": "< 80",
        "30 corrections in one sweep of Q1, beside a plain Spark recompute": "<= 1.5",
        "one correction by direct adjustment, beside a commit and a trivial Spark job": "<= 2",
        "one correction by direct adjustment": "< 30",
        "a sweep that finds nothing": "< 200",
    }


def test_every_part_draws_and_tells_what_it_found(outcome: Outcome) -> None:
    assert [each.name for each in outcome.pictures] == ["table-3", "figure-8", "many", "peers"]
    grids = {each.name: each for each in outcome.grids}
    assert list(grids) == ["table-3-Q1", "table-3-ratios", "figure-8", "one", "peers"]
    assert list(grids["table-3-Q1"].rows) == ["MOD, seconds", "MOD, the paper's minutes"]
    assert list(grids["peers"].rows) == ["140,000 rows"]
    opened, compared = grids["one"].rows["Q3"][-2:]
    # A quote counts in five windows of five minutes, each of which is compared with the minute that ends with it.
    assert compared == 5
    assert opened > 0


def test_the_papers_amounts_and_ten_times_them_are_asked_for() -> None:
    assert set(AMOUNTS) == set(Scale)
    assert set(bench.PARTS["replay"]) == set(PARTS) == set(replay.PARTS)
    paper, ten = AMOUNTS[Scale.PAPER], AMOUNTS[Scale.TEN]
    assert paper.table.day.rows == 17_280_000
    assert paper.table.mixes == MIXES == {"LOW": 1, "MOD": 2, "HIGH": 10}
    assert [each.rows for each in paper.peers.stretches] == [1_000_000, 17_280_000]
    assert [each.rows for each in ten.peers.stretches] == [1_000_000, 17_280_000, 172_800_000]
    assert ten.one.tenth.rows == 17_280_000
    assert ten.peers.ahead
    assert not paper.peers.ahead
    assert paper.many.corrections == ten.many.corrections == 10_000


def test_what_is_corrected_lies_in_closed_windows_of_the_last_23_hours() -> None:
    two_days = Stretch(0, 34_560_000)
    rows = two_days.picked(1_000)
    assert len(np.unique(rows)) == 1_000
    assert rows.min() >= 34_560_000 - 16_560_000
    assert rows.max() < 34_560_000 - OPEN
    assert OPEN // 200 > 5 * MINUTE // SECOND


def test_signals_are_corrected_by_quotes_of_ibm() -> None:
    rows = Q3.rows(np.array([0, 12_345, 99_999]))
    assert [FEED.names[number] for number in FEED.rows_at(rows).symbol] == ["IBM"] * 3
    assert (rows // 200).tolist() == [0, 61, 499]
    assert Q1.rows(rows) is rows


@pytest.mark.parametrize(
    ("asked", "before", "after"), [(Q1, 3 * MINUTE, 2 * MINUTE), (Q2, 4 * MINUTE, 5 * MINUTE)], ids=["Q1", "Q2"]
)
def test_windows_that_a_quote_touches(asked: Asked, before: int, after: int) -> None:
    minute = 63 * MINUTE
    window = asked.window(minute + 20 * SECOND)
    assert (window.start, window.end) == (minute - before, minute + after)


def test_ratios_of_the_paper_stand_beside_ours() -> None:
    assert paper_ratio(Q1, "HIGH") == pytest.approx(20.77 / 0.44)
    assert all(set(mixes) == set(MIXES) for mixes in PAPER.values())
    held = TableAmounts(FEW, 1, 1, 1, mixes={"LOW": 1}, at_least=20)
    cells = {(q, "LOW", of): Cell(1, seconds) for q in ("Q1", "Q2", "Q3") for of, seconds in (("RA", 10), ("RM", 1))}
    told = metrics(held, Found(cells, {}))
    assert [(each.value, each.goal, each.holds) for each in told] == [
        (10, ">= 20", False),
        (10, ">= 20", False),
        (10, None, None),
    ]


def test_goals_are_held_against_ratios_of_the_same_round() -> None:
    times = Timings({"all": [1.0], "recompute": [1.0], "minimal": [0.9], "windows": [0.2], "tenth": [0.5]})
    assert [each.holds for each in one_metrics(Q1, times)] == [True, False, False, False]
    flows = Timings({"revisions": [2.0, 3.0, 2.2], "bare": [2.0] * 3, "stateless": [1.0] * 3})
    assert [(each.value, each.holds) for each in overhead_metrics("Q1", flows)] == [
        (pytest.approx(1.1), True),
        (pytest.approx(2.2), None),
    ]
    direct = Timings({"direct": [0.3], "adjusted": [0.2], "trivial": [0.1], "commit": [0.02], "nothing": [0.21]})
    told = direct_metrics(direct)
    assert told[0].value == pytest.approx(2.5)
    assert [each.holds for each in told] == [False, None, False, None, None, False]


def test_where_lines_cross() -> None:
    # Ours stays, theirs grows tenfold with the rows: from half of ours to five times as long.
    assert crossing([1_000, 10_000], [1.0, 1.0], [0.5, 5.0]) == pytest.approx(2_000)
    assert crossing([1_000, 10_000], [1.0, 1.0], [2.0, 5.0]) is None
    assert crossing([1_000, 10_000], [1.0, 1.0], [0.1, 0.9]) is None


def test_signals_of_equal_averages_may_be_either() -> None:
    def answer(*signals: str) -> pa.Table:
        moments = pa.array([MINUTE * number for number in range(1, len(signals) + 1)], pa.timestamp("us", "UTC"))
        return pa.table({"time": moments, "symbol": ["IBM"] * len(signals), "signal": list(signals)})

    check_same("signals", answer("SELL", "BUY"), answer("EITHER", "BUY"))
    for theirs in (answer("EITHER", "SELL"), answer("EITHER", "BUY", "BUY"), answer("EITHER")):
        with pytest.raises(AssertionError, match="signals are not the same"):
            check_same("signals", answer("SELL", "BUY"), theirs)


def test_what_is_prepared_is_not_timed() -> None:
    order: list[tuple[str, int]] = []
    first = Contender(lambda number: order.append(("first", number)), lambda number: order.append(("prepare", number)))
    second = Contender(lambda number: order.append(("second", number)))
    times = in_turns(1, {"first": first, "second": second}, warm_up=1)
    assert order == [("prepare", 0), ("first", 0), ("second", 0), ("second", 1), ("prepare", 1), ("first", 1)]
    assert [len(each) for each in times.seconds.values()] == [1, 1]


def test_parts_and_scales_are_told_apart(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is small, paper"):
        bench.run("ingest", "ten", tmp_path)
    with pytest.raises(UsageError, match="did you mean peers"):
        bench.run("replay", "small", tmp_path, only=["pears"])
    with pytest.raises(UsageError, match="unknown part 'peers'"):
        bench.run("ingest", "small", tmp_path, only=["peers"])
