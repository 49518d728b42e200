"""Which rows ageing has to leave, since a query has still to read them; and which sources its state alone still knows.

A query with results holds the oldest place that its next evaluation, or a correction of its results, reads of a source.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from errata.catalog import queries, streams
from errata.catalog.database import Catalog
from errata.catalog.result_archives import ResultArchive, evaluations_of, read_archives
from errata.declare.query_plans import read_plans, with_inputs
from errata.declare.site import Site
from errata.language.nodes import scans_of
from errata.language.plan import Plan
from errata.language.rewrite import rewritten_plan
from errata.language.route import Route, RouteKind, choose_route
from errata.language.source_reads import oldest_places_read, sources_only_in_state
from errata.model.time import LOWEST


@dataclass(frozen=True, slots=True)
class RetentionHold:
    """A query that has still to read rows from a place on."""

    query: str
    start: int
    """LOWEST: each of its evaluations reads all rows."""


def first_reader(site: Site, name: str, readers: Collection[str]) -> RetentionHold | None:
    """Of the evaluated queries that read a stream, or a query's results, the one that needs the oldest rows. Rows that
    are kept as state need not be read again."""
    known, answered = queries.recorded_queries(site.catalog), read_archives(site.catalog)
    declared = {each.stream.name: each.stream for each in streams.stream_states(site.catalog)}
    names = with_inputs(readers, {each: known[each].checked.reads for each in known})
    plans = read_plans(declared, {each: known[each].checked.query for each in names}, names)
    holds = []
    for each in readers:
        rewritten = rewritten_plan(plans[each])
        chosen = choose_route(rewritten)
        if each == name:
            # Only the results tell which values have come.
            start = LOWEST if chosen.kind is RouteKind.NEW_VALUES else None
        else:
            start = oldest_places_read(rewritten, chosen, answered[each].frontier).get(name)
        if start is not None:
            holds.append(RetentionHold(each, start))
    return min(holds, key=lambda hold: (hold.start, hold.query), default=None)


def unrecoverable_sources(catalog: Catalog, plan: Plan, chosen: Route, of: ResultArchive) -> list[str]:
    """The sources of which rows have been aged out since the results began that are only in the query's state."""
    with catalog.reading() as connection:
        archives = streams.archive_ages(connection, {each.source.name for each in scans_of(plan)})
    now = {name: each.aged_to for name, each in archives.items()}
    lost = sources_only_in_state(plan, chosen, of.frontier, now)
    if not lost:
        return []
    first = evaluations_of(catalog, of.stream_id)[0].data_commit
    with catalog.reading() as connection:
        then = {name: streams.aged_to_as_of(connection, archives[name].stream_id, first) for name in lost}
    return [name for name in lost if then[name] != now[name]]
