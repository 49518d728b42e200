"""Provenance of one result: the key a person gives is resolved to a single result, and its values, their causes and its
source rows are collected.

A key is written as `symbol=IBM,window_start=2026-11-18T02:00:00`, whole or in part. If several results match, the error
lists candidates. The commit of the oldest state that is read is pinned for the duration.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from errata.answer.progress import event_time_text, no_results_error, reader_notes, resolve_query
from errata.archive.changelog import changelog_segments
from errata.archive.results import normalize_floats
from errata.archive.schemas import conform, feed_schema
from errata.archive.tables import match_rows
from errata.catalog import commits, pins
from errata.catalog.result_archives import ResultArchive, archive_history
from errata.declare.site import Site, open_site
from errata.engine.failures import query_errors_in_words
from errata.engine.plans.node_rows import quote_name
from errata.engine.session import apply_settings
from errata.errors import ErrataError, UsageError, unknown_name_error
from errata.intake.convert import convert
from errata.intake.encoding import JsonRow, display_value, json_rows
from errata.intake.types import arrow_type
from errata.language.expr import Lit, literal_sql
from errata.model.columns import TypeKind
from errata.model.extent import Value
from errata.model.results import OLD_VE, VE, VS, ArchiveColumn, ResultShape, have_same_key
from errata.model.time import Interval, parse_event_time, parse_instant
from errata.read.causes import CauseTracer, TracedResult
from errata.read.changes import read_change_records
from errata.read.output import fetch_all
from errata.read.provenance import (
    CauseList,
    KeyChangelog,
    QueryEditCause,
    ResultProvenance,
    ResultValue,
    result_versions,
)
from errata.read.provenance_output import provenance_json
from errata.read.query_forms import QueryForms
from errata.read.source_rows import ProvenanceReader, ResultState


def typed_key(shape: ResultShape, said: Mapping[str, object], query: str) -> dict[str, pa.Scalar]:
    """The given key values as scalars, by archive column. Empty text is NULL."""
    columns = {each.shown: each for each in shape.columns if each.key}
    found = {}
    for name, value in said.items():
        if name not in columns:
            raise _key_column_error(shape, name, list(columns), query)
        found[columns[name].name] = _typed_value(columns[name], value, query)
    return found


def _key_column_error(shape: ResultShape, name: str, columns: list[str], query: str) -> UsageError:
    where = f"query {query}"
    if not columns:
        return UsageError(
            f"{name} is no column of the key",
            where=where,
            why="it has one result at a time, which needs no key",
            how="leave the key out; --at tells which result is meant",
        )
    if name in shape.visible:
        return UsageError(
            f"{name} is no column of the key",
            where=where,
            why="it is what the results say, and may change",
            how=f"name values of {', '.join(columns)}",
        )
    return unknown_name_error("key column", name, columns, where=where)


def _typed_value(column: ArchiveColumn, value: object, query: str) -> pa.Scalar:
    """One value. Text is converted as in files, except event times, which may be written in any accepted form."""
    if column.type.kind is TypeKind.TIMESTAMP and isinstance(value, str) and value:
        return pa.scalar(parse_instant(value), arrow_type(column.type))
    given = _value_array(value)
    found, wrong = (None, None) if given is None else convert(given, column.type)
    if given is None or found is None or wrong is not None or found.null_count > given.null_count:
        raise UsageError(
            f"{column.shown}={value}: {str(value)!r} is not a {column.type}",
            where=f"query {query}",
            how="an empty value stands for NULL",
        )
    return found[0]


def _value_array(value: object) -> pa.Array | None:
    """The value as an array of one; None if no column can have its type."""
    if value is None or value == "":
        return pa.nulls(1, pa.string())
    try:
        return pa.array([value])
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        return None


def key_condition(shape: ResultShape, key: Mapping[str, pa.Scalar]) -> str:
    """A SQL condition that rows have this key, or this part of one."""
    kinds = {each.name: each.type for each in shape.columns}
    plain = key_constants(key)
    same = (f"{quote_name(name)} <=> {literal_sql(Lit(plain[name], kinds[name]))}" for name in key)
    return " AND ".join(same) or "true"


def rows_of_key(rows: pa.Table, key: pa.Table) -> pa.Table:
    """The rows that have a key, given as a table of one row."""
    names = key.column_names
    found, _ = match_rows(normalize_floats(rows, names), normalize_floats(key, names), names)
    return rows.take(pa.array(found))


def key_constants(key: Mapping[str, pa.Scalar]) -> dict[str, Value]:
    """The key's values as lineage represents them."""
    found: dict[str, Value] = {}
    for name, value in key.items():
        plain = value.cast(pa.int64()) if pa.types.is_timestamp(value.type) else value
        found[name] = plain.as_py()
    return found


