"""What others do to files and catalog while a batch is taken in: every row goes in once, or nothing does."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from sqlalchemy import Connection
from sqlalchemy.exc import OperationalError

from errata.archive.ingest import landing
from errata.archive.ingest.batch import IngestReport, IngestRequest, ingest_batch
from errata.archive.upkeep.ageing import age_out
from errata.catalog import commits, quarantine, streams
from errata.catalog.database import Catalog, readable_errors
from errata.errors import ErrataError, UsageError
from errata.model.batch import SourceFile
from errata.model.bucket import Role
from errata.model.feed import LandedFileAction, LandingFolder
from errata.model.reduction import NO_REDUCTION, ReducedArchives
from errata.model.stream import Retention, Stream
from errata.model.time import SECOND
from fixtures.catalog import NOW
from fixtures.flows import Builder, House, a_feed
from fixtures.sources import NO_NUMBER, Line, Source

LARGE = "x" * 300_000
"""Too much for the catalog."""


def a_line(second: int, who: str = "a", note: str | None = None, price: object = 1.0) -> Line:
    return Line({"at": NOW - (100 - second) * SECOND, "who": who, "price": price, "note": note})


def at_step(step: str, do: Callable[[], object]) -> Callable[[str], None]:
    """Does something when a flow comes to a step for the first time."""
    left = [do]

    def on_step(words: str) -> None:
        if words.startswith(step) and left:
            left.pop()()

    return on_step


def seconds(house: House) -> list[int]:
    return [100 - (NOW - int(str(row["at"]))) // SECOND for row in house.scan()]


def only_what_is_indexed(house: House) -> bool:
    stored = [each for role in (Role.BASE, Role.COPY, Role.SUMMARY) for each in house.stored(role=role)]
    return house.files() == {bucket.path for bucket in stored if bucket.path}


@contextmanager
def answer_lost(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The next commit is made, and the server's answer does not arrive."""
    with monkeypatch.context() as patch:
        writing = Catalog.writing

        @contextmanager
        def committed(catalog: Catalog, *, durable: bool = True) -> Iterator[Connection]:
            with readable_errors(catalog.engine):
                before = commits.newest_commit(catalog)
                with writing(catalog, durable=durable) as connection:
                    yield connection
                if commits.newest_commit(catalog) == before:
                    return  # a pin, taken or dropped
                raise OperationalError("COMMIT", {}, Exception("server closed the connection unexpectedly"))

        patch.setattr(Catalog, "writing", committed)
        yield


def test_a_commit_whose_answer_was_lost_keeps_its_files(a_house: Builder, monkeypatch: pytest.MonkeyPatch) -> None:
    house = a_house(a_feed())
    source = Source("1.csv", [a_line(second, note=LARGE) for second in range(3)])
    paths = [str(house.write(source))]
    with answer_lost(monkeypatch), pytest.raises(ErrataError, match="does not answer as it should"):
        ingest_batch(house.site, IngestRequest("feed", paths))
    again = ingest_batch(house.site, IngestRequest("feed", paths))
    assert (again.already_ingested, again.counts.appended) == (True, 3)
    assert house.files()
    assert only_what_is_indexed(house)
    assert seconds(house) == [0, 1, 2]


@pytest.mark.parametrize("reduced", [NO_REDUCTION, ReducedArchives((0.9, 0.8))])
def test_a_batch_that_is_arranged_again_leaves_no_files(a_house: Builder, reduced: ReducedArchives) -> None:
    house = a_house(a_feed(slack=10 * SECOND, bucket_rows=2, reduced=reduced))
    outer = house.write(Source("outer.csv", [a_line(second, note=LARGE) for second in (20, 30, 40)]))
    inner = Source("inner.csv", [a_line(25, "b")])
    on_step = at_step("committing", lambda: house.append([inner]))
    report = ingest_batch(house.site, IngestRequest("feed", [str(outer)]), on_step)
    assert (report.commit_id, report.counts.appended) == (3, 3)
    assert house.files()
    assert only_what_is_indexed(house)
    assert seconds(house) == [20, 25, 30, 40]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "landing"


def landing_feed(folder: Path, then: LandedFileAction = LandedFileAction.MOVE, **changes: object) -> Stream:
    return a_feed(landing=LandingFolder(str(folder), 0, then), **changes)


