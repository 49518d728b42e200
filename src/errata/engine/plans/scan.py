"""What is read: streams, queries' results, versions of relations; and windows over streams."""

from __future__ import annotations

from pyspark.sql import DataFrame

from errata.engine.frames import having
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
    read = frame.selectExpr(*columns, *named, *lived, *lineage, *gone)
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
    """Rows that count until so many have come after them. All of them are in one order, so one task does it."""
    _must_have_happened(plan, below)
    if below.way.at is not None:
        newest = over(below.way.scope, [f"{name} DESC NULLS LAST" for name in below.order])
        numbered = chosen(below.frame, ["*"], _newer=f"row_number() {newest}")
        return below.over(plan, numbered.filter(f"_newer <= {plan.rows}").drop("_newer"))
    oldest = over(below.way.scope, [f"{name} ASC NULLS FIRST" for name in below.order])
    ended = having(below.frame, {VE: f"least({VE}, lead({VS}, {plan.rows}) {oldest})"})
    return below.over(plan, ended.filter(f"{VS} < {VE}"))


def _must_have_happened(plan: Plan, below: Rows) -> None:
    if not below.timing.happened:
        raise PlanError("a window needs rows that happened", where=type(plan).__name__)
