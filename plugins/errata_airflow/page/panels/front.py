"""Panel of the project's health: what needs attention first."""

from __future__ import annotations

from errata.read.overview import project_overview
from errata_airflow.page.panel import Page, Panel

PANEL = Panel(
    10,
    Page(
        "",
        "Overview",
        "How the project stands: what is well, what waits, and what needs a look.",
        lambda site, _: project_overview(site),
        "front.html",
    ),
)
