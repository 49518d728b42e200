"""The edges of what can be taken in: the ends of the order field, foreign types that hold it, and odd places."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from errata.archive.ingest import batch_job
from errata.archive.ingest import batch_writer as arranging
from errata.archive.ingest.batch import IngestReport, IngestRequest, ingest_batch
from errata.archive.ingest.batch_job import SlotPlan
from errata.catalog import quarantine
from errata.declare.warehouse import Warehouse
from errata.model.batch import BatchCounts
from errata.model.time import HIGHEST, LOWEST, SECOND
from fixtures.catalog import NOW
from fixtures.flows import Builder, House, a_feed
from fixtures.sources import Line, Source

NUMBERED = a_feed(moment="bigint", bucket_rows=50, max_ahead=None)


def a_line(at: int, who: str = "a", note: str | None = None) -> Line:
    return Line({"at": at, "who": who, "price": 1.0, "note": note})


def took(house: House, *tables: pa.Table, name: str = "a", **how: object) -> IngestReport:
    """The tables taken in, one batch of a Parquet file each."""
    paths = [house.folder / f"{name}{number}.parquet" for number in range(len(tables))]
    for path, table in zip(paths, tables, strict=True):
        pq.write_table(table, path, **how)
    return ingest_batch(house.site, IngestRequest("feed", [str(path) for path in paths]))


def a_table(at: pa.Array | Sequence[object], who: str = "a", price: pa.Array | None = None) -> pa.Table:
    count = len(at)
    return pa.table({"at": at, "who": [who] * count, "price": [1.0] * count if price is None else price})


def orders(house: House) -> list[object]:
    rows = house.scan()
    assert rows == house.rows()
    return [row["at"] for row in rows]


def reasons(house: House) -> list[tuple[int, str]]:
    return [(each.row.line, each.row.reason) for each in quarantine.quarantined_rows(house.catalog)]


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch) -> list[SlotPlan | None]:
    """The short ways that were found, or not, as batches were taken in by Spark."""
    monkeypatch.setattr(arranging, "SMALL_BYTES", -1)
    found: list[SlotPlan | None] = []
    short_way = batch_job._plan_without_shuffle

    def noted(*arguments: object) -> SlotPlan | None:
        found.append(short_way(*arguments))
        return found[-1]

    monkeypatch.setattr(batch_job, "_plan_without_shuffle", noted)
    return found


def test_an_order_field_stored_as_text_goes_by_its_value(a_house: Builder, plans: list[SlotPlan | None]) -> None:
    """By spelling, 100 lies between 1 and 19, and the files would overlap otherwise than they do."""
    house = a_house(NUMBERED)
    ranges = [(1, 150), (100, 199), (140, 260)]
    tables = [a_table([str(at) for at in range(*each)], f"f{number}") for number, each in enumerate(ranges)]
    report = took(house, *tables, row_group_size=10)
    assert report.counts == BatchCounts(149 + 99 + 120, 149 + 99 + 120)
    assert orders(house) == sorted(at for each in ranges for at in range(*each))
    assert plans == [None]
    again = took(house, *(table.append_column("note", pa.nulls(len(table))) for table in tables), name="b")
    assert (again.counts.appended, again.counts.dropped + again.counts.pending) == (0, report.counts.read)


FAR = {"ms": (1_000, [10**15, -(10**15), 2**62]), "us": (1, [10**18, 2**60, 2**62])}
"""How many microseconds the unit has, and how many units no calendar has; 2**62 milliseconds are no number either."""


@pytest.mark.parametrize("unit", FAR)
def test_moments_beyond_what_can_be_kept_are_quarantined(
    a_house: Builder, unit: str, plans: list[SlotPlan | None]
) -> None:
    house = a_house(a_feed(bucket_rows=4, slack=100 * SECOND))
    micros, far = FAR[unit]
    sound = [(NOW - (20 - second) * SECOND) // micros for second in range(12)]
    at = pa.array([*sound, *far], pa.int64()).cast(pa.timestamp(unit, "UTC"))
    report = took(house, a_table(at), row_group_size=3)
    assert (report.counts.appended, report.counts.quarantined) == (12, 3)
    assert orders(house) == [each * micros for each in sound]
    assert [line for line, _ in reasons(house)] == [13, 14, 15]
    assert all(reason.startswith("at: ") and "is not a timestamp" in reason for _, reason in reasons(house))
    assert (plans[0] is None) == (unit == "ms")


FOREIGN = {
    "unsigned": (pa.array([1, 2**63 + 5, 3], pa.uint64()), [2]),
    "half numbers": (pa.array(np.array([1, 2.5, 3], np.float16)), [2]),
    "doubles": (pa.array([1.0, float("nan"), 3.0]), [2]),
    "NULL": (pa.array([1, None, 3]), [2]),
    "signed": (pa.array([1, 2, 3], pa.int16()), []),
}


@pytest.mark.parametrize("case", FOREIGN)
def test_whole_numbers_of_any_type_are_an_order(a_house: Builder, case: str, plans: list[SlotPlan | None]) -> None:
    at, wrong = FOREIGN[case]
    house = a_house(NUMBERED)
    report = took(house, a_table(at, price=pa.array(np.array([1, 2.5, np.inf], np.float16))))
    assert (report.counts.appended, report.counts.quarantined) == (3 - len(wrong), len(wrong))
    assert [row["at"] for row in house.scan()] == ([1, 3] if wrong else [1, 2, 3])
    assert [line for line, _ in reasons(house)] == wrong
    assert (plans[0] is None) == (case != "signed")


@pytest.mark.parametrize("end", [HIGHEST, LOWEST])
def test_the_very_ends_of_the_order_are_no_place_for_a_row(a_house: Builder, end: int) -> None:
    house = a_house(replace(NUMBERED, slack=5))
    for number in range(2):
        report = house.append([Source(f"{number}.csv", [a_line(end, who) for who in "ab"[: number + 1]])])
        assert (report.counts.quarantined, report.stable) == (number + 1, None)
    assert {reason for _, reason in reasons(house)} == {
        f"at: {end} is at the very end of what a bigint can hold, where nothing can come after it"
    }
    assert took(house, a_table([end, 7])).counts == BatchCounts(2, 1, quarantined=1)
    assert orders(house) == [7]
    assert house.scan(start="8") == []


def test_next_to_the_ends_there_is_place(a_house: Builder) -> None:
    house = a_house(replace(NUMBERED, slack=5))
    assert house.append([Source("1.csv", [a_line(LOWEST + 1)])]).stable == LOWEST
    assert house.append([Source("2.csv", [a_line(LOWEST + 1), a_line(LOWEST + 2)])]).counts == BatchCounts(
        2, 1, dropped=1
    )
    assert house.append([Source("3.csv", [a_line(HIGHEST - 1)])]).stable == HIGHEST - 6
    assert house.append([Source("4.csv", [a_line(HIGHEST - 1), a_line(HIGHEST - 1, "b")])]).counts.dropped == 1
    assert orders(house) == [LOWEST + 1, LOWEST + 2, HIGHEST - 1, HIGHEST - 1]
    assert len(house.scan(start=str(HIGHEST - 1))) == 2


def test_a_time_of_arrival_that_is_given_is_compared_as_any_other(a_house: Builder) -> None:
    house = a_house(a_feed(order="arrived", key=("arrived", "who")))

    def rows(*whose: str) -> list[Line]:
        return [Line({"arrived": NOW - SECOND, "who": who, "price": 1.0, "note": None}) for who in whose]

    named = ["arrived", "who", "price", "note"]
    house.append([Source("1.csv", rows("a"), named)])
    house.clock.advance(SECOND)
    report = house.append([Source("2.csv", rows("a", "b"), named)])
    assert report.counts == BatchCounts(2, 1, dropped=1)
    report = house.append([Source("3.jsonl", rows("b", "c"))])
    assert report.counts == BatchCounts(2, 1, dropped=1)
    assert [row["who"] for row in house.scan()] == ["a", "b", "c"]
    # Where nothing is given it is the time of this arrival, and no key is there already.
    report = house.append([Source("4.csv", [Line({"who": "a", "price": 1.0, "note": None})])])
    assert report.counts == BatchCounts(1, 1)


@pytest.mark.parametrize("name", ["wh[1] {a,b}", "day=1/w%20h#?*\\"])
def test_a_warehouse_may_lie_in_a_folder_of_any_name(a_house: Builder, name: str) -> None:
    house = a_house(replace(NUMBERED, slack=100))
    house.site = replace(house.site, warehouse=Warehouse(str(house.folder / name)))
    house.append([Source("1.csv", [a_line(at, note="x" * 300_000) for at in range(3)])])
    report = house.append([Source("2.csv", [a_line(at, note="x" * 300_000) for at in range(2, 5)])])
    assert (report.counts.appended, report.counts.dropped) == (2, 1)
    assert orders(house) == [0, 1, 2, 3, 4]
    assert len(house.files()) == len([bucket for bucket in house.stored() if bucket.path]) > 0
    assert (house.folder / name).is_dir()
