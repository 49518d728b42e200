"""Distinct and intersection: each value once, for as long as there is any of it."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame

from errata.engine.frames import grouped_by, joined
from errata.engine.plans.lifetimes import islands
from errata.engine.plans.rows import OPEN, OTHER, VALUE, VE, VS, Rows, chosen, lineage_of, place, value
from errata.language.nodes import Distinct, Intersect


def distinct(plan: Distinct, below: Rows) -> Rows:
    """Each combination of visible columns once."""
    columns = {place(at): text for at, text in enumerate(below.values())}
    frame = chosen(below.frame, below.beside, **columns)
    return below.over(plan, _once(below, frame, [*below.way.scope, *columns]))


def _once(below: Rows, frame: DataFrame, by: Sequence[str]) -> DataFrame:
    """Each combination of columns once, with its lifetimes if the whole history is asked for."""
    merged = lineage_of(below.lineage)
    if below.way.at is None and not below.timing.for_ever:
        return islands(frame, by, below.lineage)
    if below.way.at is None:
        merged = {VS: f"min({VS})", VE: OPEN, **merged}
    aggregates = [f"{text} AS {name}" for name, text in merged.items()]
    return grouped_by(frame, by, aggregates) if aggregates else frame.select(*by).distinct()


def intersection(plan: Intersect, left: Rows, right: Rows) -> Rows:
    """Each combination of visible columns once, while both sides have it."""
    whole = Rows(plan, left.frame, left.way, range(left.scans.start, right.scans.stop))
    by = [*left.way.scope, VALUE]
    mine, theirs = (
        _once(rows, chosen(rows.frame, rows.beside, **{VALUE: value(rows.values())}), by) for rows in (left, right)
    )
    parts = [f"{name} = {OTHER}{name}" for name in by]
    times = {}
    if left.way.at is None:
        parts += [f"{VS} < {OTHER}{VE}", f"{OTHER}{VS} < {VE}"]
        times = {VS: f"greatest({VS}, {OTHER}{VS})", VE: f"least({VE}, {OTHER}{VE})"}
    renamed = chosen(theirs, right.lineage, **{f"{OTHER}{name}": name for name in (*by, *times)})
    found = joined(mine, renamed, " AND ".join(parts))
    unpacked = {place(at): f"{VALUE}.v{at}" for at in range(len(plan.fields))}
    return whole.over(plan, chosen(found, [*left.way.scope, *whole.lineage], **unpacked, **times))
