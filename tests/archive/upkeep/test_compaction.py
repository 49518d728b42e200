"""Compaction changes how an archive lies, and nothing of what it says: at no commit, with no number of revisions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from errata.archive.upkeep import rewrite as archive
from errata.archive.upkeep.ageing import age_out
from errata.archive.upkeep.compaction import compact_streams
from errata.errors import ErrataError
from errata.model.batch import Op
from errata.model.bucket import Role
from errata.model.compaction import RewriteReason
from errata.model.stream import Retention
from fixtures.flows import House
from fixtures.layers import Layers, Make, a_row, compacted, key, layers, plain

LARGE = "x" * 300_000
"""Too much for the catalog."""

INSERT, REPLACE, DELETE = Op.INSERT, Op.REPLACE, Op.DELETE


def test_a_replaced_row_becomes_a_row_again(make: Make) -> None:
    done = make(bucket_rows=4)
    done.bring([a_row(at) for at in range(4)], [a_row(at) for at in range(10, 14)], [a_row(at) for at in range(20, 24)])
    untouched = done.stored()[2]
    done.correct((REPLACE, a_row(1, price=2.0), {}), (DELETE, key(2), {}), (INSERT, a_row(15), {}))
    rows = done.seen()
    assert compacted(done).is_empty is False
    assert done.stored(Role.OVERLAY) == []
    assert [[row["at"] for row in done._rows(bucket)] for bucket in done.stored()] == [
        [0, 1, 3],
        [10, 11],
        [12, 13, 15],
        [20, 21, 22, 23],
    ]
    assert untouched in done.stored()
    assert done.seen() == rows
    table = done.house.content(done.stored()[0])
    origin = [[row[name] for name in ("_batch", "_pos", "_revision")] for row in table.to_pylist()]
    assert origin[0][2] is None
    assert origin[1][2] == 1, "it tells which revision made it"
    assert origin[0][0] != origin[1][0], "and which batch brought that"
    done.check_index()


def test_a_row_that_moves_goes_where_it_belongs(make: Make) -> None:
    done = make(bucket_rows=6, key=("who",))
    done.bring([a_row(at, f"a{at}") for at in range(4)], [a_row(at, f"b{at}") for at in range(10, 14)])
    done.correct((REPLACE, a_row(12, "a1"), {}), (REPLACE, a_row(3, "b13"), {}))
    rows = done.seen()
    compacted(done, everything=True)
    found = [[row["who"] for row in done._rows(bucket)] for bucket in done.stored()]
    assert found == [["a0", "a2", "a3", "b13"], ["b10", "b11", "a1", "b12"]]
    assert done.seen() == rows


def test_a_deletion_does_not_reach_a_row_that_came_later(make: Make) -> None:
    done = make()
    done.bring([a_row(1), a_row(2)])
    done.correct((DELETE, key(1), {}))
    done.bring([a_row(1, price=9.0)])
    for everything in (False, True):
        compacted(done, everything=everything)
        assert [row["price"] for row in done.seen()] == [9.0, 1.0]
    assert len(done.stored()) == 1
    done.check_index()


def test_where_nothing_is_left_there_is_no_bucket_and_no_forgetting(make: Make) -> None:
    done = make(bucket_rows=2)
    done.bring([a_row(1), a_row(2)], [a_row(3), a_row(4)])
    done.correct((DELETE, key(1), {}), (DELETE, key(2), {}))
    before = done.standing.changed_in
    assert compacted(done, everything=True).written == []
    assert [bucket.vs_min for bucket in done.stored()] == [3]
    assert len(done.seen(before, 0)) == 4
    assert done.standing.folded == 2
    done.correct((DELETE, key(3), {}), (DELETE, key(4), {}))
    compacted(done, everything=True)
    assert (done.stored(), done.stored(Role.OVERLAY), done.standing.rows) == ([], [], 0)
    done.correct((INSERT, a_row(7), {}))
    compacted(done, everything=True)
    assert [row["at"] for row in done.seen()] == [7], "a row where no bucket is"
    done.check_index()


def test_a_consumer_holds_back_what_it_has_still_to_consume(make: Make) -> None:
    done = make(bucket_rows=3)
    done.bring([a_row(at) for at in range(3)], [a_row(at) for at in range(5, 8)])
    done.correct((REPLACE, a_row(1, price=2.0), {}))
    done.correct((REPLACE, a_row(1, price=3.0), {}), (REPLACE, a_row(6, price=3.0), {}))
    done.consumer(2)  # in the midst of what the second commit has applied
    told = {number: done.seen(up_to=number) for number in range(1, 4)}
    report = compacted(done, everything=True)
    assert [bucket.revision_last for bucket in report.held] == [3]
    assert (len(report.replaced), len(report.folded), done.standing.folded) == (1, 1, 1)
    assert {number: done.seen(up_to=number) for number in told} == told
    done.check_index()
    done.consumer(3)
    compacted(done, everything=True)
    assert (done.standing.folded, done.stored(Role.OVERLAY), done.seen()) == (3, [], told[3])


def test_corrections_of_one_commit_are_not_parted(make: Make) -> None:
    done = make(bucket_rows=2, key=("who",))
    done.bring([a_row(1, "a"), a_row(2, "b")])
    # The overlay of place 20 holds what is to be consumed, and masks what the other overlay brings.
    done.correct(*((REPLACE, a_row(20, "a", price), {}) for price in (2.0, 3.0, 4.0)))
    assert sorted((each.revision_first, each.revision_last) for each in done.stored(Role.OVERLAY)) == [(1, 1), (2, 3)]
    done.consumer(2)
    told = {number: done.seen(up_to=number) for number in (1, 2, 3)}
    compacted(done, everything=True)
    assert done.standing.folded == 1
    assert {number: done.seen(up_to=number) for number in told} == told


@pytest.mark.parametrize("aged", [False, True])
def test_a_row_whose_key_was_free_elsewhere_goes_on_having_come_later(make: Make, aged: bool) -> None:
    done = make(bucket_rows=4, key=("who",), slack=0, retention=Retention(span=55))
    done.bring([a_row(1, "a"), a_row(2, "b")], [a_row(9, "x")])
    done.correct((REPLACE, a_row(9, "x", 2.0), {}))
    done.correct((DELETE, {"who": "a"}, {}))
    done.bring([a_row(50, "a")])
    done.bring([a_row(60, "c")])
    if aged:
        age_out(done.house.site, [done.name])
    done.consumer(1)
    told = {number: done.seen(up_to=number) for number in (1, 2)}
    assert told[1] != told[2]
    report = compacted(done, everything=True)
    assert (done.standing.folded, len(report.held)) == (1, 1)
    assert {number: done.seen(up_to=number) for number in told} == told
    done.check_index()


def test_what_a_correction_brings_does_not_join_rows_that_came_after_a_later_one(make: Make) -> None:
    done = make(bucket_rows=20)
    done.bring([a_row(at) for at in range(15)])
    done.correct((INSERT, a_row(30), {}))
    done.correct((REPLACE, a_row(30, price=2.0), {}))
    done.bring([a_row(29), a_row(31)])
    done.bring([a_row(32), a_row(33)])
    done.consumer(1)
    told = {number: done.seen(up_to=number) for number in (1, 2)}
    compacted(done, everything=True)
    assert [(bucket.vs_min, bucket.vs_max, bucket.floor) for bucket in done.stored()] == [(0, 30, 1), (29, 33, 2)]
    assert {number: done.seen(up_to=number) for number in told} == told
    done.check_index()


def test_what_has_been_aged_out_is_not_written_again(make: Make) -> None:
    done = make(bucket_rows=4, slack=0, retention=Retention(span=10))
    done.bring([a_row(1), a_row(2)], [a_row(0), a_row(20)], [a_row(21), a_row(22)])
    done.correct((INSERT, a_row(2, "b"), {}), (INSERT, a_row(20, "b"), {}), (REPLACE, a_row(20, price=2.0), {}))
    age_out(done.house.site, [done.name])
    assert [row["at"] for row in done.seen()] == [20, 20, 21, 22]
    assert [len(done.stored()), len(done.stored(Role.OVERLAY))] == [2, 1], "with parts that have been aged out"
    rows = done.seen()
    compacted(done, everything=True)
    assert done.seen() == rows
    assert sum(bucket.rows for bucket in done.stored()) == len(rows), "nothing else is left"
    done.check_index()


def test_small_buckets_are_merged_and_corrections_stay_beside_them(make: Make) -> None:
    done = make(bucket_rows=1000)
    done.bring([a_row(at) for at in range(600)])
    for at in range(600, 608):
        done.bring([a_row(at), a_row(at, "b")])
    done.correct((REPLACE, a_row(601, price=2.0), {}))
    told = [done.seen(up_to=number) for number in (0, 1)]
    report = compacted(done)
    assert [(why, len(found)) for why, found in report.reasons] == [(RewriteReason.SMALL, 8)]
    assert ([bucket.rows for bucket in done.stored()], len(done.stored(Role.OVERLAY))) == ([600, 16], 1)
    assert [done.seen(up_to=number) for number in (0, 1)] == told
    done.check_index()


def test_a_column_that_was_added_is_null_in_what_was_there(make: Make) -> None:
    done = make()
    done.bring([a_row(1), a_row(2)])
    wide = replace(done.stream, columns=(*done.stream.columns, replace(done.stream.columns[-1], name="more")))
    done.house.declare(wide)
    done.stream = wide
    done.bring([a_row(3) | {"more": "x"}])
    done.correct((REPLACE, key(1) | {"more": "y"}, {}))
    rows = done.seen()
    compacted(done, everything=True)
    assert done.seen() == rows
    assert [row["more"] for row in rows] == ["y", None, "x"]


def test_the_catalog_is_relieved_when_it_holds_too_much(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("errata.model.compaction", "errata.archive.upkeep.rewrite"):
        monkeypatch.setattr(f"{module}.MAX_INLINE_STREAM_BYTES", 2_000)
    done = make(bucket_rows=2)
    done.bring([a_row(1), a_row(2)], [a_row(3), a_row(4)])
    done.correct((DELETE, key(1), {}))
    assert done.standing.inline_bytes >= 2_000
    report = compacted(done)
    assert {why for why, _ in report.reasons} == {RewriteReason.INLINE}
    assert done.standing.inline_bytes == 0
    assert all(bucket.path for bucket in done.stored())
    done.check_index()


class _StoppedError(Exception):
    pass


def test_a_run_that_is_stopped_leaves_only_files(make: Make) -> None:
    done = make(inline=False, bucket_rows=2)
    done.bring([a_row(1, note=LARGE + "1"), a_row(2, note=LARGE + "2")])
    done.correct((REPLACE, a_row(1, price=2.0, note=LARGE + "3"), {}))
    before, rows = done.standing, done.seen()

    def stop(step: str) -> None:
        if step.startswith("committing"):
            raise _StoppedError

    files = done.house.files()
    with pytest.raises(_StoppedError):
        compact_streams(done.house.site, [done.name], everything=True, on_step=stop)
    orphans = done.house.files() - files
    assert (len(orphans), done.standing, done.seen()) == (1, before, rows)
    assert len(compacted(done, everything=True).replaced) == 1
    assert (done.seen(), done.stored(Role.OVERLAY)) == (rows, [])
    assert done.house.files() - files - orphans == {bucket.path for bucket in done.stored()}


@pytest.mark.parametrize("other", ["compaction", "correction", "ageing", "consumer"])
def test_who_comes_first_is_taken_into_account(make: Make, other: str) -> None:
    done = make(inline=False, bucket_rows=4, slack=0, retention=Retention(span=5))
    done.bring([a_row(1, note=LARGE + "1"), a_row(2, note=LARGE + "2")], [a_row(9), a_row(10)])
    done.correct((REPLACE, a_row(1, price=2.0, note=LARGE + "3"), {}), (INSERT, a_row(2, "b"), {}))
    deeds = {
        "compaction": lambda: compacted(done, everything=True),
        "correction": lambda: done.correct((DELETE, key(2), {})),
        "ageing": lambda: age_out(done.house.site, [done.name]),
        "consumer": lambda: done.consumer(1),
    }
    steps: list[str] = []

    def on_step(step: str) -> None:
        steps.append(step)
        if steps.count(f"committing {done.name}") == 1 and step.startswith("committing"):
            deeds[other]()

    rows = done.seen()
    (report,) = compact_streams(done.house.site, [done.name], everything=True, on_step=on_step)
    assert f"another writer moved {done.name} first; beginning again" in steps
    lost = {"correction": [(2, "a")], "ageing": [(1, "a"), (2, "a"), (2, "b")]}.get(other, [])
    assert done.seen() == [row for row in rows if (row["at"], row["who"]) not in lost]
    assert (report.commit_id is None) == (other != "correction"), "nothing is due any more, or yet"
    done.check_index()
    assert {bucket.path for bucket in done.stored() if bucket.path} <= done.house.files()


def test_corrections_of_other_rows_and_batches_do_not_disturb_it(make: Make) -> None:
    done = make(bucket_rows=3)
    done.bring([a_row(1), a_row(2)], [a_row(9), a_row(10)])
    done.correct((REPLACE, a_row(1, price=2.0), {}))

    def on_step(step: str) -> None:
        if step.startswith("committing"):
            done.correct((DELETE, key(9), {}))
            done.bring([a_row(11)])

    (report,) = compact_streams(done.house.site, [done.name], on_step=on_step)
    assert [bucket.vs_min for bucket in report.replaced] == [1]
    assert [row["at"] for row in done.seen()] == [1, 10, 11, 2]
    assert done.standing.folded == 1
    done.check_index()


def test_it_says_when_nothing_is_due_and_a_plan_touches_nothing(make: Make) -> None:
    done = make()
    done.bring([a_row(1), a_row(2)])
    done.correct((DELETE, key(1), {}))
    before = done.standing
    assert compacted(done).is_empty
    planned = compacted(done, everything=True, plan_only=True)
    assert (planned.commit_id, len(planned.replaced), len(planned.folded), planned.is_empty) == (None, 1, 1, False)
    assert done.standing == before
    with pytest.raises(ErrataError, match="nothing_of_the_kind"):
        compact_streams(done.house.site, ["nothing_of_the_kind"])


def test_tasks_of_spark_do_the_same(a_house: Callable[..., House], make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    def filled(done: Layers) -> Layers:
        done.bring(*([a_row(at) for at in range(low, low + 5)] for low in range(0, 50, 5)))
        done.correct(*((REPLACE, a_row(at, price=2.0), {}) for at in range(0, 50, 7)), (INSERT, a_row(3, "b"), {}))
        return done

    here, there = filled(make(bucket_rows=5)), filled(layers(a_house(plain()), plain(bucket_rows=5), inline=False))
    compacted(here, everything=True)
    monkeypatch.setattr("errata.engine.budget.LOCAL_TASK_BYTES", 0)
    monkeypatch.setattr(archive, "TASK_BYTES", 4_000)
    old, rows = there.standing.changed_in, there.seen()
    report = compacted(there, everything=True)
    assert (len(report.replaced), len(there.stored())) == (8, len(here.stored()))
    assert [there._rows(bucket) for bucket in there.stored()] == [here._rows(bucket) for bucket in here.stored()]
    assert there.scanned() == there.seen() == rows
    assert there.scanned(as_of=old) == rows
    assert there.scanned(as_of=old, revisions_up_to=0) == there.seen(old, 0)
    with pytest.raises(ErrataError, match="revision 3 can no longer be told apart"):
        there.scanned(revisions_up_to=3)
    with pytest.raises(ErrataError, match="compaction has worked revisions up to 9"):
        there.scanned(revisions_up_to=0, start="1", end="1")
    there.check_index()
