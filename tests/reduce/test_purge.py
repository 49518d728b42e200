"""Purging: exact rows age out, and reduced answers stay what they were, as far as the copies that remain have them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from errata.archive.scan_plan import ArchiveScan, candidate_buckets
from errata.archive.scan_reading import scan_reading
from errata.archive.upkeep.ageing import age_out
from errata.archive.upkeep.retention import RetentionHold
from errata.catalog import commits
from errata.errors import UsageError
from errata.model.batch import Op
from errata.model.bucket import Bucket, Layout, Role
from errata.model.reduction import OnReadCopies, ReducedArchives, SamplingRates, uniform_rates
from errata.model.stream import Retention
from errata.model.time import HIGHEST, LOWEST
from errata.reduce import purge as flow
from errata.reduce import requests
from errata.reduce.copies import vacuum_copies
from errata.reduce.purge import PurgeReport, plan_purge, purge_originals, purge_place
from errata.reduce.versions import BucketVersions
from fixtures.flows import Builder, House
from fixtures.layers import Layers, a_row, compacted, key, layers, plain
from fixtures.oracle.revision import Row
from fixtures.reduced import a_base, a_copy, check_inline_bytes, expected_sample, reduced_scan, sampled

PURGED = ReducedArchives(on_read=OnReadCopies(purge_after=0))
INSERT, REPLACE, DELETE = Op.INSERT, Op.REPLACE, Op.DELETE
RATES = (0.05, 0.25, 0.5)


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    builder = Builder(tmp_path)
    yield builder(plain("first"))
    builder.close()


def rows_at(low: int, count: int) -> list[Row]:
    return [a_row(at, who) for at in range(low, low + count) for who in "ab"]


def three_buckets(house: House, reduced: ReducedArchives = PURGED, **declared: object) -> Layers:
    """Rows at 0 to 300 in three buckets, with a stable point behind them all but the last."""
    done = layers(house, plain(bucket_rows=200, slack=10, reduced=reduced, **declared))
    done.bring(rows_at(0, 100), rows_at(100, 100), rows_at(200, 100))
    return done


def ask(done: Layers, *rates: float) -> None:
    for rate in rates:
        requests.record(done.house.site, done.standing.stream_id, uniform_rates(rate))
    vacuum_copies(done.house.site, done.name)


def purged(done: Layers) -> PurgeReport:
    planned = plan_purge(done.house.site, done.name)
    report = purge_originals(done.house.site, done.name)
    assert (planned.buckets, planned.bytes, planned.purged_to) == (report.buckets, report.bytes, report.purged_to)
    assert plan_purge(done.house.site, done.name).purged_to is None
    check_inline_bytes(done)
    assert done.standing.rows == len(done.seen())
    return report


def remains(done: Layers) -> list[Bucket]:
    at = commits.newest_commit(done.house.catalog)
    return [each for each in done.stored(Role.COPY, at) if each.original is None]


def test_a_key_without_the_order_field_is_not_purged() -> None:
    with pytest.raises(UsageError, match="purge_after needs a key with the order field"):
        plain(key=("who",), reduced=PURGED)


def test_originals_go_and_samples_stay(house: House) -> None:
    done = three_buckets(house)
    ask(done, 0.5)
    rates = [uniform_rates(rate) for rate in (0.1, 0.5)]
    before, then = [sampled(done, each) for each in rates], commits.newest_commit(house.catalog)
    exact = len(done.seen())
    report = purged(done)
    assert (report.buckets, report.purged_to, done.standing.aged_to) == (2, 200, 200)
    assert {each.resolution.rate for each in remains(done)} == {0.5}
    assert [sampled(done, each) for each in rates] == before
    assert {row["at"] for row in done.seen()} == set(range(200, 300)), "exact rows have aged out"
    assert [sampled(done, each, then) for each in rates] == before
    assert len(done.seen(then)) == exact
    assert report.remaining_bytes == sum(each.size for each in remains(done)) < report.bytes


def test_a_rate_above_that_of_the_remains_reads_what_there_is(house: House) -> None:
    done = three_buckets(house)
    ask(done, 0.1)
    tenth = sampled(done, uniform_rates(0.1))
    purged(done)
    found = sampled(done, uniform_rates(0.5))
    assert [row for row in found if row["at"] < 200] == [row for row in tenth if row["at"] < 200]
    assert [row for row in found if row["at"] >= 200] == expected_sample(done, uniform_rates(0.5))


def test_rates_above_a_limit_are_lowered_to_it() -> None:
    steps = SamplingRates((LOWEST, 5), (0.1, 0.5), label="by_age")
    assert steps.at_most(0.25) == replace(steps, rates=(0.1, 0.25))
    values = SamplingRates(rates=(0.1,), column="who", by_value={"a": 1.0})
    assert values.at_most(0.05) == replace(values, rates=(0.05,), by_value={"a": 0.05})


def test_corrections_are_worked_in_and_later_ones_come_too_late(house: House) -> None:
    done = three_buckets(house)
    done.correct(
        (REPLACE, a_row(3, price=7.0), {}),
        (DELETE, key(4), {}),
        (INSERT, a_row(5, "c"), {}),
        (REPLACE, a_row(150, price=8.0), {}),
        (REPLACE, a_row(250, price=9.0), {}),
    )
    done.correct((REPLACE, a_row(3, price=7.5), {}))
    ask(done, 0.99)
    before = sampled(done, uniform_rates(0.99))
    assert {7.5, 8.0, 9.0} <= {row["price"] for row in before}, "the sample has what is looked at here"
    purged(done)
    assert sampled(done, uniform_rates(0.99)) == before
    done.correct((REPLACE, a_row(3, price=1.5), {}), (REPLACE, a_row(250, price=9.5), {}))
    after = sampled(done, uniform_rates(0.99))
    assert [row for row in after if row["at"] < 200] == [row for row in before if row["at"] < 200]
    assert 9.5 in {row["price"] for row in after}


def test_only_what_has_a_copy_is_purged(house: House) -> None:
    done = three_buckets(house)
    requests.record(
        house.site, done.standing.stream_id, SamplingRates((LOWEST, 100), (0.1, 1.0), label="by_age(100, 0.1)")
    )
    vacuum_copies(house.site, done.name)
    assert purged(done).purged_to == 100
    assert purged(done).commits == []


def test_nothing_is_purged_that_is_younger_or_undeclared(house: House) -> None:
    young = ReducedArchives(on_read=OnReadCopies(purge_after=150))
    done = three_buckets(house, young)
    ask(done, 0.1)
    assert done.standing.stable == 289
    assert purged(done).purged_to == 100
    for reduced in (ReducedArchives(on_read=OnReadCopies()), ReducedArchives(copies=(0.5,))):
        other = three_buckets(house, reduced)
        ask(other, 0.1)
        assert purged(other).commits == []


def test_rows_that_a_query_has_still_to_read_stay(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    done = three_buckets(house)
    ask(done, 0.1)
    monkeypatch.setattr(flow, "oldest_hold", lambda *_: RetentionHold("totals", 150))
    report = purge_originals(house.site, done.name)
    assert (report.purged_to, report.held_by) == (100, "totals")


def test_portions_are_purged_one_after_the_other(house: House) -> None:
    done = three_buckets(house)
    ask(done, 0.5)
    before = sampled(done, uniform_rates(0.5))
    report = purge_originals(house.site, done.name, batch_bytes=1)
    assert (len(report.commits), report.buckets, report.purged_to) == (2, 2, 200)
    assert sampled(done, uniform_rates(0.5)) == before


def test_remains_leave_at_the_end_of_the_retention(house: House) -> None:
    done = three_buckets(house, retention=Retention(span=1_000))
    ask(done, 0.5)
    purge_originals(house.site, done.name, batch_bytes=1)
    assert len(remains(done)) == 2
    assert age_out(house.site, [done.name])[0].commit_id is None
    done.bring(rows_at(1_130, 10))
    (report,) = age_out(house.site, [done.name])
    assert report.commit_id is not None
    assert (report.rows, done.standing.aged_to) == (0, 200)
    assert {row["at"] // 100 for row in sampled(done, uniform_rates(0.5))} == {1, 2, 11}
    check_inline_bytes(done)


def test_a_reading_says_what_remained(house: House) -> None:
    done = three_buckets(house)
    ask(done, 0.1)
    purged(done)
    scan = reduced_scan(done, uniform_rates(0.5))
    found = candidate_buckets(house.catalog, scan)
    read = {each.version: each.size for each in scan_reading([found]).versions}
    assert read["remains at 10%"] == sum(each.size for each in remains(done))
    exact = candidate_buckets(house.catalog, ArchiveScan(scan.state, scan.commit_id))
    assert exact.remains == ()


# Places.


def a_version(low: int, high: int, rate: float | None) -> BucketVersions:
    base = replace(a_base(1, low, high), size=100)
    return BucketVersions(base, () if rate is None else (a_copy(2, base, rate),))


def place_by_trying(versions: list[BucketVersions], limit: int, most: int) -> int | None:
    """Every place is tried, from the last: nothing without a copy before it, and not too much to read."""
    found = None
    for place in range(limit + 1):
        whole = [each for each in versions if each.original.vs_max < place]
        ends_there = any(each.original.vs_max + 1 == place for each in whole)
        lacking = any(not each.copies and each.original.vs_min < place for each in versions)
        size = sum(each.copies[0].size for each in whole if each.copies)
        first = min((each.original.vs_max + 1 for each in whole), default=None)
        if ends_there and not lacking and (size <= most or place == first):
            found = place
    return found


def test_the_place_of_a_portion_is_the_last_that_is_possible(chance: random.Random) -> None:
    for _ in range(500):
        ends = chance.sample(range(30), chance.randrange(7))
        versions = [
            a_version(chance.randrange(end + 1), end, chance.choice((0.1, 0.5, 0.5, 0.5, None))) for end in ends
        ]
        limit, most = chance.randrange(35), chance.choice((20, 60, 120, HIGHEST))
        assert purge_place(versions, limit, most) == place_by_trying(versions, limit, most), (versions, limit, most)


# Histories.


@pytest.mark.parametrize("layout", [Layout.BUCKETS, Layout.GROUPED, Layout.CLUSTERED, Layout.PLAIN])
def test_purging_at_any_moment_changes_no_reduced_answer(house: House, chance: random.Random, layout: Layout) -> None:
    """What has been read at a rate can be read at that rate ever after, but for corrections that still come in time."""
    reduced = ReducedArchives((0.5,), OnReadCopies(purge_after=chance.choice((0, 15))))
    done = layers(house, plain(bucket_rows=10, slack=15, layout=layout, reduced=reduced), inline=chance.random() < 0.5)
    known: dict[float, list[Row]] = {}
    for step in range(7):
        start = 10 * step
        done.bring(*([a_row(at, who) for at in range(low, low + 5) for who in "ab"] for low in (start, start + 5)))
        for _ in range(chance.randrange(3)):
            row = chance.choice(done.seen())
            named = {name: row[name] for name in done.stream.key}
            op = chance.choice((REPLACE, DELETE))
            done.correct((op, named if op is DELETE else {**row, "price": chance.random()}, {}))
        if chance.random() < 0.3:
            compacted(done, everything=True)
        if chance.random() < 0.5:
            ask(done, chance.choice((0.1, 0.25)))
        vacuum_copies(house.site, done.name)
        before = {rate: sampled(done, uniform_rates(rate)) for rate in RATES}
        aged_to = done.standing.aged_to
        for rate, rows in before.items():
            past = [row for row in known.get(rate, ()) if aged_to is not None and row["at"] < aged_to]
            assert [row for row in rows if aged_to is not None and row["at"] < aged_to] == past
            present = [row for row in rows if aged_to is None or row["at"] >= aged_to]
            assert present == expected_sample(done, uniform_rates(rate))
        purged(done)
        assert {rate: sampled(done, uniform_rates(rate)) for rate in RATES} == before
        known = before
    assert done.standing.aged_to is not None, "something was purged"
