"""Masking a congested feed: the same quotes come by cable, radio and satellite. Each is congested for some minutes,
during which its files are held up and come together later; for one minute, two of them are. The merged stream is as
early as the earliest.

Run `python congestion.py` in this folder.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from market import HERE, clock_time, land, minute_of_quotes, out_of_order

import errata
from errata.flows.open_project import OpenProject

MINUTES = 10
WAYS = ("cable", "radio", "satellite")
CONGESTED = {"cable": range(1, 3), "radio": range(4, 6), "satellite": range(5, 8)}
"""The minutes in which the files of a way are held up."""


@dataclass(frozen=True)
class Minute:
    """How the streams stand after a minute."""

    until: str
    arrived: tuple[int, ...]
    """Quotes that each way brought in this minute."""
    merged: int
    """Quotes that the merged stream gained."""


def arriving(minute: int) -> dict[str, list[pa.Table]]:
    """What each way brings at the end of a minute: the minute's quotes, and those that were held up."""
    brought: dict[str, list[pa.Table]] = {}
    for number, way in enumerate(WAYS):
        held = CONGESTED[way]
        minutes = [] if minute in held else [*held, minute] if minute == held.stop else [minute]
        brought[way] = [out_of_order(minute_of_quotes(each), seed=1_000 * number + each) for each in minutes]
    return brought


def run_minutes(project: OpenProject) -> Iterator[Minute]:
    """Take in what lands, minute by minute."""
    project.apply()
    before = 0
    for minute in range(MINUTES):
        brought = arriving(minute)
        for way, tables in brought.items():
            if tables:
                land(HERE, way, f"{minute:02}", tables)
        project.run()
        merged = project.scan("routed").num_rows
        arrived = tuple(sum(each.num_rows for each in tables) for tables in brought.values())
        yield Minute(clock_time(minute), arrived, merged - before)
        before = merged


if __name__ == "__main__":
    with errata.open(HERE) as opened:
        print("until", *(f"{way:>9}" for way in WAYS), "   merged")
        for each in run_minutes(opened):
            print(each.until, *(f"{count:9}" for count in each.arrived), f"{each.merged:9}")
