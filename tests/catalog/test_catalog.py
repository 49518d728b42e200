"""Opening, declaring, ageing, pins and the axis of commits."""

from __future__ import annotations

import importlib
import logging
import pkgutil
import shutil
import sqlite3
import threading
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy.exc import OperationalError

import errata.catalog
from errata.catalog import buckets, commits, declarations, maintenance, pins, streams, tables
from errata.catalog.database import Catalog, open_catalog, open_if_current, readable_errors, schema_version
from errata.catalog.migration import prepare_catalog
from errata.catalog.stream_commits import commit_append
from errata.catalog.transaction import BasisConflict
from errata.errors import ErrataError, UsageError
from errata.model.commit import Cause
from errata.model.stream import Retention, Stream
from errata.model.time import DAY, format_instant
from fixtures.catalog import NOW, a_batch, a_bucket, a_stream
from fixtures.clock import FixedClock

CAUSE = Cause("test")


def test_migrations_make_the_tables_that_the_code_knows(catalog: Catalog) -> None:
    for module in pkgutil.iter_modules(errata.catalog.__path__):
        if module.name.endswith("tables"):  # each adds its own
            importlib.import_module(f"errata.catalog.{module.name}")
    with catalog.reading() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, tables.metadata) == []


def test_preparing_twice_does_nothing(catalog: Catalog, catalog_url: str) -> None:
    again = prepare_catalog(catalog_url)
    assert schema_version(again) == schema_version(catalog)
    again.close()
    found = open_if_current(catalog_url)
    assert found is not None
    found.close()


def test_opening_logs_nothing(catalog: Catalog, catalog_url: str, caplog: pytest.LogCaptureFixture) -> None:
    """Triggers and tasks open it every few seconds, and whatever is said then fills the logs of services."""
    with caplog.at_level(logging.INFO):
        open_catalog(catalog_url).close()
        found = open_if_current(catalog_url)
    assert found is not None
    found.close()
    assert caplog.messages == []


def test_a_catalog_without_tables_is_no_catalog(catalog_url: str) -> None:
    with pytest.raises(ErrataError, match="no tables yet") as caught:
        open_catalog(catalog_url)
    assert "errata apply" in str(caught.value)


def test_a_newer_catalog_is_not_touched(catalog: Catalog, catalog_url: str) -> None:
    with catalog.writing() as connection:
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '9999'")
    with pytest.raises(ErrataError, match="version 9999"):
        open_catalog(catalog_url)


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("sqlite://", "in memory"),
        ("mysql://x/y", "cannot live in mysql"),
        ("not a url", "cannot be read"),
        ("postgresql+psycopg2://nobody:secret@127.0.0.1:1/none", "does not answer"),
        ("sqlite:////nowhere/at/all.db", "does not answer"),
    ],
)
def test_a_wrong_url_is_explained_without_its_password(url: str, says: str) -> None:
    with pytest.raises(ErrataError, match=says) as caught:
        open_catalog(url)
    assert "secret" not in str(caught.value)


def test_peek_makes_no_file(tmp_path: Path) -> None:
    assert open_if_current(f"sqlite:///{tmp_path / 'none.db'}") is None
    assert list(tmp_path.iterdir()) == []


def test_declarations_have_a_history(catalog: Catalog, ticks: Stream) -> None:
    later = a_stream("ticks", slack=99)
    second = declarations.apply_changes(catalog, CAUSE, write=[later], drop=[], summary={})
    assert streams.stream_state(catalog, "ticks", second - 1).stream == ticks
    assert streams.stream_state(catalog, "ticks").stream == later
    third = declarations.apply_changes(catalog, CAUSE, write=[], drop=["ticks"], summary={})
    with pytest.raises(UsageError, match="unknown stream"):
        streams.stream_state(catalog, "ticks")
    assert streams.stream_state(catalog, "ticks", third - 1).stream == later
    declarations.apply_changes(catalog, CAUSE, write=[ticks], drop=[], summary={})
    assert streams.stream_state(catalog, "ticks").stream_id != streams.stream_state(catalog, "ticks", second).stream_id


