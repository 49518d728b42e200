"""Corrected results say at every instant what the corrected history says: random plans over random data, answered step
by step by every route, and between the steps, and after the last one, revised anywhere and swept."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import settings
from pyspark.sql import SparkSession
from tests.answer.test_advance_random import (
    FAR_SIZE,
    FEW,
    NEAR_SIZE,
    Answer,
    BatchSize,
    difference,
    forced,
    trials,
    unlike_its_feed,
)

from errata.answer import replay_sequence
from errata.answer import source_revisions as revised_rows
from errata.answer.source_revisions import cluster_revisions
from errata.language.nodes import Join, Scan, Sliding
from errata.language.plan_text import plan_tree
from errata.language.route import RouteKind, choose_route
from errata.model.extent import Extent, ExtentAxis
from errata.model.results import OLD_VE, VE, VS
from errata.model.technique import Technique
from fixtures.chance import seeds
from fixtures.duck import CASE, answers, same
from fixtures.evaluation import INTERPRETED, configured, live
from fixtures.plans.choices import pool
from fixtures.plans.maker import instants
from fixtures.query_corrections import Corrected, Sweep, corrected, sweep
from fixtures.query_steps import Round, Run, base_sources, go_on, rounds
from fixtures.stream_revisions import Revision, Revisions, revised

ROUNDS = 3
BATCHES = LONG // 25 if (LONG := settings().max_examples) > 25 else 3
PAIRS = 600
"""So many plans with data sets that are revised there are at least."""
SEEDS = seeds(__name__, BATCHES)
FURTHER = 4
"""Further batches near, at most, while the others have not seen all that is to be seen: what revisions touch is drawn,
too, and of a rare kind it may be nothing."""


@dataclass
class Tally:
    """What a batch has seen."""

    changed: Counter[tuple[RouteKind, Technique]] = field(default_factory=Counter)
    """Change records of corrections."""
    states: Counter[bool] = field(default_factory=Counter)
    """What strategies go on from: whether it was touched."""
    quiet: int = 0
    """Data sets with revisions that change nothing of a query's answer."""
    pairs: int = 0

    def __add__(self, other: Tally) -> Tally:
        return Tally(
            self.changed + other.changed,
            self.states + other.states,
            self.quiet + other.quiet,
            self.pairs + other.pairs,
        )


def runs_of(rng: random.Random, size: BatchSize, *, spread: bool) -> list[Run]:
    """The runs of a batch; some plans are also worked out anew in every step."""
    found = []
    for title, trial in trials(rng, size):
        course = rounds(rng, trial.plan, trial.cases, ROUNDS)
        found.append(corrected(Run.of(title, trial.plan, course, choose_route, rng)))
        if rng.random() < 0.2:
            found.append(corrected(Run.of(f"{title}, worked out anew", trial.plan, course, forced, rng)))
    for run in found:
        run.spread = spread
    return found


def check(spark: SparkSession, seed: int, size: BatchSize, *, spread: bool) -> Tally:
    """All plans of a batch, round by round, each round followed by revisions and a sweep."""
    rng = random.Random(seed)
    runs = runs_of(rng, size, spread=spread)
    tally = Tally()
    former: dict[int, Answer] = {}
    touched: set[tuple[int, int]] = set()
    for place in range(ROUNDS):
        go_on(spark, runs, place)
        for number, query in _queries(runs):
            wrong = difference(runs[number], query, place, former.get(id(query), {})) or unlike_its_feed(query)
            assert not wrong, f"seed {seed}, round {place}, {wrong}"
        told = []
        for number, run in enumerate(runs):
            run.rounds, revisions = revised(run.rng, run.plan, run.rounds, place)
            told.append(revisions)
            touched |= {(number, case) for case, some in enumerate(revisions) if some}
        # Of the last instant more may have come until it is swept.
        now = [run.rounds[min(place + (run.rng.random() < 0.3), ROUNDS - 1)] for run in runs]
        for each in sweep(spark, runs, now, told):
            revisions = told[next(at for at, run in enumerate(runs) if run is each.run)]
            wrong = wrong_after(each, place, revisions)
            assert not wrong, f"seed {seed}, round {place}, {wrong}\n{_told(each, revisions)}"
            former[id(each.query)] = each.query.lived()
            tally.changed += each.changed()
            if each.query.route.keeps_state:
                tally.states[each.touched] += 1
            tally.quiet += sum(bool(found.regions) for found in each.works) - len(set(_cases(each)))
    tally.pairs = len(touched)
    return tally


