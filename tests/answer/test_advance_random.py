"""Queries answered step by step say at every instant what the whole history says: random plans over random data, by
every route that there is, streams coming in random portions."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import settings
from pyspark.sql import SparkSession

from errata.language.functions import never_fails
from errata.language.nodes import Negation
from errata.language.plan import Plan, walk_plan
from errata.language.plan_text import has_timestamps, operator_exprs, plan_tree
from errata.language.queries import read_query
from errata.language.rewrite import rewrite_plan
from errata.language.route import Route, RouteKind, choose_route, recompute_route
from errata.model.results import VE, VS
from errata.model.time import MINUTE
from fixtures.chance import seeds
from fixtures.changelogs import lasting, normal_form
from fixtures.duck import answers, same
from fixtures.evaluation import INTERPRETED, Lived, configured, live
from fixtures.plans.choices import FromRandom, pool
from fixtures.plans.examples import EXAMPLES
from fixtures.plans.maker import Trial, instants
from fixtures.plans.outer_joins import TEXTS
from fixtures.plans.parts import LATEST
from fixtures.plans.stacks import StackMaker, is_rough
from fixtures.query_steps import Answered, Run, go_on, rounds

ROUNDS = 3
PARTLY = 0.4
"""The share of the runs in which queries go in parts towards where their streams have come already."""
BATCHES = max(1, settings().max_examples // 25)
"""Batches of steps in Spark, in which a plan takes 20 times as long as near."""
NEAR_BATCHES = 2 * BATCHES
SEEDS = seeds(__name__, BATCHES)


@dataclass(frozen=True)
class BatchSize:
    """How many plans a batch has besides one of each kind, and how many data sets each of them."""

    random: int = 6
    diamonds: int = 2
    examples: int = 2
    data_sets: int = 14
    anew: float = 1.0
    """The share of the plans of other routes that are worked out anew as well."""


NEAR_SIZE = BatchSize()
FAR_SIZE = NEAR_SIZE if BATCHES > 1 else BatchSize(random=2, diamonds=1, examples=1, data_sets=24, anew=0.3)
"""In Spark the time goes into planning: a plan is dear, another data set is not."""

FEW = {**INTERPRETED, "spark.sql.autoBroadcastJoinThreshold": "-1", "spark.sql.shuffle.partitions": "1"}
"""With so few rows the time goes into starting tasks and jobs."""

MAKERS: dict[RouteKind, Callable[[StackMaker], Plan]] = {
    RouteKind.GROUPED: StackMaker.grouped,
    RouteKind.ROW_WINDOWS: StackMaker.row_windows,
    RouteKind.LAST_ROWS: StackMaker.last_rows,
    RouteKind.NEW_VALUES: StackMaker.new_values,
}


def usable(plan: Plan) -> bool:
    """Whether an example has one answer over any data: nothing in it fails for some row, and no column that is no key
    ranks rows, which would be in no certain order."""
    nodes = list(walk_plan(plan))
    certain = not any(isinstance(node, Negation) and node.rank for node in nodes)
    return certain and not is_rough(plan) and all(never_fails(expr) for node in nodes for expr in operator_exprs(node))


USABLE = [name for name, each in EXAMPLES.items() if usable(each.plan)]


def maker(rng: random.Random) -> StackMaker:
    return StackMaker(FromRandom(rng), timed=rng.random() < 0.7)


def sharp(make: Callable[[StackMaker], Plan], rng: random.Random) -> Plan:
    """A random plan whose answers can be told exactly."""
    return next(plan for plan in iter(lambda: make(maker(rng)), None) if not is_rough(plan))


def of_kind(kind: RouteKind, rng: random.Random, data_sets: int) -> Trial:
    """A random plan that goes by a route, over data of which it says something."""
    make = MAKERS.get(kind)
    for _ in range(5_000):
        plan = sharp(StackMaker.query, rng) if make is None else make(maker(rng))
        if choose_route(rewrite_plan(plan).plan).kind is kind and any(
            answers(plan, (trial := over(plan, rng, data_sets)).cases, whole(plan))
        ):
            return trial
    raise AssertionError(f"no random plan goes by the route {kind}")


def whole(plan: Plan) -> list[int]:
    """The instants at which most rows begin."""
    unit = MINUTE if has_timestamps(plan) else 1
    return [at for at in instants(plan) if at % unit == 0 and at <= LATEST * unit]


def over(plan: Plan, rng: random.Random, data_sets: int) -> Trial:
    """A plan with random data."""
    data = StackMaker(FromRandom(rng), timed=has_timestamps(plan))
    return Trial(plan, [data.data(plan) for _ in range(data_sets)])


def trials(rng: random.Random, size: BatchSize) -> list[tuple[str, Trial]]:
    """The plans of a batch, each with what it is."""
    plans = [("random", sharp(StackMaker.query, rng)) for _ in range(size.random)]
    plans += [("diamond", sharp(StackMaker.diamond, rng)) for _ in range(size.diamonds)]
    name = rng.choice(sorted(TEXTS))
    plans.append((f"outer join: {name}", read_query(TEXTS[name], name, pool(timed=False))))
    plans += [(f"example: {name}", EXAMPLES[name].plan) for name in rng.sample(USABLE, size.examples)]
    found = [(f"of kind {kind}", of_kind(kind, rng, size.data_sets)) for kind in RouteKind]
    return [*found, *((title, over(plan, rng, size.data_sets)) for title, plan in plans)]


def forced(_plan: Plan) -> Route:
    return recompute_route("so that it can be compared")


def runs_of(rng: random.Random, size: BatchSize, *, spread: bool) -> list[Run]:
    """The runs of a batch. What goes by other routes has to be right also where everything is worked out anew."""
    found = []
    for title, trial in trials(rng, size):
        course = rounds(rng, trial.plan, trial.cases, ROUNDS)
        run = Run.of(title, trial.plan, course, choose_route, rng)
        found.append(run)
        others = any(each.route.kind is not RouteKind.RECOMPUTED for each in run.queries.values())
        if others and rng.random() < size.anew:
            found.append(Run.of(f"{title}, forced to be worked out anew", trial.plan, course, forced, rng))
    for run in found:
        run.spread, run.in_parts = spread, rng.random() < PARTLY
    return found


Answer = dict[int, list[Lived]]


def difference(run: Run, query: Answered, place: int, former: Answer) -> str:
    """The first instant at which what is published is not the answer, in words; nothing if there is none."""
    step, cases, told = query.step, run.rounds[place].cases, query.lived()
    ats = sorted({step.until, *(at for at in instants(query.plan) if step.since <= at <= step.until)})
    wanted = answers(query.plan, cases, ats)
    for case in range(len(cases)):
        mine = told.get(case, [])
        for at in ats:
            got, want = live(mine, at), wanted.get((case, at), [])
            if not same(got, want):
                return in_words(run, query, place, case, f"at {at} it gave", got, want)
        if not step.first:
            was, now = (before(rows, step.since) for rows in (former.get(case, []), mine))
            if was != now:
                return in_words(run, query, place, case, f"before {step.since}, for good, it has now", now, was)
    return ""


def before(rows: Sequence[Lived], until: int) -> list[object]:
    """What is said of the instants before one, however it is cut into rows."""
    each = [
        {**{str(place): value for place, value in enumerate(row.values)}, VS: row.start, VE: min(row.end, until)}
        for row in rows
        if row.start < until
    ]
    return list(normal_form(each))


def in_words(
    run: Run, query: Answered, place: int, case: int, said: str, got: Sequence[Any], want: Sequence[Any]
) -> str:
    words = [f"{run.title}: query {query.name!r} by {query.route.kind}, round {place}, {query.step}, data set {case}"]
    words += [f"of the plan\n{plan_tree(run.plan)}", f"the query\n{plan_tree(query.rewritten)}", "over"]
    for number, each in enumerate(run.rounds[: place + 1]):
        words.append(f"round {number}, stable {each.stable}")
        words += [f"    {name}: {row}" for name, rows in each.cases[case].items() for row in rows]
    words += [said, *_listed(got, want), "instead of", *_listed(want, got)]
    return "\n".join([*words, "published:", *(f"    {row}" for row in query.lived().get(case, []))])


def _listed(rows: Sequence[Any], other: Sequence[Any]) -> list[str]:
    return [f"    {row}{'' if any(same([row], [each]) for each in other) else '   <-- only here'}" for row in rows]


def unlike_its_feed(query: Answered) -> str:
    """What a reader of the changes holds that is not published, or not what is; nothing if there is none."""
    until = query.step.until
    one, other = (
        normal_form({**row, VE: min(row[VE], until + 1)} for row in rows if row[VS] <= until)
        for rows in (lasting(query.held), query.rows.to_pylist())
    )
    missing, more = [each for each in other if each not in one], [each for each in one if each not in other]
    return "" if one == other else f"missing: {missing[:5]}, too much: {more[:5]}"


def check(engines: Sequence[SparkSession], seed: int, size: BatchSize, *, spread: bool) -> Counter[RouteKind]:
    """All plans of a batch, round by round, the engines taking turns. How many results were compared, by the route that
    they came by."""
    runs = runs_of(random.Random(seed), size, spread=spread)
    compared: Counter[RouteKind] = Counter()
    former: dict[int, Answer] = {}
    for place in range(ROUNDS):
        go_on(engines[place % len(engines)], runs, place)
        for run in runs:
            for query in run.queries.values():
                wrong = difference(run, query, place, former.get(id(query), {}))
                assert not wrong, f"seed {seed}, {wrong}"
                wrong = unlike_its_feed(query)
                assert not wrong, f"seed {seed}, {in_words(run, query, place, 0, wrong, [], [])}"
                former[id(query)] = query.lived()
                compared[query.route.kind] += query.rows.num_rows
    return compared


DONE: dict[int, Counter[RouteKind]] = {}
"""How many results were compared in the batches so far."""


@pytest.mark.parametrize("batch", range(BATCHES))
def test_steps_by_every_route_say_what_the_whole_history_says(spark: SparkSession, batch: int) -> None:
    spread = batch == 0  # one batch runs as in production
    with configured(spark, INTERPRETED if spread else FEW):
        DONE[batch] = check([spark], SEEDS[batch], FAR_SIZE, spread=spread)
    assert set(DONE[batch]) == set(RouteKind), "a route was not taken"
    if len(DONE) == BATCHES:
        compared = sum(DONE.values(), Counter[RouteKind]())
        assert all(compared[kind] for kind in RouteKind), f"seeds {SEEDS}: nothing was compared, {compared}"


@pytest.mark.parametrize("batch", range(NEAR_BATCHES))
def test_so_do_those_of_the_near_engine(near: SparkSession, batch: int) -> None:
    seed = seeds(f"{__name__} near {batch}", 1)[0]
    assert set(check([near], seed, NEAR_SIZE, spread=True)) == set(RouteKind)


def test_what_one_engine_kept_the_other_goes_on_from(spark: SparkSession, near: SparkSession) -> None:
    with configured(spark, FEW):
        seed = seeds(f"{__name__} in turns", 1)[0]
        assert set(check([near, spark], seed, FAR_SIZE, spread=False)) == set(RouteKind)
