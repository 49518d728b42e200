"""The archive benchmark at a tiny scale: its figures come out, and what they are held against is what it says."""

import csv
import math
from pathlib import Path

import numpy as np
import pytest
from bench.archive import LAYOUTS, REVISIONS, figures
from bench.archive_day import Amounts
from bench.archive_layouts import (
    Kind,
    LayoutAmounts,
    Spent,
    arriving,
    grid,
    least_metrics,
    placed,
    turns,
)
from bench.archive_revisions import compaction_metrics, far_apart, few_metrics, many_metrics, scan_metrics
from bench.corrections import RATE, spread, write_corrections
from bench.measure import USUAL, Grid, Outcome, Picture, Scale, Timings
from bench.report import publish, stacked
from pyspark.sql import SparkSession

from errata.model.bucket import Layout

TINY = Amounts(day=24_000, bucket_rows=2_000, corrections=48, few=3, rounds=1, warm_up=0)
TINY_LAYOUTS = LayoutAmounts(
    day=24_000,
    more=4_000,
    sizes=(2_000, 4_000),
    mixes={"LOW": 1},
    window=5,
    rounds=1,
    warm_up=0,
    layouts=(Layout.PLAIN, Layout.BUCKETS),
)


@pytest.fixture(scope="module")
def outcome(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    return figures(TINY, TINY_LAYOUTS, tmp_path_factory.mktemp("archive"))


def test_every_figure_comes_out(outcome: Outcome) -> None:
    assert all(math.isfinite(metric.value) and metric.value >= 0 for metric in outcome.metrics)
    goals = {metric.metric: metric.goal for metric in outcome.metrics if metric.goal is not None}
    assert goals == {
        "48 corrections, beside a plain scan and an append of as many": "<= 1.5",
        "3 corrections in 3 buckets, beside 3 plain reads of a bucket and a commit": "<= 1",
        "3 corrections in one bucket, beside 3 plain reads of a bucket and a commit": "<= 1",
        "scan of 24,000 rows through 48 corrections": "<= 1.25",
        "the same after compaction": "<= 1.05",
        "corrections of one hour: buckets rewritten without need": "<= 0",
        "the same: buckets not rewritten that needed it": "<= 0",
        "compaction of the day, beside plain Spark that reads and writes it": "<= 1.5",
    }


def test_compaction_of_an_hour_rewrites_its_buckets_alone(outcome: Outcome) -> None:
    counted = {metric.metric: metric for metric in outcome.metrics if metric.unit == "buckets"}
    needless, missed, rewritten = (metric.value for metric in counted.values())
    assert (needless, missed) == (0, 0)
    assert 1 <= rewritten <= 2
    assert all(metric.holds is not False for metric in counted.values())


def test_pictures_and_grids_are_written(outcome: Outcome, tmp_path: Path) -> None:
    publish("archive", Scale.SMALL, outcome, tmp_path)
    for name in ("corrections", "figure-6", "figure-7"):
        assert (tmp_path / f"archive-{name}.svg").read_text().startswith("<?xml")
    sizes = (tmp_path / "archive-figure-7.svg").read_text()
    for words in ("LOW: 1 correction", "STP: rows", "RTP: corrections", "seconds", "buckets 2k", "buckets 4k"):
        assert words in sizes
    with (tmp_path / "archive-figure-7.csv").open(newline="") as file:
        header, *rows = csv.reader(file)
    assert header == ["", "LOW STP", "LOW RTP", "LOW COM"]
    assert [row[0] for row in rows] == ["buckets 2k", "buckets 4k"]
    for _, *told in rows:
        standard, revision, complete = map(float, told)
        assert min(standard, revision) > 0
        assert complete == pytest.approx(standard + revision)
    with (tmp_path / "archive-figure-6.csv").open(newline="") as file:
        assert [row[0] for row in csv.reader(file)] == ["", "plain 2k", "buckets 2k"]


def test_goals_are_held_against_ratios_of_the_same_round() -> None:
    many = many_metrics(TINY, Timings({"correct": [3.0, 9.0], "scan": [1.0, 2.0], "append": [1.0, 2.0]}))
    assert (many[0].value, many[0].holds) == (1.875, False)
    seconds = {"apart": [1.4], "together": [0.7], "apply_apart": [0.7], "apply_together": [0.35]}
    few = few_metrics(TINY, Timings({**seconds, "read": [0.4], "commit": [0.2]}))
    assert [metric.value for metric in few[:2]] == pytest.approx([1.0, 0.5])
    assert [few[3].value, few[3].holds] == [pytest.approx(0.5), True]
    scans = scan_metrics(TINY, *(Timings({"now": [now], "before": [1.0]}) for now in (1.2, 1.1)), 1.0)
    assert [metric.holds for metric in scans[:2]] == [True, False]
    assert compaction_metrics(Timings({"compact": [1.6], "spark": [1.0]}))[0].holds is False


def test_corrections_are_spread_and_quote_what_they_replace(tmp_path: Path) -> None:
    rows = spread(1_500, 600, 6_600)
    assert [number // 4 for number in rows - 600] == list(range(1_500))
    corrections = write_corrections(rows[:1_200], tmp_path / "corrections.jsonl")
    lines = corrections.file.read_text().splitlines()
    assert len(lines) == len(corrections.rows) == 1_200
    assert (corrections.rows.cents > corrections.old).all()
    assert f'"_old_price":{corrections.old[7] / 100}' in lines[7]
    assert corrections.change == pytest.approx((corrections.rows.cents.sum() - corrections.old.sum()) / 100)


def test_a_batch_is_closed_before_a_correction(tmp_path: Path) -> None:
    amounts = LayoutAmounts(day=24_000, more=5_000, sizes=(1_000,), mixes={"MOD": 2}, window=5, rounds=1)
    steps = arriving(amounts, "MOD", 1_000, tmp_path)
    before = []
    rows = 0
    for step in steps:
        if step.rows is not None:
            begun = int(step.rows.stem.removeprefix("quotes-"))
            assert begun == amounts.day + rows
            following = [int(each.stem.removeprefix("quotes-")) for each in tmp_path.glob("quotes-*")]
            size = min([each for each in following if each > begun], default=amounts.day + amounts.more) - begun
            assert size <= 1_000
            rows += size
        else:
            before.append(rows)
    assert rows == amounts.more
    assert before == [place for place, _ in placed(amounts, "MOD")]


@pytest.mark.parametrize("scale", USUAL)
def test_what_is_replayed_has_arrived_and_is_still_there(scale: Scale) -> None:
    amounts = LAYOUTS[scale]
    for mix, count in amounts.mixes.items():
        found = placed(amounts, mix)
        assert len(found) == count
        for place, row in found:
            start = row // RATE // amounts.window * amounts.window * RATE
            assert place < start
            assert start + amounts.window * RATE <= amounts.day + place


@pytest.mark.parametrize("scale", USUAL)
def test_a_few_corrections_are_in_buckets_of_their_own(scale: Scale) -> None:
    amounts = REVISIONS[scale]
    assert len(np.unique(far_apart(amounts) // amounts.bucket_rows)) == amounts.few


def test_the_least_completion_time_is_found_and_the_default_told_beside_it() -> None:
    fine, coarse, grouped = Kind(Layout.BUCKETS, 2_000), Kind(Layout.BUCKETS, 4_000), Kind(Layout.GROUPED, 2_000)
    found = {(fine, "LOW"): Spent(2.0, 1.0), (coarse, "LOW"): Spent(1.0, 3.0), (grouped, "LOW"): Spent(4.0, 0.5)}
    least, default = least_metrics(TINY_LAYOUTS, [fine, coarse, grouped], found)
    assert (least.metric, least.value) == ("least completion time at LOW: buckets 2k", 3.0)
    assert (default.metric, default.value) == ("buckets 4k beside it", pytest.approx(4 / 3))
    assert grid("g", "t", [grouped], TINY_LAYOUTS, found) == Grid(
        "g", "t: seconds for 4,000 rows", ["LOW STP", "LOW RTP", "LOW COM"], {"grouped 2k": [4.0, 0.5, 4.5]}
    )


def test_who_goes_first_changes_and_one_warms_up() -> None:
    amounts = LayoutAmounts(day=1, more=1, sizes=(1,), mixes={}, window=1, rounds=2, warm_up=1)
    pair = [(Kind(Layout.BUCKETS, 1), "LOW"), (Kind(Layout.BUCKETS, 1), "HIGH")]
    assert [list(turns(pair, number, amounts)) for number in range(3)] == [pair[1:], pair[::-1], pair]


def test_bars_are_labelled_with_their_sum(tmp_path: Path) -> None:
    def draw(axes: object) -> None:
        stacked(axes, {"ours": (1.25, 1.5), "theirs": (3.0, 1.0)}, ("STP", "RTP"), "seconds")

    publish("toy", Scale.SMALL, Outcome([], [Picture("sums", "Sums", [draw, draw])]), tmp_path)
    svg = (tmp_path / "toy-sums.svg").read_text()
    assert svg.count(">2.75<") == 2
    assert svg.count(">ours<") == 2
