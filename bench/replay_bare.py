"""An evaluation without support for revisions, for comparison: the same results of the same queries into the same
archive, and nothing that a revision may one day need.

Errata has no such switch. What is left out here: to lay new results against published ones, the records of changes, the
partial aggregates of windows that have closed, and the positions up to which streams have been consumed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from unittest import mock

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import cloudpickle

from errata.answer.advance import StepInput, advance
from errata.answer.publication import RowsByRole, StepContext
from errata.answer.result_sink import ResultSink
from errata.archive.schemas import conform, feed_schema, result_schema
from errata.catalog import result_archives
from errata.catalog.database import Catalog
from errata.catalog.result_archives import EvaluationCommit
from errata.engine.plans.node_rows import AdvanceResult
from errata.language.plan import Plan
from errata.language.route import Route
from errata.model.commit import Cause, EvaluationSpan
from errata.model.results import EVALUATION, VS, ResultShape

_SETTLE = "errata.answer.result_sink.settle_results"


def unsettled(new: pa.Table, _before: pa.Table, told: StepContext, shape: ResultShape) -> RowsByRole:
    """New results as they are, by time, for queries whose results are only ever added: those that stood at the tip
    before are among them."""
    if told.covering:
        raise AssertionError("results that may yet change cannot be written without a look at published ones")
    schema = result_schema(shape)
    rows = new.filter(pc.and_(pc.greater_equal(new[VS], told.since), pc.less_equal(new[VS], told.until))).sort_by(VS)
    rows = conform(rows.append_column(EVALUATION, pa.repeat(pa.scalar(told.run, pa.int64()), rows.num_rows)), schema)
    tip = pc.equal(rows[VS], told.until)
    return RowsByRole(
        rows.filter(pc.invert(tip)), schema.empty_table(), rows.filter(tip), feed_schema(shape).empty_table()
    )


class BareDepositor(ResultSink):
    """Deposits results as they are in Spark's tasks, too."""

    __slots__ = ()

    def _task(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with mock.patch(_SETTLE, unsettled):
            yield from super()._task(batches)


def _committed(
    commit: Callable[[Catalog, EvaluationCommit, Cause], int], catalog: Catalog, done: EvaluationCommit, cause: Cause
) -> int:
    return commit(catalog, replace(done, revisions={}, consumed={}, table_update=None), cause)


def _without_parts(plan: Plan, route: Route, step: EvaluationSpan, given: StepInput) -> AdvanceResult:
    return advance(plan, route, step, replace(given, keeps_windows=False))


@contextmanager
def without_revisions() -> Iterator[None]:
    """Evaluations in this block have no support for revisions."""
    ours = sys.modules[__name__]
    # Workers of Spark know nothing of benchmarks.
    cloudpickle.register_pickle_by_value(ours)
    try:
        with (
            mock.patch(_SETTLE, unsettled),
            mock.patch("errata.answer.evaluation.ResultSink", BareDepositor),
            mock.patch("errata.answer.evaluation.advance", _without_parts),
            mock.patch.object(
                result_archives, "commit_evaluation", partial(_committed, result_archives.commit_evaluation)
            ),
        ):
            yield
    finally:
        cloudpickle.unregister_pickle_by_value(ours)
