"""Where the rows lie that the conditions of plans leave of a source: bounds on its order field.

    Filter time >= TIMESTAMP '2026-11-18 02:00:00' AND price > 3
      Scan quotes                                                     [2026-11-18 02:00, …)

Only conditions that stand directly over a scan count, which is where `rewrite` puts them. So a scan of these places
alone has the same rows above its conditions, and the index leaves out the buckets of all others. A source that is
scanned several times is bounded by the hull of all. Bounds may be wider than the conditions, never narrower.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from datetime import UTC, date, datetime, time

from errata.language.expr import EQUAL, SAME, SHIFT, Call, Expr, Lit, Ref, conjuncts
from errata.language.nodes import Filter, Scan
from errata.language.plan import Plan, SourceKind
from errata.language.rewrite import rewritten_plan
from errata.model.time import EVERYTHING, HIGHEST, LOWEST, Interval, hull, to_micros

_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", EQUAL: EQUAL, SAME: SAME}


def scan_bounds(plans: Iterable[Plan]) -> dict[str, Interval]:
    """By name of each stream that the plans scan: where the rows begin that their conditions leave."""
    found: defaultdict[str, list[Interval]] = defaultdict(list)
    waiting: list[tuple[Plan, tuple[Expr, ...]]] = [(rewritten_plan(each), ()) for each in plans]
    while waiting:
        plan, conditions = waiting.pop()
        if isinstance(plan, Scan):
            found[plan.source.name].append(_bounds(plan, conditions))
        elif isinstance(plan, Filter):
            waiting.append((plan.input, (*conditions, *conjuncts(plan.predicate))))
        else:
            waiting += [(each, ()) for each in plan.inputs]
    return {name: hull(each for each in bounds if not each.empty) for name, bounds in found.items()}


def _bounds(scan: Scan, conditions: Iterable[Expr]) -> Interval:
    """What conditions over a scan of a stream say of its order field."""
    bounds = EVERYTHING
    if scan.source.kind is SourceKind.STREAM and scan.source.order is not None:
        order = scan.column(scan.source.order)
        for each in conditions:
            bounds &= _bounds_of_comparison(each, order)
    return bounds


def _bounds_of_comparison(condition: Expr, order: str) -> Interval:
    if not isinstance(condition, Call) or condition.name not in _MIRRORED:
        return EVERYTHING
    name, (left, right) = condition.name, condition.args
    if isinstance(right, Ref):
        name, left, right = _MIRRORED[name], right, left
    if not isinstance(left, Ref) or left.name != order or (place := _place(right)) is None:
        return EVERYTHING
    start = {"<": LOWEST, "<=": LOWEST, ">": place + 1}.get(name, place)
    end = {">": HIGHEST, ">=": HIGHEST, "<": place}.get(name, place + 1)
    return Interval(start, end)


def _place(expr: Expr) -> int | None:
    """The place that a constant is, of a date its midnight; None if it is no whole one, or beyond all places."""
    place: int | None = None
    match expr:
        case Lit(int(value)):
            place = value
        case Lit(date() as day):
            place = to_micros(datetime.combine(day, time(), UTC))
        case Call(name, (moved, Lit(int(by)))) if name == SHIFT:
            start = _place(moved)
            place = None if start is None else start + by
    return place if place is not None and LOWEST < place < HIGHEST else None