def _queries(runs: Sequence[Run]) -> Iterator[tuple[int, Corrected]]:
    for number, run in enumerate(runs):
        for query in run.queries.values():
            yield number, query


def _cases(swept: Sweep) -> list[int]:
    """The data set of each change record."""
    return list(swept.query.told[CASE].to_pylist())


# what is to be so after a sweep


def wrong_after(swept: Sweep, place: int, revisions: Sequence[Revisions]) -> str:
    """What is not as it should be, in words; nothing if all is."""
    query = swept.query
    return (
        unlike_history(swept, _end(swept, swept.run.rounds[place], revisions))
        or unlike_its_feed(query)
        or told_for_nothing(swept)
        or touched_outside(swept)
    )


def _end(swept: Sweep, answered: Round, revisions: Sequence[Revisions]) -> int:
    """The last instant that can be compared: the last one that is answered, unless rows have come to it since."""
    until = swept.query.step.until
    for name, source in base_sources(swept.query.plan).items():
        order = source.order or ""
        for before, now, some in zip(answered.cases, swept.now.cases, revisions, strict=True):
            counts = [sum(row[order] == until for row in rows[name]) for rows in (before, now)]
            arrived = [each.now for each in some.get(name, ()) if each.arrived]
            if counts[0] != counts[1] or any(row is not None and row[order] == until for row in arrived):
                return until - 1
    return until


def unlike_history(swept: Sweep, end: int) -> str:
    """The first instant at which what is published is not what the corrected history says."""
    query, cases = swept.query, swept.now.cases
    ats = sorted({end, *(at for at in instants(query.plan) if at <= end)})
    wanted, told = answers(query.plan, cases, ats), query.lived()
    for case in range(len(cases)):
        for at in ats:
            got, want = live(told.get(case, []), at), wanted.get((case, at), [])
            if not same(got, want):
                return f"data set {case}: at {at} it gave {_only(got, want)} instead of {_only(want, got)}"
    return ""


def _only(rows: Sequence[tuple[object, ...]], other: Sequence[tuple[object, ...]]) -> list[tuple[object, ...]]:
    return [row for row in rows if not any(same([row], [each]) for each in other)] or list(rows)


def told_for_nothing(swept: Sweep) -> str:
    """A data set of which something was published though its answer is as it was."""
    query, now = swept.query, swept.query.lived()
    until, told = query.step.until, query.told.to_pylist()
    ats = [at for at in instants(query.plan) if at <= until] + [until]
    masked = set() if swept.amended is None else set(swept.amended.masks[CASE].to_pylist())
    for case in sorted({*_cases(swept), *masked}):
        before, after = swept.before.get(case, []), now.get(case, [])
        if any(not same(live(before, at), live(after, at)) for at in ats):
            continue
        mine = [each for each in told if each[CASE] == case]
        foreseen = not query.route.covering and all(max(each[VE], each[OLD_VE] or 0) > until for each in mine)
        if not (mine and foreseen):
            return f"data set {case}: the answer is as it was, and yet it was told {mine}"
    return ""


def touched_outside(swept: Sweep) -> str:
    """A result outside of all regions that is not there as it was, published by the same evaluation."""
    was, now = (Counter(_outside(swept, rows)) for rows in (swept.rows_before, swept.query.rows))
    return "" if was == now else f"outside of the regions: gone {was - now}, come {now - was}"


def _outside(swept: Sweep, rows: pa.Table) -> Iterator[str]:
    """The results that neither lie in a region nor beside one."""
    by_case: dict[object, list[Extent]] = defaultdict(list)
    for each in swept.regions:
        by_case[each.values[CASE]].append(each)
    moments = [name for name in rows.column_names if pa.types.is_timestamp(rows[name].type)]
    for name in moments:
        rows = rows.set_column(rows.column_names.index(name), name, rows[name].cast(pa.int64()))
    for row in rows.to_pylist():
        if not any(_holds(each, row) for each in by_case[row[CASE]]):
            yield repr(row)


def _holds(region: Extent, row: dict[str, Any]) -> bool:
    low, high = region.interval.start, region.interval.end
    start = region.axis is ExtentAxis.START
    meets = low <= row[VS] < high if start else row[VS] <= high and low <= row[VE]
    return meets and all(row[name] == value for name, value in region.values.items())


