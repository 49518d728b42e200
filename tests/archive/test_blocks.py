"""Files in blocks: a sample at any rate is in the first row groups, which hold little else."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from errata.archive.blocks import (
    BLOCK,
    CUTS,
    block_numbers,
    cuts_of,
    last_block,
    randomized_bytes,
    read_rate,
    wanted_row_groups,
)
from errata.archive.bucket_files import POS, parquet_bytes
from errata.archive.sampling import last_hash, sampling_hashes
from errata.archive.scan import scan_rows
from errata.archive.scan_plan import ArchiveScan, candidate_buckets
from errata.archive.scan_reading import scan_demand, scan_reading
from errata.engine.frames import fetch_rows
from errata.model.bucket import Layout
from errata.model.reduction import ReducedArchives, SamplingRates, uniform_rates
from errata.model.time import HIGHEST, LOWEST
from fixtures.layers import Layers, Make, a_row

RATES = st.floats(0.0001, 1)
MAIN = (0.01, 0.1, 0.25, 0.5)
TARGET = 1.15
"""Times the ideal share that a sample may read, at the main rates."""


def test_cuts_ascend_by_a_tenth_at_most() -> None:
    assert list(CUTS) == sorted(set(CUTS))
    assert set(MAIN) <= set(CUTS)
    assert all(high / low <= 1.1 + 1e-9 for low, high in pairwise([*(each for each in CUTS if each >= 0.01), 1.0]))


@given(RATES, st.integers(0, 5_000_000))
def test_what_is_read_for_a_rate_is_the_next_cut_of_the_file(rate: float, rows: int) -> None:
    read = read_rate(rate, rows)
    assert read >= rate
    assert read == 1 or read in [CUTS[each] for each in cuts_of(rows)]
    assert not [each for each in MAIN if rate <= each < read]
    if rows >= 40_000 * len(CUTS) and rate >= 0.01:
        assert read <= 1.1 * rate + 1e-9


@given(RATES, st.integers(0, 2**32))
def test_a_sample_is_in_the_blocks_up_to_its_last(rate: float, seed: int) -> None:
    hashes = np.random.default_rng(seed).integers(LOWEST, HIGHEST, 300, endpoint=True)
    blocks = block_numbers(hashes)
    assert (blocks[hashes <= last_hash(rate)] <= last_block(rate)).all()
    exact = [cut for cut in CUTS if cut == rate] or [rate]
    assert all((hashes[blocks < last_block(each)] <= last_hash(each)).all() for each in exact)


def some_rows(count: int, seed: int = 0) -> pa.Table:
    chance = np.random.default_rng(seed)
    return pa.table(
        {
            "at": pa.array(np.sort(chance.integers(0, 10**9, count))).cast(pa.timestamp("us", "UTC")),
            "id": pa.array(np.arange(count)),
            "who": pa.array(chance.choice(["AAPL", "IBM", "ORCL", "MSFT"], count)),
            "price": pa.array(np.round(chance.normal(100, 5, count), 2)),
            POS: pa.array(np.arange(count)),
        }
    )


def in_blocks(rows: pa.Table) -> pq.ParquetFile:
    return pq.ParquetFile(pa.BufferReader(randomized_bytes(rows, (), sampling_hashes(rows, ["id"]))))


@pytest.mark.parametrize("count", [0, 1, 50, 5_000, 200_000])
def test_a_file_holds_its_rows_by_block_and_in_order_within(count: int) -> None:
    rows = some_rows(count)
    read = in_blocks(rows).read()
    assert read.drop_columns([BLOCK]).sort_by("id").cast(rows.schema).equals(rows)
    blocks = block_numbers(sampling_hashes(read, ["id"]))
    assert read[BLOCK].to_pylist() == blocks.tolist()
    order = np.lexsort((read["id"].to_numpy(), blocks))
    assert np.array_equal(order, np.arange(count))


@given(rate=RATES, count=st.sampled_from([100, 3_000]), seed=st.integers(0, 2**32))
def test_the_wanted_row_groups_have_the_sample_and_no_row_above_a_cut(rate: float, count: int, seed: int) -> None:
    file = in_blocks(some_rows(count, seed))
    wanted = wanted_row_groups(file.metadata, rate)
    assert wanted == list(range(len(wanted)))
    read, rest = (
        sampling_hashes(file.read_row_groups(groups), ["id"])
        for groups in (wanted, [each for each in range(file.num_row_groups) if each not in wanted])
    )
    assert not (rest <= last_hash(rate)).any()
    assert (read <= last_hash(read_rate(rate, count))).all()


def test_the_bytes_of_a_sample_are_near_the_ideal_share() -> None:
    """Of what a file of the ordinary layout has, with the footer, at the size of a bucket by default."""
    rows = some_rows(500_000)
    file, whole = in_blocks(rows), len(parquet_bytes(rows))
    for rate in MAIN:
        read = sum(
            file.metadata.row_group(group).column(column).total_compressed_size
            for group in wanted_row_groups(file.metadata, rate)
            for column in range(file.metadata.num_columns)
        )
        assert read + file.metadata.serialized_size <= TARGET * rate * whole, rate


# The scan: which versions it opens, on both engines.


@pytest.fixture(scope="module")
def wide(make: Make) -> Layers:
    """Two buckets in blocks, in files."""
    done = make(inline=False, layout=Layout.RANDOMIZED, bucket_rows=6_000, group=())
    done.bring([a_row(at, "abc"[at % 3]) for at in range(6_000)], [a_row(6_000 + at) for at in range(6_000)])
    return done


def reduced_scan(done: Layers, rates: SamplingRates | None) -> ArchiveScan:
    return ArchiveScan(done.standing, done.standing.changed_in, rates=rates)


@pytest.mark.parametrize(
    "rates", [uniform_rates(0.01), uniform_rates(0.3), SamplingRates((LOWEST, 6_000), (0.02, 0.5))]
)
def test_both_engines_read_the_sample_from_blocks(wide: Layers, either: SparkSession, rates: SamplingRates) -> None:
    site = wide.house.site
    scan = reduced_scan(wide, rates)
    found = candidate_buckets(site.catalog, scan)
    assert len(found.prefixes) == 2
    read = fetch_rows(scan_rows(either, site.catalog, site.warehouse, scan, found))
    exact = fetch_rows(scan_rows(either, site.catalog, site.warehouse, reduced_scan(wide, None)))
    hashes, places = sampling_hashes(exact, wide.stream.key), exact["at"].to_numpy()
    kept = np.array([number <= last_hash(rates.rate_at(at)) for number, at in zip(hashes, places, strict=True)])
    assert sorted(read["at"].to_pylist()) == sorted(places[kept].tolist())
    assert read.column_names == list(wide.stream.names)


def test_spark_leaves_out_row_groups_of_later_blocks(wide: Layers, spark: SparkSession) -> None:
    site = wide.house.site
    plan = scan_rows(spark, site.catalog, site.warehouse, reduced_scan(wide, uniform_rates(0.01)))
    text = plan._jdf.queryExecution().executedPlan().toString()
    assert f"LessThanOrEqual({BLOCK},{last_block(0.01)})" in text


def test_the_demand_is_what_is_really_read(wide: Layers) -> None:
    exact, tenth = (
        candidate_buckets(wide.house.catalog, reduced_scan(wide, rates)) for rates in (None, uniform_rates(0.1))
    )
    assert scan_demand(reduced_scan(wide, None), exact).rows == 12_000
    assert scan_demand(reduced_scan(wide, uniform_rates(0.1)), tenth).rows == 1_200
    reading = scan_reading([tenth])
    assert [(each.version, each.buckets) for each in reading.versions] == [("blocks to 10%", 2)]
    assert (reading.exact_rows, reading.saved_nothing) == (12_000, False)


def test_the_smallest_version_that_is_fine_enough_is_opened(make: Make) -> None:
    done = make(inline=False, bucket_rows=500, group=(), reduced=ReducedArchives((0.5, 0.1)))
    done.bring([a_row(at) for at in range(500)], [a_row(500 + at) for at in range(500)])
    for rates, versions in (
        (uniform_rates(0.05), {"copies at 10%": 2}),
        (uniform_rates(0.1), {"copies at 10%": 2}),
        (uniform_rates(0.11), {"copies at 50%": 2}),
        (uniform_rates(0.6), {"originals": 2}),
        (uniform_rates(1.0), {"originals": 2}),
        (SamplingRates((LOWEST, 500), (0.1, 1.0)), {"copies at 10%": 1, "originals": 1}),
        (SamplingRates(rates=(0.05,), column="who", by_value={"a": 0.4}), {"copies at 50%": 2}),
    ):
        found = candidate_buckets(done.house.catalog, reduced_scan(done, rates))
        assert {each.version: each.buckets for each in scan_reading([found]).versions} == versions


def test_the_block_of_each_hash_beside_a_cut_is_that_of_a_search() -> None:
    last = np.array([last_hash(each) for each in CUTS])
    chance = np.random.default_rng(5).integers(LOWEST, HIGHEST, 20_000, endpoint=True)
    hashes = np.concatenate([last - 1, last, last + 1, [LOWEST, HIGHEST], chance])
    assert (block_numbers(hashes) == np.searchsorted(last, hashes, side="left")).all()
