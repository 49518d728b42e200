"""Which technique works out again what revisions touch of a query's results."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from errata.flows.answering.inputs import Inputs
from errata.flows.correcting.lineage_asked import Asked, instead
from errata.language.nodes import scans
from errata.language.partial import adjustable
from errata.revise import work
from errata.revise.revised import Cluster, Revised, clusters
from errata.revise.technique import Technique
from errata.revise.work import Answered, Work


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
    changes = [cluster for each in revised for cluster in clusters(each)]
    no_direct = no_adjusting(of, revised)
    return by_technique(of, changes, inputs, technique, aged, no_direct, wanted, narrowed=narrowed)


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
