"""Sets of rows are what Python's sets of numbers are, however they are held, encoded and cut."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from errata.psoup.row_sets import RowSet, RowSetForm, positions_of, run_counts, words_of

MANY = 70_000
"""More rows than two bytes number."""


@st.composite
def row_sets(draw: st.DrawFn, rows: int | None = None) -> tuple[RowSet, set[int]]:
    """A set held in either way, and the same in plain Python; runs are as likely as single rows."""
    rows = draw(st.sampled_from([0, 1, 7, 63, 64, 65, 200])) if rows is None else rows
    chosen: set[int] = set()
    for _ in range(draw(st.integers(0, 6))):
        start = draw(st.integers(0, rows))
        chosen |= set(range(start, min(rows, start + draw(st.sampled_from([1, 2, 64, 200])))))
    if draw(st.booleans()):
        return RowSet.of_positions(rows, sorted(chosen)), chosen
    return RowSet.of_mask(np.isin(np.arange(rows), sorted(chosen))), chosen


@given(row_sets())
def test_a_set_holds_the_rows_it_was_made_of(made: tuple[RowSet, set[int]]) -> None:
    rows, chosen = made
    assert rows.positions.tolist() == sorted(chosen)
    assert np.flatnonzero(rows.mask()).tolist() == sorted(chosen)
    assert positions_of(rows.words).tolist() == sorted(chosen)
    assert (rows.count, len(rows), len(rows.mask())) == (len(chosen), len(chosen), rows.rows)


@given(row_sets())
def test_runs_are_counted_across_words(made: tuple[RowSet, set[int]]) -> None:
    rows, chosen = made
    assert run_counts(rows.words[None]).tolist() == [sum(each - 1 not in chosen for each in chosen)]


@given(row_sets())
def test_what_is_encoded_is_decoded(made: tuple[RowSet, set[int]]) -> None:
    rows, chosen = made
    content = rows.encode()
    again = RowSet.decode(memoryview(content))
    assert (again, again.rows, again.positions.tolist()) == (rows, rows.rows, sorted(chosen))
    assert len(content) <= rows.rows / 8 + 6


@given(row_sets(rows=130), row_sets(rows=130))
def test_union_and_intersection(first: tuple[RowSet, set[int]], second: tuple[RowSet, set[int]]) -> None:
    assert first[0].union(second[0]).positions.tolist() == sorted(first[1] | second[1])
    assert first[0].intersect(second[0]).positions.tolist() == sorted(first[1] & second[1])
    assert (first[0] == second[0]) is (first[1] == second[1])


@given(row_sets(), st.integers(-3, 210), st.integers(-3, 210))
def test_a_slice_is_numbered_from_its_begin(made: tuple[RowSet, set[int]], begin: int, end: int) -> None:
    rows, chosen = made
    cut = rows.slice(begin, end)
    kept = [each for each in range(rows.rows) if begin <= each < end]
    assert cut.rows == len(kept)
    assert cut.positions.tolist() == [each - max(0, begin) for each in sorted(chosen) if begin <= each < end]


@pytest.mark.parametrize(
    ("positions", "form", "size"),
    [
        (range(MANY), RowSetForm.ALL, 5),
        ([], RowSetForm.POSITIONS, 5),
        ([3, MANY - 1], RowSetForm.POSITIONS, 13),
        (sorted({*range(MANY)} - {0, 7, MANY - 2}), RowSetForm.GAPS, 17),
        (range(10, 50_000), RowSetForm.RUNS, 13),
        ([*range(100, 900), *range(MANY - 900, MANY)], RowSetForm.RUNS, 21),
        (range(0, MANY, 2), RowSetForm.BITS, 5 + MANY // 8),
    ],
)
def test_the_smallest_form_is_taken(positions: range | list[int], form: RowSetForm, size: int) -> None:
    held = RowSet.of_positions(MANY, list(positions))
    for rows in (held, RowSet(MANY, held_words=held.words)):
        content = rows.encode()
        assert (content[0], len(content)) == (form, size)
        assert RowSet.decode(content).positions.tolist() == list(positions)


def test_an_empty_batch_has_all_rows_and_none() -> None:
    assert RowSet.all(0) == RowSet.none(0) == RowSet.decode(RowSet.all(0).encode())
    assert RowSet.all(65).count == 65


def test_sets_of_different_batches_are_not_joined() -> None:
    with pytest.raises(ValueError, match="among 3 and 4 rows"):
        RowSet.all(3).union(RowSet.all(4))


def test_bits_past_the_last_row_stay_zero() -> None:
    assert words_of(np.ones(65, np.bool_)).tolist() == [2**64 - 1, 1]
    assert RowSet.all(65).words.tolist() == [2**64 - 1, 1]
