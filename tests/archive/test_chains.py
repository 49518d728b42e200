"""Versions of rows chained, and what still counts of them, against the oracle that looks at one row after the other."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from errata.archive.overlays import NO_VERSION, chain_heads, effective_versions, undone_batches
from errata.archive.schemas import overlay_schema
from fixtures.flows import a_feed

FEED = a_feed(moment="bigint")
BATCHES = range(1, 7)


def by_hand(batches: Sequence[int], said: Sequence[int], undoes: dict[int, int], own: int) -> list[list[int]]:
    """The runs that count, as indexes of versions: what undoes the run before it takes it away, and itself, and a run
    after which the row is as it was before does not count."""
    runs: list[list[int]] = []
    for batch, run in groupby(range(len(batches)), key=lambda at: batches[at]):
        top = batches[runs[-1][-1]] if runs else None
        if top is not None and undoes.get(batch) == top and batch != own:
            runs.pop()
            continue
        if batch == top:
            runs[-1].extend(run)
        else:
            runs.append(list(run))
        if said[runs[-1][-1]] == (said[runs[-2][-1]] if len(runs) > 1 else NO_VERSION):
            runs.pop()
    return runs


@given(
    rows=st.lists(
        st.lists(st.tuples(st.sampled_from(BATCHES), st.integers(NO_VERSION, 2)), min_size=1, max_size=8), max_size=4
    ),
    undoes=st.dictionaries(st.sampled_from(BATCHES), st.sampled_from(BATCHES)),
    own=st.sampled_from(BATCHES),
)
def test_what_counts_of_many_rows_is_what_counts_of_each(
    rows: list[list[tuple[int, int]]], undoes: dict[int, int], own: int
) -> None:
    undoes = {batch: of for batch, of in undoes.items() if batch != of}
    batch, said = (np.array([each[at] for row in rows for each in row], dtype=np.int64) for at in (0, 1))
    row = np.repeat(np.arange(len(rows)), [len(each) for each in rows])
    numbers, last, before = effective_versions(row, batch, undone_batches(batch, undoes, own), said, own)
    expected = {}
    for number, each in enumerate(rows):
        start = int(np.searchsorted(row, number))
        runs = by_hand([batch for batch, _ in each], [says for _, says in each], undoes, own)
        if any(each[run[0]][0] == own for run in runs):
            expected[number] = (start + runs[-1][-1], start + runs[-2][-1] if len(runs) > 1 else NO_VERSION)
    assert dict(zip(numbers.tolist(), zip(last.tolist(), before.tolist(), strict=True), strict=True)) == expected


@pytest.mark.parametrize(
    ("said", "numbers"),
    [
        ([], []),
        ([(3, None, 0, 7), (4, 3, 0, 7), (5, None, 0, 7)], [0, 0, 2]),
        ([(9, 4, 0, 7), (10, None, 4, 8)], [0, 0]),
        ([(9, 4, 0, 7), (10, None, 4, 7)], [0, 1]),
    ],
    ids=[
        "nothing",
        "a chain and another row",
        "brought back to a version not at hand",
        "a line of a file is no version",
    ],
)
def test_rows_are_told_by_what_they_supersede(said: list[tuple[int, int | None, int, int]], numbers: list[int]) -> None:
    rows = [
        {"_revision": number, "_from_revision": before, "_pos": pos, "_batch": batch, "_masks": before is not None}
        for number, before, pos, batch in said
    ]
    assert chain_heads(pa.Table.from_pylist(rows, schema=overlay_schema(FEED)), {8}).tolist() == numbers
