"""Every strategy gives the oracle's answer after every step, and by the route that it is meant to take."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random

import pytest

from errata.errors import ErrataError
from errata.model.registered import AnswerRoute, RegisteredPlan, ResultStrategy
from errata.psoup.materialise import materialise
from errata.psoup.reader import RegisteredReader
from errata.psoup.register import register
from fixtures.chance import seeds
from fixtures.registered.archives import DECLARED, History, answer_tuples, is_refusal
from fixtures.registered.oracle import same_answers
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
STEPS = 14


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
        name = self.random.choice(list(DECLARED))
        match self.random.choices(range(5), (40, 25, 8, 6, 15))[0]:
            case 0:
                self.history.arrive(name)
            case 1:
                self.history.revise(name)
            case 2:
                self.history.compact(name)
            case 3:
                self.history.age(name)
            case 4:
                materialise(self.site)
        self.history.note()

    def check_all(self) -> None:
        """Ask at the present, and at another time, which is not kept."""
        if self.random.random() < 0.5:
            self.readers[0].maintain()
        for handle, (plan, strategy) in self.plans.items():
            self.check(handle, plan, strategy, None)
            self.check(handle, plan, strategy, random_now(self.random, plan))

    def check(self, handle: str, plan: RegisteredPlan, strategy: ResultStrategy, at: int | None) -> None:
        moment = self.history.at[self.history.commit]
        stable = [moment.stable[source.stream] for source in plan.sources]
        now = at if at is not None else min((each for each in stable if each is not None), default=0)
        try:
            # The second reader is asked now and then alone, and so has several commits to catch up with.
            found = self.readers[self.random.random() < 0.2].invoke(handle, at=at)
        except ErrataError as error:
            self.check_refused(error, refused=moment.refuses(plan, now))
            return
        assert not moment.refuses(plan, now)
        assert same_answers(answer_tuples(found.rows), moment.answer(plan, now)), (handle, plan, at, found.route)
        assert found.route in (ROUTES[strategy] if at is None or strategy is NONE else ROUTES[PARTIAL])
        self.routes[strategy, found.route] += 1

    def check_refused(self, error: ErrataError, *, refused: bool) -> None:
        assert refused, str(error)
        assert is_refusal(error), str(error)


@pytest.mark.parametrize("seed", seeds(__name__, 3))
def test_each_strategy_answers_as_the_oracle_does_after_every_step(tmp_path: Path, seed: int) -> None:
    course = Course(tmp_path, Random(seed))
    for name in DECLARED:
        course.history.arrive(name)
    course.history.note()
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
