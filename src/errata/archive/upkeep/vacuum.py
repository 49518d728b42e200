"""Vacuum: removes buckets and records that no commit within the horizon needs, and files that no index row names.

Index rows go first and their files after them; a list in the catalog keeps what is still to be removed, so that vacuum
may be killed, repeated, or run twice at once (`catalog.vacuum` has the protocol). Orphaned files are removed after a
grace period, since younger ones may belong to a batch that is being ingested.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from errata.catalog import match_segments, pins, vacuum
from errata.catalog import vacuum as index
from errata.catalog.vacuum import ArchiveEntry, RecordCounts, SpentBucket
from errata.declare.site import ProgressCallback, Site
from errata.declare.warehouse import is_own_name
from errata.errors import unknown_name_error
from errata.model.bucket import REPLACED_ROLES
from errata.model.time import DAY

DEFAULT_GRACE = DAY
"""Microseconds for which files that no index row names stay: a running batch may commit them."""


class VacuumReason(StrEnum):
    """Why something is removed."""

    SUPERSEDED = "superseded"
    """A bucket that no commit within the horizon and no reader sees."""
    UNFINISHED = "unfinished"
    """The file of such a bucket that a killed vacuum left."""
    ORPHANED = "orphaned"
    """A file that no index row names, left by a run that was killed before its commit."""


@dataclass(frozen=True, slots=True)
class FreedSpace:
    """What was, or would be, removed of one archive, of one kind, for one reason."""

    stream: str
    reason: VacuumReason
    kind: str
    buckets: int
    files: int
    bytes: int


@dataclass(frozen=True, slots=True)
class VacuumReport:
    """The outcome of a vacuum, or of its plan."""

    freed: Sequence[FreedSpace]
    commits: Sequence[int]
    """A commit for each archive that lost index rows."""
    folders: int
    """Empty folders of days that were removed."""
    young: int
    """Files that no index row names and that stay, since they are younger than the grace period."""
    foreign: int
    """Files that are not Errata's; they stay."""
    forgotten: RecordCounts
    """Catalog records that no commit within the horizon needs, and expired pins."""
    failed: Sequence[str]
    """Files that could not be removed, with the reason; the next vacuum tries again."""


def plan_vacuum(
    site: Site, names: Sequence[str] = (), grace: int = DEFAULT_GRACE, on_step: ProgressCallback = lambda _: None
) -> VacuumReport:
    """What vacuum would do now; nothing is changed."""
    chosen = _select_recorded(site, names)
    run = _VacuumRun(site, grace, on_step, act=False)
    for path, size in _unfinished_files(site):
        run.count_unfinished(path, size)
        run.going.add(path)
    for each in chosen:
        on_step(f"looking for what {each.name} no longer needs")
        spent = index.spent_buckets(site.catalog, each.stream_id)
        run.count_spent(each, spent)
        run.going |= {bucket.path for bucket in spent if bucket.path is not None}
    run.sweep({each.name for each in chosen}, everywhere=not names)
    if not names:
        segments = match_segments.forgettable_matches(site.catalog)
        run.forgotten = replace(vacuum.forgettable_records(site.catalog), segments=segments)
    return run.result()


def run_vacuum(
    site: Site, names: Sequence[str] = (), grace: int = DEFAULT_GRACE, on_step: ProgressCallback = lambda _: None
) -> VacuumReport:
    """Remove what the archives named, or all that the catalog knows, no longer need, and their orphaned files."""
    chosen = _select_recorded(site, names)
    run = _VacuumRun(site, grace, on_step, act=True)
    expired = pins.drop_expired_pins(site.catalog)
    run.remove_doomed(run.count_unfinished)
    for each in chosen:
        on_step(f"removing what {each.name} no longer needs from the index")
        commit_id, spent = index.remove_spent(site.catalog, each.stream_id, site.caused_by("vacuum"))
        run.commits += [] if commit_id is None else [commit_id]
        run.count_spent(each, spent)
        run.remove_doomed()
    if not names:  # the records of one archive are needed by others
        segments = match_segments.forget_matches(site.catalog)
        run.remove_doomed()
        run.forgotten = replace(vacuum.forget_records(site.catalog), pins=expired, segments=segments)
    run.sweep({each.name for each in chosen}, everywhere=not names)
    return run.result()


def _select_recorded(site: Site, names: Sequence[str]) -> list[ArchiveEntry]:
    recorded = index.all_archives(site.catalog)
    there = {each.name for each in recorded}
    for name in names:
        if name not in there:
            raise unknown_name_error("stream", name, there)
    return [each for each in recorded if not names or each.name in names]


def _unfinished_files(site: Site) -> Iterator[tuple[str, int]]:
    """The files on the list that a killed vacuum left."""
    path = ""
    while found := index.doomed_files(site.catalog, path):
        yield from found
        path = found[-1][0]