def _told(swept: Sweep, revisions: Sequence[Revisions]) -> str:
    """What has been swept, in words."""
    run, query = swept.run, swept.query
    words = [f"{run.title}: query {query.name!r} by {query.route.kind}, run {query.run}, {query.step}, {swept.axis}"]
    words += [f"of the plan\n{plan_tree(run.plan)}", f"the query\n{plan_tree(query.rewritten)}"]
    for case, found in enumerate(swept.works):
        words.append(f"data set {case}, {swept.techniques[case]}")
        words += [f"    {name}: {row}" for name, rows in swept.now.cases[case].items() for row in rows]
        words += [f"    revised {name}: {each}" for name, some in revisions[case].items() for each in some]
        words += [f"    region {each}" for each in found.regions]
        words += [f"    read {name}: {each}" for name, some in found.reads.items() for each in some]
        words += [f"    was published: {each}" for each in swept.before.get(case, [])]
        words += [f"    is published: {each}" for each in query.lived().get(case, [])]
    return "\n".join(words)


DONE: dict[int, Tally] = {}
"""What was seen in the batches so far."""


@pytest.mark.parametrize("batch", range(BATCHES))
def test_corrected_results_say_what_the_corrected_history_says(
    request: pytest.FixtureRequest, batch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One batch of three runs in Spark, where a plan takes 20 times as long as near."""
    far = batch % 3 == 0
    engine: SparkSession = request.getfixturevalue("spark" if far else "near")
    spread = batch % 2 == 0 or not far  # at times all rows are in one task
    if batch % 3 == 1:  # one takes revisions together as if they were many
        monkeypatch.setattr(replay_sequence, "cluster_revisions", partial(cluster_revisions, most=3))
        monkeypatch.setattr(revised_rows, "MAX_SINGLE_VERSIONS", 2)
    with configured(engine, INTERPRETED if spread else FEW):
        DONE[batch] = check(engine, SEEDS[batch], FAR_SIZE if far else NEAR_SIZE, spread=spread)
    if len(DONE) == BATCHES:
        seen = sum(DONE.values(), Tally())
        for seed in seeds(f"{__name__} further", FURTHER):
            if lacking(seen):
                seen += check(request.getfixturevalue("near"), seed, NEAR_SIZE, spread=True)
        print(seen)
        assert not lacking(seen), f"seeds {SEEDS}: {lacking(seen)}, {seen}"


def lacking(seen: Tally) -> list[str]:
    """What the batches have not seen, in words."""
    found = [
        f"nothing was corrected by the technique {technique} of {kind}"
        for technique in (Technique.MINIMAL, Technique.ALL)
        for kind in RouteKind
        if not seen.changed[kind, technique]
    ]
    found += [] if seen.states[True] else ["no state was touched"]
    found += [] if seen.states[False] else ["every state was touched"]
    found += [] if seen.quiet else ["whatever was worked out again was different"]
    found += [] if seen.pairs >= PAIRS * BATCHES // 3 else [f"only {seen.pairs} data sets were revised"]
    return found


def test_what_two_revisions_touch_together_is_not_more_than_was_read(spark: SparkSession) -> None:
    """A pair of rows that neither stream revised, at a time when pairs with revised rows begin."""
    streams = pool(False)
    sides = [Sliding(Scan(streams[name], alias), 4) for name, alias in (("link1", "t1"), ("link2", "t2"))]
    plan = Join(sides[0], sides[1], None)
    rest = {"src": "x", "n": 1, "x": 1.5, "price": None, "ok": None}
    before = {
        "link1": [{"time": 0, "id": 1, **rest}, {"time": 1, "id": 2, **rest}],
        "link2": [{"time": 1, "id": 1, **rest}, {"time": 4, "id": 2, **rest}],
    }
    after = {name: [rows[0], {**rows[1], "n": 2}] for name, rows in before.items()}
    stable = {"link1": 8, "link2": 8}
    run = corrected(Run.of("two revisions", plan, [Round(stable, [before])], choose_route, random.Random(1)))
    with configured(spark, FEW):
        go_on(spark, [run], 0)
        run.rounds = [Round(stable, [after])]
        changes = {name: [Revision(1, before[name][1], after[name][1])] for name in before}
        swept = sweep(spark, [run], run.rounds, [[changes]], [Technique.MINIMAL])[0]
    assert not wrong_after(swept, 0, [changes])
    assert swept.query.told.num_rows
