"""The doctor: checks archives and what they share, and repairs what can be repaired safely.

A check reads every bucket (deep) or only sizes and the index, and compares what it finds with the figures that the
catalog keeps. Figures are repaired; damaged rows are reported, never changed. The archives of streams are checked here,
those of query results in `result_check`; what all share (commits, pins, files in the warehouse) comes last.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from functools import partial

from errata.archive.overlays import bucket_sources
from errata.archive.scan_plan import ArchiveScan, ScanBuckets
from errata.archive.upkeep import vacuum as sweeping
from errata.archive.upkeep.bucket_checks import (
    InspectionResult,
    LiveOverlays,
    duplicate_key_findings,
    inspect_buckets,
    inspect_sizes,
)
from errata.archive.upkeep.inspection import InspectionContext
from errata.archive.upkeep.result_check import ResultCheck
from errata.archive.upkeep.vacuum import DEFAULT_GRACE, VacuumReason
from errata.catalog import health, pins, repair, vacuum
from errata.catalog.health import StreamInventory
from errata.catalog.repair import ArchiveRepair, FigureRepair
from errata.catalog.streams import StreamState
from errata.catalog.transaction import give_up, optimistic
from errata.catalog.vacuum import ArchiveEntry
from errata.declare.site import Site
from errata.engine.failures import spark_errors_in_words
from errata.errors import unknown_name_error
from errata.model.bucket import Bucket, Role
from errata.model.consistency import ledger_findings, number_findings, overlap_findings, position_findings
from errata.model.findings import (
    BucketFigures,
    BucketInspection,
    Finding,
    FindingKind,
    InspectedStream,
    Severity,
    bucket_findings,
    by_severity,
    counter_findings,
    differing_figures,
    misclassed_finding,
)

ProgressCallback = Callable[[str], None]
ProgressBar = Callable[[str, int], AbstractContextManager[Callable[[int], None]]]
"""Shows progress: called with a title and the amount of work; yields a function that takes the amount done."""


@contextmanager
def _no_progress(_title: str, _total: int) -> Iterator[Callable[[int], None]]:
    yield lambda _: None


@dataclass(frozen=True, slots=True)
class DoctorOptions:
    """How closely to look, and whether to repair."""

    deep: bool = True
    """Read all rows; else only the index and the sizes of files."""
    fix: bool = False
    grace: int = DEFAULT_GRACE
    """Microseconds: files that no index row names and that are younger may be in use."""


@dataclass(frozen=True, slots=True)
class DoctorReport:
    """The findings about one archive, or about what all archives share (`stream` is None)."""

    stream: str | None
    buckets: int = 0
    """Live base buckets."""
    overlays: int = 0
    findings: Sequence[Finding] = ()
    """What is wrong and was not repaired."""
    mended: Sequence[Finding] = ()
    """What was wrong and has been repaired."""
    commit_id: int | None = None
    """The commit of the repair."""


def run_doctor(
    site: Site,
    names: Sequence[str] = (),
    options: DoctorOptions = DoctorOptions(),
    on_step: ProgressCallback = lambda _: None,
    bar: ProgressBar = _no_progress,
) -> list[DoctorReport]:
    """Check the archives named, or all that the catalog knows (also dropped ones), and last what they share."""
    recorded = vacuum.all_archives(site.catalog)
    there = {each.name for each in recorded}
    for name in names:
        if name not in there:
            raise unknown_name_error("stream", name, there)
    found = [
        _examine_archive(site, each, options, on_step, bar) for each in recorded if not names or each.name in names
    ]
    on_step("looking at commits and files")
    return [*found, _check_shared(site, names, options)]


def _examine_archive(
    site: Site, recorded: ArchiveEntry, options: DoctorOptions, on_step: ProgressCallback, bar: ProgressBar
) -> DoctorReport:
    def attempt(_: int) -> DoctorReport:
        on_step(f"looking at {recorded.name}")
        kept_from = health.oldest_checked_commit(site.catalog, recorded.stream_id)
        with pins.hold_pin(site.catalog, kept_from, f"doctor of {recorded.name}"), spark_errors_in_words():
            check = _check_archive(site, recorded, kept_from, options, bar)
            findings, wanted = by_severity(list(check.findings())), check.repair()
        roles = [bucket.role for bucket in check.case.live]
        done = DoctorReport(recorded.name, roles.count(Role.BASE), roles.count(Role.OVERLAY), findings)
        if not options.fix or wanted.nothing:
            return done
        with site.discard_on_conflict((), partial(on_step, "another writer came first; looking again")):
            commit_id = repair.commit_repair(site.catalog, check.basis, wanted, site.caused_by("doctor"))
        left = [each for each in findings if not each.mendable]
        mended = [each for each in findings if each.mendable]
        return replace(done, findings=left, mended=mended, commit_id=commit_id)

    what = f"writer moved stream {recorded.name} first; nothing of it was mended"
    return optimistic(attempt, give_up(what, "run it again, or without --fix to look only"))


def _check_archive(
    site: Site, recorded: ArchiveEntry, kept_from: int, options: DoctorOptions, bar: ProgressBar
) -> _StreamCheck | ResultCheck:
    if recorded.of_query:
        return ResultCheck.inspect(site, recorded.stream_id, kept_from, bar, deep=options.deep)
    return _StreamCheck.inspect(
        site, health.stream_inventory(site.catalog, recorded.stream_id, kept_from), options, bar
    )


@dataclass(frozen=True, slots=True)
class _StreamCheck:
    """A check of a stream's archive."""

    site: Site
    case: StreamInventory
    deep: bool
    inspection: InspectionResult
    live_overlays: LiveOverlays | None
    """The live overlays; None if some of them, or of the live base buckets, are damaged or were not read."""

    @classmethod
    def inspect(cls, site: Site, case: StreamInventory, options: DoctorOptions, bar: ProgressBar) -> _StreamCheck:
        """Inspect all buckets, overlays before the base buckets that are compared with them."""
        if not options.deep:
            inline = health.inline_sizes(site.catalog, case.standing.stream_id)
            seen = inspect_sizes(site.warehouse, case.buckets, inline)
            return cls(site, case, False, InspectionResult(seen), None)
        base = [each for each in case.live if each.role is Role.BASE]
        overlays = [each for each in case.live if each.role is Role.OVERLAY]
        ids = {each.bucket_id for each in base}
        others = [each for each in case.buckets if each.bucket_id not in ids]
        standing = case.standing
        context = InspectionContext(standing.stream, site.warehouse, standing.aged_to, None)
        with bar(f"reading {standing.stream.name}", len(case.buckets)) as on_done:
            first = inspect_buckets(site.session, site.catalog, context, others, on_done)
            live_overlays = None
            if _are_whole(overlays, first.seen):
                live_overlays = LiveOverlays.read(site.catalog, site.warehouse, standing, overlays)
                described = [_with_true_figures(each, first.seen[each.bucket_id]) for each in overlays]
                context = replace(context, overlays=tuple(bucket_sources(site.catalog, described)))
            second = inspect_buckets(site.session, site.catalog, context, base, on_done)
        seen = first.seen | second.seen
        if live_overlays is not None:
            brought, left = live_overlays.added_counts(), live_overlays.live_counts()
            for bucket_id in (each.bucket_id for each in overlays):
                count = brought[bucket_id]
                seen[bucket_id] = replace(seen[bucket_id], counting=count, masked=count - left[bucket_id])
        sound = _are_whole(base, seen) and not any(seen[each.bucket_id].nulls for each in base)
        return cls(site, case, True, InspectionResult(seen, second.hits), live_overlays if sound else None)

    @property
    def basis(self) -> StreamState:
        """The state of the archive that a repair is based on."""
        return self.case.standing

    def findings(self) -> Iterator[Finding]:
        """All that is wrong."""
        case, seen = self.case, self.inspection.seen
        inspected = self._inspected
        for bucket in case.buckets:
            yield from bucket_findings(inspected, bucket, seen[bucket.bucket_id])
            if bucket.bucket_id in case.misclassed:
                yield misclassed_finding(inspected, bucket)
        true = [_with_true_figures(bucket, seen[bucket.bucket_id]) for bucket in case.buckets]
        yield from overlap_findings(inspected, (each for each in true if each.role is Role.BASE))
        rows = {**case.rows, **{each.bucket_id: each.rows for each in true}}
        for entry in case.entries:
            yield from ledger_findings(inspected, entry, rows, vacuumed=case.vacuumed)
        if not case.dropped:
            live = [each for each in true if each.removed_in is None]
            yield from self._standing(inspected, live)
            yield from self._agreement(inspected, live)

    def repair(self) -> ArchiveRepair:
        """The repair of figures that the catalog has wrong."""
        seen = self.inspection.seen
        figures, masked = {}, {}
        for bucket in self.case.buckets:
            told = seen[bucket.bucket_id]
            if differing_figures(bucket, told) or bucket.bucket_id in self.case.misclassed:
                right = (
                    told.figures
                    if told.figures is not None and told.whole(bucket)
                    else BucketFigures.from_bucket(bucket)
                )
                size = bucket.size if told.size is None or not told.whole(bucket) else told.size
                figures[bucket.bucket_id] = FigureRepair(bucket.role, right, size)
            if told.masked is not None and told.masked != bucket.masked and bucket.removed_in is None:
                masked[bucket.bucket_id] = told.masked
        if self.case.dropped:
            return ArchiveRepair(figures=figures)
        standing, rows = self.case.standing, self._rows
        return ArchiveRepair(
            rows if rows is not None and rows != standing.rows else None,
            self._inline_bytes if self._inline_bytes != standing.inline_bytes else None,
            masked,
            figures,
        )

    @property
    def _inspected(self) -> InspectedStream:
        live = self.case.live
        whole = sum(self.inspection.seen[each.bucket_id].whole(each) for each in live)
        return InspectedStream(self.case.standing.stream, whole)

    @property
    def _rows(self) -> int | None:
        """How many rows count; None if some could not be inspected."""
        if self.live_overlays is None:
            return None
        seen = [self.inspection.seen[each.bucket_id] for each in self.case.live if each.role is not Role.PENDING]
        return sum(each.counting - (each.masked or 0) for each in seen)

    @property
    def _inline_bytes(self) -> int:
        inline = [each for each in self.case.live if each.inline]
        sizes = ((self.inspection.seen[each.bucket_id].size, each.size) for each in inline)
        return sum(noted if found is None else found for found, noted in sizes)

    def _standing(self, inspected: InspectedStream, live: Sequence[Bucket]) -> Iterator[Finding]:
        """Whether the stream's counters, positions and revision numbers are right."""
        case, standing = self.case, self.case.standing
        yield from counter_findings(inspected, "inline_bytes", standing.inline_bytes, self._inline_bytes)
        rows, plain = self._rows, not standing.applied and standing.aged_to is None
        if rows is not None:
            yield from counter_findings(inspected, "rows", standing.rows, rows)
        elif plain:
            indexed = sum(each.rows - each.masked for each in live if each.role is Role.BASE)
            yield from counter_findings(inspected, "rows", standing.rows, indexed, sure=False)
        compared = rows is None and not plain
        yield from position_findings(inspected, case.now, case.positions, newest=case.newest, rows=compared)
        lost = case.withdrawn_before if case.vacuumed else 0
        yield from number_findings(inspected, case.now, standing.revisions, live, case.withdrawn, lost)

    def _agreement(self, inspected: InspectedStream, live: Sequence[Bucket]) -> Iterator[Finding]:
        """Whether base rows and corrections agree."""
        if self.live_overlays is None:
            return
        site, case = self.site, self.case
        yield from self.live_overlays.findings(inspected, self.inspection.hits)
        base, overlays = ([each for each in live if each.role is role] for role in (Role.BASE, Role.OVERLAY))
        scan, found = ArchiveScan(case.standing, case.newest), ScanBuckets(base, overlays)
        yield from duplicate_key_findings(site.engines(), site.catalog, site.warehouse, inspected, scan, found)


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


