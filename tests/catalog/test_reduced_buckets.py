"""Copies and summaries in the index come and leave with the bucket that they were made from, on both databases."""

from __future__ import annotations

from dataclasses import replace

import pytest
from sqlalchemy import event

from errata.catalog import buckets, streams
from errata.catalog.bucket_writes import BucketAddition
from errata.catalog.database import Catalog
from errata.catalog.maintenance import CompactionCommit, commit_compaction
from errata.catalog.stream_commits import commit_append
from errata.catalog.streams import StreamState
from errata.catalog.transaction import BasisConflict, Transaction, lock_basis
from errata.model.bucket import Bucket, NewBucket, Resolution, Role
from errata.model.commit import Cause
from errata.model.reduction import sampling_span
from errata.model.stream import Stream
from fixtures.catalog import a_batch, a_bucket

CAUSE = Cause("append")


def a_copy(of: NewBucket, rate: float = 0.5, **changes: object) -> NewBucket:
    path = {} if of.path is None else {"path": f"{of.path}.{rate}"}
    values = {"role": Role.COPY, "resolution": Resolution(rate, sampling_span(rate))} | path
    return replace(of, **(values | changes))


def an_inline_bucket(low: int, high: int) -> NewBucket:
    return a_bucket(low, high, path=None, data=b"inline", size=6)


def append(catalog: Catalog, *brought: NewBucket) -> StreamState:
    standing = streams.stream_state(catalog, "ticks")
    commit_append(catalog, standing, a_batch(f"after {standing.changed_in}", brought), CAUSE)
    return streams.stream_state(catalog, "ticks")


def stored(catalog: Catalog, role: Role, commit: int | None = None) -> list[Bucket]:
    standing = streams.stream_state(catalog, "ticks")
    return buckets.visible_buckets(catalog, standing.stream_id, commit or standing.changed_in, role=role)


def change(catalog: Catalog, **parts: object) -> int:
    """A transaction of the stream with these parts."""
    standing = streams.stream_state(catalog, "ticks")
    with catalog.writing() as connection:
        row = lock_basis(connection, standing.stream_id)
        transaction = Transaction(cause=CAUSE, summary={}, archive=row, state={}, **parts)  # type: ignore[arg-type]
        return transaction.commit(connection, catalog.clock.now())


def test_copies_are_entries_of_their_own_that_name_their_original(catalog: Catalog, ticks: Stream) -> None:
    files = [a_bucket(0, 9), a_bucket(10, 19)]
    inline = an_inline_bucket(20, 29)
    small = a_copy(inline, data=b"in", size=2, checksum="sha256:01")
    kept = [replace(each, reduced=[a_copy(each), a_copy(each, 0.1)]) for each in files]
    # Two inline buckets of the same rows: each has a copy of its own.
    now = append(catalog, *kept, replace(inline, reduced=[small]), replace(inline, reduced=[small]))
    assert now.inline_bytes == 2 * (6 + 2)
    base, copies = stored(catalog, Role.BASE), stored(catalog, Role.COPY)
    assert [each.original for each in base] == [None] * 4
    by_id = {each.bucket_id: each for each in base}
    wanted = {each.bucket_id: [0.1, 0.5] if each.path else [0.5] for each in base}
    assert {one: sorted(c.resolution.rate for c in copies if c.original == one) for one in by_id} == wanted
    for each in copies:
        original = by_id[each.original or 0]
        assert (each.vs_min, each.vs_max, each.batch_id) == (original.vs_min, original.vs_max, original.batch_id)
        assert each.resolution.hashes == sampling_span(each.resolution.rate)
        assert each.path is None or (original.path is not None and each.path.startswith(original.path))
    data = buckets.inline_data(catalog, [each.bucket_id for each in copies])
    assert sorted(data.values()) == [b"in", b"in"]
    assert now.rows == 4


def test_copies_leave_in_the_commit_that_removes_their_original(catalog: Catalog, ticks: Stream) -> None:
    inline = an_inline_bucket(20, 29)
    small = a_copy(inline, data=b"in", size=2, checksum="sha256:01")
    first = a_bucket(0, 9)
    before = append(catalog, replace(first, reduced=[a_copy(first)]), replace(inline, reduced=[small]))
    merged = a_bucket(0, 29, rows=2)
    done = CompactionCommit(stored(catalog, Role.BASE), [], [replace(merged, reduced=[a_copy(merged)])], [0], 0)
    commit_id = commit_compaction(catalog, before, done, CAUSE)
    (base,), (copy,) = stored(catalog, Role.BASE), stored(catalog, Role.COPY)
    assert copy.original == base.bucket_id
    assert streams.stream_state(catalog, "ticks").inline_bytes == 0
    assert [each.removed_in for each in stored(catalog, Role.COPY, before.changed_in)] == [commit_id] * 2


def test_a_copy_is_added_later_and_dropped_alone(catalog: Catalog, ticks: Stream) -> None:
    append(catalog, a_bucket(0, 9), an_inline_bucket(20, 29))
    first, second = stored(catalog, Role.BASE)
    small = a_copy(an_inline_bucket(20, 29), data=b"in", size=2, checksum="sha256:01")
    ids = [first.bucket_id, second.bucket_id]
    added = [a_copy(a_bucket(0, 9)), small]
    commit_id = change(catalog, adds=[BucketAddition(added, originals=ids)])
    assert [(each.original, each.added_in) for each in stored(catalog, Role.COPY)] == [(one, commit_id) for one in ids]
    assert streams.stream_state(catalog, "ticks").inline_bytes == 8
    change(catalog, removes=stored(catalog, Role.COPY))
    assert stored(catalog, Role.COPY) == []
    assert len(stored(catalog, Role.BASE)) == 2
    assert streams.stream_state(catalog, "ticks").inline_bytes == 6


def test_an_original_and_its_copy_may_be_removed_together(catalog: Catalog, ticks: Stream) -> None:
    inline = an_inline_bucket(20, 29)
    small = a_copy(inline, data=b"in", size=2, checksum="sha256:01")
    append(catalog, replace(inline, reduced=[small, replace(small, role=Role.SUMMARY)]))
    change(catalog, removes=[*stored(catalog, Role.BASE), *stored(catalog, Role.COPY)])
    assert [stored(catalog, role) for role in (Role.BASE, Role.COPY, Role.SUMMARY)] == [[], [], []]
    assert streams.stream_state(catalog, "ticks").inline_bytes == 0


def test_a_copy_of_a_bucket_that_is_gone_is_a_conflict(catalog: Catalog, ticks: Stream) -> None:
    append(catalog, a_bucket(0, 9))
    (original,) = stored(catalog, Role.BASE)
    change(catalog, removes=[original])
    newest = streams.stream_state(catalog, "ticks").changed_in
    with pytest.raises(BasisConflict):
        change(catalog, adds=[BucketAddition([a_copy(a_bucket(0, 9))], originals=[original.bucket_id])])
    assert stored(catalog, Role.COPY) == []
    assert streams.stream_state(catalog, "ticks").changed_in == newest


def test_without_copies_a_commit_asks_the_database_nothing_more(catalog: Catalog, ticks: Stream) -> None:
    """Of statements that know of originals, only the removal of base buckets has one."""
    asked: list[str] = []
    event.listen(catalog.engine, "before_cursor_execute", lambda *told: asked.append(told[2]))
    append(catalog, a_bucket(0, 9), an_inline_bucket(20, 29))
    inserted = [each for each in asked if each.startswith("INSERT INTO buckets ")]
    assert len(inserted) == 1
    assert not [each for each in asked if "original IN" in each]
