"""Feeds reconstitute to tables of events, and keep their promises."""

from __future__ import annotations

import math
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from errata.errors import RefusedError
from fixtures.oracle.feed import OPEN, Adjust, Element, Event, Insert, Stable, answer_at, frozen, reconstitute

A, B = {"v": "A"}, {"v": "B"}


def test_the_two_physical_streams_of_the_paper_are_one() -> None:
    first: list[Element] = [Insert(B, 8), Insert(A, 6, 12), Adjust(B, 8, OPEN, 10), Stable(11), Stable(OPEN)]
    second: list[Element] = [Insert(A, 6, 7), Insert(B, 8, 15), Adjust(A, 6, 7, 12), Adjust(B, 8, 15, 10), Stable(OPEN)]
    assert reconstitute(first) == reconstitute(second) == Counter([Event(frozen(A), 6, 12), Event(frozen(B), 8, 10)])


def test_equal_events_are_counted() -> None:
    table = reconstitute([Insert(A, 1, 9), Insert(A, 1, 9), Adjust(A, 1, 9, 5)])
    assert table == Counter({Event(frozen(A), 1, 9): 1, Event(frozen(A), 1, 5): 1})
    assert answer_at(table, 4) == Counter({frozen(A): 2})
    assert answer_at(table, 5) == Counter({frozen(A): 1})


def test_an_adjust_to_the_beginning_removes_the_event() -> None:
    assert reconstitute([Insert(A, 6, 20), Adjust(A, 6, 20, 6)]) == Counter()


def test_nan_equals_nan_and_zero_has_no_sign() -> None:
    elements: list[Element] = [Insert({"x": math.nan, "y": -0.0}, 1, 9), Adjust({"y": 0.0, "x": -math.nan}, 1, 9, 5)]
    assert [(event.vs, event.ve) for event in reconstitute(elements)] == [(1, 5)]


@pytest.mark.parametrize(
    ("element", "what"),
    [
        (Insert(A, 9), "an insert at 9 behind stable(10)"),
        (Adjust(B, 5, 9, 12), "an adjust from 9 to 12 behind stable(10)"),
        (Adjust(B, 5, 20, 9), "an adjust from 20 to 9 behind stable(10)"),
        (Stable(9), "stable(9) after stable(10)"),
    ],
)
def test_an_element_behind_stable_is_refused(element: Element, what: str) -> None:
    with pytest.raises(RefusedError) as refused:
        reconstitute([Insert(B, 5, 20), Stable(10), element])
    assert refused.value.what == what
    assert refused.value.where == "element 3 of the feed"
    assert "revision" in str(refused.value)


@pytest.mark.parametrize("element", [Insert(A, 10), Adjust(B, 5, 20, 10), Stable(10)])
def test_an_element_at_stable_is_not_behind_it(element: Element) -> None:
    assert reconstitute([Insert(B, 5, 20), Stable(10), element])


def test_an_adjust_names_an_event_that_is_there() -> None:
    with pytest.raises(RefusedError, match="not there"):
        reconstitute([Insert(A, 6, 20), Adjust(A, 6, 21, 30)])


def test_impossible_lifetimes_are_refused_when_made() -> None:
    with pytest.raises(RefusedError, match=r"\[5, 5\)"):
        Insert(A, 5, 5)
    with pytest.raises(RefusedError, match="cannot end at 4"):
        Adjust(A, 5, 9, 4)


lifetimes = st.tuples(st.integers(0, 20), st.integers(1, 10), st.integers(0, 10))


@given(st.lists(lifetimes, max_size=8), st.integers(-1, 32))
def test_the_order_of_inserts_does_not_matter_and_a_final_end_can_be_told_in_steps(
    events: list[tuple[int, int, int]], moment: int
) -> None:
    final = [Insert({"n": number}, vs, vs + life) for number, (vs, life, _) in enumerate(events)]
    steps: list[Element] = [Insert({"n": n}, vs, vs + life + more) for n, (vs, life, more) in enumerate(events)]
    steps.reverse()
    steps += [Adjust({"n": n}, vs, vs + life + more, vs + life) for n, (vs, life, more) in enumerate(events)]
    table = reconstitute(final)
    assert reconstitute(steps) == table
    expected = Counter(frozen({"n": n}) for n, (vs, life, _) in enumerate(events) if vs <= moment < vs + life)
    assert answer_at(table, moment) == expected
