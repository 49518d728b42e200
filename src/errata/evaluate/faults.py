"""Why a query stopped: the row and the expression, found by computing each expression alone over what it reads."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.errors import AnalysisException, SparkRuntimeException
from pyspark.sql import DataFrame

from errata.engine.failures import JOB_FAILURES, loggers_quiet, of_some_row, reason_of
from errata.engine.plans.compile import rows_of
from errata.engine.plans.rows import VE, VS, instant, quoted
from errata.engine.values import fetch
from errata.errors import ErrataError
from errata.evaluate.culprits import culprit, fails
from errata.evaluate.fallible import Fallible, Overflow, fallible
from errata.evaluate.origins import moment, named
from errata.language.expr import TIMESTAMP, sql
from errata.language.nodes import scans
from errata.language.plan import Plan, Source
from errata.model.evaluation import Fault

_PERHAPS = (AnalysisException, SparkRuntimeException)
"""What is also raised because of a row: of a pattern that is none Spark tells only when it is used."""


def find(plan: Plan, frames: Mapping[str, DataFrame], error: Exception, *, until: int) -> Fault:
    """The first expression, from the scans up, that fails for some row when nothing else is computed, and that row.

    Rows after `until` do not count. Where no expression fails by itself, or another job fails on the way, the reason is
    all that is known.
    """
    unknown = Fault(reason_of(error))
    if not of_some_row(error) and not isinstance(error, _PERHAPS):
        return unknown
    try:
        with loggers_quiet():
            return _found(plan, _counting(plan, frames, until), unknown)
    except (*JOB_FAILURES, ErrataError):
        # What is asked about is the first failure; that another one hides its cause is no news.
        return unknown


def _counting(plan: Plan, frames: Mapping[str, DataFrame], until: int) -> dict[str, DataFrame]:
    """The rows of what is read that count by then."""
    sources = {each.source.name: each.source for each in scans(plan)}
    return {
        name: frame.filter(_by(sources[name], until)) if name in sources else frame for name, frame in frames.items()
    }


def _by(source: Source, until: int) -> str:
    if source.order is None:
        return f"{VS} <= {instant(until)}"
    kind = next(each.type for each in source.fields if each.name == source.order)
    order = quoted(source.order)
    return f"{f'unix_micros({order})' if kind == TIMESTAMP else order} <= {instant(until)}"


def _found(plan: Plan, frames: Mapping[str, DataFrame], unknown: Fault) -> Fault:
    for each in fallible(plan):
        found = _in_rows(each, frames) if isinstance(each, Fallible) else _in_sums(each, frames, unknown.reason)
        if found is not None:
            return found
    return unknown


def _in_rows(found: Fallible, frames: Mapping[str, DataFrame]) -> Fault | None:
    rows = rows_of(found.over, frames)
    if not fails(rows, found):
        return None
    guilty = culprit(rows, found)
    if guilty is None:
        return None
    expr = guilty.computed.expr
    row = named(found.over, guilty.row, expr)
    return Fault(
        reason_of(guilty.error),
        sql(expr),
        guilty.computed.where,
        row=row.row,
        values=row.values,
        vs=row.vs,
        source=row.source,
        kind=row.kind,
    )


def _in_sums(found: Overflow, frames: Mapping[str, DataFrame], reason: str) -> Fault | None:
    """The first group whose sum is too large."""
    tried = found.tried
    rows = rows_of(tried, frames)
    total, count = rows.columns[-2:]
    order = [VS, *map(rows.column, tried.key)]
    large = rows.frame.filter(f"{total} IS NULL AND {count} > 0").orderBy(*order).limit(1)
    row = fetch(large.select(*rows.columns, VS, VE))
    if row.num_rows == 0:
        return None
    group = named(tried, row.rename_columns([*(each.name for each in tried.fields), VS, VE]))
    return Fault(reason, found.aggregate.name, row=group.row, vs=group.vs)


def in_words(fault: Fault, query: str, *, timed: bool = True) -> ErrataError:
    """A query's fault as a person is told of it. `timed`: whether its event time is a time."""
    if not fault.expression:
        return ErrataError(
            f"query {query} stopped: its answer cannot be worked out",
            why=fault.reason,
            how="mend the cause; if it is a row, correct it with `errata revise`, or let the query give NULL for it. "
            f"If all rows are right, `errata run --anew {query}` works it out from them alone",
        )
    return ErrataError(
        f"query {query} stopped: {fault.expression} cannot be computed{_for_what(fault, timed=timed)}",
        why=_why(fault),
        how=_how(fault, query),
    )


def _for_what(fault: Fault, *, timed: bool) -> str:
    pairs = ", ".join(f"{name}={value}" for name, value in fault.row.items())
    if fault.source:
        return f" for the row {pairs} of {fault.kind} {fault.source}"
    when = "" if fault.vs is None else f" at {moment(fault.vs) if timed else fault.vs}"
    return f" for {pairs}{when}" if pairs else when


def _why(fault: Fault) -> str:
    values = " and ".join(f"{name} is {value}" for name, value in fault.values.items())
    told = ", where ".join(part for part in (fault.where, values) if part)
    return f"{told}: {fault.reason}" if told else fault.reason


def _how(fault: Fault, query: str) -> str:
    mended = {
        "stream": f"correct the row: errata revise {fault.source} FILES",
        "relation": f"correct the row: errata revise {fault.source} FILES",
        "query": f"correct what query {fault.source} reads: errata revise STREAM FILES",
    }.get(fault.kind, "correct the rows that it is made of: errata revise STREAM FILES")
    return (
        f"{mended}; or let query {query} give NULL there (try_divide, try_cast, nullif, a CAST to a wider type), "
        "and run `errata apply`"
    )
