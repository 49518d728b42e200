"""Queries in plain words: how their results come and go."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from errata.catalog import queries
from errata.flows.overview.corrections import Course, check_query, course
from errata.flows.site import Site
from errata.flows.telling.status import Declared, QueryStatus, query_status
from errata.model.pattern import Pattern
from errata.model.stream import OnRevision

IN_WORDS: Mapping[Pattern, tuple[str, str]] = {
    Pattern.MONOTONIC: ("only adds", "Results are only ever added; none expires."),
    Pattern.WEAKEST: ("first in, first out", "Results expire in the order in which they came."),
    Pattern.WEAK: ("known end", "Each result's end is known when it comes."),
    Pattern.KEYED: ("latest per key", "A result holds until the next one of its key takes its place."),
    Pattern.STRICT: ("may change any time", "Some results end at moments that nobody can foretell."),
}
"""A name of one or two words, and a sentence."""

POLICIES: Mapping[OnRevision, str] = {
    OnRevision.RESULTS: "Corrections change what has been published.",
    OnRevision.HISTORY: "Corrections count in later answers only; what has been published stays.",
    OnRevision.IGNORE: "Corrections have no effect on it.",
}


@dataclass(frozen=True, slots=True)
class QueryStory:
    """One query, at length."""

    status: QueryStatus
    text: str
    """Its SQL as applied; empty where it has not been."""
    reads: list[tuple[str, bool]]
    """What it reads itself, and whether that is a query."""
    read_by: list[str]
    course: Course
    """Its last corrections."""


def query_story(site: Site, name: str) -> QueryStory:
    """One query at length."""
    found = next((each for each in query_status(site) if each.name == name), None)
    if found is None:
        check_query(site, name)
        found = QueryStatus(name, Declared.GONE)
    recorded = queries.recorded(site.catalog)
    text = recorded[name].checked.query.text if name in recorded else ""
    read_by = sorted(other for other, each in recorded.items() if name in each.checked.reads)
    reads = [(each, each in recorded) for each in (found.checked.reads if found.checked is not None else ())]
    return QueryStory(found, text, reads, read_by, course(site, query=name))
