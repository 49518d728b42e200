"""Queries and relations of errata.yaml, and what is said of their mistakes."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from errata.declare.project import Project, load_project
from errata.declare.queries import QueryFile
from errata.errors import UsageError
from errata.model.columns import Column, ColumnType
from errata.model.deferral import DEFAULT_DEFERRAL, Deferral
from errata.model.query import EmitMode, Query, query_from_record
from errata.model.query import query_to_record as query_record
from errata.model.stream import RelationKind, Retention, RevisionPolicy, Stream, stream_from_record, stream_to_record
from errata.model.time import DAY

Load = Callable[..., Project]

QUOTES = """\
project: p
streams:
  quotes: {columns: {time: timestamp, symbol: string}, key: [time, symbol], order: time}
"""
COMPANIES = """\
relations:
  companies:
    kind: nrr
    columns: {symbol: string, name: string, since: timestamp, gone: boolean}
    key: [symbol]
    order: since
    deleted: gone
"""


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Load:
    """Write errata.yaml and files of SQL into an empty folder, go there and load it."""
    monkeypatch.chdir(tmp_path)

    def loaded(text: str, **files: str) -> Project:
        (tmp_path / "queries").mkdir(exist_ok=True)
        for name, sql in files.items():
            (tmp_path / "queries" / f"{name}.sql").write_text(sql, encoding="utf-8")
        (tmp_path / "errata.yaml").write_text(QUOTES + text, encoding="utf-8")
        return load_project(environ={})

    return loaded


def refused(load: Load, text: str, **files: str) -> str:
    with pytest.raises(UsageError) as raised:
        load(text, **files).texts()
    assert "how to mend: " in str(raised.value)
    return str(raised.value)


class TestRelations:
    def test_a_relation_is_a_stream_of_versions(self, load: Load) -> None:
        project = load(COMPANIES)
        assert list(project.streams) == ["quotes", "companies"]
        columns = {"symbol": "string", "name": "string", "since": "timestamp", "gone": "boolean"}
        assert project.streams["companies"] == Stream(
            "companies",
            tuple(Column(name, ColumnType.parse(kind)) for name, kind in columns.items()),
            ("symbol", "since"),
            "since",
            relation=RelationKind.NRR,
            deleted="gone",
        )
        assert project.streams["companies"].relation_key == ("symbol",)
        assert [each.noun for each in project.streams.values()] == ["stream", "relation"]

    def test_records_are_read_back(self, load: Load) -> None:
        for stream in load(COMPANIES).streams.values():
            assert stream_from_record(stream.name, stream_to_record(stream)) == stream

    def test_a_record_from_before_there_were_relations(self, load: Load) -> None:
        record = stream_to_record(load("").streams["quotes"])
        assert not {"relation", "deleted"} & record.keys()
        assert stream_from_record("quotes", record).relation is None

    @pytest.mark.parametrize(
        ("old", "new", "told"),
        [
            ("    kind: nrr\n", "", "errata.yaml:5 (relations.companies.kind): key 'kind' is missing"),
            ("kind: nrr", "kind: slow", "errata.yaml:6 (relations.companies.kind): 'slow' is not a choice"),
            ("    order: since\n", "", "errata.yaml:5 (relations.companies.order): a relation has no order"),
            ("[symbol]", "[symbol, since]", "errata.yaml:8 (relations.companies.key): key names 'since', the order"),
            ("[symbol]", "[]", "errata.yaml:8 (relations.companies.key): key is an empty list"),
            (
                "deleted: gone",
                "deleted: gne",
                "errata.yaml:10 (relations.companies.deleted): unknown column in deleted",
            ),
            ("deleted: gone", "deleted: name", "column 'name' in deleted is of type string"),
            ("gone: boolean}", "gone: boolean}\n    retention: 7 days", "a relation has no retention"),
            ("gone: boolean}", "gone: boolean}\n    age_out: lazy", "unknown key 'age_out'"),
            ("[symbol]", "[symbol, gone]", "column 'gone' is in key and in deleted"),
            ("companies:", "Quotes:", "relation 'Quotes' has the name of a stream"),
        ],
    )
    def test_mistakes(self, load: Load, old: str, new: str, told: str) -> None:
        assert told in refused(load, COMPANIES.replace(old, new))

    @pytest.mark.parametrize("changed", [{"key": ("since",)}, {"key": ("since", "symbol")}, {"deleted": "name"}])
    def test_the_model_refuses_what_no_declaration_can_say(self, load: Load, changed: dict[str, object]) -> None:
        record = stream_to_record(load(COMPANIES).streams["companies"])
        with pytest.raises(UsageError):
            stream_from_record("companies", record | changed)


class TestQueries:
    def test_a_query_with_all_options(self, load: Load, tmp_path: Path) -> None:
        declared = "{sql: queries/a.sql, on_revision: history, emit: early, retention: 7 days, serve: {table: a_now}}"
        project = load(f"queries:\n  a: {declared}\n", a="SELECT 1\n")
        kept = Retention(span=7 * DAY)
        path, options = tmp_path / "queries/a.sql", (RevisionPolicy.HISTORY, EmitMode.EARLY, kept)
        expected = QueryFile("a", "queries/a.sql", path, *options, serve="a_now")
        assert project.queries == {"a": expected}
        query = Query("a", "queries/a.sql", "SELECT 1\n", *options, serve="a_now")
        assert project.texts() == {"a": query}
        assert query.retention_text == "7 days"

    def test_a_file_is_all_that_a_query_needs(self, load: Load) -> None:
        project = load("queries:\n  a: queries/a.sql\n  b: {sql: queries/a.sql}\n", a="\ufeffSELECT 'é'")
        assert project.texts() == {
            name: Query(name, "queries/a.sql", "SELECT 'é'", None, EmitMode.FINAL, None) for name in ("a", "b")
        }

    def test_when_results_are_swept(self, load: Load) -> None:
        queries = "queries:\n  a: {sql: queries/a.sql, sweep: {when: never}}\n  b: queries/a.sql\n"
        project = load(f"sweep:\n  when: queue >= 10 or between 01:00 and 05:00\n{queries}", a="x")
        assert project.sweep == Deferral.parse("queue >= 10 or between 01:00 and 05:00")
        swept = {name: each.sweep for name, each in project.texts().items()}
        assert swept == {"a": Deferral.parse("never"), "b": None}
        assert load(queries, a="x").sweep == DEFAULT_DEFERRAL

    def test_a_condition_is_all_that_sweeping_needs(self, load: Load) -> None:
        text = "sweep: (queue >= 2 or age >= 1 day) and between 22:00 and 02:00\n"
        project = load(f"{text}queries:\n  a: {{sql: queries/a.sql, sweep: always}}\n", a="x")
        assert str(project.sweep) == text.removeprefix("sweep: ").strip()
        assert project.texts()["a"].sweep == DEFAULT_DEFERRAL

    def test_a_record_bears_when_results_are_swept_if_the_query_says(self, load: Load) -> None:
        texts = load("queries:\n  a: {sql: queries/a.sql, sweep: age >= 90 min}\n  b: queries/a.sql\n", a="x").texts()
        assert query_record(texts["a"])["sweep"] == "age >= 90 minutes"
        assert "sweep" not in query_record(texts["b"])
        assert {name: query_from_record(name, "x", query_record(each)) for name, each in texts.items()} == texts

    def test_a_table_is_all_that_serving_needs(self, load: Load) -> None:
        texts = load("queries:\n  a: {sql: queries/a.sql, serve: a_now}\n  b: queries/a.sql\n", a="x").texts()
        assert {name: each.serve for name, each in texts.items()} == {"a": "a_now", "b": None}

    def test_records_are_read_back(self, load: Load) -> None:
        text = "queries:\n  a: {sql: queries/a.sql, serve: a_now, emit: early}\n  b: queries/a.sql\n"
        for name, query in load(text, a="x").texts().items():
            assert query_from_record(name, "x", query_record(query)) == query

    def test_a_record_from_before_there_were_result_tables(self, load: Load) -> None:
        query = load("queries:\n  a: {sql: queries/a.sql, serve: a_now}\n", a="x").texts()["a"]
        record = query_record(query)
        del record["serve"]
        assert query_from_record("a", "x", record) == replace(query, serve=None)

    @pytest.mark.parametrize(
        ("written", "expected", "in_units", "words"),
        [
            ("1000 units", Retention(span=1000), True, "1000 units"),
            ("1000 rows", Retention(rows=1000), False, "1000 rows"),
            ("", None, False, "for ever"),
        ],
    )
    def test_retention(self, load: Load, written: str, expected: object, in_units: bool, words: str) -> None:
        read = load(f"queries:\n  a: {{sql: queries/a.sql, retention: '{written}'}}\n", a="x").texts()["a"]
        assert (read.retention, read.in_units, read.retention_text) == (expected, in_units, words)

    def test_no_file_is_opened_before_somebody_asks(self, load: Load) -> None:
        assert list(load("queries: {a: queries/none.sql}\n").queries) == ["a"]

    @pytest.mark.parametrize(
        ("text", "told"),
        [
            ("queries:\n  a:\n", "errata.yaml:5 (queries.a.sql): key 'sql' is missing"),
            ("queries:\n  a: [x]\n", "errata.yaml:5 (queries.a): a is not a mapping"),
            (
                "queries:\n  a: select time FROM quotes\n",
                "errata.yaml:5 (queries.a.sql): a text of SQL stands where the name of a file belongs",
            ),
            ("queries:\n  a: {sql: 'WITH x AS (SELECT 1) SELECT 2'}\n", "such as queries/a.sql, and name that"),
            ("queries:\n  a: selected/b.sql\n", "there is no folder selected either"),
            ("queries:\n  a: {sql: queries/b.sql, emit: late}\n", "'late' is not a choice"),
            ("queries:\n  a: {sql: queries/b.sql, retention: soon}\n", "'soon' is not a retention"),
            ("queries:\n  a: {sql: queries/b.sql, every: 1 day}\n", "unknown key 'every'"),
            ("sweep:\n", "errata.yaml:4 (sweep.when): key 'when' is missing"),
            ("sweep: [always]\n", "errata.yaml:4 (sweep): sweep is not a mapping"),
            (
                "sweep: {wen: always}\n",
                "errata.yaml:4 (sweep.wen): unknown key 'wen'\n  how to mend: did you mean when?",
            ),
            ("sweep: {when: [always]}\n", "errata.yaml:4 (sweep.when): a list stands where one value belongs"),
            (
                "sweep:\n  when: queue > 10\n",
                "errata.yaml:5 (sweep.when): '>' cannot stand at character 7 of 'queue > 10'",
            ),
            (
                "queries:\n  a:\n    sql: queries/b.sql\n    sweep: {when: agge >= 1 day}\n",
                "errata.yaml:7 (queries.a.sweep.when): 'agge' cannot stand at character 1 of 'agge >= 1 day'\n"
                "  how to mend: did you mean age?",
            ),
            ("queries:\n  a: {sql: queries/b.sql, serve:}\n", "(queries.a.serve.table): key 'table' is missing"),
            (
                "queries:\n  a:\n    sql: queries/b.sql\n    serve: {tabel: x}\n",
                "7 (queries.a.serve.tabel): unknown key",
            ),
            ("queries:\n  a: {sql: queries/b.sql, serve: [x]}\n", "serve is not a mapping"),
            ("queries:\n  a: {sql: queries/b.sql, serve: a-b}\n", "'a-b' cannot be the name of a table"),
            (f"queries:\n  a: {{sql: queries/b.sql, serve: {'t' * 46}}}\n", "has 46 characters"),
            ("queries:\n  a: {sql: queries/b.sql, serve: SQLite_x}\n", "what begins with sqlite_"),
            (
                "queries:\n  a: {sql: queries/b.sql, serve: x}\n  b: {sql: queries/b.sql, serve: {table: X}}\n",
                "errata.yaml:6 (queries.b.serve): the result table 'X' is in the way of query a, which is served in",
            ),
            (
                "queries:\n  a: {sql: queries/b.sql, serve: x_changes}\n  b: {sql: queries/b.sql, serve: x}\n",
                "the result table 'x' is in the way of query a, which is served in 'x_changes'",
            ),
            ("queries:\n  my-a: queries/b.sql\n", "'my-a' cannot be the name of a query"),
            ("queries:\n  QUOTES: queries/b.sql\n", "query 'QUOTES' has the name of a stream"),
            ("queries:\n  a: queries/b.sql\n  A: queries/b.sql\n", "queries 'a' and 'A' differ only in upper"),
            (
                "queries:\n  a:\n    emit: final\n    sql: queries/bb.sql\n",
                "errata.yaml:7 (queries.a.sql): there is no",
            ),
            ("queries:\n  a: queries/bb.sql\n", "did you mean b.sql?"),
            ("queries:\n  a: nowhere/b.sql\n", "there is no folder nowhere either"),
            ("queries:\n  a: landing/b.sql\n", "write it; the folder has no .sql file yet"),
            ("queries:\n  a: queries\n", "queries cannot be read: Is a directory"),
            ("queries:\n  a: queries/latin.sql\n", "queries/latin.sql is not UTF-8 at byte 8"),
            ("queries:\n  a: x.sql\n  b: queries/b.sql\n  c: y.sql\n", "errata.yaml has 2 mistakes"),
        ],
    )
    def test_mistakes(self, load: Load, tmp_path: Path, text: str, told: str) -> None:
        (tmp_path / "landing").mkdir()
        (tmp_path / "queries").mkdir()
        (tmp_path / "queries" / "latin.sql").write_bytes(b"SELECT '\xe9'")
        said = refused(load, text, b="SELECT 1")
        assert told in said
        assert "errata.yaml:" in said

    def test_thousands_are_read_in_a_moment(self, load: Load) -> None:
        lines = [f"  q{n}: {{sql: queries/q{n}.sql, on_revision: history, retention: 7 days}}" for n in range(10_000)]
        load("")
        began = time.process_time()
        project = load("\n".join(["queries:", *lines, ""]))
        assert len(project.queries) == 10_000
        assert time.process_time() - began < 5
