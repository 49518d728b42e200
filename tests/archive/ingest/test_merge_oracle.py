"""Feeds that say the same with faults of all kinds, taken in by the real flow: after every batch the archive has what
the oracle of merges says, and what the archive itself decides about rows that are frozen."""

from __future__ import annotations

import json
import os
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from errata.archive.ingest import batch_writer, merge_job
from errata.archive.ingest.batch import IngestReport, IngestRequest, ingest_batch
from errata.archive.ingest.merge_archive import archived_rows
from errata.archive.revisions.apply import apply_stream_revisions
from errata.archive.upkeep.doctor import DoctorOptions, run_doctor
from errata.catalog import streams
from errata.merge.elements import OPEN, ElementKind
from errata.merge.progress import FeedStanding
from errata.model.feed import (
    DisagreementPolicy,
    EmitPolicy,
    Feed,
    FeedProperties,
    LandedFileAction,
    LandingFolder,
    MergePolicy,
    StableRule,
)
from errata.model.stream import Stream
from errata.model.time import EVERYTHING, LOWEST
from fixtures.chance import seeds
from fixtures.flows import Builder, House
from fixtures.merges import Standings
from fixtures.oracle.merging import Key, MergeOracle, Row, Said
from fixtures.quotes import quotes

NAMES = ("a", "b", "c")
BATCHES = 6


def a_stream(chance: random.Random, folder: Path) -> Stream:
    """Any policy, any number of feeds; some lack nothing."""
    feeds = [
        Feed(
            name,
            LandingFolder(str(folder / name), 0, LandedFileAction.DELETE),
            properties=FeedProperties(complete=chance.random() < 0.25),
            stable=StableRule.MARKS,
        )
        for name in NAMES[: chance.choice([2, 3])]
    ]
    policy = MergePolicy(
        emit=chance.choice(list(EmitPolicy)),
        disagreement=chance.choice([each for each in DisagreementPolicy if each is not DisagreementPolicy.LATEST]),
        quorum=chance.choice([1, 1, 2]),
    )
    return quotes(*feeds, end=chance.choice(["until", None]), policy=policy)


@dataclass
class Feeds:
    """What feeds say, as lines of files and as elements."""

    stream: Stream
    chance: random.Random
    stable: list[int] = field(default_factory=list)
    known: list[dict[Key, dict[str, Any]]] = field(default_factory=list)
    """By feed: what it has said."""

    def __post_init__(self) -> None:
        self.stable = [LOWEST for _ in self.stream.merged.feeds]
        self.known = [{} for _ in self.stream.merged.feeds]

    def batch(self, number: int) -> tuple[list[list[dict[str, Any]]], list[Said]]:
        """The lines of each feed, and all elements in their order."""
        lines: list[list[dict[str, Any]]] = []
        said: list[Said] = []
        for feed in range(len(self.stream.merged.feeds)):
            lines.append([])
            for _ in range(self.chance.choice([0, 4, 12])):
                self._say(feed, number, lines[feed], said)
        return lines, said

    def _say(self, feed: int, number: int, lines: list[dict[str, Any]], said: list[Said]) -> None:
        chance = self.chance
        if chance.random() < 0.12:
            at = 10 * number + chance.randrange(-8, 8)
            lines.append({"_op": "stable", "at": at})
            self.stable[feed] = max(self.stable[feed], at)
            return
        line = {"who": chance.choice("xy"), "at": max(0, 10 * number + chance.randrange(-12, 10))}
        key = (line["who"], line["at"])
        before = self.known[feed].get(key)
        kind, given = ElementKind.INSERT, None
        if before is None or chance.random() < 0.5:
            # Most say the same of a row.
            price = float(line["at"] % 3) if chance.random() < 0.85 else chance.choice([7.0, None, -0.0])
            line |= {"price": price, "until": self._end(line["at"])}
        elif chance.random() < 0.6:
            kind, given = ElementKind.ADJUST, frozenset(("who", "at", "until"))
            line |= {"_op": chance.choice(["adjust", "replace"]), "until": self._end(line["at"])}
        else:
            kind = ElementKind.WITHDRAW
            line["_op"] = "delete"
        values = {name: value for name, value in line.items() if not name.startswith("_")}
        own = self.stable[feed]
        said.append(Said(feed, kind, values, given, own_stable=own, pos=len(said)))
        if kind is ElementKind.WITHDRAW:
            self.known[feed].pop(key, None)
        else:
            self.known[feed][key] = {**(before or {}), **values}
        lines.append(line)

    def _end(self, at: int) -> int | None:
        return self.chance.choice([None, at + 3, at + 3, at + 25])


