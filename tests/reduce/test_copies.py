"""Copies made by vacuum: the writer's own, at the rates that readers asked for, and never a different answer."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from errata.archive.upkeep.ageing import age_out
from errata.archive.upkeep.vacuum import run_vacuum
from errata.catalog import buckets, commits
from errata.model.batch import Op
from errata.model.bucket import Bucket, Layout, Role
from errata.model.reduction import NO_REDUCTION, OnReadCopies, ReducedArchives, SamplingRates, uniform_rates
from errata.model.stream import Retention
from errata.model.time import DAY, LOWEST, Interval
from errata.reduce import copies as flow
from errata.reduce import requests
from errata.reduce.copies import vacuum_copies
from errata.reduce.copy_plan import CopyReport, plan_copies, planned_report
from errata.reduce.versions import VersionReason
from fixtures.flows import Builder, House
from fixtures.layers import Layers, a_row, compacted, key, layers, plain
from fixtures.oracle.revision import Row
from fixtures.reduced import check_inline_bytes, copies_of, expected_sample, sampled

ON_READ = ReducedArchives(on_read=OnReadCopies())
INSERT, REPLACE, DELETE = Op.INSERT, Op.REPLACE, Op.DELETE


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    builder = Builder(tmp_path)
    yield builder(plain("first"))
    builder.close()


def rows_at(low: int, count: int) -> list[Row]:
    return [a_row(at, who, note="x" * 20) for at in range(low, low + count) for who in "ab"]


def three_buckets(house: House, **declared: object) -> Layers:
    done = layers(house, plain(bucket_rows=200, **declared))
    done.bring(rows_at(0, 100), rows_at(100, 100), rows_at(200, 100))
    return done


def redeclare(done: Layers, reduced: ReducedArchives, **changes: object) -> None:
    done.stream = replace(done.stream, reduced=reduced, **changes)
    done.house.declare(done.stream)


def ask(done: Layers, rate: float | SamplingRates, times: int = 1, interval: Interval | None = None) -> None:
    rates = rate if isinstance(rate, SamplingRates) else uniform_rates(rate)
    for _ in range(times):
        requests.record(done.house.site, done.standing.stream_id, rates, interval or Interval())


def vacuum(done: Layers) -> CopyReport:
    return vacuum_copies(done.house.site, done.name)


def stored_copies(done: Layers) -> list[Bucket]:
    return done.stored(Role.COPY, commits.newest_commit(done.house.catalog))


@pytest.mark.parametrize("layout", [Layout.BUCKETS, Layout.GROUPED, Layout.RANDOMIZED])
@pytest.mark.parametrize("inline", [True, False])
def test_copies_made_later_are_the_ones_that_the_writer_makes(house: House, layout: Layout, inline: bool) -> None:
    declared = ReducedArchives(copies=(0.5, 0.1))
    made = layers(house, plain(bucket_rows=200, layout=layout, reduced=declared), inline=inline)
    later = layers(house, plain(bucket_rows=200, layout=layout), inline=inline)
    for done in (made, later):
        done.bring(rows_at(0, 100), rows_at(100, 100))
    redeclare(later, declared)
    report = vacuum(later)
    assert report.built == {(VersionReason.DECLARED, rate): 2 for rate in declared.copies}
    first, second = (
        [(each.vs_min, each.resolution, each.rows, each.checksum) for each in stored_copies(done)]
        for done in (made, later)
    )
    if inline == all(each.inline for each in stored_copies(later)):
        assert sorted(first, key=repr) == sorted(second, key=repr)
    assert [each[:3] for each in sorted(first, key=repr)] == [each[:3] for each in sorted(second, key=repr)]
    check_inline_bytes(later)
    assert vacuum(later).commits == []


def test_the_first_readers_get_a_copy_and_later_ones_make_it_smaller(house: House) -> None:
    done = three_buckets(house, reduced=ON_READ)
    assert vacuum(done).commits == []
    ask(done, 0.25)
    ask(done, 0.5)
    report = vacuum(done)
    assert report.built == {(VersionReason.ASKED, 0.5): 3}
    assert report.bytes_read == sum(each.size for each in done.stored())
    assert copies_of(done) == {0: [0.5], 100: [0.5], 200: [0.5]}
    before = stored_copies(done)
    ask(done, 0.1)
    report = vacuum(done)
    assert (report.built, report.dropped) == (
        {(VersionReason.SHRUNK, 0.1): 3},
        {(VersionReason.SHRUNK, 0.5): 3},
    )
    assert report.bytes_read == sum(each.size for each in before), "a copy is shrunk from itself"
    assert copies_of(done) == {0: [0.1], 100: [0.1], 200: [0.1]}
    assert vacuum(done).commits == []
    check_inline_bytes(done)


def test_readers_who_need_more_have_it_begun_again_when_they_are_too_many(house: House) -> None:
    done = three_buckets(house, reduced=ON_READ)
    ask(done, 0.1)
    vacuum(done)
    ask(done, 0.1)
    ask(done, 0.5)
    assert vacuum(done).commits == []
    ask(done, 0.1)
    ask(done, 0.5, times=2)
    report = vacuum(done)
    assert (report.built, report.dropped) == (
        {(VersionReason.BEGUN_AGAIN, 0.5): 3},
        {(VersionReason.BEGUN_AGAIN, 0.1): 3},
    )
    ages = SamplingRates((LOWEST, 100), (0.5, 1.0), label="by_age(100, 0.5)")
    ask(done, ages)
    assert vacuum(done).dropped == {(VersionReason.DROPPED, 0.5): 2}
    assert copies_of(done) == {0: [0.5], 100: [], 200: []}


def test_portions_have_the_rates_of_their_readers(house: House) -> None:
    done = three_buckets(house, reduced=ON_READ)
    ask(done, SamplingRates((LOWEST, 100, 200), (0.1, 0.5, 1.0), label="by_age(100, 0.5)"))
    vacuum(done)
    assert copies_of(done) == {0: [0.1], 100: [0.5], 200: []}
    ask(done, 0.05, interval=Interval(120, 130))
    vacuum(done)
    assert copies_of(done) == {0: [0.1], 100: [0.05], 200: []}


def test_buckets_that_come_later_get_what_the_last_readers_asked_for(house: House) -> None:
    done = three_buckets(house, reduced=ON_READ)
    ask(done, 0.1)
    vacuum(done)
    done.bring(rows_at(300, 50))
    vacuum(done)
    assert copies_of(done) == {0: [0.1], 100: [0.1], 200: [0.1], 300: [0.1]}


def test_without_a_declaration_nothing_follows_readers(house: House) -> None:
    done = three_buckets(house)
    ask(done, 0.1)
    assert vacuum(done).commits == []
    redeclare(done, ON_READ)
    assert vacuum(done).built == {(VersionReason.ASKED, 0.1): 3}
    redeclare(done, NO_REDUCTION)
    vacuum(done)
    assert stored_copies(done) == []
    check_inline_bytes(done)


def test_a_plan_says_what_will_be_done(house: House) -> None:
    done = three_buckets(house, reduced=replace(ON_READ, copies=(0.5,)))
    ask(done, 0.1)
    newest = commits.newest_commit(house.catalog)
    planned = planned_report(plan_copies(house.site, done.name))
    assert commits.newest_commit(house.catalog) == newest
    report = vacuum(done)
    assert (planned.built, planned.dropped, planned.bytes_read) == (report.built, report.dropped, report.bytes_read)
    assert planned_report(plan_copies(house.site, done.name)).changes == []


def test_what_was_made_before_a_conflict_stays(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """A compaction that takes a bucket away while its copy is written: the rest is made, and no file is left over."""
    done = three_buckets(house, reduced=ON_READ)
    done.inline = False
    done.bring(rows_at(300, 100))
    done.correct((DELETE, key(310, "a"), {}))
    ask(done, 0.5)
    write, calls = flow._write_copies, []

    def interfere(*arguments: object) -> object:
        found = write(*arguments)  # type: ignore[arg-type]
        calls.append(1)
        if len(calls) == 3:
            compacted(done)
        return found

    monkeypatch.setattr(flow, "_write_copies", interfere)
    report = vacuum_copies(house.site, done.name, batch_bytes=1)
    assert sum(report.built.values()) >= 4
    assert all(rates == [0.5] for rates in copies_of(done).values())
    house.clock.advance(9 * DAY)
    assert [each for each in run_vacuum(house.site).freed if each.reason.value == "orphaned"] == []
    check_inline_bytes(done)


# Histories of everything that changes an archive: vacuum at any moment changes no answer.

RATES = (0.01, 0.1, 0.3, 0.5, 0.9, 1.0)


def some_rates(chance: random.Random) -> SamplingRates:
    kind = chance.randrange(4)
    if kind == 0:
        starts = (LOWEST, *sorted(chance.sample(range(60), 2)))
        return SamplingRates(starts, tuple(chance.choice(RATES) for _ in starts), label="by_age")
    if kind == 1:
        return SamplingRates(rates=(chance.choice(RATES),), column="who", by_value={"a": chance.choice(RATES)})
    return uniform_rates(chance.choice(RATES))


def some_reduction(chance: random.Random) -> ReducedArchives:
    rates = tuple(sorted(chance.sample(RATES[:-1], chance.randrange(3)), reverse=True))
    return ReducedArchives(rates, chance.choice((None, OnReadCopies(), OnReadCopies(0.2))))


def change_archive(done: Layers, chance: random.Random, new: Iterator[int]) -> None:
    """One step of a history: rows, corrections, compaction, ageing, a new declaration, readers, vacuum."""
    step = chance.randrange(8)
    if step <= 1:
        start = next(new)
        done.bring(*([a_row(at, who) for at in range(low, low + 5) for who in "ab"] for low in (start, start + 5)))
    elif step <= 3 and done.seen():
        row = chance.choice(done.seen())
        named = {name: row[name] for name in done.stream.key}
        op = chance.choice((REPLACE, DELETE))
        done.correct((op, named if op is DELETE else {**row, "price": chance.random()}, {}))
    elif step == 4:
        compacted(done, everything=chance.random() < 0.5)
    elif step == 5:
        age_out(done.house.site, [done.name])
    elif step == 6:
        redeclare(done, some_reduction(chance))
    for _ in range(chance.randrange(3)):
        ask(done, some_rates(chance))
    if chance.random() < 0.5:
        vacuum(done)


@pytest.mark.parametrize("layout", [Layout.BUCKETS, Layout.RANDOMIZED])
@pytest.mark.parametrize("names", [("at", "who"), ("who", "at")])
def test_vacuum_at_any_moment_changes_no_answer(
    house: House, chance: random.Random, layout: Layout, names: tuple[str, ...]
) -> None:
    done = layers(
        house,
        plain(
            bucket_rows=10,
            key=names,
            layout=layout,
            reduced=some_reduction(chance),
            retention=Retention(rows=60),
            horizon=0,
        ),
        inline=chance.random() < 0.5,
    )
    new = iter(range(0, 10_000, 10))
    for _ in range(8):
        change_archive(done, chance, new)
        rates = [some_rates(chance) for _ in range(2)]
        answers = [sampled(done, each) for each in rates]
        assert answers == [expected_sample(done, each) for each in rates]
        vacuum(done)
        assert [sampled(done, each) for each in rates] == answers
        assert planned_report(plan_copies(house.site, done.name)).changes == []
        check_inline_bytes(done)
        visible = {each.bucket_id for each in done.stored(commit=commits.newest_commit(house.catalog))}
        assert {each.original for each in stored_copies(done)} <= visible, "a copy leaves with its original"


def test_an_old_commit_is_read_as_it_was(house: House, chance: random.Random) -> None:
    done = three_buckets(house, reduced=ON_READ)
    then, rates = commits.newest_commit(house.catalog), uniform_rates(0.1)
    before = sampled(done, rates, then)
    for rate in (0.5, 0.1):
        ask(done, rate)
        vacuum(done)
        assert sampled(done, rates, then) == before
        assert {each.original for each in buckets.visible_buckets(house.catalog, done.standing.stream_id, then)} == {
            None
        }
