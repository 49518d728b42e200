"""What ageing has to leave, since queries that are answered have still to read it."""

from __future__ import annotations

from dataclasses import dataclass

from errata.catalog import queries, streams
from errata.catalog.open import Catalog
from errata.catalog.published import Published, all_published, evaluations_of
from errata.evaluate.ageing import held_from, lost_with
from errata.evaluate.route import Kind, Route, route
from errata.flows.declaring.check import read, with_inputs
from errata.flows.site import Site
from errata.language.nodes import scans
from errata.language.plan import Plan
from errata.language.rewrite import rewritten_of
from errata.model.interval import LOWEST


@dataclass(frozen=True, slots=True)
class Hold:
    """A query that needs rows from a place on."""

    query: str
    start: int
    """LOWEST: each of its evaluations needs all there is."""


def hold_on(site: Site, name: str) -> Hold | None:
    """Of the queries that read a stream, or a query's results, the one that needs the oldest rows. One that has not
    been evaluated yet needs none: it begins where there are rows. What is kept as state need not be read again."""
    known, answered = queries.recorded(site.catalog), all_published(site.catalog)
    wanted = [
        each.checked.name
        for each in known.values()
        if (name in each.checked.reads or name == each.checked.name)
        and each.checked.name in answered
        and answered[each.checked.name].query_id == each.query_id
    ]
    if not wanted:
        return None
    declared = {each.stream.name: each.stream for each in streams.standings(site.catalog)}
    names = with_inputs(wanted, {each: known[each].checked.reads for each in known})
    plans = read(declared, {each: known[each].checked.query for each in names}, names)
    holds = []
    for each in wanted:
        rewritten = rewritten_of(plans[each])
        chosen = route(rewritten)
        if each == name:
            # Which values have come is known from the results alone.
            start = LOWEST if chosen.kind is Kind.NEW_VALUES else None
        else:
            start = held_from(rewritten, chosen, answered[each].frontier).get(name)
        if start is not None:
            holds.append(Hold(each, start))
    return min(holds, key=lambda hold: (hold.start, hold.query), default=None)


def lost_for_good(catalog: Catalog, plan: Plan, chosen: Route, of: Published) -> list[str]:
    """The streams and queries of which rows have been aged out, since the results began, that only the state knows."""
    with catalog.reading() as connection:
        archives = streams.aged(connection, {each.source.name for each in scans(plan)})
    now = {name: each.aged_to for name, each in archives.items()}
    lost = lost_with(plan, chosen, of.frontier, now)
    if not lost:
        return []
    first = evaluations_of(catalog, of.stream_id)[0].data_commit
    with catalog.reading() as connection:
        then = {name: streams.aged_to_at(connection, archives[name].stream_id, first) for name in lost}
    return [name for name in lost if then[name] != now[name]]
