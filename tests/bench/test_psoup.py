"""What the benchmark of registered queries compares finds the same, and its workload is the paper's."""

from __future__ import annotations

import numpy as np
from bench.psoup_arrival import indexed, processor_seconds

from bench import psoup_workload as workload
from errata.model.registered import ConstantFactor


def test_queries_one_by_one_find_what_the_index_finds() -> None:
    queries = workload.interval_queries(60)
    batch = workload.rows(500)
    found = indexed(queries).match(batch)
    numpy, arrow = workload.one_by_one_numpy(queries, batch), workload.one_by_one_arrow(queries, batch)
    plain = workload.row_at_a_time(queries, batch)
    for number in range(len(queries)):
        rows = found[number].positions.tolist() if number in found else []
        assert np.flatnonzero(np.unpackbits(numpy[number], bitorder="little")).tolist() == rows
        assert np.flatnonzero(arrow[number].to_numpy(zero_copy_only=False)).tolist() == rows
        assert plain[number] == rows
    assert any(plain)


def test_the_workload_is_the_papers() -> None:
    queries = workload.interval_queries(2_000)
    assert {len(query) for query in queries} == {2, 4, 6, 8}
    lows = [each.constant for query in queries for each in query[::2] if isinstance(each, ConstantFactor)]
    assert 0.2 < np.mean([low % 32 == 0 for low in lows]) < 0.26
    values = workload.rows(5_000).column("a").to_numpy()
    assert (values.min(), values.max()) == (0, 255)


def test_the_least_processor_time_counts() -> None:
    turns = []
    least = processor_seconds(3, slow=lambda: turns.append(sum(range(200_000))), fast=lambda: turns.append(0))
    assert 0 <= least["fast"] < least["slow"]
    assert len(turns) == 8
