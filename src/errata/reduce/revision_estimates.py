"""Estimates of what corrections will make of published results, without the replay: the applied revisions that each
query's results lack, the windows that these touch, and their estimates (`reduce.approximate`). Nothing is published.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from errata.answer.catalog_view import CatalogView
from errata.answer.steps import StepKind, StepList, StepRequest
from errata.answer.unread_changes import UnreadRevisions
from errata.archive.approximations import ESTIMATED, ApproximationMethod
from errata.archive.partials import windows_of_places
from errata.catalog import commits, pins
from errata.catalog.result_archives import ResultArchive
from errata.declare.query_plans import read_plans, with_inputs
from errata.declare.site import Site
from errata.errors import UsageError
from errata.language.expr import Ref
from errata.language.nodes import WINDOW_END, WINDOW_START, Group, Projection, Scan, TimeWindow
from errata.language.plan import Plan
from errata.language.summaries import SketchKind
from errata.model.columns import Column
from errata.model.reduction import check_rate
from errata.model.stream import Stream
from errata.reduce.approximate import EstimatedValue, WindowEstimate, WindowQuestion

DEFAULT_RATE = 0.1
"""The rate of a sample, unless another is asked for."""


@dataclass(frozen=True, slots=True)
class EstimateRequest:
    """What is estimated, and from what."""

    names: Sequence[str] = ()
    """Only these queries, and what they read; all if none is named."""
    method: ApproximationMethod = ApproximationMethod.SAMPLE
    rate: float = DEFAULT_RATE


@dataclass
class EstimateReport:
    """The estimates of what is due, and what they were computed from."""

    values: list[EstimatedValue] = field(default_factory=list)
    questions: dict[str, WindowQuestion] = field(default_factory=dict)
    """The queries that were estimated."""
    passed_over: dict[str, UsageError] = field(default_factory=dict)
    """Queries that cannot be estimated, with the reason."""
    pending: dict[str, int] = field(default_factory=dict)
    """For each stream the number of corrections that are not applied yet, and not in the estimates."""
    size: int = 0
    """Bytes of buckets that were read."""
    exact_size: int = 0
    """Bytes of the buckets that a replay opens."""


def estimate_corrections(site: Site, request: EstimateRequest) -> EstimateReport:
    """Estimate the results that applied revisions have made wrong."""
    check_rate(request.rate)
    report = EstimateReport()
    with pins.hold_pin(site.catalog, commits.newest_commit(site.catalog), "estimate") as pin:
        view = CatalogView(site, pin.commit_id)
        for step in StepList(view, StepRequest(request.names, evaluates=False)).steps():
            if step.kind is StepKind.APPLY:
                of = view.standings[step.name]
                report.pending[step.name] = of.revisions - of.applied
            elif step.kind is StepKind.CORRECT and step.changes:
                try:
                    _estimate_query(view, step.name, step.changes, request, report)
                except UsageError as error:
                    report.passed_over[step.name] = error
        pin.check()
    return report


def _estimate_query(
    view: CatalogView, name: str, changes: Iterable[object], request: EstimateRequest, report: EstimateReport
) -> None:
    unread = [each for each in changes if isinstance(each, UnreadRevisions)]
    if not unread:
        raise _shape_error("what it reads is the results of another query")
    (change, *_) = unread
    question = windowed_question(name, _plan_of(view, name), change.state.stream)
    windows = _published_windows(view, question, change, view.published[name])
    work = WindowEstimate.begin(view.site, question, change.state, view.commit_id, windows)
    if request.method is ApproximationMethod.SAMPLE:
        found = work.by_sample(request.rate)
    else:
        found = work.by_parts(SketchKind(request.method.value))
    report.values += sorted(found, key=lambda each: (each.start, repr(each.group), each.column))
    report.questions[name] = question
    report.size += work.size
    report.exact_size += work.exact_size


def _published_windows(
    view: CatalogView, question: WindowQuestion, change: UnreadRevisions, basis: ResultArchive
) -> np.ndarray:
    """The starts of the windows that the revisions touch, without those that have no result yet, or lost rows."""
    starts = windows_of_places([view.revised(change).rows[question.stream.order]], question.window)
    starts = starts[starts + question.window <= basis.frontier]
    aged_to = change.state.aged_to
    return starts if aged_to is None else starts[starts >= aged_to]


def _plan_of(view: CatalogView, name: str) -> Plan:
    applied = {each: found.checked for each, found in view.queries.items()}
    declared = {each: found.query for each, found in applied.items()}
    names = with_inputs([name], {each: found.reads for each, found in applied.items()})
    return read_plans({each: found.stream for each, found in view.standings.items()}, declared, names)[name]


def windowed_question(name: str, plan: Plan, stream: Stream) -> WindowQuestion:
    """A query as a question of windows of one stream; an error that says why it is none."""
    if not isinstance(plan, Projection) or not isinstance(plan.input, Group) or not isinstance(plan.input.input, Scan):
        raise _shape_error("it is not SELECT … FROM stream GROUP BY …, window(…) alone")
    group, window = plan.input, plan.input.window
    if plan.input.input.source.name != stream.name:
        raise _shape_error("it reads another query")
    if not isinstance(window, TimeWindow) or window.size != window.slide:
        raise _shape_error("its windows are not one after the other in time")
    by = [each.name.rpartition(".")[2] for each in group.by if isinstance(each, Ref)]
    if len(by) < len(group.by):
        raise _shape_error("it groups by an expression")
    aggregates = {each.name: each for each in group.aggregates}
    plain = {*(each.name for each in group.fields), WINDOW_START, WINDOW_END} - {*aggregates}
    found: dict[str, tuple[str, Column | None]] = {}
    for output in plan.outputs:
        of = output.expr.name if isinstance(output.expr, Ref) else ""
        if of in plain:
            continue
        aggregate = aggregates.get(of)
        if aggregate is None or aggregate.distinct or aggregate.function not in ESTIMATED:
            raise _shape_error(f"{output.name} is not count, sum, avg, min or max of a column")
        argument = aggregate.argument
        if argument is not None and not isinstance(argument, Ref):
            raise _shape_error(f"{output.name} is not of a column alone")
        column = None if argument is None else stream.column(argument.name.rpartition(".")[2])
        found[output.name] = (aggregate.function, column)
    return WindowQuestion(name, stream, window.size, tuple(map(stream.column, by)), found)


def _shape_error(why: str) -> UsageError:
    return UsageError("it cannot be estimated", why=why)
