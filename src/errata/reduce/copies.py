"""Vacuum of copies: what is missing is built, copies that readers want smaller are shrunk from themselves, and what
nobody wants leaves.

    plan      `copy_plan`, from the index and from what readers asked for
    build     some buckets at a time: read the smallest version that has all rows, write the copies
    commit    these copies and the removal of those that they replace, if the originals are still visible
    settle    when all is done: the readers that it was done for have been served

Each commit is a whole step for its buckets, and what is left to do follows from the index alone, so a vacuum that was
killed is simply run again; files without a commit are orphans, which `archive.upkeep.vacuum` removes. A pin keeps the
files that are read. No answer depends on any of this: a copy only saves reading.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import pyarrow as pa

from errata.archive.bucket_files import POS
from errata.archive.bucket_frames import batches_by_bytes, run_tasks
from errata.archive.bucket_writer import BucketWriter
from errata.archive.overlays import BucketSource, bucket_sources
from errata.archive.scan_plan import in_blocks
from errata.archive.schemas import BATCH, REVISION
from errata.archive.tables import sort_rows
from errata.archive.task_reports import bucket_from_row, bucket_report, report_schema
from errata.catalog.reduced_commits import commit_reduced
from errata.catalog.streams import StreamState
from errata.catalog.transaction import give_up, optimistic
from errata.declare.site import ProgressCallback, Site, pinned_stream
from errata.engine.failures import spark_errors_in_words
from errata.model.bucket import MAX_INLINE_STREAM_BYTES, Bucket, NewBucket
from errata.reduce import requests
from errata.reduce.copy_plan import CopyBuild, CopyReport, copy_builds, plan_for
from errata.reduce.versions import VersionStep

BUILD_BYTES = 256 * 1024 * 1024
"""Bytes that are read between two commits. A vacuum that is killed loses at most the work on so many."""


def vacuum_copies(
    site: Site, name: str, on_step: ProgressCallback = lambda _: None, batch_bytes: int = BUILD_BYTES
) -> CopyReport:
    """Build, shrink and drop the copies of a stream, and settle the requests that this was done for."""
    report = CopyReport(name)

    def attempt(_: int) -> CopyReport:
        with pinned_stream(site, name, "vacuum of") as state, spark_errors_in_words():
            plan = plan_for(site, state)
            for done, steps in enumerate(batches_by_bytes(plan.steps, lambda step: step.bytes_read, batch_bytes)):
                on_step(f"copies of {name}: {sum(report.built.values()):,} built, part {done + 1}")
                _carry_out(site, state, steps, report)
        requests.settle(site.catalog, state.stream_id, plan.asked)
        return report

    # What has been committed stays, and is not planned again.
    what = f"writer changed the archive of {name} first; the copies made so far stay"
    return optimistic(attempt, give_up(what, "run vacuum again"))


def _carry_out(site: Site, state: StreamState, steps: Sequence[VersionStep], report: CopyReport) -> None:
    """Write and commit one batch of steps."""
    builds = copy_builds(steps)
    written = _write_copies(site, state, builds)
    added = [(copy, build.original.bucket_id) for build, copies in written for copy in copies]
    drops = [copy for step in steps for copy in step.drops]
    summary = {
        "built_buckets": len(added),
        "built_bytes": sum(copy.size for copy, _ in added),
        "dropped_buckets": len(drops),
    }
    with site.discard_on_conflict(copy for copy, _ in added):
        commit_id = commit_reduced(site.catalog, state.stream_id, added, drops, site.caused_by("vacuum"), summary)
    report.commits.append(commit_id)
    report.bytes_read += sum(build.source.size for build in builds)
    sizes = {id(step): copy.size for build, copies in written for step, copy in zip(build.steps, copies, strict=True)}
    for step in steps:
        report.count(step, sizes.get(id(step)))


@dataclass(frozen=True, slots=True)
class _CopyTask:
    """What every task needs; it travels to all of them."""

    writer: BucketWriter
    sources: tuple[BucketSource, ...]
    originals: tuple[Bucket, ...]
    rates: tuple[tuple[float, ...], ...]


def _write_copies(
    site: Site, state: StreamState, builds: Sequence[CopyBuild]
) -> list[tuple[CopyBuild, list[NewBucket]]]:
    """The copies, for each reading in the order of its steps."""
    if not builds:
        return []
    inline = state.inline_bytes < MAX_INLINE_STREAM_BYTES // 2
    task = _CopyTask(
        BucketWriter(state.stream, site.warehouse, inline=inline),
        tuple(bucket_sources(site.catalog, [build.source for build in builds])),
        tuple(build.original for build in builds),
        tuple(build.rates for build in builds),
    )
    size = sum(build.source.size for build in builds)
    reports = run_tasks(site.session, size, len(builds), partial(_copy_tasks, task), report_schema()).to_pylist()
    made = {(row["slot"], copy.resolution.rate): copy for row in reports for copy in [bucket_from_row(row)]}
    return [(build, [made[number, rate] for rate in build.rates]) for number, build in enumerate(builds)]


def _copy_tasks(task: _CopyTask, numbers: Iterable[int]) -> Iterator[pa.RecordBatch]:
    for number in numbers:
        rates = task.rates[number]
        rows = _stored_rows(task, task.sources[number], max(rates))
        for copy in task.writer.copies(rows, task.originals[number], rates):
            yield bucket_report(number, copy)


def _stored_rows(task: _CopyTask, source: BucketSource, rate: float) -> pa.Table:
    """At least the rows of a version that belong to a sample, in the order in which the writer has them, so that a copy
    is the same whenever it is made."""
    stream, warehouse = task.writer.stream, task.writer.warehouse
    if not in_blocks(source.bucket):
        return source.read(warehouse)
    rows = source.read_sample(warehouse, [*stream.names, POS, BATCH, REVISION], rate)
    return sort_rows(rows, stream)
