"""Vacuum over real files: what goes, what stays, killed at every step, and readers at work meanwhile."""

from __future__ import annotations

import os
import pickle
import shutil
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event, select
from upath import UPath

from errata.archive.upkeep.vacuum import FreedSpace, VacuumReason, VacuumReport, plan_vacuum, run_vacuum
from errata.catalog import bucket_writes, buckets, commits, declarations, pins, streams, tables
from errata.catalog import vacuum as index
from errata.catalog.bucket_writes import BucketAddition
from errata.catalog.database import Catalog, open_catalog
from errata.catalog.vacuum import RecordCounts
from errata.declare.site import Site
from errata.declare.warehouse import Warehouse
from errata.errors import ErrataError, UsageError
from errata.model.bucket import NewBucket, Role
from errata.model.commit import Cause
from errata.model.stream import Stream
from errata.model.time import DAY, HOUR, SECOND
from fixtures.catalog import NOW, a_bucket
from fixtures.clock import FixedClock
from fixtures.flows import House, a_feed, build
from fixtures.killed_steps import OnStep, StepServer, report_calls, serve, step_server
from fixtures.postgres import FreshDatabase

HEX = "0123456789abcdef" * 2


@dataclass
class Archive:
    """A house whose buckets are made by hand: files of a few bytes that no Spark has to write."""

    house: House

    @property
    def site(self) -> Site:
        return self.house.site

    @property
    def catalog(self) -> Catalog:
        return self.house.catalog

    def bucket(self, role: Role = Role.BASE, stream: str = "feed", *, inline: bool = False, day: int = 0) -> NewBucket:
        place = NOW + day * DAY
        if inline:
            return replace(a_bucket(place, place + 9, path=None, data=b"123", size=3), role=role)
        path = self.site.warehouse.new_name(self.site.project.streams[stream], place, role.value)
        self.put(path, b"1234567")
        return replace(a_bucket(place, place + 9, path=path, size=7), role=role)

    def put(self, path: str, data: bytes = b"12345", age: int = 0) -> str:
        """A file, so old by the clock of the tests."""
        self.site.warehouse.write(path, data)
        at = (self.house.clock.now() - age) / SECOND
        os.utime(self.site.warehouse.path(path), (at, at))
        return path

    def change(self, add: Sequence[NewBucket] = (), remove: Sequence[int] = (), stream: str = "feed") -> int:
        with self.catalog.writing() as connection:
            stream_id = streams.stream_state(self.catalog, stream).stream_id
            streams.lock_stream(connection, stream_id)
            now = self.catalog.clock.now()
            commit_id = commits.record_commit(connection, now, Cause("test"), stream_id=stream_id, summary={})
            bucket_writes.add_buckets(connection, stream_id, commit_id, BucketAddition(add))
            assert bucket_writes.remove_buckets(connection, remove, commit_id) == len(remove)
            return commit_id

    def drop(self, stream: str = "feed") -> int:
        return declarations.apply_changes(self.catalog, Cause("apply"), write=[], drop=[stream], summary={})

    def named(self) -> set[str]:
        """The paths that index rows name."""
        with self.catalog.reading() as connection:
            found = connection.execute(select(tables.buckets.c.path)).scalars()
            return {path for path in found if path is not None}

    def folders(self) -> set[str]:
        root = Path(self.site.warehouse.uri)
        return {str(path.relative_to(root)) for path in root.rglob("*") if path.is_dir()}

    def planned_and_done(self, *names: str, grace: int = DAY) -> VacuumReport:
        """What was done, which must be what was planned, and nothing may be left to do."""
        before = (self.house.files(), self.folders(), self.named(), commits.newest_commit(self.catalog))
        planned = plan_vacuum(self.site, names, grace)
        assert (self.house.files(), self.folders(), self.named(), commits.newest_commit(self.catalog)) == before
        done = run_vacuum(self.site, names, grace)
        assert replace(done, commits=[]) == planned
        again = plan_vacuum(self.site, names, grace)
        assert (again.freed, again.folders, again.failed) == ([], 0, [])
        return done


