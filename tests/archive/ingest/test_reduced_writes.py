"""What is declared under `reduce:` is written with the rows, by tasks in this process and by those of Spark, for as
long as it is declared."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pytest

from errata.archive.ingest.batch import IngestRequest, ingest_batch
from errata.archive.sampling import sampling_hashes
from errata.archive.upkeep.compaction import compact_streams
from errata.model.bucket import MAX_INLINE_BYTES, Layout, Role
from errata.model.reduction import NO_REDUCTION, ReducedArchives, SummaryDeclaration, hash_bound
from errata.model.stream import Stream
from errata.model.time import HOUR, SECOND
from fixtures.catalog import NOW
from fixtures.flows import Builder, House, a_feed
from fixtures.oracle.revision import Row
from fixtures.sources import Line, Source

HOURLY = SummaryDeclaration("hourly", HOUR, ("who",), {"n": "count(*)"})
KEPT = ReducedArchives((0.5, 0.2), summaries=(HOURLY,))


def lines(seconds: Sequence[int], who: str = "a") -> list[Line]:
    return [Line({"at": NOW - (400 - at) * SECOND, "who": who, "price": 1.0, "note": None}) for at in seconds]


def feed(**changes: object) -> Stream:
    return a_feed(slack=0, bucket_rows=40, **changes)


def take_in(house: House, name: str, seconds: Sequence[int]) -> None:
    path = house.write(Source(name, lines(seconds)))
    assert ingest_batch(house.site, IngestRequest("feed", [str(path)])).counts.appended == len(seconds)


def check_reduced(house: House, rates: Sequence[float], *, since: int = 0) -> None:
    """Every base bucket from a place on has its copies and its summary, and nothing else has any."""
    base = {each.bucket_id: each for each in house.stored() if each.vs_min >= since}
    copies, summaries = house.stored(role=Role.COPY), house.stored(role=Role.SUMMARY)
    assert sorted((each.original or 0, each.resolution.rate) for each in copies) == sorted(
        (one, rate) for one in base for rate in rates
    )
    assert sorted(each.original or 0 for each in summaries) == (sorted(base) if rates else [])
    for each in copies:
        rows = house.content(base[each.original or 0])
        numbers = sampling_hashes(rows, ("at", "who"))
        wanted = [
            at
            for at, number in zip(rows["at"].to_pylist(), numbers.tolist(), strict=True)
            if number < hash_bound(each.resolution.rate)
        ]
        assert house.content(each)["at"].to_pylist() == wanted


@pytest.mark.parametrize("local", [True, False])
@pytest.mark.parametrize("layout", [Layout.BUCKETS, Layout.RANDOMIZED])
def test_copies_come_with_appends_and_with_compaction(
    a_house: Builder, monkeypatch: pytest.MonkeyPatch, local: bool, layout: Layout
) -> None:
    if not local:
        monkeypatch.setattr("errata.engine.budget.LOCAL_TASK_BYTES", -1)
    house = a_house(feed(reduced=KEPT, layout=layout))
    take_in(house, "one.csv", range(100))
    check_reduced(house, KEPT.copies)
    assert len(house.stored()) == 3
    take_in(house, "two.csv", range(100, 110))
    compact_streams(house.site, ["feed"], everything=True)
    check_reduced(house, KEPT.copies)


def test_what_is_declared_anew_counts_for_what_comes_from_then_on(a_house: Builder) -> None:
    house = a_house(feed())
    take_in(house, "one.csv", range(40))
    check_reduced(house, ())
    house.declare(feed(reduced=KEPT))
    take_in(house, "two.csv", range(40, 80))
    check_reduced(house, KEPT.copies, since=house.stored()[1].vs_min)
    assert house.scan(reduction="uniform(0.2)") == sample(house, 0.2)
    house.declare(feed(reduced=NO_REDUCTION))
    take_in(house, "three.csv", range(80, 120))
    # Copies that are no longer declared stay until vacuum drops them, and are right for as long.
    assert len(house.stored(role=Role.COPY)) == 2
    assert house.scan(reduction="uniform(0.2)") == sample(house, 0.2)


def sample(house: House, rate: float) -> list[Row]:
    """The rows of a sample, by the definition."""
    rows = house.scan()
    places = pa.array([row["at"] for row in rows], pa.timestamp("us", "UTC"))
    table = pa.table({"at": places, "who": [row["who"] for row in rows]})
    numbers = sampling_hashes(table, ("at", "who")).tolist()
    return [row for row, number in zip(rows, numbers, strict=True) if number < hash_bound(rate)]


def test_copies_count_against_the_room_in_the_catalog(a_house: Builder, monkeypatch: pytest.MonkeyPatch) -> None:
    house = a_house(feed(reduced=KEPT))
    take_in(house, "one.csv", range(40))
    (bucket,) = house.stored()
    assert bucket.inline
    monkeypatch.setattr("errata.archive.ingest.batch.MAX_INLINE_STREAM_BYTES", bucket.size + MAX_INLINE_BYTES // 64)
    take_in(house, "two.csv", range(40, 80))
    later = [each for role in (Role.BASE, Role.COPY, Role.SUMMARY) for each in house.stored(role=role)]
    assert [each.inline for each in later if each.vs_min > bucket.vs_max] == [False] * 4
