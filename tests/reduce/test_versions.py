"""Which copies buckets should have: the rule against one that counts heads, and plans carried out on paper."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest

from errata.model.bucket import FULL_RESOLUTION, Layout
from errata.model.reduction import OnReadCopies, ReducedArchives, SamplingRates
from errata.model.time import LOWEST, Interval
from errata.reduce.versions import (
    DEMAND_MEMORY,
    BucketVersions,
    Demand,
    VersionReason,
    VersionStep,
    bucket_demand,
    bucket_versions,
    on_read_rate,
    plan_versions,
)
from fixtures.reduced import ASKED_AT, a_base, a_copy, a_request

ON_READ = ReducedArchives(on_read=OnReadCopies(drop_above=0.5))
RATES = (0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 1.0)


# The rule, told in another way: heads are counted one by one.


def expected_rate(current: float | None, demands: Sequence[Demand], drop_above: float) -> float | None:
    heads = [each.rate for each in demands for _ in range(each.readers)]
    if not heads:
        return current
    if current is not None:
        sent_away = [rate for rate in heads if rate > current]
        if len(sent_away) / len(heads) <= drop_above:
            served = [rate for rate in heads if rate <= current]
            return max(served) if served else current
    whole = [rate for rate in heads if rate == 1]
    parts = [rate for rate in heads if rate < 1]
    if not parts or len(whole) / len(heads) > drop_above:
        return None
    return max(parts)


def some_demands(draw: random.Random) -> list[Demand]:
    return [Demand(draw.choice(RATES), draw.choice((0, 1, 1, 2, 5))) for _ in range(draw.randrange(5))]


def test_the_rate_for_readers_is_that_of_counting_heads(chance: random.Random) -> None:
    for _ in range(2_000):
        current = chance.choice((None, *RATES[:-1]))
        demands, limit = some_demands(chance), chance.choice((0.0, 0.25, 0.5, 0.9, 1.0))
        assert on_read_rate(current, demands, limit) == expected_rate(current, demands, limit), (current, demands)


def test_applied_again_the_rule_changes_nothing(chance: random.Random) -> None:
    for _ in range(2_000):
        demands, limit = some_demands(chance), chance.choice((0.0, 0.25, 0.5, 0.9, 1.0))
        once = on_read_rate(chance.choice((None, *RATES[:-1])), demands, limit)
        assert on_read_rate(once, demands, limit) == once, (once, demands, limit)


@pytest.mark.parametrize(
    ("current", "demands", "rate"),
    [
        (None, [(0.1, 1), (0.5, 1)], 0.5),
        (0.5, [(0.1, 1), (0.25, 1)], 0.25),
        (0.5, [(0.75, 1), (0.25, 1)], 0.25),  # half of the readers is not too many
        (0.5, [(0.75, 2), (0.25, 1)], 0.75),
        (0.5, [(1.0, 2), (0.25, 1)], None),
        (0.5, [(1.0, 1), (0.75, 2), (0.25, 1)], 0.75),
        (0.5, [], 0.5),
        (None, [(1.0, 1)], None),
    ],
)
def test_examples_of_the_rule(current: float | None, demands: list[tuple[float, int]], rate: float | None) -> None:
    assert on_read_rate(current, [Demand(*each) for each in demands], 0.5) == rate


def test_a_portion_has_the_rates_of_its_readers() -> None:
    steps = SamplingRates((LOWEST, 10, 20), (0.1, 0.5, 1.0))
    requests = [a_request(steps, 2), a_request(0.25, interval=Interval(0, 10))]
    old, middle, new = (a_base(number, 10 * number, 10 * number + 9) for number in range(3))
    assert bucket_demand(old, requests, False, ASKED_AT) == [Demand(0.1, 2), Demand(0.25, 1)]
    assert bucket_demand(middle, requests, False, ASKED_AT) == [Demand(0.5, 2)]
    assert bucket_demand(new, requests, False, ASKED_AT) == [Demand(1.0, 2)]
    across = a_base(4, 5, 12)
    assert bucket_demand(across, requests, False, ASKED_AT) == [Demand(0.5, 2), Demand(0.25, 1)]
    steps_made = plan_versions([BucketVersions(each) for each in (old, middle, new)], ON_READ, requests, ASKED_AT)
    assert [(each.original, each.rate, each.reason) for each in steps_made] == [
        (old, 0.25, VersionReason.ASKED),
        (middle, 0.5, VersionReason.ASKED),
    ]


def test_a_reader_of_a_part_of_a_bucket_asks_for_the_rates_there() -> None:
    steps = SamplingRates((LOWEST, 5), (0.1, 0.5))
    assert a_request(steps, interval=Interval(0, 5)).asked.rate_of(a_base(1)) == 0.1
    assert a_request(steps, interval=Interval(0, 6)).asked.rate_of(a_base(1)) == 0.5
    assert a_request(steps, interval=Interval(10, 90)).asked.rate_of(a_base(1)) is None


def test_buckets_that_came_later_follow_the_last_round_for_some_time() -> None:
    settled = a_request(0.1, readers=0, last=3)
    (step,) = plan_versions([BucketVersions(a_base(1))], ON_READ, [settled], ASKED_AT)
    assert (step.rate, step.reason) == (0.1, VersionReason.ASKED)
    assert plan_versions([BucketVersions(a_base(1))], ON_READ, [settled], ASKED_AT + DEMAND_MEMORY) == []
    has = BucketVersions(a_base(1), (a_copy(2, a_base(1), 0.5),))
    assert plan_versions([has], ON_READ, [settled], ASKED_AT) == []  # who has a copy follows new readers alone
    (step,) = plan_versions([BucketVersions(a_base(1))], ON_READ, [settled, a_request(0.5)], ASKED_AT)
    assert step.rate == 0.5


def test_copies_are_made_from_the_smallest_version_that_has_their_rows() -> None:
    base = a_base(1)
    half, quarter = a_copy(2, base, 0.5), a_copy(3, base, 0.25)
    declared = ReducedArchives(copies=(0.5, 0.25, 0.1))
    (step,) = plan_versions([BucketVersions(base, (half, quarter))], declared, [], ASKED_AT)
    assert (step.reason, step.rate, step.source) == (VersionReason.DECLARED, 0.1, quarter)
    assert (step.bytes_read, step.bytes_expected) == (250, 100)
    (step,) = plan_versions([BucketVersions(base, (half,))], ON_READ, [a_request(0.1)], ASKED_AT)
    assert (step.reason, step.rate, step.source, step.drops) == (VersionReason.SHRUNK, 0.1, half, (half,))
    (step,) = plan_versions([BucketVersions(base, (half,))], ON_READ, [a_request(0.75)], ASKED_AT)
    assert (step.reason, step.rate, step.source, step.drops) == (VersionReason.BEGUN_AGAIN, 0.75, base, (half,))
    (step,) = plan_versions([BucketVersions(base, (half,))], ON_READ, [a_request(1.0)], ASKED_AT)
    assert (step.reason, step.rate, step.source, step.drops) == (VersionReason.DROPPED, None, None, (half,))


def test_a_declared_copy_serves_readers_and_stays() -> None:
    base = a_base(1)
    half = a_copy(2, base, 0.5)
    both = replace(ON_READ, copies=(0.5,))
    assert plan_versions([BucketVersions(base, (half,))], both, [a_request(0.5)], ASKED_AT) == []
    (step,) = plan_versions([BucketVersions(base, (half,))], both, [a_request(0.1)], ASKED_AT)
    assert (step.rate, step.source, step.drops) == (0.1, half, ())
    tenth = a_copy(3, base, 0.1)
    (step,) = plan_versions([BucketVersions(base, (half, tenth))], both, [a_request(0.5, 9)], ASKED_AT)
    assert (step.reason, step.rate, step.drops) == (VersionReason.DROPPED, None, (tenth,))


def test_what_is_neither_declared_nor_for_readers_is_dropped() -> None:
    base = a_base(1)
    half, twice, tenth = a_copy(2, base, 0.5), a_copy(3, base, 0.5), a_copy(4, base, 0.1)
    (step,) = plan_versions([BucketVersions(base, (half, twice, tenth))], ReducedArchives(copies=(0.5,)), [], ASKED_AT)
    assert (step.reason, step.drops) == (VersionReason.UNDECLARED, (twice, tenth))
    (step,) = plan_versions([BucketVersions(base, (half, twice, tenth))], ON_READ, [], ASKED_AT)
    assert (step.reason, step.drops) == (VersionReason.UNDECLARED, (twice, tenth))


def test_blocks_of_a_randomized_bucket_serve_readers_as_well_as_a_copy() -> None:
    base = a_base(1, layout=Layout.RANDOMIZED)
    assert plan_versions([BucketVersions(base)], ON_READ, [a_request(0.1)], ASKED_AT) == []
    purging = ReducedArchives(on_read=OnReadCopies(purge_after=1))
    assert [each.rate for each in plan_versions([BucketVersions(base)], purging, [a_request(0.1)], ASKED_AT)] == [0.1]


def test_copies_are_found_beside_their_originals() -> None:
    first, second = a_base(1), a_base(2)
    copy, remains = a_copy(3, second, 0.5), replace(a_copy(4, second, 0.5), original=None)
    assert bucket_versions([copy, first, remains, second, a_copy(5, a_base(9), 0.1)]) == [
        BucketVersions(first),
        BucketVersions(second, (copy,)),
    ]


# Plans carried out on paper, over histories of declarations and readers.


def carried_out(versions: BucketVersions, steps: Sequence[VersionStep], next_id: int) -> BucketVersions:
    copies = list(versions.copies)
    for number, step in enumerate(steps):
        copies = [each for each in copies if each not in step.drops]
        if step.rate is not None:
            assert step.source is not None
            assert step.source.resolution.rate >= step.rate, "a copy has only rows that its source has"
            copies.append(a_copy(next_id + number, versions.original, step.rate))
    return replace(versions, copies=tuple(copies))


def test_one_vacuum_is_enough_and_everything_declared_is_there(chance: random.Random) -> None:
    for _ in range(300):
        versions = BucketVersions(a_base(1, layout=chance.choice((Layout.BUCKETS, Layout.RANDOMIZED))))
        for round_number in range(4):
            rates = tuple(sorted(chance.sample(RATES[:-1], chance.randrange(3)), reverse=True))
            on_read = chance.choice((None, OnReadCopies(chance.choice((0.2, 0.5)), chance.choice((None, 1)))))
            reduced = ReducedArchives(rates, on_read)
            requests = [a_request(chance.choice(RATES), chance.randrange(4), chance.randrange(2)) for _ in range(3)]
            steps = plan_versions([versions], reduced, requests, ASKED_AT)
            assert all(step.rate is not None or step.drops for step in steps), "no step does nothing"
            versions = carried_out(versions, steps, 10 * round_number + 2)
            assert plan_versions([versions], reduced, requests, ASKED_AT) == []
            there = sorted((each.resolution.rate for each in versions.copies), reverse=True)
            own = [rate for rate in there if rate not in rates]
            assert set(rates) <= set(there)
            assert len(there) == len(set(there))
            assert len(own) <= (on_read is not None)


def test_a_vacuum_that_was_killed_between_steps_is_gone_on_with(chance: random.Random) -> None:
    for _ in range(300):
        base = a_base(1)
        before = BucketVersions(
            base, tuple(a_copy(2 + at, base, rate) for at, rate in enumerate(chance.sample(RATES[:-1], 2)))
        )
        reduced = ReducedArchives((0.25,), OnReadCopies(chance.choice((0.2, 0.5))))
        requests = [a_request(chance.choice(RATES), chance.randrange(4)) for _ in range(3)]
        steps = plan_versions([before], reduced, requests, ASKED_AT)
        whole = carried_out(before, steps, 10)
        part = carried_out(before, steps[: chance.randrange(len(steps) + 1)], 10)
        again = carried_out(part, plan_versions([part], reduced, requests, ASKED_AT), 20)
        assert {each.resolution.rate for each in again.copies} == {each.resolution.rate for each in whole.copies}


def test_full_resolution_is_that_of_originals() -> None:
    assert a_base(1).resolution == FULL_RESOLUTION
