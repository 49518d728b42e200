"""Quarantine in the catalog: what is held and how it is read again, and how it is settled, once."""

from __future__ import annotations

from dataclasses import replace

import pytest
from alembic import command

from errata.catalog import commits, declarations, quarantine, streams
from errata.catalog.database import Catalog, make_engine
from errata.catalog.migration import migration_config, prepare_catalog
from errata.catalog.quarantine import QuarantineConflict, QuarantineState, RowSyntax
from errata.catalog.stream_commits import commit_append
from errata.clock import SYSTEM
from errata.model.batch import BadRevision, BadRow, Batch, Op
from errata.model.commit import Cause
from errata.model.stream import Stream
from fixtures.catalog import a_batch, a_bucket, a_stream

CAUSE = Cause("test")


def bad(line: int, file: str = "x.csv", reason: str = "of: empty") -> BadRow:
    return BadRow(file, line, f"{line},", reason)


def take(catalog: Catalog, name: str, *rows: BadRow, header: str | None = None, **how: object) -> Batch:
    arrived = a_batch(name, [a_bucket(1, 2)], rows)
    arrived = replace(arrived, files=[replace(arrived.files[0], header=header)], **how)
    commit_append(catalog, streams.stream_state(catalog, "ticks"), arrived, CAUSE)
    return arrived


def test_what_is_held_can_be_read_again(catalog: Catalog, ticks: Stream) -> None:
    take(catalog, "x", bad(2), header='at,"of"')
    take(catalog, "y", bad(1, "y.csv"), default_op=Op.REPLACE)
    take(catalog, "z", replace(bad(9, "first.csv"), source="z.csv"), header="of,at")
    found = quarantine.quarantined_rows(catalog)
    assert [(each.form, each.header, each.default_op) for each in found] == [
        (RowSyntax.CSV, 'at,"of"', Op.INSERT),
        (RowSyntax.JSON, None, Op.REPLACE),
        (RowSyntax.CSV, "of,at", Op.INSERT),
    ]
    assert found[2].row == bad(9, "first.csv"), "the place is where it first stood"
    assert {(each.state, each.settled_in, each.revision) for each in found} == {(QuarantineState.HELD, None, None)}


def test_revisions_are_held_as_objects(catalog: Catalog, ticks: Stream) -> None:
    take(catalog, "x", header="at,of", default_op=Op.DELETE)
    row = BadRevision(1, 7, "x.csv", 5, '{"_op":"delete","at":1}', "no such row\0")
    with catalog.writing() as connection:
        assert quarantine.quarantine_revisions(connection, 1, [row, replace(row, revision=8)]) == 2
        assert quarantine.quarantine_revisions(connection, 1, []) == 0
    first, second = quarantine.quarantined_rows(catalog)
    assert (first.form, first.header, first.revision, second.revision) == (RowSyntax.JSON, None, 7, 8)
    assert (first.batch_id, first.row) == ("x", BadRow("x.csv", 5, '{"_op":"delete","at":1}', "no such row\u2400"))


def test_rows_are_found_by_what_is_told_of_them(catalog: Catalog, ticks: Stream) -> None:
    take(catalog, "x", bad(1, reason="Price: 50% is no number"), bad(2, reason="a_b"))
    take(catalog, "y", bad(3, reason="price: 500 is no number"), bad(4, reason="axb"))

    def lines(**told: object) -> list[int]:
        return [each.row.line for each in quarantine.quarantined_rows(catalog, **told)]

    assert lines(reason="PRICE:") == [1, 3]
    assert lines(reason="50%") == [1]
    assert lines(reason="a_b") == [2]
    assert lines(batch_id="y") == [3, 4]
    assert lines(batch_id="y", reason="price") == [3]
    assert lines(ids=[2, 3, 99]) == [2, 3]
    assert lines(ids=[2], batch_id="y") == []
    assert lines(stream_id=1, last=1) == [4]
    assert lines(stream_id=2) == []


