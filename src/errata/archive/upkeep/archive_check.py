"""The doctor's check of one archive, of a stream or of a query's results: what is wrong, and the repair of figures.

All buckets are inspected: whole if the check is deep, else only their sizes. Their figures, the archive's counters and
its positions are compared with the index. Of a stream, revision numbers, the ledger and the agreement of base rows with
overlays are checked too; of results, the order of their evaluations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace

from errata.archive.overlays import bucket_sources
from errata.archive.scan_plan import ArchiveScan, ScanBuckets
from errata.archive.upkeep.bucket_checks import (
    InspectionResult,
    LiveOverlays,
    duplicate_key_findings,
    inspect_buckets,
    inspect_sizes,
)
from errata.archive.upkeep.inspection import InspectionContext
from errata.archive.upkeep.retention import unrecoverable_sources
from errata.catalog import health, queries, streams
from errata.catalog.health import ResultInventory, StreamInventory
from errata.catalog.repair import ArchiveRepair, FigureRepair
from errata.catalog.result_archives import read_archive
from errata.declare.query_plans import read_plans, with_inputs
from errata.declare.site import Site
from errata.language.rewrite import rewritten_plan
from errata.language.route import choose_route
from errata.model.bucket import Bucket, Role
from errata.model.consistency import (
    abandoned_finding,
    evaluation_findings,
    ledger_findings,
    number_findings,
    overlap_findings,
    position_findings,
    reduction_findings,
    spare_reductions,
)
from errata.model.findings import (
    BucketFigures,
    BucketInspection,
    Finding,
    InspectedArchive,
    bucket_findings,
    content_loss,
    counter_findings,
    differing_figures,
    is_droppable_cache,
    misclassed_finding,
)

ProgressBar = Callable[[str, int], AbstractContextManager[Callable[[int], None]]]
"""Shows progress: called with a title and the amount of work; yields a function that takes the amount done."""


def check_archive(site: Site, stream_id: int, kept_from: int, bar: ProgressBar, *, deep: bool) -> ArchiveCheck:
    """Inspect all buckets that a commit from `kept_from` on needs: whole if `deep`, else their sizes."""
    case = health.archive_inventory(site.catalog, stream_id, kept_from)
    live_overlays = None
    if not deep:
        inspection = InspectionResult(
            inspect_sizes(site.warehouse, case.buckets, health.inline_sizes(site.catalog, stream_id))
        )
    elif isinstance(case, StreamInventory):
        with bar(f"reading {case.name}", len(case.buckets)) as on_done:
            inspection, live_overlays = _inspect_stream(site, case, on_done)
    else:
        context = InspectionContext(case.shape, site.warehouse)
        with bar(f"reading the results of {case.name}", len(case.buckets)) as on_done:
            inspection = inspect_buckets(site.session, site.catalog, context, case.buckets, on_done)
    whole = sum(inspection.seen[each.bucket_id].whole(each) for each in case.live)
    if isinstance(case, StreamInventory):
        archive = InspectedArchive(case.name, case.standing.stream.timed, whole)
    else:
        unmade = _lost_state_sources(site, case, inspection.seen)
        archive = InspectedArchive(case.name, case.shape.timed, whole, True, not case.dropped, unmade)
    return ArchiveCheck(site, case, archive, inspection, live_overlays)


def _inspect_stream(
    site: Site, case: StreamInventory, on_done: Callable[[int], None]
) -> tuple[InspectionResult, LiveOverlays | None]:
    """Inspect overlays before the base buckets that are compared with them. The live overlays are None if some of them,
    or of the live base buckets, are damaged."""
    base = [each for each in case.live if each.role is Role.BASE]
    overlays = [each for each in case.live if each.role is Role.OVERLAY]
    others = [each for each in case.buckets if each.role is not Role.BASE or each.removed_in is not None]
    standing, live_overlays = case.standing, None
    context = InspectionContext(standing.stream, site.warehouse, standing.aged_to)
    seen = inspect_buckets(site.session, site.catalog, context, others, on_done).seen
    if _are_whole(overlays, seen):
        live_overlays = LiveOverlays.read(site.catalog, site.warehouse, standing, overlays)
        described = [_with_true_figures(each, seen[each.bucket_id]) for each in overlays]
        context = replace(context, overlays=tuple(bucket_sources(site.catalog, described)))
    second = inspect_buckets(site.session, site.catalog, context, base, on_done)
    seen |= second.seen
    if live_overlays is not None:
        brought, left = live_overlays.added_counts(), live_overlays.live_counts()
        for bucket_id in (each.bucket_id for each in overlays):
            count = brought[bucket_id]
            seen[bucket_id] = replace(seen[bucket_id], counting=count, masked=count - left[bucket_id])
    sound = _are_whole(base, seen) and not any(seen[each.bucket_id].nulls for each in base)
    return InspectionResult(seen, second.hits), live_overlays if sound else None


def _are_whole(found: Sequence[Bucket], seen: dict[int, BucketInspection]) -> bool:
    return all(seen[each.bucket_id].whole(each) for each in found)


def _with_true_figures(bucket: Bucket, seen: BucketInspection) -> Bucket:
    """The bucket with the figures of its rows, if these are known."""
    figures = seen.figures if seen.whole(bucket) else None
    if figures is None:
        return bucket
    first, last = figures.revisions or (bucket.revision_first, bucket.revision_last)
    return replace(
        bucket,
        rows=figures.rows,
        vs_min=figures.vs_min,
        vs_max=figures.vs_max,
        revision_first=first,
        revision_last=last,
        masks=figures.masks,
        content=figures.content,
    )


def _lost_state_sources(site: Site, case: ResultInventory, seen: dict[int, BucketInspection]) -> Sequence[str]:
    """If the state is damaged: the sources from which it cannot be computed again."""
    broken = [
        each for each in case.live if each.role is Role.STATE and content_loss(each, seen[each.bucket_id]) is not None
    ]
    known = queries.recorded_queries(site.catalog)
    there = known.get(case.name)
    of = read_archive(site.catalog, case.name)
    if not broken or there is None or of is None or there.query_id != case.query_id:
        return ()
    standings = {each.stream.name: each for each in streams.stream_states(site.catalog)}
    names = with_inputs([case.name], {name: each.checked.reads for name, each in known.items()})
    texts = {name: known[name].checked.query for name in names}
    plan = rewritten_plan(read_plans({name: each.stream for name, each in standings.items()}, texts, names)[case.name])
    return unrecoverable_sources(site.catalog, plan, choose_route(plan), of)


@dataclass(frozen=True, slots=True)
class ArchiveCheck:
    """A check of an archive."""

    site: Site
    case: StreamInventory | ResultInventory
    archive: InspectedArchive
    inspection: InspectionResult
    live_overlays: LiveOverlays | None
    """The live overlays of a stream; None if they cannot be compared with its base rows."""

    def findings(self) -> Iterator[Finding]:
        """All that is wrong."""
        case, archive, seen = self.case, self.archive, self.inspection.seen
        for bucket in case.buckets:
            yield from bucket_findings(archive, bucket, seen[bucket.bucket_id])
            if bucket.bucket_id in case.misclassed:
                yield misclassed_finding(archive, bucket)
        true = [_with_true_figures(bucket, seen[bucket.bucket_id]) for bucket in case.buckets]
        live = [each for each in true if each.removed_in is None]
        if isinstance(case, StreamInventory):
            yield from overlap_findings(archive, (each for each in true if each.role is Role.BASE))
            yield from reduction_findings(archive, live)
            rows = {**case.rows, **{each.bucket_id: each.rows for each in true}}
            for entry in case.entries:
                yield from ledger_findings(archive, entry, rows, vacuumed=case.vacuumed)
        if case.dropped:
            return
        yield from counter_findings(archive, "inline_bytes", case.inline_bytes, self._inline_bytes())
        if isinstance(case, StreamInventory):
            yield from self._stream_findings(case, live)
        else:
            yield from counter_findings(archive, "rows", case.now.rows, self._rows() or 0)
            yield from position_findings(archive, case.now, case.positions, newest=case.newest, rows=False)
            yield from evaluation_findings(archive, case.advances, case.now.stable)
            yield from abandoned_finding(archive, case.names)

    def _stream_findings(self, case: StreamInventory, live: Sequence[Bucket]) -> Iterator[Finding]:
        """Whether a stream's rows, positions and revision numbers are right, and base rows and corrections agree."""
        archive, standing, site = self.archive, case.standing, self.site
        rows, plain = self._rows(), not standing.applied and standing.aged_to is None
        base, overlays = ([each for each in live if each.role is role] for role in (Role.BASE, Role.OVERLAY))
        if rows is not None:
            yield from counter_findings(archive, "rows", standing.rows, rows)
        elif plain:
            indexed = sum(each.rows - each.masked for each in base)
            yield from counter_findings(archive, "rows", standing.rows, indexed, sure=False)
        compared = rows is None and not plain
        yield from position_findings(archive, case.now, case.positions, newest=case.newest, rows=compared)
        lost = case.withdrawn_before if case.vacuumed else 0
        yield from number_findings(archive, case.now, standing.revisions, live, case.withdrawn, lost)
        if self.live_overlays is not None:
            yield from self.live_overlays.findings(archive, self.inspection.hits)
            scan, found = ArchiveScan(standing, case.newest), ScanBuckets(base, overlays)
            yield from duplicate_key_findings(site.engines(), site.catalog, site.warehouse, archive, scan, found)

    def repair(self) -> ArchiveRepair:
        """The repair of figures that the catalog has wrong, and of a state that can be computed again."""
        case, seen = self.case, self.inspection.seen
        figures, masked = {}, {}
        for bucket in case.buckets:
            told = seen[bucket.bucket_id]
            if differing_figures(bucket, told) or bucket.bucket_id in case.misclassed:
                true = told.figures if told.whole(bucket) else None
                size = bucket.size if told.size is None or not told.whole(bucket) else told.size
                figures[bucket.bucket_id] = FigureRepair(bucket.role, true or BucketFigures.from_bucket(bucket), size)
            if told.masked is not None and told.masked != bucket.masked and bucket.removed_in is None:
                masked[bucket.bucket_id] = told.masked
        if case.dropped:
            return ArchiveRepair(figures=figures)
        caches = [each for each in case.buckets if each.derived or each.removed_in is None]
        damaged = [each for each in caches if is_droppable_cache(self.archive, each, seen[each.bucket_id])]
        forget = [*damaged, *(each for each in spare_reductions(case.live) if each not in damaged)]
        rows, inline_bytes = self._rows(), self._inline_bytes(forget)
        return ArchiveRepair(
            rows if rows != case.now.rows else None,
            inline_bytes if inline_bytes != case.inline_bytes else None,
            masked,
            figures,
            forget,
            isinstance(case, ResultInventory) and case.name not in case.names,
        )

    def _rows(self) -> int | None:
        """How many rows count, or how many results are final; None if some rows of a stream could not be inspected."""
        if self.live_overlays is None and isinstance(self.case, StreamInventory):
            return None
        counted = [each for each in self.case.live if each.role in (Role.BASE, Role.OVERLAY)]
        found = ((each, self.inspection.seen[each.bucket_id]) for each in counted)
        return sum(each.rows if seen.figures is None else seen.counting - (seen.masked or 0) for each, seen in found)

    def _inline_bytes(self, without: Sequence[Bucket] = ()) -> int:
        inline = [each for each in self.case.live if each.inline and each not in without]
        sizes = ((self.inspection.seen[each.bucket_id].size, each.size) for each in inline)
        return sum(noted if found is None else found for found, noted in sizes)
