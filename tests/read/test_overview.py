"""What operators are shown: told from the catalog, and true."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import update

from errata.catalog import pins
from errata.catalog.activity import TimelineStrip, timeline_strips
from errata.catalog.leases import LEASE_MICROS, hold_lease
from errata.catalog.tables import leases
from errata.errors import UsageError
from errata.model.batch import Op
from errata.model.bucket import Role
from errata.model.commit import RefusedRevisions
from errata.model.results import UpdatePattern
from errata.model.stream import RevisionPolicy
from errata.read.corrections import correction_page, find_correction, find_replay, task_commits
from errata.read.details import PATTERN_TEXTS, POLICY_TEXTS, query_details, stream_details, timeline_page
from errata.read.maintenance import maintenance_status, quarantine_contents
from errata.read.overview import HealthLevel, attention_points, name_list, project_overview
from errata.read.status import LONG_LEASE_MICROS, QueryProgress, stream_statuses
from fixtures.layers import key
from fixtures.lease_cases import left_elsewhere
from fixtures.sample_project import STREAMS, TEXTS, Looked, looked


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Looked]:
    with looked(tmp_path) as found:
        yield found


def test_nothing_of_it_needs_spark_or_reads_a_query() -> None:
    modules = ["overview", "details", "corrections", "correction_report", "maintenance"]
    script = f"import sys\nfrom errata.read import {', '.join(modules)}\n"
    script += "print([name for name in sys.modules if name in ('pyspark', 'sqlglot', 'airflow')])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# The front


def test_a_project_without_rows_is_empty(place: Looked) -> None:
    found = project_overview(place.site)
    assert (found.level, found.line) == (HealthLevel.EMPTY, "All is set up, and no rows have come yet.")
    assert (len(found.streams), len(found.queries), found.rows, found.waiting) == (2, 2, 0, [])
    assert found.last is not None
    assert found.last.cause.flow == "apply"


def test_all_is_well_when_every_query_is_answered(place: Looked) -> None:
    place.bring(5, 60)
    assert project_overview(place.site).line == "All is well: 2 queries have new rows to take up."
    place.answer("dear")
    place.answer("most")
    found = project_overview(place.site)
    assert (found.level, found.points) == (HealthLevel.WELL, [])
    assert found.line == "All is well: every query is answered as far as its streams reach."


def test_a_stopped_query_comes_first_and_tells_how_it_is_mended(place: Looked) -> None:
    place.bring(5, 60)
    place.stop("dear")
    found = project_overview(place.site)
    assert (found.level, found.line) == (HealthLevel.STOPPED, "1 of 2 queries has stopped, and 1 other waits for it.")
    (point,) = found.points
    assert point.words == "dear has stopped at 1 / price: [DIVIDE_BY_ZERO] Use `try_divide`"
    assert "try_divide" in point.how
    assert (point.panel, point.grave) == ("queries/dear", True)


def test_a_query_with_news_whose_holder_is_silent_is_worth_a_look(place: Looked) -> None:
    catalog = place.site.catalog
    place.bring(5, 60)
    left_elsewhere(catalog, "query dear", "append/scheduled__1/answer/1", lasts=LEASE_MICROS // 3)
    found = project_overview(place.site)
    assert found.level is HealthLevel.LOOK
    (point,) = found.points
    assert point.words.startswith("dear waits for append/scheduled__1/answer/1 (process 4711 of ")
    assert (point.how, point.command, point.panel) == ("errata leases release dear", True, "health")


def test_a_query_that_somebody_works_on_is_well_unless_that_takes_long(place: Looked) -> None:
    place.bring(5, 60)
    with hold_lease(place.site.catalog, "query dear"):
        assert project_overview(place.site).level is HealthLevel.WELL
        with place.site.catalog.writing() as connection:
            connection.execute(update(leases).values(since=leases.c.since - LONG_LEASE_MICROS))
        assert [each.words.partition(" waits for ")[0] for each in project_overview(place.site).points] == ["dear"]
        place.answer("dear")
        assert project_overview(place.site).points == [], "it has nothing to take up"


def test_landed_files_that_were_set_aside_are_worth_a_look(place: Looked) -> None:
    (feed, other) = stream_statuses(place.site)
    points = list(attention_points([replace(feed, set_aside=2), replace(other, landing_fault="taken is a file")], []))
    assert [(each.words, each.panel) for each in points] == [
        ("2 landed files of feed could not be taken in", "quarantine"),
        ("nobody can look into the landing folder of other", "streams"),
    ]


def test_what_waits_and_what_for(place: Looked) -> None:
    options = {"dear": "sweep: {when: 'queue >= 3'}"}
    place.written.apply({"dear": TEXTS["dear"]}, options, STREAMS)
    place.bring(5, 60)
    place.answer("dear")
    place.pend(20, 7.0)
    (waits,) = project_overview(place.site).waiting
    assert (waits.queries, waits.count, waits.why) == (["dear"], 1, "wait until 3 revisions have come; 1 has")
    place.pend(21, 7.0)
    place.pend(22, 7.0)
    (waits,) = project_overview(place.site).waiting
    assert (waits.count, waits.why) == (3, "are due: the next sweep takes them up")
    place.stop("dear")
    (waits,) = project_overview(place.site).waiting
    assert waits.why == "wait until the query has been mended"


def test_what_no_run_mends_wants_a_look(place: Looked) -> None:
    place.bring(5, 60)
    place.answer("dear")
    place.answer("most")
    place.correct(5, 99.0)
    place.sweep("dear", [], refused=[RefusedRevisions("feed", 1, 1, 1, "aged out")])
    place.hold(3)
    (place.written.folder / "queries" / "most.sql").write_text("SELECT who, min(price) AS least FROM dear GROUP BY who")
    found = project_overview(place.site)
    assert (found.level, found.line) == (HealthLevel.LOOK, "3 things need a look; all else is well.")
    assert [each.words for each in found.points] == [
        "3 rows are in quarantine, of feed",
        "errata.yaml and the catalog differ in most",
        "1 correction could not reach dear",
    ]
    assert found.quarantined == 3


def test_names_in_a_sentence() -> None:
    assert name_list(["a"]) == "a"
    assert name_list(["a", "b", "c"]) == "a, b and c"
    assert name_list(map(str, range(12))) == "0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 2 more"


# Timelines


def test_a_timeline_has_every_bucket_and_what_lies_over_it(place: Looked) -> None:
    place.feed.bring(*([{"at": at * 10 + k, "who": "a", "price": 1.0} for k in range(3)] for at in range(10)))
    place.feed.correct((Op.REPLACE, key(41) | {"price": 2.0}, {}))
    place.pend(81, 7.0)
    found = timeline_page(place.site)
    assert [each.status.stream.name for each in found.lanes] == ["feed", "other"]
    assert found.lanes[1].timeline is None
    line = found.lanes[0].timeline
    assert line is not None
    assert (line.low, line.high, line.width, line.stable) == (0, 92, 1, 82)
    assert [(each.first, each.last, each.rows) for each in line.strips_of(Role.BASE)] == [
        (n * 10, n * 10 + 2, 3) for n in range(10)
    ]
    assert [(each.first, each.last) for each in line.strips_of(Role.OVERLAY)] == [(41, 41)]
    assert [(each.first, each.last) for each in line.strips_of(Role.PENDING)] == [(81, 81)]
    assert line.strips_of(Role.BASE)[4].masked == 1


def test_buckets_that_share_a_cell_are_one_strip(place: Looked) -> None:
    place.feed.bring(*([{"at": at, "who": "a", "price": 1.0}] for at in range(100)))
    stream_id = place.feed.standing.stream_id
    found = timeline_strips(place.site.catalog, stream_id, 0, 25)
    assert found == [TimelineStrip(Role.BASE, n, n, 25, 25, 0) for n in range(4)]
    assert sum(each.rows for each in timeline_strips(place.site.catalog, stream_id, 0, 7)) == 100


def test_what_waits_beside_the_rows_is_shown_at_the_edge(place: Looked) -> None:
    place.bring(1000, 2000)
    place.feed.pend((Op.INSERT, key(3) | {"price": 1.0}, {}))
    line = timeline_page(place.site).lanes[0].timeline
    assert line is not None
    assert [(each.first, each.last) for each in line.strips_of(Role.PENDING)] == [(0, 0)]


def test_many_streams_come_in_pages(place: Looked, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("errata.read.details.STREAMS_PER_PAGE", 1)
    found = timeline_page(place.site, 2)
    assert ([each.status.stream.name for each in found.lanes], found.page, found.pages, found.total) == (
        ["other"],
        2,
        2,
        2,
    )
    assert timeline_page(place.site, 99).page == 2


def test_one_stream_at_length(place: Looked) -> None:
    place.bring(5, 60)
    found = stream_details(place.site, "feed")
    assert (found.lane.status.rows, found.read_by) == (2, ["dear"])
    assert [each.cause.flow for each in found.commits] == ["append"]
    with pytest.raises(UsageError, match="unknown stream 'fed'") as caught:
        stream_details(place.site, "fed")
    assert "did you mean feed?" in str(caught.value)


# Corrections


def test_corrections_come_newest_first_with_cause_and_outcome(place: Looked) -> None:
    place.bring(5, 60)
    place.answer("dear")
    place.answer("most")
    first = place.sweep("dear", [("replace", "a", 5, 5.0, 99.0)], (0, 3))
    place.sweep("most", [], (1, 2), inputs={"dear": 2})
    place.replayed("dear", 0)
    last = place.sweep("dear", [("insert", "b", 6, None, 1.0)], by_hand=True)
    found = correction_page(place.site)
    assert [(each.query, each.by_hand, each.verified, each.changed) for each in found.entries] == [
        ("dear", True, False, 1),
        ("dear", True, True, 0),
        ("most", False, True, 0),
        ("dear", False, False, 1),
    ]
    assert [each.commit and each.commit.commit_id for each in found.entries][::3] == [last, first]
    assert (found.entries[3].revisions, found.entries[3].technique) == ({"feed": (1, 3)}, "minimal")
    assert (found.entries[3].compared, found.entries[3].micros) == (7, 1_500_000)
    assert (found.entries[2].queries, found.entries[1].compared) == ({"dear"}, 12)
    assert found.older is None
    assert [each.query for each in correction_page(place.site, query="most").entries] == ["most"]


def test_a_replay_that_changed_something_is_told_by_its_commits_alone(place: Looked) -> None:
    place.bring(5, 60)
    place.answer("dear")
    place.replayed("dear", 1)
    assert correction_page(place.site).entries == []
    place.replayed("dear", 2, ended=False)
    (entry,) = correction_page(place.site).entries
    assert (entry.under_way, entry.verified) == (True, False)
    assert entry.replay is not None
    assert find_replay(place.site, entry.replay.replay.replay_id) == entry


def test_no_correction_is_lost_between_pages(place: Looked) -> None:
    place.bring(5, 60)
    place.answer("dear")
    made = []
    for number in range(7):
        made.append(place.sweep("dear", [], (number, number + 1)))
        if number % 3 == 0:
            place.replayed("dear", 0)
    every = correction_page(place.site).entries
    assert len(every) == 10
    before, told = None, []
    while True:
        page = correction_page(place.site, before, most=2)
        told += page.entries
        if page.older is None:
            break
        before = page.older
    assert told == every


def test_names_and_numbers_that_are_not_there(place: Looked) -> None:
    place.bring(5, 60)
    place.answer("dear")
    with pytest.raises(UsageError, match="commit 3 has corrected no results of query dear"):
        find_correction(place.site, "dear", 3)
    with pytest.raises(UsageError, match="unknown query 'deer'"):
        find_correction(place.site, "deer", 3)
    with pytest.raises(UsageError, match="there is no replay 9"):
        find_replay(place.site, 9)


def test_what_a_task_has_done(place: Looked) -> None:
    place.bring(5, 60)
    place.answer("dear")
    made = place.sweep("dear", [("replace", "a", 5, 5.0, 99.0)])
    found = task_commits(place.site, "revisions", "by hand", "sweep", 2)
    assert [each.commit_id for each in found.commits] == [made]
    assert found.corrections[made].changed == 1
    assert task_commits(place.site, "revisions", "by hand", "sweep").commits == found.commits
    for other in (("revisions", "by hand", "sweep", 1), ("revisions", "another", "sweep", 2)):
        assert task_commits(place.site, *other).commits == []


# Queries, quarantine, upkeep


def test_every_pattern_and_policy_is_explained() -> None:
    assert set(PATTERN_TEXTS) == set(UpdatePattern)
    assert set(POLICY_TEXTS) == set(RevisionPolicy)


def test_one_query_at_length(place: Looked) -> None:
    place.bring(5, 60)
    place.answer("dear")
    place.sweep("dear", [])
    found = query_details(place.site, "dear")
    assert (found.status.state, found.reads, found.read_by) == (QueryProgress.CURRENT, [("feed", False)], ["most"])
    assert query_details(place.site, "most").reads == [("dear", True)]
    assert "price > 10" in found.text
    assert len(found.corrections.entries) == 1
    with pytest.raises(UsageError, match="unknown query"):
        query_details(place.site, "deer")


def test_quarantine_is_shown_newest_first(place: Looked) -> None:
    place.hold(3)
    found = quarantine_contents(place.site)
    assert ([each.row.line for each in found.rows], found.total) == ([4, 3, 2], 3)
    assert len(quarantine_contents(place.site, most=2).rows) == 2
    assert [quarantine_contents(place.site, each).shown_total for each in ("feed", "other")] == [3, 0]
    with pytest.raises(UsageError, match="unknown stream"):
        quarantine_contents(place.site, "fed")


def test_upkeep_tells_what_ran_last_and_who_is_at_work(place: Looked) -> None:
    place.bring(5, 60)
    place.answer("dear")
    place.correct(5, 99.0)
    with pins.hold_pin(place.site.catalog, 2, "a reader"):
        found = maintenance_status(place.site)
    last = {flow: commit for flow, _, commit in found.last}
    assert last["append"] is not None
    assert last["revise"] is not None
    assert last["revise"].commit_id > last["append"].commit_id
    assert last["vacuum"] is None
    assert [(each.holder, each.commit_id) for each in found.pins] == [("a reader", 2)]
    assert (found.leases, found.due) == ([], [])
    sizes = {each.name: each for each in found.archives}
    assert (sizes["feed"].live.rows, sizes["feed"].overlays.rows, sizes["feed"].query) == (2, 1, False)
    assert sizes["dear"].query
    assert maintenance_status(place.site).pins == []
