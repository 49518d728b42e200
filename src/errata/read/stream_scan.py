"""Reads the rows of a stream's archive as known at a commit, by interval of its order field, by group, and up to a
revision.

`plan_scan` turns a request into an `ArchiveScan`, with the commit fixed; `open_scan` reads it with the commit pinned.
Nothing is written: a caller that wants a lazily ageing stream aged first does so itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from errata.archive.scan import scan_rows
from errata.archive.scan_plan import ArchiveScan, GroupKey, ScanBuckets, candidate_buckets
from errata.archive.scan_reading import scan_demand
from errata.catalog import commits, pins, streams
from errata.catalog.database import Catalog
from errata.catalog.streams import StreamState
from errata.declare.site import Site, open_site
from errata.engine.failures import spark_errors_in_words
from errata.engine.load import current_load
from errata.engine.session import apply_settings
from errata.errors import UsageError, unknown_name_error
from errata.intake.convert import canonical_value
from errata.language.sampling import SampleClause, sampled_source
from errata.model.reduction import SamplingRates
from errata.model.stream import Stream
from errata.model.time import HIGHEST, LOWEST, Interval, parse_instant
from errata.read.output import FrameOrTable
from errata.read.sampled_scans import SampleReading
from errata.reduce.functions import cut_portions
from errata.reduce.rates import ReductionContext, resolve_rates

REDUCTION = "the reduction"
"""What messages call the text of a reduction."""


@dataclass(frozen=True, slots=True)
class StreamScanRequest:
    """A scan as a person writes it: places, commit and groups as text."""

    stream: str
    start: str | None = None
    end: str | None = None
    as_of: str | int | None = None
    groups: Sequence[Mapping[str, str]] = ()
    """Values of all group columns, by name, for each group."""
    revisions_up_to: int | None = None
    """Only revisions up to this number; None for all that had been applied."""
    reduction: str | None = None
    """Which rows are sampled, as it stands behind TABLESAMPLE: `(10 PERCENT)`, `by_age('1 day', 0.5)`."""


@dataclass(frozen=True, slots=True)
class OpenScan:
    """A scan, opened for reading."""

    scan: ArchiveScan
    buckets: ScanBuckets
    """Candidate buckets and overlays."""
    rows: FrameOrTable
    pin: pins.Pin
    """Held until the reading ends; its `check` raises an error if a file that was read may have been removed."""
    sample: SampleReading | None = None
    """What was read of a sample; None if none was asked for."""


def plan_scan(catalog: Catalog, wanted: StreamScanRequest) -> ArchiveScan:
    """The scan that is meant. Its commit is fixed here, so that later commits are not read."""
    commit_id = commits.resolve_as_of(catalog, wanted.as_of)
    if wanted.as_of is None:
        standing = streams.stream_state(catalog, wanted.stream)
        if standing.changed_in > commit_id:  # a commit has moved it since
            standing = streams.stream_state(catalog, wanted.stream, commit_id)
    else:
        standing = streams.stream_state(catalog, wanted.stream, commit_id)
        commits.check_readable(catalog, commit_id, current_horizon(catalog, standing), wanted.stream)
    interval = Interval(
        LOWEST if wanted.start is None else _parse_order_value(standing.stream, wanted.start),
        HIGHEST if wanted.end is None else _parse_order_value(standing.stream, wanted.end),
    )
    _check_revision_applied(standing, commit_id, wanted.revisions_up_to)
    groups = _parse_groups(standing.stream, wanted.groups)
    return ArchiveScan(standing, commit_id, interval, groups, wanted.revisions_up_to)


def _check_revision_applied(standing: StreamState, commit_id: int, number: int | None) -> None:
    if number is not None and not 0 <= number <= standing.applied:
        raise UsageError(
            f"revision {number} has not been applied as of commit {commit_id}",
            where=f"stream {standing.stream.name}",
            how=f"revisions 0 to {standing.applied} can be asked for; `errata revise` applies what is pending",
        )


def check_scan_interval(catalog: Catalog, wanted: StreamScanRequest) -> None:
    """Raise an error for an interval that ends before it begins: a person who writes one has made a mistake, a
    program may not have."""
    interval = plan_scan(catalog, wanted).interval
    if interval.start > interval.end:
        raise UsageError(f"nothing lies between {wanted.start} and {wanted.end}", how="the end comes after the start")


@contextmanager
def open_scan(site: Site, wanted: StreamScanRequest) -> Iterator[OpenScan]:
    """Open a scan. The commit is pinned until the block ends."""
    commit_id = commits.resolve_as_of(site.catalog, wanted.as_of)
    with pins.hold_pin(site.catalog, commit_id, f"scan of {wanted.stream}") as pin, spark_errors_in_words():
        # Planned while the pin is held, so that what is readable stays so.
        scan = plan_scan(site.catalog, wanted if wanted.as_of is None else replace(wanted, as_of=commit_id))
        clause = None if wanted.reduction is None else _read_clause(wanted.reduction)
        if clause is not None:
            scan = _sampled_scan(site.catalog, scan, clause, site.project.root)
        found = candidate_buckets(site.catalog, scan)
        rows, _ = site.engines().read(
            scan_demand(scan, found), lambda session: scan_rows(session, site.catalog, site.warehouse, scan, found)
        )
        sample = None if clause is None else _sample_reading(scan, found, clause)
        if sample is not None:
            sample.record(site)
        yield OpenScan(scan, found, rows, pin, sample)


def _read_clause(reduction: str) -> SampleClause:
    from errata.language.reading.samples import read_reduction  # noqa: PLC0415 - it loads sqlglot

    return read_reduction(reduction, REDUCTION)


def _sampled_scan(catalog: Catalog, scan: ArchiveScan, clause: SampleClause, root: Path) -> ArchiveScan:
    """The scan at the rates that a reduction means. Age is counted from the stable point."""
    state = scan.state
    newest = LOWEST if state.stable is None else state.stable
    portions = cut_portions(candidate_buckets(catalog, scan).base, scan.interval, newest)
    context = ReductionContext(state.stream, newest, portions, root, current_load, where=REDUCTION)
    return replace(scan, rates=resolve_rates(clause, context))


def _sample_reading(scan: ArchiveScan, found: ScanBuckets, clause: SampleClause) -> SampleReading:
    from errata.language.queries import stream_source  # noqa: PLC0415 - it loads sqlglot

    source = sampled_source(stream_source(scan.state.stream), clause)
    return SampleReading(source, scan.rates or SamplingRates(), scan, found)


def stream_frame(
    spark: SparkSession,
    stream: str,
    *,
    as_of: str | int | None = None,
    start: str | int | None = None,
    end: str | int | None = None,
    groups: Sequence[Mapping[str, str]] = (),
    project: Path | str | None = None,
) -> DataFrame:
    """A stream's archive as a DataFrame: rows with start <= order field < end, as known at a commit or a moment.

    The session is brought to the rules by which rows are right, such as UTC. The DataFrame is read when it is used; its
    files stay for as long as the stream's horizon tells.
    """
    apply_settings(spark, {})
    with open_site(Path(project) if project is not None else None) as site:
        catalog = site.catalog
        wanted = StreamScanRequest(stream, _bound_text(start), _bound_text(end), as_of, groups)
        return scan_rows(spark, catalog, site.warehouse, plan_scan(catalog, wanted))


def current_horizon(catalog: Catalog, then: StreamState) -> int:
    """The stream's horizon as declared now; of a dropped stream, the last one."""
    live = {each.stream_id: each.stream for each in streams.stream_states(catalog)}
    return live.get(then.stream_id, then.stream).horizon