@dataclass
class Archive:
    """What is published, and what comes of statements about rows that the merge has forgotten."""

    oracle: MergeOracle
    rows: dict[Key, Row] = field(default_factory=dict)
    refused: frozenset[int] = frozenset()
    """The elements of the last batch that contradict their own feed."""
    gaps: frozenset[int] = frozenset()
    """The feeds that turned out not to be complete in it."""

    def take(self, elements: Sequence[Said], standings: Standings, said: dict[int, int]) -> Counter[str]:
        batch = self.oracle.merge(elements, standings.advance(said))
        self.rows |= batch.inserts | batch.replaced
        for key in batch.deleted:
            del self.rows[key]
        behind = [each for each in elements if each.pos in set(batch.behind)]
        self.refused, self.gaps = frozenset(batch.refused), frozenset(batch.gaps)
        counts = Counter({"refused": len(batch.refused)})
        bound = [each for each in behind if each.own_stable > each.values["at"]]
        for each in behind:
            if each.kind is ElementKind.INSERT and each not in bound:
                counts[self._insert(each)] += 1
        there = dict(self.rows)
        for each in behind:
            if each not in bound:
                if each.kind is not ElementKind.INSERT:
                    self._correct(each)
            elif self._may_say(each, there) is None:
                counts["refused"] += 1
                self.refused |= {each.pos}
            elif self._may_say(each, there):
                self._correct(each)
        return counts

    def _may_say(self, said: Said, there: dict[Key, Row]) -> bool | None:
        """Of a statement behind its own feed's stable point: whether it is carried out. None: it is refused."""
        old = there.get(self._key(said))
        if said.kind is ElementKind.WITHDRAW:
            return False if old is None else None
        new = self.oracle._statement(said, old)
        if new is None:
            return None  # it changes columns of a row that is not there
        if new == old:
            return False
        if old is not None and new.payload == old.payload:
            return True if min(old.end, new.end) >= said.own_stable else None
        return None

    def _key(self, said: Said) -> Key:
        return tuple(said.values[name] for name in self.oracle.stream.key)

    def _insert(self, said: Said) -> str:
        row = self.oracle._statement(said, None)
        assert row is not None
        there = self.rows.setdefault(self._key(said), row)
        return "late" if there is row else "repeats" if there == row else "overruled"

    def _correct(self, said: Said) -> None:
        there = self.rows.get(self._key(said))
        if there is None:
            return
        if said.kind is ElementKind.WITHDRAW:
            del self.rows[self._key(said)]
            return
        row = self.oracle._statement(said, there)
        assert row is not None
        self.rows[self._key(said)] = row


def land(stream: Stream, lines: Sequence[Sequence[dict[str, Any]]], number: int) -> None:
    for feed, some in zip(stream.merged.feeds, lines, strict=True):
        assert feed.landing is not None
        path = Path(feed.landing.path) / f"{number}.jsonl"
        path.parent.mkdir(exist_ok=True)
        if some:
            path.write_text("".join(json.dumps(each) + "\n" for each in some))
            os.utime(path, (1, 1))


def published(house: House) -> dict[Key, Row]:
    """The rows of the archive, with all that is pending applied; each key once."""
    apply_stream_revisions(house.site, "quotes")
    stood = streams.stream_state(house.catalog, "quotes")
    stream = stood.stream
    names = [name for name in stream.names if name != stream.merged.end]
    rows = archived_rows(house.catalog, house.site.warehouse, stood, EVERYTHING).to_pylist()
    found = {}
    for row in rows:
        price = row["price"]
        row["price"] = None if price is None else price + 0.0
        end = OPEN if stream.merged.end is None or row["until"] is None else row["until"]
        found[tuple(row[name] for name in stream.key)] = Row(tuple(row[name] for name in names), end)
    assert len(found) == len(rows) == stood.rows
    return found


def check_counts(report: IngestReport, counts: Counter[str], said: int) -> None:
    if report.commit_id is None:
        return
    assert report.counts.settled == report.counts.read == said
    assert (report.counts.quarantined, report.counts.replaced) == (counts["refused"], counts["overruled"])


@pytest.mark.parametrize("seed", seeds(__name__, 10))
def test_the_archive_has_what_the_oracle_says(seed: int, a_house: Builder, tmp_path: Path) -> None:
    compare_with_the_oracle(seed, a_house, tmp_path)


@pytest.mark.parametrize("seed", [*seeds(f"{__name__} by Spark", 1), pytest.param(0, marks=pytest.mark.long)])
def test_the_same_with_every_other_batch_by_spark(
    seed: int, a_house: Builder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    merge = merge_job.merge_by_spark
    merged_by_spark = []

    def counted(*given: Any) -> merge_job.MergeOutcome:
        merged_by_spark.append(1)
        return merge(*given)

    def before(number: int) -> None:
        monkeypatch.setattr(batch_writer, "SMALL_BYTES", -1 if number % 2 else 1 << 20)

    monkeypatch.setattr(merge_job, "merge_by_spark", counted)
    compare_with_the_oracle(seed, a_house, tmp_path, before)
    assert merged_by_spark


def compare_with_the_oracle(
    seed: int, a_house: Builder, tmp_path: Path, before: Callable[[int], None] = lambda _: None
) -> None:
    chance = random.Random(seed)
    stream = a_stream(chance, tmp_path)
    house = a_house(stream)
    archive = Archive(MergeOracle(stream))
    standings = Standings(
        [FeedStanding(each.name, complete=each.properties.complete) for each in stream.merged.feeds],
        stream.merged.policy.quorum,
    )
    feeds = Feeds(stream, chance)
    for number in range(BATCHES):
        lines, said = feeds.batch(number)
        if not any(lines):
            continue  # without a file there is no batch
        land(stream, lines, number)
        before(number)
        report = ingest_batch(house.site, IngestRequest("quotes", landed=True))
        counts = archive.take(said, standings, dict(enumerate(feeds.stable)))
        refused = {each.feed for each in said if each.pos in archive.refused}
        standings.feeds = [
            replace(each, suspect=each.suspect or feed in refused, complete=each.complete and feed not in archive.gaps)
            for feed, each in enumerate(standings.feeds)
        ]
        check_counts(report, counts, len(said))
        assert published(house) == archive.rows
        stable = streams.stream_state(house.catalog, "quotes").stable
        assert (LOWEST if stable is None else stable) == standings.stable
    assert [each for found in run_doctor(house.site, (), DoctorOptions()) for each in found.findings] == []
