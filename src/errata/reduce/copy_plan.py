"""What vacuum would do for the copies of a stream: planned from the index and from what readers asked for, and counted.

`reduce.versions` decides, `reduce.copies` carries it out. Only the catalog is read here, so that pages and listings can
say what the next vacuum does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from errata.catalog import buckets
from errata.catalog.streams import StreamState
from errata.declare.site import Site, pinned_stream
from errata.model.bucket import Bucket, Role
from errata.model.reduction_request import ReductionRequest
from errata.reduce import requests
from errata.reduce.versions import BucketVersions, VersionReason, VersionStep, bucket_versions, plan_versions


@dataclass(frozen=True, slots=True)
class CopyPlan:
    """What vacuum would do for the copies of a stream."""

    state: StreamState
    versions: Sequence[BucketVersions]
    """The base buckets with their copies."""
    steps: Sequence[VersionStep]
    asked: Sequence[ReductionRequest]
    """The requests that it was decided by."""


@dataclass(frozen=True, slots=True)
class CopyChange:
    """Copies of one rate that were, or would be, built or dropped for one reason."""

    reason: VersionReason
    rate: float
    dropped: bool
    """Whether they leave; else they are built."""
    copies: int
    bytes: int
    """Of copies that would be built, an estimate."""


@dataclass
class CopyReport:
    """What vacuum has done, or would do, for the copies of a stream."""

    stream: str
    built: Counter[tuple[VersionReason, float]] = field(default_factory=Counter)
    """Copies by reason and rate."""
    built_bytes: Counter[tuple[VersionReason, float]] = field(default_factory=Counter)
    dropped: Counter[tuple[VersionReason, float]] = field(default_factory=Counter)
    dropped_bytes: Counter[tuple[VersionReason, float]] = field(default_factory=Counter)
    bytes_read: int = 0
    commits: list[int] = field(default_factory=list)

    @property
    def changes(self) -> list[CopyChange]:
        """All that was built and dropped, by reason, the greatest rates first."""
        found = [CopyChange(*about, False, count, self.built_bytes[about]) for about, count in self.built.items()]
        found += [CopyChange(*about, True, count, self.dropped_bytes[about]) for about, count in self.dropped.items()]
        return sorted(found, key=lambda each: (each.reason, each.dropped, -each.rate))

    def count(self, step: VersionStep, made: int | None = None) -> None:
        """Count one step; `made` is the size of the copy that was built, if it has been."""
        if step.rate is not None:
            self.built[step.reason, step.rate] += 1
            self.built_bytes[step.reason, step.rate] += step.bytes_expected if made is None else made
        for each in step.drops:
            self.dropped[step.reason, each.resolution.rate] += 1
            self.dropped_bytes[step.reason, each.resolution.rate] += each.size


def plan_copies(site: Site, name: str) -> CopyPlan:
    """What there is to do for a stream. Nothing is changed."""
    with pinned_stream(site, name, "planning copies of") as state:
        return plan_for(site, state)


def planned_report(plan: CopyPlan) -> CopyReport:
    """What a plan would do, with estimated sizes."""
    report = CopyReport(plan.state.stream.name)
    for step in plan.steps:
        report.count(step)
    report.bytes_read = sum(build.source.size for build in copy_builds(plan.steps))
    return report


def plan_for(site: Site, state: StreamState) -> CopyPlan:
    """The same for a stream whose state is pinned."""
    catalog = site.catalog
    at = (catalog, state.stream_id, state.changed_in)
    if state.stream.reduced.is_empty and not buckets.buckets_of_roles(*at, (Role.COPY,)):
        return CopyPlan(state, (), (), ())
    found = buckets.buckets_of_roles(*at, (Role.BASE, Role.COPY))
    versions, asked = bucket_versions(found), requests.pending(catalog, state.stream_id)
    steps = plan_versions(versions, state.stream.reduced, asked, catalog.clock.now())
    return CopyPlan(state, versions, steps, asked)


@dataclass(frozen=True, slots=True)
class CopyBuild:
    """Copies that are made by one reading of a version."""

    original: Bucket
    source: Bucket
    steps: tuple[VersionStep, ...]

    @property
    def rates(self) -> tuple[float, ...]:
        return tuple(step.rate for step in self.steps if step.rate is not None)


def copy_builds(steps: Iterable[VersionStep]) -> list[CopyBuild]:
    """What is read, each version once."""
    found: dict[int, CopyBuild] = {}
    for step in steps:
        if step.source is not None:
            known = found.get(step.source.bucket_id)
            before = () if known is None else known.steps
            found[step.source.bucket_id] = CopyBuild(step.original, step.source, (*before, step))
    return list(found.values())