def test_dropping_is_a_commit_and_moves_no_stream(catalog: Catalog, ticks: Stream) -> None:
    take(catalog, "x", bad(1), bad(2), bad(3))
    before = streams.stream_state(catalog, "ticks")
    commit_id = quarantine.drop_quarantined(catalog, 1, [1, 3], Cause("quarantine-drop"))
    assert [each.quarantine_id for each in quarantine.quarantined_rows(catalog)] == [2]
    found = quarantine.quarantined_rows(catalog, settled=True)
    assert [(each.quarantine_id, each.state, each.settled_in) for each in found] == [
        (1, QuarantineState.DROPPED, commit_id),
        (2, QuarantineState.HELD, None),
        (3, QuarantineState.DROPPED, commit_id),
    ]
    assert quarantine.quarantined_row_counts(catalog) == {"ticks": 1}
    last = commits.list_commits(catalog)[-1]
    assert (last.commit_id, last.cause.flow, last.stream) == (commit_id, "quarantine-drop", "ticks")
    assert last.summary == {"dropped_rows": 2}
    assert streams.stream_state(catalog, "ticks") == before


def test_a_row_is_settled_once(catalog: Catalog, ticks: Stream) -> None:
    take(catalog, "x", bad(1), bad(2))
    arrived = take(catalog, "again", bad(1), retried=[1])
    newest = commits.newest_commit(catalog)
    for ids in ([1], [2, 1], [2, 99]):
        with pytest.raises(QuarantineConflict):
            quarantine.drop_quarantined(catalog, 1, ids, CAUSE)
        with pytest.raises(QuarantineConflict):
            commit_append(
                catalog,
                streams.stream_state(catalog, "ticks"),
                replace(arrived, batch_id="more", retried=ids),
                CAUSE,
            )
    assert commits.newest_commit(catalog) == newest, "nothing of a commit stays that would settle a row twice"
    found = quarantine.quarantined_rows(catalog, settled=True)
    assert [(each.batch_id, each.state, each.settled_in) for each in found] == [
        ("x", QuarantineState.RETRIED, newest),
        ("x", QuarantineState.HELD, None),
        ("again", QuarantineState.HELD, None),
    ]


def test_very_many_rows_are_settled(catalog: Catalog, ticks: Stream) -> None:
    take(catalog, "x", *map(bad, range(1_201)))
    ids = [each.quarantine_id for each in quarantine.quarantined_rows(catalog)]
    quarantine.drop_quarantined(catalog, 1, ids, CAUSE)
    assert quarantine.quarantined_row_counts(catalog) == {}


def test_counts_are_of_streams_that_live(catalog: Catalog, ticks: Stream) -> None:
    take(catalog, "x", bad(1))
    declarations.apply_changes(catalog, CAUSE, write=[a_stream("ticks")], drop=[], summary={})
    assert quarantine.quarantined_row_counts(catalog) == {"ticks": 1}
    declarations.apply_changes(catalog, CAUSE, write=[], drop=["ticks"], summary={})
    assert quarantine.quarantined_row_counts(catalog) == {}
    assert len(quarantine.quarantined_rows(catalog, stream="ticks")) == 1


def test_rows_from_before_forms_were_kept_are_told_apart(catalog_url: str) -> None:
    config = migration_config()
    old = Catalog(make_engine(catalog_url), SYSTEM)
    with old.writing() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, "0001")
        for statement in (
            "INSERT INTO streams (name, added_in, rows, inline_bytes, revisions, changed_in) "
            "VALUES ('ticks', 1, 0, 0, 0, 1)",
            "INSERT INTO batches (stream_id, batch_id, content_hash, counts) VALUES (1, 'x', '00', '{}')",
        ):
            connection.exec_driver_sql(statement)
        for name in ("a.csv", "b.CSV.gz", "c.ndjson.gz", "d.JSON", "e.parquet"):
            row = f"(1, 1, '{name}', 2, 'text', 'reason')"
            columns = "stream_id, batch_no, file, line, text, reason"
            connection.exec_driver_sql(f"INSERT INTO quarantine ({columns}) VALUES {row}")
    old.close()
    catalog = prepare_catalog(catalog_url)
    found = quarantine.quarantined_rows(catalog)
    assert [(each.form.value, each.state, each.header) for each in found] == [
        (form, QuarantineState.HELD, None) for form in ("csv", "csv", "json", "json", "json")
    ]
    catalog.close()
