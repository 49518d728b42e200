"""The benchmark of reduced archives: its predictions are the paper's, its feed is as said, and at a tiny scale every
figure comes out."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from bench.measure import Outcome
from bench.reduction import AMOUNTS
from bench.reduction_costs import Costs, Mechanism, next_finer
from bench.reduction_insertion import InsertionAmounts, insertion_figures
from bench.reduction_peers import deleted_rows, wrong_rows
from bench.reduction_reads import FIRST, VACUUMED, ReadAmounts, read_figures
from bench.reduction_workload import COPIES, METHODS, ON_READ, RANDOMISED, RUNS, STRAWMAN, rows, write_feed
from pyspark.sql import SparkSession

from errata.archive.sampling import last_hash, sampling_hashes

PAPER = Costs()


def test_writing_costs_what_figure_9_shows() -> None:
    assert PAPER.blocks == 108_000
    seconds = {mechanism: PAPER.insert_seconds(mechanism) for mechanism in Mechanism}
    # The eager copies together are twice the stream, so three times is written; the lazy one writes two after vacuum.
    assert seconds.pop(Mechanism.COPIES) == pytest.approx(3 * 430)
    assert seconds.pop(Mechanism.VACUUMED) == 2 * 430
    assert set(seconds.values()) == {430.0}


def test_reading_costs_what_figure_10_shows() -> None:
    for reduction in (0.0, 0.25, 0.5, 0.75, 0.9, 0.99):
        assert PAPER.read_seconds(Mechanism.STRAWMAN, reduction) == 20.0
        assert PAPER.read_seconds(Mechanism.SECOND_READ, reduction) == 20.0
        assert PAPER.read_seconds(Mechanism.FIRST_READ, reduction) == (20.0 if reduction == 0 else 40.0)
        ideal = 20.0 * (1 - reduction)
        assert PAPER.read_seconds(Mechanism.VACUUMED, reduction) == pytest.approx(ideal)
        assert PAPER.read_seconds(Mechanism.RANDOMISED, reduction) == pytest.approx(ideal)


def test_copies_cost_a_step_function_of_the_reduction() -> None:
    steps = {0.0: 20, 0.1: 20, 0.2: 16, 0.3: 16, 0.4: 12, 0.5: 12, 0.6: 8, 0.75: 8, 0.8: 4, 0.99: 4}
    found = {each: PAPER.read_seconds(Mechanism.COPIES, each) for each in steps}
    assert found == pytest.approx(steps)
    assert next_finer((0.5,), 0.5) == 0.5
    assert next_finer((0.5,), 0.500001) == 1.0


@pytest.mark.parametrize(("run", "blocks"), [(10, 10_800), (100, 1_080), (500, 1_080)])
def test_of_each_run_whole_blocks_are_read(run: int, blocks: int) -> None:
    assert Costs(run=run).reads(Mechanism.RANDOMISED, 0.99) == pytest.approx(blocks)


def test_a_run_of_blocks_is_a_bucket_of_as_many_rows() -> None:
    assert {run: method.bucket_rows for run, method in RUNS.items()} == {10: 1_850, 100: 18_500, 500: 92_500}
    assert {method.bucket_rows for method in METHODS if method not in RUNS.values()} == {500_000}


def test_rows_come_in_order_and_are_the_same_each_time(tmp_path: Path) -> None:
    some = rows(1_000, 5_000)
    times = some["time"].cast(pa.int64()).to_numpy()
    assert (np.diff(times) > 0).all()
    assert (times[-1] - times[0]) / 4_999 == pytest.approx(20, abs=0.1)
    assert some.equals(rows(1_000, 5_000))
    files = write_feed(tmp_path, 1_200_000)
    assert [pa.parquet.read_metadata(file).num_rows for file in files] == [500_000, 500_000, 200_000]


def test_a_sample_with_a_row_too_many_or_too_few_is_wrong() -> None:
    exact = rows(0, 20_000)
    right = exact.filter(pa.array(sampling_hashes(exact, exact.column_names) <= last_hash(0.1)))
    assert wrong_rows(right, exact, 0.1) == 0
    assert wrong_rows(right.slice(3), exact, 0.1) == 3
    assert wrong_rows(pa.concat_tables([right, deleted_rows(40_000).slice(300)]), exact, 0.1) == 100


def test_small_and_paper_scale_measure_the_same_things() -> None:
    small, paper = AMOUNTS.values()
    assert small.insertion.methods == paper.insertion.methods == METHODS
    assert paper.reads.rows == paper.peers.rows == 20_000_000
    assert small.reads.reductions == paper.reads.reductions
    assert set(small.beside.methods) < set(paper.beside.methods)


@pytest.fixture(scope="module")
def reads(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    amounts = ReadAmounts(rows=60_000, rounds=1, warm_up=0, reductions=(0.0, 0.5, 0.99), runs=(100,))
    return read_figures(amounts, tmp_path_factory.mktemp("reads") / "reads")


def test_every_version_that_is_read_has_its_share_of_the_bytes(reads: Outcome) -> None:
    grid = {each.name: each for each in reads.grids}["figure12-bytes"]
    exact, half, least = grid.rows[f"{STRAWMAN.name}: measured"]
    assert exact == half == least == 1
    for name in (RANDOMISED.name, VACUUMED):
        exact, half, least = grid.rows[f"{name}: measured"]
        assert 0.35 < half < 0.65
        assert 0 < least < 0.15
    assert 0.5 < grid.rows[f"{COPIES.name}: measured"][1] < 0.75
    assert grid.rows[f"{FIRST}: measured"] == [1, 1, 1]
    assert grid.rows[f"{RANDOMISED.name}: predicted"] == pytest.approx([1, 0.5, 0.01])


def test_predictions_stand_beside_measurements(reads: Outcome) -> None:
    for grid in reads.grids:
        assert all(math.isfinite(value) and value >= 0 for values in grid.rows.values() for value in values)
    assert {each.name for each in reads.grids} == {"figure10", "figure12", "figure12-bytes"}
    goals = {metric.metric: metric.goal for metric in reads.metrics if metric.goal}
    assert goals == {
        "bytes at 50%: randomise then sort, beside the ideal share": "<= 1.15",
        "bytes at 50%: modify on read, after vacuum, beside the ideal share": "<= 1.15",
        "bytes at 50%: copies on write, beside the next finer copy's": "<= 1.15",
        "bytes at 99%: randomise then sort, beside the ideal share": "<= 1.15",
        "bytes at 99%: modify on read, after vacuum, beside the ideal share": "<= 1.15",
        "bytes at 99%: copies on write, beside the next finer copy's": "<= 1.15",
    }


def test_insertion_is_measured_beside_the_strawman(spark: SparkSession, tmp_path: Path) -> None:
    amounts = InsertionAmounts(20_000, rounds=1, warm_up=0, methods=(STRAWMAN, COPIES, ON_READ, RANDOMISED))
    found = insertion_figures(amounts, tmp_path / "insertion")
    (grid,) = found.grids
    assert grid.rows[STRAWMAN.name][:4] == [430, 1, 1, 1]
    assert grid.rows[COPIES.name][1] == pytest.approx(3)
    assert 2 < grid.rows[COPIES.name][3] < 4
    assert grid.rows[ON_READ.name][3] == pytest.approx(1, abs=0.01)
    assert {metric.goal for metric in found.metrics} == {None, "<= 2", "<= 1.02", "<= 1.1"}
