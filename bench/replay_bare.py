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

from errata.archive.result_rows import feed_schema, result_schema
from errata.archive.wire import conformed
from errata.catalog import published
from errata.catalog.open import Catalog
from errata.catalog.published import Done
from errata.engine.plans.advanced import Advanced
from errata.evaluate.advance import Given, advance
from errata.evaluate.deposit import Depositor
from errata.evaluate.route import Route
from errata.evaluate.settle import Settled, Told
from errata.language.plan import Plan
from errata.model.commit import Cause
from errata.model.evaluation import Step
from errata.model.results import RUN, VS, Shape

_SETTLE = "errata.evaluate.deposit.settle"


def unsettled(new: pa.Table, _before: pa.Table, told: Told, shape: Shape) -> Settled:
    """New results as they are, by time, for queries whose results are only ever added: those that stood at the tip
    before are among them."""
    if told.covering:
        raise AssertionError("results that may yet change cannot be written without a look at published ones")
    schema = result_schema(shape)
    rows = new.filter(pc.and_(pc.greater_equal(new[VS], told.since), pc.less_equal(new[VS], told.until))).sort_by(VS)
    rows = conformed(rows.append_column(RUN, pa.repeat(pa.scalar(told.run, pa.int64()), rows.num_rows)), schema)
    tip = pc.equal(rows[VS], told.until)
    return Settled(
        rows.filter(pc.invert(tip)), schema.empty_table(), rows.filter(tip), feed_schema(shape).empty_table()
    )


class BareDepositor(Depositor):
    """Deposits results as they are in Spark's tasks, too."""

    __slots__ = ()

    def _task(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with mock.patch(_SETTLE, unsettled):
            yield from super()._task(batches)


def _committed(commit: Callable[[Catalog, Done, Cause], int], catalog: Catalog, done: Done, cause: Cause) -> int:
    return commit(catalog, replace(done, revisions={}, holds={}, serves=None), cause)


def _without_parts(plan: Plan, route: Route, step: Step, given: Given) -> Advanced:
    return advance(plan, route, step, replace(given, parts=False))


@contextmanager
def without_revisions() -> Iterator[None]:
    """Evaluations in this block have no support for revisions."""
    ours = sys.modules[__name__]
    # Workers of Spark know nothing of benchmarks.
    cloudpickle.register_pickle_by_value(ours)
    try:
        with (
            mock.patch(_SETTLE, unsettled),
            mock.patch("errata.flows.answering.evaluate.Depositor", BareDepositor),
            mock.patch("errata.flows.answering.evaluate.advance", _without_parts),
            mock.patch.object(published, "commit_evaluation", partial(_committed, published.commit_evaluation)),
        ):
            yield
    finally:
        cloudpickle.unregister_pickle_by_value(ours)
