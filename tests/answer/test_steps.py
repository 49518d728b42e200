"""The list of steps over a catalog of plain values: which steps there are, in which order, and why others wait."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pytest

from errata.answer.steps import Step, StepKind, StepList, StepRequest
from errata.answer.unread_changes import CorrectionBacklog, UnreadRevisions
from errata.catalog.queries import RecordedQuery, StoppedQuery
from errata.catalog.result_archives import ResultArchive
from errata.catalog.streams import StreamState
from errata.errors import UsageError
from errata.model.bucket import Bucket, Role
from errata.model.columns import Column, ColumnType, TypeKind
from errata.model.commit import Evaluation, EvaluationSpan, Fault, SweepSummary
from errata.model.deferral import DEFAULT_DEFERRAL, Deferral
from errata.model.feed import Feed, MergedFeeds
from errata.model.query import CheckedQuery, Query
from errata.model.results import ResultShape, UpdatePattern
from errata.model.stream import RelationKind, RevisionPolicy, Stream
from errata.model.time import HOUR, LOWEST

ALL = StepRequest()
APPLY, CORRECT, EVALUATE, DELIVER = StepKind.APPLY, StepKind.CORRECT, StepKind.EVALUATE, StepKind.DELIVER

CHAIN = {"low": ["feed"], "mid": ["low"], "top": ["mid"]}
"""What each query reads."""


@dataclass
class CatalogValues:
    """A catalog as plain values. A stream is stable up to an instant; results were made as of commit 5."""

    now: int = 0
    standings: dict[str, StreamState] = field(default_factory=dict)
    queries: dict[str, RecordedQuery] = field(default_factory=dict)
    published: dict[str, ResultArchive] = field(default_factory=dict)
    stopped: dict[int, StoppedQuery] = field(default_factory=dict)
    default_deferral: Deferral = DEFAULT_DEFERRAL
    known_overlays: dict[str, list[Bucket]] = field(default_factory=dict)
    batches: list[tuple[int, int, str]] = field(default_factory=list)
    history: dict[str, list[Evaluation]] = field(default_factory=dict)
    fed: dict[tuple[str, str], int | None] = field(default_factory=dict)
    """Up to which commit results have been delivered to feeds; None: the feed is detached."""
    wanted: dict[str, int] = field(default_factory=dict)
    settles: bool = True
    reached: bool = True

    def overlays(self, of: StreamState) -> Sequence[Bucket]:
        return self.known_overlays.get(of.stream.name, [])

    def added_since(self, of: StreamState, commit_id: int) -> Sequence[Bucket]:  # noqa: ARG002
        return []

    def evaluations(self, of: ResultArchive) -> Sequence[Evaluation]:
        return self.history.get(of.name, [of.last])

    def batches_since(self, commit_id: int) -> Sequence[tuple[int, int, str]]:
        return [each for each in self.batches if each[1] > commit_id]

    def wanted_from(self, query: str) -> int | None:
        return self.wanted.get(query)

    def delivered(self, of: StreamState, feed: Feed) -> int | None:
        return self.fed.get((of.stream.name, feed.name), 0)

    def time_of(self, commit_id: int) -> int | None:
        return commit_id * HOUR

    def pending(self, of: StreamState) -> CorrectionBacklog:
        count = of.revisions - of.applied
        return CorrectionBacklog(count, of.changed_in) if count else CorrectionBacklog()

    def backlog(self, change: UnreadRevisions) -> CorrectionBacklog:
        return CorrectionBacklog(change.up_to - change.known, 6)

    def can_settle(self, of: StreamState) -> bool:  # noqa: ARG002
        return self.settles

    def reaches(self, of: ResultArchive, corrections: Sequence[Evaluation], frontier: int) -> bool:  # noqa: ARG002
        return self.reached

    # What the tests put into it.

    def stream(self, name: str, stable: int | None = 20, relation: RelationKind | None = None) -> None:
        declared = Stream(
            name,
            (Column("at", ColumnType(TypeKind.BIGINT)), Column("who", ColumnType(TypeKind.STRING))),
            ("at", "who"),
            "at",
            relation=relation,
        )
        self.standings[name] = StreamState(len(self.standings) + 1, declared, stable, stable, 9, 0, 0, 5)

    def query(self, name: str, reads: Iterable[str], sweep: str | None = None, **options: str) -> None:
        rule = None if sweep is None else Deferral.parse(sweep)
        declared = Query(name, "", "SELECT", sweep=rule, **options)  # type: ignore[arg-type]
        policy = RevisionPolicy.RESULTS
        checked = CheckedQuery(declared, (), (), tuple(reads), UpdatePattern.MONOTONIC, policy, name, name)
        self.queries[name] = RecordedQuery(len(self.queries) + 1, checked, 1)

    def answer(self, name: str, until: int = 20) -> None:
        """Results as far as an instant, which contain all that there is."""
        revisions = {each: of.applied for each, of in self.standings.items()}
        last = Evaluation(1, 5, 5, EvaluationSpan(LOWEST, until), revisions, {})
        shape = ResultShape((), UpdatePattern.MONOTONIC, timed=False)
        query_id = self.queries[name].query_id
        self.published[name] = ResultArchive(100 + query_id, name, query_id, shape, 4, 0, 0, last)

    def pend(self, name: str, count: int) -> None:
        of = self.standings[name]
        self.standings[name] = replace(of, revisions=of.revisions + count, changed_in=6)

    def apply(self, name: str, place: int) -> None:
        """All pending revisions are of a row at a place."""
        of = self.standings[name]
        rows, ends = of.revisions - of.applied, (of.applied + 1, of.revisions)
        bucket = Bucket(9, Role.OVERLAY, None, rows, 1, place, place, (), "", "", 6, None, *ends)
        self.known_overlays.setdefault(name, []).append(replace(bucket, masks=(place, place)))
        self.standings[name] = replace(of, applied=of.revisions, changed_in=6)

    def bring(self, name: str, stable: int) -> None:
        of = self.standings[name]
        self.standings[name] = replace(of, stable=stable, changed_in=6)
        self.batches.append((of.stream_id, 6, "b"))

    def correct(self, name: str) -> None:
        """The results of a query are corrected."""
        of = self.published[name]
        revisions = {each: state.applied for each, state in self.standings.items()}
        last = replace(of.last, number=2, commit_id=7, revisions=revisions)
        last = replace(last, correction=SweepSummary("all", "", {}, changed=1))
        self.history[name] = [of.last, last]
        self.published[name] = replace(of, last=last)

    def stop(self, name: str, data_commit: int) -> None:
        query_id = self.queries[name].query_id
        self.stopped[query_id] = StoppedQuery(query_id, data_commit, LOWEST, 0, Fault("division by zero"))

    def steps(self, request: StepRequest = ALL) -> list[Step]:
        return StepList(self, request).steps()


def there(reads: Mapping[str, Sequence[str]] = CHAIN, rules: Mapping[str, str] = {}) -> CatalogValues:
    """A catalog whose queries have answered all."""
    found = CatalogValues()
    found.stream("feed")
    for name, some in reads.items():
        found.query(name, some, rules.get(name))
        found.answer(name)
    return found


def told(steps: Iterable[Step]) -> list[tuple[str, str]]:
    return [(each.kind.value, each.name) for each in steps]


def test_where_all_is_answered_nothing_is_due() -> None:
    assert there().steps() == []


def test_rows_that_have_come_are_evaluated_by_those_that_are_read_first() -> None:
    catalog = there()
    catalog.bring("feed", 30)
    found = catalog.steps()
    assert told(found) == [("evaluate", "low"), ("evaluate", "mid"), ("evaluate", "top")]
    assert [each.after for each in found] == [(), ("low",), ("mid",)]
    assert all(each.due and each.why == "its sources reach further" for each in found)
    assert [each.evaluation.until for each in found if each.evaluation is not None] == [30, 30, 30]
    # At its turn a query goes no further than those that it reads have gone.
    (now,) = StepList(catalog).of_query("mid")
    assert now.evaluation is not None
    assert now.evaluation.until == 20


def test_what_a_sweep_does_is_no_evaluation() -> None:
    catalog = there()
    catalog.bring("feed", 30)
    catalog.pend("feed", 2)
    found = catalog.steps(StepRequest(evaluates=False))
    assert told(found) == [("apply", "feed"), ("correct", "low"), ("correct", "mid"), ("correct", "top")]
    assert [(each.revisions, each.after) for each in found[:3]] == [(2, ()), (2, ("feed",)), (0, ("low",))]


def test_of_the_queries_that_are_named_and_of_what_they_read() -> None:
    catalog = there({**CHAIN, "aside": ["feed"]})
    catalog.stream("other")
    catalog.pend("feed", 1)
    catalog.pend("other", 1)
    found = catalog.steps(StepRequest(["mid"]))
    assert told(found) == [("apply", "feed"), ("correct", "low"), ("correct", "mid")]
    with pytest.raises(UsageError, match="unknown query 'mod'"):
        catalog.steps(StepRequest(["mod"]))


def test_revisions_behind_the_frontier_are_corrected_and_those_after_it_evaluated() -> None:
    catalog = there({"low": ["feed"]})
    catalog.pend("feed", 1)
    catalog.apply("feed", 25)
    assert told(catalog.steps()) == [("evaluate", "low")]
    catalog.pend("feed", 1)
    catalog.apply("feed", 7)
    (correction, evaluation) = catalog.steps()
    assert (correction.kind, correction.why) == (CORRECT, "revisions 1 to 2 of feed")
    assert evaluation.kind is EVALUATE
    assert StepList(catalog).missing("low") == {"feed": 1}


def test_a_rule_makes_corrections_wait_and_so_do_those_that_come_of_them() -> None:
    catalog = there(CHAIN | {"aside": ["feed"]}, {"low": "queue >= 3", "mid": "never", "aside": "never"})
    catalog.pend("feed", 2)
    words = "waits until 3 revisions have come; 2 have"
    waits = {(each.kind, each.name): each.waits for each in catalog.steps()}
    # For top, which declares nothing, corrections of the stream that it reads through others are due.
    assert waits.pop((APPLY, "feed")) is None
    aside = waits.pop((CORRECT, "aside"))
    assert aside == "waits for `errata sweep`"
    assert waits == {(CORRECT, "low"): words, (CORRECT, "mid"): words, (CORRECT, "top"): words}
    catalog.pend("feed", 1)
    due = [each for each in catalog.steps() if each.due]
    # mid cannot leave out what becomes of the results that it reads.
    assert told(due) == [("apply", "feed"), ("correct", "low"), ("correct", "mid"), ("correct", "top")]
    assert all(each.waits is None for each in catalog.steps(StepRequest(deferring=False)))


def test_revisions_that_wait_are_counted_with_applied_ones() -> None:
    catalog = there({"low": ["feed"]}, {"low": "queue >= 3"})
    catalog.pend("feed", 2)
    catalog.apply("feed", 20)
    assert [each.waits is None for each in catalog.steps(StepRequest(evaluates=False))] == [False]
    catalog.pend("feed", 1)
    # Also one of the last instant that was answered.
    assert [(each.kind, each.waits) for each in catalog.steps(StepRequest(evaluates=False))] == [
        (APPLY, None),
        (CORRECT, None),
    ]


def test_revisions_of_rows_that_have_not_come_are_due_for_nobody() -> None:
    catalog = there(CHAIN, {"low": "queue >= 2"})
    catalog.pend("feed", 2)
    catalog.settles = False
    assert not any(each.due for each in catalog.steps(StepRequest(probes=True)))
    catalog.settles = True
    assert all(each.due for each in catalog.steps(StepRequest(probes=True)))


def test_corrections_of_results_that_come_later_are_no_corrections() -> None:
    catalog = there()
    catalog.published["low"] = replace(
        catalog.published["low"], last=replace(catalog.published["low"].last, step=EvaluationSpan(LOWEST, 30))
    )
    catalog.correct("low")
    request = StepRequest(evaluates=False)
    assert told(catalog.steps(request)) == [("correct", "mid"), ("correct", "top")]
    catalog.reached = False
    assert catalog.steps(request) == []


def test_a_query_that_has_stopped_holds_those_that_read_it() -> None:
    catalog = there(CHAIN | {"aside": ["feed"]})
    catalog.bring("feed", 30)
    catalog.stop("low", 6)
    assert {each.name: each.held_by for each in catalog.steps()} == {
        "low": "low",
        "mid": "low",
        "top": "low",
        "aside": None,
    }
    assert StepList(catalog).of_query("low")[0].held_by == "low"
    assert not any(each.held_by for each in catalog.steps(StepRequest(retries_stopped=True)))
    # Revisions are to be applied, or have been: it is tried again, also by a sweep.
    catalog.pend("feed", 1)
    assert not any(each.held_by for each in catalog.steps())
    catalog.standings["feed"] = replace(catalog.standings["feed"], changed_in=7)
    assert StepList(catalog).may_resume("low")
    resumed = [each for each in catalog.steps(StepRequest(evaluates=False)) if each.kind is EVALUATE]
    assert [each.name for each in resumed] == ["low", "mid", "top"]


def test_a_query_with_nothing_to_do_holds_no_others() -> None:
    catalog = there()
    catalog.correct("low")
    catalog.stop("low", 6)
    catalog.settles = False
    for pending in (0, 1):  # revisions of rows that have not come change nothing
        catalog.pend("feed", pending)
        for request in (StepRequest(evaluates=False, probes=True), StepRequest(probes=True, busy=["low"])):
            found = catalog.steps(request)
            assert not any(each.held_by for each in found)
            assert [(each.kind, each.name) for each in found if each.due] == [(CORRECT, "mid"), (CORRECT, "top")]


def test_a_query_that_another_runner_works_on_is_passed_over() -> None:
    catalog = there()
    catalog.bring("feed", 30)
    found = catalog.steps(StepRequest(busy=["mid"]))
    assert [(each.name, each.held_by) for each in found] == [("low", None), ("mid", "mid"), ("top", "mid")]


def test_results_are_replaced_where_the_query_was_edited_and_in_those_that_read_them() -> None:
    catalog = there()
    edited = catalog.queries["low"]
    catalog.queries["low"] = replace(edited, query_id=99)
    catalog.pend("feed", 1)
    found = catalog.steps()
    assert told(found) == [("apply", "feed"), ("evaluate", "low"), ("evaluate", "mid"), ("evaluate", "top")]
    assert {each.why for each in found[1:]} == {"its results are replaced"}
    assert all(each.evaluation is None or each.evaluation.basis is None for each in found)


def test_anew_is_once() -> None:
    catalog = there({"low": ["feed"]})
    steps = StepList(catalog, StepRequest(["low"], anew=frozenset(["low"])))
    (step,) = steps.of_query("low")
    assert step.evaluation is not None
    assert step.evaluation.replaces == catalog.published["low"]
    catalog.published["low"] = replace(catalog.published["low"], stream_id=500)
    assert steps.of_query("low") == []


def test_a_query_that_begins_later_is_not_due_yet() -> None:
    catalog = there({})
    catalog.query("late", ["feed"], since="25")
    catalog.query("reader", ["late"])
    assert catalog.steps() == []
    catalog.bring("feed", 25)
    assert told(catalog.steps()) == [("evaluate", "late"), ("evaluate", "reader")]
    catalog.stream("other", None)
    catalog.query("both", ["feed", "other"])
    assert ("evaluate", "both") not in told(catalog.steps())


# Feeds that are queries.


def _fed() -> CatalogValues:
    """Two queries over one stream that feed a merged stream, and one over that."""
    view = CatalogValues()
    view.stream("feed")
    view.stream("both")
    feeds = MergedFeeds((Feed("old", query="plain"), Feed("new", query="edited")))
    view.standings["both"] = replace(
        view.standings["both"], stream=replace(view.standings["both"].stream, merged=feeds)
    )
    for name in ("plain", "edited"):
        view.query(name, ["feed"])
    view.query("over", ["both"])
    return view


def test_what_queries_feed_comes_after_them_and_before_what_is_over_it() -> None:
    view = _fed()
    found = [(each.kind, each.name, each.feed, each.after) for each in StepList(view, ALL).steps()]
    assert sorted(found[:2]) == [(EVALUATE, "edited", "", ()), (EVALUATE, "plain", "", ())]
    assert found[2:] == [
        (DELIVER, "both", "old", ("plain",)),
        (DELIVER, "both", "new", ("edited",)),
        (EVALUATE, "over", "", ()),
    ]


def test_results_are_delivered_until_their_last_evaluation_has_been() -> None:
    view = _fed()
    for name in view.queries:
        view.answer(name)
    view.fed = {("both", "old"): 5, ("both", "new"): 4}
    assert [(each.kind, each.feed, each.due) for each in StepList(view, ALL).steps()] == [(DELIVER, "new", True)]
    assert "edited has changed since commit 4" in StepList(view, ALL).steps()[0].why
    view.fed["both", "new"] = None
    assert StepList(view, ALL).steps() == [], "nothing is delivered to a feed that is detached"


def test_only_what_is_named_is_delivered() -> None:
    view = _fed()
    for name in view.queries:
        view.answer(name)
    assert [each.feed for each in StepList(view, StepRequest(["plain"])).steps()] == ["old"]
    assert StepList(view, StepRequest(evaluates=False)).steps() == [], "a sweep delivers nothing"


def test_a_query_that_gets_feedback_stays_behind_while_it_is_not_needed() -> None:
    view = _fed()
    for name in view.queries:
        view.answer(name)
    view.fed = {("both", "old"): 5, ("both", "new"): 5}
    view.bring("feed", 30)
    assert {each.name for each in StepList(view, ALL).steps() if each.kind is EVALUATE} == {"plain", "edited"}
    view.wanted = {"edited": 30}
    assert {each.name for each in StepList(view, ALL).steps() if each.kind is EVALUATE} == {"plain"}
    view.bring("feed", 31)
    assert {each.name for each in StepList(view, ALL).steps() if each.kind is EVALUATE} == {"plain", "edited"}
