"""Rows in quarantine retried and dropped: judged as of now, exactly once, and shown where they first stood."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from errata.archive.ingest.batch import IngestReport, IngestRequest, ingest_batch
from errata.archive.ingest.quarantine import QuarantineSelection, drop_items, select_items
from errata.archive.ingest.retry import RetryReport, retry_items
from errata.catalog import commits, ledger, quarantine
from errata.catalog.database import open_catalog
from errata.catalog.quarantine import QuarantineRow, QuarantineState, RowSyntax
from errata.errors import ErrataError, UsageError
from errata.model.batch import BadRevision, BatchCounts, Op
from errata.model.columns import Column, ColumnType
from errata.model.stream import ARRIVAL_COLUMN
from errata.model.time import DAY, SECOND, format_instant
from fixtures.catalog import NOW
from fixtures.flows import Builder, House, a_feed, build
from fixtures.kills import Committers, committers
from fixtures.postgres import FreshDatabase

T = [format_instant(NOW + second * SECOND) for second in range(10)]
AHEAD = [format_instant(NOW + 2 * DAY + second * SECOND) for second in range(10)]


def put(house: House, name: str, text: str | pa.Table, **how: object) -> IngestReport:
    path = house.folder / "in" / name
    path.parent.mkdir(exist_ok=True)
    if isinstance(text, str):
        path.write_text(text)
    else:
        pq.write_table(text, path)
    return ingest_batch(house.site, IngestRequest("feed", [str(path)], **how))


def retried(house: House, **which: object) -> RetryReport:
    return retry_items(house.site, select_items(house.site, QuarantineSelection("feed", **which)))


def all_held(house: House, *, settled: bool = False) -> list[QuarantineRow]:
    return quarantine.quarantined_rows(house.catalog, settled=settled)


def places(found: list[QuarantineRow]) -> list[tuple[str, int]]:
    return [(Path(each.row.file).name, each.row.line) for each in found]


def keys(house: House) -> list[tuple[object, object]]:
    return [(row["who"], row["price"]) for row in house.rows()]


def test_rows_of_all_forms_go_in_when_nothing_is_wrong_with_them_any_more(a_house: Builder) -> None:
    house = a_house(a_feed())
    put(house, "1.csv", f'at,who,price,note\n{T[0]},a,1,\n{AHEAD[0]},b,2,"x, ""y"""\n{AHEAD[1]},c,3,""\n')
    put(house, "2.csv", f"price,who,at\r\n4,d,{AHEAD[2]}\r\n")
    put(house, "3.jsonl", f'{{"who": "e", "at": "{AHEAD[3]}", "price": 5}}\n')
    moments = pa.array([NOW + 2 * DAY + 4 * SECOND], pa.int64()).cast(pa.timestamp("us")).cast(pa.timestamp("ns"))
    put(house, "4.parquet", pa.table({"at": moments, "who": ["f"], "price": pa.array([0.1], pa.float32())}))
    ids = [each.quarantine_id for each in all_held(house)]
    assert (len(ids), keys(house)) == (5, [("a", 1.0)])

    house.clock.advance(3 * DAY)
    report = retried(house)
    [done] = report.batches
    assert (done.counts, done.files, report.quarantined) == (BatchCounts(5, 5), 3, 0)
    assert keys(house) == [("a", 1.0), ("b", 2.0), ("c", 3.0), ("d", 4.0), ("e", 5.0), ("f", 0.10000000149011612)]
    assert [row["note"] for row in house.rows()] == [None, 'x, "y"', "", None, None, None]
    assert all_held(house) == []
    settled = all_held(house, settled=True)
    assert [each.quarantine_id for each in settled] == ids
    assert {(each.state, each.settled_in) for each in settled} == {(QuarantineState.RETRIED, done.commit_id)}
    assert done.batch_id.startswith("retry-")
    newest = commits.list_commits(house.catalog)[-1]
    assert (newest.cause.flow, newest.batch_id, newest.commit_id) == ("append", done.batch_id, done.commit_id)

    again = select_items(house.site, QuarantineSelection("feed", ids=tuple(ids)))
    assert (again.rows, [each.state for each in again.settled]) == ([], [QuarantineState.RETRIED] * 5)
    assert commits.newest_commit(house.catalog) == done.commit_id


def test_only_what_is_selected_is_retried(a_house: Builder) -> None:
    house = a_house(a_feed())
    put(house, "1.csv", f"at,who,price\n{AHEAD[0]},a,1\n{AHEAD[1]},b,x\n", batch_id="one")
    put(house, "2.csv", f"at,who,price\n{AHEAD[2]},c,1\n{AHEAD[3]},d,1\n", batch_id="two")
    house.clock.advance(3 * DAY)
    retried(house, batch_id="one", reason="MAX_AHEAD")
    assert keys(house) == [("a", 1.0)]
    retried(house, ids=(4,))
    assert keys(house) == [("a", 1.0), ("d", 1.0)]
    assert [each.row.text[-3:] for each in all_held(house)] == ["b,x", "c,1"]


