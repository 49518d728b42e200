"""The doctor: whether archives are whole, what is wrong with them, and the mending of what can be mended safely."""

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
"""Something that shows how far work is: its title, and how much of it there is."""


@contextmanager
def _no_progress(_title: str, _total: int) -> Iterator[Callable[[int], None]]:
    yield lambda _: None


@dataclass(frozen=True, slots=True)
class DoctorOptions:
    """How closely to look, and what to do about it."""

    deep: bool = True
    """Read all rows; else only what the index and the folders tell."""
    fix: bool = False
    grace: int = DEFAULT_GRACE
    """What no index row names and is younger may be in use."""


@dataclass(frozen=True, slots=True)
class DoctorReport:
    """A stream, or the house around them, that has been looked at."""

    stream: str | None
    buckets: int = 0
    """Live base buckets."""
    overlays: int = 0
    findings: Sequence[Finding] = ()
    """What is wrong with it."""
    mended: Sequence[Finding] = ()
    """What was."""
    commit_id: int | None = None
    """The commit that mended it."""


def run_doctor(
    site: Site,
    names: Sequence[str] = (),
    orders: DoctorOptions = DoctorOptions(),
    on_step: ProgressCallback = lambda _: None,
    bar: ProgressBar = _no_progress,
) -> list[DoctorReport]:
    """Look at the streams named, or at all there are and were, and at what they share; the latter comes last."""
    recorded = vacuum.all_archives(site.catalog)
    there = {each.name for each in recorded}
    for name in names:
        if name not in there:
            raise unknown_name_error("stream", name, there)
    found = [_examine_archive(site, each, orders, on_step, bar) for each in recorded if not names or each.name in names]
    on_step("looking at commits and files")
    return [*found, _check_shared(site, names, orders)]


def _examine_archive(
    site: Site, recorded: ArchiveEntry, orders: DoctorOptions, on_step: ProgressCallback, bar: ProgressBar
) -> DoctorReport:
    def attempt(_: int) -> DoctorReport:
        on_step(f"looking at {recorded.name}")
        kept_from = health.oldest_checked_commit(site.catalog, recorded.stream_id)
        with pins.hold_pin(site.catalog, kept_from, f"doctor of {recorded.name}"), spark_errors_in_words():
            visit = _check_archive(site, recorded, kept_from, orders, bar)
            findings, wanted = by_severity(list(visit.findings())), visit.repair()
        roles = [bucket.role for bucket in visit.case.live]
        done = DoctorReport(recorded.name, roles.count(Role.BASE), roles.count(Role.OVERLAY), findings)
        if not orders.fix or wanted.nothing:
            return done
        with site.discard_on_conflict((), partial(on_step, "another writer came first; looking again")):
            commit_id = repair.commit_repair(site.catalog, visit.basis, wanted, site.caused_by("doctor"))
        left = [each for each in findings if not each.mendable]
        mended = [each for each in findings if each.mendable]
        return replace(done, findings=left, mended=mended, commit_id=commit_id)

    what = f"writer moved stream {recorded.name} first; nothing of it was mended"
    return optimistic(attempt, give_up(what, "run it again, or without --fix to look only"))


def _check_archive(
    site: Site, recorded: ArchiveEntry, kept_from: int, orders: DoctorOptions, bar: ProgressBar
) -> _StreamCheck | ResultCheck:
    if recorded.of_query:
        return ResultCheck.inspect(site, recorded.stream_id, kept_from, bar, deep=orders.deep)
    return _StreamCheck.inspect(site, health.stream_inventory(site.catalog, recorded.stream_id, kept_from), orders, bar)