def freed(done: VacuumReport) -> dict[tuple[str, str, str], tuple[int, int, int]]:
    return {(each.stream, each.reason.value, each.kind): (each.buckets, each.files, each.bytes) for each in done.freed}


def an_archive(folder: Path, url: str, *declared: Stream) -> Archive:
    return Archive(build(folder, url, *(declared or [a_feed(horizon=DAY)])))


@pytest.fixture
def archive(tmp_path: Path) -> Iterator[Archive]:
    made = an_archive(tmp_path, f"sqlite:///{tmp_path}/errata.db", a_feed(horizon=DAY), a_feed("other", horizon=0))
    yield made
    made.house.catalog.close()


def test_what_is_freed_is_told_by_stream_and_kind(archive: Archive) -> None:
    kinds = [Role.BASE, Role.PENDING, Role.OVERLAY]
    archive.change([archive.bucket(role) for role in kinds] + [archive.bucket(inline=True), archive.bucket(day=1)])
    archive.change([archive.bucket()], [1, 2, 3, 4])
    archive.change([archive.bucket(stream="other")], stream="other")
    archive.change(remove=[7], stream="other")
    archive.house.clock.advance(DAY)
    done = archive.planned_and_done()
    assert freed(done) == {
        ("feed", "superseded", "base"): (2, 1, 10),
        ("feed", "superseded", "pending"): (1, 1, 7),
        ("other", "superseded", "base"): (1, 1, 7),
    }
    assert done.commits == [6, 7]
    assert [(each.stream, each.cause.flow) for each in commits.list_commits(archive.catalog, last=2)] == [
        ("feed", "vacuum"),
        ("other", "vacuum"),
    ]
    assert (done.young, done.foreign, done.failed) == (0, 0, [])
    assert archive.named() == archive.house.files()
    assert len(archive.named()) == 3, "an overlay that was folded is kept: its rows have not aged out"
    # Where nothing is left of a day, its folder goes too.
    assert done.folders == 2
    assert {folder for folder in archive.folders() if folder.count("/") == 2} == {
        str(Path(path).parent) for path in archive.named()
    }


def test_nothing_to_do_makes_no_commit(archive: Archive) -> None:
    archive.change([archive.bucket()])
    assert archive.planned_and_done() == VacuumReport([], [], 0, 0, 0, RecordCounts(), [])
    assert commits.newest_commit(archive.catalog) == 2
    with pytest.raises(UsageError, match="did you mean feed"):
        run_vacuum(archive.site, ["fed"])
    with pytest.raises(UsageError, match="did you mean feed"):
        plan_vacuum(archive.site, ["fed"])


def test_only_the_streams_named(archive: Archive) -> None:
    for stream in ("feed", "other"):
        archive.change([archive.bucket(stream=stream)], stream=stream)
    archive.change(remove=[1])
    archive.change(remove=[2], stream="other")
    for stream in ("feed", "other"):
        archive.put(f"{stream}/base/all/{HEX}.parquet", age=DAY)
        archive.put(f"{stream}/mine.txt")
    archive.put("root.txt")
    archive.house.clock.advance(DAY)
    done = archive.planned_and_done("other")
    assert freed(done) == {("other", "superseded", "base"): (1, 1, 7), ("other", "orphaned", "base"): (0, 1, 5)}
    assert done.foreign == 1
    done = archive.planned_and_done()
    assert freed(done) == {("feed", "superseded", "base"): (1, 1, 7), ("feed", "orphaned", "base"): (0, 1, 5)}
    assert done.foreign == 3


