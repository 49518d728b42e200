"""The reduced versions of a stream's archive, for a person: what there is, at which rates, who asked for what, what
vacuum did last and what it would do next. Only the catalog is read."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from errata.catalog import buckets, commits, streams
from errata.catalog.streams import StreamState
from errata.declare.site import Site
from errata.model.bucket import Bucket, Role
from errata.model.commit import Commit
from errata.model.reduction import FULL_RATE, ReducedArchives
from errata.model.reduction_request import ReductionRequest, RequestMethod
from errata.reduce import requests
from errata.reduce.copy_plan import CopyReport, plan_copies, planned_report
from errata.reduce.purge import PurgeReport, plan_purge

LOOKED_THROUGH = 200
"""Commits of a stream among which the last of vacuum is looked for."""


@dataclass(frozen=True, slots=True)
class VersionSize:
    """The buckets of one version of an archive."""

    kind: str
    """`originals`, `copies`, `remains` of what was purged, or `summaries`."""
    rate: float | None
    """None for summaries."""
    buckets: int
    rows: int
    bytes: int
    spans: tuple[tuple[int, int], ...]
    """The least and greatest place of each bucket."""


@dataclass(frozen=True, slots=True)
class ReductionOverview:
    """The reduced versions of one stream."""

    state: StreamState
    declared: ReducedArchives
    versions: Sequence[VersionSize]
    """The originals first, then by kind, the greatest rate first."""
    asked: Sequence[ReductionRequest]
    """What readers asked for, the last first."""
    last: Commit | None
    """The last commit in which vacuum built, dropped or purged something."""
    next_copies: CopyReport
    """What vacuum would do now."""
    next_purge: PurgeReport

    @property
    def asked_by_label(self) -> list[ReductionRequest]:
        """The same, with the readers of equal words together: rates by age are others with each reading."""
        found: dict[tuple[RequestMethod, str], ReductionRequest] = {}
        for each in self.asked:
            known = found.setdefault((each.asked.method, each.asked.label), each)
            if known is not each:
                sums = {name: getattr(known, name) + getattr(each, name) for name in _COUNTS}
                found[each.asked.method, each.asked.label] = replace(known, **sums)
        return list(found.values())

    @property
    def smaller_bytes(self) -> int:
        """Bytes that copies and summaries take beside the originals."""
        return sum(each.bytes for each in self.versions if each.kind != ORIGINALS)


_COUNTS = ("readers", "last_readers", "all_readers", "from_copies", "from_originals")
"""The fields of a request that add up."""

ORIGINALS, COPIES, REMAINS, SUMMARIES = "originals", "copies", "remains", "summaries"
_KINDS = (ORIGINALS, COPIES, REMAINS, SUMMARIES)


def reduction_overview(site: Site, name: str) -> ReductionOverview:
    """The reduced versions of a stream."""
    catalog = site.catalog
    state = streams.stream_state(catalog, name)
    roles = (Role.BASE, Role.COPY, Role.SUMMARY)
    found = buckets.buckets_of_roles(catalog, state.stream_id, commits.newest_commit(catalog), roles)
    work = [
        each
        for each in commits.list_commits(catalog, stream=name, last=LOOKED_THROUGH)
        if each.cause.flow == "vacuum" and ("built_buckets" in each.summary or "remaining_bytes" in each.summary)
    ]
    return ReductionOverview(
        state,
        state.stream.reduced,
        version_sizes(found),
        requests.pending(catalog, state.stream_id, None),
        work[-1] if work else None,
        planned_report(plan_copies(site, name)),
        plan_purge(site, name),
    )


def reduction_overviews(site: Site, names: Sequence[str] = ()) -> list[ReductionOverview]:
    """Of the streams named; without names, of all that have reduced versions, declare some, or were asked for some."""
    found = [reduction_overview(site, name) for name in site.named(names)]
    return [each for each in found if names or each.asked or len(each.versions) > 1 or not each.declared.is_empty]


def version_sizes(some: Iterable[Bucket]) -> list[VersionSize]:
    """Buckets by version."""
    by_version: defaultdict[tuple[str, float | None], list[Bucket]] = defaultdict(list)
    for each in some:
        kind = _kind(each)
        by_version[kind, None if kind == SUMMARIES else each.resolution.rate].append(each)
    return [
        VersionSize(
            kind,
            rate,
            len(of),
            sum(each.rows for each in of),
            sum(each.size for each in of),
            tuple((each.vs_min, each.vs_max) for each in of),
        )
        for (kind, rate), of in sorted(by_version.items(), key=lambda each: _version_order(*each[0]))
    ]


def _kind(bucket: Bucket) -> str:
    if bucket.role is Role.SUMMARY:
        return SUMMARIES
    if bucket.role is Role.BASE:
        return ORIGINALS
    return REMAINS if bucket.original is None else COPIES


def _version_order(kind: str, rate: float | None) -> tuple[int, float]:
    return _KINDS.index(kind), -(FULL_RATE if rate is None else rate)
