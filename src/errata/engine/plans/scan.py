"""What is read: streams, queries' results, versions of relations; and windows over streams."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame

from errata.engine.frames import having, selected
from errata.engine.near import is_near
from errata.engine.plans.rows import (
    OPEN,
    VE,
    VS,
    Rows,
    Way,
    chosen,
    instant,
    later,
    lineage_columns,
    over,
    place,
    quoted,
)
from errata.engine.plans.spelling import told_apart
from errata.language.expr import TIMESTAMP
from errata.language.nodes import Scan, Sliding, SlidingRows
from errata.language.plan import Plan, PlanError, Source
from errata.model.interval import LOWEST

_PUSHED, _STRETCH, _FIRST = "_pushed", "_stretch", "_first"

TASKS = 8
"""Tasks of Spark's from which on the end of rows by rows that follow is found in many of them. It is two to three times
the work of one task for all, in which rows are moved and sorted once."""


def scanned(plan: Scan, frame: DataFrame, way: Way, number: int, scope: tuple[str, ...]) -> Rows:
    """What a source has said; at an instant, what of it counts then."""
    rows = history(plan, frame, way, number, scope)
    if way.at is None:
        return rows
    now = instant(way.at)
    live = rows.frame.filter(f"{VS} <= {now}" if rows.timing.for_ever else f"{VS} <= {now} AND {now} < {VE}")
    return Rows(plan, live.select(*rows.columns, *rows.beside), way, rows.scans)


def history(plan: Scan, frame: DataFrame, way: Way, number: int, scope: tuple[str, ...]) -> Rows:
    """All that a source has said, with lifetimes whatever is asked for."""
    source = plan.source
    columns = [f"{quoted(plan.of_source(field.name))} AS {place(at)}" for at, field in enumerate(plan.fields)]
    named = [f"{quoted(name)} AS {inner}" for name, inner in zip(scope, way.scope, strict=True)]
    times = _lifetime(source)
    gone = [] if source.deleted is None else [f"{quoted(source.deleted)} AS _gone"]
    lineage = [f"{times[VS]} AS {each}" for each in lineage_columns(number)] if way.lineage else []
    if source.kind.is_relation:
        types = {each.name: each.type for each in source.fields}
        near = is_near(frame.sparkSession)
        thing = [*map(quoted, scope), *(told_apart(quoted(name), types[name], near=near) for name in source.key)]
        times[VE] = f"coalesce(lead({times[VS]}) {over(thing, [times[VS]])}, {OPEN})"
    lived = [f"{text} AS {name}" for name, text in times.items()]
    read = selected(frame, *columns, *named, *lived, *lineage, *gone)
    if gone:
        read = read.filter("NOT coalesce(_gone, FALSE)").drop("_gone")
    return Rows(plan, read if source.timed else read.filter(f"{VS} < {VE}"), way, range(number, number + 1))


def _lifetime(source: Source) -> dict[str, str]:
    if source.plan is not None:
        return {VS: VS, VE: VE}
    if source.order is None:
        raise PlanError("it is not known from when a row counts", where=source.name)
    kind = next(each.type for each in source.fields if each.name == source.order)
    order = quoted(source.order)
    return {VS: f"unix_micros({order})" if kind == TIMESTAMP else f"CAST({order} AS BIGINT)", VE: OPEN}


def slid(plan: Sliding, below: Rows) -> Rows:
    """Rows that count for a span only."""
    _must_have_happened(plan, below)
    at = below.way.at
    if at is not None:
        return below.over(plan, below.frame.filter(f"{VS} > {instant(max(at - plan.span, LOWEST))}"))
    ends = later(VS, plan.span)
    return below.over(plan, having(below.frame, {VE: f"least({VE}, {ends})"}))


def slid_by_rows(plan: SlidingRows, below: Rows) -> Rows:
    """Rows that count until so many have come after them."""
    _must_have_happened(plan, below)
    if below.way.at is not None:
        newest = over(below.way.scope, [f"{name} DESC NULLS LAST" for name in below.order])
        numbered = chosen(below.frame, ["*"], _newer=f"row_number() {newest}")
        return below.over(plan, numbered.filter(f"_newer <= {plan.rows}").drop("_newer"))
    oldest = [f"{name} ASC NULLS FIRST" for name in below.order]
    if _tasks(below) < TASKS:
        pushed = having(below.frame, {_PUSHED: f"lead({VS}, {plan.rows}) {over(below.way.scope, oldest)}"})
    else:
        pushed = _pushed_out_in_stretches(below, plan.rows, oldest)
    ended = having(pushed, {VE: f"least({VE}, {_PUSHED})"}).drop(_PUSHED)
    return below.over(plan, ended.filter(f"{VS} < {VE}"))


def _tasks(below: Rows) -> int:
    """In how many tasks rows are worked on together after they were moved."""
    return 1 if below.near else int(below.frame.sparkSession.conf.get("spark.sql.shuffle.partitions") or 1)


def _pushed_out_in_stretches(below: Rows, count: int, oldest: Sequence[str]) -> DataFrame:
    """The rows with the vs of the row that comes so many later in the one order of all, in many tasks.

    Rows are parted into stretches of time, equal times never. Within a stretch all rows but the last `count` find
    theirs. Those look on among the last and the first so many of every stretch: the `count` rows that follow any of
    them are all there. So the one task that has them has no more than these.
    """
    apart = below.way.scope
    parted = chosen(below.frame.repartitionByRange(VS), ["*"], **{_STRETCH: "spark_partition_id()"})
    within = over([*apart, _STRETCH], oldest)
    found = {_PUSHED: f"lead({VS}, {count}) {within}", _FIRST: f"row_number() {within}"}
    edge = f"IF({_PUSHED} IS NULL OR {_FIRST} <= {count}, -1, {_STRETCH})"
    marked = having(chosen(parted, ["*"], **found), {_STRETCH: edge}).drop(_FIRST)
    further = f"coalesce({_PUSHED}, lead({VS}, {count}) {over([*apart, _STRETCH], oldest)})"
    return having(marked, {_PUSHED: further}).drop(_STRETCH)


def _must_have_happened(plan: Plan, below: Rows) -> None:
    if not below.timing.happened:
        raise PlanError("a window needs rows that happened", where=type(plan).__name__)