def test_ageing_drops_whole_buckets_and_old_commits_keep_them(catalog: Catalog) -> None:
    stream = a_stream("ticks", retention=Retention(span=100))
    declarations.apply_changes(catalog, CAUSE, write=[stream], drop=[], summary={})
    basis = streams.stream_state(catalog, "ticks")
    inline = a_bucket(5, 60, 3, path=None, data=b"123", size=3)
    batch = a_batch("b1", [a_bucket(0, 89, 5), inline, a_bucket(80, 120, 9), a_bucket(121, 200)])
    before = commit_append(catalog, basis, batch, CAUSE)
    standing = streams.stream_state(catalog, "ticks")
    assert standing.stable == 190
    aged = maintenance.plan_age_out(catalog, standing)
    assert aged is not None
    assert ([each.vs_max for each in aged.buckets], aged.aged_to) == ([60, 89], 90)
    # Of the bucket that begins before the others end, eight rows turned out to lie there.
    [beside] = aged.partly_aged
    assert (beside.vs_min, aged.overlays) == (80, [])
    commit_id = maintenance.commit_age_out(catalog, standing, aged, {beside.bucket_id: 8}, CAUSE)
    assert [each.vs_max for each in buckets.visible_buckets(catalog, basis.stream_id, commit_id)] == [120, 200]
    assert len(buckets.visible_buckets(catalog, basis.stream_id, before)) == 4
    after = streams.stream_state(catalog, "ticks")
    assert (after.rows, after.inline_bytes, after.stable, after.aged_to) == (2, 0, 190, 90)
    assert [each.masked for each in buckets.visible_buckets(catalog, basis.stream_id, commit_id)] == [8, 0]
    assert maintenance.plan_age_out(catalog, after) is None
    assert streams.stream_state(catalog, "ticks", before).aged_to is None


def test_ageing_decided_on_an_old_basis_is_decided_again(catalog: Catalog) -> None:
    stream = a_stream("ticks", retention=Retention(rows=2))
    declarations.apply_changes(catalog, CAUSE, write=[stream], drop=[], summary={})
    commit_append(
        catalog, streams.stream_state(catalog, "ticks"), a_batch("b1", [a_bucket(0, 9), a_bucket(10, 19)]), CAUSE
    )
    commit_append(catalog, streams.stream_state(catalog, "ticks"), a_batch("b2", [a_bucket(20, 29)]), CAUSE)
    stale = streams.stream_state(catalog, "ticks")
    aged = maintenance.plan_age_out(catalog, stale)
    assert aged is not None
    assert [each.vs_min for each in aged.buckets] == [0]
    commit_append(catalog, stale, a_batch("b3", [a_bucket(30, 39)]), CAUSE)
    with pytest.raises(BasisConflict):
        maintenance.commit_age_out(catalog, stale, aged, {}, CAUSE)
    basis = streams.stream_state(catalog, "ticks")
    aged = maintenance.plan_age_out(catalog, basis)
    assert aged is not None
    assert [each.vs_min for each in aged.buckets] == [0, 10]
    maintenance.commit_age_out(catalog, basis, aged, {}, CAUSE)
    with pytest.raises(BasisConflict):
        maintenance.commit_age_out(catalog, basis, aged, {}, CAUSE)


def test_what_comes_behind_what_is_due_is_no_concern_of_ageing(catalog: Catalog) -> None:
    stream = a_stream("ticks", retention=Retention(span=100))
    declarations.apply_changes(catalog, CAUSE, write=[stream], drop=[], summary={})
    batch = a_batch("b1", [a_bucket(0, 89, 5), a_bucket(121, 200)])
    commit_append(catalog, streams.stream_state(catalog, "ticks"), batch, CAUSE)
    basis = streams.stream_state(catalog, "ticks")
    aged = maintenance.plan_age_out(catalog, basis)
    assert aged is not None
    commit_append(catalog, basis, a_batch("b2", [a_bucket(195, 205)]), CAUSE)
    maintenance.commit_age_out(catalog, basis, aged, {}, CAUSE)
    after = streams.stream_state(catalog, "ticks")
    assert (after.rows, after.stable, after.aged_to) == (2, 195, 90)


def test_rows_are_counted_bucket_by_bucket_from_the_youngest(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maintenance, "BUCKETS_PER_FETCH", 2)
    stream = a_stream("ticks", retention=Retention(rows=7))
    declarations.apply_changes(catalog, CAUSE, write=[stream], drop=[], summary={})
    batch = a_batch("b1", [a_bucket(low, low + 9) for low in range(0, 200, 10)])
    commit_append(catalog, streams.stream_state(catalog, "ticks"), batch, CAUSE)
    aged = maintenance.plan_age_out(catalog, streams.stream_state(catalog, "ticks"))
    assert aged is not None
    assert [each.vs_min for each in aged.buckets] == [*range(0, 130, 10)]


def test_as_of_is_a_commit_or_a_moment(catalog: Catalog, clock: FixedClock) -> None:
    for name in ("a", "b"):
        declarations.apply_changes(catalog, CAUSE, write=[a_stream(name)], drop=[], summary={})
        clock.advance(1_000)
    assert commits.resolve_as_of(catalog, None) == 2
    assert commits.resolve_as_of(catalog, 1) == commits.resolve_as_of(catalog, "1") == 1
    assert commits.resolve_as_of(catalog, format_instant(NOW)) == 1
    assert commits.resolve_as_of(catalog, format_instant(NOW + 999)) == 1
    assert commits.resolve_as_of(catalog, format_instant(NOW + 1_000)) == 2
    for wrong, says in [
        (3, "no commit 3"),
        ("0", "no commit 0"),
        (format_instant(NOW - 1), "nothing was known"),
        (format_instant(NOW + DAY), "yet to come"),
        ("yesterday", "not a date"),
    ]:
        with pytest.raises(UsageError, match=says):
            commits.resolve_as_of(catalog, wrong)


