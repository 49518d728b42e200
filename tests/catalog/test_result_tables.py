"""Result tables: they hold what counts at the frontier and all that led there, of every type, on both databases."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from math import inf, isnan, nan
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import Connection, inspect
from sqlalchemy.exc import IntegrityError

from errata.archive.schemas import feed_schema
from errata.catalog import result_columns, result_tables
from errata.catalog.database import Catalog
from errata.catalog.result_columns import ResultTable
from errata.errors import ErrataError, RefusedError, UsageError
from errata.model.columns import ColumnType, TypeKind
from errata.model.results import ArchiveColumn, ResultShape, UpdatePattern
from errata.model.time import HIGHEST, LOWEST, parse_instant

CAUSE = {"type": "batch", "id": 'a\\b\t"é"'}

Answer = set[tuple[Any, ...]]
Record = dict[str, Any]


def a_shape(*, timed: bool = False, key: Sequence[str] = ("of",), **types: str) -> ResultShape:
    """Results with these columns; names that begin with an underscore are hidden ones."""
    columns = (
        ArchiveColumn(name, ColumnType.parse(kind), name in key, name.startswith("_")) for name, kind in types.items()
    )
    return ResultShape(tuple(columns), UpdatePattern.STRICT, timed)


PLAIN = ResultTable("now", a_shape(of="string", n="bigint"))


def feed(shape: ResultShape, records: Iterable[Record]) -> list[pa.RecordBatch]:
    """Change records in batches of two; what a record does not say is NULL."""
    defaults = {"_op": "insert", "_ve": HIGHEST, "_run": 1}
    rows = [defaults | record for record in records]
    table = pa.Table.from_pylist(rows, schema=feed_schema(shape))
    return table.to_batches(max_chunksize=2)


def told(of: str | None, vs: int, ve: int = HIGHEST, n: int | None = None, **more: Any) -> Record:
    return {"of": of, "_vs": vs, "_ve": ve, "n": n, **more}


def serve(catalog: Catalog, commit: int, frontier: int, *records: Record, served: ResultTable = PLAIN) -> int:
    with catalog.writing() as connection:
        return result_tables.update_table(connection, served, commit, CAUSE, feed(served.shape, records), frontier)


def create(catalog: Catalog, served: ResultTable = PLAIN) -> None:
    with catalog.writing() as connection:
        result_tables.create_table(connection, served)


def rows(catalog: Catalog, table: str = "now") -> list[tuple[Any, ...]]:
    with catalog.reading() as connection:
        return [tuple(row) for row in connection.exec_driver_sql(f'SELECT * FROM "{table}"')]


def sqlite(catalog: Catalog) -> bool:
    return catalog.engine.dialect.name == "sqlite"


class TestServing:
    def test_the_last_that_lasts_stands(self, catalog: Catalog) -> None:
        create(catalog)
        assert serve(catalog, 5, 30, told("a", 10, 20, 1), told("b", 10, 31, 2), told("a", 20, n=3), told("a", 30)) == 4
        assert set(rows(catalog)) == {("a", None, 30, None), ("b", 2, 10, 31)}
        # Ends that pass write nothing but take rows away; what begins at the frontier counts, what ends there does not.
        assert serve(catalog, 6, 31) == 0
        assert rows(catalog) == [("a", None, 30, None)]
        assert serve(catalog, 7, 40, told("b", 40, n=5), told("a", 40, 41, n=4)) == 2
        assert set(rows(catalog)) == {("a", 4, 40, 41), ("b", 5, 40, None)}
        assert serve(catalog, 8, 50, told("a", 45, 50, n=6)) == 1
        assert rows(catalog) == [("b", 5, 40, None)]

    def test_all_that_changed_is_in_the_other_table(self, catalog: Catalog) -> None:
        create(catalog)
        serve(catalog, 5, 30, told("a", 10, 20, 1))
        serve(
            catalog, 6, 30, told("a", 10, 25, 2, _op="replace", _old_ve=20, _old_n=1), told("b", 30, 30, _op="delete")
        )
        found = rows(catalog, "now_changes")
        assert [row[:-1] for row in found] == [
            (5, "insert", "a", 10, 20, None, 1, None),
            (6, "replace", "a", 10, 25, 20, 2, 1),
            (6, "delete", "b", 30, 30, None, None, None),
        ]
        causes = [json.loads(row[-1]) if sqlite(catalog) else row[-1] for row in found]
        assert causes == [CAUSE] * 3

    def test_a_tip_that_is_taken_back_gives_its_forerunner_back(self, catalog: Catalog) -> None:
        create(catalog)
        serve(catalog, 1, 20, told("a", 10, n=1), told("a", 20, n=2))
        assert rows(catalog) == [("a", 2, 20, None)]
        serve(catalog, 2, 30, told("a", 10, 40, 1, _op="replace", _old_ve=20), told("a", 20, 20, _op="delete"))
        assert rows(catalog) == [("a", 1, 10, 40)]

    def test_what_is_corrected_behind_what_stands_stays_behind(self, catalog: Catalog) -> None:
        create(catalog)
        serve(catalog, 1, 20, told("a", 10, n=1), told("a", 20, n=2))
        serve(catalog, 2, 20, told("a", 10, n=7, _op="replace", _old_n=1))
        assert rows(catalog) == [("a", 2, 20, None)]

    def test_keys_of_nulls_are_keys(self, catalog: Catalog) -> None:
        served = ResultTable("now", a_shape(key=("of", "_k0"), of="string", _k0="double", n="bigint"))
        create(catalog, served)
        keys = [(None, None), (None, 1.0), ("a", None), ("a", nan), ("a", inf), ("a", -0.0), (None, nan)]
        first = [{"of": of, "_k0": k, "_vs": 1, "n": 1} for of, k in keys]
        serve(catalog, 1, 1, *first, served=served)
        assert len(rows(catalog)) == len(keys)
        serve(catalog, 2, 2, *({**each, "_vs": 2, "n": 2} for each in first[:5]), served=served)
        assert sorted(row[1] for row in rows(catalog)) == [1, 1, 2, 2, 2, 2, 2]
        serve(catalog, 3, 3, *({**each, "_op": "delete", "n": None} for each in (first[5], first[6])), served=served)
        assert {row[1] for row in rows(catalog)} == {2}
        with catalog.reading() as connection:
            names = [each["name"] for each in inspect(connection).get_columns("now")]
        assert names == ["of", "n", "key_1", "vs", "ve"]

    def test_results_of_no_key_are_one(self, catalog: Catalog) -> None:
        served = ResultTable("now", a_shape(key=(), n="bigint"))
        create(catalog, served)
        for commit, at in enumerate((10, 20, 30), 1):
            serve(catalog, commit, at, {"n": at, "_vs": at - 1}, {"n": at + 1, "_vs": at}, served=served)
            assert rows(catalog) == [(at + 1, at, None)]
        serve(catalog, 4, 40, {"_op": "delete", "_vs": 30}, served=served)
        assert rows(catalog) == []

    def test_nothing_is_left_of_a_transaction_that_fails(self, catalog: Catalog) -> None:
        create(catalog)
        serve(catalog, 1, 1, told("a", 1))
        broken = (batch for each in ([told("b", 2)], [{"of": "c"}]) for batch in feed(PLAIN.shape, each))
        with pytest.raises(IntegrityError), catalog.writing() as connection:
            result_tables.update_table(connection, PLAIN, 2, CAUSE, broken, 2)
        assert (rows(catalog), len(rows(catalog, "now_changes"))) == ([("a", None, 1, None)], 1)

    def test_pieces_are_put_together(self, catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(result_columns, "RECORDS_PER_WRITE", 7)
        create(catalog)
        records = [told(f"{n % 30}", n, n=n) for n in range(100)]
        with catalog.writing() as connection:
            whole = [pa.Table.from_batches(feed(PLAIN.shape, records)).combine_chunks().to_batches()[0]]
            assert result_tables.update_table(connection, PLAIN, 1, CAUSE, whole, 99) == 100
        assert sorted(row[1] for row in rows(catalog)) == list(range(70, 100))
        assert [row[3] for row in rows(catalog, "now_changes")] == list(range(100))

    def test_a_key_that_no_index_can_hold(self, catalog: Catalog) -> None:
        create(catalog)
        text = "".join(chr(0x4E00 + n * 7919 % 20_000) for n in range(9_000))
        if sqlite(catalog):
            serve(catalog, 1, 1, told(text, 1))
            assert rows(catalog) == [(text, None, 1, None)]
            return
        with pytest.raises(ErrataError, match="does not fit into the result table now"):
            serve(catalog, 1, 1, told(text, 1))
        assert rows(catalog) == []


OPS = st.tuples(
    st.sampled_from(["put", "put", "put", "delete"]),
    st.sampled_from([(None, 0), ("a", 0), ("a", None), (None, None), ("b", 1)]),
    st.integers(0, 4),
    st.sampled_from([None, 0, 1, 3]),
    st.integers(0, 9),
)
"""What is done, to which key, how long before the frontier, how long it lasts, and its value."""


@given(commits=st.lists(st.tuples(st.integers(0, 3), st.lists(OPS, max_size=6)), min_size=1, max_size=6))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_what_stands_is_what_folding_the_changes_gives(
    catalog: Catalog, commits: list[tuple[int, list[tuple[str, tuple[Any, Any], int, int | None, int]]]]
) -> None:
    served = ResultTable("now", a_shape(key=("of", "_k0"), of="string", n="bigint", _k0="int"))
    create(catalog, served)
    known: dict[tuple[Any, int], tuple[int, int]] = {}
    frontier = 0
    for commit, (by, ops) in enumerate(commits, 1):
        frontier += by
        wanted = dict(known)
        for op, key, back, lasts, n in ops:
            _edit(wanted, op, key, frontier - back, HIGHEST if lasts is None else frontier - back + 1 + lasts, n)
        serve(catalog, commit, frontier, *_differences(known, wanted), served=served)
        known = wanted
        assert set(rows(catalog)) == _standing(known, frontier)


def _edit(results: dict[tuple[Any, int], tuple[int, int]], op: str, key: Any, vs: int, ve: int, n: int) -> None:
    """Put a result or delete one; its forerunner ends where it begins, or goes on where it is gone."""
    if op == "delete":
        results.pop((key, vs), None)
    else:
        results[key, vs] = (ve, n)
    before = max((at for of, at in results if of == key and at < vs), default=None)
    if before is not None and op == "delete":
        results[key, before] = (ve + 1 if ve < HIGHEST else HIGHEST, results[key, before][1])


def _differences(
    before: dict[tuple[Any, int], tuple[int, int]], after: dict[tuple[Any, int], tuple[int, int]]
) -> list[Record]:
    said = dict.fromkeys(after.keys() - before.keys(), "insert")
    said |= {each: "replace" for each in after.keys() & before.keys() if before[each] != after[each]}
    said |= dict.fromkeys(before.keys() - after.keys(), "delete")
    # Of a key of which one is deleted all that is left of it is told again, more than is asked for.
    lost = {key for (key, _), op in said.items() if op == "delete"}
    said |= {each: "replace" for each in after.keys() & before.keys() if each[0] in lost}
    records = []
    for (key, vs), op in sorted(said.items(), key=lambda each: (each[0][1], str(each[0][0]))):
        ve, n = after.get((key, vs), (vs, None))
        ve = min([ve, *(at for of, at in after if of == key and at > vs)])
        records.append({"_op": op, "of": key[0], "_k0": key[1], "_vs": vs, "_ve": ve, "n": n})
    return records


def _standing(results: dict[tuple[Any, int], tuple[int, int]], at: int) -> Answer:
    last: dict[Any, int] = {}
    for key, vs in results:
        if vs <= at:
            last[key] = max(vs, last.get(key, vs))
    found = ((key, vs, *results[key, vs]) for key, vs in last.items())
    return {(of, n, k, vs, None if ve == HIGHEST else ve) for (of, k), vs, ve, n in found if ve > at}


TYPES = {
    "s": "string",
    "b": "boolean",
    "i": "int",
    "l": "bigint",
    "f": "float",
    "d": "double",
    "short": "decimal(15,5)",
    "long": "decimal(38,18)",
    "day": "date",
    "at": "timestamp",
}
EVERY = ResultTable("every", a_shape(timed=True, key=("s",), **TYPES))
NOON = datetime(2026, 11, 18, 12, 0, 0, 123456, tzinfo=UTC)
ROWS: list[dict[str, Any]] = [
    dict.fromkeys(TYPES),
    {
        "s": "",
        "b": True,
        "i": -(2**31),
        "l": 2**63 - 1,
        "f": 0.5,
        "d": 0.1,
        "short": Decimal("12.5"),
        "long": Decimal(0),
    },
    {"s": "a\tb\\N\r\n\\.\n\"'é,", "b": False, "i": 2**31 - 1, "l": -(2**63), "f": inf, "d": -inf},
    {"s": "\\N", "f": -0.25, "d": 1e308, "short": Decimal("-9999999999.99999"), "long": Decimal("1E-18")},
    {"s": "n", "f": nan, "d": nan, "long": Decimal("12345678901234567890.123456789012345678")},
    {"s": "t", "day": date(2026, 11, 18), "at": NOON},
    {"s": "first", "day": date.min, "at": datetime(1, 1, 1, tzinfo=UTC)},
    {"s": "last", "day": date.max, "at": datetime.max.replace(tzinfo=UTC)},
]


def read(connection: Connection, row: Any, name: str) -> Any:
    """A value of a result table as Python has it."""
    value = getattr(row, name)
    if value is None or connection.dialect.name == "postgresql":
        return value
    kind = ColumnType.parse(TYPES.get(name, "timestamp")).kind
    readers: dict[TypeKind, Any] = {
        TypeKind.BOOLEAN: bool,
        TypeKind.DECIMAL: lambda text: Decimal(str(text)),
        TypeKind.DATE: date.fromisoformat,
        TypeKind.TIMESTAMP: lambda text: datetime.fromisoformat(text).replace(tzinfo=UTC),
        TypeKind.DOUBLE: float,
        TypeKind.FLOAT: float,
    }
    return readers.get(kind, lambda same: same)(value)


class TestTypes:
    def test_every_value_is_read_back(self, catalog: Catalog) -> None:
        create(catalog, EVERY)
        noon = parse_instant("2026-11-18T12:00:00.123456")
        serve(catalog, 1, noon, *({**row, "_vs": noon, "_ve": noon + 1} for row in ROWS), served=EVERY)
        with catalog.reading() as connection:
            for table in ("every", "every_changes"):
                found = list(connection.exec_driver_sql(f"SELECT * FROM {table}"))
                assert len(found) == len(ROWS)
                by_key = {row.s: row for row in found}
                for wanted in ROWS:
                    row = by_key[wanted["s"]]
                    assert (read(connection, row, "vs"), read(connection, row, "ve")) == (
                        NOON,
                        NOON.replace(microsecond=123457),
                    )
                    for name in TYPES:
                        value, expected = read(connection, row, name), wanted.get(name)
                        both_nan = isinstance(expected, float) and isnan(expected) and isnan(value)
                        assert both_nan or value == expected, (table, name)

    def test_numbers_are_numbers_to_the_database(self, catalog: Catalog) -> None:
        create(catalog, EVERY)
        some = [("a", "9.5", 1.0), ("b", "10", nan), ("c", "-1", inf)]
        records = [{"s": s, "short": Decimal(short), "d": d, "_vs": 0} for s, short, d in some]
        serve(catalog, 1, 0, *records, served=EVERY)
        for order, expected in (("short", "cab"), ("d", "acb")):
            with catalog.reading() as connection:
                found = connection.exec_driver_sql(f"SELECT s FROM every ORDER BY {order}")
                assert "".join(found.scalars()) == expected

    def test_times_beyond_the_years_of_calendars(self, catalog: Catalog) -> None:
        served = ResultTable("now", a_shape(timed=True, of="string", day="date"))
        create(catalog, served)
        schema = feed_schema(served.shape)
        far = pa.array([-800_000, 3_000_000, 0, None], pa.date32())
        columns = {"_op": ["insert"] * 4, "of": list("abcd"), "day": far, "_vs": [LOWEST, -(2**62), 0, 0]}
        columns |= {"_ve": [2**62, HIGHEST, HIGHEST - 1, HIGHEST], "_run": [1] * 4}
        nothing = pa.nulls(4)
        batch = pa.record_batch([pa.array(columns.get(f.name, nothing), f.type) for f in schema], schema=schema)
        with catalog.writing() as connection:
            result_tables.update_table(connection, served, 1, CAUSE, [batch], 0)
        with catalog.reading() as connection:
            found = connection.exec_driver_sql(
                "SELECT of, CAST(day AS TEXT), CAST(vs AS TEXT), CAST(ve AS TEXT) FROM now ORDER BY vs, of"
            )
            told = [tuple(row) for row in found]
        epoch = "1970-01-01 00:00:00" + (".000000" if sqlite(catalog) else "+00")
        assert told == [
            ("a", "-infinity", "-infinity", "infinity"),
            ("b", "infinity", "-infinity", None),
            ("c", "1970-01-01", epoch, "infinity"),
            ("d", None, epoch, None),
        ]

    def test_a_text_that_postgres_cannot_hold(self, catalog: Catalog) -> None:
        served = ResultTable("now", a_shape(of="string", n="string"))
        create(catalog, served)
        serve(catalog, 1, 1, told("a\0", 1, n="\0"), served=served)
        serve(catalog, 2, 2, told("a\0", 2, n="x\0y"), served=served)
        nul = "\0" if sqlite(catalog) else "\u2400"
        assert rows(catalog) == [(f"a{nul}", f"x{nul}y", 2, None)]


class TestTables:
    def test_they_are_made_found_and_dropped(self, catalog: Catalog) -> None:
        with catalog.writing() as connection:
            assert not result_tables.table_exists(connection, "now")
            assert not result_tables.table_fits(connection, PLAIN)
            result_tables.drop_table(connection, "now")
            result_tables.create_table(connection, PLAIN)
            assert result_tables.table_exists(connection, "now")
            assert result_tables.table_fits(connection, PLAIN)
        serve(catalog, 1, 1, told("a", 1))
        create(catalog)
        assert rows(catalog) == rows(catalog, "now_changes") == []
        with catalog.writing() as connection:
            result_tables.drop_table(connection, "now")
            assert not {"now", "now_changes"} & set(inspect(connection).get_table_names())

    @pytest.mark.parametrize(
        "shape",
        [
            a_shape(of="string", n="int"),
            a_shape(of="string", n="bigint", m="int"),
            a_shape(of="string"),
            a_shape(n="bigint", of="string"),
            a_shape(of="string", n="bigint", key=("n",)),
            a_shape(of="string", n="bigint", timed=True),
            a_shape(of="string", n="bigint", _k0="int", key=("of", "_k0")),
        ],
    )
    def test_other_results_need_other_tables(self, catalog: Catalog, shape: ResultShape) -> None:
        create(catalog)
        other = ResultTable("now", shape)
        with catalog.writing() as connection:
            assert not result_tables.table_fits(connection, other)
            result_tables.create_table(connection, other)
            assert result_tables.table_fits(connection, other)

    def test_every_type_fits_itself(self, catalog: Catalog) -> None:
        create(catalog, EVERY)
        with catalog.writing() as connection:
            assert result_tables.table_fits(connection, EVERY)

    def test_hidden_columns_that_are_no_key_are_left_out(self, catalog: Catalog) -> None:
        served = ResultTable("now", a_shape(of="string", n="bigint", _k0="int"))
        create(catalog, served)
        serve(catalog, 1, 1, told("a", 1, n=2, _k0=3), served=served)
        assert rows(catalog) == [("a", 2, 1, None)]

    @pytest.mark.parametrize(
        "statement",
        ["CREATE TABLE now (x INT)", "CREATE TABLE now_changes (x INT)", "CREATE VIEW now AS SELECT 1 AS x"],
    )
    def test_what_errata_has_not_made_is_not_touched(self, catalog: Catalog, statement: str) -> None:
        with catalog.writing() as connection:
            connection.exec_driver_sql(statement)
        with pytest.raises(RefusedError, match=r"there is a table or view now\w* already") as raised:
            create(catalog)
        assert (raised.value.why, raised.value.how) != (None, None)
        with catalog.writing() as connection:
            result_tables.drop_table(connection, "now")
            looking = inspect(connection)
            assert sum(looking.has_table(name) for name in ("now", "now_changes")) == 1

    def test_what_others_have_built_upon_is_not_dropped(self, catalog: Catalog) -> None:
        create(catalog)
        with catalog.writing() as connection:
            connection.exec_driver_sql("CREATE VIEW seen AS SELECT of FROM now")
        if sqlite(catalog):  # its views are looked up when they are read
            create(catalog)
            return
        with pytest.raises(RefusedError, match="the result table now cannot be dropped"):
            create(catalog)

    def test_there_are_indexes(self, catalog: Catalog) -> None:
        keys = {f"c{n}": "int" for n in range(40)}
        wide = ResultTable("wide", a_shape(key=tuple(keys), **keys))
        create(catalog)
        create(catalog, wide)
        with catalog.reading() as connection:
            looking = inspect(connection)
            found = {each["name"]: (each["column_names"], bool(each["unique"])) for each in looking.get_indexes("now")}
            of_wide = {each["name"]: each for each in looking.get_indexes("wide")}
        assert found == {
            "ix_now_key": (["of"], True),
            "ix_now_ve": (["ve"], False),
            "ix_now_vs": (["vs"], False),
        }
        assert not of_wide["ix_wide_key"]["unique"]


class TestNames:
    @pytest.mark.parametrize("name", ["buckets", "Buckets", "alembic_version", "pg_x", "ix_now", "a b", "t" * 46])
    def test_the_catalogs_and_the_databases_own_are_taken(self, name: str) -> None:
        with pytest.raises(UsageError) as raised:
            result_tables.check_result_table_name(name, ())
        assert raised.value.how

    def test_two_queries_have_two_tables(self) -> None:
        result_tables.check_result_table_name("now", ["then", "now_", "nowchanges"])
        for other in ("now", "NOW", "now_changes"):
            with pytest.raises(UsageError, match="two queries cannot both be served as 'now'"):
                result_tables.check_result_table_name("now", ["then", other])
        with pytest.raises(UsageError):
            result_tables.check_result_table_name("now_changes", ["now"])

    def test_the_longest_names_are_borne(self, catalog: Catalog) -> None:
        for table in ("t" * 44 + "a", "t" * 44 + "b", "Order"):
            served = ResultTable(table, a_shape(key=("Select",), Select="string", order="int", _k0="int"))
            create(catalog, served)
            serve(catalog, 1, 1, {"Select": "a", "order": 1, "_vs": 1}, served=served)
            serve(catalog, 2, 2, {"Select": "a", "order": 2, "_vs": 2}, served=served)
            assert rows(catalog, table) == [("a", 2, 2, None)]

    @pytest.mark.parametrize("name", ["vs", "VE", "op", "key_1", "cause", "xmin", "old_n", "x" * 60])
    def test_columns_that_would_be_there_twice(self, catalog: Catalog, name: str) -> None:
        with pytest.raises(UsageError, match=f"column {name} cannot be in a result table"):
            create(catalog, ResultTable("now", a_shape(**{"of": "string", "n": "int", name: "int"})))

    def test_columns_that_only_look_alike(self, catalog: Catalog) -> None:
        names = {"of": "string", "old_of": "int", "key_": "int", "_rowid": "int", "rowid": "int", "commit": "int"}
        served = ResultTable("now", a_shape(key=("of",), **names))
        create(catalog, served)
        for commit in (1, 2):
            serve(catalog, commit, commit, {"of": "a", "rowid": 7, "_vs": commit}, served=served)
        assert [row[0] for row in rows(catalog)] == ["a"]
