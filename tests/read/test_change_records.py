"""Change records as they are given out."""

from __future__ import annotations

import io
import json

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from errata.archive.result_changes import ChangeCause
from errata.archive.schemas import feed_schema
from errata.archive.tables import sort_by_columns
from errata.intake.encoding import csv_lines, json_lines
from errata.model.columns import ColumnType
from errata.model.results import ResultShape, UpdatePattern, make_shape, shape_from_record, shape_to_record
from errata.model.time import HIGHEST
from errata.read.change_records import change_schema, changes_from_records, format_changes, last_rows_of_tables
from errata.read.output import write_row_objects

BIGINT, TEXT, TIME, DOUBLE = (ColumnType.parse(kind) for kind in ("bigint", "string", "timestamp", "double"))
SHAPE = make_shape(
    [("of", TEXT, False), ("quotes.time", TIME, True), ("n", DOUBLE, False), ("seen.by", TEXT, True)],
    ["of", "quotes.time"],
    UpdatePattern.MONOTONIC,
    timed=False,
)
TOLD = {1: ChangeCause(4, "batch", "a"), 3: ChangeCause(9, "query", "q")}


def records(shape: ResultShape, *rows: dict[str, object]) -> pa.Table:
    schema = feed_schema(shape)
    return pa.Table.from_pylist([{name: row.get(name) for name in schema.names} for row in rows], schema)


SOME = records(
    SHAPE,
    {"_op": "insert", "of": "a", "_k0": 5, "n": 1.5, "_k1": "x", "_vs": 1, "_ve": HIGHEST, "_run": 1},
    {"_op": "replace", "of": "a", "_k0": 5, "_vs": 1, "_ve": 7, "_old_ve": HIGHEST, "_old_n": 1.5, "_run": 3},
    {"_op": "delete", "of": None, "_k0": None, "_vs": 2, "_ve": None, "_old_ve": 7, "_old_n": None, "_run": 3},
)
AT = "1970-01-01T00:00:00.000005"


def read_back(table: pa.Table) -> list[dict[str, object]]:
    return [json.loads(line) for batch in table.to_batches() for line in json_lines(batch).splitlines()]


def test_what_programs_read() -> None:
    changes = changes_from_records(SOME, SHAPE, TOLD)
    assert changes.schema == change_schema(SHAPE)
    one, two = {"of": "a", "quotes.time": AT}, {"of": None, "quotes.time": None}
    brought, edited = {"type": "batch", "id": "a"}, {"type": "query", "id": "q"}
    values = [list(change.values()) for change in read_back(changes)]
    assert values == [
        ["insert", one, 1, None, None, {"n": 1.5}, None, brought, 4],
        ["replace", one, 1, 7, {"n": 1.5}, {"n": None}, None, edited, 9],
        ["delete", two, 2, 2, {"n": None}, None, 7, edited, 9],
    ]
    assert read_back(changes.slice(1, 1)) == read_back(changes)[1:2]
    line = csv_lines(changes.slice(2).to_batches()[0]).decode()
    assert line.startswith('delete,"{""of"":null,""quotes.time"":null}",2,2,"{""n"":null}",,7,"{""type""')


def test_where_there_is_one_result_at_most_and_where_all_is_key() -> None:
    for key, columns in (([], {}), (["n"], {"n": 3})):
        shape = make_shape([("n", BIGINT, False)], key, UpdatePattern.WEAK, timed=True)
        row = {"_op": "insert", "n": 3, "_vs": 5, "_ve": HIGHEST, "_run": 1}
        (change,) = read_back(changes_from_records(records(shape, row, row).slice(1), shape, TOLD))
        values = {} if columns else {"n": 3}
        assert (change["key"], change["old"], change["new"], change["vs"]) == (columns, None, values, AT)
        assert "insert" in drawn(changes_from_records(records(shape, row), shape, TOLD))


def test_columns_that_the_query_has_now() -> None:
    now = make_shape(
        [("more", TEXT, False), ("of", TEXT, False), ("quotes.time", TIME, True)],
        ["of", "quotes.time"],
        UpdatePattern.MONOTONIC,
        timed=False,
    )
    changes = changes_from_records(SOME, SHAPE, TOLD, now)
    assert changes.schema == change_schema(now)
    assert [change["new"] for change in read_back(changes)] == [{"more": None}, {"more": None}, None]


def drawn(table: pa.Table) -> str:
    console = Console(file=io.StringIO(), width=200)
    with console.capture() as captured:
        console.print(format_changes(table, 200))
    return captured.get()


def test_what_persons_read() -> None:
    _, first, second, third = drawn(changes_from_records(SOME, SHAPE, TOLD)).splitlines()
    assert first.split() == ["4", "insert", "of=a,", f"quotes.time={AT}", "1", "n=1.5", "batch", "a"]
    assert "n=1.5" in second
    assert "n=NULL" in second
    assert "of=NULL, quotes.time=NULL" in third


def test_the_last_of_several() -> None:
    changes = changes_from_records(SOME, SHAPE, TOLD)
    other = pa.table({"commit": [1]})
    found, more = last_rows_of_tables([other, changes, changes.slice(2)], 3)
    assert more
    assert [table.num_rows for table in found] == [3]
    assert found[0].equals(pa.concat_tables([changes.slice(1), changes.slice(2)]))
    found, more = last_rows_of_tables([other, changes], 4)
    assert (found, more) == ([other, changes], False)


def test_several_kinds_of_rows_as_objects() -> None:
    out = io.BytesIO()
    lines = pa.table({"a": ["x\ny", 'say "{}"\n', None]})
    write_row_objects([({"query": "ä"}, lines), ({"query": "b", "n": 1}, lines.slice(0, 0))], out)
    first, second = [json.loads(line) for line in out.getvalue().splitlines()]
    assert first == {"query": "ä", "rows": lines.to_pylist()}
    assert second == {"query": "b", "n": 1, "rows": []}


def test_a_shape_is_recorded_with_the_names_that_the_plan_has() -> None:
    assert shape_from_record(json.loads(json.dumps(shape_to_record(SHAPE)))) == SHAPE
    assert [each.shown for each in SHAPE.columns] == ["of", "quotes.time", "n", "seen.by"]
    before = {"columns": [["n", "bigint", True, False]], "pattern": "wk", "timed": True}
    with_pattern = before | {"pattern": SHAPE.pattern.value}
    assert shape_from_record(with_pattern).columns[0].shown == "n"


VALUES = st.one_of(st.none(), st.sampled_from([float("nan"), float("-inf"), -0.0, 0.0, 1.0, float("inf")]))


@given(st.lists(st.tuples(VALUES, st.one_of(st.none(), st.text(max_size=2)))))
def test_in_the_order_of_spark(rows: list[tuple[float | None, str | None]]) -> None:
    table = pa.table(
        {"d": pa.array([d for d, _ in rows], pa.float64()), "s": pa.array([s for _, s in rows], pa.string())}
    )

    def place(row: tuple[float | None, str | None]) -> tuple[object, ...]:
        number, text = row
        rank = 0 if number is None else 2 if number != number else 1
        return rank, number if rank == 1 else 0, text is not None, (text or "").encode()

    found = list(zip(*sort_by_columns(table, ["d", "s"]).to_pydict().values(), strict=True))
    assert [place(row) for row in found] == sorted(place(row) for row in rows)


@pytest.mark.parametrize("names", [["n"], []])
def test_nothing_is_in_order(names: list[str]) -> None:
    table = pa.table({"n": pa.array([], pa.int64())})
    assert sort_by_columns(table, names).equals(table)
