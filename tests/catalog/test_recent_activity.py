"""What the catalog has of late: the same on both databases."""

from __future__ import annotations

from dataclasses import replace

from errata.catalog import commits, leases, pins, streams
from errata.catalog.activity import (
    TimelineStrip,
    answered_queries,
    commits_of_task,
    last_commits_of_flows,
    living_pins,
    recent_corrections,
    recent_replays,
    timeline_strips,
)
from errata.catalog.database import Catalog
from errata.catalog.stream_commits import commit_append
from errata.model.bucket import Role
from errata.model.commit import Cause
from errata.model.stream import Stream
from fixtures.catalog import a_batch, a_bucket

CAUSE = Cause("append", dag_id="append", run_id="r", task_id="append[0]", try_number=1)


def bring(catalog: Catalog, ticks: Stream, name: str, *spans: tuple[int, int], cause: Cause = CAUSE) -> int:
    made = [a_bucket(*span, rows=span[1] - span[0] + 1) for span in spans]
    return commit_append(catalog, streams.stream_state(catalog, ticks.name), a_batch(name, made), cause)


def test_cells_of_a_timeline_hold_whole_quotients(catalog: Catalog, ticks: Stream) -> None:
    bring(catalog, ticks, "one", (-7, -3), (0, 3), (4, 9), (10, 12), (13, 25))
    stream_id = streams.stream_state(catalog, ticks.name).stream_id
    assert timeline_strips(catalog, stream_id, -7, 10) == [
        TimelineStrip(Role.BASE, 0, 0, 1, 5, 0),
        TimelineStrip(Role.BASE, 0, 1, 1, 4, 0),
        TimelineStrip(Role.BASE, 1, 1, 2, 9, 0),
        TimelineStrip(Role.BASE, 2, 3, 1, 13, 0),
    ]
    assert timeline_strips(catalog, stream_id, -7, 10, [Role.OVERLAY]) == []


def test_the_last_commit_of_each_flow(catalog: Catalog, ticks: Stream) -> None:
    bring(catalog, ticks, "one", (0, 9))
    last = bring(catalog, ticks, "two", (10, 19))
    assert {flow: each.commit_id for flow, each in last_commits_of_flows(catalog).items()} == {
        "apply": 1,
        "append": last,
    }


def test_what_a_task_has_made(catalog: Catalog, ticks: Stream) -> None:
    first = bring(catalog, ticks, "one", (0, 9))
    bring(catalog, ticks, "two", (10, 19), cause=replace(CAUSE, task_id="append[1]"))
    again = bring(catalog, ticks, "three", (20, 29), cause=replace(CAUSE, try_number=2))
    every = commits_of_task(catalog, "append", "r", "append[0]", None, 10)
    assert [each.commit_id for each in every] == [first, again]
    assert [each.commit_id for each in commits_of_task(catalog, "append", "r", "append[0]", 2, 10)] == [again]
    assert commits_of_task(catalog, "append", "r", "append[0]", None, 1) == every[:1]
    assert every == list(commits.commits_by_number(catalog, [first, again]).values())


def test_only_what_is_held_now(catalog: Catalog, ticks: Stream) -> None:
    bring(catalog, ticks, "one", (0, 9))
    with leases.hold_lease(catalog, "query q", "dag/run/task/1"), pins.hold_pin(catalog, 2, "scan of ticks"):
        assert [(each.name, each.owner) for each in leases.list_holders(catalog)] == [("query q", "dag/run/task/1")]
        assert [(each.holder, each.commit_id) for each in living_pins(catalog)] == [("scan of ticks", 2)]
    assert (leases.list_holders(catalog), living_pins(catalog)) == ([], [])


def test_where_nothing_was_ever_corrected(catalog: Catalog, ticks: Stream) -> None:
    assert (
        recent_corrections(catalog, 5),
        recent_corrections(catalog, 5, 1, "q"),
        recent_replays(catalog, 5),
        answered_queries(catalog),
    ) == (
        [],
        [],
        [],
        set(),
    )
