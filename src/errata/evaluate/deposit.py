"""From the frame of a step's results to buckets: in this process where they are few, in Spark's tasks where they may be
many. What is settled, open, at the tip and told by the feed is decided in one place for both."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from errata.archive.result_rows import feed_schema, result_schema
from errata.archive.results import ResultWriter
from errata.archive.wire import conformed
from errata.engine.frames import selected
from errata.engine.near import is_near
from errata.engine.plans.rows import quoted
from errata.engine.types import arrow_ddl
from errata.engine.values import fetch
from errata.evaluate.settle import Settled, Told, settle
from errata.model.bucket import Groups, NewBucket, Role
from errata.model.interval import HIGHEST
from errata.model.results import RUN, VE, VS, Shape

_STATE, _IS_STATE, _BEFORE = "_state", "_is_state", "_before"
TOLD = pa.schema(
    [
        *(pa.field(name, pa.string()) for name in ("role", "path", "checksum")),
        *(pa.field(name, pa.int64()) for name in ("rows", "size", "vs_min", "vs_max", "ve_min", "ve_max")),
        pa.field("data", pa.binary()),
    ]
)


@dataclass(frozen=True)
class Deposit:
    """What became of a step's results."""

    buckets: list[NewBucket] = field(default_factory=list)

    def rows(self, *roles: Role) -> int:
        """How many rows there are in buckets of these roles."""
        return sum(each.rows for each in self.buckets if each.role in roles)


@dataclass(frozen=True, slots=True)
class Depositor:
    """Deposits results of one step. It crosses to Spark's workers."""

    writer: ResultWriter
    shape: Shape
    told: Told

    def in_memory(self, rows: pa.Table, before: pa.Table) -> Deposit:
        """Results that are at hand, `before` being those that were open or at the tip."""
        return Deposit(list(self._written(settle(rows, before, self.told, self.shape))))

    def _written(self, settled: Settled) -> Iterator[NewBucket]:
        yield from self.writer.write(Role.BASE, settled.base)
        yield from self.writer.write(Role.OPEN, settled.open)
        yield from self.writer.write(Role.TIP, settled.tip)
        yield from self.writer.write(Role.FEED, settled.feed)

    def in_tasks(self, rows: DataFrame, before: DataFrame, tasks: int) -> Deposit:
        """The same in as many tasks. Where results are only added each task has a range of time; else it has some keys,
        and sees all that is said of them."""
        whole = selected(rows, "*", f"0L AS {RUN}", f"FALSE AS {_BEFORE}")
        whole = whole.unionByName(selected(before, "*", f"TRUE AS {_BEFORE}"))
        told = self.told
        if not told.covering:
            whole = whole.where(f"{VS} >= {told.since}L AND {VS} <= {told.until}L").repartitionByRange(tasks, VS)
        elif self.shape.key:
            whole = whole.repartition(tasks, *map(quoted, self.shape.key))
        else:
            whole = whole.coalesce(1)
        # Plain names, since Arrow functions look columns up by them.
        found = fetch(whole.mapInArrow(self._task, arrow_ddl(TOLD)))
        return Deposit([from_told(each) for each in found.to_pylist()])

    def feed(self, records: DataFrame) -> list[NewBucket]:
        """Buckets of change records, written in this process."""
        return self.writer.write(Role.FEED, conformed(fetch(records), feed_schema(self.shape)))

    def feed_in_tasks(self, records: DataFrame) -> list[NewBucket]:
        """The same, written by tasks."""
        writer, schema = self.writer, feed_schema(self.shape)

        def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            read = [conformed(pa.Table.from_batches([each]), schema) for each in batches if each.num_rows]
            made = writer.write(Role.FEED, pa.concat_tables(read)) if read else []
            yield from pa.Table.from_pylist([as_told(each) for each in made], TOLD).to_batches()

        return [from_told(each) for each in fetch(records.mapInArrow(task, arrow_ddl(TOLD))).to_pylist()]

    def _task(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        schema = result_schema(self.shape).append(pa.field(_BEFORE, pa.bool_()))
        read = [conformed(pa.Table.from_batches([batch]), schema) for batch in batches if batch.num_rows]
        if not read:
            return
        rows = pa.concat_tables(read)
        flags = rows[_BEFORE]
        rows = rows.drop_columns([_BEFORE])
        fresh, before = rows.filter(pc.invert(flags)).drop_columns([RUN]), rows.filter(flags)
        made = [as_told(each) for each in self._written(settle(fresh, before, self.told, self.shape))]
        yield from pa.Table.from_pylist(made, TOLD).to_batches()


def gathered(
    rows: DataFrame, state: DataFrame | pa.Table | None, schema: pa.Schema
) -> tuple[pa.Table, pa.Table | None]:
    """Results and state in memory, by one job. A state that has been fetched stays as it is."""
    if state is None or isinstance(state, pa.Table):
        return conformed(fetch(rows), schema), state
    if is_near(rows.sparkSession):
        # Two jobs there cost less than one that packs both: nothing is planned by a JVM.
        return conformed(fetch(rows), schema), fetch(state)
    # A struct of NULLs and not NULL itself, or Arrow would find NULLs within that a column of the state cannot have.
    nothing = sf.struct(*(sf.lit(None).cast(each.dataType).alias(each.name) for each in state.schema))
    packed = state.select(sf.struct(*(sf.col(quoted(name)) for name in state.columns)).alias(_STATE))
    plain = rows.select("*", nothing.alias(_STATE), sf.lit(False).alias(_IS_STATE))
    both = fetch(plain.unionByName(packed.withColumn(_IS_STATE, sf.lit(True)), allowMissingColumns=True))
    is_state = both[_IS_STATE]
    found = conformed(both.filter(pc.invert(is_state)), schema)
    structs = both.filter(is_state)[_STATE].combine_chunks()
    if isinstance(structs, pa.ChunkedArray):
        structs = structs.chunk(0)
    names = [each.name for each in structs.type]
    return found, pa.table(dict(zip(names, structs.flatten(), strict=True)))


def kept(rows: DataFrame, shape: Shape, fields: list[str], scope: list[str] | None = None) -> DataFrame:
    """Results of a plan under the names by which they are kept."""
    named = [f"{quoted(field)} AS {quoted(name)}" for field, name in zip(fields, shape.names, strict=True)]
    return selected(rows, *named, VS, VE, *map(quoted, scope or ()))


def as_told(bucket: NewBucket) -> Mapping[str, object]:
    ends = bucket.ends or (HIGHEST, HIGHEST)
    return {
        "role": bucket.role.value,
        "path": bucket.path,
        "checksum": bucket.checksum,
        "rows": bucket.rows,
        "size": bucket.size,
        "vs_min": bucket.vs_min,
        "vs_max": bucket.vs_max,
        "ve_min": ends[0],
        "ve_max": ends[1],
        "data": bucket.data,
    }


def from_told(row: dict[str, Any]) -> NewBucket:
    ends = (row.pop("ve_min"), row.pop("ve_max"))
    return NewBucket(role=Role(row.pop("role")), groups=Groups(), ends=ends, **row)
