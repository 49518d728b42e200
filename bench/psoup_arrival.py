"""New data over old queries: how many rows a second meet all queries, and what the results and the index take.

The paper's figure 9, with the predicate index and without it. Without, each query is evaluated by itself on each batch,
by Arrow's functions over whole columns, which know NULL as the index does. Beside it stands what numpy needs that only
compares arrays, the least that can be; and one row after another, as the paper has it. All of them use one core, and
ratios are of processor time.
"""

from __future__ import annotations

import gc
import time
import tracemalloc
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa
from matplotlib.axes import Axes

from bench.measure import Grid, Metric, Outcome, Picture, interleaved, talk
from bench.psoup_workload import (
    STREAM,
    VALUES,
    distinct_queries,
    equality_queries,
    interval_queries,
    one_by_one_arrow,
    one_by_one_numpy,
    readings,
    row_at_a_time,
    rows,
)
from bench.report import COLOURS
from errata.model.registered import Comparison, Conjunction, ConstantFactor
from errata.psoup.index.predicate_index import PredicateIndex

QUERIES = 4_096
FEWEST, MOST = 128, 16_384
BATCH = 10_000
"""Rows of the batch for which goals are held."""

PLAIN_ROWS = 20
"""Rows that are matched one after another."""


@dataclass(frozen=True, slots=True)
class ArrivalAmounts:
    """How much is measured."""

    batches: Sequence[int]
    queries: Sequence[int]
    rounds: int


def arrival_figures(amounts: ArrivalAmounts) -> Outcome:
    """All figures about arrival."""
    parts = [_rates(amounts), _growth(amounts), _nobody(amounts), Outcome(_storage()), Outcome(_memory())]
    return Outcome(
        [metric for part in parts for metric in part.metrics],
        [picture for part in parts for picture in part.pictures],
        [grid for part in parts for grid in part.grids],
    )


def indexed(queries: Sequence[Conjunction]) -> PredicateIndex:
    return PredicateIndex(STREAM, dict(enumerate(queries)))


def matched(index: PredicateIndex, batch: pa.Table) -> None:
    if len(index.match(batch)) == 0:
        raise RuntimeError("nothing matched, so nothing was measured")


def processor_seconds(rounds: int, **contenders: Callable[[], object]) -> dict[str, float]:
    """The least processor time of each contender, which take turns: what else the machine does hardly counts."""
    least = dict.fromkeys(contenders, float("inf"))
    for _ in range(rounds + 1):
        for name, contender in contenders.items():
            begun = time.process_time()
            contender()
            least[name] = min(least[name], time.process_time() - begun)
    return least


