"""Why a query stopped, as a person is told of it: the row, named by the stream that it comes from, and the expression.

A row of a node that passes rows on one by one is named by the stream, relation or query that it is a row of, with that
one's key; a row made of several rows is named by the key of its node. The expression is found by computing each
fallible expression alone over the rows that it reads, see `failing_rows`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import singledispatch

import pyarrow as pa
from pyspark.errors import AnalysisException, SparkRuntimeException
from pyspark.sql import DataFrame

from errata.answer.failing_rows import (
    FallibleExpressions,
    OverflowRisk,
    any_row_fails,
    fallible_expressions,
    find_failing_row,
)
from errata.engine.failures import JOB_FAILURES, error_reason, is_row_error, quiet_loggers
from errata.engine.frames import fetch_rows
from errata.engine.plans.compile import compile_rows
from errata.engine.plans.node_rows import VE, VS, instant_sql, quote_name
from errata.errors import ErrataError
from errata.language.expr import TIMESTAMP, Expr, expr_sql, refs
from errata.language.nodes import (
    BRANCH,
    Distinct,
    Filter,
    Group,
    Intersect,
    Join,
    Negation,
    Projection,
    RelationJoin,
    Scan,
    Sliding,
    SlidingRows,
    Union,
    scans_of,
)
from errata.language.plan import Plan, PlanError, Source, SourceKind
from errata.model.columns import ColumnType, TypeKind
from errata.model.commit import Fault
from errata.model.time import format_instant

_NULL = "NULL"
_MAX_TEXT = 100
_QUALIFIED = re.compile(r"[A-Za-z]\w*\.([A-Za-z]\w*)", re.ASCII)
_BRANCH_PREFIX = re.compile(rf"{BRANCH}(?:_\d+)*(\.|$)")
"""Before the names of a union's hidden columns."""
_NUMBERED = re.compile(r"(window_(?:start|end|no))_\d+")
_KIND_NAMES = {
    SourceKind.STREAM: "stream",
    SourceKind.QUERY: "query",
    SourceKind.RETROACTIVE: "relation",
    SourceKind.NRR: "relation",
}


@dataclass(frozen=True, slots=True)
class RowDescription:
    """A row for a message: its key, and the values that an expression read."""

    row: Mapping[str, str]
    values: Mapping[str, str]
    vs: int | None
    source: str = ""
    kind: str = ""


@dataclass(frozen=True, slots=True)
class RowOrigin:
    """The scan that a node's rows come from one by one, and the names of its columns at the node."""

    scan: Scan
    columns: Mapping[str, str]


def describe_row(plan: Plan, row: pa.Table, expr: Expr | None = None) -> RowDescription:
    """Describe a row of a node, given as a table of one row. A row of a join is described by the side that the
    expression reads."""
    texts = {each.name: cell_text(row, each.name, each.type) for each in plan.fields}
    read = {name: texts[name] for name in sorted(refs(expr))} if expr is not None else {}
    vs = row.column(VS)[0].as_py()
    found = row_origin(plan, frozenset(read), texts) if read else None
    if found is None or not set(found.scan.key) <= found.columns.keys():
        return RowDescription(_visible_columns({name: texts[name] for name in plan.key}), read, vs)
    source = found.scan.source
    key = {found.scan.of_source(name): texts[found.columns[name]] for name in found.scan.key}
    order = None if source.order is None else found.columns.get(found.scan.column(source.order))
    if order is not None and source.order is not None:
        key.setdefault(source.order, texts[order])
        vs = row.column(order).cast(pa.int64())[0].as_py()
    elif len(scans_of(plan)) > 1:
        vs = None
    return RowDescription(_visible_columns(key), read, vs, source.name, _KIND_NAMES[source.kind])


def cell_text(row: pa.Table, name: str, kind: ColumnType) -> str:
    """A value of a row, as text."""
    value = row.column(name)[0]
    if not value.is_valid:
        return _NULL
    if kind.kind is TypeKind.TIMESTAMP:
        return moment_text(value.cast(pa.int64()).as_py())
    shown = str(value.cast(pa.string()).as_py())
    return shown if len(shown) <= _MAX_TEXT else f"{shown[:_MAX_TEXT]}…"


def moment_text(micros: int) -> str:
    """An instant as text, also one outside of the calendar."""
    try:
        return format_instant(micros)
    except OverflowError:
        return f"{micros} microseconds"