def _parse_order_value(stream: Stream, text: str) -> int:
    if stream.timed:
        return parse_instant(text)
    try:
        return max(LOWEST, min(HIGHEST, int(text)))
    except ValueError:
        raise UsageError(
            f"{text!r} is not a whole number", why=f"stream {stream.name} is ordered by the bigint {stream.order}"
        ) from None


def _parse_groups(stream: Stream, wanted: Sequence[Mapping[str, str]]) -> frozenset[GroupKey] | None:
    if not wanted:
        return None
    return frozenset(_parse_group(stream, given) for given in wanted)


def _parse_group(stream: Stream, given: Mapping[str, str]) -> GroupKey:
    for name in given:
        if name not in stream.group:
            if not stream.group:
                raise UsageError(
                    f"stream {stream.name} has no groups", how=f"declare `group:` under streams.{stream.name}"
                )
            raise unknown_name_error("group column", name, stream.group, where=f"stream {stream.name}")
    missing = [name for name in stream.group if name not in given]
    if missing:
        raise UsageError(
            f"the group says nothing of {', '.join(missing)}",
            how=f"name a value for each of {', '.join(stream.group)}",
        )
    return tuple(canonical_value(given[name], stream.column(name).type) for name in stream.group)


def _bound_text(bound: str | int | None) -> str | None:
    return None if bound is None else str(bound)