@dataclass(frozen=True, slots=True)
class _StreamCheck:
    """A look at a stream."""

    site: Site
    case: StreamInventory
    deep: bool
    looked: InspectionResult
    laid: LiveOverlays | None
    """The live overlays; None when they, or live base buckets, are not all whole, or have not been read."""

    @classmethod
    def inspect(cls, site: Site, case: StreamInventory, orders: DoctorOptions, bar: ProgressBar) -> _StreamCheck:
        """Look at all buckets: first at those that others are compared with."""
        if not orders.deep:
            inline = health.inline_sizes(site.catalog, case.standing.stream_id)
            seen = inspect_sizes(site.warehouse, case.buckets, inline)
            return cls(site, case, False, InspectionResult(seen), None)
        base = [each for each in case.live if each.role is Role.BASE]
        overlays = [each for each in case.live if each.role is Role.OVERLAY]
        ids = {each.bucket_id for each in base}
        others = [each for each in case.buckets if each.bucket_id not in ids]
        standing = case.standing
        ward = InspectionContext(standing.stream, site.warehouse, standing.aged_to, None)
        with bar(f"reading {standing.stream.name}", len(case.buckets)) as on_done:
            first = inspect_buckets(site.session, site.catalog, ward, others, on_done)
            laid = None
            if _are_whole(overlays, first.seen):
                laid = LiveOverlays.read(site.catalog, site.warehouse, standing, overlays)
                laid_over = [_with_true_figures(each, first.seen[each.bucket_id]) for each in overlays]
                ward = replace(ward, overlays=tuple(bucket_sources(site.catalog, laid_over)))
            second = inspect_buckets(site.session, site.catalog, ward, base, on_done)
        seen = first.seen | second.seen
        if laid is not None:
            brought, left = laid.added_counts(), laid.live_counts()
            for bucket_id in (each.bucket_id for each in overlays):
                count = brought[bucket_id]
                seen[bucket_id] = replace(seen[bucket_id], counting=count, masked=count - left[bucket_id])
        sound = _are_whole(base, seen) and not any(seen[each.bucket_id].nulls for each in base)
        return cls(site, case, True, InspectionResult(seen, second.hits), laid if sound else None)

    @property
    def basis(self) -> StreamState:
        """What a mending goes by."""
        return self.case.standing

    def findings(self) -> Iterator[Finding]:
        """All that is wrong."""
        case, seen = self.case, self.looked.seen
        patient = self._patient
        for bucket in case.buckets:
            yield from bucket_findings(patient, bucket, seen[bucket.bucket_id])
            if bucket.bucket_id in case.misclassed:
                yield misclassed_finding(patient, bucket)
        true = [_with_true_figures(bucket, seen[bucket.bucket_id]) for bucket in case.buckets]
        yield from overlap_findings(patient, (each for each in true if each.role is Role.BASE))
        rows = {**case.rows, **{each.bucket_id: each.rows for each in true}}
        for entry in case.entries:
            yield from ledger_findings(patient, entry, rows, vacuumed=case.vacuumed)
        if not case.dropped:
            live = [each for each in true if each.removed_in is None]
            yield from self._standing(patient, live)
            yield from self._agreement(patient, live)

    def repair(self) -> ArchiveRepair:
        """What of it can be noted as it is."""
        seen = self.looked.seen
        figures, masked = {}, {}
        for bucket in self.case.buckets:
            told = seen[bucket.bucket_id]
            if differing_figures(bucket, told) or bucket.bucket_id in self.case.misclassed:
                right = told.figures if told.figures is not None and told.whole(bucket) else BucketFigures.told(bucket)
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
    def _patient(self) -> InspectedStream:
        live = self.case.live
        whole = sum(self.looked.seen[each.bucket_id].whole(each) for each in live)
        return InspectedStream(self.case.standing.stream, whole)

    @property
    def _rows(self) -> int | None:
        """How many rows count; None when not all of them could be looked at."""
        if self.laid is None:
            return None
        seen = [self.looked.seen[each.bucket_id] for each in self.case.live if each.role is not Role.PENDING]
        return sum(each.counting - (each.masked or 0) for each in seen)

    @property
    def _inline_bytes(self) -> int:
        inline = [each for each in self.case.live if each.inline]
        sizes = ((self.looked.seen[each.bucket_id].size, each.size) for each in inline)
        return sum(noted if found is None else found for found, noted in sizes)

    def _standing(self, patient: InspectedStream, live: Sequence[Bucket]) -> Iterator[Finding]:
        """What the stream's own row, its positions and its numbers say."""
        case, standing = self.case, self.case.standing
        yield from counter_findings(patient, "inline_bytes", standing.inline_bytes, self._inline_bytes)
        rows, plain = self._rows, not standing.applied and standing.aged_to is None
        if rows is not None:
            yield from counter_findings(patient, "rows", standing.rows, rows)
        elif plain:
            indexed = sum(each.rows - each.masked for each in live if each.role is Role.BASE)
            yield from counter_findings(patient, "rows", standing.rows, indexed, sure=False)
        compared = rows is None and not plain
        yield from position_findings(patient, case.now, case.positions, newest=case.newest, rows=compared)
        lost = case.withdrawn_before if case.vacuumed else 0
        yield from number_findings(patient, case.now, standing.revisions, live, case.withdrawn, lost)

    def _agreement(self, patient: InspectedStream, live: Sequence[Bucket]) -> Iterator[Finding]:
        """Whether rows and corrections agree."""
        if self.laid is None:
            return
        site, case = self.site, self.case
        yield from self.laid.findings(patient, self.looked.hits)
        base, overlays = ([each for each in live if each.role is role] for role in (Role.BASE, Role.OVERLAY))
        scan, found = ArchiveScan(case.standing, case.newest), ScanBuckets(base, overlays)
        yield from duplicate_key_findings(site.engines(), site.catalog, site.warehouse, patient, scan, found)


