"""Negation: of v1 rows of a value on the left and v2 on the right the v1 - v2 youngest stand.

So a row stands at an instant if and only if at least as many rows of its value rank before it on the left as there are
on the right (Golab and Özsu, 2005, equation 1).
"""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as sf

from errata.engine.plans.rows import OTHER, TS, VALUE, VE, VS, Rows, chosen, lineage_of, value
from errata.language.nodes import Negation
from errata.language.times import Own

_NO, _DELTA, _AT, _NEXT, _COUNT, _WAS = "_no", "_delta", "_p", "_next", "_count", "_was"


def negated(plan: Negation, left: Rows, right: Rows) -> Rows:
    """The rows that stand, each for as long as it does."""
    whole = Rows(plan, left.frame, left.way, range(left.scans.start, right.scans.stop))
    ranked = _ranked(plan, left)
    others = right.frame.withColumn(VALUE, sf.expr(value([right.column(name) for _, name in plan.columns])))
    if left.way.at is None:
        return whole.over(plan, _standing(whole, left, right, ranked, others))
    return whole.over(plan, _standing_now(whole, left, right, ranked, others))


def _ranked(plan: Negation, left: Rows) -> DataFrame:
    """The left rows with their value and their number within it, the oldest first."""
    mine = left.frame.withColumn(VALUE, sf.expr(value([left.column(name) for name, _ in plan.columns])))
    told = [left.column(name) for name in plan.rank or ()]
    order = [*told, *(name for name in left.order if name not in told)]
    order += [VS] if left.way.at is None and VS not in order else []
    # Without any order there is one row at most.
    line = Window.partitionBy(*left.way.scope, VALUE).orderBy(*(map(sf.col, order) if order else [sf.lit(0)]))
    if left.timing.own is Own.START:
        mine = mine.withColumn(TS, sf.col(VS))
    return mine.withColumn(_NO, sf.row_number().over(line))


def _standing(whole: Rows, left: Rows, right: Rows, ranked: DataFrame, others: DataFrame) -> DataFrame:
    by = [*whole.way.scope, VALUE]
    kept = [*left.columns, *([TS] if TS in whole.times else [])]
    mine = chosen(ranked, [*by, _NO, VS, VE, *kept])
    # A row of the left that ranks before adds one, a row of the right takes one away. The row itself, counted with
    # nothing, tells where it begins.
    before = _told(ranked, by, _NO, "1", left.lineage, whole.lineage)
    against = _told(others, by, "-1", "-1", right.lineage, whole.lineage)
    # Both are brought together by value, and a union of such stays so.
    theirs = before.unionAll(against.repartition(*(f"{OTHER}{name}" for name in by)))
    parts = [f"{name} = {OTHER}{name}" for name in by]
    parts += [f"{OTHER}{_NO} <= {_NO}", f"{OTHER}{VS} < {VE}", f"{VS} < {OTHER}{VE}"]
    met = mine.join(theirs, sf.expr(" AND ".join(parts)))
    counted = f"IF({_NO} = {OTHER}{_NO}, 0, {_DELTA})"
    steps = (
        f"inline(array(struct(greatest({VS}, {OTHER}{VS}) AS {_AT}, {counted} AS {_COUNT}), "
        f"struct({OTHER}{VE} AS {_AT}, -{counted} AS {_COUNT})))"
    )
    their_lineage = [f"{OTHER}{name}" for name in whole.lineage]
    stepped = met.select(*by, _NO, VE, *kept, *their_lineage, sf.expr(steps)).filter(f"{_AT} < {VE}")
    return _pieces(whole, stepped, [*by, _NO], kept)


def _told(
    frame: DataFrame, by: list[str], number: str, delta: str, own: list[str], all_lineage: list[str]
) -> DataFrame:
    """What is counted, its columns called as the other's."""
    made = {f"{OTHER}{name}": name for name in (*by, VS, VE)}
    lineage = {f"{OTHER}{name}": name if name in own else "CAST(NULL AS BIGINT)" for name in all_lineage}
    return chosen(frame, [], **made, **{f"{OTHER}{_NO}": f"CAST({number} AS INT)", _DELTA: delta}, **lineage)


def _pieces(whole: Rows, stepped: DataFrame, row: list[str], kept: list[str]) -> DataFrame:
    """From the steps of each row's count the intervals in which it is not below nothing."""
    line = Window.partitionBy(*row).orderBy(_AT)
    running = sf.sum(_COUNT).over(line.rangeBetween(Window.unboundedPreceding, Window.currentRow))
    following = sf.lead(_AT).over(line)
    everything = line.rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing)
    met = [
        sf.expr(text.replace("(", f"({OTHER}", 1)).over(everything).alias(f"{OTHER}{name}")
        for name, text in lineage_of(whole.lineage).items()
    ]
    counted = stepped.select(*row, VE, *kept, _AT, running.alias(_COUNT), following.alias(_NEXT), *met).filter(
        f"{_NEXT} IS NULL OR {_NEXT} > {_AT}"
    )
    stands = sf.expr(f"{_COUNT} >= 0")
    changed = counted.withColumn("_stands", stands).withColumn(_WAS, sf.lag("_stands").over(line))
    turns = changed.filter(f"{_WAS} IS NULL OR {_WAS} != _stands").withColumn(_NEXT, sf.lead(_AT).over(line))
    lineage = {name: f"{OTHER}{name}" for name in whole.lineage}
    times = {VS: _AT, VE: f"coalesce({_NEXT}, {VE})"}
    return chosen(turns.filter("_stands"), [*whole.way.scope, *kept], **times, **lineage)


def _standing_now(whole: Rows, left: Rows, right: Rows, ranked: DataFrame, others: DataFrame) -> DataFrame:
    by = [*whole.way.scope, VALUE]
    merged = [sf.expr(text).alias(name) for name, text in lineage_of(right.lineage).items()]
    counts = others.groupBy(*by).agg(sf.count("*").alias(_COUNT), *merged)
    theirs = counts.select(*(sf.col(name).alias(f"{OTHER}{name}") for name in by), _COUNT, *right.lineage)
    on = " AND ".join(f"{name} = {OTHER}{name}" for name in by)
    if left.lineage:
        line = Window.partitionBy(*by).orderBy(_NO)
        upto = {name: sf.expr(text).over(line) for name, text in lineage_of(left.lineage).items()}
        ranked = ranked.withColumns(upto)
    met = ranked.join(theirs, sf.expr(on), "left").filter(f"{_NO} > coalesce({_COUNT}, 0)")
    return met.select(*left.columns, *whole.beside)
