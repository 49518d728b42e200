"""How two forms of a query differ in their answers: published when the edited one takes the former one's place."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from errata.engine.plans.rows import quoted
from errata.engine.types import spark_type
from errata.model.results import OLD_VE, OP, RUN, VE, VS, Shape, old

_OLD, _THERE, _WAS_THERE = "_o_", "_there", "_was_there"


def comparable(one: Shape, other: Shape) -> bool:
    """Whether results of the two can be told to be the same result: they have the same key."""
    return one.timed == other.timed and _key(one) == _key(other)


def _key(shape: Shape) -> list[tuple[str, str]]:
    return sorted((each.name, str(each.type)) for each in shape.columns if each.key)


def differences(was: DataFrame, was_shape: Shape, now: DataFrame, shape: Shape, run: int) -> DataFrame:
    """The change records that lead from the one answer to the other, both in their kept forms. The former one may have
    reached further: what it says of later instants is withdrawn, too. Columns that it did not have were NULL."""
    types = {each.name: each.type for each in was_shape.columns}
    payload = [name for name in shape.payload if types.get(name) == shape_type(shape, name)]
    before = was.select(
        *(sf.col(quoted(name)).alias(_OLD + name) for name in (*shape.key, *payload, VS, VE)),
        sf.lit(True).alias(_WAS_THERE),
    )
    after = now.select(*map(quoted, shape.names), VS, VE, sf.lit(True).alias(_THERE))
    same = sf.col(VS) == sf.col(_OLD + VS)
    for name in shape.key:
        same &= sf.col(quoted(name)).eqNullSafe(sf.col(quoted(_OLD + name)))
    both = after.join(before, same, "full_outer")
    differs = sf.col(_THERE).isNull() | sf.col(_WAS_THERE).isNull() | ~_alike([*payload, VE])
    for name in shape.payload:
        if name not in payload:
            differs |= sf.col(quoted(name)).isNotNull()
    return both.where(differs).select(*_record(shape, payload, run))


def shape_type(shape: Shape, name: str) -> object:
    """The type of a column."""
    return next(each.type for each in shape.columns if each.name == name)


def _alike(names: Sequence[str]) -> Column:
    found = sf.lit(True)
    for name in names:
        found &= sf.col(quoted(name)).eqNullSafe(sf.col(quoted(_OLD + name)))
    return found


def _record(shape: Shape, known: Sequence[str], run: int) -> list[Column]:
    gone = sf.col(_THERE).isNull()
    new = sf.col(_WAS_THERE).isNull()
    op = sf.when(gone, "delete").when(new, "insert").otherwise("replace").alias(OP)
    key = [sf.coalesce(sf.col(quoted(name)), sf.col(quoted(_OLD + name))).alias(name) for name in shape.key]
    columns = dict(zip(shape.key, key, strict=True))
    ordered = [columns.get(name, sf.col(quoted(name))) for name in shape.names]
    times = [sf.coalesce(VS, _OLD + VS).alias(VS), sf.col(VE), sf.col(_OLD + VE).alias(OLD_VE)]
    before = []
    for each in shape.columns:
        if not each.key:
            value = sf.col(quoted(_OLD + each.name)) if each.name in known else sf.lit(None).cast(spark_type(each.type))
            before.append(value.alias(old(each.name)))
    return [op, *ordered, *times, *before, sf.lit(run).cast("bigint").alias(RUN)]
