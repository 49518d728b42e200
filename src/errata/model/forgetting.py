"""Which records of the past an archive still needs: of its evaluations, and of where it stood after each commit.

    commits  ──1────────────K──────────▶
                  ▲         │ horizon, pins
                  F         everything from F on is kept

F is the last evaluation behind the horizon K that took the answer on, all the way: what came after it is told from
there. Of what lies before F only single records stay.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PastEvaluation:
    """An evaluation that was committed behind the horizon."""

    number: int
    commit_id: int
    data_commit: int
    goes_on: bool
    """Whether it took the answer on, all the way: it is no correction, and no part."""
    refused: bool
    """Whether it left revisions out for good, which `errata status` tells."""


@dataclass(frozen=True, slots=True)
class PastPosition:
    """Where a stream stood after a commit behind the horizon."""

    commit_id: int
    applied: int
    aged_to: int | None


def first_kept(past: Sequence[PastEvaluation], data_commit: int) -> PastEvaluation | None:
    """Of evaluations behind the horizon, oldest first, the last from which others can be told: it took the answer on,
    and had read no later state of the streams than other queries stand at. None: all have to stay."""
    told = [each for each in past if each.goes_on and each.data_commit <= data_commit]
    return told[-1] if told else None


def forgettable_evaluations(past: Iterable[PastEvaluation], first: PastEvaluation) -> list[int]:
    """The numbers of those before the first that is kept. Not of the very first: it tells since when the results stand;
    and not of those whose refusals are still shown."""
    return [each.number for each in past if 1 < each.number < first.number and not each.refused]


def forgettable_positions(past: Sequence[PastPosition], needed_at: Collection[int]) -> list[int]:
    """The commits of positions behind the horizon, oldest first, that nobody needs. The last of them is what was so at
    its edge. The first with each number of revisions, and with each beginning of what is kept, is what the history of a
    row is told from. `needed_at` are commits at which somebody looks, however old they are."""
    kept = {past[-1].commit_id} if past else set()
    applied, aged = set[int](), set[int | None]()
    for each in past:
        if each.applied not in applied or each.aged_to not in aged:
            kept.add(each.commit_id)
        applied.add(each.applied)
        aged.add(each.aged_to)
    for commit_id in needed_at:
        kept.add(max((each.commit_id for each in past if each.commit_id <= commit_id), default=0))
    return [each.commit_id for each in past if each.commit_id not in kept]
