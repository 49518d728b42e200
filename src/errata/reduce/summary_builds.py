"""Parts of summaries built by vacuum for buckets that have none: of summaries declared after their rows had come, of
lazy ones once readers have asked for them, and all sketches. Parts of definitions that are no longer declared leave.

    plan      index only: which base buckets lack which parts, which parts follow no declaration
    build     some buckets at a time: read their rows, write their parts
    commit    the parts of these buckets, if the buckets are still visible; else what was written is thrown away

Each commit is a whole step, and the plan follows from the index alone: a run that was killed is simply run again, and
one that another writer has overtaken plans what is left anew. A pin keeps the files that are read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

import pyarrow as pa

from errata.archive.bucket_frames import batches_by_bytes, run_tasks
from errata.archive.overlays import BucketSource, bucket_sources
from errata.archive.schemas import conform
from errata.archive.summary_parts import (
    cached_forms,
    digest_of,
    in_process_digests,
    parts_by_original,
    store_row_parts,
)
from errata.archive.task_reports import bucket_from_row, bucket_report, report_schema
from errata.catalog import buckets
from errata.catalog.reduced_commits import commit_reduced
from errata.catalog.streams import StreamState
from errata.catalog.transaction import give_up, optimistic
from errata.declare.site import ProgressCallback, Site, pinned_stream
from errata.declare.warehouse import Warehouse
from errata.engine.failures import spark_errors_in_words
from errata.errors import count_text
from errata.intake.types import arrow_schema
from errata.language.summaries import SummaryForm
from errata.model.bucket import MAX_INLINE_STREAM_BYTES, Bucket, NewBucket, Role
from errata.model.reduction import SummaryTrigger
from errata.model.reduction_request import ReductionRequest, RequestMethod
from errata.reduce import requests
from errata.reduce.sketches import build_sketches
from errata.reduce.versions import DEMAND_MEMORY

BUILD_BYTES = 256 * 1024 * 1024
"""Bytes of base buckets whose parts are built and committed together."""


@dataclass(frozen=True, slots=True)
class SummaryWork:
    """What vacuum would do for the parts of one definition."""

    form: SummaryForm
    digest: str
    missing: Sequence[Bucket]
    """Base buckets whose parts are built."""
    parts: Sequence[Bucket] = ()
    """Those that there are."""

    @property
    def sketched(self) -> bool:
        """Whether the parts are sketches."""
        return self.digest == self.form.sketch_digest

    @property
    def bytes_read(self) -> int:
        return sum(each.size for each in self.missing)


@dataclass(frozen=True, slots=True)
class SummaryPlan:
    """What vacuum would do for the summaries of a stream."""

    state: StreamState
    work: Sequence[SummaryWork]
    undeclared: Sequence[Bucket]
    """Parts that follow no declaration."""
    asked: Sequence[ReductionRequest] = ()

    @property
    def is_empty(self) -> bool:
        return not self.undeclared and not any(each.missing for each in self.work)


@dataclass
class SummaryBuildReport:
    """What a run has done for the summaries of a stream."""

    stream: str
    built: int = 0
    built_bytes: int = 0
    bytes_read: int = 0
    dropped: int = 0
    commits: list[int] = field(default_factory=list)


def plan_summaries(site: Site, name: str) -> SummaryPlan:
    """What there is to do, from the index and from what readers asked for."""
    with pinned_stream(site, name, "planning summaries of") as state:
        return _plan_for(site, state)


def _plan_for(site: Site, state: StreamState) -> SummaryPlan:
    """The same for a stream whose state is pinned."""
    catalog = site.catalog
    at = (catalog, state.stream_id, state.changed_in)
    stored = buckets.visible_buckets(*at, role=Role.SUMMARY)
    forms = cached_forms(state.stream)
    if not forms:
        return SummaryPlan(state, [], stored)
    base = buckets.visible_buckets(*at)
    asked = requests.pending(catalog, state.stream_id, RequestMethod.SUMMARY)
    work: dict[str, SummaryWork] = {}
    for form in forms:
        wanted = _wanted_buckets(form, base, asked, catalog.clock.now())
        for digest in (*in_process_digests(form), *([form.sketch_digest] if form.sketches else [])):
            there = parts_by_original(stored, digest)
            missing = [each for each in wanted if each.bucket_id not in there]
            if digest in work:  # two summaries of equal parts, of which one may be lazy
                known = {each.bucket_id for each in work[digest].missing}
                missing = [*work[digest].missing, *(each for each in missing if each.bucket_id not in known)]
            work[digest] = SummaryWork(form, digest, missing, list(there.values()))
    return SummaryPlan(state, list(work.values()), [each for each in stored if digest_of(each) not in work], asked)


def build_summaries(
    site: Site, name: str, on_step: ProgressCallback = lambda _: None, batch_bytes: int = BUILD_BYTES
) -> SummaryBuildReport:
    """Do what there is to do for a stream."""
    report = SummaryBuildReport(name)

    def attempt(_: int) -> SummaryBuildReport:
        with pinned_stream(site, name, "summarising") as state, spark_errors_in_words():
            plan = _plan_for(site, state)
            _carry_out(site, plan, report, on_step, batch_bytes)
        if plan.asked:
            requests.settle(site.catalog, state.stream_id, plan.asked)
        return report

    # What has been committed stays, and is not planned again.
    what = f"writer changed the archive of {name} first; the parts of summaries built so far stay"
    return optimistic(attempt, give_up(what, "run vacuum again"))


def _carry_out(
    site: Site, plan: SummaryPlan, report: SummaryBuildReport, on_step: ProgressCallback, batch_bytes: int
) -> None:
    """Drop what is not declared any more, and build what is missing, some buckets at a time."""
    name = report.stream
    if plan.undeclared:
        on_step(f"dropping parts of summaries of {name} that are no longer declared")
        report.commits.append(_commit(site, plan.state, [], plan.undeclared))
        report.dropped += len(plan.undeclared)
    for each in plan.work:
        for some in batches_by_bytes(each.missing, lambda bucket: bucket.size, batch_bytes):
            on_step(f"summarising {name}: {each.form.name}, {count_text(report.built, 'part')} built")
            _build(site, plan.state, each, some, report)


def _wanted_buckets(
    form: SummaryForm, base: Sequence[Bucket], asked: Sequence[ReductionRequest], now: int
) -> list[Bucket]:
    """The base buckets that should have the parts of a summary."""
    if form.declaration.when is SummaryTrigger.APPEND:
        return list(base)
    intervals = [
        each.asked.interval
        for each in asked
        if each.asked.summary == form.name and (each.readers or (each.settled_at or 0) + DEMAND_MEMORY > now)
    ]
    return [each for each in base if any(one.meets(each.vs_min, each.vs_max) for one in intervals)]


def _build(site: Site, state: StreamState, of: SummaryWork, some: Sequence[Bucket], report: SummaryBuildReport) -> None:
    inline = state.inline_bytes < MAX_INLINE_STREAM_BYTES // 2
    build = partial(build_sketches, site, of.form) if of.sketched else partial(build_row_parts, site, of)
    written = build(some, inline=inline)
    with site.discard_on_conflict(each for each, _ in written):
        report.commits.append(_commit(site, state, written, []))
    report.built += len(written)
    report.built_bytes += sum(each.size for each, _ in written)
    report.bytes_read += sum(each.size for each in some)


def _commit(site: Site, state: StreamState, added: Sequence[tuple[NewBucket, int]], removed: Sequence[Bucket]) -> int:
    summary = {
        "built_buckets": len(added),
        "built_bytes": sum(each.size for each, _ in added),
        "dropped_buckets": len(removed),
    }
    return commit_reduced(site.catalog, state.stream_id, added, removed, site.caused_by("vacuum"), summary)


def build_row_parts(
    site: Site, of: SummaryWork, some: Sequence[Bucket], *, inline: bool
) -> list[tuple[NewBucket, int]]:
    """The exact parts of base buckets, or their approximations, written, each with the id of its bucket."""
    sources = tuple(bucket_sources(site.catalog, some))
    task = partial(_write_parts, of.form, of.digest, site.warehouse, sources, inline)
    size = sum(each.size for each in some)
    reports = run_tasks(site.session, size, len(sources), task, report_schema())
    return [(bucket_from_row(row), some[row["slot"]].bucket_id) for row in reports.to_pylist()]


def _write_parts(
    form: SummaryForm,
    digest: str,
    warehouse: Warehouse,
    sources: Sequence[BucketSource],
    inline: bool,
    tasks: Iterable[int],
) -> Iterator[pa.RecordBatch]:
    schema = pa.schema([arrow_schema(form.stream).field(name) for name in form.columns_read])
    for number in tasks:
        source = sources[number]
        rows = conform(source.read(warehouse, schema.names), schema)
        yield bucket_report(number, store_row_parts(form, digest, warehouse, rows, source.bucket, inline=inline))
