"""Applying corrections: what the oracle's random lives do not reach."""

from __future__ import annotations

import pytest

from errata.archive.revisions import decide
from errata.archive.revisions.apply import apply_stream_revisions
from errata.archive.upkeep.ageing import age_out
from errata.archive.upkeep.doctor import DoctorOptions, run_doctor
from errata.model.batch import Op
from errata.model.bucket import Layout
from errata.model.stream import Retention
from errata.model.time import HIGHEST, SECOND
from fixtures.catalog import NOW
from fixtures.flows import Builder, House, a_feed
from fixtures.sources import Line, Source


def counted(at: int, who: str = "a", price: float = 1.0, op: Op | None = None) -> Line:
    return Line({"at": at, "who": who, "price": price}, op)


def test_a_correction_at_the_very_end_holds_up_no_other(a_house: Builder) -> None:
    house = a_house(a_feed(moment="bigint"))
    house.append([Source("1.jsonl", [counted(at) for at in range(10)])])
    house.append([Source("2.jsonl", [counted(HIGHEST, op=Op.DELETE)])])
    alone = apply_stream_revisions(house.site, "feed").counts
    assert (alone.waiting, alone.applied) == (1, 0)
    house.append([Source("3.jsonl", [counted(HIGHEST, op=Op.DELETE), counted(3, op=Op.DELETE)])])
    settled = apply_stream_revisions(house.site, "feed").counts
    assert (settled.deleted, settled.waiting) == (1, 2)
    assert [row["at"] for row in house.scan()] == [at for at in range(10) if at != 3]
    assert len(house.scan(start="0", end="9" * 30)) == 9


def test_a_row_of_another_group_that_came_for_a_freed_key_is_left_out_with_the_revision(a_house: Builder) -> None:
    house = a_house(a_feed(key=("at",), slack=5 * SECOND))
    first = Line({"at": NOW, "who": "a", "price": 1.0})
    house.append([Source("1.jsonl", [first])])
    house.append([Source("2.jsonl", [Line({"at": NOW}, Op.DELETE)])])
    apply_stream_revisions(house.site, "feed")
    house.append([Source("3.jsonl", [Line({"at": NOW, "who": "b", "price": 2.0})])])
    assert [row["who"] for row in house.scan(groups=[{"who": "b"}])] == ["b"]
    assert [row["who"] for row in house.scan(revisions_up_to=0)] == ["a"]
    assert house.scan(groups=[{"who": "b"}], revisions_up_to=0) == []


def test_what_only_waits_does_not_hold_up_what_stands_behind_it(
    a_house: Builder, monkeypatch: pytest.MonkeyPatch
) -> None:
    house: House = a_house(a_feed(moment="bigint"))
    house.append([Source("1.jsonl", [counted(at) for at in range(10)])])
    house.append([Source("2.jsonl", [counted(100 + at, op=Op.DELETE) for at in range(3)])])
    house.append([Source("3.jsonl", [counted(2, op=Op.DELETE)])])
    monkeypatch.setattr(decide, "CLAIM_ROWS", 1)
    monkeypatch.setattr(decide.claim_pending, "__defaults__", (1,))
    settled = apply_stream_revisions(house.site, "feed").counts
    assert (settled.deleted, settled.waiting) == (1, 3)


@pytest.mark.parametrize("layout", ["grouped", "clustered", "plain"])
def test_a_layout_changes_where_rows_lie_and_not_what_they_are(a_house: Builder, layout: str) -> None:
    """The same life in every layout: batches that overlap, corrections, ageing by a span."""
    rows = {name: _lived(a_house, name) for name in ("buckets", layout)}
    assert rows[layout] == rows["buckets"]


def _lived(a_house: Builder, layout: str) -> list[list[tuple[object, object, object]]]:
    house = a_house(
        a_feed(moment="bigint", slack=4, bucket_rows=6, layout=Layout(layout), retention=Retention(span=20))
    )
    seen = []
    for batch in range(4):
        # Every other moment of a stretch that overlaps the one before.
        lines = [counted(8 * batch + 2 * at - 4 * (batch % 2), who) for at in range(1, 8) for who in "ab"]
        house.append([Source(f"{batch}.jsonl", lines)], batch_id=f"b{batch}")
        seen.append(_told(house))
    house.append(
        [Source("late.jsonl", [counted(9, "c"), counted(22, "a", 5.0, Op.REPLACE), counted(24, op=Op.DELETE)])]
    )
    apply_stream_revisions(house.site, "feed")
    seen.append(_told(house))
    age_out(house.site)
    # Whole buckets keep a little more than row by row: what all must keep is compared.
    seen.append([row for row in _told(house) if isinstance(row[0], int) and row[0] >= 15])
    assert all(not each.findings for each in run_doctor(house.site, options=DoctorOptions()))
    return seen


def _told(house: House) -> list[tuple[object, object, object]]:
    return [(row["at"], row["who"], row["price"]) for row in house.scan()]