def _visible_columns(key: Mapping[str, str]) -> dict[str, str]:
    """Key columns without hidden parts of their names. Rows of a union have NULL in the key columns of other branches,
    which are left out."""
    visible = {
        _NUMBERED.sub(r"\1", _BRANCH_PREFIX.sub("", name)): value
        for name, value in key.items()
        if not _BRANCH_PREFIX.match(name) or value != _NULL
    }
    visible.pop("", None)
    short = [_unqualified(name) for name in visible]
    return dict(zip(short, visible.values(), strict=True)) if len(set(short)) == len(short) else visible


def _unqualified(name: str) -> str:
    found = _QUALIFIED.fullmatch(name)
    return found[1] if found else name


@singledispatch
def row_origin(plan: Plan, _read: frozenset[str], _texts: Mapping[str, str]) -> RowOrigin | None:
    """The scan that a row comes from, where the columns in `read` all come from one; None if the row was made of
    several rows. The row's values tell which branch of a union it is from."""
    raise PlanError(f"where rows of {type(plan).__name__} come from is not known")


@row_origin.register(Distinct)
@row_origin.register(Intersect)
@row_origin.register(Group)
def _(_plan: Plan, _read: frozenset[str], _texts: Mapping[str, str]) -> RowOrigin | None:
    # A row of these is made of several rows.
    return None


@row_origin.register
def _(plan: Scan, _read: frozenset[str], _texts: Mapping[str, str]) -> RowOrigin | None:
    return RowOrigin(plan, {name: name for name in plan.types})


@row_origin.register(Sliding)
@row_origin.register(SlidingRows)
@row_origin.register(Filter)
def _(plan: Sliding | SlidingRows | Filter, read: frozenset[str], texts: Mapping[str, str]) -> RowOrigin | None:
    return row_origin(plan.input, read, texts)


@row_origin.register
def _(plan: Negation, read: frozenset[str], texts: Mapping[str, str]) -> RowOrigin | None:
    return row_origin(plan.left, read, texts)


@row_origin.register
def _(plan: Projection, read: frozenset[str], texts: Mapping[str, str]) -> RowOrigin | None:
    below = {name for each in plan.outputs if each.name in read for name in refs(each.expr)}
    above = {**{name: name for name in plan.carried}, **plan.kept}
    below_texts = {name: texts[higher] for name, higher in above.items() if higher in texts}
    return _rename_origin(row_origin(plan.input, frozenset(below | (read & set(plan.carried))), below_texts), above)


@row_origin.register(Join)
@row_origin.register(RelationJoin)
def _(plan: Join | RelationJoin, read: frozenset[str], texts: Mapping[str, str]) -> RowOrigin | None:
    side = next((each for each in plan.inputs if read and read <= each.types.keys()), None)
    return None if side is None else row_origin(side, read, texts)


@row_origin.register
def _(plan: Union, read: frozenset[str], texts: Mapping[str, str]) -> RowOrigin | None:
    number = texts.get(plan.branch_column, "")
    if not number.isdigit():
        return None
    branch = plan.branches[int(number)]
    above = {mine.name: theirs.name for mine, theirs in zip(branch.visible, plan.visible, strict=True)}
    if plan.key_positions is None:
        above = {**{name: plan.key_column(int(number), name) for name in branch.key}, **above}
    below = frozenset(name for name, higher in above.items() if higher in read)
    below_texts = {name: texts[higher] for name, higher in above.items() if higher in texts}
    return _rename_origin(row_origin(branch, below, below_texts), above)


def _rename_origin(below: RowOrigin | None, above: Mapping[str, str]) -> RowOrigin | None:
    if below is None:
        return None
    return RowOrigin(below.scan, {name: above[mine] for name, mine in below.columns.items() if mine in above})


# The search for the expression and the row.


