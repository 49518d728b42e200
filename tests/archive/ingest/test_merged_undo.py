"""A batch of a feed undone: the rows that it was the first to say are gone, and may be said again by anybody."""

from __future__ import annotations

from errata.archive.revisions.undo import undo_batch
from errata.archive.upkeep.doctor import DoctorOptions, run_doctor
from errata.model.bucket import Role
from errata.model.feed import EmitPolicy, MergePolicy
from fixtures.flows import Builder, House
from fixtures.quotes import quotes, row, rows, say, stable, standing


def places(house: House) -> list[int]:
    return [each[1] for each in rows(house)]


def test_an_undone_batch_may_come_again(a_house: Builder) -> None:
    house = a_house(quotes())
    first = say(house, "a", row(1), row(2, until=5), stable(1))
    say(house, "b", row(2, until=5), row(3))
    say(house, "a", stable(6))
    undo_batch(house.site, "quotes", first.batch_id)
    assert house.stored("quotes", role=Role.MERGE) == []
    assert standing(house)["a"].stable < 0
    assert places(house) == [3]
    again = say(house, "a", row(1), row(2, until=5), row(3))
    assert (again.counts.read, again.counts.dropped, again.counts.quarantined) == (3, 1, 0)
    assert rows(house) == [("x", 1, 1.0, None), ("x", 2, 1.0, 5), ("x", 3, 1.0, None)]
    assert [each for report in run_doctor(house.site, (), DoctorOptions()) for each in report.findings] == []


def test_rows_that_a_later_batch_released_are_undone_with_the_one_that_said_them(a_house: Builder) -> None:
    house = a_house(quotes(policy=MergePolicy(emit=EmitPolicy.HALF_FROZEN)))
    first = say(house, "a", row(1), row(2))
    second = say(house, "b", row(3), stable(5))
    assert places(house) == [1, 2, 3]
    undo_batch(house.site, "quotes", first.batch_id)
    assert places(house) == [3]
    undo_batch(house.site, "quotes", second.batch_id)
    assert places(house) == []