def test_rows_that_fail_again_keep_their_place_their_header_and_their_text(a_house: Builder) -> None:
    house = a_house(a_feed())
    put(house, "1.csv", f"who,at,price\nb,{T[1]},x\nc,{AHEAD[1]},3\nd,{AHEAD[2]},4\nd,{AHEAD[2]},5\n", batch_id="one")
    put(house, "2.csv", f"at,who,price\n\n{T[2]},e,y\n")
    put(house, "3.jsonl", f'{{"at": "{T[3]}", "who": "f", "prise": 1}}\n[1]\nx\n')
    first = all_held(house)
    texts = {each.row.text: (each.row.file, each.row.line) for each in first}
    for _ in range(2):
        report = retried(house)
        assert report.quarantined == len(first)
        [done] = report.batches
        found = all_held(house)
        assert {each.row.text: (each.row.file, each.row.line) for each in found} == texts
        assert {each.batch_id for each in found} == {done.batch_id}
        assert [(row.file, row.line) for row in done.bad] == [texts[row.text] for row in done.bad]
        assert len(all_held(house, settled=True)) > len(found)
    assert sorted((each.form.value, each.header or "", each.row.line) for each in all_held(house)) == sorted(
        [("csv", "who,at,price", line) for line in (2, 3, 4, 5)]
        + [("csv", "at,who,price", 3)]
        + [("json", "", line) for line in (1, 2, 3)]
    )
    house.clock.advance(3 * DAY)
    retried(house)
    assert keys(house) == [("c", 3.0), ("d", 4.0)]
    [conflict] = [each for each in all_held(house) if "duplicate" in each.row.reason]
    assert (places([conflict]), conflict.row.text) == ([("1.csv", 5)], f"d,{AHEAD[2]},5")
    assert conflict.row.reason == f"duplicate key: line 4 of {house.folder / 'in' / '1.csv'} has the same key and " + (
        "says something else"
    )


def test_a_retried_row_that_is_late_by_now_becomes_a_revision(a_house: Builder) -> None:
    house = a_house(a_feed())
    put(house, "1.csv", f"at,who,price\n{AHEAD[0]},a,1\n")
    house.clock.advance(3 * DAY)
    put(house, "2.csv", f"at,who,price\n{AHEAD[5]},b,1\n")
    [done] = retried(house).batches
    assert done.counts == BatchCounts(1, pending=1)
    assert [(each.op, each.values["who"]) for each in house.pending()] == [(Op.INSERT, "a")]


def test_revisions_become_pending_again(a_house: Builder) -> None:
    house = a_house(a_feed())
    put(house, "1.csv", f"at,who,price\n{T[0]},a,1\n")
    text = f'{{"_op":"replace","at":"{T[0]}","_old_who":"a","price":2.5,"_seq":3}}'
    row = BadRevision(1, 4, "old.csv", 7, text, "old value does not match")
    with house.catalog.writing() as connection:
        quarantine.quarantine_revisions(connection, 1, [row])
    assert retried(house).quarantined == 0
    [pending] = house.pending()
    assert (pending.op, dict(pending.values)) == (Op.REPLACE, {"at": NOW, "price": 2.5})
    assert pending.key == (NOW, "a")


def test_rows_that_do_not_say_what_they_do_go_on_doing_it(a_house: Builder) -> None:
    house = a_house(a_feed())
    put(house, "1.csv", f"at,who,price\n{T[0]},a,1\n{AHEAD[0]},c,1\n")
    report = put(house, "2.csv", f"at,who,price,_old_at\n{AHEAD[1]},a,2,{T[0]}\n{T[0]},a,3,\n", default_op=Op.REPLACE)
    assert report.counts == BatchCounts(2, pending=1, quarantined=1)
    put(house, "3.jsonl", f'{{"at": "{T[9]}", "who": "z", "_op": "insert"}}\n', default_op=Op.REPLACE)
    house.clock.advance(3 * DAY)
    batches = retried(house).batches
    assert [each.counts for each in batches] == [BatchCounts(1, 1), BatchCounts(1, pending=1)]
    assert len({each.batch_id for each in batches}) == 2
    assert [each.op for each in house.pending()] == [Op.REPLACE, Op.REPLACE]
    assert keys(house) == [("a", 1.0), ("z", None), ("c", 1.0)]