class QueryStoppedError(Exception):
    """The query stops at a row."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.reason)
        self.fault = fault


_MAYBE_ROW_ERRORS = (AnalysisException, SparkRuntimeException)
"""Errors that a row may have caused, too: Spark refuses an invalid pattern only when it is used."""


def find_fault(plan: Plan, frames: Mapping[str, DataFrame], error: Exception, *, until: int) -> Fault:
    """Find the first expression, from the scans up, that fails for some row when computed alone, and that row.

    Rows after `until` are left out. Where no expression fails alone, or a job of the search fails, the fault has only
    the reason.
    """
    unknown = Fault(error_reason(error))
    if not is_row_error(error) and not isinstance(error, _MAYBE_ROW_ERRORS):
        return unknown
    try:
        with quiet_loggers():
            return _first_fault(plan, _frames_until(plan, frames, until), unknown)
    except (*JOB_FAILURES, ErrataError):
        # The fault is the first failure; one of the search is not reported.
        return unknown


def _frames_until(plan: Plan, frames: Mapping[str, DataFrame], until: int) -> dict[str, DataFrame]:
    """The frames without rows after an instant."""
    sources = {each.source.name: each.source for each in scans_of(plan)}
    return {
        name: frame.filter(_until_condition(sources[name], until)) if name in sources else frame
        for name, frame in frames.items()
    }


def _until_condition(source: Source, until: int) -> str:
    if source.order is None:
        return f"{VS} <= {instant_sql(until)}"
    kind = next(each.type for each in source.fields if each.name == source.order)
    order = quote_name(source.order)
    return f"{f'unix_micros({order})' if kind == TIMESTAMP else order} <= {instant_sql(until)}"


def _first_fault(plan: Plan, frames: Mapping[str, DataFrame], unknown: Fault) -> Fault:
    for each in fallible_expressions(plan):
        found = (
            _fault_in_rows(each, frames)
            if isinstance(each, FallibleExpressions)
            else _fault_in_sums(each, frames, unknown.reason)
        )
        if found is not None:
            return found
    return unknown


def _fault_in_rows(found: FallibleExpressions, frames: Mapping[str, DataFrame]) -> Fault | None:
    rows = compile_rows(found.over, frames)
    if not any_row_fails(rows, found):
        return None
    guilty = find_failing_row(rows, found)
    if guilty is None:
        return None
    expr = guilty.computed.expr
    row = describe_row(found.over, guilty.row, expr)
    return Fault(
        error_reason(guilty.error),
        expr_sql(expr),
        guilty.computed.where,
        row=row.row,
        values=row.values,
        vs=row.vs,
        source=row.source,
        kind=row.kind,
    )


def _fault_in_sums(found: OverflowRisk, frames: Mapping[str, DataFrame], reason: str) -> Fault | None:
    """The first group whose sum overflows."""
    tried = found.tried
    rows = compile_rows(tried, frames)
    total, count = rows.columns[-2:]
    order = [VS, *map(rows.column, tried.key)]
    large = rows.frame.filter(f"{total} IS NULL AND {count} > 0").orderBy(*order).limit(1)
    row = fetch_rows(large.select(*rows.columns, VS, VE))
    if row.num_rows == 0:
        return None
    group = describe_row(tried, row.rename_columns([*(each.name for each in tried.fields), VS, VE]))
    return Fault(reason, found.aggregate.name, row=group.row, vs=group.vs)


def fault_error(fault: Fault, query: str, *, timed: bool = True) -> ErrataError:
    """The error that a person is shown for a fault. `timed`: whether the query's event time is a time."""
    if not fault.expression:
        return ErrataError(
            f"query {query} stopped: its answer cannot be worked out",
            why=fault.reason,
            how="mend the cause; if it is a row, correct it with `errata revise`, or let the query give NULL for it. "
            f"If all rows are right, `errata run --anew {query}` works it out from them alone",
        )
    return ErrataError(
        f"query {query} stopped: {fault.expression} cannot be computed{_row_text(fault, timed=timed)}",
        why=_reason_text(fault),
        how=_remedy_text(fault, query),
    )


def _row_text(fault: Fault, *, timed: bool) -> str:
    pairs = ", ".join(f"{name}={value}" for name, value in fault.row.items())
    if fault.source:
        return f" for the row {pairs} of {fault.kind} {fault.source}"
    when = "" if fault.vs is None else f" at {moment_text(fault.vs) if timed else fault.vs}"
    return f" for {pairs}{when}" if pairs else when


def _reason_text(fault: Fault) -> str:
    values = " and ".join(f"{name} is {value}" for name, value in fault.values.items())
    details = ", where ".join(part for part in (fault.where, values) if part)
    return f"{details}: {fault.reason}" if details else fault.reason


def _remedy_text(fault: Fault, query: str) -> str:
    mended = {
        "stream": f"correct the row: errata revise {fault.source} FILES",
        "relation": f"correct the row: errata revise {fault.source} FILES",
        "query": f"correct what query {fault.source} reads: errata revise STREAM FILES",
    }.get(fault.kind, "correct the rows that it is made of: errata revise STREAM FILES")
    return (
        f"{mended}; or let query {query} give NULL there (try_divide, try_cast, nullif, a CAST to a wider type), "
        "and run `errata apply`"
    )
