"""Panel of registered queries: whose they are, their windows, costs, and how fresh their matches are."""

from __future__ import annotations

from errata.psoup.overview import registered_overview
from errata_airflow.page.panel import Page, Panel

PLAIN = (
    "Questions that are registered once and answered whenever somebody asks. Which rows match is worked out in the "
    "background; the window is applied when they are asked."
)

PANEL = Panel(
    45,
    Page(
        "registered",
        "Registered queries",
        PLAIN,
        lambda site, asked: registered_overview(site, asked.text("owner")),
        "registered.html",
    ),
)