def _are_whole(found: Sequence[Bucket], seen: dict[int, BucketInspection]) -> bool:
    return all(seen[each.bucket_id].whole(each) for each in found)


def _with_true_figures(bucket: Bucket, seen: BucketInspection) -> Bucket:
    """The bucket with the figures that its own rows tell, where these are known."""
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


def _check_shared(site: Site, names: Sequence[str], orders: DoctorOptions) -> DoctorReport:
    """What all streams share: commits, pins, consumers, and what lies in the warehouse."""
    findings = health.catalog_findings(site.catalog)
    needed = {each.where for each in findings if each.kind is FindingKind.DOOMED}
    # States of queries go with each evaluation, and wait for vacuum as superseded buckets do.
    listed = [path for path in _doomed_files(site) if path not in needed and path.split("/")[1] != Role.STATE]
    findings += [_doomed_finding(site, path) for path in listed]
    findings += _orphan_findings(site, names, orders)
    findings = by_severity(findings)
    if not orders.fix or not any(each.mendable for each in findings):
        return DoctorReport(None, findings=findings)
    stuck = {path for path in listed if not _remove_file(site, path)}
    gone = [path for path in listed if path not in stuck]
    commit_id = repair.commit_cleanup(site.catalog, gone, site.caused_by("doctor"))
    mended = [each for each in findings if each.mendable and each.where not in stuck]
    left = [each for each in findings if not each.mendable or each.where in stuck]
    return DoctorReport(None, findings=left, mended=mended, commit_id=commit_id)


def _doomed_files(site: Site) -> Iterator[str]:
    """The files that are still to be removed."""
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


def _orphan_findings(site: Site, names: Sequence[str], orders: DoctorOptions) -> Iterator[Finding]:
    """What killed runs left: buckets that were never committed, and rows that were to go into quarantine."""
    for freed in sweeping.plan_vacuum(site, names, orders.grace).freed:
        if freed.reason is VacuumReason.ORPHANED:
            what = (
                f"{freed.files:,} file{'' if freed.files == 1 else 's'} that no index row names ({freed.bytes:,} bytes)"
            )
            why, how = "no reader sees them; they take room", f"errata archive vacuum {freed.stream}"
            where = f"{freed.stream}/{freed.kind}"
            yield Finding(freed.stream, FindingKind.ORPHAN, what, where, why, how, severity=Severity.LITTER)
