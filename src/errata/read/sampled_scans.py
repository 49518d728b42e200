"""What a one-time query reads of sampled streams: the rates, the rows with their rates, and the words about it.

`AskedSamples.resolve` finds the rates before anything is opened. A reduction by error needs a pilot: the query itself
is answered at a small rate, with intervals, and its widest one says how many rows the wanted one takes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession

from errata.archive.scan import scan_rows
from errata.archive.scan_filter import sampling_hash_sql
from errata.archive.scan_plan import ArchiveScan, ScanBuckets, candidate_buckets
from errata.archive.scan_reading import BLOCKS, ORIGINAL, OVERLAYS, scan_reading
from errata.catalog.database import Catalog
from errata.catalog.streams import StreamState
from errata.declare.site import Site
from errata.declare.warehouse import Warehouse
from errata.engine.frames import with_columns
from errata.errors import UsageError, candidates_text, count_text
from errata.language.expr import STRING, Lit, literal_sql
from errata.language.plan import Plan
from errata.language.sampling import UNIT_COLUMN, SampledSource, sampled_sources
from errata.model.reduction import SamplingRates, uniform_rates
from errata.model.time import Interval
from errata.read.output import FrameOrTable
from errata.read.wording import byte_size_text
from errata.reduce import requests
from errata.reduce.estimated_groups import HIGH, LOW
from errata.reduce.estimates import EstimatedPlan, estimate_plan
from errata.reduce.functions import cut_portions
from errata.reduce.rates import (
    BY_ERROR,
    ReductionContext,
    describe_rates,
    rate_after_pilot,
    rate_for_error,
    resolve_rates,
)

PILOT_ROWS = 20_000
"""Rows that a pilot reads, about. Its intervals of counts are then within 1.4%."""
REDUCED_COLUMN = "_reduced"
"""The column of written answers that says what a reduced answer was read from."""

StreamRead = tuple[StreamState, int, Interval]
"""A stream in its state at a commit, the commit, and the interval of its rows that is needed."""
Pilot = Callable[[EstimatedPlan, Mapping[str, SamplingRates]], pa.Table]
"""Answers a plan with the streams read at some rates."""


@dataclass(frozen=True)
class AskedSamples:
    """The sampled streams that a query reads."""

    plan: Plan
    sources: Mapping[str, SampledSource]
    reads: Mapping[str, StreamRead]
    newest: int
    root: Path
    where: str
    load: Callable[[], float]
    """How loaded the machines are."""

    def resolve(self, catalog: Catalog, pilot: Pilot) -> dict[str, SamplingRates]:
        """The rates of each source; reductions by error last, when the rates of all others are known."""
        found: dict[str, SamplingRates] = {}
        later = [name for name, each in self.sources.items() if each.clause.function.lower() == BY_ERROR]
        if len(later) > 1:
            raise UsageError(
                "the error of two samples cannot be shared out",
                where=self.where,
                why=f"{' and '.join(later)} would both be as small as needed",
                how=f"take {BY_ERROR}(...) for one stream, and a rate for the other",
            )
        for name in (*(each for each in self.sources if each not in later), *later):
            context = self._context(catalog, name)
            if name in later:
                search = _PilotSearch(self, name, context.rows, pilot, dict(found))
                context = replace(context, error_rate=search.rate)
            found[name] = resolve_rates(self.sources[name].clause, context)
        return found

    def _context(self, catalog: Catalog, name: str) -> ReductionContext:
        state, commit_id, interval = self.reads[name]
        buckets = candidate_buckets(catalog, ArchiveScan(state, commit_id, interval)).base
        portions = cut_portions(buckets, interval, self.newest)
        return ReductionContext(state.stream, self.newest, portions, self.root, self.load, where=self.where)

    def estimated(self, rates: Mapping[str, SamplingRates], *, with_error: bool) -> EstimatedPlan:
        """The query's plan, with estimates where rows are left out."""
        exact = [name for name, each in rates.items() if each.exact]
        return estimate_plan(self.plan, exact, with_error=with_error, where=self.where)


@dataclass(frozen=True)
class _PilotSearch:
    """Finds the rate at which an error is met."""

    asked: AskedSamples
    name: str
    rows: int
    pilot: Pilot
    others: Mapping[str, SamplingRates]

    def rate(self, error: float, column: str | None) -> float:
        """The rate at which the widest interval of a column, or of all columns, is within the error."""
        small = PILOT_ROWS / max(self.rows, PILOT_ROWS)
        if small >= 1:
            return 1
        rates = {**self.others, self.name: uniform_rates(small)}
        if not self.asked.estimated(rates, with_error=False).estimates:
            return rate_for_error(error, self.rows)
        plan = self.asked.estimated(rates, with_error=True)
        return rate_after_pilot(error, small, widest_interval(self.pilot(plan, rates), plan.estimates, column))


