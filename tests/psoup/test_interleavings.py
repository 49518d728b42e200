"""Any interleaving of registrations, arrivals, corrections, upkeep, matching and invocations gives what the oracle
gives, at any time and as of any commit: what has been matched beforehand, and when, never shows."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from errata.errors import ErrataError, UsageError
from errata.model.registered import RegisteredPlan, ResultStrategy
from errata.psoup.materialise import materialise
from errata.psoup.reader import RegisteredReader
from errata.psoup.register import register, unregister
from fixtures.chance import seeds
from fixtures.postgres import FreshDatabase
from fixtures.registered.archives import DECLARED, History, is_refusal, reaches_too_far
from fixtures.registered.texts import random_now, random_text

STEPS = 30


class Interleaving:
    """A history, queries over it that come and go, and a reader that lives through it."""

    def __init__(self, history: History, random: Random) -> None:
        self.history, self.random = history, random
        self.site = history.house.site
        self.reader = RegisteredReader(self.site)
        self.queries: dict[str, RegisteredPlan] = {}
        self.gone: list[str] = []
        self.answers = 0

    def step(self) -> None:
        match self.random.choices(range(5), (38, 20, 5, 12, 25))[0]:
            case 0:
                self.history.step()
            case 1:
                self.register()
            case 2:
                self.unregister()
            case 3:
                materialise(self.site, self.random.choice([(), (self.random.choice(list(DECLARED)),)]))
            case 4:
                self.invoke()
        self.history.note()

    def register(self) -> None:
        texts = [random_text(self.random, sources=self.random.choice((None, 1, 2))) for _ in range(3)]
        texts.append(self.random.choice(texts))
        for each in texts:
            strategy = self.random.choice(list(ResultStrategy))
            if reaches_too_far(each.plan):
                with pytest.raises(UsageError, match="reaches back"):
                    register(self.site, [each.text], owner="me", strategy=strategy)
                continue
            (made,) = register(self.site, [each.text], owner="me", strategy=strategy)
            assert repr(made.plan) == repr(each.plan)  # NaN is not itself
            self.queries[made.handle] = each.plan
            if self.random.random() < 0.3:
                materialise(self.site)  # between two registrations: each has segments of its own

    def unregister(self) -> None:
        if self.queries:
            handle = self.random.choice(list(self.queries))
            unregister(self.site, handle)
            del self.queries[handle]
            self.gone.append(handle)

    def invoke(self) -> None:
        if self.random.random() < 0.5:
            self.reader = RegisteredReader(self.site)  # one that has to look everything up
        for handle, plan in self.queries.items():
            self.check(handle, plan)
        for handle in self.gone:
            with pytest.raises(ErrataError, match="was unregistered"):
                self.reader.invoke(handle)

    def check(self, handle: str, plan: RegisteredPlan) -> None:
        commit = self.random.choice([None, None, *self.history.at])
        moment = self.history.at[self.history.commit if commit is None else commit]
        at = self.random.choice([None, random_now(self.random, plan)])
        now = at if at is not None else moment.present(plan)
        if moment.refuses(plan, now):
            with pytest.raises(ErrataError) as refusal:
                self.reader.invoke(handle, at=at, as_of=commit)
            assert is_refusal(refusal.value)
            return
        found = self.reader.invoke(handle, at=at, as_of=commit)
        assert found.now == now
        assert moment.is_answered_by(found.rows, plan, now), (handle, plan, at, commit)
        self.answers += 1


@pytest.mark.parametrize("seed", seeds(__name__, 2))
def test_any_interleaving_answers_as_the_oracle_does(tmp_path: Path, seed: int) -> None:
    check_interleaving(tmp_path, f"sqlite:///{tmp_path}/errata.db", Random(seed))


@pytest.mark.long
@pytest.mark.parametrize("seed", seeds(f"{__name__} at length", 60))
def test_interleavings_at_length(tmp_path: Path, seed: int) -> None:
    check_interleaving(tmp_path, f"sqlite:///{tmp_path}/errata.db", Random(seed))


def test_an_interleaving_on_postgresql(tmp_path: Path, fresh_database: FreshDatabase, chance: Random) -> None:
    check_interleaving(tmp_path, fresh_database("postgresql"), chance, steps=12)


def check_interleaving(folder: Path, catalog_url: str, random: Random, steps: int = STEPS) -> None:
    history = History.begin(folder, catalog_url, random)
    history.note()
    course = Interleaving(history, random)
    history.start()
    course.register()
    for _ in range(steps):
        course.step()
    course.register()
    course.invoke()
    assert course.answers > steps // 5
    course.reader.close()
    history.house.site.catalog.close()
