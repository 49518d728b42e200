"""Every strategy gives the oracle's answer after every step, and by the route that it is meant to take."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from time import monotonic, sleep

import pytest

from errata.catalog import commits
from errata.errors import ErrataError
from errata.model.registered import AnswerRoute, RegisteredPlan, ResultStrategy
from errata.psoup import strategies
from errata.psoup.materialise import materialise
from errata.psoup.reader import RegisteredReader
from errata.psoup.register import register, registered_queries, set_strategy
from errata.psoup.segments import with_costs
from errata.psoup.selection import SourceWindow, youngest_rows
from errata.psoup.snapshot import StreamSnapshot
from fixtures.chance import seeds
from fixtures.registered.archives import History, is_refusal
from fixtures.registered.texts import random_now, random_text

NONE, PARTIAL, COMPLETE = ResultStrategy.NONE, ResultStrategy.PARTIAL, ResultStrategy.COMPLETE
ROUTES = {
    NONE: {AnswerRoute.SCAN},
    PARTIAL: {AnswerRoute.WINDOW, AnswerRoute.TREE},
    COMPLETE: {AnswerRoute.KEPT},
}
"""How an answer at the present time is come by."""
QUERIES = ((1, False), (1, False), (1, True), (1, True), (2, False), (2, False), (2, True), (3, False))
"""The sources of the queries that are tried, and whether they aggregate."""
STEPS = 9


class Course:
    """A history, and the same queries by every strategy, answered by readers that live through it."""

    def __init__(self, folder: Path, random: Random) -> None:
        self.random = random
        self.history = History.begin(folder, f"sqlite:///{folder}/errata.db", random)
        self.site = self.history.house.site
        self.readers = [RegisteredReader(self.site), RegisteredReader(self.site)]
        self.plans: dict[str, tuple[RegisteredPlan, ResultStrategy]] = {}
        self.routes: Counter[tuple[ResultStrategy, AnswerRoute]] = Counter()

    def register(self, sources: int, aggregates: bool) -> None:
        each = random_text(self.random, sources=sources, aggregates=aggregates)
        for strategy in ResultStrategy:
            try:
                (made,) = register(self.site, [each.text], owner="me", strategy=strategy)
            except ErrataError as error:
                assert "reaches back" in error.what  # noqa: PT017 - others may be raised
                return
            self.plans[made.handle] = each.plan, strategy

    def step(self) -> None:
        match self.random.choices(range(3), (79, 15, 6))[0]:
            case 0:
                self.history.step()
            case 1:
                materialise(self.site)
            case 2 if self.plans:
                handle, (plan, _) = self.random.choice(list(self.plans.items()))
                strategy = self.random.choice(list(ResultStrategy))
                set_strategy(self.site, handle, strategy)
                self.plans[handle] = plan, strategy
        self.history.note()

    def check_all(self) -> None:
        """Ask at the present, and at another time, which is not kept."""
        if self.random.random() < 0.5:
            self.readers[0].maintain()
        for handle, (plan, strategy) in self.plans.items():
            self.check(handle, plan, strategy, None)
            self.check(handle, plan, strategy, random_now(self.random, plan))

    def check(self, handle: str, plan: RegisteredPlan, strategy: ResultStrategy, at: int | None) -> None:
        moment = self.history.newest
        now = at if at is not None else moment.present(plan)
        try:
            # The second reader is asked now and then alone, and so has several commits to catch up with.
            found = self.readers[self.random.random() < 0.2].invoke(handle, at=at)
        except ErrataError as error:
            self.check_refused(error, refused=moment.refuses(plan, now))
            return
        assert not moment.refuses(plan, now)
        assert moment.is_answered_by(found.rows, plan, now), (handle, plan, at, found.route)
        assert found.route in (ROUTES[strategy] if at is None or strategy is NONE else ROUTES[PARTIAL])
        self.routes[strategy, found.route] += 1

    def check_refused(self, error: ErrataError, *, refused: bool) -> None:
        assert refused, str(error)
        assert is_refusal(error), str(error)


class Fixed:
    """A few rows of one stream, and a reader: for what a strategy keeps, and by which route it answers."""

    def __init__(self, folder: Path) -> None:
        self.history = History.begin(folder, f"sqlite:///{folder}/errata.db", Random(5), rows=190)
        self.site = self.history.house.site
        self.reader = RegisteredReader(self.site)
        self.history.arrive("ticks")
        self.history.note()

    def register(self, text: str, strategy: ResultStrategy) -> str:
        (made,) = register(self.site, [text], owner="me", strategy=strategy)
        return made.handle

    def route(self, handle: str, at: int | None = None, as_of: int | None = None) -> AnswerRoute:
        return self.reader.invoke(handle, at=at, as_of=as_of).route

    def held(self, handle: str) -> tuple[int, int]:
        """The rows and bytes that match segments hold for a query."""
        (query,) = with_costs(self.site, [each for each in registered_queries(self.site) if each.handle == handle])
        return query.cost.rows, query.cost.size


@pytest.fixture
def fixed(tmp_path: Path) -> Iterator[Fixed]:
    made = Fixed(tmp_path)
    yield made
    made.reader.close()
    made.site.catalog.close()


ROWS = "SELECT seq, sensor FROM ticks WHERE sensor >= -3 BEGIN (NOW - 100) END (NOW)"
SUM = "SELECT count(*) AS n, sum(sensor) AS total FROM ticks WHERE sensor >= -3 BEGIN (NOW - 100) END (NOW)"
PAIRS = "SELECT a.seq FROM ticks a, ticks b WHERE a.sensor = b.sensor BEGIN (NOW - 100) END (NOW)"


@pytest.mark.parametrize(
    ("text", "strategy", "present", "earlier"),
    [
        (ROWS, NONE, AnswerRoute.SCAN, AnswerRoute.SCAN),
        (SUM, NONE, AnswerRoute.SCAN, AnswerRoute.SCAN),
        (ROWS, PARTIAL, AnswerRoute.WINDOW, AnswerRoute.WINDOW),
        (SUM, PARTIAL, AnswerRoute.TREE, AnswerRoute.TREE),
        (PAIRS, PARTIAL, AnswerRoute.WINDOW, AnswerRoute.WINDOW),
        (ROWS, COMPLETE, AnswerRoute.KEPT, AnswerRoute.WINDOW),
        (SUM, COMPLETE, AnswerRoute.KEPT, AnswerRoute.TREE),
        (PAIRS, COMPLETE, AnswerRoute.KEPT, AnswerRoute.WINDOW),
    ],
)
def test_a_strategy_runs_by_its_route(
    fixed: Fixed, text: str, strategy: ResultStrategy, present: AnswerRoute, earlier: AnswerRoute
) -> None:
    handle = fixed.register(text, strategy)
    commit_id = commits.newest_commit(fixed.site.catalog)
    assert fixed.route(handle) is present
    assert fixed.route(handle, at=fixed.reader.invoke(handle).now - 1) is earlier
    fixed.history.arrive("ticks")
    assert fixed.route(handle) is present
    # The tree and the kept answer have been carried on, and do not go back.
    assert fixed.route(handle, as_of=commit_id) is (AnswerRoute.SCAN if strategy is NONE else AnswerRoute.WINDOW)


def test_the_kept_answer_is_handed_out_until_a_commit_comes(fixed: Fixed) -> None:
    handle = fixed.register(ROWS, COMPLETE)
    first = fixed.reader.invoke(handle)
    assert fixed.reader.invoke(handle).rows is first.rows
    fixed.history.revise("ticks")
    fixed.history.note()
    assert fixed.reader.maintain() == {}
    second = fixed.reader.invoke(handle)
    assert second.rows is not first.rows
    assert second.commit_id > first.commit_id


def test_complete_answers_are_carried_on_behind_the_back_of_who_asks(fixed: Fixed) -> None:
    handle = fixed.register(ROWS, COMPLETE)
    carried = fixed.reader._strategies._complete
    query = fixed.reader.query(handle)
    with fixed.reader.maintained(0.01):
        for _ in range(3):
            fixed.history.arrive("ticks")
            newest = commits.newest_commit(fixed.site.catalog)
            until = monotonic() + 20
            while carried.kept(query, newest) is None:
                assert monotonic() < until
                sleep(0.01)
    fixed.history.arrive("ticks")
    assert carried.kept(query, commits.newest_commit(fixed.site.catalog)) is None


def test_a_window_that_counts_rows_is_counted_once_for_each_commit(
    fixed: Fixed, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = []

    def counting(snapshot: StreamSnapshot, count: int, end: int) -> tuple[SourceWindow, bool]:
        counted.append(count)
        return youngest_rows(snapshot, count, end)

    monkeypatch.setattr(strategies, "youngest_rows", counting)
    handles = [
        fixed.register(f"SELECT {item} FROM ticks BEGIN (NOW - 2 ROWS) END (NOW)", PARTIAL) for item in ("*", "seq")
    ]
    for _ in range(3):
        assert [fixed.reader.invoke(each).rows.num_rows for each in handles] == [2, 2]
    assert counted == [2]
    fixed.history.arrive("ticks")
    assert fixed.reader.invoke(handles[0]).rows.num_rows == 2
    assert counted == [2, 2]


def test_none_keeps_nothing_and_changing_the_strategy_matches_again(fixed: Fixed) -> None:
    handle = fixed.register(ROWS, NONE)
    other = fixed.register(ROWS.replace("-3", "-2"), PARTIAL)
    materialise(fixed.site)
    answer = fixed.reader.invoke(handle).rows
    assert fixed.held(handle)[0] == 0
    assert fixed.held(other)[0] > 0
    set_strategy(fixed.site, handle, PARTIAL)
    assert fixed.reader.invoke(handle).rows.equals(answer)  # before it has been matched
    materialise(fixed.site)
    assert fixed.held(handle)[0] == answer.num_rows
    assert fixed.held(other)[0] > 0
    assert fixed.reader.invoke(handle).rows.equals(answer)
    assert fixed.route(handle) is AnswerRoute.WINDOW


def test_a_condition_that_another_query_keeps_is_matched_again_for_it(fixed: Fixed) -> None:
    handle = fixed.register(ROWS, NONE)
    materialise(fixed.site)
    twin = fixed.register(ROWS.replace("NOW - 100", "NOW - 50"), COMPLETE)
    materialise(fixed.site)
    assert fixed.held(twin)[0] > 0
    assert fixed.reader.invoke(handle).rows.num_rows == fixed.held(twin)[0]
    set_strategy(fixed.site, twin, NONE)
    fixed.history.arrive("ticks")
    materialise(fixed.site)
    set_strategy(fixed.site, handle, PARTIAL)
    materialise(fixed.site)
    assert fixed.reader.invoke(handle, at=0).route is AnswerRoute.WINDOW
    assert fixed.held(handle)[0] > 0


def test_the_strategy_of_a_query_that_is_not_there_cannot_be_changed(fixed: Fixed) -> None:
    handle = fixed.register(ROWS, NONE)
    with pytest.raises(ErrataError, match="no query has handle"):
        set_strategy(fixed.site, "a" * 16, PARTIAL)
    with pytest.raises(ErrataError, match=handle):
        set_strategy(fixed.site, handle, PARTIAL, owner="somebody else")


@pytest.mark.parametrize("seed", seeds(__name__, 2))
def test_each_strategy_answers_as_the_oracle_does_after_every_step(tmp_path: Path, seed: int) -> None:
    course = Course(tmp_path, Random(seed))
    course.history.start()
    for each in QUERIES:
        course.register(*each)
    for _ in range(STEPS):
        course.step()
        course.check_all()
    for strategy in {strategy for _, strategy in course.plans.values()}:
        assert sum(count for (owner, _), count in course.routes.items() if owner is strategy) > STEPS
    for reader in course.readers:
        reader.close()
    course.site.catalog.close()