# Collecting the provenance of a result.

SHOWN_CANDIDATES = 20
"""Results listed in the error when a key matches several."""


def explain_result(site: Site, query: str, key: Mapping[str, object], at: str | int | None = None) -> ResultProvenance:
    """The provenance of the result that has this key, or this part of one, and counts at an event time. Values are
    given as text or as Python values; empty text is NULL."""
    catalog = site.catalog
    name = resolve_query(catalog, query, commits.newest_commit(catalog))
    whole = commits.whole_since(catalog, name)
    # Pin the oldest state that is read, so that no commit since removes its files.
    with pins.hold_pin(catalog, max(whole, 1), f"story of {name}") as pin, query_errors_in_words():
        telling = _ProvenanceBuilder.begun(site, name, whole, key, at)
        story = telling.provenance()
        pin.check()
    return story


def explain_result_json(
    spark: SparkSession,
    query: str,
    key: Mapping[str, object],
    *,
    at: str | int | None = None,
    project: Path | str | None = None,
) -> dict[str, object]:
    """The same as JSON values, for a Spark session."""
    apply_settings(spark, {})
    with open_site(Path(project) if project is not None else None) as site:
        return provenance_json(explain_result(site, query, key, at))


@dataclass
class _ProvenanceBuilder:
    site: Site
    name: str
    whole: int
    newest: int
    of: ResultArchive
    """The archive of the present results."""
    forms: QueryForms
    archives: list[KeyChangelog]
    key: dict[str, pa.Scalar]
    at: int
    notes: list[str]

    @classmethod
    def begun(
        cls, site: Site, name: str, whole: int, said: Mapping[str, object], at: str | int | None
    ) -> _ProvenanceBuilder:
        """Read the change records of a key, and decide which result is meant."""
        catalog, newest = site.catalog, commits.newest_commit(site.catalog)
        ever = archive_history(catalog, name)
        if not ever:
            raise no_results_error(catalog, name)
        of, _ = ever[-1]
        key = typed_key(of.shape, said, name)
        instant = None if at is None else _answered_instant(of, at)
        found = cls(site, name, whole, newest, of, QueryForms(catalog), [], key, 0, reader_notes(catalog, [of]))
        found._read(ever, instant)
        found._choose(instant, said)
        return found

    def _read(self, ever: Sequence[tuple[ResultArchive, int | None]], at: int | None) -> None:
        """The change records of the key, or of all keys that match a partial one."""
        archives = {
            of.stream_id: KeyChangelog(of, ended, self.forms.of(of).by_beginnings)
            for of, ended in ever
            if have_same_key(of.shape, self.of.shape)
        }
        engines = self.site.engines()
        span = self.forms.of(self.of).beginnings(key_constants(self.key))
        span = Interval(span.start, span.end if at is None else min(span.end, at + 1))
        for each in changelog_segments(
            self.site.catalog, self.name, self.whole, self.newest, restated=self.whole > 0, most=None
        ):
            if (archive := archives.get(each.of.stream_id)) is None:
                continue
            # Where results of a key begin is unknown for former forms of the query.
            known = span if each.of.query_id == self.of.query_id else Interval(end=span.end)
            parts = [part for part in each.parts if known.meets(part.bucket.vs_min, part.bucket.vs_max)]
            stretch = replace(each, parts=parts)
            only = key_condition(each.of.shape, self.key) + ("" if at is None else f" AND {VS} <= {at}L")
            records = fetch_all(read_change_records(engines, self.site, stretch, only))
            archive.read.append((stretch, conform(records, feed_schema(each.of.shape))))
        self.archives = [each for each in archives.values() if each.ended is None or each.ended > self.whole]
        if len(archives) < len(ever):
            self.notes.append(f"{self.name} has had another key, too: what it said then is left out")

    def _choose(self, at: int | None, said: Mapping[str, object]) -> None:
        """Choose the one result that is meant; an error if none or several match."""
        names = self.of.shape.key
        parts = [table.select([*names, VS, VE, OLD_VE]) for each in self.archives for _, table in each.read]
        there = pa.concat_tables(parts)
        if at is not None:
            # If no record tells its end, a result may count until the next of its key begins.
            ends = pc.max_element_wise(there[VE], there[OLD_VE])
            there = there.filter(pc.greater(ends, at))
        which = [*names, *([VS] if at is None else [])]
        keys = there.group_by(which).aggregate([]) if which else there.slice(0, 1)
        if keys.num_rows == 0:
            raise self._no_such(said, at)
        if keys.num_rows > 1:
            raise self._several(keys, at)
        row = keys.slice(0, 1).combine_chunks()
        self.key = {name: row[name][0] for name in names}
        if names and at is not None:
            # Other keys that match had ended by then.
            for each in self.archives:
                each.read = [(stretch, rows_of_key(table, row.select(names))) for stretch, table in each.read]
        self.at = row[VS][0].as_py() if at is None else at

    def _no_such(self, said: Mapping[str, object], at: int | None) -> ErrataError:
        """The error for a key that no result has."""
        told = ",".join(f"{name}={value}" for name, value in said.items())
        of_key = f" of the key {told}" if told else ""
        when = "" if at is None else f" at {event_time_text(at, self.of)}"
        gone = f"what was told before commit {self.whole} is no longer kept" if self.whole else None
        return ErrataError(
            f"query {self.name} has had no result{of_key}{when}",
            why=gone,
            how=f"`errata results {self.name}` shows those that there are, `errata changes {self.name}` all that were",
        )

    def _several(self, keys: pa.Table, at: int | None) -> UsageError:
        """The error for a key that several results have."""
        names = self.of.shape.key
        ordered = keys.sort_by([(name, "ascending") for name in keys.column_names if name != VS])
        if at is None:
            ordered = keys.sort_by([(VS, "descending")])
        shown = ordered.slice(0, SHOWN_CANDIDATES)
        named_so = self._shown(shown)
        if at is None:
            begins = shown[VS].to_pylist()
            lines = [
                f"{_key_argument(each)} --at {event_time_text(vs, self.of)}"
                for each, vs in zip(named_so, begins, strict=True)
            ]
        else:
            lines = [_key_argument(each) for each in named_so]
        more = keys.num_rows - shown.num_rows
        lines += [f"and {more:,} more"] * bool(more)
        one_key = not names or keys.group_by(names).aggregate([]).num_rows == 1
        what = "the key has had several results" if one_key else "several results have such a key"
        meant = "the event time at which it counts, as --at" if one_key else "all of its key"
        return UsageError(
            what,
            where=f"query {self.name}",
            how="\n    ".join([f"tell the one that is meant by {meant}:", *(line.strip() for line in lines)]),
        )

    def _shown(self, rows: pa.Table) -> list[JsonRow]:
        """Keys under their display names."""
        columns = [each for each in self.of.shape.columns if each.key]
        named_so = rows.select([each.name for each in columns]).rename_columns([each.shown for each in columns])
        return [*json_rows(named_so)]

    def provenance(self) -> ResultProvenance:
        found = list(result_versions(self.site.catalog, self.archives, self.at, self.whole, self.newest))
        (key,) = self._shown(pa.table({name: pa.array([value]) for name, value in self.key.items()} or {VS: [0]}))
        if not found:
            raise self._no_such(key, self.at)
        known = commits.commits_by_number(self.site.catalog, [each.commit_id for each in found])
        tracer, plain = CauseTracer(self.site, self.forms), key_constants(self.key)
        values, moments = [], []
        for each in found:
            causes = CauseList([QueryEditCause(dropped=True)])
            if each.evaluation is not None:
                result = TracedResult(each.of, each.evaluation, plain, each.vs, self.at)
                causes = CauseList() if each.evaluation_unknown else tracer.causes(result)
                form = self.forms.of(each.of)
                moments.append(ResultState(form, each.evaluation, form.region(plain, each.vs, self.at)))
            values.append(ResultValue(known[each.commit_id], each.values, each.vs, each.ve, causes, each.truncated))
        form = self.forms.of(self.of)
        now = ResultState(form, self.of.last, form.region(plain, found[-1].vs, self.at))
        behind = ProvenanceReader(self.site, self.forms).sources(moments, now)
        return ResultProvenance(self.name, key, self.at, self.of.shape.timed, values, behind, self.notes)


def _answered_instant(of: ResultArchive, at: str | int) -> int:
    """The event time given, which the query must have answered."""
    instant = parse_event_time(at, timed=of.shape.timed)
    if instant > of.frontier:
        raise UsageError(
            f"{at} is later than what is answered",
            why=f"query {of.name} is answered up to {event_time_text(of.frontier, of)}",
            how="name that time or an earlier one",
        )
    return instant


def _key_argument(key: JsonRow) -> str:
    """A key as it is written on the command line, quoted for a shell."""
    told = ",".join(f"{name}={'' if value is None else display_value(value)}" for name, value in key.items())
    return shlex.quote(told) if told else ""