def _check_shared(site: Site, names: Sequence[str], options: DoctorOptions) -> DoctorReport:
    """Check what all archives share: commits, pins, consumers, and the files in the warehouse."""
    findings = health.catalog_findings(site.catalog)
    needed = {each.where for each in findings if each.kind is FindingKind.DOOMED}
    # States of queries are replaced by each evaluation and wait for vacuum, as superseded buckets do.
    listed = [path for path in _doomed_files(site) if path not in needed and path.split("/")[1] != Role.STATE]
    findings += [_doomed_finding(site, path) for path in listed]
    findings += _orphan_findings(site, names, options)
    findings = by_severity(findings)
    if not options.fix or not any(each.mendable for each in findings):
        return DoctorReport(None, findings=findings)
    stuck = {path for path in listed if not _remove_file(site, path)}
    gone = [path for path in listed if path not in stuck]
    commit_id = repair.commit_cleanup(site.catalog, gone, site.caused_by("doctor"))
    mended = [each for each in findings if each.mendable and each.where not in stuck]
    left = [each for each in findings if not each.mendable or each.where in stuck]
    return DoctorReport(None, findings=left, mended=mended, commit_id=commit_id)


def _doomed_files(site: Site) -> Iterator[str]:
    """The files that are listed for removal."""
    path = ""
    while found := vacuum.doomed_files(site.catalog, path):
        yield from (path for path, _ in found)
        path = found[-1][0]


