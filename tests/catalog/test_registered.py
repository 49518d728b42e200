"""Registered queries in the catalog, on SQLite and PostgreSQL: numbers, shared conjunctions, and several at once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from decimal import Decimal
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from errata.catalog import match_segments, registered
from errata.catalog.buckets import visible_buckets
from errata.catalog.database import Catalog
from errata.catalog.match_segments import NewMatchSegment, bucket_key
from errata.catalog.registered import InvocationCount, NewRegistration, StreamsConflict
from errata.catalog.stream_commits import commit_append
from errata.catalog.streams import stream_state
from errata.model.commit import Cause
from errata.model.registered import Comparison, ConstantFactor, RegisteredPlan, ResultStrategy
from errata.model.registered_records import (
    conjunction_from_record,
    conjunction_to_record,
    parameters_to_record,
    plan_from_record,
    record_digest,
    statement_from_record,
    statement_to_record,
)
from errata.model.stream import Stream
from fixtures.catalog import a_batch, a_bucket
from fixtures.registered.texts import random_plan

CAUSE = Cause("test")


def wanted(plan: RegisteredPlan, number: int = 0) -> NewRegistration:
    return NewRegistration(f"{number:016d}", "SELECT …", plan, ResultStrategy.PARTIAL)


def a_plan(seed: int, bound: object = None) -> RegisteredPlan:
    plan = random_plan(Random(seed), sources=1)
    if bound is None:
        return plan
    factor = ConstantFactor("price", Comparison.GREATER, bound)
    return RegisteredPlan(
        plan.sources, ((factor,),), (), plan.windows, plan.items, plan.distinct, plan.statement, plan.parameters
    )


def at_once(count: int, work: Callable[[int], object]) -> list[BaseException]:
    failed: list[BaseException] = []

    def run(number: int) -> None:
        try:
            work(number)
        except BaseException as error:  # noqa: BLE001 - told by the test
            failed.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    return failed


def names_of(plan: RegisteredPlan, stream_id: int) -> dict[str, int]:
    return {each.stream: stream_id for each in plan.sources}


def test_several_register_at_once_and_numbers_are_consecutive(catalog: Catalog, ticks: Stream) -> None:
    stream_id = stream_state(catalog, ticks.name).stream_id
    plan = a_plan(1, 0)

    def register(number: int) -> None:
        plans = [a_plan(1, number % 3), a_plan(1, 10 + number)]
        some = [wanted(each, 10 * number + place) for place, each in enumerate(plans)]
        registered.record_registrations(catalog, CAUSE, f"owner {number}", some, names_of(plan, stream_id))

    assert at_once(6, register) == []
    found = registered.live_registrations(catalog)
    assert [each.number for each in found] == list(range(1, 13))
    assert len({each.statement_id for each in found}) == 1
    by_bound = {each.plan.conjunctions[0]: each.conjunctions[0] for each in found}
    assert sorted(by_bound.values()) == list(range(1, 10)), "equal conditions are one conjunction"
    assert registered.stream_conjunctions(catalog, stream_id) == {
        number: conjunction for conjunction, number in sorted(by_bound.items(), key=lambda pair: pair[1])
    }
    assert [each.owner for each in registered.live_registrations(catalog, "owner 3")] == ["owner 3"] * 2
    assert registered.conjunction_streams(catalog) == {stream_id: 9}


def test_a_stream_that_is_not_there_is_a_conflict(catalog: Catalog, ticks: Stream) -> None:
    plan = a_plan(2)
    with pytest.raises(StreamsConflict):
        registered.record_registrations(catalog, CAUSE, "me", [wanted(plan)], names_of(plan, 77))
    assert registered.live_registrations(catalog) == []


def test_of_two_writers_of_a_segment_one_is_first(catalog: Catalog, ticks: Stream) -> None:
    commit_append(catalog, stream_state(catalog, ticks.name), a_batch("one", [a_bucket(0, 9)]), CAUSE)
    state = stream_state(catalog, ticks.name)
    (bucket,) = visible_buckets(catalog, state.stream_id, state.changed_in)
    key = bucket_key(bucket)
    left: list[NewMatchSegment] = []

    def write(number: int) -> None:
        new = NewMatchSegment(key, 1, 5 + number, None, b"x" * (number + 1), number, number + 1, 0, 0)
        left.extend(match_segments.record_segments(catalog, [new]))

    assert at_once(4, write) == []
    (segments,) = match_segments.find_segments(catalog, [key]).values()
    assert len(segments) == 1
    assert len(left) == 3
    assert {5 + each.rows for each in (*left, *segments)} == {5, 6, 7, 8}
    ((last, count),) = match_segments.covered_to(catalog, [key]).values()
    assert (last, count) == (segments[0].last, 1)
    nobody = NewMatchSegment((key[0], key[1] - 1), 1, 9, None, b"", 0, 0, 0, 0)
    assert match_segments.record_segments(catalog, [nobody]) == [nobody], "another bucket had the id then"


def test_invocations_add_up(catalog: Catalog, ticks: Stream) -> None:
    stream_id = stream_state(catalog, ticks.name).stream_id
    plan = a_plan(3)
    (number,) = registered.record_registrations(catalog, CAUSE, "me", [wanted(plan)], names_of(plan, stream_id))
    for last in (5, 9):
        registered.record_invocations(catalog, [InvocationCount(number, 2, 100, last), InvocationCount(99, 1, 1, 1)])
    (found,) = registered.registrations_by_number(catalog, [number])
    assert (found.cost.invocations, found.cost.invocation_micros, found.cost.last_asked) == (4, 200, 9)


@given(st.integers(0, 2**32))
def test_records_say_plans(seed: int) -> None:
    plan = random_plan(Random(seed))
    known = [conjunction_from_record(conjunction_to_record(each)) for each in plan.conjunctions]
    statement = statement_from_record(plan.statement, statement_to_record(plan))
    # By their text: NaN is not itself, and 1 equals 1.0.
    assert repr(plan_from_record(statement, parameters_to_record(plan), known)) == repr(plan)


def test_constants_of_different_types_are_different_conjunctions() -> None:
    constants = [1, 1.0, True, "1", Decimal(1), Decimal("1.0"), float("nan"), float("inf"), -0.0, 0.0]
    digests = {
        record_digest(conjunction_to_record((ConstantFactor("x", Comparison.EQUAL, each),))) for each in constants
    }
    assert len(digests) == len(constants)