def test_replacements_without_an_op_may_leave_out_an_order_that_is_not_in_the_key(a_house: Builder) -> None:
    house = a_house(a_feed(key=("who",)))
    put(house, "1.parquet", pa.table({"at": [T[0]], "who": ["a"]}))
    report = put(house, "2.parquet", pa.table({"who": ["a"], "price": [2.0]}), default_op=Op.REPLACE)
    assert report.counts == BatchCounts(1, pending=1)
    with_place = pa.table({"at": [T[1]], "who": ["a"]})
    assert put(house, "3.parquet", with_place, default_op=Op.REPLACE).counts == BatchCounts(1, pending=1)
    assert [dict(each.values) for each in house.pending()] == [
        {"who": "a", "price": 2.0}, {"at": NOW + SECOND, "who": "a"},
    ]  # fmt: skip
    anew = pa.table({"who": ["a"], "price": [2.0]})
    assert put(house, "4.parquet", anew, default_op=Op.REPLACE, batch_id="other").counts == BatchCounts(1, pending=1)


def test_parquet_keeps_its_short_way_from_replacements(a_house: Builder) -> None:
    house = a_house(a_feed())
    moments = pa.array([NOW, NOW + SECOND], pa.int64()).cast(pa.timestamp("us"))
    table = pa.table({"at": moments, "who": ["a", "b"], "price": [1.0, 2.0]})
    assert put(house, "1.parquet", table, default_op=Op.REPLACE).counts == BatchCounts(2, pending=2)


def test_rows_of_a_stream_that_is_ordered_by_arrival(a_house: Builder) -> None:
    house = a_house(a_feed(order=ARRIVAL_COLUMN, key=("who",)))
    put(house, "1.jsonl", '{"who": "a", "prise": 1}\n[]\n')
    put(house, "2.jsonl", f'{{"who": "b", "prise": 1, "arrived": "{T[1]}"}}\n')
    columns = (*house.site.project.streams["feed"].columns, Column("prise", ColumnType.parse("double")))
    house.declare(replace(house.site.project.streams["feed"], columns=columns))
    assert retried(house).quarantined == 1
    assert {(row["who"], row["arrived"]) for row in house.rows()} == {("a", NOW), ("b", NOW + SECOND)}


def test_what_no_text_can_hold_is_left(a_house: Builder) -> None:
    house = a_house(a_feed())
    path = house.folder / "1.csv"
    path.write_bytes(
        f"at,who,price,note\n{T[0]},a,1,caf\xe9\n{AHEAD[0]},b,1,x\0y\n{AHEAD[1]},c,1,\\xe9\n".encode("latin-1")
    )
    ingest_batch(house.site, IngestRequest("feed", [str(path)]))
    broken = pa.array([b"caf\xe9"], pa.binary())
    put(house, "2.parquet", pa.table({"at": [T[1]], "who": ["d"], "note": broken}))
    house.clock.advance(3 * DAY)
    report = retried(house)
    assert [row.row.line for row, _ in report.unreadable] == [2, 3, 1]
    assert report.quarantined == 3
    assert [(row["who"], row["note"]) for row in house.rows()] == [("c", "\\xe9")]
    assert len(all_held(house)) == 3
    assert retried(house).batches == []


def test_a_row_whose_header_is_not_known_is_left(a_house: Builder) -> None:
    house = a_house(a_feed())
    put(house, "1.csv", f"at,who,price\n{T[0]},a,x\n")
    with house.catalog.writing() as connection:
        connection.exec_driver_sql("UPDATE quarantine SET file_number = NULL")
    [(_, why)] = retried(house).unreadable
    assert "before headers were kept" in why


def test_dropping(a_house: Builder) -> None:
    house = a_house(a_feed())
    put(house, "1.csv", f"at,who,price\n{T[0]},a,x\n{T[1]},a,y\n")
    selected = select_items(house.site, QuarantineSelection("feed", reason="'x'"))
    commit_id = drop_items(house.site, selected)
    assert [each.row.line for each in all_held(house)] == [3]
    assert commits.list_commits(house.catalog)[-1].cause.flow == "quarantine-drop"
    assert commits.newest_commit(house.catalog) == commit_id
    for settle in (drop_items, retry_items):
        with pytest.raises(ErrataError, match="somebody else has just settled"):
            settle(house.site, selected)
    assert commits.newest_commit(house.catalog) == commit_id
    assert house.stored() == []


