"""How queries stand: how far they are answered, what has come since, and what their answers do not contain."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from errata.answer.progress import input_watermark
from errata.catalog import queries, streams
from errata.catalog.result_archives import EvaluationCommit, commit_evaluation, read_archive
from errata.declare.site import Site, open_site
from errata.model.batch import Op
from errata.model.commit import Cause, EvaluationCost, EvaluationSpan, Fault, RefusedRevisions, SweepSummary
from errata.model.query import transitive_inputs
from errata.model.results import ResultShape, UpdatePattern
from errata.model.time import LOWEST
from errata.read.status import DeclarationState, QueryProgress, QueryStatus, query_statuses
from fixtures.catalog import NOW
from fixtures.clock import FixedClock
from fixtures.flows import House
from fixtures.layers import Layers, key
from fixtures.projects import Written

STREAMS = """\
project: p
streams:
  feed: {columns: {at: bigint, who: string, price: double}, key: [at, who], order: at, slack: 10}
  other: {columns: {at: bigint, who: string}, key: [at, who], order: at}
relations:
  names:
    kind: nrr
    columns: {who: string, name: string, since: bigint}
    key: [who]
    order: since
"""
DEAR = "SELECT at, who, price FROM feed WHERE price > 10"
MOST = "SELECT who, max(price) AS most FROM dear GROUP BY who"
NAMED = "SELECT m.who, n.name FROM dear AS m JOIN names AS n ON m.who = n.who"
TEXTS = {"dear": DEAR, "most": MOST, "named": NAMED}


@dataclass
class Place:
    """A project with queries, whose evaluations are only said to have been done."""

    written: Written
    site: Site
    feed: Layers

    def bring(self, *ats: int) -> int:
        return self.feed.bring([{"at": at, "who": "a", "price": 1.0} for at in ats])

    def answer(self, name: str, data_commit: int, revision: int = 0, swept: SweepSummary | None = None) -> None:
        """An evaluation as far as the feed reaches."""
        catalog = self.site.catalog
        query, there = queries.recorded_queries(catalog)[name], read_archive(catalog, name)
        ours = there if there is not None and there.query_id == query.query_id else None
        standing = streams.stream_state(catalog, "feed", data_commit)
        assert standing.stable is not None
        step = EvaluationSpan(LOWEST if ours is None else ours.frontier, standing.stable)
        shape, revisions = ResultShape((), UpdatePattern.MONOTONIC, timed=False), {"feed": revision}
        replaces = there if ours is None else None
        done = EvaluationCommit(
            name,
            query.query_id,
            shape,
            ours,
            step,
            data_commit,
            revisions,
            cause={},
            measures=EvaluationCost(),
            begins=LOWEST,
            new_buckets=(),
            replaces=replaces,
            correction=swept,
        )
        commit_evaluation(catalog, done, Cause("run"))

    def stop(self, name: str, data_commit: int) -> None:
        query_id = queries.recorded_queries(self.site.catalog)[name].query_id
        queries.record_fault(self.site.catalog, query_id, data_commit, LOWEST, Fault("division by zero", "1 / price"))

    def status(self, name: str) -> QueryStatus:
        return next(each for each in query_statuses(self.site) if each.name == name)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    written = Written(tmp_path)
    written.apply(TEXTS, streams=STREAMS)
    (tmp_path / "warehouse").mkdir()
    with open_site(tmp_path, clock=FixedClock(NOW)) as site:
        yield Place(written, site, Layers(House(tmp_path, site), site.project.streams["feed"]))


def test_without_rows_there_is_nothing_to_answer(place: Place) -> None:
    found = place.status("dear")
    assert (found.state, found.watermark, found.published, found.timed) == (QueryProgress.WAITING, None, None, False)
    place.bring(30)
    found = place.status("dear")
    assert (found.state, found.watermark, found.commits, found.lag) == (QueryProgress.NEW, 20, 0, None)


def test_how_far_behind(place: Place) -> None:
    first = place.bring(30)
    place.answer("dear", first)
    found = place.status("dear")
    assert (found.state, found.commits, found.lag, found.missing_revisions) == (QueryProgress.CURRENT, 0, 0, {})
    assert found.published is not None
    assert (found.published.frontier, found.published.last.data_commit) == (20, first)
    place.bring(31)
    place.bring(95)
    found = place.status("dear")
    assert (found.state, found.commits, found.lag) == (QueryProgress.BEHIND, 2, 65)
    assert place.status("most").state is QueryProgress.NEW


def test_a_query_is_not_due_before_its_first_instant_has_come(place: Place) -> None:
    place.written.apply(TEXTS, {"dear": "since: 25"}, streams=STREAMS)
    place.bring(30)
    assert {(each.state, each.due) for each in query_statuses(place.site)} == {(QueryProgress.WAITING, False)}
    place.bring(40)
    assert {(each.state, each.due) for each in query_statuses(place.site)} == {(QueryProgress.NEW, True)}


def test_rows_of_the_last_instant_alone_make_a_query_behind(place: Place) -> None:
    place.answer("dear", place.bring(30))
    place.bring(25)
    found = place.status("dear")
    assert (found.state, found.commits, found.lag) == (QueryProgress.BEHIND, 1, 0)


def test_other_streams_do_not_make_a_query_behind(place: Place) -> None:
    place.answer("dear", place.bring(30))
    Layers(place.feed.house, place.site.project.streams["other"]).bring([{"at": 99, "who": "b"}])
    assert place.status("dear").state is QueryProgress.CURRENT


def test_a_query_that_has_stopped_holds_others_up(place: Place) -> None:
    place.answer("dear", place.bring(30))
    second = place.bring(50)
    place.stop("dear", second)
    found = {each.name: each for each in query_statuses(place.site)}
    assert [(name, each.state, each.waits_for) for name, each in found.items()] == [
        ("dear", QueryProgress.STOPPED, None),
        ("most", QueryProgress.HELD, "dear"),
        ("named", QueryProgress.HELD, "dear"),
    ]
    reason = found["dear"].stopped
    assert reason is not None
    assert (reason.fault.reason, found["dear"].lag) == ("division by zero", 20)
    place.answer("dear", second)
    found = {each.name: each for each in query_statuses(place.site)}
    assert [(each.state, each.stopped, each.waits_for) for each in found.values()] == [
        (QueryProgress.CURRENT, None, None),
        (QueryProgress.NEW, None, None),
        (QueryProgress.NEW, None, None),
    ]


def test_an_edited_query_shows_the_answers_of_its_former_form(place: Place) -> None:
    first = place.bring(30)
    place.answer("dear", first)
    place.written.apply(TEXTS | {"dear": DEAR.replace("10", "11")}, streams=STREAMS)
    found = place.status("dear")
    assert (found.state, found.declared, found.missing_revisions) == (QueryProgress.EDITED, DeclarationState.AGREED, {})
    assert found.published is not None
    assert found.published.frontier == 20
    place.answer("dear", first)
    assert place.status("dear").state is QueryProgress.CURRENT


def test_corrections_that_reach_behind_the_answers_are_left_out(place: Place) -> None:
    place.bring(5, 12, 30)
    place.answer("dear", place.bring(25))
    place.feed.pend((Op.REPLACE, {**key(12), "price": 2.0}, {}), (Op.DELETE, key(25), {}))
    assert place.status("dear").pending == 2
    assert place.status("dear").missing_revisions == {}
    place.feed.correct((Op.REPLACE, {**key(5), "price": 3.0}, {}))
    found = place.status("dear")
    assert (found.pending, found.missing_revisions) == (0, {"feed": 3})
    place.answer("dear", place.feed.standing.changed_in)
    found = place.status("dear")
    assert (found.state, found.missing_revisions) == (QueryProgress.CURRENT, {"feed": 3})
    place.answer("most", place.feed.standing.changed_in, revision=3)
    assert place.status("most").missing_revisions == {}


def test_corrections_further_on_are_taken_up_by_going_on(place: Place) -> None:
    place.bring(5, 12, 30)
    place.answer("dear", place.bring(25))
    place.feed.correct((Op.DELETE, key(25), {}))
    found = place.status("dear")
    assert (found.state, found.missing_revisions) == (QueryProgress.BEHIND, {})
    place.feed.correct((Op.DELETE, key(12), {}))
    place.feed.correct((Op.DELETE, key(30), {}))
    assert place.status("dear").missing_revisions == {"feed": 2}, "revisions are taken up in their order"


def test_corrections_that_wait_are_told_with_what_they_wait_for(place: Place) -> None:
    options = {"dear": "sweep: {when: queue >= 3}", "most": "sweep: {when: never}"}
    place.written.apply(TEXTS, options, streams=STREAMS)
    first = place.bring(5, 12, 30)
    for name in TEXTS:
        place.answer(name, first)
    assert {each.deferred for each in query_statuses(place.site)} == {None}
    place.feed.pend((Op.REPLACE, {**key(12), "price": 2.0}, {}))
    place.feed.pend((Op.DELETE, key(5), {}))
    found = {each.name: (each.pending, each.deferred) for each in query_statuses(place.site)}
    # What a query only reads through another waits as long as that one: its corrections cannot be left out.
    assert found == dict.fromkeys(TEXTS, (2, "waits until 3 revisions have come; 2 have"))
    place.feed.correct((Op.REPLACE, {**key(12), "price": 3.0}, {}))
    found = {each.name: (sum(each.missing_revisions.values()), each.deferred) for each in query_statuses(place.site)}
    assert found == dict.fromkeys(TEXTS, (3, None))


def test_corrections_that_were_refused_are_told_with_the_reason(place: Place) -> None:
    gone, other = "rows of feed have been aged out", "rows of other have been aged out"
    first = place.bring(5, 12, 30)
    for name in ("dear", "most"):
        place.answer(name, first)

    def refused(*some: RefusedRevisions) -> SweepSummary:
        return SweepSummary("minimal", "it was asked for", {"feed": (0, 3)}, refused=some)

    place.answer("dear", first, 3, refused(RefusedRevisions("feed", 2, 3, 2, gone)))
    place.answer("dear", first, 4, refused())
    place.answer(
        "dear", first, 9, refused(RefusedRevisions("feed", 7, 8, 1, gone), RefusedRevisions("feed", 9, 9, 1, other))
    )
    assert place.status("dear").refused == (
        RefusedRevisions("feed", 2, 8, 3, gone),
        RefusedRevisions("feed", 9, 9, 1, other),
    )
    assert place.status("most").refused == ()
    # They were of the former form.
    place.written.apply(TEXTS | {"dear": DEAR.replace("10", "11")}, streams=STREAMS)
    assert place.status("dear").refused == ()
    place.answer("dear", first)
    assert place.status("dear").refused == ()


def test_a_query_that_is_not_applied_has_no_state(place: Place) -> None:
    project = place.written.write({"new": DEAR, **TEXTS}, streams=STREAMS)
    found = {each.name: each for each in query_statuses(Site(project, place.site.catalog, place.site.warehouse))}
    assert (found["new"].state, found["new"].declared) == (None, DeclarationState.NEW)
    assert found["dear"].state is QueryProgress.WAITING


def test_relations_have_no_say_in_how_far_answers_can_reach(place: Place) -> None:
    place.bring(30)
    standings = {each.stream.name: each for each in streams.stream_states(place.site.catalog)}
    assert input_watermark([standings["feed"], standings["names"]]) == 20
    assert input_watermark([standings["feed"], standings["other"]]) is None
    assert input_watermark([standings["names"]]) is None


def test_all_that_is_read() -> None:
    reads = {"top": ["left", "right"], "left": ["low"], "right": ["low", "b"], "low": ["a"]}
    assert sorted(transitive_inputs(["top"], reads)) == ["a", "b", "left", "low", "right"]
    assert transitive_inputs(["low"], reads) == ["a"]
