"""What keeps the archives fit."""

from __future__ import annotations

from errata.flows.overview.upkeep import upkeep
from errata_airflow.page.panel import Page, Panel

PLAIN = (
    "What keeps the archives fit: when each kind of work last did something, what is due, who is at work now, and how "
    "much room all takes."
)

PANEL = Panel(60, Page("health", "Health", PLAIN, lambda site, _: upkeep(site), "health.html"))
