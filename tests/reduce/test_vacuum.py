"""Vacuum of everything: copies first, then purging, then removal; what fails for one stream is done for the others. And
killed at every step, as a power cut would."""

from __future__ import annotations

import pickle
import random
import shutil
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import event

from errata.archive.upkeep.vacuum import run_vacuum
from errata.catalog import commits, declarations
from errata.catalog.database import open_catalog
from errata.declare.site import Site
from errata.declare.warehouse import Warehouse
from errata.model.batch import Op
from errata.model.bucket import Role
from errata.model.commit import Cause
from errata.model.reduction import OnReadCopies, ReducedArchives, SamplingRates, uniform_rates
from errata.model.time import DAY, LOWEST
from errata.read.vacuum_wording import reduction_lines
from errata.reduce import copies, purge, requests
from errata.reduce.overview import reduction_overviews
from errata.reduce.vacuum import FullVacuumReport, plan_everything, vacuum_everything
from fixtures.catalog import NOW
from fixtures.clock import FixedClock
from fixtures.flows import Builder, House, build
from fixtures.killed_steps import OnStep, StepServer, report_calls, serve, step_server
from fixtures.layers import Layers, a_row, layers, plain
from fixtures.oracle.revision import Row
from fixtures.postgres import FreshDatabase
from fixtures.reduced import check_inline_bytes, copies_of, sampled

LONG = 9 * DAY
"""A grace within which no file passes for an orphan."""

PURGED = ReducedArchives((0.75,), OnReadCopies(purge_after=0))
HALF = uniform_rates(0.5)


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    builder = Builder(tmp_path)
    yield builder(plain("first"))
    builder.close()


def rows_at(low: int, count: int) -> list[Row]:
    return [a_row(at, who, note=f"{at:040}") for at in range(low, low + count) for who in "ab"]


def fill(done: Layers) -> None:
    done.bring(rows_at(0, 40), rows_at(40, 40), rows_at(80, 40))
    done.correct((Op.REPLACE, a_row(3, price=7.0), {}), (Op.DELETE, {"at": 50, "who": "b"}, {}))


def a_stream(house: House, reduced: ReducedArchives, *, inline: bool = True) -> Layers:
    done = layers(house, plain(bucket_rows=80, slack=10, reduced=reduced, horizon=0), inline=inline)
    fill(done)
    return done


def ask(done: Layers, rate: float) -> None:
    requests.record(done.house.site, done.standing.stream_id, uniform_rates(rate), from_originals=100)


def test_a_vacuum_does_what_its_plan_says(house: House) -> None:
    done = a_stream(house, ReducedArchives(on_read=OnReadCopies()))
    ask(done, 0.5)
    planned = plan_everything(house.site)
    (line,) = reduction_lines(planned, plan=True)
    assert line.startswith(f"{done.name}: would build 3 copies at 50%, about ")
    report = vacuum_everything(house.site)
    assert [each.stream for each in report.copies] == [done.name]
    assert report.failed == []
    again = vacuum_everything(house.site)
    assert (again.copies, again.purged, again.summaries) == ([], [], [])
    other = vacuum_everything(house.site, ["first"])
    assert other.copies == []


def test_copies_that_leave_are_removed_by_the_same_vacuum(house: House) -> None:
    done = a_stream(house, ReducedArchives(on_read=OnReadCopies()), inline=False)
    ask(done, 0.5)
    vacuum_everything(house.site)
    ask(done, 0.1)
    report = vacuum_everything(house.site)
    freed = {each.kind: each.buckets for each in report.removed.freed}
    assert freed["copy"] == 3
    assert copies_of(done) == {0: [0.1], 40: [0.1], 80: [0.1]}


