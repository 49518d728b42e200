"""Whatever is brought, corrected, aged out and compacted, and however the archive is kept: a scan at some rates has
those rows of the exact scan, told row by row, whose hash is below the bound of their rate."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from itertools import product
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from errata.archive.sampling import sampling_hashes
from errata.archive.scan import scan_rows
from errata.archive.scan_plan import ArchiveScan
from errata.archive.upkeep.ageing import age_out
from errata.catalog import streams
from errata.engine.frames import fetch_rows
from errata.intake.types import arrow_schema
from errata.model.batch import Op
from errata.model.bucket import Layout, Role
from errata.model.reduction import ReducedArchives, SamplingRates, hash_bound, uniform_rates
from errata.model.stream import Retention, Stream
from errata.model.time import EVERYTHING, HIGHEST, LOWEST, Interval
from fixtures.chance import seeds
from fixtures.layers import Layers, Make, a_revision, bring_fresh, compacted
from fixtures.oracle.revision import Row

RATES = (0.01, 0.1, 0.2, 0.25, 0.3, 0.5, 0.8, 0.99, 1.0)
HISTORIES = 10
"""Histories that are tried in a run, each with a seed of its own."""

FAR_HISTORIES = 1
"""The same with Spark, which takes longer."""

TWO_COPIES = ReducedArchives((0.5, 0.1))


def some_steps(chance: random.Random) -> Iterator[tuple[str, Any]]:
    for _ in range(chance.randrange(1, 5)):
        step = chance.choice(["bring", "correct", "correct", "compact", "age"])
        if step == "bring":
            yield step, [(chance.randrange(41), chance.choice("abcdef")) for _ in range(chance.randrange(1, 30))]
        elif step == "correct":
            yield step, [a_correction(chance) for _ in range(chance.randrange(1, 6))]
        else:
            yield step, chance.random() < 0.5


def a_correction(chance: random.Random) -> tuple[Op, int, int | None]:
    op = chance.choice([Op.INSERT, Op.REPLACE, Op.REPLACE, Op.DELETE])
    return op, chance.randrange(41), chance.choice([None, chance.randrange(41)])


def some_rates(chance: random.Random) -> SamplingRates:
    kind = chance.randrange(3)
    if kind == 0:
        return uniform_rates(chance.choice(RATES))
    if kind == 1:
        starts = sorted(chance.sample(range(41), chance.randrange(4)))
        return SamplingRates((LOWEST, *starts), tuple(chance.choices(RATES, k=len(starts) + 1)))
    values: dict[str | None, float] = {value: chance.choice(RATES) for value in chance.sample("abcz", 2)}
    return SamplingRates(rates=(chance.choice(RATES),), column="who", by_value=values)


def kept_somehow(chance: random.Random) -> dict[str, Any]:
    rates = sorted(chance.sample(RATES[:-1], chance.randrange(1, 4)), reverse=True)
    how: dict[str, Any] = chance.choice(
        [
            {},
            {"reduced": ReducedArchives(tuple(rates))},
            {"layout": Layout.RANDOMIZED},
            {"layout": Layout.RANDOMIZED, "reduced": TWO_COPIES},
            {"layout": Layout.GROUPED, "reduced": TWO_COPIES},
            {"layout": Layout.PLAIN, "reduced": TWO_COPIES},
        ]
    )
    key = chance.choice([("who",), ("at", "who")])
    return {"key": key, "bucket_rows": chance.choice([3, 40, 400]), "inline": chance.random() < 0.5} | how


def sampled(stream: Stream, rows: Iterable[Row], rates: SamplingRates) -> list[tuple[Row, float]]:
    """The rows of a sample, each with its rate, by the definition."""
    some = list(rows)
    table = pa.Table.from_pylist([{name: row[name] for name in stream.names} for row in some], arrow_schema(stream))
    found = []
    for row, number in zip(some, sampling_hashes(table, stream.key).tolist(), strict=True):
        rate = rates.rate_at(row["at"])
        if rates.column is not None:
            rate = rates.by_value.get(row[rates.column], rates.rates[0])
        if rate == 1 or number < hash_bound(rate):
            found.append((row, rate))
    return found


def in_rows(read: pa.Table) -> list[tuple[Row, float]]:
    return [({name: value for name, value in row.items() if name != "_rate"}, row["_rate"]) for row in read.to_pylist()]


def ordered(rows: Iterable[tuple[Row, float]]) -> list[tuple[Row, float]]:
    return sorted(rows, key=lambda each: repr((each[0]["at"], *each[0].values())))


def read_sample(done: Layers, session: SparkSession, rates: SamplingRates, **scan: Any) -> list[tuple[Row, float]]:
    asked = scan_of(done, rates, **scan)
    site = done.house.site
    return ordered(in_rows(fetch_rows(scan_rows(session, site.catalog, site.warehouse, asked, with_rate=True))))


def scan_of(done: Layers, rates: SamplingRates | None, commit: int | None = None, **scan: Any) -> ArchiveScan:
    standing = streams.stream_state(done.house.catalog, done.name, commit)
    return ArchiveScan(standing, commit or standing.changed_in, rates=rates, **scan)


def steps_done(done: Layers, steps: list[tuple[str, Any]]) -> Iterator[int]:
    """Do some steps; after each, the commit."""
    price = 0.0
    seed = [(2 * at, who) for at in range(12) for who in "abcdef"]
    for step, what in [("bring", seed), ("correct", [(Op.REPLACE, 1, 1), (Op.DELETE, 2, None)]), *steps]:
        price += 1
        if step == "bring":
            bring_fresh(done, what, price)
        elif step == "correct":
            done.correct(*(a_revision(done, each, price + at / 10) for at, each in enumerate(what)))
        elif step == "age":
            age_out(done.house.site, [done.name])
        else:
            compacted(done, everything=what)
        yield done.standing.changed_in


@pytest.mark.parametrize("seed", seeds(__name__, HISTORIES))
def test_a_sample_is_what_the_hash_says_of_the_exact_rows(make: Make, near: SparkSession, seed: int) -> None:
    check_history(make, near, random.Random(seed))


@pytest.mark.parametrize("seed", seeds(f"{__name__} on Spark", FAR_HISTORIES))
def test_so_it_is_on_spark(make: Make, spark: SparkSession, seed: int) -> None:
    check_history(make, spark, random.Random(seed))


def check_history(make: Make, session: SparkSession, chance: random.Random) -> None:
    known: dict[int, dict[int, list[Row]]] = {}
    kept = kept_somehow(chance)
    retention = None if kept.get("layout") is Layout.PLAIN else Retention(span=30)
    done = make(slack=100, retention=retention, **kept)
    for commit in steps_done(done, [*some_steps(chance)]):
        then = done.standing
        known[commit] = {
            number: done.seen(up_to=number) for number in (HIGHEST, chance.randint(then.folded, then.applied))
        }
        done.check_index()
        check_copies(done)
    for commit, by_revision in known.items():
        rates, ends = some_rates(chance), sorted(chance.sample(range(45), 2))
        for (number, rows), interval in product(by_revision.items(), (EVERYTHING, Interval(*ends))):
            inside = [row for row in rows if row["at"] in interval]
            expected = ordered(sampled(done.stream, inside, rates))
            up_to = None if number == HIGHEST else number
            read = read_sample(done, session, rates, commit=commit, interval=interval, revisions_up_to=up_to)
            assert read == expected, f"commit {commit}, revision {number}"


def check_copies(done: Layers) -> None:
    """Each base bucket has its copies, and there are no others; a copy is the sample of its original."""
    originals = {each.bucket_id: each for each in done.stored()}
    copies = done.stored(Role.COPY)
    wanted = sorted((bucket_id, rate) for bucket_id in originals for rate in done.stream.reduced.copies)
    assert sorted((each.original, each.resolution.rate) for each in copies) == wanted
    for each in copies:
        original = originals[each.original or 0]
        assert (each.vs_min, each.vs_max, each.groups) == (original.vs_min, original.vs_max, original.groups)
        rows = done.house.content(original).drop_columns(
            ["_block"] if "_block" in done.house.content(original).column_names else []
        )
        hashes = sampling_hashes(rows, done.stream.key)
        bound = hash_bound(each.resolution.rate)
        kept = [row for row, number in zip(rows.to_pylist(), hashes.tolist(), strict=True) if number < bound]
        assert sorted(map(repr, kept)) == sorted(map(repr, done.house.content(each).to_pylist()))
