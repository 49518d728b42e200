"""How each aggregate is told from what is kept: parts that rows are added to and, where they cease to count, taken away
from, so that what is left is what the rows that are left would make. Whole numbers and decimals are added up exactly.
"""

from __future__ import annotations

from collections.abc import Iterable

from errata.engine.plans.partial_doubles import product, spread_of_doubles, sum_of_finite
from errata.engine.plans.partial_kept import INFINITE, NAN, NEGATED_EXACTLY, OWN, Kept, Part
from errata.language.expr import BIGINT, sql
from errata.language.nodes import Aggregate
from errata.language.partial import AVERAGED, FLOATING, WHOLE, PartialGroup
from errata.model.columns import ColumnType, Kind


def kept_of(found: PartialGroup) -> Kept:
    """What has to be kept for a group."""
    below = found.node.input
    types = [BIGINT, *(below.types[name] for name in below.key)]
    order = {f"_o{number}": str(each) for number, each in enumerate(types)}
    kept = Kept(found.span is None, order, corrected=not found.covering)
    if kept.taken:
        kept.live = kept.part("1L")
    for number, aggregate in enumerate(found.node.aggregates):
        kept.results[f"_r{number}"] = _result(kept, aggregate, found.node.aggregates)
    return kept


def _result(kept: Kept, aggregate: Aggregate, others: Iterable[Aggregate]) -> str:
    if aggregate.argument is None:
        return kept.part("1L")
    of, kind, function = kept.argument(aggregate.argument), aggregate.argument.type, aggregate.function
    if function in ("first", "last"):
        return _end(kept, aggregate, others)
    if function in ("min", "max"):
        return (kept.part if kept.for_ever else kept.extreme)(of, function, str(kind))
    if function == "count":
        return kept.count(of)
    results = {"sum": _sum, "avg": _average, "stddev": _spread}
    return results[function](kept, of, kind, aggregate.type)


def _end(kept: Kept, aggregate: Aggregate, others: Iterable[Aggregate]) -> str:
    """The first or the last row's value; all values of that row are kept together, after what it goes by."""
    texts = {sql(each.argument): each.argument for each in others if _alike(each, aggregate) and each.argument}
    columns = {**kept.order, **{kept.argument(each): str(each.type) for each in texts.values()}}
    fields = ", ".join(f"v{place}: {kind}" for place, kind in enumerate(columns.values()))
    # Where a whole struct can be NULL, Arrow wants that of all its parts.
    row = ", ".join(f"'v{place}', IF({OWN} IS NULL, NULL, {name})" for place, name in enumerate(columns))
    total = "min" if aggregate.function == "first" else "max"
    part = kept.made(Part(f"named_struct({row})", f"STRUCT<{fields}>", total=total, ranked=len(kept.order)))
    mine = len(kept.order) + (list(texts).index(sql(aggregate.argument)) if aggregate.argument is not None else 0)
    return f"named_struct('v', {part}.v{mine})"


def _alike(one: Aggregate, other: Aggregate) -> bool:
    return one.function == other.function


def _exact(kept: Kept, of: str, kind: ColumnType) -> str:
    """The sum of whole numbers or decimals."""
    wide = kind.kind is Kind.DECIMAL and kind.precision > NEGATED_EXACTLY
    exact = f"DECIMAL(38,{kind.scale})"
    return kept.some(f"CAST({of} AS {exact})", of, exact, scale=kind.scale if wide else None)


def _sum(kept: Kept, of: str, kind: ColumnType, to: ColumnType) -> str:
    if kind.kind in FLOATING:
        return _sum_of_doubles(kept, of)
    return _if_any(kept, of, f"CAST({_exact(kept, of, kind)} AS {str(to).upper()})")


def _if_any(kept: Kept, of: str, text: str) -> str:
    """Of no values there is none; where none is taken away, a sum knows that by itself."""
    return text if not kept.taken else f"IF({kept.count(of)} > 0, {text}, NULL)"


def _average(kept: Kept, of: str, kind: ColumnType, to: ColumnType) -> str:
    count = kept.count(of)
    if kind.kind in FLOATING:
        return f"{_sum_of_doubles(kept, of)} / nullif({count}, 0L)"
    whole = _exact(kept, of, kind)
    if kind.kind is Kind.DECIMAL:
        # The near engine cuts a quotient off after four more digits: a fifth tells which way the fourth is rounded.
        more = 1 if kind.precision <= AVERAGED else 0
        digits = min(kind.precision + 10 + more, 38)
        whole = f"CAST({whole} AS DECIMAL({digits},{kind.scale + more}))"
        return f"CAST({whole} / CAST(nullif({count}, 0L) AS DECIMAL(20,0)) AS {str(to).upper()})"
    return f"CAST({whole} AS DOUBLE) / nullif({count}, 0L)"


def _sum_of_doubles(kept: Kept, of: str) -> str:
    number = f"CAST({of} AS DOUBLE)"
    if kept.for_ever:
        if kept.corrected:
            sizes, traces = (kept.some(f"abs({number})", of, "DOUBLE", ever=ever) for ever in (False, True))
            kept.traced(of, sizes, traces, f"{kept.count(of)} > 0", sizes)
        return _if_any(kept, of, kept.some(number, of, "DOUBLE"))
    of = number
    up = kept.part(f"IF(isnan({of}) OR {of} = {INFINITE}, 1L, 0L)")
    down = kept.part(f"IF(isnan({of}) OR {of} = -{INFINITE}, 1L, 0L)")
    finite = sum_of_finite(kept, [of]).text
    return (
        f"CASE WHEN {kept.count(of)} <= 0 THEN NULL WHEN {up} > 0 AND {down} > 0 THEN {NAN} "
        f"WHEN {up} > 0 THEN {INFINITE} WHEN {down} > 0 THEN -{INFINITE} ELSE {finite} END"
    )


def _spread(kept: Kept, of: str, kind: ColumnType, _to: ColumnType) -> str:
    return _spread_of_whole(kept, of) if kind.kind in WHOLE else spread_of_doubles(kept, of)


def _spread_of_whole(kept: Kept, of: str) -> str:
    """The standard deviation of whole numbers: exact but for the last two steps."""
    count = kept.count(of)
    plain = f"CAST({of} AS DECIMAL(10,0))"
    rows = (f"CAST({of} AS DECIMAL(38,0))", f"CAST({plain} * {plain} AS DECIMAL(38,0))")
    once, squares = (kept.some(row, of, "DECIMAL(38,0)") for row in rows)
    exact = f"{product(f'CAST({count} AS DECIMAL(20,0))', squares)} - {product(once, once)}"
    rough = f"CAST({squares} AS DOUBLE) * {count} - CAST({once} AS DOUBLE) * CAST({once} AS DOUBLE)"
    return f"IF({count} > 1, sqrt(coalesce(CAST({exact} AS DOUBLE), {rough}) / {count} / ({count} - 1)), NULL)"
