"""What purging has left, read by an engine: at the rate asked for or its own, each row with the rate that it has."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from errata.archive.scan import scan_rows
from errata.archive.scan_plan import ArchiveScan, candidate_buckets
from errata.engine.frames import fetch_rows
from errata.model.batch import Op
from errata.model.reduction import OnReadCopies, ReducedArchives, SamplingRates, uniform_rates
from errata.model.time import LOWEST, Interval
from errata.reduce import copies, purge, requests
from errata.reduce.copies import vacuum_copies
from errata.reduce.purge import purge_originals
from fixtures.layers import Layers, Make, a_row
from fixtures.reduced import in_text_order, reduced_scan, sampled

RATES = (
    uniform_rates(0.1),
    uniform_rates(0.8),
    SamplingRates((LOWEST, 60, 150), (0.3, 0.9, 1.0), label="by_age"),
    SamplingRates(rates=(0.2,), column="who", by_value={"a": 1.0}),
)

HALF = uniform_rates(0.5)


def purged(make: Make, *, inline: bool = True) -> Layers:
    """Places before 200 have only a sample left: at 25% before 100, at 50% from there on."""
    reduced = ReducedArchives(on_read=OnReadCopies(purge_after=0))
    done = make(bucket_rows=200, slack=10, reduced=reduced, inline=inline)
    done.bring(*([a_row(at, who) for at in range(low, low + 100) for who in "ab"] for low in (0, 100, 200)))
    done.correct((Op.REPLACE, a_row(3, price=7.0), {}), (Op.REPLACE, a_row(250, price=8.0), {}))
    asked = SamplingRates((LOWEST, 100), (0.25, 0.5), label="by_age")
    requests.record(done.house.site, done.standing.stream_id, asked)
    vacuum_copies(done.house.site, done.name)
    assert purge_originals(done.house.site, done.name).purged_to == 200
    return done


@pytest.mark.parametrize("rates", RATES, ids=lambda rates: rates.label or "by_value")
def test_a_scan_reads_what_remains_with_the_rate_of_each_row(
    make: Make, near: SparkSession, rates: SamplingRates
) -> None:
    check_remains(purged(make), near, rates)


def test_so_it_is_on_spark(make: Make, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (copies, purge):
        monkeypatch.setattr(module, "MAX_INLINE_STREAM_BYTES", 0)
    done = purged(make, inline=False)
    assert all(
        each.path is not None for each in candidate_buckets(done.house.catalog, reduced_scan(done, HALF)).remains
    )
    for rates in RATES:
        check_remains(done, spark, rates)


def check_remains(done: Layers, session: SparkSession, rates: SamplingRates) -> None:
    site, scan = done.house.site, reduced_scan(done, rates)
    read = fetch_rows(scan_rows(session, site.catalog, site.warehouse, scan, with_rate=True))
    assert in_text_order(done.stream, read.select(list(done.stream.names))) == sampled(done, rates)
    for row in read.select(["at", "who", "_rate"]).to_pylist():
        asked = rates.by_value.get(row["who"], rates.rates[0]) if rates.column else rates.rate_at(row["at"])
        left = 0.25 if row["at"] < 100 else 0.5 if row["at"] < 200 else 1.0
        assert row["_rate"] in (min(asked, left), min(asked, 0.5)), "rows of corrections remain at the greatest rate"


def test_an_interval_and_an_exact_scan(make: Make, either: SparkSession) -> None:
    done = purged(make)
    site, scan = done.house.site, reduced_scan(done, HALF)
    part = ArchiveScan(scan.state, scan.commit_id, Interval(50, 220), rates=scan.rates)
    read = fetch_rows(scan_rows(either, site.catalog, site.warehouse, part))
    whole = [row for row in sampled(done, HALF) if 50 <= row["at"] < 220]
    assert in_text_order(done.stream, read) == whole
    exact = ArchiveScan(scan.state, scan.commit_id)
    assert candidate_buckets(site.catalog, exact).remains == ()
    rows = fetch_rows(scan_rows(either, site.catalog, site.warehouse, exact))
    assert min(rows["at"].to_pylist()) == 200
