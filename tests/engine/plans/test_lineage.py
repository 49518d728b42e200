"""The lineage that is stored: without the input rows outside it, each output row is still there."""

from __future__ import annotations

from pyspark.sql import SparkSession

from errata.language.nodes import Negation, RowWindow, Scan, SlidingRows, scans_of
from errata.language.plan import Plan, walk_plan
from fixtures.chance import random_for
from fixtures.duck import Row, answers, same
from fixtures.evaluation import INTERPRETED, Asked, Lived, configured, evaluate
from fixtures.plans.maker import Trial, random_case

PLANS, DATA_SETS, FEW = 16, 6, 4


def tells_all(plan: Plan) -> bool:
    """Whether rows that an output row was made of make it also alone: not if the absence of others made it, and not
    if rows are numbered."""
    return not any(
        isinstance(node, (Negation, SlidingRows))
        or isinstance(getattr(node, "window", None), RowWindow)
        or (isinstance(node, Scan) and node.source.plan is not None)
        for node in walk_plan(plan)
    )


def within(plan: Plan, data: dict[str, list[Row]], row: Lived) -> dict[str, list[Row]]:
    """The rows of the data in the output row's lineage."""
    found: dict[str, list[Row]] = {}
    for name, rows in data.items():
        bounds = [
            (row.lineage[2 * number], row.lineage[2 * number + 1])
            for number, scan in enumerate(scans_of(plan))
            if scan.source.name == name
        ]
        order = next(scan.source.order for scan in scans_of(plan) if scan.source.name == name) or ""
        found[name] = [
            each
            for each in rows
            if any(low is not None and high is not None and low <= each[order] <= high for low, high in bounds)
        ]
    return found


def trials(seed: int) -> list[Trial]:
    rng = random_for(f"{__name__} {seed}")
    found: list[Trial] = []
    while len(found) < PLANS:
        trial = random_case(rng, data_sets=DATA_SETS)
        if tells_all(trial.plan):
            found.append(trial)
    return found


def test_a_row_is_made_of_its_lineage_alone(either: SparkSession) -> None:
    asked = trials(8)
    with configured(either, INTERPRETED):
        found = evaluate(either, [Asked(each.plan, each.cases, lineage=True) for each in asked])
    seen = 0
    for trial, results in zip(asked, found, strict=True):
        rows = [(case, row) for case, lived in results.items() for row in lived[:FEW]]
        restricted = [within(trial.plan, trial.cases[case], row) for case, row in rows]
        starts = sorted({row.start for _, row in rows})
        again = answers(trial.plan, restricted, starts) if rows else {}
        for number, (_, row) in enumerate(rows):
            there = again.get((number, row.start), [])
            assert any(same([row.values], [each]) for each in there), f"{trial.plan}\n{row}\nis not in {there}"
            seen += 1
    assert seen > 50
