"""Panel of upkeep: last runs, due work, leases, pins and sizes."""

from __future__ import annotations

from errata.read.maintenance import maintenance_status
from errata_airflow.page.panel import Page, Panel

PLAIN = (
    "What keeps the archives fit: when each kind of work last did something, what is due, who is at work now, and how "
    "much room all takes."
)

PANEL = Panel(60, Page("health", "Health", PLAIN, lambda site, _: maintenance_status(site), "health.html"))
