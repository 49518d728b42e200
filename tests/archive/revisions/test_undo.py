"""Undoing batches: what they brought, changed and deleted is as it was before them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
from sqlalchemy import event

from errata.archive.revisions import undo as flow
from errata.archive.revisions.apply import apply_revisions
from errata.archive.revisions.undo import UndoReport, plan_undo, undo_batch
from errata.archive.upkeep.ageing import age_out
from errata.archive.upkeep.compaction import compact_streams
from errata.catalog import commits, quarantine, streams
from errata.errors import RefusedError, UsageError
from errata.model.batch import Op
from errata.model.bucket import Role
from errata.model.stream import Retention, RevisionPolicy
from errata.model.time import SECOND
from fixtures.catalog import NOW
from fixtures.flows import Builder, House, a_feed
from fixtures.sources import Line, Source

FEED = a_feed(bucket_rows=20, slack=5 * SECOND)


def line(at: int, who: str, price: float = 1.0, op: Op | None = None, /, **old: object) -> Line:
    return Line({"at": NOW - (1000 - at) * SECOND, "who": who, "price": price}, op, None, old)


def took(house: House, batch_id: str, *lines: Line) -> None:
    house.append([Source(f"{batch_id}.jsonl", lines)], batch_id=batch_id)


CHANGES = (
    line(3, "c", 7.0),
    line(4, "a", 99.0, Op.REPLACE),
    line(5, "a", 1.0, Op.DELETE),
    line(60, "n"),
    line(8, "q", 2.0, Op.REPLACE, who="a"),
)
"""A late row, a change, a deletion, a row on time and a change of key."""


@pytest.fixture
def house(a_house: Builder) -> House:
    """A hundred rows, as batch A brought them."""
    house = a_house(FEED)
    took(house, "A", *(line(at, who, float(at)) for at in range(50) for who in "ab"))
    return house


@pytest.fixture
def changed(house: House) -> House:
    """The same, as batch B changed them."""
    took(house, "B", *CHANGES)
    apply_revisions(house.site)
    return house


def counts(report: UndoReport) -> tuple[int, ...]:
    plan = report.plan
    return plan.deleted, plan.restored, plan.put_back, plan.kept, plan.aged, plan.withdrawn


@pytest.mark.parametrize("compacting", [False, True], ids=["overlays", "compacted"])
@pytest.mark.parametrize("key", [("at", "who"), ("who", "at", "note"), ("who",)], ids="-".join)
def test_a_batch_its_undo_and_the_undo_of_that(a_house: Builder, key: tuple[str, ...], compacting: bool) -> None:
    house = a_house(replace(FEED, key=key, group=()))
    names = [f"{who}{at}" if key == ("who",) else who for at in range(50) for who in "ab"]
    took(
        house,
        "A",
        *(
            Line({"at": NOW - (1000 - at // 2) * SECOND, "who": who, "price": 1.0, "note": "x"})
            for at, who in enumerate(names)
        ),
    )
    one = house.scan()
    first, second, third = one[0], one[5], one[9]
    moved = {**second, "who": "moved"}
    took(
        house,
        "B",
        Line({**first, "price": 2.0}, Op.REPLACE),
        Line(moved, Op.REPLACE, None, {"who": second["who"]}),
        Line(third, Op.DELETE),
        Line({**first, "who": "late"}),
    )
    apply_revisions(house.site)
    two = house.scan()
    assert two != one

    def done(batch: str) -> tuple[int, ...]:
        if compacting:
            compact_streams(house.site, everything=True)
        return counts(undo_batch(house.site, "feed", batch))

    assert done("B") == (1, 2, 1, 0, 0, 0)
    assert house.scan() == one
    assert done("undo-B") == (1, 2, 1, 0, 0, 0)
    assert house.scan() == two
    assert done("undo-undo-B") == (1, 2, 1, 0, 0, 0)
    assert house.scan() == one
    assert done("A") == (100, 0, 0, 0, 0, 0)
    assert house.scan() == []
    assert streams.stream_state(house.catalog, "feed").rows == 0


def test_every_state_before_an_undo_can_still_be_read(changed: House) -> None:
    before, at = changed.scan(), commits.newest_commit(changed.catalog)
    undo_batch(changed.site, "feed", "B")
    assert changed.scan() != before
    assert changed.scan(as_of=at) == before


def test_pending_revisions_are_applied_before(house: House) -> None:
    one = house.scan()
    took(house, "B", *CHANGES)
    assert plan_undo(house.site, "feed", "B").pending == 4
    report = undo_batch(house.site, "feed", "B")
    assert counts(report) == (2, 2, 1, 0, 0, 0)
    assert house.scan() == one


def test_what_came_later_is_a_refusal_that_names_it_unless_it_is_kept(changed: House) -> None:
    took(changed, "C", line(4, "a", 100.0, Op.REPLACE), line(8, "a", 55.0))
    apply_revisions(changed.site)
    before, at = changed.scan(), commits.newest_commit(changed.catalog)
    with pytest.raises(RefusedError, match="2 of its rows have been changed since") as refused:
        undo_batch(changed.site, "feed", "B")
    assert refused.value.where is not None
    assert "at=2024-10-03T23:43:24.000000, who=a" in refused.value.where
    assert "who=q" in refused.value.where
    assert "undo C first" in str(refused.value)
    assert (changed.scan(), commits.newest_commit(changed.catalog)) == (before, at)
    assert counts(undo_batch(changed.site, "feed", "B", keep_later=True)) == (2, 0, 1, 2, 0, 0)
    left = [(row["who"], row["price"]) for row in changed.scan()]
    assert ("a", 100.0) in left
    assert ("q", 2.0) in left
    assert ("c", 7.0) not in left


def test_the_later_batch_undone_first_frees_the_earlier(changed: House) -> None:
    two = changed.scan()
    took(changed, "C", line(4, "a", 100.0, Op.REPLACE))
    undo_batch(changed.site, "feed", "C")
    assert changed.scan() == two
    assert undo_batch(changed.site, "feed", "B").plan.kept == 0


def test_a_batch_that_is_undone_already(changed: House) -> None:
    first = undo_batch(changed.site, "feed", "B")
    after, at = changed.scan(), commits.newest_commit(changed.catalog)
    again = undo_batch(changed.site, "feed", "B")
    assert (again.already, again.commit_id, again.finished) == (True, first.commit_id, False)
    assert plan_undo(changed.site, "feed", "B").undone_in == first.commit_id
    assert (changed.scan(), commits.newest_commit(changed.catalog)) == (after, at)


def test_what_waits_of_the_batch_never_comes(house: House) -> None:
    took(house, "W", line(70, "z", 3.0, Op.REPLACE))
    assert undo_batch(house.site, "feed", "W").plan.withdrawn == 1
    took(house, "D", line(70, "z", 1.0), line(90, "y"))
    assert not any(report.commits for report in apply_revisions(house.site))
    assert [row["price"] for row in house.scan() if row["who"] == "z"] == [1.0]
    assert house.stored(role=Role.PENDING) == []


def test_rows_in_quarantine_are_left_there(house: House) -> None:
    took(house, "Q", line(3, "a", 7.0), line(4, "x", 1.0, Op.DELETE))
    apply_revisions(house.site)
    held = quarantine.quarantined_rows(house.catalog)
    assert undo_batch(house.site, "feed", "Q").plan.quarantined == len(held) == 2
    assert quarantine.quarantined_rows(house.catalog) == held


def test_many_rows_are_taken_back_by_tasks(changed: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("errata.engine.budget.LOCAL_TASK_BYTES", -1)
    compact_streams(changed.site, everything=True)
    assert plan_undo(changed.site, "feed", "A").deleted == 97
    assert undo_batch(changed.site, "feed", "A", keep_later=True).plan.deleted == 97
    assert [row["who"] for row in changed.scan()] == ["c", "a", "q", "n"]


def test_rows_that_are_aged_out_are_told(a_house: Builder) -> None:
    house = a_house(replace(FEED, retention=Retention(span=10 * SECOND), bucket_rows=4))
    took(house, "A", *(line(at, "a") for at in range(20)))
    took(house, "B", line(1, "a", 2.0, Op.REPLACE), line(18, "a", 2.0, Op.REPLACE))
    apply_revisions(house.site)
    took(house, "C", line(27, "a"))
    assert age_out(house.site)[0].commit_id is not None
    assert counts(undo_batch(house.site, "feed", "B")) == (0, 1, 0, 0, 1, 0)


def test_unknown_batches_and_beginnings_of_ids(changed: House) -> None:
    took(changed, "monday-1", line(70, "z"))
    took(changed, "monday-2", line(71, "z"))
    with pytest.raises(UsageError, match=r"(?s)unknown batch 'C'.*there is monday-2, monday-1, B, A"):
        undo_batch(changed.site, "feed", "C")
    with pytest.raises(UsageError, match=r"(?s)more than one batch begins with 'mon'.*one of monday-1, monday-2"):
        undo_batch(changed.site, "feed", "mon")
    assert undo_batch(changed.site, "feed", "monday-2").plan.batch_id == "monday-2"
    # Now undo-monday-2 begins with something else, and one that begins so is left.
    assert plan_undo(changed.site, "feed", "monday-1").deleted == 1


def test_a_stream_that_ignores_revisions_cannot_undo(house: House) -> None:
    house.declare(replace(FEED, on_revision=RevisionPolicy.IGNORE))
    with pytest.raises(RefusedError, match="ignores revisions"):
        undo_batch(house.site, "feed", "A")


def test_a_batch_that_bears_the_undos_id_is_in_the_way(house: House) -> None:
    took(house, "undo-A", line(70, "z"))
    with pytest.raises(RefusedError, match="bear the same id"):
        undo_batch(house.site, "feed", "A")


def test_an_id_too_long_to_be_prefixed(house: House) -> None:
    name = "x" * 200
    took(house, name, line(70, "z"))
    report = undo_batch(house.site, "feed", name)
    assert (len(report.plan.undo_id), report.plan.deleted) == (69, 1)
    assert undo_batch(house.site, "feed", name).already


class KilledError(Exception):
    pass


@contextmanager
def killed_at(house: House, step: int) -> Iterator[None]:
    """As if the process were killed before a statement: what it had not committed has never been."""
    taken = 0

    def on_step(*_: object) -> None:
        nonlocal taken
        taken += 1
        if taken == step:
            raise KilledError

    event.listen(house.catalog.engine, "before_cursor_execute", on_step)
    try:
        yield
    finally:
        event.remove(house.catalog.engine, "before_cursor_execute", on_step)


@pytest.mark.parametrize("finish", ["undo", "revise"])
def test_killed_between_the_two_commits(changed: House, finish: str, monkeypatch: pytest.MonkeyPatch) -> None:
    two = changed.scan()
    with monkeypatch.context() as patch:
        calls = iter([flow.apply_stream_revisions])

        def dying(*args: object) -> object:
            following = next(calls, None)
            if following is None:
                raise KilledError
            return following(*args)

        patch.setattr(flow, "apply_stream_revisions", dying)
        with pytest.raises(KilledError):
            undo_batch(changed.site, "feed", "B")
    assert changed.scan() == two
    if finish == "revise":
        apply_revisions(changed.site)
    else:
        report = undo_batch(changed.site, "feed", "B")
        assert (report.already, report.finished) == (True, True)
    assert len(changed.scan()) == 100
    assert undo_batch(changed.site, "feed", "B").commits == ()


def test_killed_at_any_statement_and_run_again(a_house: Builder) -> None:
    step, killed = 1, 0
    while True:
        house = a_house(FEED)
        took(house, "A", *(line(at, "a", float(at)) for at in range(9)))
        took(house, "B", line(4, "a", 99.0, Op.REPLACE), line(20, "b"))
        try:
            with killed_at(house, step):
                undo_batch(house.site, "feed", "B")
            break
        except KilledError:
            killed += 1
            undo_batch(house.site, "feed", "B")
        assert streams.stream_state(house.catalog, "feed").rows == 9
        (base, *_), (overlay, *_) = house.stored(), house.stored(role=Role.OVERLAY)
        assert (base.masked, overlay.rows, house.stored(role=Role.PENDING)) == (1, 1, [])
        step += 7
    assert killed > 5
    assert [row["price"] for row in house.scan()] == [float(at) for at in range(9)]
