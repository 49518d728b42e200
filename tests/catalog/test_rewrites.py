"""The transaction that puts rewritten buckets in the place of old ones, on both databases."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from errata.catalog import bucket_writes, buckets, commits, declarations, streams
from errata.catalog.database import Catalog
from errata.catalog.maintenance import CompactionCommit, commit_compaction, last_foldable_revision
from errata.catalog.migration import prepare_catalog
from errata.catalog.stream_commits import commit_append
from errata.catalog.streams import StreamState
from errata.catalog.transaction import BasisConflict
from errata.model.bucket import NewBucket, Role
from errata.model.commit import Cause
from errata.model.stream import Stream
from fixtures.catalog import NOW, a_batch, a_bucket, a_stream
from fixtures.clock import FixedClock
from fixtures.kills import Committers, committers
from fixtures.postgres import FreshDatabase

CAUSE = Cause("compact")


def filled(catalog: Catalog) -> StreamState:
    """Three buckets, one of them inline; `masked` and overlays are made up where they are needed."""
    inline = a_bucket(20, 29, path=None, data=b"inline", size=6)
    commit_append(
        catalog, streams.stream_state(catalog, "ticks"), a_batch("a", [a_bucket(0, 9), a_bucket(10, 19)]), CAUSE
    )
    commit_append(catalog, streams.stream_state(catalog, "ticks"), a_batch("b", [inline]), CAUSE)
    return streams.stream_state(catalog, "ticks")


def made_of(
    catalog: Catalog, basis: StreamState, *written: NewBucket, up_to: int = 0, first: int = 0
) -> CompactionCommit:
    old = buckets.visible_buckets(catalog, basis.stream_id, basis.changed_in)[first:]
    return CompactionCommit(old, [], written, [1 for _ in written], up_to)


def lows(catalog: Catalog, commit: int) -> list[int]:
    return [bucket.vs_min for bucket in buckets.visible_buckets(catalog, 1, commit)]


def test_the_new_stand_for_the_old(catalog: Catalog, ticks: Stream) -> None:
    basis = filled(catalog)
    new = a_bucket(0, 29, rows=3, floor=7, folded=4)
    commit_id = commit_compaction(catalog, basis, made_of(catalog, basis, new, up_to=4), CAUSE)
    now = streams.stream_state(catalog, "ticks")
    assert (now.changed_in, now.folded, now.inline_bytes, now.rows) == (commit_id, 4, 0, basis.rows)
    (stored,) = buckets.visible_buckets(catalog, basis.stream_id, commit_id)
    assert (stored.floor, stored.folded, stored.masked, stored.batch_no) == (7, 4, 1, None)
    assert lows(catalog, basis.changed_in) == [0, 10, 20]
    assert streams.stream_state(catalog, "ticks", basis.changed_in).folded == 0
    (commit,) = commits.list_commits(catalog, since=basis.changed_in)
    assert commit.summary == {
        "rewritten": 3,
        "into": 1,
        "folded": 0,
        "revisions": 0,
        "rows": 3,
        "bytes_before": 206,
        "bytes": 100,
    }


def test_merging_alone_leaves_revisions_told_apart(catalog: Catalog, ticks: Stream) -> None:
    basis = filled(catalog)
    commit_compaction(catalog, basis, made_of(catalog, basis, a_bucket(0, 29), up_to=4), CAUSE)
    now = streams.stream_state(catalog, "ticks")
    commit_compaction(catalog, now, made_of(catalog, now, a_bucket(0, 29, path="x")), CAUSE)
    assert streams.stream_state(catalog, "ticks").folded == 4


def consumer(catalog: Catalog, basis: StreamState) -> None:
    with catalog.writing() as connection:
        streams.lock_stream(connection, basis.stream_id)
        streams.record_consumed(connection, basis.stream_id, "q", 3)


def redeclared(catalog: Catalog, basis: StreamState) -> None:
    changed = a_stream("ticks", bucket_rows=7)
    declarations.apply_changes(catalog, Cause("apply"), write=[changed], drop=[], summary={})


def dropped(catalog: Catalog, basis: StreamState) -> None:
    declarations.apply_changes(catalog, Cause("apply"), write=[], drop=["ticks"], summary={})


def corrected(catalog: Catalog, basis: StreamState) -> None:
    with catalog.writing() as connection:
        base = buckets.live_buckets(connection, basis.stream_id, Role.BASE)
        bucket_writes.count_masked(connection, {base[1].bucket_id: 1})


def rewritten(catalog: Catalog, basis: StreamState) -> None:
    commit_compaction(catalog, basis, made_of(catalog, basis, a_bucket(10, 29, path="twin"), first=1), CAUSE)


@pytest.mark.parametrize("first", [consumer, redeclared, dropped, corrected, rewritten])
def test_who_came_first_moves_it(
    catalog: Catalog, ticks: Stream, first: Callable[[Catalog, StreamState], None]
) -> None:
    basis = filled(catalog)
    made = made_of(catalog, basis, a_bucket(0, 29, path="new"), up_to=4)
    first(catalog, basis)
    head = commits.newest_commit(catalog)
    there = lows(catalog, head)
    with pytest.raises(BasisConflict):
        commit_compaction(catalog, basis, made, CAUSE)
    assert commits.newest_commit(catalog) == head
    assert lows(catalog, head) == there


def test_batches_and_corrections_elsewhere_do_not(catalog: Catalog, ticks: Stream) -> None:
    basis = filled(catalog)
    made = made_of(catalog, basis, a_bucket(10, 29, path="new"), first=1)
    commit_append(catalog, basis, a_batch("c", [a_bucket(40, 49)]), CAUSE)
    with catalog.writing() as connection:
        base = buckets.live_buckets(connection, basis.stream_id, Role.BASE)
        bucket_writes.count_masked(connection, {base[0].bucket_id: 1})
    assert lows(catalog, commit_compaction(catalog, basis, made, CAUSE)) == [0, 10, 40]


def test_nothing_is_worked_in_that_is_still_to_be_consumed(catalog: Catalog, ticks: Stream) -> None:
    basis = replace(filled(catalog), applied=9)
    assert last_foldable_revision(catalog, basis) == 9
    consumer(catalog, basis)
    assert last_foldable_revision(catalog, basis) == 3
    assert last_foldable_revision(catalog, replace(basis, applied=2)) == 2


@pytest.fixture(scope="module")
def server() -> Iterator[Committers]:
    with committers() as running:
        yield running


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_a_kill_at_every_statement_leaves_all_or_nothing(
    kind: str, fresh_database: FreshDatabase, server: Committers, tmp_path: Path
) -> None:
    url = fresh_database(kind)
    catalog = prepare_catalog(url, FixedClock(NOW))
    declarations.apply_changes(catalog, Cause("apply"), write=[a_stream("ticks")], drop=[], summary={})
    basis = filled(catalog)
    made = made_of(catalog, basis, a_bucket(0, 15), a_bucket(16, 29, path=None, data=b"new", size=3), up_to=4)
    prepared = tmp_path / "made.pickle"
    prepared.write_bytes(pickle.dumps((basis, made)))
    catalog.close()
    whole = server.commit(fresh_database(kind, like=url), prepared, 0)
    assert whole["sound"]
    catalog = prepare_catalog(url, FixedClock(NOW))
    for step in range(1, whole["steps"] + 1):
        assert server.commit(url, prepared, step)["killed"]
        done = step == whole["steps"]
        assert commits.newest_commit(catalog) == basis.changed_in + done
        assert lows(catalog, commits.newest_commit(catalog)) == ([0, 16] if done else [0, 10, 20])
        assert streams.stream_state(catalog, "ticks").inline_bytes == (3 if done else 6)
    with pytest.raises(BasisConflict):
        commit_compaction(catalog, basis, made, CAUSE)
    catalog.close()
