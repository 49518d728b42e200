"""Answers a query once, at an event time, over its inputs as known at a commit. Nothing is stored.

The query's text is planned against the declarations of that commit; lineage, and conditions on the order field, give
the interval of each input that the answer needs, and one plan over these scans is run by the engine that suits their
size. Streams with TABLESAMPLE are read at the rates that it means (`sampled_scans`), and aggregates over them are
estimates.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from errata.archive.scan_plan import ArchiveScan, ScanBuckets, candidate_buckets
from errata.archive.scan_reading import scan_demand
from errata.catalog import commits, pins, queries, streams
from errata.catalog.database import Catalog
from errata.catalog.streams import StreamState
from errata.declare.query_plans import read_plans, stream_sources, with_inputs
from errata.declare.site import Site, open_site
from errata.declare.warehouse import Warehouse
from errata.engine.budget import EngineDemand
from errata.engine.failures import query_errors_in_words
from errata.engine.load import current_load, spark_load
from errata.engine.plans.compile import compile_plan
from errata.engine.plans.node_rows import quote_name
from errata.engine.session import apply_settings
from errata.errors import ErrataError, UsageError, unknown_name_error
from errata.language.near_support import near_obstacle
from errata.language.plan import Plan
from errata.language.plan_text import has_timestamps
from errata.language.queries import query_source, read_names, read_one_time_query
from errata.language.rewrite import rewritten_plan
from errata.language.sampling import sampled_sources
from errata.language.scan_bounds import scan_bounds
from errata.language.source_reads import base_inputs, base_reads_at
from errata.language.summaries import SummaryForm
from errata.model.query import Query
from errata.model.reduction import SamplingRates
from errata.model.time import EVERYTHING, Interval, format_instant, parse_event_time
from errata.read.output import FrameOrTable, fetch_all
from errata.read.sampled_scans import AskedSamples, SampleReading, StreamRead, sample_readings, sampled_frame
from errata.read.stream_scan import current_horizon
from errata.reduce.estimates import EstimatedPlan
from errata.reduce.summary_sources import (
    SummaryRows,
    declared_summaries,
    read_summaries,
    record_readings,
    rows_are_read,
    summary_query,
)

_QUERY_NAME = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class OneTimeQuery:
    """A one-time query: the name of an applied query, or a text."""

    name: str | None = None
    text: str = ""
    where: str = "the query"
    """The name of the text in error messages."""
    at: str | int | None = None
    """The event time; None for the frontier."""
    as_of: str | int | None = None
    """The commit, by its number or a moment at which it was the newest; None for the newest there is."""
    with_error: bool = False
    """Whether estimates have their 95% intervals beside them."""


@dataclass(frozen=True, slots=True)
class BoundQuery:
    """A one-time query, planned as of a commit."""

    plan: Plan
    inner: Mapping[str, Plan]
    """The queries that it reads, in order of dependency."""
    bases: Mapping[str, StreamState]
    """The streams and relations at the bottom of it, in their state at the commit; sampled ones by the names that the
    plan has for them."""
    commit_id: int
    at: int
    needed_intervals: Mapping[str, Interval]
    """The interval of each base whose rows make the answer."""
    summaries: Mapping[str, SummaryForm] = field(default_factory=dict)
    """Those of the inner queries that are summaries of streams."""
    where: str = "the query"
    """The name of the text in error messages."""

    @property
    def event_time_text(self) -> str:
        """The event time in words."""
        return format_instant(self.at) if has_timestamps(self.plan) else str(self.at)

    @property
    def streams_read(self) -> dict[str, StreamRead]:
        """What is needed of each base."""
        return {name: (each, self.commit_id, self.needed_intervals[name]) for name, each in self.bases.items()}

    @property
    def aged_sources(self) -> list[str]:
        """Streams that have aged out rows which the answer would need."""
        sampled = sampled_sources(self.plan)
        return sorted(
            each.stream.name
            for name, each in self.bases.items()
            if each.aged_to is not None
            and self.needed_intervals[name].start < each.aged_to
            # Of samples, purging leaves what they read.
            and not (name in sampled and each.stream.reduced.on_read is not None)
        )

    @property
    def aged_out_warning(self) -> str:
        """The warning if there are such streams."""
        return f"rows of {', '.join(self.aged_sources)} have been aged out: the answer is of those that are left"


@dataclass(frozen=True, slots=True)
class AnswerPlan:
    """What is computed for an answer, and what is read for it."""

    asked: BoundQuery
    estimated: EstimatedPlan
    reads: Mapping[str, tuple[ArchiveScan, ScanBuckets]]
    summaries: SummaryRows
    samples: tuple[SampleReading, ...] = ()

    @property
    def columns(self) -> list[str]:
        """The answer's columns, in their order."""
        return self.estimated.columns

    @property
    def demand(self) -> EngineDemand:
        """What the answer demands of an engine."""
        some = [scan_demand(scan, found) for scan, found in self.reads.values()]
        plans = (*self.asked.inner.values(), self.estimated.plan)
        told = (*(near_obstacle(rewritten_plan(each)) for each in plans), *(each.obstacle for each in some))
        return EngineDemand(
            sum(each.rows for each in some), sum(each.size for each in some), next(filter(None, told), None)
        )

    @property
    def reduced(self) -> str | None:
        """What the answer was reduced to, in short; None if it is exact."""
        return "; ".join(each.label for each in self.samples if each.reduced) or None

    @property
    def remarks(self) -> list[str]:
        """What a reader of the answer must know."""
        read = [*(each.words for each in self.samples), *(each.words for each in self.summaries.readings)]
        return [*read, *(f"reduced: {each}" for each in self.estimated.remarks)]

    def record(self, site: Site) -> None:
        """Leave behind what was asked for, for vacuum."""
        record_readings(site, self.asked.summaries, self.asked.bases, self.summaries)
        for each in self.samples:
            each.record(site)


