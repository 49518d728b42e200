"""What comes between deciding and committing: another batch, another declaration, ageing; and nobody waits for ever."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from errata.catalog import buckets, commits, declarations, ledger, maintenance, streams
from errata.catalog.database import Catalog
from errata.catalog.declarations import ApplyConflict
from errata.catalog.maintenance import CompactionCommit, commit_compaction
from errata.catalog.migration import prepare_catalog
from errata.catalog.stream_commits import commit_append
from errata.catalog.streams import StreamState
from errata.catalog.transaction import BasisConflict, BatchConflict, FilesConflict
from errata.model.batch import BadRow
from errata.model.bucket import Bucket
from errata.model.commit import Cause
from errata.model.stream import Retention, Stream
from errata.model.time import LOWEST
from fixtures.catalog import a_batch, a_bucket, a_stream
from fixtures.postgres import FreshDatabase

CAUSE = Cause("test")


def declare(catalog: Catalog, *changed: Stream, planned_on: dict[str, int] | None = None) -> int:
    return declarations.apply_changes(catalog, CAUSE, write=changed, drop=[], summary={}, planned_on=planned_on)


def age_out(catalog: Catalog, basis: StreamState) -> list[Bucket]:
    aged = maintenance.plan_age_out(catalog, basis)
    assert aged is not None
    maintenance.commit_age_out(catalog, basis, aged, {}, CAUSE)
    return list(aged.buckets)


def test_a_file_that_another_batch_has_just_brought_is_not_brought_again(catalog: Catalog, ticks: Stream) -> None:
    basis = streams.stream_state(catalog, "ticks")
    first = a_batch("one", [a_bucket(10, 50)])
    commit_append(catalog, basis, first, CAUSE)
    before = commits.newest_commit(catalog)
    other = a_batch("other", [a_bucket(60, 90)])
    both = replace(other, files=[*first.files, *other.files], guarded=frozenset({first.content_hash}))
    with pytest.raises(FilesConflict):
        commit_append(catalog, streams.stream_state(catalog, "ticks"), both, CAUSE)
    assert commits.newest_commit(catalog) == before
    assert ledger.find_batch(catalog, basis.stream_id, "other") is None
    # The same batch once more is told from other batches with its files.
    with pytest.raises(BatchConflict):
        commit_append(catalog, basis, replace(first, guarded=frozenset({first.content_hash})), CAUSE)
    # Where that was known when it was decided what to take in, it is another delivery.
    seen = ledger.deliveries(catalog, basis.stream_id, [first.content_hash])
    commit_append(
        catalog, streams.stream_state(catalog, "ticks"), replace(both, batch_id="seen", buckets=[], earlier=seen), CAUSE
    )
    # Insisted on, or in a stream of its own, it may come again.
    commit_append(catalog, streams.stream_state(catalog, "ticks"), replace(both, guarded=frozenset()), CAUSE)
    declare(catalog, a_stream("tocks"))
    commit_append(catalog, streams.stream_state(catalog, "tocks"), both, CAUSE)


def test_nothing_is_appended_to_a_stream_that_has_been_dropped(catalog: Catalog, ticks: Stream) -> None:
    basis = streams.stream_state(catalog, "ticks")
    declarations.apply_changes(catalog, CAUSE, write=[], drop=["ticks"], summary={})
    before = commits.newest_commit(catalog)
    with pytest.raises(BasisConflict):
        commit_append(catalog, basis, a_batch("one", [a_bucket(10, 50)]), CAUSE)
    assert commits.newest_commit(catalog) == before


def test_every_take_of_a_batch_is_known_by_its_first_id(catalog: Catalog, ticks: Stream) -> None:
    once = a_batch("once", [a_bucket(10, 50)])
    twice = replace(once, batch_id=ledger.next_take_id(catalog, 1, "once"), buckets=[a_bucket(60, 90)])
    for times, batch in enumerate([once, twice]):
        takes = ledger.batch_takes(catalog, 1, "once")
        assert len(takes) == times
        first = takes[0].batch_no if takes else None
        commit_append(catalog, streams.stream_state(catalog, "ticks"), replace(batch, again_of=first), CAUSE)
    assert [each.batch_id for each in ledger.batch_takes(catalog, 1, "once")] == ["once", "once+1"]
    assert ledger.next_take_id(catalog, 1, "once") == "once+2"
    assert ledger.batch_takes(catalog, 2, "once") == []
    with pytest.raises(BatchConflict):
        commit_append(catalog, streams.stream_state(catalog, "ticks"), once, CAUSE)


@pytest.mark.parametrize(("dropped", "moved"), [(1, True), (0, False)])
def test_what_was_compared_with_rows_that_have_been_rewritten_is_judged_again(
    catalog: Catalog, ticks: Stream, dropped: int, moved: bool
) -> None:
    commit_append(catalog, streams.stream_state(catalog, "ticks"), a_batch("b", [a_bucket(0, 9)]), CAUSE)
    basis = streams.stream_state(catalog, "ticks")
    old = buckets.visible_buckets(catalog, basis.stream_id, basis.changed_in)
    commit_compaction(catalog, basis, CompactionCommit(old, [], [a_bucket(0, 9)], [0], 0), CAUSE)
    batch = a_batch("next", [a_bucket(40, 49)])
    batch = replace(batch, counts=replace(batch.counts, read=batch.counts.read + dropped, dropped=dropped))
    if moved:
        with pytest.raises(BasisConflict):
            commit_append(catalog, basis, batch, CAUSE)
    else:
        commit_append(catalog, basis, batch, CAUSE)


def test_what_aged_out_behind_the_stable_point_was_compared_with_nothing(catalog: Catalog) -> None:
    declare(catalog, a_stream("ticks", slack=0, retention=Retention(rows=1)))
    for low in (0, 20):
        commit_append(
            catalog, streams.stream_state(catalog, "ticks"), a_batch(f"b{low}", [a_bucket(low, low + 9)]), CAUSE
        )
    basis = streams.stream_state(catalog, "ticks")
    assert [bucket.vs_min for bucket in age_out(catalog, basis)] == [0]
    batch = a_batch("next", [a_bucket(40, 49)])
    commit_append(catalog, basis, replace(batch, counts=replace(batch.counts, read=2, dropped=1)), CAUSE)


def test_ageing_goes_by_the_declaration_in_force(catalog: Catalog) -> None:
    declare(catalog, a_stream("ticks", retention=Retention(rows=1)))
    batch = a_batch("b", [a_bucket(0, 9), a_bucket(10, 18), a_bucket(20, 29)])
    commit_append(catalog, streams.stream_state(catalog, "ticks"), batch, CAUSE)
    stale = streams.stream_state(catalog, "ticks")
    declare(catalog, a_stream("ticks", retention=Retention(rows=1_000)))
    with pytest.raises(BasisConflict):
        age_out(catalog, stale)
    assert maintenance.plan_age_out(catalog, streams.stream_state(catalog, "ticks")) is None
    declare(catalog, a_stream("ticks", retention=Retention(rows=2)))
    with pytest.raises(BasisConflict):
        age_out(catalog, stale)
    assert [bucket.vs_min for bucket in age_out(catalog, streams.stream_state(catalog, "ticks"))] == [0]
    declarations.apply_changes(catalog, CAUSE, write=[], drop=["ticks"], summary={})
    assert maintenance.plan_age_out(catalog, stale) is None


def test_the_stable_point_does_not_run_off_the_lower_end(catalog: Catalog) -> None:
    declare(catalog, a_stream("ticks", slack=5, retention=Retention(span=10)))
    lowest = a_batch("b", [a_bucket(LOWEST + 1, LOWEST + 1)])
    commit_append(catalog, streams.stream_state(catalog, "ticks"), lowest, CAUSE)
    standing = streams.stream_state(catalog, "ticks")
    assert (standing.stable, standing.vs_max) == (LOWEST, LOWEST + 1)
    assert maintenance.plan_age_out(catalog, standing) is None


def test_a_change_planned_on_what_is_no_longer_so_changes_nothing(catalog: Catalog, ticks: Stream) -> None:
    planned_on = {each.stream.name: each.changed_in for each in streams.stream_states(catalog)}
    commit_append(catalog, streams.stream_state(catalog, "ticks"), a_batch("b", [a_bucket(10, 50)]), CAUSE)
    before = commits.newest_commit(catalog)
    for change in (a_stream("ticks", key=("at",)), a_stream("more")):
        with pytest.raises(ApplyConflict):
            declare(catalog, change, planned_on=planned_on)
    with pytest.raises(ApplyConflict):
        declare(catalog, a_stream("more"), planned_on={})
    assert commits.newest_commit(catalog) == before
    assert [each.stream for each in streams.stream_states(catalog)] == [ticks]
    planned_on = {each.stream.name: each.changed_in for each in streams.stream_states(catalog)}
    assert declare(catalog, a_stream("more"), planned_on=planned_on) == before + 1


def test_of_two_that_create_a_stream_at_once_one_does(catalog: Catalog) -> None:
    ready = threading.Barrier(2)

    def create(_: int) -> bool:
        ready.wait(60)
        try:
            declare(catalog, a_stream("new"), planned_on={})
        except ApplyConflict:
            return False
        return True

    with ThreadPoolExecutor(2) as pool:
        assert sorted(pool.map(create, range(2))) == [False, True]
    assert [each.stream.name for each in streams.stream_states(catalog)] == ["new"]
    assert commits.newest_commit(catalog) == 1


def test_a_second_live_stream_of_a_name_cannot_be(catalog: Catalog, ticks: Stream) -> None:
    """Should all else fail, the database itself refuses."""
    with pytest.raises(ApplyConflict), catalog.writing() as connection:
        declarations._open_stream(connection, "ticks", 1)
    declarations.apply_changes(catalog, CAUSE, write=[], drop=["ticks"], summary={})
    declare(catalog, ticks)
    assert [each.stream for each in streams.stream_states(catalog)] == [ticks]


@pytest.fixture
def postgres(fresh_database: FreshDatabase) -> Iterator[Catalog]:
    catalog = prepare_catalog(fresh_database("postgresql"))
    yield catalog
    catalog.close()


def waiting(catalog: Catalog) -> bool:
    """Whether somebody waits for a lock."""
    with catalog.reading() as connection:
        count = connection.exec_driver_sql("SELECT count(*) FROM pg_locks WHERE NOT granted").scalar_one()
    return bool(count)


def test_appending_and_declaring_never_wait_for_each_other_in_a_circle(postgres: Catalog) -> None:
    """While the append holds its stream and before it takes the head, the declaration comes and has to wait."""
    declare(postgres, a_stream("other"), a_stream("ticks"))
    for slack in range(1, 6):
        inside = threading.Event()

        def bad(inside: threading.Event = inside) -> Iterator[BadRow]:
            yield BadRow("f.csv", 1, "x", "y")
            inside.set()
            deadline = time.monotonic() + 5
            while not waiting(postgres) and time.monotonic() < deadline:
                time.sleep(0.01)

        basis = streams.stream_state(postgres, "ticks")
        batch = replace(a_batch(f"b{slack}", [a_bucket(slack * 100, slack * 100 + 9)]), bad=bad())
        with ThreadPoolExecutor(1) as pool:
            appended = pool.submit(commit_append, postgres, basis, batch, CAUSE)
            assert inside.wait(30)
            declared = declare(postgres, a_stream("other", slack=slack), a_stream("ticks", slack=slack))
            assert appended.result(60) == declared - 1
    assert streams.stream_state(postgres, "ticks").stream == a_stream("ticks", slack=5)
    assert (
        len(
            buckets.visible_buckets(
                postgres, streams.stream_state(postgres, "ticks").stream_id, commits.newest_commit(postgres)
            )
        )
        == 5
    )


def test_a_commit_that_waited_for_another_is_not_older_than_that(postgres: Catalog) -> None:
    """Two machines' clocks differ, or the later commit has looked at its clock before it had to wait."""
    now = postgres.clock.now()

    def commit(at: int) -> int:
        with postgres.writing() as connection:
            return commits.record_commit(connection, at, CAUSE, summary={})

    with ThreadPoolExecutor(1) as pool:
        with postgres.writing() as connection:
            first = commits.record_commit(connection, now, CAUSE, summary={})
            second = pool.submit(commit, now - 10)
            deadline = time.monotonic() + 30
            while not waiting(postgres) and time.monotonic() < deadline:
                time.sleep(0.01)
        assert second.result(30) == first + 1
    times = [each.at for each in commits.list_commits(postgres)]
    assert times == sorted(times)


def test_appending_and_declaring_as_it_comes(postgres: Catalog) -> None:
    declare(postgres, a_stream("ticks"))

    def redeclare() -> None:
        for slack in range(30):
            declare(postgres, a_stream("ticks", slack=slack))

    with ThreadPoolExecutor(1) as pool:
        declared = pool.submit(redeclare)
        for number in range(30):
            _insist(postgres, number)
        declared.result(60)
    assert commits.newest_commit(postgres) == 1 + 30 + 30
    standing = streams.stream_state(postgres, "ticks")
    assert (standing.stream, standing.rows) == (a_stream("ticks", slack=29), 30)


def _insist(catalog: Catalog, number: int) -> None:
    """Until no declaration comes between any more; there are not many."""
    batch = a_batch(f"b{number}", [a_bucket(number * 1_000, number * 1_000)])
    while True:
        try:
            commit_append(catalog, streams.stream_state(catalog, "ticks"), batch, CAUSE)
        except BasisConflict:
            continue
        return