def land(house: House, folder: Path, source: Source) -> Path:
    path = house.write(source, folder=str(folder))
    moment = house.clock.now() // SECOND - 60
    os.utime(path, (moment, moment))
    return path


def take(house: House, on_step: Callable[[str], None] = lambda _: None) -> IngestReport:
    return ingest_batch(house.site, IngestRequest("feed", landed=True), on_step)


def left(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


@pytest.mark.parametrize(
    ("step", "twin_lands", "order", "again"),
    [
        ("reading", False, "arrived", False),
        ("committing", False, "at", True),
        ("reading", True, "at", False),
        ("committing", True, "arrived", False),
    ],
)
def test_a_twin_run_that_takes_some_of_the_files_first(
    a_house: Builder, folder: Path, step: str, twin_lands: bool, order: str, again: bool
) -> None:
    """With an order given on arrival nothing but the file's content would tell that its rows are there already."""
    house = a_house(landing_feed(folder, key=(order, "who"), order=order, slack=100 * SECOND))
    lines = [a_line(second, f"{second}", LARGE) for second in range(3)]
    if order == "arrived":
        lines = [Line({name: value for name, value in line.values.items() if name != "at"}) for line in lines]
    first = land(house, folder, Source("1.csv", lines[:2]))
    late = folder.parent / "2.csv"
    land(house, folder, Source("2.csv", lines[2:])).rename(late)

    def twin() -> None:
        """It looked before the second file had come."""
        house.clock.advance(SECOND)
        if not twin_lands:
            ingest_batch(house.site, IngestRequest("feed", [str(first)]))
            return
        (folder / "2.csv").rename(late)
        take(house)
        late.rename(folder / "2.csv")

    late.rename(folder / "2.csv")
    report = ingest_batch(house.site, IngestRequest("feed", landed=True, again=again), at_step(step, twin))
    assert (report.files, report.counts.appended, report.commit_id) == (1, 1, 3)
    assert sorted(str(row["who"]) for row in house.rows()) == ["0", "1", "2"]
    assert house.pending() == []
    assert left(folder) == ["taken/1.csv", "taken/2.csv"]
    assert only_what_is_indexed(house)


def test_a_twin_run_that_takes_a_named_file_first(a_house: Builder) -> None:
    house = a_house(a_feed())
    paths = [str(house.write(Source(f"{second}.csv", [a_line(second, note=LARGE)]))) for second in (1, 2)]
    on_step = at_step("committing", lambda: ingest_batch(house.site, IngestRequest("feed", paths[:1])))
    report = ingest_batch(house.site, IngestRequest("feed", paths), on_step)
    assert (report.files, [each.name for each in report.skipped_files]) == (1, paths[:1])
    assert seconds(house) == [1, 2]
    assert only_what_is_indexed(house)


def test_a_file_that_changes_while_it_is_read_is_not_taken_in(a_house: Builder, folder: Path) -> None:
    house = a_house(landing_feed(folder, LandedFileAction.KEEP))
    land(house, folder, Source("1.csv", [a_line(1, note=LARGE)]))

    def write_on() -> None:
        house.write(Source("1.csv", [a_line(second, note=LARGE) for second in (1, 2, 3)]), folder=str(folder))

    with pytest.raises(ErrataError, match=r"1\.csv changed while it was read; nothing was taken in"):
        take(house, at_step("reading", write_on))
    assert (commits.newest_commit(house.catalog), house.files()) == (1, set())
    house.clock.advance(10**15)
    assert take(house).counts.appended == 3
    assert take(house).commit_id is None
    assert seconds(house) == [1, 2, 3]


@pytest.mark.parametrize("then", [LandedFileAction.DELETE, LandedFileAction.MOVE])
def test_a_file_written_anew_after_it_was_read_stays_and_is_taken_next(
    a_house: Builder, folder: Path, then: LandedFileAction
) -> None:
    house = a_house(landing_feed(folder, then))
    land(house, folder, Source("1.csv", [a_line(1)]))
    anew = Source("1.csv", [a_line(2), a_line(3)])
    report = take(house, at_step("committing", lambda: land(house, folder, anew)))
    assert report.counts.appended == 1
    assert left(folder) == ["1.csv"]
    assert take(house).counts.appended == 2
    assert left(folder) == (["taken/1.csv"] if then is LandedFileAction.MOVE else [])
    assert seconds(house) == [1, 2, 3]


@pytest.mark.parametrize("then", [LandedFileAction.DELETE, LandedFileAction.MOVE])
def test_what_another_run_has_cleared_needs_no_clearing(
    a_house: Builder, folder: Path, then: LandedFileAction, monkeypatch: pytest.MonkeyPatch
) -> None:
    house = a_house(landing_feed(folder, then))
    for second in (1, 2):
        land(house, folder, Source(f"{second}.csv", [a_line(second)]))
    looked = landing.is_unchanged

    def gone_after_the_look(file: SourceFile) -> bool:
        same = looked(file)
        if file.name.endswith("1.csv"):
            Path(file.name).unlink()
        return same

    monkeypatch.setattr(landing, "is_unchanged", gone_after_the_look)
    assert take(house).counts.appended == 2
    assert left(folder) == (["taken/2.csv"] if then is LandedFileAction.MOVE else [])


@pytest.mark.parametrize("at_hand", [1_000, 2], ids=["few bad rows", "many bad rows"])
def test_a_source_that_goes_after_the_commit_is_no_failure(
    a_house: Builder, at_hand: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    house = a_house(a_feed())
    monkeypatch.setattr("errata.archive.ingest.batch.MAX_HELD_ROWS", at_hand)
    # Rows that contradict another are quoted from their file, the others from what was read.
    lines = [a_line(1), *(a_line(1, price=2.0 + number) for number in range(7)), a_line(2, price=NO_NUMBER)]
    path = house.write(Source("1.csv", lines))
    report = ingest_batch(house.site, IngestRequest("feed", [str(path)]), at_step("committed", path.unlink))
    assert report.counts.quarantined == 8
    assert [row.line for row in report.bad] == [3, 4, 5, 6, 7][: min(5, at_hand)]
    assert len(quarantine.quarantined_rows(house.catalog)) == 8


def test_a_row_like_one_that_ages_out_meanwhile_goes_in(a_house: Builder) -> None:
    # Its key does not tell its place, so that it is compared with rows of any.
    house = a_house(a_feed(key=("who",), retention=Retention(rows=1)))
    for second, who in ((0, "a"), (10, "b")):
        house.append([Source(f"{second}.csv", [a_line(second, who)])])
    path = house.write(Source("2.csv", [a_line(20, "a"), a_line(21, "c")]))
    report = ingest_batch(
        house.site, IngestRequest("feed", [str(path)]), at_step("committing", lambda: age_out(house.site))
    )
    assert (report.counts.appended, report.counts.quarantined) == (2, 0)
    assert seconds(house) == [10, 20, 21]


def test_files_without_rows_are_alike_on_many_days(a_house: Builder) -> None:
    house = a_house(a_feed())
    for day in (1, 2):
        empty = [Source(f"{day}-empty{ending}", columns=["at", "who"]) for ending in (".csv", ".jsonl", ".parquet")]
        report = house.append([*empty, Source(f"{day}.csv", [a_line(day)])])
        assert (report.already_ingested, report.counts.appended) == (False, 1)
    assert seconds(house) == [1, 2]
    assert house.append([Source("3-empty.csv", columns=["at", "who"])]).counts.read == 0


def test_again_takes_the_same_set_in_as_often_as_it_is_said(a_house: Builder) -> None:
    house = a_house(a_feed(slack=100 * SECOND))
    sources = [Source("1.csv", [a_line(1)]), Source("2.csv", [a_line(2)])]
    reports = [house.append(sources, again=again) for again in (False, True, True, False)]
    assert [(each.already_ingested, each.counts.dropped, each.commit_id) for each in reports] == [
        (False, 0, 2),
        (False, 2, 3),
        (False, 2, 4),
        (True, 2, 4),
    ]
    assert len({each.batch_id for each in reports}) == 3
    assert seconds(house) == [1, 2]
    assert streams.stream_state(house.catalog, "feed").rows == 2


def test_what_has_landed_is_given_no_id(a_house: Builder, folder: Path) -> None:
    house = a_house(landing_feed(folder))
    land(house, folder, Source("1.csv", [a_line(1)]))
    with pytest.raises(UsageError, match="what has landed is named by its names, contents and times"):
        ingest_batch(house.site, IngestRequest("feed", landed=True, batch_id="run-1"))
    assert left(folder) == ["1.csv"]
