"""R0, R1 and R2: ordered feeds that only insert give what the oracle of R3 gives; a guarantee that is broken is found,
named with its element, and nothing is lost: the same batch goes through the next algorithm."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from errata.merge.elements import ElementKind
from errata.merge.progress import FeedStanding
from errata.merge.step import BrokenGuarantee, MergeStep
from errata.model.feed import FeedOrder, FeedProperties, MergeAlgorithm
from errata.model.time import LOWEST
from fixtures.chance import seeds
from fixtures.merges import FEED_NAMES, MergedStream, Standings, merged_stream, outcome_of, stream_of
from fixtures.oracle.merging import MergeOracle, Said

CASES = 500
ROWS = stream_of(symbol="string", at="bigint", price="double", until="bigint")
GUARANTEES = {
    MergeAlgorithm.R0: FeedProperties(FeedOrder.STRICT, ties_fixed=True, adjusts=False, complete=True),
    MergeAlgorithm.R1: FeedProperties(FeedOrder.ORDERED, ties_fixed=True, adjusts=False, complete=True),
    MergeAlgorithm.R2: FeedProperties(FeedOrder.ORDERED, ties_fixed=False, adjusts=False, complete=True),
}
SORTED = list(GUARANTEES)


@dataclass(frozen=True)
class Rows:
    """A row as all feeds have it."""

    symbol: str
    at: int
    price: float | None = 1.0
    until: int | None = None

    def said(self, feed: int, pos: int, mark: int, kind: ElementKind = ElementKind.INSERT) -> Said:
        values = {"symbol": self.symbol, "at": self.at, "price": self.price, "until": self.until}
        return Said(feed, kind, values, own_stable=mark, pos=pos)


def some_rows(chance: random.Random, algorithm: MergeAlgorithm) -> list[Rows]:
    """Rows by order field, ties by symbol."""
    places = [(at, symbol) for at in range(16) for symbol in "ABCD" if chance.random() < 0.3]
    if algorithm is MergeAlgorithm.R0:
        places = list({at: (at, symbol) for at, symbol in places}.values())
    prices = (1.0, 2.0, None, float("nan"))
    return [
        Rows(symbol, at, chance.choice(prices), chance.choice((None, at + chance.randrange(1, 9))))
        for at, symbol in places
    ]


class Case:
    """Feeds with the same rows, merged by an algorithm and by the oracle."""

    def __init__(self, algorithm: MergeAlgorithm, feeds: Sequence[Sequence[Said]], marked: bool) -> None:
        stream = merged_stream(ROWS, len(feeds), properties=GUARANTEES[algorithm])
        self.product, self.oracle = MergedStream(stream, algorithm), MergeOracle(stream)
        self.standings = Standings([FeedStanding(name, complete=True) for name in FEED_NAMES[: len(feeds)]])
        self.feeds = feeds
        self.come = [0] * len(feeds)
        self.marked = marked
        self.broken: list[BrokenGuarantee] = []

    def take(self, counts: Sequence[int]) -> MergeStep:
        """Take so many elements of each feed."""
        said, stables = [], {}
        for feed, count in enumerate(counts):
            part = self.feeds[feed][self.come[feed] : self.come[feed] + count]
            self.come[feed] += len(part)
            said += part
            if part and not self.marked:
                stables[feed] = max(each.values["at"] for each in part)
            elif part:
                stables[feed] = max(each.own_stable for each in part)
        progress = self.standings.advance(stables)
        expected = self.oracle.merge(said, progress)
        step = self.product.merge(said, progress)
        self.broken += step.broken
        found = outcome_of(self.product.stream, step)
        words = f"{step.algorithm} {step.broken} {said}"
        assert (found.inserts, found.replaced, found.deleted, found.refused) == (
            expected.inserts,
            expected.replaced,
            expected.deleted,
            expected.refused,
        ), words
        assert set(found.disagreements) == set(expected.disagreements), words
        emitted = len(found.inserts)
        if step.algorithm in SORTED:
            assert sum(step.counts.repeats.values()) == len(said) - emitted, words
        return step


def said_in_order(
    chance: random.Random, rows: Sequence[Rows], feed: int, algorithm: MergeAlgorithm, *, marked: bool
) -> list[Said]:
    """What a feed says that keeps its guarantees."""
    ties = {row: chance.random() if algorithm is MergeAlgorithm.R2 else 0.0 for row in rows}
    said, mark = [], LOWEST
    for pos, row in enumerate(sorted(rows, key=lambda each: (each.at, ties[each], each.symbol))):
        if marked and chance.random() < 0.3:
            mark = max(mark, row.at - chance.randrange(3))
        said.append(row.said(feed, (feed << 40) | pos, mark))
    return said


@pytest.mark.parametrize("algorithm", SORTED)
def test_feeds_that_keep_their_guarantees_are_merged_as_by_the_oracle(algorithm: MergeAlgorithm) -> None:
    for seed in seeds(f"ordered {algorithm}", CASES):
        chance = random.Random(seed)
        rows = some_rows(chance, algorithm)
        marked = chance.random() < 0.5
        count = chance.randrange(1, 4)
        case = Case(
            algorithm,
            [said_in_order(chance, rows, feed, algorithm, marked=marked) for feed in range(count)],
            marked,
        )
        try:
            for _ in range(chance.randrange(6)):
                case.take([chance.choice((0, 0, 1, 2, 5, 12)) for _ in range(count)])
            case.take([len(rows)] * count)
            assert not case.broken, case.broken
            assert case.product.algorithm is algorithm
            assert {key[1] for key in case.product.rows()} == {row.at for row in rows}
            assert len(case.product.rows()) == len(rows)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
