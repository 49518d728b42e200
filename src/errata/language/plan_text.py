"""A plan as text, one operator per line, and its fingerprint. Plans that differ have texts that differ."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator
from functools import singledispatch
from typing import assert_never

from errata.language.expr import Expr, Lit, expr_sql, literal_sql, walk_expr
from errata.language.nodes import (
    AGGREGATES,
    Aggregate,
    Distinct,
    Filter,
    Group,
    Intersect,
    Join,
    Negation,
    Projection,
    RelationJoin,
    RowWindow,
    Scan,
    Sliding,
    SlidingRows,
    TimeWindow,
    Union,
    scans_of,
)
from errata.language.outer_joins import OuterJoin
from errata.language.plan import Plan, PlanError, Source, cached_fact
from errata.model.columns import TypeKind
from errata.model.time import format_duration

_INDENT = "  "
_NOTE_MARK = "  -- "
_WIDEST = 78
"""Column of the notes, at most: a longer line does not move the notes of others."""
_PLAIN = re.compile(r"\w+(\.\w+)*")
_AGGREGATED = re.compile(rf"(?:{'|'.join(AGGREGATES)})\(.*\)", re.DOTALL)


def plan_tree(plan: Plan, note: Callable[[Plan], str] | None = None) -> str:
    """The plan as indented lines, the root first and each operator before its inputs; ends in a line break."""
    lines = [(_INDENT * depth + operator_text(node), node) for depth, node in _node_lines(plan, 0)]
    if note is None:
        return "".join(f"{text}\n" for text, _ in lines)
    column = max((len(text) for text, _ in lines if len(text) <= _WIDEST), default=0)
    noted = [(text, note(node)) for text, node in lines]
    return "".join(f"{text:{column}}{_NOTE_MARK}{said}\n" if said else f"{text}\n" for text, said in noted)


def _node_lines(plan: Plan, depth: int) -> Iterator[tuple[int, Plan]]:
    yield depth, plan
    for child in plan.inputs:
        yield from _node_lines(child, depth + 1)


def operator_text(plan: Plan) -> str:
    """The operator and its arguments, without its inputs."""
    return _node_text(plan) + _decimal_types(plan)


@cached_fact
def has_timestamps(plan: Plan) -> bool:
    """Whether the event time of the sources is a timestamp, not a plain number."""
    return all(scan.source.timed for scan in scans_of(plan))


def span_text(size: int, *, timed: bool) -> str:
    """A span of event time: a duration, or a plain number."""
    return format_duration(size) if timed else str(size)


@cached_fact
def fingerprint(plan: Plan) -> str:
    """Hexadecimal SHA-256 of the plan and of the declarations of all sources that it reads, also through queries."""
    sources = {scan.source.name: scan.source for scan in scans_of(plan)}
    text = plan_tree(plan) + "".join(f"{_source_text(sources[name])}\n" for name in sorted(sources))
    return hashlib.sha256(text.encode()).hexdigest()


def _source_text(source: Source) -> str:
    """A source in one line."""
    columns = ", ".join(f"{each.name} {each.type}{' hidden' if each.hidden else ''}" for each in source.fields)
    ordered = f"{source.order} {'timed' if source.timed else 'number'}"
    parts = [source.kind.value, source.name, f"({columns})", f"key ({', '.join(source.key)})", f"order {ordered}"]
    if source.deleted is not None:
        parts.append(f"deleted {source.deleted}")
    if source.plan is not None:
        parts.append(f"plan {fingerprint(source.plan)}")
    return " ".join(parts)


def expr_text(expr: Expr) -> str:
    """An expression as the text of a plan has it."""
    return expr_sql(expr, _column_text)


def _column_text(name: str) -> str:
    """A column. One whose name is the text of an expression is quoted; of an aggregate only columns have names."""
    return name if _PLAIN.fullmatch(name) or _reads_as_aggregate(name) else f"`{name}`"


def _reads_as_aggregate(name: str) -> bool:
    if not _AGGREGATED.fullmatch(name):
        return False
    depth = 0
    for place, letter in enumerate(name):
        depth += (letter == "(") - (letter == ")")
        if depth == 0 and letter == ")":
            return place == len(name) - 1
    return False


def aggregate_text(aggregate: Aggregate) -> str:
    """An aggregate as the text of a plan has it."""
    inner = "*" if aggregate.argument is None else expr_text(aggregate.argument)
    return f"{aggregate.function}({'DISTINCT ' if aggregate.distinct else ''}{inner})"


def window_text(plan: Group) -> str | None:
    """The window of a group as the text of a plan has it."""
    match plan.window:
        case TimeWindow(size=size, slide=slide, early=early):
            every = "" if slide == size else f" every {span_text(slide, timed=plan.timed)}"
            return f"window({span_text(size, timed=plan.timed)}{every}{', early' if early else ''})"
        case RowWindow(size=size, step=step):
            return f"row_window({size}{'' if step == size else f' every {step}'})"
        case None:
            return None
    assert_never(plan.window)


@singledispatch
def _node_text(plan: Plan) -> str:
    raise PlanError(f"the text of {type(plan).__name__} is not known")


@_node_text.register
def _(plan: Scan) -> str:
    source = plan.source
    kind = f"{source.kind} relation" if source.kind.is_relation else str(source.kind)
    alias = "" if plan.alias == source.name else f" as {plan.alias}"
    columns = "" if plan.columns is None else f" ({', '.join(plan.columns)})"
    return f"scan {kind} {source.name}{alias}{columns}"


@_node_text.register
def _(plan: Sliding) -> str:
    return f"sliding {span_text(plan.span, timed=has_timestamps(plan))}"


@_node_text.register
def _(plan: SlidingRows) -> str:
    return f"sliding {plan.rows} row{'' if plan.rows == 1 else 's'}"


@_node_text.register
def _(plan: Filter) -> str:
    return f"filter {expr_text(plan.predicate)}"


@_node_text.register
def _(plan: Projection) -> str:
    return f"project  {', '.join(f'{each.name} = {expr_text(each.expr)}' for each in plan.outputs)}"


@_node_text.register
def _(plan: Join) -> str:
    return "cross join" if plan.condition is None else f"join on {expr_text(plan.condition)}"


@_node_text.register
def _(plan: RelationJoin) -> str:
    return "relation join" if plan.condition is None else f"relation join on {expr_text(plan.condition)}"


@_node_text.register
def _(plan: Union) -> str:
    return "union all" if plan.number == 1 else f"union all  number {plan.number}"


@_node_text.register
def _(plan: OuterJoin) -> str:
    return f"{plan.side} outer join: union all{'' if plan.number == 1 else f'  number {plan.number}'}"


@_node_text.register
def _(_plan: Distinct) -> str:
    return "distinct"


@_node_text.register
def _(_plan: Intersect) -> str:
    return "intersect"


@_node_text.register
def _(plan: Negation) -> str:
    pairs = ", ".join(f"{_column_text(left)} = {_column_text(right)}" for left, right in plan.columns)
    rank = "" if plan.rank is None else f"  youngest by ({', '.join(map(_column_text, plan.rank))})"
    return f"negation on {pairs}{rank}"


@_node_text.register
def _(plan: Group) -> str:
    window = window_text(plan)
    by = [*map(expr_text, plan.by), *([] if window is None else [window])]
    number = "" if plan.number == 1 else f"  number {plan.number}"
    grouped = f"group by {', '.join(by)}{number}" if by else "group"
    return f"{grouped}  {', '.join(map(aggregate_text, plan.aggregates))}".rstrip()


def operator_exprs(plan: Plan) -> tuple[Expr, ...]:
    """The expressions that the operator itself evaluates."""
    match plan:
        case Filter():
            return (plan.predicate,)
        case Projection():
            return tuple(each.expr for each in plan.outputs)
        case Join() | RelationJoin():
            return () if plan.condition is None else (plan.condition,)
        case Group():
            return (*plan.by, *(each.argument for each in plan.aggregates if each.argument is not None))
        case Scan() | Sliding() | SlidingRows() | Union() | Distinct() | Intersect() | Negation():
            return ()
    raise PlanError(f"the expressions of {type(plan).__name__} are not known")


def _decimal_types(plan: Plan) -> str:
    """The types of decimal constants, all of them where the digits of one alone would be of another type."""
    constants = [each for expr in operator_exprs(plan) for each in walk_expr(expr) if isinstance(each, Lit)]
    decimals = [each for each in constants if each.type.kind is TypeKind.DECIMAL and each.value is not None]
    if all(map(_has_type_of_digits, decimals)):
        return ""
    return f"  ({', '.join(f'{literal_sql(each)}: {each.type}' for each in decimals)})"


def _has_type_of_digits(lit: Lit) -> bool:
    whole, _, fraction = literal_sql(lit).removesuffix("BD").lstrip("-").partition(".")
    digits = len(whole.lstrip("0") + fraction)
    return (lit.type.precision, lit.type.scale) == (max(digits, 1), len(fraction))
