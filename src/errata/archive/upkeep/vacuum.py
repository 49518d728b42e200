"""Vacuum: what nobody needs any more is removed, index rows first and files after them, then what was left lying about.

Running it again, or twice at once, or after it was killed, does no harm: see `catalog.vacuum` for the order of things.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from errata.catalog import pins, vacuum
from errata.catalog import vacuum as index
from errata.catalog.vacuum import ArchiveEntry, RecordCounts, SpentBucket
from errata.declare.site import Site
from errata.declare.warehouse import is_own_name
from errata.errors import unknown_name_error
from errata.model.bucket import Role
from errata.model.time import DAY

DEFAULT_GRACE = DAY
"""What no index row names and is younger may belong to a batch that is being taken in."""

ProgressCallback = Callable[[str], None]


class VacuumReason(StrEnum):
    """Why something is removed."""

    SUPERSEDED = "superseded"
    """A bucket that no commit within the horizon and no reader sees."""
    UNFINISHED = "unfinished"
    """The file of such a bucket, left by a vacuum that was killed."""
    ORPHANED = "orphaned"
    """A file that no index row names, left by whatever was killed before its commit."""


@dataclass(frozen=True, slots=True)
class FreedSpace:
    """What was removed of one stream, of one kind, for one reason; or would be."""

    stream: str
    reason: VacuumReason
    kind: str
    buckets: int
    files: int
    bytes: int


@dataclass(frozen=True, slots=True)
class VacuumReport:
    """What came of it."""

    freed: Sequence[FreedSpace]
    commits: Sequence[int]
    """One for each stream that lost index rows."""
    folders: int
    """Folders of days that were left empty."""
    young: int
    """Files that no index row names and that stay, because they may be in use."""
    foreign: int
    """Files that are not Errata's, and stay."""
    forgotten: RecordCounts
    """Records of the past that no commit within the horizon needs, and pins that have expired."""
    failed: Sequence[str]
    """Files that could not be removed, with the reason; the next vacuum tries again."""


def plan_vacuum(
    site: Site, names: Sequence[str] = (), grace: int = DEFAULT_GRACE, on_step: ProgressCallback = lambda _: None
) -> VacuumReport:
    """What vacuum would do now. Nothing is touched."""
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
        run.forgotten = vacuum.forgettable_records(site.catalog)
    return run.result()


def run_vacuum(
    site: Site, names: Sequence[str] = (), grace: int = DEFAULT_GRACE, on_step: ProgressCallback = lambda _: None
) -> VacuumReport:
    """Remove what the streams named no longer need, or all there are and were, and what has been left lying about."""
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
        run.forgotten = replace(vacuum.forget_records(site.catalog), pins=expired)
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
    """The list that a vacuum left which did not end."""
    path = ""
    while found := index.doomed_files(site.catalog, path):
        yield from found
        path = found[-1][0]


@dataclass
class _VacuumRun:
    """A run of vacuum, or of its plan, and what it has come upon."""

    site: Site
    grace: int
    on_step: ProgressCallback
    act: bool
    going: set[str] = field(default_factory=set)
    """In a plan: what would be gone by the time the warehouse is looked through."""
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
        # Each evaluation of a query leaves the state of the one before to vacuum.
        what = VacuumReason.SUPERSEDED if kind == Role.STATE else VacuumReason.UNFINISHED
        self.count(stream, what, kind, 0, 1, size)

    def remove_doomed(self, on_removed: Callable[[str, int], None] = lambda *_: None) -> None:
        """Work off the list of files that are to go: ours, and that of a vacuum which was killed."""
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
        """Whether the file is gone now."""

        def gone(path: str) -> bool:
            self.site.warehouse.remove(path)
            return True

        return self.attempt(path, gone)

    def attempt(self, path: str, removing: Callable[[str], bool]) -> bool:
        """What cannot be removed is no reason to keep the rest."""
        try:
            return removing(path)
        except OSError as error:
            self.stuck[path] = error.strerror or str(error)
            return False

    def sweep(self, streams: Collection[str], *, everywhere: bool) -> None:
        """Look through the folders of the streams for what nobody knows, and through others only to count."""
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
        """Those that no index row names, and that are old enough not to be in use. The age is asked of these alone:
        it may be a request for each file. A file whose index row comes only now is younger than the grace."""
        for path in index.unreferenced_paths(self.site.catalog, paths):
            modified = self.site.warehouse.modified(path)
            if modified is None:
                continue  # somebody else has just removed it
            if modified + self.grace <= self.site.catalog.clock.now():
                yield path
            else:
                self.young += 1
