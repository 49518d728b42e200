"""Which technique works out again what revisions touch of a query's results."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial

import pyarrow.compute as pc

from errata.evaluate.reads import Reach
from errata.flows.answering.inputs import Inputs
from errata.flows.correcting.lineage_asked import Asked, instead
from errata.language.lineage import Axis
from errata.language.nodes import scans
from errata.language.partial import adjustable
from errata.model.interval import HIGHEST, Interval
from errata.model.results import VS
from errata.revise import work
from errata.revise.revised import APART, MOST, Cluster, Revised, clusters
from errata.revise.technique import Technique
from errata.revise.work import Answered, Work

LEAST = 8
"""Changes of a source that are told apart however few rows there are."""

ROWS = 2_000
"""Rows for each change that is told apart. To follow one through a plan of ten operators takes some 0.3 ms, in which
either engine reads about as many."""


def rows_to_read(inputs: Inputs, needed: Work, until: int) -> int:
    """About how many rows are read to work results out again."""
    return sum(inputs.size_of_all(name, some, until) for name, some in needed.reads.items())


def chosen(
    of: Answered,
    revised: Sequence[Revised],
    inputs: Inputs,
    technique: Technique,
    aged: Mapping[str, int | None],
    wanted: Asked | None,
    *,
    narrowed: bool,
) -> tuple[Technique, Work, str]:
    """The technique, what it reads, and why it is this one. `wanted`: what can be asked of stored lineage."""
    changes = changes_of(revised, inputs, aged)
    no_direct = no_adjusting(of, revised)
    return by_technique(of, changes, inputs, technique, aged, no_direct, wanted, narrowed=narrowed)


def changes_of(revised: Iterable[Revised], inputs: Inputs, aged: Mapping[str, int | None]) -> list[Cluster]:
    """The changes that lineage follows. Where few rows lie between the first and the last, they are few: to follow one
    through a plan takes longer than to read some thousands of rows. Where rows have been aged out they are many, since
    a change that reaches behind that is refused whole."""
    is_aged = any(place is not None for place in aged.values())

    def gathered(each: Revised) -> tuple[Revised, list[Cluster]]:
        return each, clusters(each, MOST if is_aged else _apart(each, inputs))

    # With what they were made of, or another one could come to have its id.
    return [one for each in revised for one in inputs.once((id(each), is_aged), partial(gathered, each))[1]]


def _apart(revised: Revised, inputs: Inputs) -> int:
    """How many changes are told apart."""
    if revised.rows.num_rows <= APART:
        return MOST
    begins = pc.min_max(revised.rows[VS])
    hull = Interval(begins["min"].as_py(), begins["max"].as_py() + 1)
    rows = inputs.size(revised.source, Reach(Axis.START, hull), HIGHEST - 1)
    return min(MOST, max(LEAST, rows // ROWS))


def no_adjusting(of: Answered, revised: Iterable[Revised]) -> str | None:
    """Why results cannot be adjusted by what was revised; None: they can."""
    if of.route.partial is None or not of.route.keeps_parts:
        why = None if of.route.partial is None else adjustable(of.route.partial)
        return why or "its results are no sums, counts or extremes of windows that have closed"
    if any(each.after is None for each in revised) or any(each.source.plan is not None for each in scans(of.plan)):
        return "it reads results of another query"
    return None


def by_technique(
    of: Answered,
    changes: Sequence[Cluster],
    inputs: Inputs,
    technique: Technique,
    aged: Mapping[str, int | None],
    no_direct: str | None,
    wanted: Asked | None = None,
    *,
    narrowed: bool = True,
) -> tuple[Technique, Work, str]:
    """The same for changes that are known; `no_direct`: why results cannot be adjusted, if they cannot."""
    found = _derived(of, changes, inputs, technique, aged, no_direct, narrowed=narrowed)
    if wanted is None or technique not in (Technique.AUTO, Technique.MINIMAL):
        return found
    less = instead(of, wanted, inputs, found[1], aged)
    return found if less is None else (Technique.MINIMAL, *less)


def _derived(
    of: Answered,
    changes: Sequence[Cluster],
    inputs: Inputs,
    technique: Technique,
    aged: Mapping[str, int | None],
    no_direct: str | None,
    *,
    narrowed: bool,
) -> tuple[Technique, Work, str]:
    """The same by derived lineage alone."""
    if technique in (Technique.AUTO, Technique.DIRECT) and no_direct is None:
        asked = "it was asked for" if technique is Technique.DIRECT else "it reads no rows"
        return Technique.DIRECT, work.following(of, changes, aged), asked
    least = work.following(of, changes, aged)
    if technique is Technique.ALL:
        whole = work.everything(of, least, aged, narrowed=narrowed)
        if whole is least and least.regions:
            return Technique.MINIMAL, least, "rows of earlier results have been aged out, so not all can be replayed"
        return Technique.ALL, whole, "it was asked for"
    if technique is Technique.MINIMAL:
        return Technique.MINIMAL, least, "it was asked for"
    whole = work.everything(of, least, aged, narrowed=narrowed)
    some, every = (rows_to_read(inputs, each, of.until) for each in (least, whole))
    if technique is Technique.AUTO and whole is not least and some >= every > 0:
        return Technique.ALL, whole, "what is touched is made of all rows"
    return Technique.MINIMAL, least, f"not direct: {no_direct}"
