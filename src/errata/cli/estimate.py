"""What `errata sweep --estimate` prints: estimates of corrected results, and what they were computed from."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Sequence

from errata.archive.approximations import ApproximationMethod
from errata.cli.console import print_message
from errata.declare.site import Site
from errata.errors import count_text
from errata.model.reduction import parse_rate
from errata.read.tables import TableField, TableRecord, print_records
from errata.read.wording import OutputFormat, event_time_text
from errata.reduce.approximate import EstimatedValue, WindowQuestion
from errata.reduce.revision_estimates import DEFAULT_RATE, EstimateReport, EstimateRequest, estimate_corrections

ESTIMATE_FIELDS = (
    TableField("query", "query"),
    TableField("window", "window from"),
    TableField("group", "group"),
    TableField("column", "column"),
    TableField("estimate", "estimate", right=True),
    TableField("low", "at least", right=True),
    TableField("high", "at most", right=True),
)


def print_estimates(
    site: Site, names: Sequence[str], method: ApproximationMethod, rate: str | None, kind: OutputFormat
) -> None:
    """Estimate what is due, and print it."""
    wanted = DEFAULT_RATE if rate is None else parse_rate(rate)
    report = estimate_corrections(site, EstimateRequest(names, method, wanted))
    records = [_estimate_record(each, report.questions[each.query]) for each in report.values]
    if records or kind is not OutputFormat.TABLE:
        print_records(ESTIMATE_FIELDS, records, records, kind, sys.stdout)
    for line in _estimate_lines(report, method):
        print_message(line)


def _estimate_record(each: EstimatedValue, question: WindowQuestion) -> TableRecord:
    group = ", ".join(
        f"{column.name} {'NULL' if value is None else value}"
        for column, value in zip(question.group, each.group, strict=True)
    )
    return {
        "query": each.query,
        "window": event_time_text(each.start, timed=question.stream.timed),
        "group": group,
        "column": each.column,
        **{name: _number(value) for name, value in (("estimate", each.value), ("low", each.low), ("high", each.high))},
    }


def _number(value: float) -> float | None:
    """NaN is no value: there are no rows."""
    return None if math.isnan(value) else value


def _estimate_lines(report: EstimateReport, method: ApproximationMethod) -> Iterator[str]:
    if report.values:
        certain = "95% intervals" if method is ApproximationMethod.SAMPLE else "bounds that hold"
        read = f"{report.size:,} bytes read of the {report.exact_size:,} that a replay opens"
        yield f"estimated by {method.value}, {certain}: {read}; nothing was published"
    elif not report.passed_over:
        yield "no published result needs to be corrected by what has been applied"
    for name, error in report.passed_over.items():
        yield f"{name} is not estimated: {error.what}" + (f", since {error.why}" if error.why else "")
        if error.how:
            yield f"  {error.how}"
    for name, count in report.pending.items():
        some = count_text(count, "correction or late row", "corrections or late rows")
        yield f"{name}: {some} pending and not in the estimates; `errata revise` applies them"