def test_a_clock_set_back_does_not_turn_the_axis(catalog: Catalog, clock: FixedClock) -> None:
    declarations.apply_changes(catalog, CAUSE, write=[a_stream("a")], drop=[], summary={})
    clock.advance(-DAY)
    declarations.apply_changes(catalog, CAUSE, write=[a_stream("b")], drop=[], summary={})
    assert [each.at for each in commits.list_commits(catalog)] == [NOW, NOW]


def test_the_horizon_ends_what_can_be_read(catalog: Catalog, clock: FixedClock) -> None:
    declarations.apply_changes(catalog, CAUSE, write=[a_stream("a")], drop=[], summary={})
    clock.advance(DAY)
    declarations.apply_changes(catalog, CAUSE, write=[a_stream("b")], drop=[], summary={})
    commits.check_readable(catalog, 1, DAY, "a")
    clock.advance(DAY)
    commits.check_readable(catalog, 2, DAY, "a")
    with pytest.raises(ErrataError, match="behind the horizon"):
        commits.check_readable(catalog, 1, DAY, "a")


def test_pins_hold_and_expire(catalog: Catalog, clock: FixedClock, ticks: Stream) -> None:
    declarations.apply_changes(catalog, CAUSE, write=[a_stream("b")], drop=[], summary={})
    with pins.hold_pin(catalog, 1, "a reader") as pin:
        assert pins.oldest_needed_commit(catalog) == 1
        clock.advance(pins.PIN_MICROS - 1)
        assert pin.renew()
        clock.advance(pins.PIN_MICROS - 1)
        assert pins.oldest_needed_commit(catalog) == 1
    assert pins.oldest_needed_commit(catalog) == 2
    forgotten = pins.Pin(catalog, 1, "killed")
    clock.advance(pins.PIN_MICROS)
    assert pins.oldest_needed_commit(catalog) == 2
    with pytest.raises(ErrataError, match="has expired"):
        forgotten.check()


def test_a_heartbeat_that_fails_once_goes_on(
    catalog: Catalog, clock: FixedClock, ticks: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pins, "RENEW_SECONDS", 0.05)
    renew, beats = pins.Pin.renew, threading.Semaphore(0)

    def once_away(pin: pins.Pin) -> bool:
        monkeypatch.setattr(pins.Pin, "renew", heard)
        beats.release()
        raise ErrataError("the catalog's database does not answer as it should")

    def heard(pin: pins.Pin) -> bool:
        renewed = renew(pin)
        beats.release()
        return renewed

    with pins.hold_pin(catalog, 1, "a reader"):
        monkeypatch.setattr(pins.Pin, "renew", once_away)
        assert beats.acquire(timeout=10)
        clock.advance(pins.PIN_MICROS - 1)
        assert beats.acquire(timeout=10), "it has not given up"
        # Another whole beat, so that one was sure to begin after the clock went on.
        assert beats.acquire(timeout=10)
        clock.advance(pins.PIN_MICROS - 1)
        assert pins.oldest_needed_commit(catalog) == 1


def test_a_reader_that_lost_its_pin_fails_clearly(catalog: Catalog, clock: FixedClock, ticks: Stream) -> None:
    with pytest.raises(ErrataError, match="has expired"), pins.hold_pin(catalog, 1, "slow"):
        clock.advance(pins.PIN_MICROS)


@pytest.mark.parametrize(("free", "says"), [(0, "the disk of the catalog is full"), (1 << 30, "does not answer")])
def test_a_disk_without_any_room_is_told_where_sqlite_names_no_cause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: int, says: str
) -> None:
    """What SQLite raised when a catalog was opened on a file system with no byte left."""
    catalog = prepare_catalog(f"sqlite:///{tmp_path}/errata.db")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(1 << 30, 0, free))
    error = sqlite3.OperationalError("disk I/O error")
    error.sqlite_errorcode = sqlite3.SQLITE_IOERR_SHMSIZE
    with pytest.raises(ErrataError, match=says), readable_errors(catalog.engine):
        raise OperationalError("BEGIN", None, error)
    catalog.close()


def test_sqlite_waits_for_the_disk_unless_rows_are_of_no_use_later(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/errata.db"
    prepare_catalog(url)
    catalog = open_catalog(url)
    normal, full = 1, 2
    for durable, mode in ((True, full), (False, normal), (True, full)):
        with catalog.writing(durable=durable) as connection:
            assert connection.exec_driver_sql("PRAGMA synchronous").scalar() == mode
    catalog.close()