@dataclass
class _VacuumRun:
    """A run of vacuum, or of its plan, with its counts."""

    site: Site
    grace: int
    on_step: ProgressCallback
    act: bool
    going: set[str] = field(default_factory=set)
    """In a plan: files that would be gone before the warehouse is searched for orphans."""
    tally: dict[tuple[str, VacuumReason, str], list[int]] = field(
        default_factory=lambda: defaultdict(lambda: [0, 0, 0])
    )
    commits: list[int] = field(default_factory=list)
    stuck: dict[str, str] = field(default_factory=dict)
    folders: int = 0
    young: int = 0
    foreign: int = 0
    forgotten: RecordCounts = field(default_factory=RecordCounts)

    def result(self) -> VacuumReport:
        freed = [FreedSpace(*about, *amounts) for about, amounts in sorted(self.tally.items())]
        stuck = [f"{path}: {why}" for path, why in sorted(self.stuck.items())]
        return VacuumReport(freed, self.commits, self.folders, self.young, self.foreign, self.forgotten, stuck)

    def count(self, stream: str, what: VacuumReason, kind: str, buckets: int, files: int, size: int) -> None:
        amounts = self.tally[stream, what, kind]
        for place, more in enumerate((buckets, files, size)):
            amounts[place] += more

    def count_spent(self, stream: ArchiveEntry, spent: Sequence[SpentBucket]) -> None:
        for each in spent:
            self.count(stream.name, VacuumReason.SUPERSEDED, each.role.value, 1, int(each.path is not None), each.size)

    def count_unfinished(self, path: str, size: int) -> None:
        stream, kind, *_ = path.split("/")
        # Each evaluation of a query replaces the state of the one before, and leaves that to vacuum.
        what = VacuumReason.SUPERSEDED if kind in REPLACED_ROLES else VacuumReason.UNFINISHED
        self.count(stream, what, kind, 0, 1, size)

    def remove_doomed(self, on_removed: Callable[[str, int], None] = lambda *_: None) -> None:
        """Remove the files on the list: of this run, and of a vacuum that was killed."""
        removed = 0
        path = ""
        while found := index.doomed_files(self.site.catalog, path):
            gone = [(path, size) for path, size in found if self.remove(path)]
            index.drop_doomed(self.site.catalog, [path for path, _ in gone])
            for each in gone:
                on_removed(*each)
            removed += len(gone)
            self.on_step(f"{removed:,} files removed")
            path = found[-1][0]

    def remove(self, path: str) -> bool:
        """Remove a file; whether it is gone now."""

        def gone(path: str) -> bool:
            self.site.warehouse.remove(path)
            return True

        return self.attempt(path, gone)

    def attempt(self, path: str, removing: Callable[[str], bool]) -> bool:
        """Remove something; a failure is recorded and does not stop the rest."""
        try:
            return removing(path)
        except OSError as error:
            self.stuck[path] = error.strerror or str(error)
            return False

    def sweep(self, streams: Collection[str], *, everywhere: bool) -> None:
        """Search the archives' folders for orphans, and other folders only to count foreign files."""
        warehouse = self.site.warehouse
        for stream in sorted(streams):
            for day in warehouse.days(stream):
                self.on_step(f"looking through {day}")
                self.sweep_day(stream, day)
        self.on_step("looking for what is not Errata's")
        self.foreign += sum(warehouse.elsewhere(streams, ("",) if everywhere else sorted(streams)))

    def sweep_day(self, stream: str, day: str) -> None:
        found = {f"{day}/{entry.name}": entry for entry in self.site.warehouse.entries(day)}
        own = [path for path, entry in found.items() if entry.file and is_own_name(day, entry.name)]
        self.foreign += sum(not entry.folder for entry in found.values()) - len(own)
        inner = [path for path, entry in found.items() if entry.folder]
        self.foreign += sum(self.site.warehouse.elsewhere((), inner))
        left = len(found) - sum(path in self.going for path in own)
        for path in self.orphans(own):
            if not self.act or self.remove(path):
                self.count(stream, VacuumReason.ORPHANED, day.split("/")[1], 0, 1, found[path].size)
                left -= 1
        if not left and self.site.warehouse.local:
            self.folders += not self.act or self.attempt(day, self.site.warehouse.remove_if_empty)

    def orphans(self, paths: Sequence[str]) -> Iterator[str]:
        """The files that no index row names and that are older than the grace period. Only these are asked for their
        age, since that may be a request for each file. A file whose index row is only being committed is younger."""
        for path in index.unreferenced_paths(self.site.catalog, paths):
            modified = self.site.warehouse.modified(path)
            if modified is None:
                continue  # somebody else has just removed it
            if modified + self.grace <= self.site.catalog.clock.now():
                yield path
            else:
                self.young += 1
