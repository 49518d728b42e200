"""Panel of streams and their timelines."""

from __future__ import annotations

from errata.read.details import stream_details, timeline_page
from errata_airflow.page.panel import Page, Panel

PLAIN = (
    "What has come in, stream by stream. Rows are kept in buckets along event time, the time at which things happened; "
    "up to the stable point nothing changes any more except by corrections."
)

PANEL = Panel(
    20,
    Page(
        "streams", "Streams", PLAIN, lambda site, asked: timeline_page(site, asked.number("page") or 1), "streams.html"
    ),
    (
        Page(
            "streams/{name}",
            "Stream",
            "One stream: its buckets along event time, what reads it, and what happened to it of late.",
            lambda site, asked: stream_details(site, asked.needed("name")),
            "stream.html",
        ),
    ),
)
