"""Windows of rows, last rows and new values, answered step by step, say what the whole history says."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice

import pytest
from hypothesis import settings
from pyspark.sql import SparkSession

from errata.engine.plans.tails import advance_row_windows
from errata.language.expr import BOOLEAN, DOUBLE, INT, STRING, Call, Lit, Ref
from errata.language.incremental import find_row_windows
from errata.language.nodes import Aggregate, Distinct, Filter, Output, Projection, RowWindow, Scan, SlidingRows
from errata.language.plan import Plan
from errata.language.plan_text import plan_tree
from errata.model.commit import EvaluationSpan
from errata.model.time import HIGHEST, LOWEST
from fixtures.chance import seeds
from fixtures.duck import arrow, same
from fixtures.evaluation import INTERPRETED, Asked, Lived, configured, evaluate, live, taken_out
from fixtures.plans.examples import POOL, count, event, group, scan
from fixtures.plans.maker import Trial, has_answer, instants
from fixtures.plans.tails import FINDERS, Run, random_run

BATCH, DATA_SETS = 3, 8
BATCHES = max(1, settings.default.max_examples // 25)

Found = dict[int, list[Lived]]


def difference(run: Run, found: Sequence[Found], whole: Found) -> str:
    """The first instant at which a step says something else than the whole history, in words; nothing if none does."""
    for case, data in enumerate(run.trial.cases):
        for number, step in enumerate(run.steps):
            said = told(run, [each.get(case, []) for each in found[: number + 1]])
            for at in seen(run, step, case):
                got, want = live(said, at), live(whole.get(case, []), at)
                if not same(got, want):
                    words = [
                        f"{run.kind}, seed {run.seed}, step {number} of {run.steps}",
                        f"at {at} the plan",
                        plan_tree(run.trial.plan),
                        "over",
                    ]
                    words += [f"  {name}: {row}" for name, rows in data.items() for row in rows]
                    return "\n".join([*words, "gave", *map(str, got), "instead of", *map(str, want)])
    return ""


def told(run: Run, found: Sequence[Sequence[Lived]]) -> list[Lived]:
    """What is known after some steps: of what is only added, all up to where the last step began, too."""
    *before, last = found
    if run.kind == "last_rows":
        return list(last)
    steps = run.steps
    rows = [row for each, step in zip(before, steps, strict=False) for row in each if row.start < step.until]
    step = steps[len(found) - 1]
    return rows + [row for row in last if step.since <= row.start <= step.until]


def seen(run: Run, step: EvaluationSpan, case: int) -> Iterator[int]:
    """The instants that a step answers; the last only where all that happens then has come."""
    last = step.until - case % 2
    return (at for at in instants(run.trial.plan) if step.since <= at <= last)


def check(spark: SparkSession, runs: Sequence[Run]) -> dict[str, int]:
    """All in one job. How many results of each kind were compared."""
    steps = [(run.trial.plan, rows) for run in runs for rows in run.rows(spark)]
    found = iter(taken_out(steps))
    wholes = evaluate(spark, [Asked(run.trial.plan, run.trial.cases) for run in runs])
    compared: dict[str, int] = defaultdict(int)
    for run, whole in zip(runs, wholes, strict=True):
        wrong = difference(run, [next(found) for _ in run.steps], whole)
        assert not wrong, wrong
        compared[run.kind] += sum(map(len, whole.values()))
    return compared


def telling_runs(kind: str, drawn: Iterable[int]) -> Iterator[Run]:
    """Runs whose plan has an answer over its data: of so few random ones it may well be that none has."""
    runs = (random_run(kind, seed, data_sets=DATA_SETS) for seed in drawn)
    return (each for each in runs if has_answer(each.trial))


@pytest.mark.parametrize("batch", range(BATCHES))
def test_steps_say_what_the_whole_history_says(either: SparkSession, batch: int) -> None:
    drawn = seeds(f"{__name__} {batch}", 20 * BATCH)
    runs = [each for kind in FINDERS for each in islice(telling_runs(kind, drawn), BATCH)]
    with configured(either, INTERPRETED):
        compared = check(either, runs)
    assert all(compared[kind] > 0 for kind in FINDERS), f"seeds {drawn}: nothing was compared"


@pytest.mark.parametrize(("size", "step"), [(1, 1), (3, 1), (4, 2), (3, 3), (2, 5), (5, 3)])
def test_only_rows_of_open_windows_are_kept(either: SparkSession, size: int, step: int) -> None:
    plan = group(scan("a", "src"), (Ref("a.src", STRING),), count(), window=RowWindow(size, step))
    found = find_row_windows(plan)
    assert found is not None
    # So many rows in each group, and one more at the last instant, which says nothing yet.
    rows = [event(at, at, str(many)) for many in range(1, 12) for at in range(many)]
    rows += [event(20, 50 + many, str(many)) for many in range(1, 12)]
    table = either.createDataFrame(arrow(POOL["link1"], [{"link1": rows}]))
    with configured(either, INTERPRETED):
        state = advance_row_windows(found, {"link1": table}, None, LOWEST, 20).state
        assert state is not None
        kept: dict[int, set[int]] = defaultdict(set)
        for row in state.toArrow().to_pylist():
            assert row["_vs"] == row["_known"], "rows are numbered as they came"
            kept[int(row["c2"])].add(row["_known"])
    for many in range(1, 12):
        open_windows = [first for first in range(0, many, step) if first + size > many]
        begun = {number for first in open_windows for number in range(first, many)}
        assert kept[many] == begun | {many - 1}, f"of {many} rows"


@pytest.mark.parametrize("kind", FINDERS)
def test_what_is_kept_can_be_stored(either: SparkSession, kind: str) -> None:
    rows = [event(at // 2, at, [None, "a", "b"][at % 3], x=[float("nan"), -0.0][at % 2]) for at in range(12)]
    below = scan("a", "src", "x")
    plan: Plan = {
        "row_windows": group(below, (Ref("a.src", STRING),), count(), window=RowWindow(3, 1)),
        "last_rows": SlidingRows(below, 3),
        "new_values": Distinct(Projection(below, (Output("src", below.ref("a.src")), Output("x", below.ref("a.x"))))),
    }[kind]
    trial = Trial(plan, [{"link1": rows}, {"link1": rows[::2]}])
    run = Run(
        kind,
        trial,
        [EvaluationSpan(LOWEST, 1), EvaluationSpan(1, 3), EvaluationSpan(3, 3), EvaluationSpan(3, 5)],
        stored=True,
    )
    with configured(either, INTERPRETED):
        assert check(either, [run])[kind] > 5


def test_among_rows_of_one_time_the_last_are_kept_and_null_is_first(either: SparkSession) -> None:
    source = replace(POOL["link1"], key=("time", "src"))
    plan = SlidingRows(Scan(source, "a", ("time", "src")), 2)
    rows = [event(1, number, src) for number, src in enumerate(["b", None, "a"])]
    run = Run(
        "last_rows",
        Trial(plan, [{"link1": [*rows, event(3, 3, None)]}]),
        [EvaluationSpan(LOWEST, 2), EvaluationSpan(2, 4)],
    )
    with configured(either, INTERPRETED):
        _, second = taken_out([(plan, each) for each in run.rows(either)])
    lived = {(row.values, row.start, row.end) for row in second[0]}
    assert lived == {((1, "a"), 1, 3), ((1, "b"), 1, HIGHEST), ((3, None), 3, HIGHEST)}


def test_nothing_is_worked_out_from_rows_some_of_which_are_not_kept(either: SparkSession) -> None:
    least, most = (Aggregate(name, Ref("a.n", INT), INT) for name in ("min", "max"))
    groups = group(SlidingRows(scan("a", "n"), 3), (), least, most, count())
    several = Filter(groups, Call(">", (groups.ref("count(*)"), Lit(1, INT)), BOOLEAN))
    width = Call("-", (several.ref(most.name), several.ref(least.name)), INT)
    plan = Projection(several, (Output("share", Call("/", (Lit(100, INT), width), DOUBLE)),))
    # Of 5 and 5 it could not be computed, but they never were alone: at 3 the row of 1 was still there.
    rows = [event(at, at, n=n) for at, n in enumerate([3, 5, 5, 7, 9], start=1)]
    run = Run("last_rows", Trial(plan, [{"link1": rows}]), [EvaluationSpan(LOWEST, 5), EvaluationSpan(5, 6)])
    with configured(either, INTERPRETED):
        assert check(either, [run])["last_rows"] == 4


def test_a_value_that_was_published_is_not_new_again(either: SparkSession) -> None:
    below = scan("a", "src")
    plan = Distinct(Projection(below, (Output("src", below.ref("a.src")),)))
    rows = [event(at, at, src) for at, src in enumerate(["x", None, "y", None, "x", "z", "y"])]
    run = Run(
        "new_values",
        Trial(plan, [{"link1": rows}]),
        [EvaluationSpan(LOWEST, 2), EvaluationSpan(2, 4), EvaluationSpan(4, 9)],
    )
    with configured(either, INTERPRETED):
        found = taken_out([(plan, each) for each in run.rows(either)])
    starts = [sorted((row.start, row.values[0]) for row in each.get(0, [])) for each in found]
    assert starts[1:] == [[(2, "y")], [(5, "z")]]
