"""Which records of the past stay."""

from __future__ import annotations

from errata.model.horizon import (
    PastEvaluation,
    PastPosition,
    first_kept_evaluation,
    forgettable_evaluations,
    forgettable_positions,
)


def past(*kinds: str) -> list[PastEvaluation]:
    """Evaluations, each of a commit later than the one before: `on`, `swept`, or `refused`."""
    return [
        PastEvaluation(number, 2 * number, 2 * number - 1, kind == "on", kind == "refused")
        for number, kind in enumerate(kinds, start=1)
    ]


def test_told_from_the_last_that_went_on() -> None:
    known = past("on", "refused", "on", "on", "swept")
    first = first_kept_evaluation(known, 100)
    assert first == known[3]
    assert forgettable_evaluations(known, known[3]) == [3]
    assert first_kept_evaluation(known, 6) == known[2], "another query stands at an earlier state"
    assert first_kept_evaluation(past("swept"), 100) is None


def test_positions_tell_when_something_was_applied_or_aged_out() -> None:
    known = [
        PastPosition(1, 0, None),
        PastPosition(2, 0, None),
        PastPosition(3, 1, None),
        PastPosition(4, 1, None),
        PastPosition(5, 1, 7),
        PastPosition(6, 1, 7),
        PastPosition(7, 1, 7),
    ]
    assert forgettable_positions(known, ()) == [2, 4, 6]
    assert forgettable_positions(known, (4,)) == [2, 6]
    assert forgettable_positions([], (4,)) == []