def _doomed_finding(site: Site, path: str) -> Finding:
    gone = site.warehouse.modified(path) is None
    what = "it is listed to be removed, and is gone" if gone else "it is still to be removed"
    why, how = "a vacuum was killed, and nobody needs the file", "errata doctor --fix, or the next vacuum"
    return Finding(None, FindingKind.DOOMED, what, path, why, how, mendable=True, severity=Severity.LITTER)


def _remove_file(site: Site, path: str) -> bool:
    try:
        site.warehouse.remove(path)
    except OSError:  # it stays a finding, and vacuum says why
        return False
    return True


def _orphan_findings(site: Site, names: Sequence[str], options: DoctorOptions) -> Iterator[Finding]:
    """Files that killed runs left: buckets that were never committed, and rows for quarantine."""
    for freed in sweeping.plan_vacuum(site, names, options.grace).freed:
        if freed.reason is VacuumReason.ORPHANED:
            what = (
                f"{freed.files:,} file{'' if freed.files == 1 else 's'} that no index row names ({freed.bytes:,} bytes)"
            )
            why, how = "no reader sees them; they take room", f"errata archive vacuum {freed.stream}"
            where = f"{freed.stream}/{freed.kind}"
            yield Finding(freed.stream, FindingKind.ORPHAN, what, where, why, how, severity=Severity.LITTER)
