"""Archives of results: their state, their evaluations, and the transaction that commits an evaluation.

The archive of a query's results is a row of `streams` with a query_id. Each evaluation adds its buckets and a row of
`evaluations`; its query's result table is updated in the same transaction. A new form of the query has a new archive,
and the former one ends in the same commit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from sqlalchemy import Connection, Row, bindparam, delete, func, insert, select

from errata.catalog import buckets, queries, result_tables, streams
from errata.catalog.bucket_writes import BucketAddition
from errata.catalog.database import Catalog
from errata.catalog.result_columns import ResultTable
from errata.catalog.tables import evaluations, faults, shapes
from errata.catalog.tables import queries as queries_table
from errata.catalog.tables import streams as streams_table
from errata.catalog.transaction import BasisConflict, NewArchive, Transaction
from errata.model.bucket import Bucket, NewBucket, Role
from errata.model.commit import Cause, Evaluation, EvaluationCost, EvaluationSpan, RefusedRevisions, SweepSummary
from errata.model.results import ResultShape, shape_from_record, shape_to_record
from errata.model.time import HIGHEST

_REPLACED_ROLES = (Role.OPEN, Role.TIP, Role.STATE)
"""Buckets of these roles are replaced by every evaluation that goes on."""


# Built once: SQLAlchemy takes longer to build a statement than SQLite to execute it.
_INSERT_EVALUATION = insert(evaluations)
_LOCK_QUERY = select(queries_table.c.removed_in).where(queries_table.c.query_id == bindparam("query")).with_for_update()
_LOCK_ARCHIVE = (
    select(streams_table)
    .where(
        streams_table.c.name == bindparam("name"),
        streams_table.c.query_id.is_not(None),
        streams_table.c.removed_in.is_(None),
    )
    .with_for_update()
)
_NEWEST_EVALUATION = select(func.max(evaluations.c.number)).where(evaluations.c.stream_id == bindparam("stream"))
_DELETE_FAULT = delete(faults).where(faults.c.query_id == bindparam("query"))


@dataclass(frozen=True, slots=True)
class ResultArchive:
    """The state of a query's results at a commit."""

    stream_id: int
    name: str
    query_id: int
    """The form of the query."""
    shape: ResultShape
    added_in: int
    rows: int
    inline_bytes: int
    last: Evaluation
    """The last evaluation."""

    @property
    def frontier(self) -> int:
        """The last instant that is answered."""
        return self.last.frontier


@dataclass(frozen=True, slots=True)
class ResultTableUpdate:
    """The change of a result table."""

    table: ResultTable
    changes: Callable[[], Iterable[pa.RecordBatch]]
    """The change records of the evaluation."""
    current: Callable[[], Iterable[pa.RecordBatch]]
    """All results after it, as insertions, for a table that is made anew."""


@dataclass(frozen=True, slots=True)
class EvaluationCommit:
    """An evaluation whose buckets are written and wait to become visible."""

    query: str
    query_id: int
    shape: ResultShape
    basis: ResultArchive | None
    """The results that it goes on from; None for the first evaluation of this form of the query."""
    span: EvaluationSpan
    data_commit: int
    revisions: Mapping[str, int]
    cause: Mapping[str, Any]
    measures: EvaluationCost
    begins: int
    new_buckets: Sequence[NewBucket]
    merged_buckets: Sequence[Bucket] = ()
    """Small buckets whose rows are in the new ones."""
    rows: int = 0
    """The change of the number of results, also ended ones."""
    replaces: ResultArchive | None = None
    """The results of the former form of the query, which end with this commit."""
    consumed: Mapping[int, int] = field(default_factory=dict)
    """By id of a stream that is read, the revision up to which the query has consumed; only where it has changed."""

    table_update: ResultTableUpdate | None = None
    inputs: Mapping[str, int] = field(default_factory=dict)
    """For each query that is read, the number of its last evaluation that is worked in."""
    correction: SweepSummary | None = None
    """What a correction did. Open results and those at the tip then stay, except masked ones."""
    keeps_state: bool = False
    """Whether the strategy's state is still correct after a correction."""
    skipped_to: int | None = None
    """The place before which results are not wanted of it, and are left out from its last instant on."""

    @property
    def removed_roles(self) -> tuple[Role, ...]:
        """The roles of buckets of the former evaluation that this one removes."""
        if self.correction is None:
            return _REPLACED_ROLES
        return () if self.keeps_state else (Role.STATE,)

    @property
    def is_replay(self) -> bool:
        """Whether it is a correction that works in no revision."""
        return self.correction is not None and not self.correction.revisions

    @property
    def number(self) -> int:
        return 1 if self.basis is None else self.basis.last.number + 1


def read_archive(catalog: Catalog, name: str, commit_id: int | None = None) -> ResultArchive | None:
    """The results of a query, now or as of a commit; None if there were none."""
    return read_archives(catalog, commit_id, name).get(name)


