"""Writes the results of a step as buckets, in this process or in Spark's tasks, and the change records between two
forms of a query.

Few results are fetched and written here; many are repartitioned by time (where they are only added) or by key, so that
each task has all that decides about its results, old and new. Both ways call `publication.settle_results`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from errata.answer.publication import RowsByRole, StepContext, settle_results
from errata.archive.results import ResultWriter
from errata.archive.schemas import conform, feed_schema, result_schema
from errata.archive.task_reports import BUCKET_ROW_SCHEMA, bucket_batches, bucket_from_row
from errata.engine.frames import arrow_ddl, fetch_rows, join_sql, select_sql, spark_type
from errata.engine.near import is_near
from errata.engine.plans.node_rows import quote_name, select_columns
from errata.model.bucket import NewBucket, Role
from errata.model.results import EVALUATION, OLD_VE, OP, VE, VS, ResultShape, old_column

_OLD_PREFIX, _IS_NOW, _WAS_BEFORE = "_o_", "_there", "_was_there"


def difference_records(
    was: DataFrame, was_shape: ResultShape, now: DataFrame, shape: ResultShape, run: int
) -> DataFrame:
    """The change records that lead from a former form's results to the current ones, both with the names of results.
    Former results of later instants than the current ones reach are withdrawn. Columns that the former form did not
    have were NULL."""
    types = {each.name: each.type for each in was_shape.columns}
    payload = [name for name in shape.payload if types.get(name) == type_of_column(shape, name)]
    former = {_former_column(name): quote_name(name) for name in (*shape.key, *payload, VS, VE)}
    before = select_columns(was, [], **former, **{_WAS_BEFORE: "TRUE"})
    after = select_columns(now, [*map(quote_name, shape.names), VS, VE], **{_IS_NOW: "TRUE"})
    same = [f"{VS} = {_former_column(VS)}", *(_same_value_sql(name) for name in shape.key)]
    both = join_sql(after, before, " AND ".join(same), "full_outer")
    differs = [
        f"{_IS_NOW} IS NULL",
        f"{_WAS_BEFORE} IS NULL",
        *(f"NOT ({_same_value_sql(name)})" for name in (*payload, VE)),
    ]
    differs += [f"{quote_name(name)} IS NOT NULL" for name in shape.payload if name not in payload]
    return select_columns(both.filter(" OR ".join(differs)), [], **_record_columns(shape, payload, run))


def type_of_column(shape: ResultShape, name: str) -> object:
    """The type of a column."""
    return next(each.type for each in shape.columns if each.name == name)


def _former_column(name: str) -> str:
    return quote_name(_OLD_PREFIX + name)


def _same_value_sql(name: str) -> str:
    return f"{quote_name(name)} <=> {_former_column(name)}"


def _record_columns(shape: ResultShape, known: Sequence[str], run: int) -> dict[str, str]:
    either = {name: f"coalesce({quote_name(name)}, {_former_column(name)})" for name in (*shape.key, VS)}
    columns = {quote_name(name): either.get(name, quote_name(name)) for name in (*shape.names, VS, VE)}
    before = {
        quote_name(old_column(each.name)): _former_column(each.name)
        if each.name in known
        else f"CAST(NULL AS {spark_type(each.type).simpleString()})"
        for each in shape.columns
        if not each.key
    }
    op = f"CASE WHEN {_IS_NOW} IS NULL THEN 'delete' WHEN {_WAS_BEFORE} IS NULL THEN 'insert' ELSE 'replace' END"
    return {OP: op, **columns, OLD_VE: _former_column(VE), **before, EVALUATION: f"{run}L"}


# The sink.

_STATE_STRUCT, _IS_STATE, _BEFORE = "_state", "_is_state", "_before"


@dataclass(frozen=True)
class StepOutput:
    """The buckets that a step has written."""

    buckets: list[NewBucket] = field(default_factory=list)

    def rows(self, *roles: Role) -> int:
        """The number of rows in buckets of these roles."""
        return sum(each.rows for each in self.buckets if each.role in roles)


@dataclass(frozen=True, slots=True)
class ResultSink:
    """Writes the results of one step. It crosses to Spark's workers."""

    writer: ResultWriter
    shape: ResultShape
    context: StepContext

    def write_local(self, rows: pa.Table, before: pa.Table) -> StepOutput:
        """Write results in this process. `before`: the results that were open or at the tip."""
        return StepOutput(list(self._written(settle_results(rows, before, self.context, self.shape))))

    def _written(self, settled: RowsByRole) -> Iterator[NewBucket]:
        yield from self.writer.write(Role.BASE, settled.base)
        yield from self.writer.write(Role.OPEN, settled.open)
        yield from self.writer.write(Role.TIP, settled.tip)
        yield from self.writer.write(Role.FEED, settled.feed)

    def write_in_tasks(self, rows: DataFrame, before: DataFrame, tasks: int) -> StepOutput:
        """Write results in Spark tasks. Where results are only added a task has a range of time; else it has all rows
        of some keys."""
        whole, context = beside_published(rows, before), self.context
        if not context.covering:
            whole = whole.where(f"{VS} >= {context.since}L AND {VS} <= {context.until}L").repartitionByRange(tasks, VS)
        elif self.shape.key:
            whole = whole.repartition(tasks, *map(quote_name, self.shape.key))
        else:
            whole = whole.coalesce(1)
        # Plain names, since Arrow functions look columns up by them.
        found = fetch_rows(whole.mapInArrow(self._task, arrow_ddl(BUCKET_ROW_SCHEMA)))
        return StepOutput([bucket_from_row(each) for each in found.to_pylist()])

    def write_changes(self, records: DataFrame) -> list[NewBucket]:
        """Write change records in this process."""
        return self.writer.write(Role.FEED, conform(fetch_rows(records), feed_schema(self.shape)))

    def write_changes_in_tasks(self, records: DataFrame) -> list[NewBucket]:
        """Write change records in tasks."""
        writer, schema = self.writer, feed_schema(self.shape)

        def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            read = [conform(pa.Table.from_batches([each]), schema) for each in batches if each.num_rows]
            made = writer.write(Role.FEED, pa.concat_tables(read)) if read else []
            yield from bucket_batches(made)

        return [
            bucket_from_row(each)
            for each in fetch_rows(records.mapInArrow(task, arrow_ddl(BUCKET_ROW_SCHEMA))).to_pylist()
        ]

    def _task(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for fresh, before in read_beside_published(batches, self.shape):
            yield from bucket_batches(self._written(settle_results(fresh, before, self.context, self.shape)))


def beside_published(fresh: DataFrame, before: DataFrame) -> DataFrame:
    """Computed and published results in one frame, from which tasks read them by `read_beside_published`."""
    whole = select_sql(fresh, "*", f"0L AS {EVALUATION}", f"FALSE AS {_BEFORE}")
    return whole.unionByName(select_sql(before, "*", f"TRUE AS {_BEFORE}"))


def read_beside_published(batches: Iterable[pa.RecordBatch], shape: ResultShape) -> Iterator[tuple[pa.Table, pa.Table]]:
    """The computed results and the published ones of a task; nothing if it has neither."""
    schema = result_schema(shape).append(pa.field(_BEFORE, pa.bool_()))
    read = [conform(pa.Table.from_batches([batch]), schema) for batch in batches if batch.num_rows]
    if read:
        rows = pa.concat_tables(read)
        flags, rows = rows[_BEFORE], rows.drop_columns([_BEFORE])
        yield rows.filter(pc.invert(flags)).drop_columns([EVALUATION]), rows.filter(flags)


def collect_results(
    rows: DataFrame, state: DataFrame | pa.Table | None, schema: pa.Schema
) -> tuple[pa.Table, pa.Table | None]:
    """Fetch results and state in one job. A state that has been fetched stays as it is."""
    if state is None or isinstance(state, pa.Table):
        return conform(fetch_rows(rows), schema), state
    if is_near(rows.sparkSession):
        # Two jobs of the near engine cost less than one that packs both.
        return conform(fetch_rows(rows), schema), fetch_rows(state)
    # A struct of NULLs and not NULL: of a NULL struct Arrow would refuse the fields that cannot be NULL.
    nothing = sf.struct(*(sf.lit(None).cast(each.dataType).alias(each.name) for each in state.schema))
    packed = state.select(sf.struct(*(sf.col(quote_name(name)) for name in state.columns)).alias(_STATE_STRUCT))
    plain = rows.select("*", nothing.alias(_STATE_STRUCT), sf.lit(False).alias(_IS_STATE))
    both = fetch_rows(plain.unionByName(packed.withColumn(_IS_STATE, sf.lit(True)), allowMissingColumns=True))
    is_state = both[_IS_STATE]
    found = conform(both.filter(pc.invert(is_state)), schema)
    structs = both.filter(is_state)[_STATE_STRUCT].combine_chunks()
    if isinstance(structs, pa.ChunkedArray):
        structs = structs.chunk(0)
    names = [each.name for each in structs.type]
    return found, pa.table(dict(zip(names, structs.flatten(), strict=True)))


def select_result_columns(
    rows: DataFrame, shape: ResultShape, fields: list[str], scope: list[str] | None = None
) -> DataFrame:
    """Results of a plan with the names of results."""
    named = [f"{quote_name(field)} AS {quote_name(name)}" for field, name in zip(fields, shape.names, strict=True)]
    return select_sql(rows, *named, VS, VE, *map(quote_name, scope or ()))
