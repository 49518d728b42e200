"""The queries of errata.yaml: the file of the text and the options of each. Texts are read on demand."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from errata.declare.files import MAX_QUERY_BYTES, is_folder, read_text_file, resolve_path
from errata.declare.section import YamlPlace, YamlProblems, YamlSection
from errata.declare.streams import UNITS_RULE, parse_retention
from errata.errors import UsageError, candidates_text
from errata.model.deferral import EXAMPLE_RULE, Deferral
from errata.model.query import EmitMode, LineageMode, Query
from errata.model.results import check_table_name, occupied_names
from errata.model.stream import Retention, RevisionPolicy
from errata.model.time import parse_instant

_WHOLE_NUMBER = re.compile(r"[+-]?\d{1,18}")
_SQL_START = re.compile(r"\(*\s*(select|with)\s", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class QueryFile:
    """The declaration of one query without its text."""

    name: str
    file: str
    """As declared."""
    path: Path
    on_revision: RevisionPolicy | None = None
    emit: EmitMode = EmitMode.FINAL
    retention: Retention | None = None
    in_units: bool = False
    serve: str | None = None
    since: str | None = None
    sweep: Deferral | None = None
    lineage: LineageMode = LineageMode.DERIVED
    lines: Mapping[str, int] = field(default_factory=dict, compare=False)
    """The places of its keys in errata.yaml."""

    def place(self, option: str) -> YamlPlace:
        """The place of a key in errata.yaml, or of the query's file if the key is absent."""
        return YamlPlace(self.lines.get(option) or self.lines.get("sql", 1), f"queries.{self.name}.{option}")


def read_query_file(name: str, section: YamlSection, root: Path) -> QueryFile | None:
    """The query that a section declares; None if it has mistakes, which are noted."""
    before = len(section.problems)
    file = section.required("sql", f"name the file of its text: {name}: {{sql: queries/{name}.sql}}")
    if file is not None and _SQL_START.match(file):
        section.mistake("sql", _not_a_file(name))
    on_revision = section.choice("on_revision", RevisionPolicy)
    emit = section.choice("emit", EmitMode) or EmitMode.FINAL
    kept = section.read("retention", _parse_query_retention)
    served = section.section("serve", "table")
    table = None if served is None else _read_table(served, name)
    since = section.read("since", _parse_since)
    sweep = read_deferral(section)
    lineage = section.choice("lineage", LineageMode) or LineageMode.DERIVED
    section.finish()
    if len(section.problems) > before or file is None:
        return None
    retention, in_units = kept or (None, False)
    lines = {option: section.where(option).line for option in section.names()}
    path = section.read("sql", lambda text: resolve_path(text, root))
    if path is None:
        return None
    return QueryFile(name, file, path, on_revision, emit, retention, in_units, table, since, sweep, lineage, lines)


def read_deferral(section: YamlSection) -> Deferral | None:
    """When results are corrected, if the section says; mistakes are noted."""
    swept = section.section("sweep", "when")
    if swept is None:
        return None
    # A misspelt `when` is the only mistake that is reported.
    given = swept.has("when") or not swept.names()
    text = swept.required("when", f"say when: sweep: {{when: {EXAMPLE_RULE}}}, or always, or never") if given else None
    when = None if text is None else swept.read("when", Deferral.parse)
    swept.finish()
    return when


def _read_table(section: YamlSection, name: str) -> str | None:
    given = section.has("table") or not section.names()
    table = section.required("table", f"name the table: serve: {{table: {name}}}") if given else None
    section.finish()
    if table is None:
        return None
    try:
        return check_table_name(table)
    except UsageError as error:
        section.mistake("table", error)
    return None


def check_result_tables(files: Iterable[QueryFile], problems: YamlProblems) -> None:
    """Note a mistake for queries that are served in each other's tables."""
    taken: dict[str, QueryFile] = {}
    for each in files:
        if each.serve is None:
            continue
        for table in occupied_names(each.serve):
            other = taken.setdefault(table, each)
            if other is not each:
                problems.add(each.place("serve"), _table_conflict(each.serve, other))
                break


def _table_conflict(table: str, other: QueryFile) -> UsageError:
    return UsageError(
        f"the result table {table!r} is in the way of query {other.name}, which is served in {other.serve!r}",
        why="each result table has another beside it, with _changes behind its name; upper and lower case are the same",
        how="choose another name for one of them",
    )


def _not_a_file(name: str) -> UsageError:
    return UsageError(
        "a text of SQL stands where the name of a file belongs",
        how=f"write the text into a file, such as queries/{name}.sql, and name that: {name}: queries/{name}.sql",
    )


def _parse_query_retention(text: str) -> tuple[Retention, bool]:
    # Whether a query's event time is a time, only its plan can tell.
    in_units = UNITS_RULE.fullmatch(text.lower()) is not None
    return parse_retention(text, timed=not in_units), in_units


def _parse_since(text: str) -> str:
    # Whether a query's event time is a time, only its plan can tell.
    if not _WHOLE_NUMBER.fullmatch(text):
        parse_instant(text)
    return text


def load_queries(files: Iterable[QueryFile], shown: str) -> Mapping[str, Query]:
    """The queries with their texts, by name; the error lists all unreadable files. `shown` is errata.yaml's name."""
    queries, problems = load_readable_queries(files, shown)
    problems.check()
    return queries


def load_readable_queries(files: Iterable[QueryFile], shown: str) -> tuple[Mapping[str, Query], YamlProblems]:
    """The queries whose files can be read, by name, and the mistakes of the others."""
    problems = YamlProblems(shown)
    queries = {}
    for each in files:
        try:
            text = _read_query_text(each.path, each.file)
        except UsageError as error:
            problems.add(each.place("sql"), error)
            continue
        queries[each.name] = Query(
            each.name,
            each.file,
            text,
            each.on_revision,
            each.emit,
            each.retention,
            each.in_units,
            each.serve,
            each.since,
            each.sweep,
            each.lineage,
        )
    return queries, problems


def read_sql_file(path: Path) -> str:
    """The text of an SQL file."""
    return _read_query_text(path, str(path))


def _read_query_text(path: Path, shown: str) -> str:
    try:
        return read_text_file(path, shown, MAX_QUERY_BYTES)
    except FileNotFoundError:
        raise UsageError(f"there is no file {shown}", how=_file_candidates(path)) from None


def _file_candidates(path: Path) -> str:
    """The SQL files of the folder, as candidates."""
    if not is_folder(path.parent):
        return f"there is no folder {path.parent.name} either; paths are relative to the folder of errata.yaml"
    names = sorted(each.name for each in path.parent.glob("*.sql"))[:20]
    return candidates_text(path.name, names) if names else "write it; the folder has no .sql file yet"
