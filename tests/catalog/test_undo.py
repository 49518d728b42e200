"""Undoing in the catalog: which batch is meant, and a transaction that is all or nothing and happens once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from sqlalchemy import event

from errata.catalog import buckets, commits, streams, undo
from errata.catalog.database import Catalog
from errata.catalog.stream_commits import commit_append
from errata.catalog.transaction import BasisConflict, BatchConflict
from errata.catalog.undo import UndoCommit, commit_undo
from errata.errors import UsageError
from errata.model.bucket import Bucket, NewBucket, Role
from errata.model.commit import Cause
from errata.model.stream import Stream
from errata.model.time import Interval
from fixtures.catalog import a_batch, a_bucket


def take_in(catalog: Catalog, name: str, *written: NewBucket) -> None:
    commit_append(catalog, streams.stream_state(catalog, "ticks"), a_batch(name, written), Cause("append"))


def pending(rows: int) -> NewBucket:
    return replace(a_bucket(1, 2, rows), role=Role.PENDING, path=f"ticks/pending-{rows}.parquet")


def an_undo(catalog: Catalog, name: str, *written: NewBucket, withdrawn: Sequence[Bucket] = ()) -> UndoCommit:
    standing = streams.stream_state(catalog, "ticks")
    return UndoCommit(undo.find_undo_candidate(catalog, standing.stream_id, name), written, withdrawn, {"undoes": name})


def test_a_batch_by_its_id_or_the_beginning_of_it(catalog: Catalog, ticks: Stream) -> None:
    take_in(catalog, "one", a_bucket(1, 5, 3))
    take_in(catalog, "one%", a_bucket(20, 30, 2))
    take_in(catalog, "two", pending(2))
    stream_id = streams.stream_state(catalog, "ticks").stream_id
    assert undo.find_undo_candidate(catalog, stream_id, "one").on_time == Interval(1, 6)
    assert undo.find_undo_candidate(catalog, stream_id, "one%").on_time == Interval(20, 31)
    assert (
        undo.find_undo_candidate(catalog, stream_id, "t").batch_id,
        undo.find_undo_candidate(catalog, stream_id, "t").on_time,
    ) == ("two", None)
    for said, why in (
        ("on", "more than one batch"),
        ("three", "unknown batch"),
        ("", "unknown batch"),
        ("_", "unknown"),
    ):
        with pytest.raises(UsageError, match=why):
            undo.find_undo_candidate(catalog, stream_id, said)


def test_an_undo_is_a_batch_that_names_what_it_undoes(catalog: Catalog, ticks: Stream) -> None:
    take_in(catalog, "one", a_bucket(1, 5, 3))
    basis = streams.stream_state(catalog, "ticks")
    commit_id = commit_undo(catalog, basis, an_undo(catalog, "one", pending(3)), Cause("undo"))
    one, own = (undo.find_undo_candidate(catalog, basis.stream_id, name) for name in ("one", "undo-one"))
    assert undo.undo_batches(catalog, basis.stream_id) == {own.batch_no: one.batch_no}
    assert (one.undone_in, own.undone_in, own.on_time) == (commit_id, None, None)
    now = streams.stream_state(catalog, "ticks")
    assert (now.revisions, now.applied, now.changed_in) == (3, 0, commit_id)
    (bucket,) = undo.pending_buckets(catalog, now, own.batch_no)
    assert (bucket.revision_first, bucket.revision_last) == (1, 3)
    with pytest.raises(BatchConflict):
        commit_undo(catalog, now, an_undo(catalog, "one", pending(3)), Cause("undo"))


def test_what_waits_is_withdrawn(catalog: Catalog, ticks: Stream) -> None:
    take_in(catalog, "one", pending(4))
    basis = streams.stream_state(catalog, "ticks")
    waiting = undo.pending_buckets(catalog, basis, undo.find_undo_candidate(catalog, basis.stream_id, "one").batch_no)
    commit_id = commit_undo(catalog, basis, an_undo(catalog, "one", withdrawn=waiting), Cause("undo"))
    assert buckets.visible_buckets(catalog, basis.stream_id, commit_id, role=Role.PENDING) == []
    now = streams.stream_state(catalog, "ticks")
    assert (now.revisions, now.applied) == (4, 4)


@pytest.mark.parametrize("came", ["new rows", "corrections"])
def test_only_what_may_have_changed_rows_makes_it_begin_again(catalog: Catalog, ticks: Stream, came: str) -> None:
    take_in(catalog, "one", a_bucket(1, 5, 3))
    basis = streams.stream_state(catalog, "ticks")
    undoing = an_undo(catalog, "one", pending(3))
    if came == "new rows":
        take_in(catalog, "two", a_bucket(50, 60, 2))
        commit_undo(catalog, basis, undoing, Cause("undo"))
        assert streams.stream_state(catalog, "ticks").revisions == 3
        return
    take_in(catalog, "two", pending(1))
    newest = commits.newest_commit(catalog)
    with pytest.raises(BasisConflict):
        commit_undo(catalog, basis, undoing, Cause("undo"))
    assert commits.newest_commit(catalog) == newest


class KilledError(Exception):
    pass


def test_killed_at_any_statement_nothing_of_it_is_there(catalog: Catalog, ticks: Stream) -> None:
    take_in(catalog, "one", a_bucket(1, 5, 3))
    basis = streams.stream_state(catalog, "ticks")
    undoing = an_undo(catalog, "one", pending(3))
    killed = 0
    while True:
        countdown = iter(range(killed, -1, -1))

        def on_step(*_: object) -> None:
            if next(countdown, 1) == 0:  # noqa: B023 - it is taken away before the next one is made
                raise KilledError

        event.listen(catalog.engine, "before_cursor_execute", on_step)
        try:
            commit_id = commit_undo(catalog, basis, undoing, Cause("undo"))
            break
        except KilledError:
            killed += 1
        finally:
            event.remove(catalog.engine, "before_cursor_execute", on_step)
        assert streams.stream_state(catalog, "ticks") == basis
        assert undo.undo_batches(catalog, basis.stream_id) == {}
    assert killed > 8
    assert commit_id == basis.changed_in + 1
