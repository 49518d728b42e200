"""What holds of any history: batches, corrections, undoing and ageing in any order."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise, product

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from errata.errors import RefusedError, UsageError
from errata.model.batch import Op
from errata.model.stream import Stream
from errata.model.time import LOWEST
from fixtures.histories import ORDERS, QUOTES, STREAMS, batches, change, order, quote, records, seeded
from fixtures.oracle.history import History
from fixtures.oracle.revision import Key, Outcome, Row, corrected, in_stream_order, integer, key_of
from fixtures.oracle.version import Version, made, replayed

BRIEFLY = settings(max_examples=40, deadline=None)
streams = st.sampled_from(STREAMS)


def happen(data: st.DataObject, history: History, number: int, few: bool = False) -> None:
    """Something that makes commits."""
    match data.draw(st.sampled_from(["append", "append", "revise", "revise", "undo", "age"]), f"event {number}"):
        case "append":
            history.append(data.draw(batches(history.stream, few), "batch"), now=number, batch_id=f"batch {number}")
        case "revise":
            history.revise(now=number)
        case "undo":
            batch_id = data.draw(st.sampled_from(["seed", "undo-seed", *(f"batch {each}" for each in range(number))]))
            with suppress(RefusedError, UsageError):  # it may have been changed since, or be the number of no batch
                history.undo(batch_id, now=number, keep_later=data.draw(st.booleans()))
        case _:
            if (stable := history.stable()) is not None:
                history.age_out(data.draw(st.integers(-1, 15).map(lambda place: min(place, stable)), "aged to"))


def everything(history: History) -> dict[tuple[int, int], list[Row]]:
    """The scans at all commits and revisions."""
    return {
        (commit, number): history.scan(commit=commit, revisions_up_to=number)
        for commit, state in enumerate(history.states)
        for number in range(state.applied + 1)
    }


@BRIEFLY
@given(streams, st.data(), st.booleans())
def test_what_was_known_stays_so_whatever_happens(stream: Stream, data: st.DataObject, late: bool) -> None:
    history = seeded(stream, *([] if late else [None]))
    before = everything(history)
    for number in range(data.draw(st.integers(1, 6), "events")):
        happen(data, history, number)
        known = everything(history)
        assert {place: known[place] for place in before} == before
        before = known
    for rows in before.values():
        assert len({key_of(stream, row) for row in rows}) == len(rows)
        assert tuple(rows) == in_stream_order(stream, rows)


@BRIEFLY
@given(streams, st.data(), st.booleans())
def test_what_holds_of_every_state(stream: Stream, data: st.DataObject, late: bool) -> None:
    history = seeded(stream, *([] if late else [None]))
    for number in range(data.draw(st.integers(1, 6), "events")):
        happen(data, history, number)
    for one, other in pairwise(history.states):
        assert one.applied <= other.applied
        assert one.revisions <= other.revisions
        assert one.aged_to is None or (other.aged_to is not None and one.aged_to <= other.aged_to)
    for commit, state in enumerate(history.states):
        numbers = [revision.number for revision in state.pending]
        # A batch that is withdrawn while others wait leaves its numbers behind; when nothing waits, all are settled.
        assert numbers == sorted({each for each in numbers if state.applied < each <= state.revisions})
        assert numbers or state.applied == state.revisions
        assert replayed(stream, history.steps[: commit + 1], state.applied) == state.live
        assert all(key == version.key for key, version in state.live.items())
        begins = aged_to(history, commit)
        for number in range(state.applied + 1):
            assert all(
                integer(row[stream.order]) >= begins for row in history.scan(commit=commit, revisions_up_to=number)
            )


@BRIEFLY
@given(streams, st.data())
def test_revisions_in_one_go_do_what_they_do_batch_by_batch(stream: Stream, data: st.DataObject) -> None:
    """All that comes is late or a correction, and nothing has to wait."""
    many = data.draw(st.lists(batches(stream), min_size=2, max_size=4))
    at_once, in_turn = seeded(stream), seeded(stream)
    outcomes = []
    for number, batch in enumerate(many):
        at_once.append(batch, now=0, batch_id=str(number))
        in_turn.append(batch, now=0, batch_id=str(number))
        outcomes += in_turn.revise().outcomes
    together = at_once.revise().outcomes
    assume(all(each.outcome is not Outcome.WAITING for each in together))
    assert list(together) == outcomes
    assert at_once.scan() == in_turn.scan()
    for number in range(at_once.states[-1].applied + 1):
        assert at_once.scan(revisions_up_to=number) == in_turn.scan(revisions_up_to=number)


@BRIEFLY
@given(streams, st.data(), st.none() | st.integers(0, 20), st.none() | st.integers(0, 15), st.integers(0, 12))
def test_revisions_can_be_parted_anywhere(
    stream: Stream, data: st.DataObject, stable: int | None, aged_to: int | None, at: int
) -> None:
    history = seeded(stream)
    history.append(data.draw(st.lists(records(stream), max_size=12)), now=0)
    revisions, rows = history.pending(), history.scan()
    whole = corrected(stream, rows, reversed(revisions), stable, aged_to)
    first = corrected(stream, rows, revisions[:at], stable, aged_to)
    second = corrected(stream, first.rows, revisions[at:], stable, aged_to)
    assert (second.rows, (*first.outcomes, *second.outcomes)) == (whole.rows, whole.outcomes)
    for each in whole.outcomes:
        assert (each.reason is not None) == (each.outcome in {Outcome.REFUSED, Outcome.WAITING})


@BRIEFLY
@given(streams, st.data(), st.booleans(), st.booleans())
def test_batches_undone_in_turn_leave_what_was_there_before_each(
    stream: Stream, data: st.DataObject, late: bool, few: bool
) -> None:
    history = seeded(stream, *([] if late else [None]))
    seen = []
    for number in range(data.draw(st.integers(1, 4), "batches")):
        seen.append(history.scan())
        history.append(data.draw(batches(stream, few), "batch"), now=0, batch_id=str(number))
        history.revise()
        # A correction that waited for a row of a later batch stands in the way of undoing that batch.
        assume(not history.pending())
    done = history.scan()
    for number in reversed(range(len(seen))):
        undone = history.undo(str(number))
        assert history.scan() == seen[number]
        assert all(each.changes for each in undone.outcomes)
    for number in range(len(seen)):
        history.undo(f"undo-{number}")
    assert history.scan() == done


@BRIEFLY
@given(streams, st.data())
def test_an_undo_leaves_the_rows_of_all_other_batches(stream: Stream, data: st.DataObject) -> None:
    history = seeded(stream)
    former: dict[Key, Row] = {}
    for number in range(3):
        history.append(data.draw(batches(stream), "batch"), now=0, batch_id=str(number))
        history.revise()
        if number == 0:
            former = {key_of(stream, row): row for row in history.scan()}
    before = history.states[-1].live
    undone = history.undo("1", keep_later=True)
    after = history.states[-1].live
    assert all(each.changes for each in undone.outcomes)
    kept = {key: version for key, version in before.items() if version.batch_id != "1"}
    assert {key: after.get(key) for key in kept} == kept
    # A row that the batch left as it had found it is not taken back, and nothing is lost by that.
    lasting = {key: version for key, version in after.items() if version.batch_id == "1" and key not in undone.later}
    assert all(former.get(key) == version.values for key, version in lasting.items())


@BRIEFLY
@given(streams, st.data(), st.booleans())
def test_masks_and_overlays_say_the_same(stream: Stream, data: st.DataObject, late: bool) -> None:
    """The other way to say what is read: rows as they were brought, and what masks them, by numbers alone."""
    history = seeded(stream, *([] if late else [None]))
    for number in range(data.draw(st.integers(1, 8), "events")):
        happen(data, history, number, few=True)
    masks_agree(history)


@pytest.mark.parametrize("stream", [replace(QUOTES, slack=20), replace(ORDERS, slack=20)])
def test_masks_and_overlays_of_a_key_brought_again(stream: Stream) -> None:
    """It had been taken by a correction, or it had been deleted; and it may come back in another place."""
    names = stream.key[-1]
    make = quote if stream.order == "time" else lambda at, name: order(name, at)
    for first, again in product("AB", (20, 21)):
        history = History(stream)
        history.append([make(20, first)], now=0)
        renamed = {**make(20, "A").values}
        history.append([change(Op.REPLACE, renamed, **{names: first}), change(Op.DELETE, renamed)], now=0)
        history.revise()
        history.append([make(again, "A")], now=0, batch_id="again")
        assert len(history.scan()) == 1
        masks_agree(history)


def masks_agree(history: History) -> None:
    for (commit, number), rows in everything(history).items():
        assert in_stream_order(history.stream, overlaid(history, commit, number)) == tuple(rows)


def overlaid(history: History, commit: int, number: int) -> Iterable[Row]:
    versions = made(history.steps[: commit + 1])
    origins = origins_of(versions)
    for version in versions:
        masks = [(mask, origin) for mask, origin in origins if mask.masked == version.key]
        floor = history.states[version.commit].applied
        if version.values is None or (version.revision or 0) > number:
            continue
        since = floor if version.revision is None else version.revision
        place = integer(version.values[history.stream.order])
        if place < aged_to(history, commit):
            continue
        if any(
            since < (mask.revision or 0) <= number and origin.values and origin.values[history.stream.order] == place
            for mask, origin in masks
        ):
            continue
        if version.revision is None and any(
            number < (mask.revision or 0) <= floor
            and (origin.revision or 0) <= number
            and was_there(history, origin, version)
            for mask, origin in masks
        ):
            continue
        yield version.values


def origins_of(versions: Iterable[Version]) -> list[tuple[Version, Version]]:
    """What masks something, and what it masked."""
    newest: dict[int, Version] = {}
    found = []
    for version in versions:
        if version.masked is not None:
            found.append((version, newest[version.row]))
        newest[version.row] = version
    return found


def was_there(history: History, origin: Version, version: Version) -> bool:
    """Whether a masked row had not been aged out when a batch brought its key again."""
    assert origin.values is not None
    return integer(origin.values[history.stream.order]) >= aged_to(history, version.commit - 1)


def aged_to(history: History, commit: int) -> int:
    """Where the archive began as of a commit."""
    point = history.states[commit].aged_to
    return LOWEST if point is None else point
