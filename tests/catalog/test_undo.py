"""Undoing in the catalog: which batch is meant, and a transaction that is all or nothing and happens once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from sqlalchemy import event

from errata.catalog import buckets, commits, streams, undo
from errata.catalog.append import AlreadyTakenError, BasisMovedError, commit_append
from errata.catalog.open import Catalog
from errata.catalog.undo import Undoing, commit_undo
from errata.errors import UsageError
from errata.model.bucket import Bucket, NewBucket, Role
from errata.model.commit import Cause
from errata.model.interval import Interval
from errata.model.stream import Stream
from fixtures.catalog import a_batch, a_bucket


def take_in(catalog: Catalog, name: str, *written: NewBucket) -> None:
    commit_append(catalog, streams.standing(catalog, "ticks"), a_batch(name, written), Cause("append"))


def pending(rows: int) -> NewBucket:
    return replace(a_bucket(1, 2, rows), role=Role.PENDING, path=f"ticks/pending-{rows}.parquet")


def an_undo(catalog: Catalog, name: str, *written: NewBucket, withdrawn: Sequence[Bucket] = ()) -> Undoing:
    standing = streams.standing(catalog, "ticks")
    return Undoing(undo.find(catalog, standing.stream_id, name), written, withdrawn, {"undoes": name})


def test_a_batch_by_its_id_or_the_beginning_of_it(catalog: Catalog, ticks: Stream) -> None:
    take_in(catalog, "one", a_bucket(1, 5, 3))
    take_in(catalog, "one%", a_bucket(20, 30, 2))
    take_in(catalog, "two", pending(2))
    stream_id = streams.standing(catalog, "ticks").stream_id
    assert undo.find(catalog, stream_id, "one").on_time == Interval(1, 6)
    assert undo.find(catalog, stream_id, "one%").on_time == Interval(20, 31)
    assert (undo.find(catalog, stream_id, "t").batch_id, undo.find(catalog, stream_id, "t").on_time) == ("two", None)
    for said, why in (
        ("on", "more than one batch"),
        ("three", "unknown batch"),
        ("", "unknown batch"),
        ("_", "unknown"),
    ):
        with pytest.raises(UsageError, match=why):
            undo.find(catalog, stream_id, said)


def test_an_undo_is_a_batch_that_names_what_it_undoes(catalog: Catalog, ticks: Stream) -> None:
    take_in(catalog, "one", a_bucket(1, 5, 3))
    basis = streams.standing(catalog, "ticks")
    commit_id = commit_undo(catalog, basis, an_undo(catalog, "one", pending(3)), Cause("undo"))
    one, own = (undo.find(catalog, basis.stream_id, name) for name in ("one", "undo-one"))
    assert undo.undoings(catalog, basis.stream_id) == {own.batch_no: one.batch_no}
    assert (one.undone_in, own.undone_in, own.on_time) == (commit_id, None, None)
    now = streams.standing(catalog, "ticks")
    assert (now.revisions, now.applied, now.changed_in) == (3, 0, commit_id)
    (bucket,) = undo.pending_of(catalog, now, own.batch_no)
    assert (bucket.revision_first, bucket.revision_last) == (1, 3)
    with pytest.raises(AlreadyTakenError):
        commit_undo(catalog, now, an_undo(catalog, "one", pending(3)), Cause("undo"))


def test_what_waits_is_withdrawn(catalog: Catalog, ticks: Stream) -> None:
    take_in(catalog, "one", pending(4))
    basis = streams.standing(catalog, "ticks")
    waiting = undo.pending_of(catalog, basis, undo.find(catalog, basis.stream_id, "one").batch_no)
    commit_id = commit_undo(catalog, basis, an_undo(catalog, "one", withdrawn=waiting), Cause("undo"))
    assert buckets.visible(catalog, basis.stream_id, commit_id, role=Role.PENDING) == []
    now = streams.standing(catalog, "ticks")
    assert (now.revisions, now.applied) == (4, 4)


@pytest.mark.parametrize("came", ["new rows", "corrections"])
def test_only_what_may_have_changed_rows_makes_it_begin_again(catalog: Catalog, ticks: Stream, came: str) -> None:
    take_in(catalog, "one", a_bucket(1, 5, 3))
    basis = streams.standing(catalog, "ticks")
    undoing = an_undo(catalog, "one", pending(3))
    if came == "new rows":
        take_in(catalog, "two", a_bucket(50, 60, 2))
        commit_undo(catalog, basis, undoing, Cause("undo"))
        assert streams.standing(catalog, "ticks").revisions == 3
        return
    take_in(catalog, "two", pending(1))
    newest = commits.newest(catalog)
    with pytest.raises(BasisMovedError):
        commit_undo(catalog, basis, undoing, Cause("undo"))
    assert commits.newest(catalog) == newest


class KilledError(Exception):
    pass


def test_killed_at_any_statement_nothing_of_it_is_there(catalog: Catalog, ticks: Stream) -> None:
    take_in(catalog, "one", a_bucket(1, 5, 3))
    basis = streams.standing(catalog, "ticks")
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
        assert streams.standing(catalog, "ticks") == basis
        assert undo.undoings(catalog, basis.stream_id) == {}
    assert killed > 8
    assert commit_id == basis.changed_in + 1