def read_archives(catalog: Catalog, commit_id: int | None = None, name: str | None = None) -> dict[str, ResultArchive]:
    """The results of all queries, by name, now or as of a commit."""
    gone = streams_table.c.removed_in
    newest = select(evaluations.c.stream_id, func.max(evaluations.c.number).label("number"))
    if commit_id is not None:
        newest = newest.where(evaluations.c.commit_id <= commit_id)
    last = newest.group_by(evaluations.c.stream_id).subquery()
    of_last = (evaluations.c.stream_id == last.c.stream_id) & (evaluations.c.number == last.c.number)
    query = (
        select(
            streams_table.c.name,
            streams_table.c.query_id,
            streams_table.c.added_in,
            streams_table.c.rows,
            streams_table.c.inline_bytes,
            shapes.c.shape,
            evaluations,
        )
        .join(shapes, shapes.c.stream_id == streams_table.c.stream_id)
        .join(last, last.c.stream_id == streams_table.c.stream_id)
        .join(evaluations, of_last)
    )
    if commit_id is None:
        query = query.where(gone.is_(None))
    else:
        query = query.where(streams_table.c.added_in <= commit_id, gone.is_(None) | (gone > commit_id))
    if name is not None:
        query = query.where(streams_table.c.name == name)
    with catalog.reading() as connection:
        return {row.name: _archive_from_row(row, evaluation_from_row(row)) for row in connection.execute(query)}


def archive_history(catalog: Catalog, name: str) -> list[tuple[ResultArchive, int | None]]:
    """All archives of a query, the oldest first, each with the commit with which it ended."""
    query = select(streams_table, shapes.c.shape).join(shapes, shapes.c.stream_id == streams_table.c.stream_id)
    query = query.where(streams_table.c.name == name).order_by(streams_table.c.added_in)
    with catalog.reading() as connection:
        found = []
        for row in connection.execute(query).all():
            last = _last_evaluation(connection, row.stream_id, None)
            if last is not None:
                found.append((_archive_from_row(row, last), row.removed_in))
        return found


def evaluations_of(catalog: Catalog, stream_id: int, *, after: int = 0, up_to: int = HIGHEST) -> list[Evaluation]:
    """The evaluations of an archive that were committed after one commit, up to another, in their order."""
    query = select(evaluations).where(
        evaluations.c.stream_id == stream_id, evaluations.c.commit_id > after, evaluations.c.commit_id <= up_to
    )
    with catalog.reading() as connection:
        return [evaluation_from_row(row) for row in connection.execute(query.order_by(evaluations.c.number))]


def refused_revisions(catalog: Catalog) -> dict[int, list[RefusedRevisions]]:
    """By live archive the revisions that could not be worked into its results, the latest last."""
    query = (
        select(evaluations.c.stream_id, evaluations.c.swept)
        .join(streams_table, streams_table.c.stream_id == evaluations.c.stream_id)
        .where(evaluations.c.refused.is_not(None), streams_table.c.removed_in.is_(None))
        .order_by(evaluations.c.stream_id, evaluations.c.number)
    )
    found: dict[int, list[RefusedRevisions]] = {}
    with catalog.reading() as connection:
        for row in connection.execute(query):
            found.setdefault(row.stream_id, []).extend(SweepSummary.of(row.swept).refused)
    return found


def evaluation_for(catalog: Catalog, stream_id: int, data_commit: int) -> Evaluation | None:
    """The last evaluation of an archive that had read no later state of the streams than this commit."""
    query = select(evaluations).where(evaluations.c.stream_id == stream_id, evaluations.c.data_commit <= data_commit)
    with catalog.reading() as connection:
        row = connection.execute(query.order_by(evaluations.c.number.desc()).limit(1)).first()
    return None if row is None else evaluation_from_row(row)


def commit_evaluation(catalog: Catalog, done: EvaluationCommit, cause: Cause) -> ResultArchive:
    """Commit an evaluation, and return the new state of the results."""
    with catalog.writing() as connection:
        there = _lock_archive(connection, done)
        for stream_id in sorted(done.consumed):
            streams.lock_stream(connection, stream_id)
        committed = _transaction(connection, done, there, cause).commit_archive(connection, catalog.clock.now())
        now, commit_id = committed.archive, committed.commit_id
        if done.basis is None:
            connection.execute(insert(shapes).values(stream_id=now["stream_id"], shape=shape_to_record(done.shape)))
        values = _evaluation_values(done, now["stream_id"], commit_id)
        connection.execute(_INSERT_EVALUATION, values)
        if not done.is_replay:
            connection.execute(_DELETE_FAULT, {"query": done.query_id})
        for base, revision in done.consumed.items():
            streams.record_consumed(connection, base, queries.consumer_name(done.query), revision)
        if done.table_update is not None:
            _update_result_table(connection, done, done.table_update, commit_id)
        counted = now["added_in"], now["rows"], now["inline_bytes"]
        last = _evaluation_from_values(values)
        return ResultArchive(now["stream_id"], done.query, done.query_id, done.shape, *counted, last)