def test_orphans_go_after_a_time_of_grace(archive: Archive) -> None:
    live = archive.bucket()
    archive.change([live])
    assert live.path is not None
    archive.put(live.path, age=9 * DAY)
    old = [archive.put(f"feed/{kind}/2026-11-18/{HEX}.parquet", age=HOUR) for kind in ("base", "pending", "overlay")]
    old.append(archive.put(f"feed/faults/all/{HEX}.arrow", age=HOUR))
    old.append(archive.put("feed/retried/0123456789ab/0.csv", age=HOUR))
    young = archive.put(f"feed/base/all/{HEX}.parquet", age=HOUR - SECOND)
    archive.put(f"feed/base/2027-01-01/{HEX}.parquet", age=-HOUR)
    done = archive.planned_and_done(grace=HOUR)
    assert (done.young, done.folders, done.commits) == (2, 5, [])
    kinds = ("base", "pending", "overlay", "faults", "retried")
    assert freed(done) == {("feed", "orphaned", kind): (0, 1, 5) for kind in kinds}
    assert archive.house.files() & {*old, young, live.path} == {young, live.path}
    archive.house.clock.advance(SECOND)
    assert freed(archive.planned_and_done(grace=HOUR)) == {("feed", "orphaned", "base"): (0, 1, 5)}
    assert freed(archive.planned_and_done(grace=0)) == {}, "a file from the future is not old"


FOREIGN = [
    "readme.txt",
    f"{HEX}.parquet",
    "feed/notes.txt",
    f"feed/{HEX}.parquet",
    f"feed/base/{HEX}.parquet",
    f"feed/base/2026-11/{HEX}.parquet",
    f"feed/base/2026-11-18/deeper/{HEX}.parquet",
    f"feed/base/2026-11-18/{HEX}.csv",
    f"feed/retried/0123456789ab/{HEX}.parquet",
    "feed/retried/mine/0.csv",
    f"feed/base/2026-11-18/{HEX}.parquet.crc",
    "feed/base/2026-11-18/part-0.parquet",
    f"feed/base/2026-11-18/{HEX.upper()}.parquet",
    f"feed/mine/2026-11-18/{HEX}.parquet",
    f"nobody/base/2026-11-18/{HEX}.parquet",
]


def test_what_is_not_erratas_stays_and_is_counted(archive: Archive) -> None:
    for path in FOREIGN:
        archive.put(path, age=99 * DAY)
    day = Path(archive.site.warehouse.uri) / "feed/base/2026-11-18"
    (day / f"{'a' * 32}.parquet").symlink_to(Path(__file__))
    (day / f"{'b' * 32}.parquet").mkdir()
    done = archive.planned_and_done()
    assert (done.freed, done.folders) == ([], 0)
    assert archive.house.files() == {*FOREIGN, f"feed/base/2026-11-18/{'a' * 32}.parquet"}
    assert done.foreign == len(FOREIGN) + 1, "and the link, which is no file of ours either, whatever its name"


def test_a_stream_that_was_dropped_leaves_nothing_behind(archive: Archive) -> None:
    archive.change([archive.bucket(role) for role in Role])
    archive.drop()
    archive.put(f"feed/base/all/{HEX}.parquet", age=DAY)
    assert freed(archive.planned_and_done()) == {
        ("feed", "orphaned", "base"): (0, 1, 5),
        ("feed", "superseded", "state"): (1, 1, 7),  # it is for the next evaluation, and there will be none
    }
    archive.house.declare()
    again = archive.bucket()
    archive.change([again])
    archive.house.clock.advance(DAY)
    done = archive.planned_and_done("feed")
    rest = [role for role in Role if role is not Role.STATE]
    assert freed(done) == {("feed", "superseded", role.value): (1, 1, 7) for role in rest}
    assert archive.house.files() == {again.path}


def test_empty_folders_of_days_go_and_others_stay(archive: Archive) -> None:
    root = Path(archive.site.warehouse.uri)
    for folder in ("feed/base/all", "feed/base/mine", "feed/overlay/2026-01-01", "nobody/base/all", "feed/new/all"):
        (root / folder).mkdir(parents=True)
    assert archive.planned_and_done().folders == 2
    left = {"nobody/base/all", "feed/base/mine", "feed/base", "feed/overlay", "feed/new/all"}
    assert {folder for folder in archive.folders() if folder.count("/")} == left | {"nobody/base", "feed/new"}


