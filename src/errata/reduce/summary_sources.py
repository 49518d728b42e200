"""Summaries as inputs of one-time queries.

To the language a summary is a query of its name (`SummaryForm.text`), so it is planned, and its event time is checked,
like any other that is read. Only its rows do not come from that plan: they are put together from stored parts
(`reduce.summaries`), and handed to the engine as a table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from errata.archive.summary_parts import cached_forms
from errata.catalog.database import Catalog
from errata.catalog.streams import StreamState
from errata.declare.site import Site
from errata.declare.warehouse import Warehouse
from errata.engine.frames import arrow_ddl, frame_of_rows
from errata.language.nodes import scans_of
from errata.language.plan import Plan
from errata.language.rewrite import rewritten_plan
from errata.language.summaries import SummaryForm
from errata.model.query import Query
from errata.model.reduction import SummaryTrigger
from errata.model.time import Interval
from errata.reduce import requests
from errata.reduce.sketches import SketchReader
from errata.reduce.summaries import SummaryReading, plan_summary, read_summary_rows


@dataclass(frozen=True, slots=True)
class SummaryRows:
    """The rows of the summaries that a query reads, and what was read for them."""

    tables: Mapping[str, pa.Table] = field(default_factory=dict)
    """By the name of the summary."""
    readings: tuple[SummaryReading, ...] = ()

    @property
    def rows(self) -> int:
        return sum(each.num_rows for each in self.tables.values())

    @property
    def size(self) -> int:
        """Bytes in memory."""
        return sum(each.nbytes for each in self.tables.values())

    def frames(self, session: SparkSession) -> dict[str, DataFrame]:
        """The rows as frames of a session."""
        return {name: frame_of_rows(session, rows, arrow_ddl(rows.schema)) for name, rows in self.tables.items()}


NO_SUMMARIES = SummaryRows()


def declared_summaries(states: Iterable[StreamState]) -> dict[str, SummaryForm]:
    """The summaries of streams, by name."""
    return {form.name: form for each in states for form in cached_forms(each.stream)}


def summary_query(form: SummaryForm) -> Query:
    """A summary as the query that it means."""
    return Query(form.name, f"summary {form.name}", form.text)


def rows_are_read(plans: Iterable[Plan], name: str) -> bool:
    """Whether some of the plans read a source themselves."""
    return any(scan.source.name == name for plan in plans for scan in scans_of(plan))


def read_summaries(
    session: Callable[[], SparkSession],
    catalog: Catalog,
    warehouse: Warehouse,
    plan: Plan,
    forms: Mapping[str, SummaryForm],
    reads: Mapping[str, tuple[StreamState, int, Interval]],
) -> SummaryRows:
    """The rows of the summaries that a plan reads. `reads`: of each stream its state, the commit, and the interval of
    its rows that the answer needs."""
    tables, readings = {}, []
    wanted = _columns_read(plan)
    for name, form in forms.items():
        if name in wanted:
            scan = plan_summary(catalog, form, *reads[form.stream.name])
            rows, reading = read_summary_rows(session, catalog, warehouse, scan)
            if form.sketches:
                names = wanted[name]
                columns = form.declaration.aggregates if names is None else names
                reader = SketchReader(session, catalog, warehouse)
                rows = reader.with_estimates(scan, reading.windows, rows, columns)
            tables[name] = rows
            readings.append(reading)
    return SummaryRows(tables, tuple(readings))


def _columns_read(plan: Plan) -> dict[str, set[str] | None]:
    """By source: the columns that a plan reads of it; None for all."""
    found: dict[str, set[str] | None] = {}
    for scan in scans_of(rewritten_plan(plan)):
        known = found.get(scan.source.name, set())
        found[scan.source.name] = None if scan.columns is None or known is None else known | {*scan.columns}
    return found


def record_readings(
    site: Site, forms: Mapping[str, SummaryForm], states: Mapping[str, StreamState], of: SummaryRows
) -> None:
    """Leave behind which lazy summaries have been read, for vacuum."""
    for reading in of.readings:
        form = forms[reading.name]
        if form.declaration.when is SummaryTrigger.READ:
            stream_id = states[form.stream.name].stream_id
            requests.record_summary(site, stream_id, form.name, reading.interval, reading.parts_size, reading.rows_size)
