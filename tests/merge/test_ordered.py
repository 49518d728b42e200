"""R0, R1 and R2: ordered feeds that only insert give what the oracle of R3 gives; a guarantee that is broken is found,
named with its element, and nothing is lost: the same batch goes through the next algorithm."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

import pytest

from errata.merge.elements import ElementKind
from errata.merge.merging import without_broken
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
        self.behind: list[tuple[str, int]] = []
        """Rows about which the archive has to decide."""

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
        step = self.product.merge(said, progress)
        self.broken += step.broken
        progress = without_broken(progress, step.broken)
        self.standings.feeds = [
            replace(each, complete=after.complete)
            for each, after in zip(self.standings.feeds, progress.feeds, strict=True)
        ]
        expected = self.oracle.merge(said, progress)
        found = outcome_of(self.product.stream, step)
        self.behind += [(row["symbol"], row["at"]) for row in step.behind.to_pylist()]
        words = f"{step.algorithm} {step.broken} {said}"
        assert (found.inserts, found.replaced, found.deleted, found.refused, found.behind) == (
            expected.inserts,
            expected.replaced,
            expected.deleted,
            expected.refused,
            sorted(expected.behind),
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


@pytest.mark.parametrize("cases", [CASES, pytest.param(10 * CASES, marks=pytest.mark.long)])
@pytest.mark.parametrize("algorithm", SORTED)
def test_feeds_that_keep_their_guarantees_are_merged_as_by_the_oracle(algorithm: MergeAlgorithm, cases: int) -> None:
    for seed in seeds(f"ordered {algorithm} {cases}", cases):
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


# Broken guarantees.


def break_feed(chance: random.Random, said: list[Said], breaks: str) -> list[Said]:
    """A feed whose elements break what it guarantees, by one element or two neighbours."""
    steps = [at for at in range(len(said) - 1) if said[at].values["at"] < said[at + 1].values["at"]]
    at = chance.choice(steps)
    one, other = said[at], said[at + 1]
    match breaks:
        case "order":
            return [*said[:at], other, one, *said[at + 2 :]]
        case "adjusts":
            values = {**one.values, "until": one.values["at"] + chance.randrange(1, 9)}
            adjust = Said(one.feed, ElementKind.ADJUST, values, own_stable=one.own_stable, pos=one.pos + 1000)
            return [*said[: at + 1], adjust, *said[at + 1 :]]
        case "gap":
            return [*said[:at], *said[at + 1 :]]
        case "tie":
            values = {**one.values, "symbol": "Z"}
            return [
                *said[: at + 1],
                Said(one.feed, one.kind, values, None, None, one.own_stable, one.pos + 1000),
                *said[at + 1 :],
            ]
        case _:
            return [*said[: at + 1], one, *said[at + 1 :]]


@pytest.mark.parametrize("algorithm", SORTED)
@pytest.mark.parametrize("breaks", ["order", "adjusts", "gap", "tie", "repeat"])
def test_nothing_is_lost_when_a_guarantee_is_broken(algorithm: MergeAlgorithm, breaks: str) -> None:
    found = 0
    for seed in seeds(f"broken {algorithm} {breaks}", 30):
        chance = random.Random(seed)
        rows = [*some_rows(chance, algorithm), Rows("X", 16), Rows("X", 17)]
        feeds = [said_in_order(chance, rows, feed, algorithm, marked=False) for feed in range(2)]
        feeds[1] = break_feed(chance, feeds[1], breaks)
        case = Case(algorithm, feeds, marked=False)
        try:
            # That a row comes again, or in one feed alone, is seen where feeds meet in one batch: rows are forgotten.
            for _ in range(chance.randrange(4) if breaks in ("order", "adjusts") else 0):
                # The broken feed is first to come, so that what it breaks is not behind the stable point already.
                case.take([0, chance.choice((1, 2, 5, 12))])
            case.take([len(rows) + 1] * 2)
            case.take([len(rows) + 1] * 2)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
        found += bool(case.broken)
        assert {*case.product.rows(), *case.behind} >= {(row.symbol, row.at) for row in rows}
        assert bool(case.broken) == (case.product.algorithm is not algorithm)
        for each in case.broken:
            assert each.what
    assert found


EIGHT = [Rows("A", at) for at in range(1, 9)]


def said_by(feed: int, rows: Sequence[Rows]) -> list[Said]:
    return [row.said(feed, (feed << 40) | pos, LOWEST) for pos, row in enumerate(rows)]


@pytest.mark.parametrize(
    ("algorithm", "second", "guarantee", "what", "after"),
    [
        ("R0", [EIGHT[0], EIGHT[2], EIGHT[1]], "order: strict", "at 2 after at 3", "R3"),
        ("R0", [EIGHT[0], EIGHT[1], Rows("B", 2)], "order: strict", "at 2 twice", "R3"),
        ("R0", [EIGHT[0], EIGHT[2]], "complete: yes", "it lacks at 2, which feed nyse has, and has come to at 3", "R3"),
        ("R0", [EIGHT[0], Rows("A", 2, 5.0)], "the same rows", "feed nyse has another row with at 2", "R3"),
        ("R1", [Rows("A", 1), Rows("A", 1)], "one row for each key", "a key with at 1 twice", "R3"),
    ],
)
def test_what_is_broken_is_named_with_its_element(
    algorithm: str, second: list[Rows], guarantee: str, what: str, after: str
) -> None:
    case = Case(MergeAlgorithm(algorithm), [said_by(0, EIGHT), said_by(1, second)], marked=False)
    step = case.take([8, 8])
    assert [(each.feed, each.guarantee, each.what) for each in step.broken][:1] == [(1, guarantee, what)]
    assert step.algorithm == after
    assert step.broken[0].pos in {each.pos for feed in case.feeds for each in feed}


def test_a_tie_of_a_strict_feed_is_merged_by_rows() -> None:
    """Nothing is known about the order of ties that should not be there."""
    rows = [EIGHT[0], EIGHT[1], Rows("B", 2)]
    case = Case(MergeAlgorithm.R0, [said_by(0, EIGHT[:1]), said_by(1, rows)], marked=False)
    step = case.take([1, 3])
    assert [each.what for each in step.broken] == ["at 2 twice"]
    assert step.algorithm is MergeAlgorithm.R2


def test_what_follows_from_a_plan_is_checked_and_weakened_like_what_is_declared() -> None:
    case = Case(
        MergeAlgorithm.R0, [said_by(0, EIGHT[:1]), said_by(1, [EIGHT[0], EIGHT[1], Rows("B", 2)])], marked=False
    )
    stream = case.product.stream
    feeds = [replace(each, properties=FeedProperties(), derived=each.properties) for each in stream.merged.feeds]
    case.product.stream = replace(stream, merged=replace(stream.merged, feeds=tuple(feeds)))
    step = case.take([1, 3])
    assert [(each.guarantee, each.what) for each in step.broken] == [("order: strict", "at 2 twice")]
    assert step.broken[0].left == GUARANTEES[MergeAlgorithm.R2]
    assert step.algorithm is MergeAlgorithm.R2


def test_ties_in_another_order_are_merged_by_rows_instead_of_counts() -> None:
    ties = [Rows(symbol, 3) for symbol in "ABC"]
    feeds = [said_by(0, [EIGHT[0], *ties]), said_by(1, [EIGHT[0], *reversed(ties), Rows("A", 4)])]
    case = Case(MergeAlgorithm.R1, feeds, marked=False)
    step = case.take([4, 5])
    assert [(each.guarantee, each.what) for each in step.broken] == [
        ("ties: fixed", "other ties with at 3 than feed nyse")
    ]
    assert step.algorithm is MergeAlgorithm.R2
    assert step.inserts.num_rows == 5


def test_a_feed_that_does_not_lead_is_not_followed_blindly() -> None:
    case = Case(MergeAlgorithm.R0, [said_by(0, EIGHT[:4]), said_by(1, EIGHT)], marked=False)
    case.standings.feeds[1] = replace(case.standings.feeds[1], suspect=True)
    step = case.take([4, 8])
    assert [each.what for each in step.broken] == ["it sends rows, and does not lead"]
    assert step.algorithm is MergeAlgorithm.R3


def test_cheap_algorithms_remember_no_rows_but_those_of_the_last_instant() -> None:
    ties = [Rows(symbol, at) for at in range(50) for symbol in "ABC"]
    for algorithm, kept in ((MergeAlgorithm.R0, 0), (MergeAlgorithm.R1, 0), (MergeAlgorithm.R2, 3)):
        rows = [row for row in ties if algorithm is not MergeAlgorithm.R0 or row.symbol == "A"]
        case = Case(algorithm, [said_by(0, rows), said_by(1, rows)], marked=False)
        for _ in range(3):
            case.take([len(rows) // 3] * 2)
        assert not case.broken
        assert case.product.state is not None
        assert case.product.state.rows.num_rows == kept
        assert len(case.product.archive) == len(rows) // 3 * 3
