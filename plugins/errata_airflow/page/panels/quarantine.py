"""Panel of rows and files in quarantine."""

from __future__ import annotations

from errata.read.maintenance import quarantine_contents
from errata_airflow.page.panel import Page, Panel

PLAIN = (
    "Rows and corrections that could not be taken in are set aside, with the reason, until a person decides about "
    "them. Nothing else waits for that."
)

PANEL = Panel(
    50,
    Page(
        "quarantine",
        "Quarantine",
        PLAIN,
        lambda site, asked: quarantine_contents(site, asked.text("stream")),
        "quarantine.html",
    ),
)
