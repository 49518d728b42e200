"""`errata explain`: the plan of a query or text, statistics from the catalog, and the strategy.

Only declarations and, for estimates, the catalog are read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from errata.catalog import activity, buckets, streams
from errata.catalog.database import Catalog, open_if_current
from errata.catalog.streams import StreamState
from errata.declare.project import Project
from errata.declare.queries import load_queries
from errata.declare.query_plans import read_plans, stream_sources
from errata.declare.summary_words import declared_forms
from errata.errors import unknown_name_error
from errata.language.explain.explanation import Explanation, explain_plan
from errata.language.near_support import near_obstacle
from errata.language.plan import Plan
from errata.language.queries import query_source, read_names, read_query
from errata.language.route import choose_route
from errata.model.bucket import Role
from errata.model.query import Query
from errata.model.time import SECOND

MAX_BUCKETS_READ = 1_000
"""Buckets of an archive up to which its groups are counted: an explanation should be quick."""


def explain_query(project: Project, name: str | None, text: str = "", where: str = "the query") -> Explanation:
    """The explanation of a declared query, by name, or of a text."""
    written = {each.lower(): each for each in project.queries}
    if name is not None:
        if name.lower() not in written:
            raise unknown_name_error("query", name, project.queries)
        asked = [written[name.lower()]]
    else:
        asked = [written[each.lower()] for each in read_names(text, where) if each.lower() in written]
    texts = _load_query_texts(project, asked, written)
    plans = read_plans(project.streams, texts, texts, project.queries)
    if name is not None:
        return explain_plan(plans[asked[0]], catalog_statistics(project), asked[0])
    sources = {
        **stream_sources(project.streams.values()),
        **{each: query_source(each, plan) for each, plan in plans.items()},
        **{each: query_source(each, form.plan) for each, form in declared_forms(project).items()},
    }
    return explain_plan(
        read_query(text, where, sources, others=list(project.queries)), catalog_statistics(project), where
    )


def declared_plans(project: Project, names: Iterable[str]) -> dict[str, Plan]:
    """The plans of declared queries and of those that they read; no other file is opened."""
    texts = _load_query_texts(project, names, {each.lower(): each for each in project.queries})
    return read_plans(project.streams, texts, texts, project.queries)


def evaluation_section(explanation: Explanation) -> str:
    """How `errata run` evaluates the query, as a section of the explanation."""
    chosen = choose_route(explanation.after.plan)
    why_far = near_obstacle(explanation.after.plan)
    engine = "near while a step is small, far when it is large" if why_far is None else f"far, for {why_far}"
    return f"\nHow errata run takes it further\n  {chosen.kind}: {chosen.why}\n  engine: {engine}\n"


def _load_query_texts(project: Project, names: Iterable[str], written: Mapping[str, str]) -> dict[str, Query]:
    """These queries and those that they read, also through others; no other file is opened."""
    found: dict[str, Query] = {}
    waiting = set(names)
    while waiting:
        new = load_queries([project.queries[each] for each in sorted(waiting)], project.file)
        found |= new
        read_by_them = [each.lower() for query in new.values() for each in read_names(query.text, query.sql_file)]
        waiting = {written[each] for each in read_by_them if each in written} - set(found)
    return found


@dataclass(frozen=True, slots=True)
class StreamStatistics:
    """What the catalog knows of a stream."""

    rows: float
    span: int
    """The difference of its last and first place."""
    timed: bool
    distinct: Mapping[str, float] = field(default_factory=dict)
    """The number of values of a column, if buckets list them."""


@dataclass(frozen=True, slots=True)
class CatalogStatistics:
    """Statistics of archives, from the index alone."""

    seen: Mapping[str, StreamStatistics]

    def rate(self, source: str) -> float | None:
        """Rows per second of event time, or per unit of a plain number."""
        found = self.seen.get(source)
        if found is None or not found.rows or found.span <= 0:
            return None
        return found.rows / (found.span / SECOND if found.timed else found.span)

    def rows(self, source: str) -> float | None:
        found = self.seen.get(source)
        return None if found is None else found.rows

    def distinct(self, source: str, column: str) -> float | None:
        found = self.seen.get(source)
        return None if found is None else found.distinct.get(column)


def catalog_statistics(project: Project) -> CatalogStatistics | None:
    """Statistics of the project's streams from its catalog; None if there is no catalog yet."""
    catalog = open_if_current(project.catalog)
    if catalog is None:
        return None
    try:
        sizes = activity.archive_sizes(catalog)
        found = {}
        for each in streams.stream_states(catalog):
            size = sizes.get((each.stream_id, Role.BASE))
            if size is None or size.vs_min is None or size.vs_max is None:
                continue
            distinct = _distinct_values(catalog, each) if size.buckets <= MAX_BUCKETS_READ else {}
            found[each.stream.name] = StreamStatistics(
                each.rows, size.vs_max - size.vs_min, each.stream.timed, distinct
            )
        return CatalogStatistics(found)
    finally:
        catalog.close()


def _distinct_values(catalog: Catalog, standing: StreamState) -> dict[str, float]:
    """The number of values of each group column, if all buckets list their groups."""
    listed = [each.groups.members for each in buckets.visible_buckets(catalog, standing.stream_id, standing.changed_in)]
    groups = {group for members in listed if members is not None for group in members}
    if not standing.stream.group or not groups or any(members is None for members in listed):
        return {}
    return {name: float(len({group[at] for group in groups})) for at, name in enumerate(standing.stream.group)}