def widest_interval(rows: pa.Table, estimates: Iterable[str], column: str | None) -> float:
    """The greatest relative half-width of intervals; infinite where one is not known, or its estimate is 0."""
    names = list(estimates)
    chosen = [each for each in names if column is None or each.lower() == column.lower()]
    if not chosen:
        raise UsageError(
            f"no column of the answer that is estimated is called {column}", how=candidates_text(column or "", names)
        )
    return max((_widest(rows, each) for each in chosen), default=float("inf")) if rows.num_rows else float("inf")


def _widest(rows: pa.Table, name: str) -> float:
    low, value, high = (pc.cast(rows[each], pa.float64()) for each in (f"{name}{LOW}", name, f"{name}{HIGH}"))
    width = pc.divide(pc.subtract(high, low), pc.multiply(pc.abs(value), 2.0))
    if width.null_count:
        return float("inf")
    widest = pc.max(width).as_py()
    return float("inf") if widest != widest else float(widest)  # noqa: PLR0124 - 0/0


def sampled_frame(
    session: SparkSession, catalog: Catalog, warehouse: Warehouse, scan: ArchiveScan, found: ScanBuckets
) -> DataFrame:
    """The rows of a scan; those of a sample have their rate and their unit."""
    if scan.sampled is None:
        return scan_rows(session, catalog, warehouse, scan, found)
    rows = scan_rows(session, catalog, warehouse, scan, found, with_rate=True)
    return with_columns(rows, {UNIT_COLUMN: sampling_hash_sql(scan.state.stream)})


# What the answer says.


@dataclass(frozen=True, slots=True)
class SampleReading:
    """What was read of a sampled stream."""

    source: SampledSource
    rates: SamplingRates
    scan: ArchiveScan
    found: ScanBuckets = field(repr=False)

    @property
    def reduced(self) -> bool:
        """Whether rows were left out."""
        return not self.rates.exact

    @property
    def label(self) -> str:
        """The stream and its rates in short."""
        return f"{self.source.stream} at {describe_rates(self.rates)} by {self.source.clause.text}"

    @property
    def words(self) -> str:
        """What was read, in a line."""
        if not self.reduced:
            return f"{self.source.name}: all rows were read, nothing is estimated of it"
        reading = scan_reading([self.found])
        read = ", ".join(f"{each.version} ({count_text(each.buckets, 'bucket')})" for each in reading.versions)
        size = f"{byte_size_text(reading.size)} of {byte_size_text(reading.exact_size)}"
        told = f"reduced: {self.label}; read {read or 'nothing'}, {size}"
        if not reading.saved_nothing:
            return told
        return f"{told}: it saved nothing, as there is no smaller version; `reduce:` under the stream declares copies"

    def record(self, site: Site) -> None:
        """Leave behind what was asked for, for vacuum."""
        sizes = {True: 0, False: 0}
        for each in scan_reading([self.found]).versions:
            sizes[each.version.startswith((ORIGINAL, BLOCKS, OVERLAYS))] += each.size
        requests.record(
            site,
            self.scan.state.stream_id,
            self.rates,
            self.scan.interval,
            from_copies=sizes[False],
            from_originals=sizes[True],
        )


def mark_reduced(rows: FrameOrTable, text: str) -> FrameOrTable:
    """The rows with a last column that says what a reduced answer was read from."""
    if isinstance(rows, pa.Table):
        return mark_reduced_table(rows, text)
    return with_columns(rows, {REDUCED_COLUMN: literal_sql(Lit(text, STRING))})


def mark_reduced_table(rows: pa.Table, text: str) -> pa.Table:
    """The same of rows in memory."""
    return rows.append_column(REDUCED_COLUMN, pa.repeat(pa.scalar(text), rows.num_rows))


def sample_readings(
    plan: Plan, rates: Mapping[str, SamplingRates], reads: Mapping[str, tuple[ArchiveScan, ScanBuckets]]
) -> tuple[SampleReading, ...]:
    """What is read of each sampled stream of a plan."""
    return tuple(SampleReading(each, rates[name], *reads[name]) for name, each in sampled_sources(plan).items())
