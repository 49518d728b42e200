"""Panel of queries: how far each is evaluated, and what its results lack."""

from __future__ import annotations

from errata.read.details import query_details
from errata.read.status import query_statuses
from errata_airflow.page.panel import Page, Panel

PANEL = Panel(
    40,
    Page(
        "queries",
        "Queries",
        "What is asked of the streams, how far each answer has come, and what it lacks.",
        lambda site, _: query_statuses(site),
        "queries.html",
    ),
    (
        Page(
            "queries/{name}",
            "Query",
            "One query: what it asks, how its results come and go, how far it is answered, and its corrections.",
            lambda site, asked: query_details(site, asked.needed("name")),
            "query.html",
        ),
    ),
)