def test_wrong_names_and_ids(a_house: Builder) -> None:
    house = a_house(a_feed(), a_feed("other"))
    put(house, "1.csv", f"at,who,price\n{T[0]},a,x\n")
    with pytest.raises(UsageError, match="unknown stream 'fed'"):
        select_items(house.site, QuarantineSelection("fed"))
    with pytest.raises(UsageError, match="no row 9 in quarantine") as error:
        select_items(house.site, QuarantineSelection("feed", ids=(1, 9)))
    assert "held of feed: 1;" in str(error.value)
    with pytest.raises(UsageError, match="row 1 in quarantine is of stream feed, not of other") as error:
        select_items(house.site, QuarantineSelection("other", ids=(1,)))
    assert "other has no rows in quarantine" in str(error.value)
    assert select_items(house.site, QuarantineSelection("other")).rows == []
    assert select_items(house.site, QuarantineSelection("feed", batch_id="none")).rows == []


@pytest.fixture(scope="module")
def server() -> Iterator[Committers]:
    with committers() as running:
        yield running


class _Prepared(Exception):
    """Thrown in the place of the commit."""


def a_stopped_retry(house: House, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What a retry would commit, kept instead."""
    path = house.folder / "arrived.pickle"

    def keep(_catalog: object, basis: object, arrived: object, *_: object) -> int:
        path.write_bytes(pickle.dumps((basis, arrived)))
        raise _Prepared

    with monkeypatch.context() as patched:
        patched.setattr("errata.archive.ingest.batch.commit_append", keep)
        with pytest.raises(_Prepared):
            retried(house)
    return path


@pytest.mark.parametrize("kind", ["sqlite", pytest.param("postgresql", marks=pytest.mark.long)])
def test_a_retry_that_is_killed_at_any_statement_settles_each_row_once(
    kind: str,
    fresh_database: FreshDatabase,
    server: Committers,
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    url = fresh_database(kind)
    house = build(tmp_path, url, a_feed())
    put(house, "1.csv", f"at,who,price\n{AHEAD[0]},a,1\n{T[0]},b,x\n")
    house.clock.advance(3 * DAY)
    prepared = a_stopped_retry(house, monkeypatch)
    house.catalog.close()
    whole = server.commit(fresh_database(kind, like=url), prepared, 0)
    assert whole["sound"]
    for step in range(1, whole["steps"]):
        assert server.commit(url, prepared, step)["killed"]
        assert [(each.quarantine_id, each.state) for each in all_held(house, settled=True)] == [
            (1, QuarantineState.HELD), (2, QuarantineState.HELD),
        ]  # fmt: skip
        assert house.rows() == []
    house.catalog.close()
    before = House(tmp_path, replace(house.site, catalog=open_catalog(fresh_database(kind, like=url), house.clock)))
    [done] = retried(before).batches
    is_settled(before, done.batch_id)
    before.catalog.close()

    assert server.commit(url, prepared, whole["steps"])["killed"], "killed when it was committed, before it was said"
    is_settled(house, done.batch_id)
    selected = select_items(house.site, QuarantineSelection("feed", ids=(1,)))
    assert (selected.rows, len(selected.settled)) == ([], 1)
    house.catalog.close()


def is_settled(house: House, batch_id: str) -> None:
    """The good row is there once; the bad one is held once, as a row of the retry."""
    assert keys(house) == [("a", 1.0)]
    assert ledger.find_batch(house.catalog, 1, batch_id) is not None
    assert [(each.row.line, each.state) for each in all_held(house, settled=True)] == [
        (3, QuarantineState.RETRIED), (2, QuarantineState.RETRIED), (3, QuarantineState.HELD),
    ]  # fmt: skip
    [bad] = all_held(house)
    assert (bad.batch_id, bad.form, bad.header, places([bad])) == (
        batch_id,
        RowSyntax.CSV,
        "at,who,price",
        [("1.csv", 3)],
    )


def test_the_same_retry_twice_is_one(a_house: Builder) -> None:
    house = a_house(a_feed())
    put(house, "1.csv", f"at,who,price\n{AHEAD[0]},a,1\n")
    house.clock.advance(3 * DAY)
    selected = select_items(house.site, QuarantineSelection("feed"))
    [one], [other] = retry_items(house.site, selected).batches, retry_items(house.site, selected).batches
    assert (one.already_ingested, other.already_ingested, one.commit_id) == (False, True, other.commit_id)
    assert keys(house) == [("a", 1.0)]


def test_a_stream_must_be_as_declared(a_house: Builder) -> None:
    house = a_house(a_feed())
    put(house, "1.csv", f"at,who,price\n{T[0]},a,x\n")
    project = replace(house.site.project, streams={"feed": a_feed(slack=99)})
    house.site = replace(house.site, project=project)
    with pytest.raises(ErrataError, match="has changed in errata"):
        retried(house)
    assert house.files() == set(), "nothing is written for it"
