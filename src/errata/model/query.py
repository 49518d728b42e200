"""The declaration of a query, what checking found out about it, and its JSON record."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from errata.model.columns import Column, check_name
from errata.model.deferral import Deferral
from errata.model.results import UpdatePattern, check_table_name
from errata.model.stream import Retention, RevisionPolicy
from errata.model.time import format_duration, parse_instant


class EmitMode(StrEnum):
    """When a window's result is published."""

    FINAL = "final"
    """When the window closes."""
    EARLY = "early"
    """From its first row on, and whenever it changes."""


class LineageMode(StrEnum):
    """How the rows that a result was computed from are found."""

    DERIVED = "derived"
    """From the plan; nothing is stored."""
    STORED = "stored"
    """The first and last time of the rows are stored with each result."""


@dataclass(frozen=True, slots=True)
class Query:
    """The declaration of one query."""

    name: str
    sql_file: str
    """The file as declared; messages about mistakes name it."""
    text: str
    on_revision: RevisionPolicy | None = None
    """None: what the inputs allow."""
    emit: EmitMode = EmitMode.FINAL
    retention: Retention | None = None
    in_units: bool = False
    """Whether the span of the retention is in units of a bigint order field, not a duration."""
    serve: str | None = None
    """The result table in the catalog's database, which holds the current answer; None: there is none."""
    since: str | None = None
    """The event time from which answers are kept, as declared: a time or a whole number; None: from the beginning."""
    sweep: Deferral | None = None
    """When corrections are worked into its results; None: as the project says."""
    lineage: LineageMode = LineageMode.DERIVED

    def __post_init__(self) -> None:
        check_name("query", self.name)
        if self.serve is not None:
            check_table_name(self.serve)

    def begins(self, *, timed: bool) -> int | None:
        """The event time from which answers are kept; a plain number if the streams are not ordered by time."""
        if self.since is None:
            return None
        return parse_instant(self.since) if timed else int(self.since)

    @property
    def retention_text(self) -> str:
        """The retention in words."""
        if self.retention is None:
            return "for ever"
        if self.retention.rows is not None:
            return f"{self.retention.rows} rows"
        span = self.retention.span or 0
        return f"{span} units" if self.in_units else format_duration(span)


@dataclass(frozen=True, slots=True)
class CheckedQuery:
    """A query that has been parsed and checked, and the properties of its results."""

    query: Query
    columns: tuple[Column, ...]
    key: tuple[str, ...]
    """The columns, also hidden ones, that identify a result together with its vs."""
    reads: tuple[str, ...]
    """The names of the streams, relations and queries that it reads."""
    pattern: UpdatePattern
    on_revision: RevisionPolicy
    """The policy in force: the declared one, or the weakest of its inputs."""
    fingerprint: str
    """Of the plan over the columns that it reads: equal for texts with the same meaning. Empty in records of older
    versions, whose fingerprints were of the whole declarations of the inputs."""
    digest: str
    """Of everything that was checked: while it is the same, the query need not be parsed again."""

    @property
    def name(self) -> str:
        return self.query.name

    @property
    def form(self) -> tuple[object, ...]:
        """Everything that the results depend on: the plan over the columns that it reads, and the options that change
        what is kept. Not the wording of its text, the retention, the result table, or the time of corrections."""
        return self.fingerprint, self.on_revision, self.query.since, self.query.lineage

    def same_form(self, other: CheckedQuery) -> bool:
        """Whether the results of one are those of the other."""
        return self.form == other.form


def transitive_inputs(names: Iterable[str], reads: Mapping[str, Iterable[str]]) -> list[str]:
    """The streams, relations and queries that these queries read, directly or through others. `reads`: what each query
    reads directly."""
    found: dict[str, None] = {}
    waiting = list(names)
    while waiting:
        for other in reads.get(waiting.pop(), ()):
            if other not in found:
                found[other] = None
                waiting.append(other)
    return list(found)


def query_to_record(query: Query) -> dict[str, Any]:
    """The options as a JSON object, which `query_from_record` reads."""
    kept = query.retention
    return {
        "sql_file": query.sql_file,
        "on_revision": query.on_revision and query.on_revision.value,
        "emit": query.emit.value,
        "retention": kept and {"span": kept.span, "rows": kept.rows},
        "in_units": query.in_units,
        "serve": query.serve,
        **({} if query.since is None else {"since": query.since}),
        **({} if query.sweep is None else {"sweep": str(query.sweep)}),
        **({} if query.lineage is LineageMode.DERIVED else {"lineage": query.lineage.value}),
    }


def semantic_options(query: Query) -> dict[str, Any]:
    """The options that affect the answer: without the place of the text, the result table and the time of
    corrections."""
    return {name: value for name, value in query_to_record(query).items() if name not in {"sql_file", "serve", "sweep"}}


def query_from_record(name: str, text: str, record: dict[str, Any]) -> Query:
    """The declaration in a record of `query_to_record`."""
    stated, kept, sweep = record["on_revision"], record["retention"], record.get("sweep")
    return Query(
        name,
        record["sql_file"],
        text,
        stated and RevisionPolicy(stated),
        EmitMode(record["emit"]),
        kept and Retention(**kept),
        record["in_units"],
        record.get("serve"),  # the first records had none
        record.get("since"),
        sweep and Deferral.parse(sweep),
        LineageMode(record.get("lineage", LineageMode.DERIVED)),
    )


def columns_to_record(columns: tuple[Column, ...]) -> list[list[str]]:
    """Columns as a JSON array, in their order."""
    return [[each.name, str(each.type)] for each in columns]
