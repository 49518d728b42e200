"""What a scan demands of an engine."""

from __future__ import annotations

from dataclasses import replace

import pytest

from errata.archive.scan_plan import ArchiveScan, ScanBuckets, candidate_buckets
from errata.archive.scan_reading import MAX_BLOCK_VALUES, scan_demand
from errata.engine.budget import EngineKind, NearBudget, choose_engine
from errata.model.bucket import Layout
from errata.model.columns import Column, ColumnType
from errata.model.reduction import uniform_rates
from fixtures.layers import Make, a_row


@pytest.mark.parametrize(("share", "engine"), [(0.99, EngineKind.NEAR), (1.01, EngineKind.FAR)])
def test_more_blocks_than_near_is_handed_are_read_by_far(make: Make, share: float, engine: EngineKind) -> None:
    done = make(inline=False, layout=Layout.RANDOMIZED)
    done.bring([a_row(at) for at in range(100)])
    scan = ArchiveScan(done.standing, done.standing.changed_in, rates=uniform_rates(0.1))
    found = candidate_buckets(done.house.catalog, scan)
    (bucket,) = found.base
    rows = round(share * 10 * MAX_BLOCK_VALUES / len(done.stream.columns))
    large = replace(found, base=[replace(bucket, rows=rows)])
    demand = scan_demand(scan, large)
    assert demand.rows == pytest.approx(rows / 10, rel=0.01)
    assert choose_engine(demand, NearBudget()).engine is engine
    # Copies are files that near reads whole, and of which a sample has all rows.
    assert scan_demand(scan, replace(large, prefixes={})).obstacle is None


@pytest.mark.parametrize(
    ("price", "rate", "engine"),
    [
        ("decimal(38,6)", 0.1, EngineKind.FAR),
        ("decimal(38,6)", 1.0, EngineKind.NEAR),
        ("decimal(18,6)", 0.1, EngineKind.NEAR),
    ],
)
def test_a_sample_whose_hash_is_another_one_near_is_read_by_far(
    make: Make, price: str, rate: float, engine: EngineKind
) -> None:
    done = make()
    done.bring([a_row(1)])
    kinds = [Column("price", ColumnType.parse(price)) if each.name == "price" else each for each in done.stream.columns]
    stream = replace(done.stream, columns=tuple(kinds), key=(*done.stream.key, "price"))
    scan = ArchiveScan(replace(done.standing, stream=stream), done.standing.changed_in, rates=uniform_rates(rate))
    assert choose_engine(scan_demand(scan, ScanBuckets(done.stored())), NearBudget()).engine is engine
