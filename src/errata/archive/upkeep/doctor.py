"""The doctor: checks archives and what they share, and repairs what can be repaired safely.

A check reads every bucket (deep) or only sizes and the index, and compares what it finds with the figures that the
catalog keeps. Figures are repaired; damaged rows are reported, never changed. Each archive is checked by itself
(`archive_check`); what all share (commits, pins, files in the warehouse) comes last.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial

from errata.archive.upkeep import vacuum as sweeping
from errata.archive.upkeep.archive_check import ProgressBar, check_archive
from errata.archive.upkeep.vacuum import DEFAULT_GRACE, VacuumReason
from errata.catalog import health, pins, repair, vacuum
from errata.catalog.transaction import give_up, optimistic
from errata.catalog.vacuum import ArchiveEntry
from errata.declare.site import ProgressCallback, Site
from errata.engine.failures import spark_errors_in_words
from errata.errors import unknown_name_error
from errata.model.bucket import REPLACED_ROLES, Role
from errata.model.findings import Finding, FindingKind, Severity, by_severity


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
            check = check_archive(site, recorded.stream_id, kept_from, bar, deep=options.deep)
            findings, wanted = by_severity(list(check.findings())), check.repair()
        roles = [bucket.role for bucket in check.case.live]
        done = DoctorReport(recorded.name, roles.count(Role.BASE), roles.count(Role.OVERLAY), findings)
        if not options.fix or wanted.nothing:
            return done
        with site.discard_on_conflict((), partial(on_step, "another writer came first; looking again")):
            commit_id = repair.commit_repair(site.catalog, check.case, wanted, site.caused_by("doctor"))
        left = [each for each in findings if not each.mendable]
        mended = [each for each in findings if each.mendable]
        return replace(done, findings=left, mended=mended, commit_id=commit_id)

    what = f"writer moved stream {recorded.name} first; nothing of it was mended"
    return optimistic(attempt, give_up(what, "run it again, or without --fix to look only"))


def _check_shared(site: Site, names: Sequence[str], options: DoctorOptions) -> DoctorReport:
    """Check what all archives share: commits, pins, consumers, and the files in the warehouse."""
    findings = health.catalog_findings(site.catalog)
    needed = {each.where for each in findings if each.kind is FindingKind.DOOMED}
    # States are replaced by each step, of a query or of a merge, and wait for vacuum, as superseded buckets do.
    listed = [path for path in _doomed_files(site) if path not in needed and path.split("/")[1] not in REPLACED_ROLES]
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
