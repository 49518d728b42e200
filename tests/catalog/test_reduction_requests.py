"""Requests of readers: counted, settled by rounds, and never more than are worth keeping."""

from __future__ import annotations

from errata.catalog import declarations, streams
from errata.catalog.database import Catalog
from errata.catalog.reduction_requests import (
    MAX_REQUESTS,
    forget_requests,
    record_request,
    recorded_requests,
    settle_requests,
)
from errata.model.commit import Cause
from errata.model.reduction import SamplingRates, uniform_rates
from errata.model.reduction_request import AskedReduction, RequestMethod, asked_from_record, asked_to_record
from errata.model.stream import Stream
from errata.model.time import LOWEST, MINUTE, Interval
from fixtures.clock import FixedClock

TENTH, HALF = (AskedReduction(uniform_rates(rate)) for rate in (0.1, 0.5))


def stream_id_of(catalog: Catalog, stream: Stream) -> int:
    return streams.stream_state(catalog, stream.name).stream_id


def counts(catalog: Catalog, stream_id: int) -> dict[str, tuple[int, int, int]]:
    found = recorded_requests(catalog, stream_id)
    return {each.asked.label: (each.readers, each.last_readers, each.all_readers) for each in found}


def test_every_form_of_a_request_survives_its_record() -> None:
    steps = SamplingRates((LOWEST, 5, 9), (0.1, 0.5, 1.0), label="by_age('1 day', 0.5)")
    values = SamplingRates(rates=(0.01,), column="who", by_value={"a": 1.0, None: 0.5}, label="by_value(who, 'a', 1)")
    for asked in (
        AskedReduction(steps),
        AskedReduction(values, interval=Interval(3, 8)),
        AskedReduction(summary="hourly", interval=Interval(3, 8)),
    ):
        again = asked_from_record(asked_to_record(asked), asked.label)
        assert again == asked
        assert again.digest == asked.digest


def test_requests_that_differ_have_different_digests() -> None:
    some = [
        TENTH,
        HALF,
        AskedReduction(uniform_rates(0.1), interval=Interval(0, 5)),
        AskedReduction(uniform_rates(0.1, "by_load(0.1)")),
        AskedReduction(SamplingRates((LOWEST, 5), (0.1, 0.5))),
        AskedReduction(SamplingRates(rates=(0.1,), column="of", by_value={"a": 0.5})),
        AskedReduction(SamplingRates(rates=(0.1,), column="at", by_value={"a": 0.5})),
        AskedReduction(summary="hourly"),
    ]
    assert len({each.digest for each in some}) == len(some)


def test_equal_requests_are_counted_together(catalog: Catalog, ticks: Stream, clock: FixedClock) -> None:
    stream_id = stream_id_of(catalog, ticks)
    record_request(catalog, stream_id, TENTH, "ann", 10, 20)
    clock.advance(MINUTE)
    record_request(catalog, stream_id, HALF, "ann")
    clock.advance(MINUTE)
    record_request(catalog, stream_id, AskedReduction(uniform_rates(0.1)), "bob", 1, 2)
    tenth, half = recorded_requests(catalog, stream_id)
    assert (tenth.asked, tenth.readers, tenth.user) == (TENTH, 2, "bob")
    assert (tenth.from_copies, tenth.from_originals, tenth.asked_at) == (11, 22, clock.now())
    assert (half.asked, half.readers, half.settled_at) == (HALF, 1, None)


def test_methods_are_told_apart(catalog: Catalog, ticks: Stream) -> None:
    stream_id = stream_id_of(catalog, ticks)
    record_request(catalog, stream_id, TENTH, "ann")
    record_request(catalog, stream_id, AskedReduction(summary="hourly"), "ann")
    found = {method: recorded_requests(catalog, stream_id, method) for method in RequestMethod}
    assert {method: [each.asked.label for each in some] for method, some in found.items()} == {
        RequestMethod.SAMPLE: ["uniform(0.1)"],
        RequestMethod.SUMMARY: ["hourly"],
    }


def test_a_round_ends_with_vacuum_and_later_readers_belong_to_the_next(catalog: Catalog, ticks: Stream) -> None:
    stream_id = stream_id_of(catalog, ticks)
    for _ in range(3):
        record_request(catalog, stream_id, TENTH, "ann")
    record_request(catalog, stream_id, HALF, "ann")
    seen = recorded_requests(catalog, stream_id)
    record_request(catalog, stream_id, TENTH, "bob")
    settle_requests(catalog, stream_id, seen)
    assert counts(catalog, stream_id) == {"uniform(0.1)": (1, 3, 4), "uniform(0.5)": (0, 1, 1)}
    settle_requests(catalog, stream_id, seen)  # by another vacuum that saw the same
    assert counts(catalog, stream_id) == {"uniform(0.1)": (1, 3, 4), "uniform(0.5)": (0, 1, 1)}
    settle_requests(catalog, stream_id, recorded_requests(catalog, stream_id))
    assert counts(catalog, stream_id) == {"uniform(0.1)": (0, 1, 4), "uniform(0.5)": (0, 0, 1)}
    settle_requests(catalog, stream_id, recorded_requests(catalog, stream_id))  # nobody asked: the last round stays
    assert counts(catalog, stream_id) == {"uniform(0.1)": (0, 1, 4), "uniform(0.5)": (0, 0, 1)}


def test_the_oldest_of_too_many_are_forgotten(catalog: Catalog, ticks: Stream, clock: FixedClock) -> None:
    stream_id = stream_id_of(catalog, ticks)
    for number in range(MAX_REQUESTS + 5):
        record_request(catalog, stream_id, AskedReduction(uniform_rates(0.5), interval=Interval(number, 900)), "ann")
        clock.advance(1)
    kept = [each.asked.interval.start for each in recorded_requests(catalog, stream_id)]
    assert kept == list(range(MAX_REQUESTS + 4, 4, -1))


def test_those_that_vacuum_has_seen_are_forgotten_first(catalog: Catalog, ticks: Stream, clock: FixedClock) -> None:
    stream_id = stream_id_of(catalog, ticks)
    record_request(catalog, stream_id, HALF, "ann")
    for number in range(1, MAX_REQUESTS):
        clock.advance(1)
        record_request(catalog, stream_id, AskedReduction(uniform_rates(0.5), interval=Interval(number, 900)), "ann")
    settle_requests(catalog, stream_id, recorded_requests(catalog, stream_id))
    record_request(catalog, stream_id, HALF, "ann")
    record_request(catalog, stream_id, TENTH, "ann")
    kept = recorded_requests(catalog, stream_id)
    assert [each.asked for each in kept if each.readers] in ([TENTH, HALF], [HALF, TENTH])
    assert len(kept) == MAX_REQUESTS
    assert min(each.asked.interval.start for each in kept if not each.readers) == 2


def test_requests_of_a_dropped_stream_are_forgotten(catalog: Catalog, ticks: Stream) -> None:
    stream_id = stream_id_of(catalog, ticks)
    record_request(catalog, stream_id, TENTH, "ann")
    assert forget_requests(catalog) == 0
    declarations.apply_changes(catalog, Cause("apply"), write=[], drop=["ticks"], summary={})
    assert forget_requests(catalog) == 1
    assert recorded_requests(catalog, stream_id) == []