@dataclass(frozen=True, slots=True)
class OneTimeAnswer:
    """An answer, opened for reading."""

    plan: AnswerPlan
    rows: FrameOrTable
    pin: pins.Pin
    """Held until the reading ends; its `check` raises an error if a file that was read may have been removed."""

    @property
    def query(self) -> BoundQuery:
        return self.plan.asked


RowReader = Callable[[EngineDemand, Callable[[SparkSession], DataFrame]], FrameOrTable]
"""Makes rows on an engine that suits them."""


@dataclass(frozen=True, slots=True)
class AnswerEngines:
    """What an answer is computed with."""

    session: Callable[[], SparkSession]
    """The far engine's session."""
    read: RowReader
    load: Callable[[], float]
    """How loaded the machines are that do it."""


@contextmanager
def open_answer(site: Site, question: OneTimeQuery) -> Iterator[OneTimeAnswer]:
    """Open the answer. The commit is pinned until the block ends."""
    commit_id = commits.resolve_as_of(site.catalog, question.as_of)
    holder = f"answer of {question.name or 'a query'}"

    def read(demand: EngineDemand, made: Callable[[SparkSession], DataFrame]) -> FrameOrTable:
        return site.engines().read(demand, made)[0]

    with pins.hold_pin(site.catalog, commit_id, holder) as pin, query_errors_in_words():
        asked = bind_query(site.catalog, question, commit_id)
        plan = plan_answer(site, asked, AnswerEngines(site.session, read, current_load), question.with_error)
        rows = read(plan.demand, lambda session: answer_rows(session, site.catalog, site.warehouse, plan))
        yield OneTimeAnswer(plan, rows, pin)
        plan.record(site)


