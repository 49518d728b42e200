"""What it means for a query that its sources age: from when on its answers are whole, and what it has still to read.

`aged_to` tells of each source, by name, before which place nothing is left: of a stream, how far it has been aged; of a
query that is read, the first instant whose answer is whole. None: all is there.
"""

from __future__ import annotations

from collections.abc import Mapping

from errata.evaluate.needs import KEPT, needs
from errata.evaluate.reads import NOTHING, Reach, Reaches, reaches
from errata.evaluate.route import Route
from errata.language.lineage import Axis
from errata.language.plan import Plan
from errata.model.evaluation import Step
from errata.model.interval import HIGHEST, LOWEST, Interval

AgedTo = Mapping[str, int | None]


def first_whole(plan: Plan, aged_to: AgedTo) -> int:
    """The first instant from which on answers are made of nothing that has been aged out; LOWEST where nothing has.

    Where an answer is made of all rows there ever were, none is whole any more. If at least each result by itself is
    made of rows that lie close together, it is the first instant from which on all results that begin are whole; those
    of before, whole or not, are to be left out: see `results_from`. Otherwise it is where the source begins now: the
    answers are those over the rows that are left.
    """
    return max((_whole_of(plan, name, place) for name, place in _aged(plan, aged_to).items()), default=LOWEST)


def results_from(plan: Plan, aged_to: AgedTo) -> int:
    """Results that begin earlier are not to be published: they may be made of a part of their rows, and yet count at
    instants that are answered. LOWEST where there are none such, since all that count then are whole."""
    piecemeal = {
        name: place for name, place in _aged(plan, aged_to).items() if _start(plan, Axis.INSTANT, name, place) == LOWEST
    }
    return max((_whole_of(plan, name, place) for name, place in piecemeal.items()), default=LOWEST)


def held_from(plan: Plan, route: Route, frontier: int) -> dict[str, int]:
    """Of each source, the place from which on the next evaluations have still to read it; LOWEST where they read all
    of it each time. `plan` has been rewritten, and `frontier` is how far it has been answered."""
    found: dict[str, int] = {}
    for part in needs(plan, route, Step(frontier, frontier)).values():
        for name, reach in part.items():
            if not reach.interval.empty:
                found[name] = min(found.get(name, HIGHEST), reach.interval.start)
    return found


def lost_with(plan: Plan, route: Route, frontier: int, aged_to: AgedTo) -> list[str]:
    """The sources of which rows have been aged out that are known only from what the strategy keeps: were that lost, it
    could not be made anew."""
    if not route.keeps_state:
        return []
    kept: Reaches = needs(plan, route, Step(frontier, frontier), state_lost=True).get(KEPT, {})
    return [
        name
        for name, reach in kept.items()
        if not reach.interval.empty and (place := aged_to.get(name)) is not None and reach.interval.start < place
    ]


def _aged(plan: Plan, aged_to: AgedTo) -> dict[str, int]:
    """The sources of which something is needed and something is gone."""
    read = reaches(plan, Axis.INSTANT, Interval(LOWEST))
    places = {name: aged_to.get(name) for name, reach in read.items() if not reach.interval.empty}
    return {name: place for name, place in places.items() if place is not None and place > LOWEST}


def _whole_of(plan: Plan, name: str, place: int) -> int:
    """The first instant from which on nothing of a source is needed that lies before a place."""
    for axis in (Axis.INSTANT, Axis.START):
        if _start(plan, axis, name, place) > LOWEST and (found := _least(plan, axis, name, place)) is not None:
            return found
    return place


def _least(plan: Plan, axis: Axis, name: str, place: int) -> int | None:
    """What later instants need never begins earlier: the least instant is looked for by halving."""
    step = 1
    while _start(plan, axis, name, place + step - 1) < place:
        step *= 2
        if place + step > HIGHEST:
            return None
    low, high = place - 1, place + step - 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if _start(plan, axis, name, middle) >= place else (middle, high)
    return high


def _start(plan: Plan, axis: Axis, name: str, since: int) -> int:
    """Where that begins which a source has for an instant and all later ones."""
    reach: Reach = reaches(plan, axis, Interval(since)).get(name, NOTHING)
    return HIGHEST if reach.interval.empty else reach.interval.start
