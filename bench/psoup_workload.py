"""The workload of PSoup's experiments (psoup-2002, 5.2.1), and queries evaluated one by one, without an index.

Values are uniform in [0, 255]. An interval query has intervals over one to four attributes; each begins at a multiple
of 32 with a chance of 0.2, else anywhere, and its size is uniform in [0, 255].
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from random import Random

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from errata.model.columns import Column, ColumnType
from errata.model.registered import Comparison, Conjunction, ConstantFactor
from errata.model.stream import Stream

ATTRIBUTES = ("a", "b", "c", "d")
VALUES = 256


def readings(kind: str) -> Stream:
    """A stream whose attributes are of this type."""
    columns = {"id": "bigint", "time": "timestamp", **dict.fromkeys(ATTRIBUTES, kind)}
    declared = tuple(Column(name, ColumnType.parse(text)) for name, text in columns.items())
    return Stream("readings", declared, key=("id",), order="time")


STREAM = readings("int")
SEED = 2002

_ARROW = {Comparison.AT_LEAST: pc.greater_equal, Comparison.AT_MOST: pc.less_equal, Comparison.EQUAL: pc.equal}
_PLAIN = {Comparison.AT_LEAST: operator.ge, Comparison.AT_MOST: operator.le, Comparison.EQUAL: operator.eq}


def interval_queries(count: int, seed: int = SEED) -> list[Conjunction]:
    """Interval queries of one to four attributes."""
    draw = Random(seed)
    return [interval_query(draw, draw.randint(1, len(ATTRIBUTES))) for _ in range(count)]


def interval_query(draw: Random, attributes: int) -> Conjunction:
    """An interval over each of so many attributes."""
    factors = []
    for name in draw.sample(ATTRIBUTES, attributes):
        low = draw.randrange(0, VALUES, 32) if draw.random() < 0.2 else draw.randrange(VALUES)
        factors.append(ConstantFactor(name, Comparison.AT_LEAST, low))
        factors.append(ConstantFactor(name, Comparison.AT_MOST, low + draw.randrange(VALUES)))
    return tuple(factors)


def distinct_queries(count: int, seed: int = SEED) -> list[Conjunction]:
    """Interval queries over doubles, of which hardly two bounds are the same."""
    draw = Random(seed)
    found: list[Conjunction] = []
    for _ in range(count):
        names = draw.sample(ATTRIBUTES, draw.randint(1, len(ATTRIBUTES)))
        lows = {name: draw.random() for name in names}
        factors = [ConstantFactor(name, Comparison.AT_LEAST, low) for name, low in lows.items()]
        factors += [ConstantFactor(name, Comparison.AT_MOST, low + draw.random()) for name, low in lows.items()]
        found.append(tuple(factors))
    return found


def equality_queries(count: int, seed: int = SEED) -> list[Conjunction]:
    """Queries for one `id` each, of even numbers, and an interval."""
    draw = Random(seed)
    even = draw.sample(range(0, 64 * count, 2), count)
    return [(ConstantFactor("id", Comparison.EQUAL, each), *interval_query(draw, 1)) for each in even]


def rows(count: int, *, shift: int = 0, seed: int = SEED) -> pa.Table:
    """Rows of values in [0, 255], moved by `shift`."""
    draw = np.random.default_rng(seed)
    values = {name: draw.integers(shift, shift + VALUES, count, np.int32) for name in ATTRIBUTES}
    return pa.table({"id": pa.array(np.arange(count)), **values})


# Without an index.


def one_by_one_numpy(queries: Sequence[Conjunction], batch: pa.Table) -> list[np.ndarray]:
    """Each query by itself on numpy's arrays, without a thought for NULL: its rows as bits."""
    values = {name: batch.column(name).to_numpy() for name in batch.column_names}
    found = []
    for query in queries:
        mask = None
        for factor in query:
            true = _PLAIN[factor.comparison](values[factor.column], factor.constant)  # type: ignore[union-attr]
            mask = true if mask is None else np.logical_and(mask, true, out=mask)
        found.append(np.packbits(mask, bitorder="little"))
    return found


def one_by_one_arrow(queries: Sequence[Conjunction], batch: pa.Table) -> list[pa.Array]:
    """Each query by itself with Arrow's functions, which know NULL: its rows as Arrow's bits."""
    values = {name: batch.column(name).combine_chunks() for name in batch.column_names}
    found = []
    for query in queries:
        mask = None
        for factor in query:
            constant = pa.scalar(factor.constant, values[factor.column].type)  # type: ignore[union-attr]
            true = _ARROW[factor.comparison](values[factor.column], constant)  # type: ignore[union-attr]
            mask = true if mask is None else pc.and_(mask, true)
        found.append(mask)
    return found


def row_at_a_time(queries: Sequence[Conjunction], batch: pa.Table) -> list[list[int]]:
    """Each row and each query by itself, as the paper's PSoup does without its index; stops at the first factor that
    is false."""
    tests = [[(each.column, _PLAIN[each.comparison], each.constant) for each in query] for query in queries]  # type: ignore[union-attr]
    found: list[list[int]] = [[] for _ in queries]
    for place, row in enumerate(batch.to_pylist()):
        for number, factors in enumerate(tests):
            if all(compare(row[column], constant) for column, compare, constant in factors):
                found[number].append(place)
    return found


Baseline = Callable[[Sequence[Conjunction], pa.Table], object]
