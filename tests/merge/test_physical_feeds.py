"""Physical streams of one table of events are merged to it. After every batch the output is compatible with the inputs
(C1 to C3), keeps its own promises, and is what the oracle says; at the end it is equivalent; and it is no longer than
its inputs (theorem 1)."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from math import inf

import pytest

from errata.merge.elements import OPEN
from errata.merge.progress import FeedStanding, attach, detach
from errata.model.feed import EmitPolicy, MergeAlgorithm, MergePolicy
from errata.model.time import LOWEST
from fixtures.chance import seeds
from fixtures.merges import COPIES, FEED_NAMES, MergedStream, Standings, merged_stream, outcome_of, stream_of
from fixtures.oracle.merging import MergeOracle, MultisetOracle, Said
from fixtures.oracle.temporal import (
    Adjust,
    Element,
    Event,
    Insert,
    Prefix,
    Stable,
    broken_promises,
    incompatible,
    last_stable,
    tdb,
)
from fixtures.physical_feeds import CLOSED, FeedFaults, physical_feed, said_by, some_table

CASES = 500
EVENTS = stream_of(symbol="string", at="bigint", until="bigint")


@dataclass
class Arriving:
    """A feed of which a part has come."""

    elements: list[Element]
    come: int = 0
    mark: int = LOWEST
    attached: bool = True

    def next(self, chance: random.Random, feed: int) -> list[Said]:
        """Some more of it."""
        count = chance.choice((0, 1, 3, 8, 20))
        part = self.elements[self.come : self.come + count]
        self.come += len(part)
        said, self.mark = said_by(feed, part, self.mark)
        return said

    @property
    def prefix(self) -> Prefix:
        so_far = self.elements[: self.come]
        return Prefix(tdb(so_far), last_stable(so_far))


@dataclass
class Case:
    """A table of events, feeds of it, and what came of them so far."""

    chance: random.Random
    table: dict[Event, float]
    policy: MergePolicy
    feeds: list[Arriving]
    output: list[Element] = field(default_factory=list)
    received: list[Said] = field(default_factory=list)

    def __post_init__(self) -> None:
        stream = merged_stream(EVENTS, len(FEED_NAMES), self.policy)
        self.product, self.oracle = MergedStream(stream, MergeAlgorithm.R3), MergeOracle(stream)
        names = list(FEED_NAMES)
        standings = [
            FeedStanding(name, complete=True, attached=number < len(self.feeds)) for number, name in enumerate(names)
        ]
        self.standings = Standings(standings, self.policy.quorum)

    def take_batch(self, *, all_of_it: bool = False) -> None:
        said: list[Said] = []
        for number, feed in enumerate(self.feeds):
            if feed.attached:
                said += feed.next(self.chance, number)
                while all_of_it and feed.come < len(feed.elements):
                    said += feed.next(self.chance, number)
        before = self.standings.stable
        progress = self.standings.advance({number: feed.mark for number, feed in enumerate(self.feeds)})
        expected = self.oracle.merge(said, progress)
        step = self.product.merge(said, progress)
        found = outcome_of(self.product.stream, step)
        self.received += said
        words = f"stable {before} to {progress.stable}: {said}"
        assert (found.inserts, found.replaced, found.deleted) == (
            expected.inserts,
            expected.replaced,
            expected.deleted,
        ), words
        assert found.refused == [], words
        assert found.disagreements == {}, words
        out: list[Element] = [Insert(symbol, at, _end(row.end)) for (symbol, at), row in found.inserts.items()]
        out += [Adjust(symbol, at, _end(row.end)) for (symbol, at), row in found.replaced.items()]
        out += [Adjust(symbol, at, at) for symbol, at in found.deleted]
        self.output += out
        if progress.stable > before:
            self.output.append(Stable(progress.stable))
        assert tdb(self.output) == {key: _end(row.end) for key, row in self.product.rows().items()}, words
        assert broken_promises(self.output) == [], words
        output = Prefix(tdb(self.output), last_stable(self.output))
        assert incompatible(output, [feed.prefix for feed in self.feeds]) == [], words
        assert step.counts.filled == {}

    def changed_feeds(self) -> None:
        """Feeds come and go; at least one that says everything stays."""
        if len(self.feeds) < len(FEED_NAMES) and self.chance.random() < 0.15:
            stable = self.standings.stable
            starts_at = self.chance.choice((LOWEST, LOWEST, max(stable, 0) + self.chance.randrange(4)))
            number = len(self.feeds)
            standing = attach(self.standings.feeds[number], merged_stable=stable, starts_at=starts_at)
            self.standings.feeds[number] = standing
            faults = some_faults(self.chance)
            begins = -inf if standing.joins_at == LOWEST else standing.joins_at
            self.feeds.append(Arriving(physical_feed(self.chance, self.table.items(), faults, begins)))
        if len(self.feeds) > 1 and self.chance.random() < 0.05:
            number = self.chance.randrange(1, len(self.feeds))
            self.feeds[number].attached = False
            self.standings.feeds[number] = detach(self.standings.feeds[number])


def _end(end: int) -> float:
    return inf if end == OPEN else end


def some_faults(chance: random.Random) -> FeedFaults:
    return FeedFaults(
        disorder=chance.choice((0, 2, 6)),
        revised=chance.choice((0.0, 0.3, 1.0)),
        wrong=chance.choice((0, 0, 2)),
        repeated=chance.choice((0.0, 0.2)),
        stable=chance.choice((0.1, 0.5)),
    )


def run_case(seed: int) -> Case:
    chance = random.Random(seed)
    table = some_table(chance, chance.randrange(1, 12))
    count = chance.randrange(1, 4)
    policy = MergePolicy(emit=chance.choice(list(EmitPolicy)), quorum=chance.choice((1, 1, min(2, count))))
    feeds = [Arriving(physical_feed(chance, table.items(), some_faults(chance))) for _ in range(count)]
    case = Case(chance, table, policy, feeds)
    for _ in range(chance.randrange(8)):
        case.take_batch()
        case.changed_feeds()
    for _ in range(2):  # a feed that joins only now leads only in the batch after
        case.take_batch(all_of_it=True)
    return case


def check_equivalent(case: Case) -> None:
    """At the end the output is the table, and not longer than what has come."""
    joined = [each for each in case.standings.feeds if each.attached and each.has_joined(case.standings.stable)]
    if len(joined) >= case.policy.quorum:
        assert case.standings.stable == CLOSED
        assert tdb(case.output) == case.table
    assert case.product.state is not None
    unfrozen = {event for event, end in case.table.items() if end == inf}
    if case.standings.stable == CLOSED:
        assert case.product.state.rows.num_rows == len(unfrozen)
    if case.policy.emit is EmitPolicy.FIRST:
        inserts = sum(isinstance(each, Insert) for each in case.output)
        adjusts = sum(isinstance(each, Adjust) for each in case.output)
        stables = sum(isinstance(each, Stable) for each in case.output)
        assert inserts <= sum(each.kind == 0 for each in case.received)
        assert inserts + adjusts <= len(case.received)
        assert stables <= sum(isinstance(each, Stable) for feed in case.feeds for each in feed.elements)


@pytest.mark.parametrize("cases", [CASES, pytest.param(10 * CASES, marks=pytest.mark.long)])
def test_physical_streams_are_merged_to_their_table(cases: int) -> None:
    for seed in seeds(f"physical {cases}", cases):
        try:
            check_equivalent(run_case(seed))
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error


# Rows that repeat.


def run_copies(seed: int) -> None:
    """Events that are there several times, R4: with the leader's stable point, the output has its fully frozen events,
    and as many half frozen ones of each start (section III-D, the end)."""
    chance = random.Random(seed)
    events = [
        each for each in some_table(chance, chance.randrange(1, 7), 8).items() for _ in range(chance.randrange(1, 3))
    ]
    events = [(event, chance.choice((end, end, event[1] + chance.randrange(1, 12)))) for event, end in events]
    count = chance.randrange(1, 4)
    emit = chance.choice([each for each in EmitPolicy if each is not EmitPolicy.EVERY])
    stream = merged_stream(COPIES, len(FEED_NAMES), MergePolicy(emit=emit))
    product, oracle = MergedStream(stream, MergeAlgorithm.R4), MultisetOracle(stream)
    faults = [replace(some_faults(chance), repeated=0.0) for _ in range(count)]
    feeds = [Arriving(physical_feed(chance, events, each)) for each in faults]
    standings = Standings(
        [FeedStanding(name, complete=True, attached=number < count) for number, name in enumerate(FEED_NAMES)]
    )
    batches = chance.randrange(6)
    for batch in range(batches + 1):
        said: list[Said] = []
        for number, feed in enumerate(feeds):
            said += feed.next(chance, number)
            while batch == batches and feed.come < len(feed.elements):
                said += feed.next(chance, number)
        progress = standings.advance({number: feed.mark for number, feed in enumerate(feeds)})
        expected = oracle.merge(said, progress)
        found = outcome_of(stream, product.merge(said, progress))
        assert (found.inserts, found.replaced, found.deleted, found.refused) == (
            expected.inserts,
            expected.replaced,
            expected.deleted,
            [],
        ), said
        if progress.leader is not None and progress.stable > LOWEST:
            said_by_leader = _ends_said(feeds[progress.leader].elements[: feeds[progress.leader].come])
            assert _frozen(_ends_of(product), progress.stable) == _frozen(said_by_leader, progress.stable), said
    whole: dict[Event, list[float]] = {}
    for event, end in events:
        whole.setdefault(event, []).append(end)
    assert _ends_of(product) == {event: sorted(ends) for event, ends in whole.items()}


def _ends_of(product: MergedStream) -> dict[Event, list[float]]:
    """The ends of each event, as they are published."""
    ends: dict[Event, list[float]] = {}
    for (symbol, at, _), row in product.rows().items():
        ends.setdefault((symbol, at), []).append(_end(row.end))
    return {event: sorted(each) for event, each in ends.items()}


def _ends_said(elements: list[Element]) -> dict[Event, list[float]]:
    """The ends of each event, as a feed says."""
    ends: dict[Event, list[float]] = {}
    for element in elements:
        if isinstance(element, Stable):
            continue
        mine = ends.setdefault((element.payload, element.start), [])
        if isinstance(element, Adjust):
            assert element.old is not None
            mine.remove(element.old)
        if element.end != element.start:
            mine.append(element.end)
    return ends


def _frozen(ends: dict[Event, list[float]], stable: int) -> dict[Event, tuple[list[float], int]]:
    """Of each event the fully frozen ends, and how many half frozen ones there are."""
    return {
        event: (sorted(end for end in mine if end < stable), sum(end >= stable for end in mine))
        for event, mine in ends.items()
        if event[1] < stable and mine
    }


@pytest.mark.parametrize("cases", [CASES, pytest.param(10 * CASES, marks=pytest.mark.long)])
def test_rows_that_repeat_are_merged_to_their_table(cases: int) -> None:
    for seed in seeds(f"copies {cases}", cases):
        try:
            run_copies(seed)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
