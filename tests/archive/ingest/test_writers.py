"""Two writers at once on one stream: both succeed, and what is there is what one after the other would have left."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from errata.archive.ingest.batch import IngestReport, IngestRequest, ingest_batch
from errata.catalog import commits, ledger, streams
from errata.model.batch import BatchCounts, Op
from errata.model.stream import DuplicatePolicy, Stream
from errata.model.time import SECOND
from fixtures.catalog import NOW
from fixtures.flows import Builder, House, a_feed, canonical_row
from fixtures.oracle.history import History
from fixtures.sources import Line, Source, record

FEED = a_feed(slack=10 * SECOND, bucket_rows=4)


def a_line(second: int, who: str = "a", price: float = 1.0, op: Op | None = None) -> Line:
    return Line({"at": NOW - (1_000 - second) * SECOND, "who": who, "price": price, "note": None}, op)


BEFORE = [a_line(second) for second in range(10, 21)]
"""The stable point is at 10 after them."""


def together(house: House, batches: Sequence[tuple[str, Source]]) -> tuple[list[IngestReport], list[list[str]]]:
    """Take batches in at once: each has arranged its rows on the same standing before any commits."""
    ready = threading.Barrier(len(batches))
    paths = [str(house.write(source)) for _, source in batches]

    def take(number: int) -> tuple[IngestReport, list[str]]:
        steps: list[str] = []

        def on_step(words: str) -> None:
            if words == "committing" and words not in steps:
                ready.wait(60)
            steps.append(words)

        return ingest_batch(
            house.site, IngestRequest("feed", [paths[number]], batch_id=batches[number][0], again=True), on_step
        ), steps

    with ThreadPoolExecutor(len(batches)) as pool:
        done = list(pool.map(take, range(len(batches))))
    return [report for report, _ in done], [steps for _, steps in done]


def in_turn(stream: Stream, batches: Sequence[Sequence[Line]]) -> tuple[History, list[BatchCounts]]:
    """The oracle, which takes one after the other."""
    history, counts = History(stream), []
    for number, lines in enumerate(batches):
        source = Source(f"{number}.csv", lines)
        records = [record(source, line, stream, place) for place, line in enumerate(lines)]
        counts.append(history.append(records, NOW, str(number)).counts)
    return history, counts


CASES = {
    "one behind the other": ([a_line(40), a_line(41)], [a_line(60), a_line(61)]),
    "across one another": ([a_line(15, "b"), a_line(40)], [a_line(18, "b"), a_line(30), a_line(41)]),
    "late when the other was first": ([a_line(12, "b")], [a_line(50)]),
    "the same rows": ([a_line(30), a_line(31)], [a_line(30), a_line(31), a_line(32)]),
    "one key, other values": ([a_line(30, price=2.0)], [a_line(30, price=3.0)]),
    "nothing but corrections": ([a_line(12, op=Op.DELETE)], [a_line(13, op=Op.DELETE), a_line(45)]),
    "nothing but late rows": ([a_line(1)], [a_line(2)]),
    "one repeats what is there": ([a_line(15), a_line(60)], [a_line(45)]),
    "one contradicts what is there": ([a_line(15, price=9.0), a_line(60)], [a_line(45)]),
}


@pytest.mark.parametrize("policy", DuplicatePolicy)
@pytest.mark.parametrize("case", CASES)
def test_two_writers_leave_what_one_after_the_other_would(a_house: Builder, case: str, policy: DuplicatePolicy) -> None:
    stream = a_feed(slack=10 * SECOND, bucket_rows=4, on_duplicate=policy)
    house = a_house(stream)
    house.append([Source("0.csv", BEFORE)], batch_id="before")
    one, other = CASES[case]
    reports, steps = together(house, [("one", Source("1.csv", one)), ("other", Source("2.csv", other))])
    assert sorted(report.commit_id or 0 for report in reports) == [3, 4]
    ways = [in_turn(stream, [BEFORE, one, other]), in_turn(stream, [BEFORE, other, one])]
    first = 0 if reports[0].commit_id == 3 else 1
    history, counts = ways[first]
    expected = [counts[1], counts[2]] if first == 0 else [counts[2], counts[1]]
    assert [report.counts for report in reports] == expected
    assert house.rows() == [canonical_row(row) for row in history.scan()]
    assert house.scan() == house.rows()
    assert [(each.op, each.key) for each in house.pending()] == [(each.op, each.key) for each in history.pending()]
    assert streams.stream_state(house.catalog, "feed").stable == history.stable()
    again = "another writer came first; reading again"
    assert [again in each for each in steps] != [True, True]
    if case == "one behind the other" and first == 0:
        assert again not in steps[1], "what is not touched by the other need not be read again"
    assert house.files() == {bucket.path for bucket in house.stored() if bucket.path}


def test_two_writers_where_the_key_alone_tells_rows_apart(a_house: Builder) -> None:
    stream = a_feed(key=("who",))
    house = a_house(stream)
    one, other = [a_line(1, "a"), a_line(2, "b")], [a_line(3, "b"), a_line(4, "c")]
    reports, _ = together(house, [("one", Source("1.csv", one)), ("other", Source("2.csv", other))])
    first = 0 if reports[0].commit_id == 2 else 1
    history, _ = in_turn(stream, [one, other] if first == 0 else [other, one])
    assert house.rows() == [canonical_row(row) for row in history.scan()]
    assert [(each.op, each.key) for each in house.pending()] == [(each.op, each.key) for each in history.pending()]


def test_two_writers_ordered_by_arrival_lose_nothing(a_house: Builder) -> None:
    house = a_house(a_feed(order="arrived", key=("arrived", "who")))
    batches = [
        (name, Source(f"{name}.csv", [Line({"who": who, "price": 1.0, "note": None}) for who in whose]))
        for name, whose in (("one", "ab"), ("other", "bc"))
    ]
    reports, _ = together(house, batches)
    # The clock stands still: b has arrived twice at one moment, and says the same.
    assert sorted(report.counts.appended for report in reports) == [1, 2]
    assert [row["who"] for row in house.rows()] == ["a", "b", "c"]


def test_one_batch_by_two_writers_is_taken_in_once(a_house: Builder) -> None:
    house = a_house(FEED)
    source = Source("1.csv", [a_line(second) for second in range(30)])
    reports, _ = together(house, [("monday", source), ("monday", source)])
    assert sorted(report.already_ingested for report in reports) == [False, True]
    assert {(report.commit_id, report.counts) for report in reports} == {(2, BatchCounts(30, 30))}
    assert len(house.rows()) == 30
    assert commits.newest_commit(house.catalog) == 2
    taken = ledger.find_batch(house.catalog, 1, "monday")
    assert taken is not None
    assert taken.counts == BatchCounts(30, 30)