def _rates(amounts: ArrivalAmounts) -> Outcome:
    """Rows a second of 4,096 queries, with the index and without it, by the size of a batch."""
    talk.print(f"arrival: {QUERIES:,} queries")
    queries = interval_queries(QUERIES)
    index = indexed(queries)
    table: dict[str, list[float]] = {}
    numpy_times, arrow_times = [], []
    for size in amounts.batches:
        batch = rows(size)
        rounds = amounts.rounds if size <= BATCH else max(2, amounts.rounds // 3)
        told = interleaved(rounds, index=lambda _, batch=batch: matched(index, batch))
        least = processor_seconds(
            rounds,
            index=partial(matched, index, batch),
            numpy=partial(one_by_one_numpy, queries, batch),
            arrow=partial(one_by_one_arrow, queries, batch),
        )
        numpy_times.append(least["numpy"] / least["index"])
        arrow_times.append(least["arrow"] / least["index"])
        table[f"{size:,} rows"] = [
            size / told.median("index"),
            *(size / least[each] for each in ("index", "numpy", "arrow")),
            numpy_times[-1],
            arrow_times[-1],
        ]
    plain = interleaved(1, warm_up=0, plain=lambda _: row_at_a_time(queries, rows(PLAIN_ROWS)))
    at = list(amounts.batches).index(BATCH)
    columns = ["elapsed", "processor", "numpy", "Arrow", "times numpy", "times Arrow"]
    return Outcome(
        [
            Metric(f"arrival, {QUERIES:,} interval queries", [*table.values()][at][0], "rows/s", ">= 100000"),
            Metric("beside it without the index: Arrow, query by query", arrow_times[at], "times", ">= 20"),
            Metric("beside it without the index: numpy, no thought for NULL", numpy_times[at], "times"),
            Metric("without the index, row by row in Python", PLAIN_ROWS / plain.median("plain"), "rows/s"),
        ],
        grids=[Grid("arrival", f"Rows a second, {QUERIES:,} interval queries, by rows of a batch", columns, table)],
    )


def _growth(amounts: ArrivalAmounts) -> Outcome:
    """What a row costs, by queries and by the size of a batch."""
    costs: dict[int, list[float]] = {}
    for count in amounts.queries:
        talk.print(f"cost of a row: {count:,} queries")
        index = indexed(interval_queries(count))
        costs[count] = []
        for size in amounts.batches:
            batch = rows(size)
            least = processor_seconds(4 * amounts.rounds, index=partial(matched, index, batch))
            costs[count].append(least["index"] / size * 1e6)
    at = list(amounts.batches).index(BATCH)
    plain = {count: _plain_rate(interval_queries(count), rows(BATCH)) for count in amounts.queries if count <= QUERIES}

    def draw(axes: Axes) -> None:
        axes.plot(
            list(costs), [1e6 / each[at] for each in costs.values()], "o-", color=COLOURS[0], label="with the index"
        )
        axes.plot(list(plain), list(plain.values()), "s--", color=COLOURS[1], label="without, numpy")
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.set_xlabel("queries")
        axes.set_ylabel("rows a second")
        axes.legend(frameon=False)

    name = f"cost of a row, {MOST:,} queries beside {FEWEST:,}, batches of {BATCH:,}"
    return Outcome(
        [Metric(name, costs[MOST][at] / costs[FEWEST][at], "times", "<= 8")],
        [Picture("figure9", "Data arrival rate by queries (psoup-2002, figure 9)", draw)],
        [
            Grid(
                "cost",
                "Microseconds of the processor for each row, by queries and rows of a batch",
                [f"{size:,} rows" for size in amounts.batches],
                {f"{count:,} queries": each for count, each in costs.items()},
            )
        ],
    )


def _plain_rate(queries: Sequence[Conjunction], batch: pa.Table) -> float:
    return batch.num_rows / processor_seconds(2, numpy=partial(one_by_one_numpy, queries, batch))["numpy"]


def _nobody(amounts: ArrivalAmounts) -> Outcome:
    """What a row costs that is in no query: outside all intervals, or between the keys that are asked for."""
    talk.print("cost of rows that concern nobody")
    outside = rows(BATCH, shift=4 * VALUES)
    draw = np.random.default_rng(1)
    costs: dict[str, list[float]] = {"outside all intervals": [], "between keys asked for": []}
    for count in (FEWEST, MOST):
        intervals, keys = indexed(interval_queries(count)), indexed(equality_queries(count))
        between = rows(BATCH).set_column(0, "id", pa.array(draw.integers(0, 32 * count, BATCH) * 2 + 1))
        if len(keys.match(between)) or len(intervals.match(outside)):
            raise RuntimeError("a row concerns somebody")
        least = processor_seconds(
            10 * amounts.rounds, outside=partial(intervals.match, outside), between=partial(keys.match, between)
        )
        for name, seconds in zip(costs, least.values(), strict=True):
            costs[name].append(seconds / BATCH * 1e9)
    return Outcome(
        [
            Metric(f"cost of a row {name}, {MOST:,} queries beside {FEWEST:,}", high / low, "times", "<= 1.5")
            for name, (low, high) in costs.items()
        ],
        grids=[
            Grid(
                "nobody",
                "Nanoseconds of the processor for each row that concerns nobody",
                [f"{FEWEST:,} queries", f"{MOST:,} queries"],
                costs,
            )
        ],
    )


def _storage() -> list[Metric]:
    """Bits of encoded results for each row and query, by the share of rows that match."""
    talk.print("storage of results")
    size, count = 65_536, 64
    draw = np.random.default_rng(7)
    values = draw.permutation(size).astype(np.int32)
    found = []
    for share, goal in ((0.5, "<= 2"), (0.01, None), (0.0001, "<= 0.01")):
        width = int(share * size)
        lows = draw.integers(0, size - width, count).tolist()
        queries = [
            (
                ConstantFactor("a", Comparison.AT_LEAST, low),
                ConstantFactor("a", Comparison.AT_MOST, low + width - 1),
            )
            for low in lows
        ]
        sets = indexed(queries).match(pa.table({"a": values}))
        taken = sum(8 * len(each.encode()) for each in sets.values())
        found.append(Metric(f"results, {share:.2%} of rows match", taken / (size * count), "bits/row/query", goal))
    return found


def _memory() -> list[Metric]:
    """Bytes of the index for each query, as Python and numpy count them: over few values, and with doubles as bounds,
    of which hardly two are the same."""
    talk.print("memory of the index")
    found = []
    for name, stream, queries in (
        ("values", STREAM, interval_queries(MOST)),
        ("doubles", readings("double"), distinct_queries(MOST)),
    ):
        gc.collect()
        tracemalloc.start()
        before = tracemalloc.get_traced_memory()[0]
        index = PredicateIndex(stream, dict(enumerate(queries)))
        gc.collect()
        traced = tracemalloc.get_traced_memory()[0] - before
        tracemalloc.stop()
        if len(index) < 0.99 * MOST:
            raise RuntimeError(f"the index has {len(index)} queries instead of {MOST}")
        title = f"memory of the index, {MOST:,} queries over {name}"
        found.append(Metric(title, traced / MOST, "bytes/query", "<= 2048"))
    return found
