"""A query as it is declared, and what applying it has found out about it."""

from __future__ import annotations

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
    """From its first row on, and then whenever it changes."""


class LineageMode(StrEnum):
    """How it is known of which rows a result was made."""

    DERIVED = "derived"
    """From the plan: nothing is kept for it."""
    STORED = "stored"
    """It is kept with each result from which to which time the rows lie."""


@dataclass(frozen=True, slots=True)
class Query:
    """The declaration of one query."""

    name: str
    sql_file: str
    """The file as declared; mistakes in the text are told with it."""
    text: str
    on_revision: RevisionPolicy | None = None
    """None: what the inputs allow."""
    emit: EmitMode = EmitMode.FINAL
    retention: Retention | None = None
    in_units: bool = False
    """Whether the retention's span is units of a plain bigint, and not a duration."""
    serve: str | None = None
    """The table in the catalog's database that holds the current answer, too."""
    since: str | None = None
    """Answers are kept from this event time on, as declared: a time, or a whole number; None: from the beginning."""
    sweep: Deferral | None = None
    """When corrections are worked into its results; None: when the project says."""
    lineage: LineageMode = LineageMode.DERIVED

    def __post_init__(self) -> None:
        check_name("query", self.name)
        if self.serve is not None:
            check_table_name(self.serve)

    def begins(self, *, timed: bool) -> int | None:
        """The event time from which answers are kept; of a query that is not ordered by time it is a plain number."""
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
    """A query that has been read and found good, and what its plan says of its results."""

    query: Query
    columns: tuple[Column, ...]
    key: tuple[str, ...]
    """The columns, hidden ones too, that identify a result together with its vs."""
    reads: tuple[str, ...]
    """The streams, relations and queries it reads, by name."""
    pattern: UpdatePattern
    on_revision: RevisionPolicy
    """What is in force: declared, or the weakest of what it reads."""
    fingerprint: str
    """Tells plans apart: equal for texts that mean the same, whatever else the streams have that they read. Empty in
    records of versions that took the whole declarations of these in."""
    digest: str
    """Of all that decided this: where it is the same, the query need not be read again."""

    @property
    def name(self) -> str:
        return self.query.name

    @property
    def form(self) -> tuple[object, ...]:
        """All that the results depend on: the plan over the columns that it reads, and what is declared that changes
        what is kept of it. Not the wording of its text, nor how long results are kept, who else holds the answer and
        when it is corrected."""
        return self.fingerprint, self.on_revision, self.query.since, self.query.lineage

    def same_form(self, other: CheckedQuery) -> bool:
        """Whether results of the one are results of the other."""
        return self.form == other.form


def query_to_record(query: Query) -> dict[str, Any]:
    """The options as JSON can hold them; `from_record` reads them back."""
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
    """Of the options those that have a say in what the query answers: not where its text is, who else holds the answer
    and when it is corrected."""
    return {name: value for name, value in query_to_record(query).items() if name not in {"sql_file", "serve", "sweep"}}


def query_from_record(name: str, text: str, record: dict[str, Any]) -> Query:
    """The declaration that `to_record` wrote."""
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
    """Columns as JSON can hold them, in their order."""
    return [[each.name, str(each.type)] for each in columns]
