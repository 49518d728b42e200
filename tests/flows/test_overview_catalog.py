"""What the catalog has of late: the same on both databases."""

from __future__ import annotations

from dataclasses import replace

from errata.catalog import commits, leases, pins, streams
from errata.catalog.append import commit_append
from errata.catalog.lately import Strip, corrected, ever_answered, last_of_flows, made_by, pinned, replayed, strips
from errata.catalog.open import Catalog
from errata.model.bucket import Role
from errata.model.commit import Cause
from errata.model.stream import Stream
from fixtures.catalog import a_batch, a_bucket

CAUSE = Cause("append", dag_id="append", run_id="r", task_id="append[0]", try_number=1)


def bring(catalog: Catalog, ticks: Stream, name: str, *spans: tuple[int, int], cause: Cause = CAUSE) -> int:
    made = [a_bucket(*span, rows=span[1] - span[0] + 1) for span in spans]
    return commit_append(catalog, streams.standing(catalog, ticks.name), a_batch(name, made), cause)


def test_cells_of_a_timeline_hold_whole_quotients(catalog: Catalog, ticks: Stream) -> None:
    bring(catalog, ticks, "one", (-7, -3), (0, 3), (4, 9), (10, 12), (13, 25))
    stream_id = streams.standing(catalog, ticks.name).stream_id
    assert strips(catalog, stream_id, -7, 10) == [
        Strip(Role.BASE, 0, 0, 1, 5, 0),
        Strip(Role.BASE, 0, 1, 1, 4, 0),
        Strip(Role.BASE, 1, 1, 2, 9, 0),
        Strip(Role.BASE, 2, 3, 1, 13, 0),
    ]
    assert strips(catalog, stream_id, -7, 10, [Role.OVERLAY]) == []


def test_the_last_commit_of_each_flow(catalog: Catalog, ticks: Stream) -> None:
    bring(catalog, ticks, "one", (0, 9))
    last = bring(catalog, ticks, "two", (10, 19))
    assert {flow: each.commit_id for flow, each in last_of_flows(catalog).items()} == {"apply": 1, "append": last}


def test_what_a_task_has_made(catalog: Catalog, ticks: Stream) -> None:
    first = bring(catalog, ticks, "one", (0, 9))
    bring(catalog, ticks, "two", (10, 19), cause=replace(CAUSE, task_id="append[1]"))
    again = bring(catalog, ticks, "three", (20, 29), cause=replace(CAUSE, try_number=2))
    every = made_by(catalog, "append", "r", "append[0]", None, 10)
    assert [each.commit_id for each in every] == [first, again]
    assert [each.commit_id for each in made_by(catalog, "append", "r", "append[0]", 2, 10)] == [again]
    assert made_by(catalog, "append", "r", "append[0]", None, 1) == every[:1]
    assert every == list(commits.numbered(catalog, [first, again]).values())


def test_only_what_is_held_now(catalog: Catalog, ticks: Stream) -> None:
    bring(catalog, ticks, "one", (0, 9))
    with leases.held(catalog, "query q", "dag/run/task/1"), pins.pinned(catalog, 2, "scan of ticks"):
        assert [(each.name, each.owner) for each in leases.holders(catalog)] == [("query q", "dag/run/task/1")]
        assert [(each.holder, each.commit_id) for each in pinned(catalog)] == [("scan of ticks", 2)]
    assert (leases.holders(catalog), pinned(catalog)) == ([], [])


def test_where_nothing_was_ever_corrected(catalog: Catalog, ticks: Stream) -> None:
    assert (corrected(catalog, 5), corrected(catalog, 5, 1, "q"), replayed(catalog, 5), ever_answered(catalog)) == (
        [],
        [],
        [],
        set(),
    )