def test_originals_are_purged_after_their_copies_are_made(house: House) -> None:
    done = a_stream(house, PURGED)
    ask(done, 0.5)
    before = sampled(done, HALF)
    report = vacuum_everything(house.site)
    (purged,) = report.purged
    assert (purged.buckets, purged.purged_to) == (2, 80)
    assert sampled(done, HALF) == before
    line = list(reduction_lines(report, plan=False))[-1]
    assert line.startswith(f"{done.name}: purged 2 buckets before 80, ")
    (seen,) = reduction_overviews(house.site, [done.name])
    assert [(each.kind, each.rate, each.buckets) for each in seen.versions if each.kind != "copies"] == [
        ("originals", 1.0, 1),
        ("remains", 0.75, 2),
    ]
    assert seen.last is not None
    assert seen.last.summary["remaining_rows"] == sum(each.rows for each in seen.versions if each.kind == "remains")
    assert seen.next_copies.changes == []
    assert seen.next_purge.purged_to is None


def test_a_damaged_bucket_stops_its_stream_and_nothing_else(house: House) -> None:
    damaged, whole = (a_stream(house, ReducedArchives(on_read=OnReadCopies()), inline=False) for _ in range(2))
    for done in (damaged, whole):
        ask(done, 0.5)
    house.site.warehouse.remove(str(damaged.stored()[0].path))
    report = vacuum_everything(house.site)
    assert [each.stream for each in report.copies] == [whole.name]
    (error,) = report.errors
    assert error.startswith(f"{damaged.name}: a bucket cannot be read")
    assert "errata doctor" in error
    assert report.failed == [error]


def test_readers_of_the_same_words_are_listed_together(house: House) -> None:
    done = a_stream(house, ReducedArchives(on_read=OnReadCopies()))
    ask(done, 0.5)
    for start in (10, 20, 30):
        ages = SamplingRates((LOWEST, start), (0.5, 1.0), label="by_age(30, 0.5)")
        requests.record(house.site, done.standing.stream_id, ages, from_originals=start)
    (seen,) = reduction_overviews(house.site)
    assert seen.state.stream.name == done.name
    assert len(seen.asked) == 4
    assert {each.asked.label: (each.readers, each.from_originals) for each in seen.asked_by_label} == {
        "uniform(0.5)": (1, 100),
        "by_age(30, 0.5)": (3, 60),
    }


def test_requests_of_streams_that_have_ended_are_forgotten(house: House) -> None:
    done = a_stream(house, ReducedArchives(on_read=OnReadCopies()))
    ask(done, 0.5)
    stream_id = done.standing.stream_id
    declarations.apply_changes(house.catalog, Cause("apply"), write=[], drop=[done.name], summary={})
    vacuum_everything(house.site)
    assert requests.pending(house.catalog, stream_id) == []


def test_two_at_once_do_no_harm_and_the_next_tidies_up(house: House) -> None:
    done = a_stream(house, ReducedArchives((0.75,), OnReadCopies()), inline=False)
    ask(done, 0.5)
    with ThreadPoolExecutor(2) as pool:
        both = [pool.submit(vacuum_everything, house.site) for _ in range(2)]
        assert [each.result(120).failed for each in both] == [[], []]
    assert {rate for rates in copies_of(done).values() for rate in rates} == {0.75, 0.5}
    vacuum_everything(house.site)
    assert copies_of(done) == {0: [0.75, 0.5], 40: [0.75, 0.5], 80: [0.75, 0.5]}
    check_inline_bytes(done)


# Killed at every step.


def vacuum(url: str, folder: Path, on_step: OnStep) -> None:
    """Vacuum in many small commits: each commit, writing and removal is a step."""
    project = pickle.loads((folder / "project.pickle").read_bytes())
    project = replace(project, catalog=url, warehouse=str(folder / "warehouse"))
    catalog = open_catalog(url, FixedClock(NOW))
    event.listen(catalog.engine, "commit", on_step)
    report_calls(Warehouse, ("write", "remove"), on_step)
    vacuum_in_small_commits(Site(project, catalog, Warehouse(project.warehouse)))