def test_a_file_that_cannot_be_removed_holds_nothing_else_up(archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    spent = [archive.bucket(), archive.bucket()]
    archive.change(spent)
    archive.change(remove=[1, 2])
    orphan = archive.put(f"feed/base/all/{HEX}.parquet", age=DAY)
    archive.house.clock.advance(DAY)
    stuck = {str(spent[0].path), orphan}
    remove = Warehouse.remove

    def refuses(warehouse: Warehouse, path: str) -> None:
        if path in stuck:
            raise PermissionError(13, "Permission denied", path)
        remove(warehouse, path)

    with monkeypatch.context() as patched:
        patched.setattr(Warehouse, "remove", refuses)
        done = run_vacuum(archive.site)
    assert done.failed == [f"{path}: Permission denied" for path in sorted(stuck)]
    assert freed(done) == {("feed", "superseded", "base"): (2, 2, 14)}
    assert archive.house.files() == stuck
    assert index.doomed_files(archive.catalog) == [(str(spent[0].path), 7)]
    # The next one tries again.
    done = archive.planned_and_done()
    assert freed(done) == {("feed", "unfinished", "base"): (0, 1, 7), ("feed", "orphaned", "base"): (0, 1, 5)}
    assert archive.house.files() == set()


def test_a_file_that_is_gone_already_is_no_failure(archive: Archive) -> None:
    spent = archive.bucket()
    archive.change([spent])
    archive.change(remove=[1])
    archive.house.clock.advance(DAY)
    archive.site.warehouse.remove(str(spent.path))
    assert archive.planned_and_done().failed == []


def test_a_folder_that_cannot_be_listed_is_told(archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(*_: object, **__: object) -> list[object]:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(type(UPath("/").fs), "ls", refuses)
    with pytest.raises(ErrataError, match="cannot be listed"):
        run_vacuum(archive.site)


def test_a_warehouse_that_is_no_disk(tmp_path: Path) -> None:
    """Where folders are only parts of names: the same but for them."""
    made = an_archive(tmp_path, f"sqlite:///{tmp_path}/errata.db")
    uri = f"memory://{tmp_path.name}"
    site = replace(made.site, warehouse=Warehouse(uri))
    names = [site.warehouse.new_name(site.project.streams["feed"], NOW + day * DAY) for day in range(3)]
    for name in names:
        site.warehouse.write(name, b"1234567")
    site.warehouse.write("feed/mine", b"1")
    made.change([a_bucket(NOW, NOW, path=name, size=7) for name in names[:2]])
    made.change(remove=[1])
    made.house.clock.at = time.time_ns() // 1_000 + HOUR
    with_grace, done = run_vacuum(site, grace=2 * HOUR), run_vacuum(site, grace=HOUR // 2)
    assert freed(with_grace) == {("feed", "superseded", "base"): (1, 1, 7)}
    assert (with_grace.young, with_grace.foreign, with_grace.folders) == (1, 1, 0)
    assert freed(done) == {("feed", "orphaned", "base"): (0, 1, 7)}
    assert [entry.name for day in site.warehouse.days("feed") for entry in site.warehouse.entries(day)] == [
        names[1].rpartition("/")[2]
    ]
    made.catalog.close()


def test_a_writer_whose_folder_goes_at_that_moment_makes_it_again(
    archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = f"feed/base/all/{HEX}.parquet"
    vanishings, opened = [1, 2], UPath.open

    def vanish_first(target: Any, *how: Any, **more: Any) -> Any:
        if vanishings:
            vanishings.pop()
            assert archive.site.warehouse.remove_if_empty("feed/base/all")
        return opened(target, *how, **more)

    monkeypatch.setattr(type(UPath(archive.site.warehouse.path(path))), "open", vanish_first, raising=False)
    archive.site.warehouse.write(path, b"1")
    assert (archive.site.warehouse.read(path), vanishings) == (b"1", [])
    assert not archive.site.warehouse.remove_if_empty("feed/base/all")
    assert not archive.site.warehouse.remove_if_empty("feed/base/none")


def test_thousands_of_files_take_seconds(archive: Archive) -> None:
    count = 2_000
    live = [archive.site.warehouse.new_name(a_feed(), NOW + number % 30 * DAY) for number in range(count)]
    orphans = [archive.site.warehouse.new_name(a_feed(), NOW + number % 30 * DAY) for number in range(count)]
    root = Path(archive.site.warehouse.uri)
    for path in (*live, *orphans):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).touch()
    archive.change([a_bucket(0, 9, path=path) for path in live])
    archive.change(remove=list(range(1, count, 2)))
    archive.house.clock.at = time.time_ns() // 1_000 + 2 * DAY
    seen: list[str] = []
    began = time.monotonic()
    done = run_vacuum(archive.site, on_step=seen.append)
    assert time.monotonic() - began < 15
    assert freed(done) == {
        ("feed", "superseded", "base"): (count // 2, count // 2, 100 * count // 2),
        ("feed", "orphaned", "base"): (0, count, 0),
    }
    assert archive.house.files() == archive.named()
    assert sum(step.startswith("looking through feed/base/") for step in seen) == 30
    assert "1,000 files removed" in seen


def test_a_reader_at_an_old_commit_never_loses_a_file(tmp_path: Path, catalog_url: str) -> None:
    """Buckets are replaced without a horizon while vacuum runs: whoever pins and then looks up finds all of them."""
    made = an_archive(tmp_path, catalog_url, a_feed(horizon=0))
    made.change([made.bucket() for _ in range(3)])
    rounds = 25
    done = False

    def replace_all() -> None:
        for _ in range(rounds):
            visible = buckets.visible_buckets(made.catalog, 1, commits.newest_commit(made.catalog))
            live = [bucket.bucket_id for bucket in visible]
            made.change([made.bucket() for _ in range(3)], live)
            run_vacuum(made.site)

    def read() -> int:
        read = 0
        while not done:
            newest = commits.newest_commit(made.catalog)
            with pins.hold_pin(made.catalog, newest, "reader"):
                try:
                    commits.check_not_vacuumed(made.catalog, newest, "feed")
                except ErrataError:
                    continue  # vacuum came before the pin, and it says so
                found = buckets.visible_buckets(made.catalog, 1, newest)
                assert len(found) == 3
                for bucket in found:
                    time.sleep(0.001)
                    assert made.site.warehouse.read(str(bucket.path)) == b"1234567"
                read += 1
        return read

    with ThreadPoolExecutor(3) as pool:
        readers = [pool.submit(read) for _ in range(2)]
        writing = pool.submit(replace_all)
        try:
            writing.result(120)
        finally:
            done = True
        assert sum(reader.result(60) for reader in readers) > 0
    run_vacuum(made.site)
    assert len(made.house.files()) == 3
    made.catalog.close()


LONG = 9 * DAY
"""A grace that lets no file pass for an orphan that is on the list."""


def vacuum(url: str, folder: Path, on_step: OnStep) -> None:
    """Vacuum: each statement, commit and removal is a step."""
    project = pickle.loads((folder / "project.pickle").read_bytes())
    project = replace(project, catalog=url, warehouse=str(folder / "warehouse"))
    catalog = open_catalog(url, FixedClock(NOW + DAY))
    for name in ("before_cursor_execute", "commit"):
        event.listen(catalog.engine, name, on_step)
    report_calls(Warehouse, ("remove", "remove_if_empty"), on_step)
    run_vacuum(Site(project, catalog, Warehouse(project.warehouse)), grace=LONG)


@pytest.fixture(scope="module")
def server() -> Iterator[StepServer]:
    with step_server(__file__) as running:
        yield running


def to_be_killed(folder: Path, url: str) -> Archive:
    """Superseded buckets in files and inline, an orphan, and the list of a vacuum that was killed before."""
    made = an_archive(folder, url)
    made.change([made.bucket(), made.bucket(), made.bucket(inline=True), made.bucket(Role.PENDING)])
    made.change([made.bucket(day=1)], [1, 3, 4])
    made.put(f"feed/overlay/all/{HEX}.parquet", age=LONG)
    made.put(f"feed/base/2020-01-01/{HEX}.parquet")
    with made.catalog.writing() as connection:
        left = {"path": f"feed/base/2020-01-01/{HEX}.parquet", "bytes": 5}
        connection.execute(tables.doomed.insert().values(left))
    (folder / "project.pickle").write_bytes(pickle.dumps(made.site.project))
    made.catalog.close()
    return made


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_killed_at_every_step_and_run_again(
    kind: str, fresh_database: FreshDatabase, server: StepServer, tmp_path: Path
) -> None:
    url = fresh_database(kind)
    folder = tmp_path / "first"
    folder.mkdir()
    made = to_be_killed(folder, url)

    def copied(name: str) -> tuple[str, Path]:
        shutil.copytree(folder, tmp_path / name)
        return fresh_database(kind, like=url), tmp_path / name

    def opened(at: str, within: Path) -> Archive:
        catalog = open_catalog(at, FixedClock(NOW + DAY))
        site = replace(made.site, catalog=catalog, warehouse=Warehouse(str(within / "warehouse")))
        return Archive(House(within, site))

    place = copied("whole")
    _, sound, steps = server.killed_at(*place, 0)
    assert sound
    assert steps > 30
    whole = opened(*place)
    expected = (whole.house.files(), whole.named(), whole.folders())
    assert expected[0] == expected[1]
    assert len(expected[0]) == 2
    whole.catalog.close()

    for step in range(1, steps + 1):
        place = copied(f"step {step}")
        assert server.killed_at(*place, step) == (True, False, step)
        left = opened(*place)
        doomed = {path for path, _ in index.doomed_files(left.catalog)}
        assert left.named() <= left.house.files(), "no index row names a file that is gone"
        assert not left.named() & doomed
        assert expected[1] <= left.named()
        seen = plan_vacuum(left.site, grace=LONG)
        done = run_vacuum(left.site, grace=LONG)
        assert done.freed == seen.freed
        assert (left.house.files(), left.named(), left.folders()) == expected
        assert index.doomed_files(left.catalog) == []
        left.catalog.close()
        shutil.rmtree(place[1])


def test_two_at_once_leave_what_one_leaves(tmp_path: Path, catalog_url: str) -> None:
    made = an_archive(tmp_path, catalog_url, a_feed(horizon=0), a_feed("other", horizon=0))
    for stream in ("feed", "other"):
        made.change([made.bucket(stream=stream, day=number % 3) for number in range(20)], stream=stream)
    made.change(remove=list(range(1, 20)))
    made.change(remove=list(range(21, 40)), stream="other")
    for number in range(20):
        made.put(f"feed/base/2020-01-0{number % 5 + 1}/{number:032}.parquet", age=DAY)
    with ThreadPoolExecutor(2) as pool:
        both = [job.result(60) for job in [pool.submit(run_vacuum, made.site) for _ in range(2)]]
    assert all(done.failed == [] for done in both)
    superseded = [each for done in both for each in done.freed if each.reason is VacuumReason.SUPERSEDED]
    assert sorted((each.stream, each.buckets) for each in merged(superseded)) == [("feed", 19), ("other", 19)]
    assert made.house.files() == made.named()
    assert len(made.named()) == 2
    assert index.doomed_files(made.catalog) == []
    made.catalog.close()


def merged(found: Sequence[FreedSpace]) -> list[FreedSpace]:
    by_stream: dict[str, FreedSpace] = {}
    for each in found:
        known = by_stream.get(each.stream, replace(each, buckets=0))
        by_stream[each.stream] = replace(known, buckets=known.buckets + each.buckets)
    return list(by_stream.values())


if __name__ == "__main__":
    serve(vacuum)
