"""Operators that look at one row at a time: filters, projections, unions."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame

from errata.engine.frames import selected, stacked
from errata.engine.plans.rows import TS, VE, VS, Rows, lineage_columns, place
from errata.engine.types import spark_type
from errata.language.expr import Expr, conjuncts
from errata.language.functions import total
from errata.language.nodes import Filter, Project, Union
from errata.language.times import Own, timing


def filtered(plan: Filter, below: Rows) -> Rows:
    """Rows for which the predicate is true."""
    live = None if below.way.at is not None else f"{VS} < {VE}"
    return below.over(plan, below.frame.filter(guarded(below, plan.predicate, live)))


def guarded(rows: Rows, predicate: Expr | None, when: str | None) -> str:
    """A predicate whose parts that can fail are looked at only for rows that there are.

    Spark may push a filter into a join below, and would then ask it of pairs that never counted at the same time.
    """
    parts = conjuncts(predicate)
    safe = [f"({rows.sql(part)})" for part in parts if when is None or total(part)]
    risky = [f"({rows.sql(part)})" for part in parts if when is not None and not total(part)]
    if risky:
        # As a number: of truths the near engine works out both branches.
        safe.append(f"CASE WHEN {when} THEN IF({' AND '.join(risky)}, 1, 0) ELSE 0 END = 1")
    return " AND ".join(safe) or "TRUE"


def projected(plan: Project, below: Rows) -> Rows:
    """New columns, and the key's that are carried along."""
    texts = [*(below.sql(output.expr) for output in plan.outputs), *map(below.column, plan.carried)]
    columns = [f"{text} AS {place(at)}" for at, text in enumerate(texts)]
    return below.over(plan, selected(below.frame, *columns, *below.beside))


def united(plan: Union, branches: Sequence[Rows]) -> Rows:
    """The rows of all branches."""
    whole = Rows(plan, branches[0].frame, branches[0].way, range(branches[0].scans.start, branches[-1].scans.stop))
    parts = [_branch(plan, number, whole, rows) for number, rows in enumerate(branches)]
    return whole.over(plan, stacked(*parts))


def _branch(plan: Union, number: int, whole: Rows, rows: Rows) -> DataFrame:
    columns = [*rows.visible(), str(number)]
    if plan.key_positions is None:
        for other, branch in enumerate(plan.branches):
            for name in branch.key:
                missing = f"CAST(NULL AS {spark_type(branch.types[name]).simpleString()})"
                columns.append(rows.column(name) if other == number else missing)
    named = [f"{text} AS {place(at)}" for at, text in enumerate(columns)]
    start = timing(plan.branches[number]).own is Own.START
    times = [f"{VS if name == TS and start else name} AS {name}" for name in whole.times]
    lineage = [
        f"{name if scan in rows.scans else 'CAST(NULL AS BIGINT)'} AS {name}"
        for scan in (whole.scans if whole.way.lineage else ())
        for name in lineage_columns(scan)
    ]
    return selected(rows.frame, *named, *whole.way.scope, *times, *lineage)