def vacuum_in_small_commits(site: Site) -> FullVacuumReport:
    copies.MAX_INLINE_STREAM_BYTES = purge.MAX_INLINE_STREAM_BYTES = 0
    for function in (copies.vacuum_copies, purge.purge_originals):
        function.__defaults__ = (function.__defaults__[0], 1)  # type: ignore[index]
    report = vacuum_everything(site, grace=LONG)
    assert report.failed == []
    return report


@pytest.fixture(scope="module")
def server() -> Iterator[StepServer]:
    with step_server(__file__) as running:
        yield running


def state_of(done: Layers) -> tuple[object, ...]:
    """Everything that a vacuum brings about, by content; in how many portions it purged does not matter."""
    every = done.stored(Role.COPY, commits.newest_commit(done.house.catalog))
    stored = sorted((each.vs_min, each.resolution.rate, each.checksum) for each in every if each.original is not None)
    remaining = sum(each.rows for each in every if each.original is None)
    known = requests.pending(done.house.catalog, done.standing.stream_id)
    rounds = [(each.asked.label, each.readers, each.last_readers) for each in known]
    return stored, remaining, rounds, done.standing.aged_to, done.standing.rows, copies_of(done)


@pytest.mark.parametrize(("kind", "stride"), [("sqlite", 3), ("postgresql", 12)])
def test_killed_at_every_step_and_run_again(
    kind: str,
    stride: int,
    chance: random.Random,
    fresh_database: FreshDatabase,
    server: StepServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Copies are built at one declared rate and at one asked for, one is shrunk, and originals are purged. Each run
    tries every third step, from another one on."""
    for module in (copies, purge):
        monkeypatch.setattr(module, "MAX_INLINE_STREAM_BYTES", 0)
    url, folder = fresh_database(kind), tmp_path / "first"
    folder.mkdir()
    stream = plain("feed", bucket_rows=80, slack=10, reduced=PURGED, horizon=0)
    house = build(folder, url, replace(stream, reduced=ReducedArchives(on_read=OnReadCopies())))
    done = Layers(house, house.site.project.streams["feed"], inline=False)
    fill(done)
    ask(done, 0.6)
    vacuum_everything(house.site)
    house.declare(stream)
    ask(done, 0.5)
    before = sampled(done, HALF)
    (folder / "project.pickle").write_bytes(pickle.dumps(house.site.project))
    house.catalog.close()

    def copied(name: str) -> tuple[str, Path]:
        shutil.copytree(folder, tmp_path / name)
        return fresh_database(kind, like=url), tmp_path / name

    def opened(at: str, within: Path) -> Layers:
        catalog = open_catalog(at, FixedClock(NOW))
        site = replace(house.site, catalog=catalog, warehouse=Warehouse(str(within / "warehouse")))
        return Layers(House(within, site), stream, inline=False)

    place = copied("whole")
    _, sound, steps = server.killed_at(*place, 0)
    assert sound
    assert steps > 20
    whole = opened(*place)
    expected = state_of(whole)
    assert whole.standing.aged_to == 80
    whole.house.catalog.close()
    for step in range(1 + chance.randrange(stride), steps + 1, stride):
        place = copied(f"step {step}")
        assert server.killed_at(*place, step) == (True, False, step)
        left = opened(*place)
        named = {each.path for role in Role for each in left.stored(role, commits.newest_commit(left.house.catalog))}
        assert {path for path in named if path is not None} <= left.house.files(), "no index row names what is gone"
        assert sampled(left, HALF) == before, "whatever vacuum did, the answer is the same"
        check_inline_bytes(left)
        vacuum_everything(left.house.site)
        left.house.clock.at = time.time_ns() // 1_000 + LONG  # files are as old as the disk says
        run_vacuum(left.house.site)
        assert state_of(left) == expected
        files = {each.path for role in Role for each in left.stored(role, commits.newest_commit(left.house.catalog))}
        assert left.house.files() == files - {None}, "no file is left over"
        assert sampled(left, HALF) == before
        left.house.catalog.close()
        shutil.rmtree(place[1])


if __name__ == "__main__":
    serve(vacuum)