def _update_result_table(
    connection: Connection, done: EvaluationCommit, serves: ResultTableUpdate, commit_id: int
) -> None:
    """Bring the result table up to date; one that is not there, or is of another form, is made anew."""
    told = done.basis is not None or (done.replaces is not None and done.cause["feed"] == "whole")
    before = done.basis or done.replaces
    further = before is not None and before.frontier <= done.span.until
    goes_on = told and further and result_tables.table_fits(connection, serves.table)
    if not goes_on:
        result_tables.create_table(connection, serves.table)
    records = serves.changes() if goes_on else serves.current()
    result_tables.update_table(connection, serves.table, commit_id, done.cause, records, done.span.until)


def _lock_archive(connection: Connection, done: EvaluationCommit) -> Row[Any] | None:
    """The row of the query's results, locked; None where there are none yet. A conflict when the query is not what was
    evaluated any more, or when another runner has taken its results further."""
    row = connection.execute(_LOCK_QUERY, {"query": done.query_id}).first()
    if row is None or row.removed_in is not None:
        raise BasisConflict
    there = connection.execute(_LOCK_ARCHIVE, {"name": done.query}).first()
    expected = done.basis or done.replaces
    if (there is None) != (expected is None):
        raise BasisConflict
    if there is None or expected is None:
        return None
    newest = connection.execute(_NEWEST_EVALUATION, {"stream": there.stream_id}).scalar()
    if there.stream_id != expected.stream_id or newest != expected.last.number:
        raise BasisConflict
    return there


def _transaction(connection: Connection, done: EvaluationCommit, there: Row[Any] | None, cause: Cause) -> Transaction:
    """The change of the archive. A new archive takes the place of that of the query's former form."""
    basis = None if done.basis is None else there
    former: list[Bucket] = []
    if basis is not None and done.removed_roles:
        former = buckets.live_buckets(connection, basis.stream_id, *done.removed_roles)
    # Only the next evaluation reads a state, so no reader of an older commit needs a former one.
    states = [each for each in former if each.role is Role.STATE]
    return Transaction(
        cause=cause,
        summary=_evaluation_summary(done),
        archive=NewArchive(done.query, done.query_id) if basis is None else basis,
        is_listed=False,
        ends=[] if done.replaces is None or basis is not None else [done.replaces.stream_id],
        removes=[]
        if basis is None
        else [*(each for each in former if each.role is not Role.STATE), *done.merged_buckets],
        deletes=states,
        adds=[BucketAddition(done.new_buckets)],
        state={
            "stable": done.span.until,
            "vs_max": done.span.until,
            "rows": done.rows + (0 if basis is None else basis.rows),
            **({} if done.skipped_to is None else {"aged_to": done.skipped_to}),
        },
    )


def _evaluation_values(done: EvaluationCommit, stream_id: int, commit_id: int) -> dict[str, Any]:
    return {
        "stream_id": stream_id,
        "number": done.number,
        "commit_id": commit_id,
        "data_commit": done.data_commit,
        "since": done.span.since,
        "until": done.span.until,
        "begins": done.begins,
        "revisions": dict(done.revisions),
        "cause": dict(done.cause),
        "measures": done.measures.record(),
        "inputs": dict(done.inputs),
        "swept": None if done.correction is None else done.correction.record(),
        "refused": None if done.correction is None else done.correction.refusals or None,
    }


def _evaluation_summary(done: EvaluationCommit) -> dict[str, object]:
    told: dict[str, object] = {"query": done.query, "data_commit": done.data_commit, "results": done.measures.rows}
    if done.measures.engine:
        told |= {"engine": done.measures.engine, "engine_why": done.measures.engine_why}
    if done.skipped_to is not None:
        told |= {"skipped_from": done.span.since, "skipped_to": done.skipped_to, "timed": done.shape.timed}
    if (swept := done.correction) is not None:
        told |= {"technique": swept.technique, "compared": swept.compared, "changed": swept.changed}
        if swept.refused:
            told["refused"] = swept.refusals
        if not swept.revisions:
            told["replayed"] = True
    if done.replaces is None:
        return told
    return told | {"anew" if done.replaces.query_id == done.query_id else "new_form": True}


def _last_evaluation(connection: Connection, stream_id: int, commit_id: int | None) -> Evaluation | None:
    query = select(evaluations).where(evaluations.c.stream_id == stream_id)
    if commit_id is not None:
        query = query.where(evaluations.c.commit_id <= commit_id)
    row = connection.execute(query.order_by(evaluations.c.number.desc()).limit(1)).first()
    return None if row is None else evaluation_from_row(row)


def evaluation_from_row(row: Row[Any]) -> Evaluation:
    """The evaluation in a row of the table."""
    return _evaluation_from_values(row._asdict())


def _evaluation_from_values(values: Mapping[str, Any]) -> Evaluation:
    return Evaluation(
        values["number"],
        values["commit_id"],
        values["data_commit"],
        EvaluationSpan(values["since"], values["until"]),
        values["revisions"],
        values["cause"],
        EvaluationCost(**values["measures"]),
        values["begins"],
        values["inputs"] or {},
        None if values["swept"] is None else SweepSummary.of(values["swept"]),
    )


def _archive_from_row(row: Row[Any], last: Evaluation) -> ResultArchive:
    return ResultArchive(
        row.stream_id,
        row.name,
        row.query_id,
        shape_from_record(row.shape),
        row.added_in,
        row.rows,
        row.inline_bytes,
        last,
    )
