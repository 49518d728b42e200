"""Merges of anything that feeds may say, and may not, are what the oracle says: after every batch the same rows,
corrections, refused elements and disagreements, whether the keys are merged in one piece or in parts."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from errata.merge.elements import ElementKind
from errata.merge.progress import FeedStanding, attach, detach
from errata.model.feed import DisagreementPolicy, EmitPolicy, MergeAlgorithm, MergePolicy
from errata.model.stream import Stream
from errata.model.time import LOWEST
from fixtures.chance import seeds
from fixtures.merges import (
    COPIES,
    FEED_NAMES,
    ORDERS,
    POINTS,
    SPANS,
    MergedStream,
    Standings,
    merged_stream,
    outcome_of,
)
from fixtures.oracle.merging import Batch, MergeOracle, MultisetOracle, Said

CASES = 510
PRICES = (1.0, 1.0, 1.0, 2.0, 0.0, -0.0, float("nan"), None)
LATEST = 12
"""Order fields are from 0 up to here: few, so that feeds meet."""


class Chaos:
    """Feeds that say anything."""

    def __init__(self, chance: random.Random, stream: Stream, feeds: int) -> None:
        self.chance = chance
        self.stream = stream
        self.marks = [LOWEST] * feeds
        self.pos = 0
        self.wild = chance.random() < 0.5
        """Whether prices differ between feeds."""

    def batch(self, attached: list[int]) -> list[Said]:
        said: list[Said] = []
        for feed in attached:
            for _ in range(self.chance.choice((0, 0, 1, 2, 4, 8))):
                if self.chance.random() < 0.15:
                    self.marks[feed] = max(self.marks[feed], self.chance.randrange(LATEST + 8))
                else:
                    said.append(self._element(feed))
        return said

    def _element(self, feed: int) -> Said:
        self.pos += 1
        at = self.chance.randrange(LATEST)
        values: dict[str, Any] = {
            "symbol": self.chance.choice("AB"),
            "at": at,
            "price": self.chance.choice(PRICES) if self.wild else 1.0,
            "version": self.chance.choice((1, 1, 2, None)) if self.wild else 1,
        }
        if "until" in self.stream.names:
            values["until"] = self.chance.choice((None, at + self.chance.randrange(1, 9)))
        values = {name: value for name, value in values.items() if name in self.stream.names}
        kind = self.chance.choices(list(ElementKind), (6, 2, 1))[0]
        given = None if self.stream.merged.occurrence else self._given(kind)
        own = {name: value for name, value in values.items() if given is None or name in given}
        old_end = self.chance.choice((None, at + self.chance.randrange(1, 9)))
        return Said(feed, kind, own, given, old_end, self.marks[feed], self.pos)

    def _given(self, kind: ElementKind) -> frozenset[str] | None:
        if kind is ElementKind.INSERT or self.chance.random() < 0.4:
            return None
        known = {*self.stream.key, self.stream.order}
        others = [name for name in self.stream.names if name not in known]
        return frozenset({*known, *(name for name in others if self.chance.random() < 0.5)})


def some_policy(chance: random.Random, feeds: int) -> MergePolicy:
    disagreement = chance.choice(list(DisagreementPolicy))
    return MergePolicy(
        emit=chance.choice(list(EmitPolicy)),
        fraction=chance.choice((0.3, 0.5, 1.0)),
        disagreement=disagreement,
        version="version" if disagreement is DisagreementPolicy.LATEST else None,
        quorum=chance.choice((1, 1, min(2, feeds))),
    )


def changed_standings(chance: random.Random, standings: Standings, chaos: Chaos) -> None:
    """Now and then a feed goes, comes back, or is no longer trusted."""
    for number, each in enumerate(standings.feeds):
        if chance.random() < 0.1:
            if each.attached:
                standings.feeds[number] = detach(each)
            else:
                starts_at = chance.choice((LOWEST, LOWEST, max(standings.stable, 0) + chance.randrange(4)))
                standings.feeds[number] = attach(each, merged_stable=standings.stable, starts_at=starts_at)
                chaos.marks[number] = LOWEST
        if chance.random() < 0.05:
            standings.feeds[number] = replace(standings.feeds[number], suspect=not each.suspect)


def differences(found: Batch, expected: Batch) -> Iterator[str]:
    """What is not the same."""
    for what in ("inserts", "replaced", "deleted", "filled"):
        mine, theirs = getattr(found, what), getattr(expected, what)
        if mine != theirs:
            yield f"{what}: {mine}, and not {theirs}"
    for what in ("behind", "refused"):
        mine, theirs = sorted(getattr(found, what)), sorted(getattr(expected, what))
        if mine != theirs:
            yield f"{what}: {mine}, and not {theirs}"
    if found.gaps != expected.gaps:
        yield f"gaps of complete feeds: {found.gaps}, and not {expected.gaps}"
    for key, rows in found.disagreements.items():
        if expected.disagreements.get(key) != rows:
            yield f"disagreement of {key}: {rows}, and not {expected.disagreements.get(key)}"


def run_case(seed: int, stream: Stream) -> None:
    chance = random.Random(seed)
    feeds = chance.randrange(1, len(FEED_NAMES) + 1)
    policy = some_policy(chance, feeds)
    if "version" not in stream.names:
        # Rows that are equal do not disagree, and which statement is the newest of a multiset nobody can say.
        emit = EmitPolicy.FIRST if policy.emit is EmitPolicy.EVERY else policy.emit
        policy = replace(policy, emit=emit, disagreement=DisagreementPolicy.LEADER, version=None)
    stream = merged_stream(stream, feeds, policy)
    chaos = Chaos(chance, stream, feeds)
    repeating = stream.merged.occurrence is not None
    product = MergedStream(stream, MergeAlgorithm.R4 if repeating else MergeAlgorithm.R3)
    product.parts = chance.choice((1, 1, 1, 3))
    oracle = MultisetOracle(stream) if repeating else MergeOracle(stream)
    complete = chance.random() < 0.5
    standings = Standings(
        [FeedStanding(name, complete=complete or chance.random() < 0.3) for name in FEED_NAMES[:feeds]],
        stream.merged.policy.quorum,
    )
    disagreeing: set[Any] = set()
    for number in range(chance.randrange(1, 7)):
        changed_standings(chance, standings, chaos)
        said = chaos.batch([number for number, each in enumerate(standings.feeds) if each.attached])
        before = standings.stable
        progress = standings.advance(dict(enumerate(chaos.marks)))
        expected = oracle.merge(said, progress)
        step = product.merge(said, progress)
        wrong = list(differences(outcome_of(stream, step), expected))
        words = "\n".join([f"batch {number}, stable {before} to {standings.stable}", *map(str, said), *wrong])
        assert not wrong, words
        now = set(expected.disagreements)
        assert now - disagreeing <= set(outcome_of(stream, step).disagreements), words
        disagreeing = now


@pytest.mark.parametrize(
    ("stream", "cases"),
    [
        *((each, CASES // 3) for each in (POINTS, SPANS, ORDERS)),
        (COPIES, CASES),
        *(pytest.param(each, 10 * CASES, marks=pytest.mark.long) for each in (POINTS, SPANS, ORDERS, COPIES)),
    ],
    ids=["points", "spans", "orders", "copies", "points long", "spans long", "orders long", "copies long"],
)
def test_anything_is_merged_as_the_oracle_says(stream: Stream, cases: int) -> None:
    for seed in seeds(f"chaos {stream.key} {stream.names} {cases}", cases):
        try:
            run_case(seed, stream)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