def ask_frame(
    spark: SparkSession,
    query: str,
    *,
    at: str | int | None = None,
    as_of: str | int | None = None,
    with_error: bool = False,
    project: Path | str | None = None,
) -> DataFrame:
    """The answer as a DataFrame: of a query that has been applied, by its name, or of a text.

    The DataFrame is read when it is used; the files stay for as long as the horizons of the streams tell. The session
    is brought to the rules by which answers are right: times are UTC, and what cannot be computed is an error. What
    a reduced answer was made of is a warning.
    """
    apply_settings(spark, {})
    question = replace(one_time_query(query, at, as_of), with_error=with_error)
    with open_site(Path(project) if project is not None else None) as site:
        catalog = site.catalog
        asked = bind_query(catalog, question, commits.resolve_as_of(catalog, as_of))
        if asked.aged_sources:
            warnings.warn(asked.aged_out_warning, stacklevel=3)
        engines = AnswerEngines(lambda: spark, lambda _, made: made(spark), partial(spark_load, spark))
        plan = plan_answer(site, asked, engines, with_error)
        if plan.reduced is not None:
            warnings.warn("; ".join(plan.remarks), stacklevel=3)
        rows = answer_rows(spark, catalog, site.warehouse, plan)
        plan.record(site)
        return rows.orderBy(*map(quote_name, plan.columns))


def plan_answer(site: Site, asked: BoundQuery, engines: AnswerEngines, with_error: bool) -> AnswerPlan:
    """Resolve the rates of samples, and find what is read."""
    catalog, warehouse = site.catalog, site.warehouse
    summaries = read_summaries(engines.session, catalog, warehouse, asked.plan, asked.summaries, asked.streams_read)
    sources = sampled_sources(asked.plan)
    root, load = site.project.root, engines.load
    samples = AskedSamples(asked.plan, sources, asked.streams_read, asked.at, root, asked.where, load)

    def plan(estimated: EstimatedPlan, rates: Mapping[str, SamplingRates]) -> AnswerPlan:
        reads = base_scans(catalog, asked, rates)
        return AnswerPlan(asked, estimated, reads, summaries, sample_readings(asked.plan, rates, reads))

    def pilot(estimated: EstimatedPlan, rates: Mapping[str, SamplingRates]) -> pa.Table:
        small = plan(estimated, rates)
        return fetch_all(engines.read(small.demand, lambda session: answer_rows(session, catalog, warehouse, small)))

    rates = samples.resolve(catalog, pilot)
    return plan(samples.estimated(rates, with_error=with_error), rates)


def one_time_query(query: str, at: str | int | None, as_of: str | int | None) -> OneTimeQuery:
    """A one-time query from a single argument: a name if it is one word, else a text."""
    named = _QUERY_NAME.fullmatch(query.strip()) is not None
    return OneTimeQuery(query.strip(), at=at, as_of=as_of) if named else OneTimeQuery(text=query, at=at, as_of=as_of)


def bind_query(catalog: Catalog, question: OneTimeQuery, commit_id: int) -> BoundQuery:
    """Plan the query as of the commit, and resolve the event time."""
    there = {each.stream.name: each for each in streams.stream_states(catalog, commit_id)}
    applied = {name: each.checked for name, each in queries.recorded_queries(catalog).items()}
    summaries = {name: form for name, form in declared_summaries(there.values()).items() if name not in applied}
    known = {name: each.query for name, each in applied.items()}
    known |= {name: summary_query(form) for name, form in summaries.items()}
    inputs = {name: each.reads for name, each in applied.items()}
    inputs |= {name: (form.stream.name,) for name, form in summaries.items()}
    question = _named_summary_as_text(question, summaries)
    asked = _directly_read_queries(question, known)
    names = with_inputs(asked, inputs)
    declared = {name: each.stream for name, each in there.items()}
    plans = read_plans(declared, known, names)
    if question.name is not None:
        plan = plans.pop(asked[0])
    else:
        sources = {
            **stream_sources(declared.values()),
            **{name: query_source(name, each) for name, each in plans.items()},
        }
        plan = read_one_time_query(question.text, question.where, sources, list(known))
    streams_of = {name: each.stream for name, each in sampled_sources(plan).items()}
    bases = {name: there[streams_of.get(name, name)] for name in base_inputs(plan)}
    if question.as_of is not None:
        for each in bases.values():
            commits.check_readable(catalog, commit_id, current_horizon(catalog, each), each.stream.name)
    moment = _resolve_event_time(plan, bases, question, commit_id)
    read = {name: form for name, form in summaries.items() if name in plans}
    bounds = scan_bounds([plan, *plans.values()])
    needed = {name: each & bounds.get(name, EVERYTHING) for name, each in base_reads_at(plan, moment).items()}
    return BoundQuery(plan, plans, bases, commit_id, moment, needed, read, question.where)


