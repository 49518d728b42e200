"""The transaction that takes a batch in: all of it or nothing, once, in order."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import pytest

from errata.catalog import buckets, commits, declarations, ledger, quarantine, streams
from errata.catalog.database import Catalog
from errata.catalog.stream_commits import commit_append
from errata.catalog.transaction import BasisConflict, BatchConflict
from errata.model.batch import BadRow
from errata.model.bucket import Groups, NewBucket, Role
from errata.model.commit import Cause
from errata.model.stream import Stream
from errata.model.time import Interval
from fixtures.catalog import a_batch, a_bucket, a_stream

CAUSE = Cause("append", "ann", "host", "dag", "run", "task", 2, "local-1")


def test_a_batch_becomes_visible_whole(catalog: Catalog, ticks: Stream) -> None:
    basis = streams.stream_state(catalog, ticks.name)
    bad = [BadRow("b1.csv", 7, "x,\0y", "of: empty")]
    inline = a_bucket(40, 60, 5, path=None, data=b"arrow", size=5)
    late = NewBucket(Role.PENDING, 3, 9, 1, 2, Groups(), "sha256:01", data=b"late rows")
    commit_id = commit_append(catalog, basis, a_batch("b1", [a_bucket(10, 50, 4), inline, late], bad), CAUSE)

    after = streams.stream_state(catalog, ticks.name)
    assert (after.stable, after.vs_max, after.rows) == (50, 60, 9)
    assert (after.inline_bytes, after.revisions, after.changed_in) == (14, 3, commit_id)
    found = buckets.visible_buckets(catalog, basis.stream_id, commit_id)
    assert [(each.vs_min, each.vs_max, each.rows, each.path) for each in found] == [
        (10, 50, 4, "ticks/10-50.parquet"),
        (40, 60, 5, None),
    ]
    assert buckets.inline_data(catalog, [found[1].bucket_id]) == {found[1].bucket_id: b"arrow"}
    pending = buckets.visible_buckets(catalog, basis.stream_id, commit_id, role=Role.PENDING)
    assert [(each.revision_first, each.rows) for each in pending] == [(1, 3)]
    assert [each.row.text for each in quarantine.quarantined_rows(catalog)] == ["x,\u2400y"]
    taken = ledger.find_batch(catalog, basis.stream_id, "b1")
    assert taken is not None
    assert (taken.commit_id, taken.counts.appended, taken.counts.pending) == (commit_id, 9, 3)
    assert ledger.batch_origins(catalog, [taken.batch_no])[taken.batch_no].splits == {0: ("b1.csv", 2)}
    [commit] = commits.list_commits(catalog, stream="ticks")
    assert (commit.cause, commit.batch_id, commit.summary["appended"]) == (CAUSE, "b1", 9)


def test_an_older_commit_sees_nothing_of_it(catalog: Catalog, ticks: Stream) -> None:
    basis = streams.stream_state(catalog, ticks.name)
    first = commit_append(catalog, basis, a_batch("b1", [a_bucket(10, 50)]), CAUSE)
    second = commit_append(catalog, streams.stream_state(catalog, "ticks"), a_batch("b2", [a_bucket(50, 90)]), CAUSE)
    assert [each.vs_min for each in buckets.visible_buckets(catalog, basis.stream_id, first)] == [10]
    assert [each.vs_min for each in buckets.visible_buckets(catalog, basis.stream_id, second)] == [10, 50]
    then = streams.stream_state(catalog, "ticks", first)
    assert (then.stable, then.vs_max, then.rows) == (40, 50, 1)


def test_stable_never_goes_back(catalog: Catalog, ticks: Stream) -> None:
    commit_append(catalog, streams.stream_state(catalog, "ticks"), a_batch("b1", [a_bucket(10, 50)]), CAUSE)
    commit_append(catalog, streams.stream_state(catalog, "ticks"), a_batch("b2", [a_bucket(41, 45)]), CAUSE)
    assert streams.stream_state(catalog, "ticks").stable == 40


def test_numbers_of_revisions_go_on(catalog: Catalog, ticks: Stream) -> None:
    for name in ("b1", "b2"):
        late = [NewBucket(Role.PENDING, 4, 9, 1, 2, Groups(), "sha256:01", data=b"late"), a_bucket(50, 60)]
        commit_append(catalog, streams.stream_state(catalog, "ticks"), a_batch(name, late), CAUSE)
    newest = commits.newest_commit(catalog)
    pending = buckets.visible_buckets(
        catalog, streams.stream_state(catalog, "ticks").stream_id, newest, role=Role.PENDING
    )
    assert sorted(each.revision_first or 0 for each in pending) == [1, 5]
    assert streams.stream_state(catalog, "ticks").revisions == 8


def test_the_same_batch_id_twice_is_refused_by_the_ledger(catalog: Catalog, ticks: Stream) -> None:
    basis = streams.stream_state(catalog, ticks.name)
    commit_append(catalog, basis, a_batch("b1", [a_bucket(10, 50)]), CAUSE)
    before = commits.newest_commit(catalog)
    with pytest.raises(BatchConflict):
        commit_append(catalog, streams.stream_state(catalog, "ticks"), a_batch("b1", [a_bucket(60, 70)]), CAUSE)
    assert commits.newest_commit(catalog) == before
    assert len(buckets.visible_buckets(catalog, basis.stream_id, before)) == 1


@pytest.mark.parametrize(
    ("first", "second", "moved"),
    [
        ((10, 50), (60, 90), False),  # behind one another: nothing that was decided changes
        ((10, 50), (30, 90), True),  # 30 was on time on the old basis and is late now
        ((10, 50), (45, 90), True),  # on time still, but the new rows may be duplicates
        ((60, 90), (10, 50), True),
    ],
)
def test_a_basis_that_moved_is_noticed(
    catalog: Catalog, ticks: Stream, first: tuple[int, int], second: tuple[int, int], moved: bool
) -> None:
    basis = streams.stream_state(catalog, ticks.name)
    commit_append(catalog, basis, a_batch("b1", [a_bucket(*first)]), CAUSE)
    if moved:
        with pytest.raises(BasisConflict):
            commit_append(catalog, basis, a_batch("b2", [a_bucket(*second)]), CAUSE)
    else:
        commit_append(catalog, basis, a_batch("b2", [a_bucket(*second)]), CAUSE)
    assert streams.stream_state(catalog, "ticks").rows == (1 if moved else 2)


def test_a_new_declaration_moves_the_basis(catalog: Catalog, ticks: Stream) -> None:
    basis = streams.stream_state(catalog, ticks.name)
    declarations.apply_changes(catalog, CAUSE, write=[a_stream("ticks", slack=99)], drop=[], summary={})
    with pytest.raises(BasisConflict):
        commit_append(catalog, basis, a_batch("b1", [a_bucket(10, 50)]), CAUSE)


def test_a_key_without_order_always_needs_the_newest_basis(catalog: Catalog) -> None:
    stream = a_stream("people", key=("of",))
    declarations.apply_changes(catalog, CAUSE, write=[stream], drop=[], summary={})
    basis = streams.stream_state(catalog, "people")
    commit_append(catalog, basis, a_batch("b1", [a_bucket(10, 50)]), CAUSE)
    with pytest.raises(BasisConflict):
        commit_append(catalog, basis, a_batch("b2", [a_bucket(60, 90)]), CAUSE)


def test_a_failure_in_the_middle_leaves_nothing(catalog: Catalog, ticks: Stream) -> None:
    basis = streams.stream_state(catalog, ticks.name)
    before = commits.newest_commit(catalog)

    def rows() -> list[BadRow]:
        raise OSError("the spool is gone")

    class Failing(list[BadRow]):
        def __iter__(self):
            yield BadRow("f", 1, "x", "y")
            rows()

    with pytest.raises(OSError, match="the spool is gone"):
        commit_append(catalog, basis, a_batch("b1", [a_bucket(10, 50)], Failing()), CAUSE)
    assert commits.newest_commit(catalog) == before
    assert ledger.find_batch(catalog, basis.stream_id, "b1") is None
    assert quarantine.quarantined_rows(catalog) == []


def test_writers_at_once_get_numbers_in_order_and_lose_nothing(catalog: Catalog) -> None:
    names = ["one", "two"]
    declarations.apply_changes(catalog, CAUSE, write=[a_stream(name) for name in names], drop=[], summary={})
    ready = threading.Barrier(4)

    def write(worker: int) -> int:
        ready.wait()
        name, tries = names[worker % 2], 0
        for number in range(10):
            batch = f"{worker}-{number}"
            while True:
                basis = streams.stream_state(catalog, name)
                low = (basis.vs_max or 0) + 1
                try:
                    commit_append(catalog, basis, a_batch(batch, [a_bucket(low, low + 5, 6)]), CAUSE)
                    break
                except BasisConflict:
                    tries += 1
        return tries

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, range(4)))
    newest = commits.newest_commit(catalog)
    assert newest == 41
    assert [each.commit_id for each in commits.list_commits(catalog)] == list(range(1, 42))
    times = [each.at for each in commits.list_commits(catalog)]
    assert times == sorted(times)
    for name in names:
        standing = streams.stream_state(catalog, name)
        found = buckets.visible_buckets(catalog, standing.stream_id, newest)
        assert standing.rows == sum(each.rows for each in found) == 120
        # Each was judged against a basis that held: no two overlap.
        assert all(one.vs_max < other.vs_min for one, other in pairwise(found))


def test_positions_speak_of_each_commit(catalog: Catalog, ticks: Stream) -> None:
    commits_made = []
    for low in (10, 60, 110):
        basis = streams.stream_state(catalog, "ticks")
        commits_made.append(commit_append(catalog, basis, a_batch(f"b{low}", [a_bucket(low, low + 40, 2)]), CAUSE))
    assert [streams.stream_state(catalog, "ticks", each).rows for each in commits_made] == [2, 4, 6]
    everything = buckets.visible_buckets(catalog, 1, commits_made[-1], Interval(55, 105))
    assert [each.vs_min for each in everything] == [60]
