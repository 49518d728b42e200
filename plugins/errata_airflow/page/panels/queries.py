"""The queries, and how far each is answered."""

from __future__ import annotations

from errata.flows.overview.patterns import query_story
from errata.flows.telling.status import query_status
from errata_airflow.page.panel import Page, Panel

PANEL = Panel(
    40,
    Page(
        "queries",
        "Queries",
        "What is asked of the streams, how far each answer has come, and what it lacks.",
        lambda site, _: query_status(site),
        "queries.html",
    ),
    (
        Page(
            "queries/{name}",
            "Query",
            "One query: what it asks, how its results come and go, how far it is answered, and its corrections.",
            lambda site, asked: query_story(site, asked.needed("name")),
            "query.html",
        ),
    ),
)