def base_scans(
    catalog: Catalog, asked: BoundQuery, rates: Mapping[str, SamplingRates]
) -> dict[str, tuple[ArchiveScan, ScanBuckets]]:
    """What is read of each base, and what of it is opened. Of bases that only summaries read, nothing is."""
    plans = [asked.plan, *(plan for name, plan in asked.inner.items() if name not in asked.summaries)]
    wanted = {
        name: ArchiveScan(*read, rates=rates.get(name))
        for name, read in asked.streams_read.items()
        if rows_are_read(plans, name)
    }
    return {name: (scan, candidate_buckets(catalog, scan)) for name, scan in wanted.items()}


def answer_rows(session: SparkSession, catalog: Catalog, warehouse: Warehouse, plan: AnswerPlan) -> DataFrame:
    """The rows of the answer, in no particular order."""
    asked = plan.asked
    frames = {name: sampled_frame(session, catalog, warehouse, *read) for name, read in plan.reads.items()}
    frames |= plan.summaries.frames(session)
    for name, inner in asked.inner.items():
        if name not in asked.summaries:
            frames[name] = compile_plan(rewritten_plan(inner), frames)
    rows = compile_plan(rewritten_plan(plan.estimated.plan), frames, at=asked.at)
    return rows.select(*map(quote_name, plan.columns))


def _named_summary_as_text(question: OneTimeQuery, summaries: Collection[str]) -> OneTimeQuery:
    """The question for a summary by its name as one that reads it, so that its stored parts are used."""
    found = next((name for name in summaries if name.lower() == (question.name or "").lower()), None)
    if found is None:
        return question
    return replace(question, name=None, text=" ".join(("SELECT * FROM", f"`{found}`")), where=f"summary {found}")


def _directly_read_queries(question: OneTimeQuery, known: Mapping[str, Query]) -> list[str]:
    """The queries that have to be read for it, without those that they read in turn."""
    written = {name.lower(): name for name in known}
    if question.name is not None:
        if question.name.lower() not in written:
            raise unknown_name_error("query", question.name, known)
        return [written[question.name.lower()]]
    return [written[name.lower()] for name in read_names(question.text, question.where) if name.lower() in written]


def _resolve_event_time(plan: Plan, bases: Mapping[str, StreamState], question: OneTimeQuery, commit_id: int) -> int:
    """The event time that is meant, which must not be later than the frontier: the least stable point of what is read.

    Relations have no say in the frontier. Their versions are valid until others come, which may be never.
    """
    stable = {each.stream.name: each.stable for each in bases.values() if each.stream.relation is None}
    silent = sorted(name for name, each in stable.items() if each is None)
    if silent:
        raise _no_answer_error(silent[0], question, commit_id)
    slowest = min(stable, key=lambda name: (stable[name] or 0, name))
    frontier = stable[slowest] or 0
    at = question.at
    if at is None:
        return frontier
    moment = parse_event_time(at, timed=has_timestamps(plan))
    if moment > frontier:
        shown = format_instant(frontier) if has_timestamps(plan) else str(frontier)
        raise UsageError(
            f"{at} is later than what can be answered as of commit {commit_id}",
            why=f"stream {slowest} is stable only up to {shown}: what it says of later times may still change",
            how=f"ask for {shown} or earlier, or leave --at out for that",
        )
    return moment


def _no_answer_error(stream: str, question: OneTimeQuery, commit_id: int) -> ErrataError:
    what = f"nothing can be answered yet: stream {stream} has no rows as of commit {commit_id}"
    why = "what a query says is certain up to the least stable point of the streams that it reads"
    if question.as_of is None:
        return ErrataError(what, why=why, how=f"take rows in: errata ingest {stream} FILES")
    return UsageError(what, why=why, how="ask as of a later commit; `errata log` lists them")
