"""What a scan demands of an engine."""

from __future__ import annotations

from dataclasses import replace

import pytest

from errata.archive.scan_plan import ArchiveScan, candidate_buckets
from errata.archive.scan_reading import MAX_BLOCK_VALUES, scan_demand
from errata.engine.budget import EngineKind, NearBudget, choose_engine
from errata.model.bucket import Layout
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
