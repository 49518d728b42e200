"""Rows in memory in the place of a DataFrame: the few that a correction is about need no job.

They take the same SQL as Spark does, as far as it is simple, so that a plan is written once. Where it is not simple,
`NotSimpleError` says so, and the same is asked of Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, ParamSpec, Self, TypeVar

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from errata.engine.plans.simple_sql import Item, Node, NotSimpleError, expression, item
from errata.engine.plans.simple_values import alike, checked, holds, summand, value

P = ParamSpec("P")
R = TypeVar("R")


def _simply(method: Callable[P, R]) -> Callable[P, R]:
    @wraps(method)
    def tried(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return method(*args, **kwargs)
        except pa.ArrowException as error:
            raise NotSimpleError(str(error)) from error

    return tried


class AtHand(DataFrame):
    """Rows in memory, with those methods of a DataFrame that take SQL."""

    table: pa.Table

    def __new__(cls, *_: pa.Table) -> Self:
        # A DataFrame would make one of a session's.
        return object.__new__(cls)

    def __init__(self, table: pa.Table) -> None:
        self.table = table

    @property
    def columns(self) -> list[str]:
        return list(self.table.column_names)

    @_simply
    def selectExpr(self, *expr: str | list[str]) -> AtHand:  # noqa: N802
        texts = [text for each in expr for text in ([each] if isinstance(each, str) else each)]
        items = [each for text in texts for each in self._items(text)]
        rows, columns = self.table, dict[str, pa.Array]()
        for each in items:
            if each.node.kind == "explode":
                if columns:
                    raise NotSimpleError("explode")
                rows, made = _exploded(each.node, rows)
                rows = rows.append_column(_MADE, made)
        for each in items:
            node = Node("column", text=_MADE) if each.node.kind == "explode" else each.node
            if each.name in columns:
                raise NotSimpleError(each.name)
            columns[each.name] = value(node, rows)
        return AtHand(pa.table(columns))

    def _items(self, text: str) -> list[Item]:
        return [Item(name, Node("column", text=name)) for name in self.columns] if text == "*" else [item(text)]

    @_simply
    def filter(self, condition: Any) -> AtHand:
        if not isinstance(condition, str):
            raise NotSimpleError("a condition that is no text")
        return AtHand(self.table.filter(holds(expression(condition), self.table)))

    @_simply
    def drop(self, *cols: Any) -> AtHand:
        return AtHand(self.table.select([name for name in self.columns if name not in cols]))

    @_simply
    def unionAll(self, other: DataFrame) -> AtHand:  # noqa: N802
        if not isinstance(other, AtHand) or len(other.columns) != len(self.columns):
            raise NotSimpleError("unionAll")
        pairs = [alike([_whole(each) for each in both]) for both in zip(self.table, other.table, strict=True)]
        return AtHand(pa.table([pa.concat_arrays(both) for both in pairs], self.columns))

    @_simply
    def added_up(self, by: Sequence[str], aggregates: Sequence[str]) -> AtHand:
        """One row for each group, with aggregates in SQL."""
        items = [item(text) for text in aggregates]
        columns, functions = {name: checked(value(expression(name), self.table)) for name in by}, []
        if not by or any(pa.types.is_floating(each.type) for each in columns.values()):
            raise NotSimpleError("groups")
        for number, each in enumerate(items):
            columns[f"_{number}"], function = summand(each.node, self.table)
            functions.append((f"_{number}", function))
        found = pa.table(columns).group_by(list(by), use_threads=False).aggregate(functions)
        names = {f"{name}_{function}": each.name for (name, function), each in zip(functions, items, strict=True)}
        return AtHand(found.select([*by, *names]).rename_columns([*by, *names.values()]))


_MADE = "_made"


def added_up(frame: DataFrame, by: Sequence[str], aggregates: Sequence[str]) -> DataFrame:
    """One row for each group of a frame, with aggregates in SQL."""
    if isinstance(frame, AtHand):
        return frame.added_up(by, aggregates)
    return frame.groupBy(*by).agg(*map(sf.expr, aggregates))


def _whole(column: pa.ChunkedArray) -> pa.Array:
    found = column.combine_chunks()
    return found.chunk(0) if isinstance(found, pa.ChunkedArray) else found


def _exploded(node: Node, rows: pa.Table) -> tuple[pa.Table, pa.Array]:
    """The rows, once for each number of a sequence, and these numbers."""
    if len(node.args) != 1 or node.args[0].kind != "sequence":
        raise NotSimpleError("explode")
    columns = [value(each, rows) for each in node.args[0].args]
    if any(each.null_count or not pa.types.is_integer(each.type) for each in columns):
        raise NotSimpleError("sequence")
    first, last, step = (each.to_numpy().astype(np.int64) for each in columns)
    if (step <= 0).any() or (last < first).any():
        raise NotSimpleError("sequence")
    counts = (last - first) // step + 1
    of = np.repeat(np.arange(rows.num_rows), counts)
    nth = np.arange(len(of)) - np.repeat(np.cumsum(counts) - counts, counts)
    return rows.take(pa.array(of, pa.int64())), pa.array(first[of] + nth * step[of], pa.int64())
