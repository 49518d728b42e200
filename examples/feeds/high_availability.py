"""High availability: two sites write the same quotes. London fails for three minutes, comes back with a gap, and
repeats what it had said before; New York loses one quote in ten for two minutes. The merged stream lacks nothing, and
what is asked of it is answered as if nothing had happened.

Run `python high_availability.py` in this folder.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from market import HERE, clock_time, land, minute_of_quotes, out_of_order, without_share

import errata
from errata.flows.open_project import OpenProject

MINUTES = 10
FAILED = range(3, 6)
"""The minutes in which London is down."""
LOSSES = (7, 8)
"""The minutes in which New York loses quotes. London has them."""


@dataclass(frozen=True)
class Minute:
    """How the streams stand after a minute."""

    until: str
    new_york: int
    """Quotes that New York delivered, with repetitions."""
    london: int
    merged: int
    """Quotes in the merged stream, since the beginning."""
    written: int
    """Quotes that were written, since the beginning."""


def delivered(minute: int) -> tuple[int, int]:
    """Land the files of a minute; how many quotes are in them."""
    rows = minute_of_quotes(minute)
    new_york = out_of_order(without_share(rows, 0.1, minute) if minute in LOSSES else rows, seed=minute)
    land(HERE, "new_york", f"{minute:02}", new_york)
    if minute in FAILED:
        return new_york.num_rows, 0
    # The first file after the failure repeats what was said in the minute before it.
    repeated = [minute_of_quotes(FAILED.start - 1)] if minute == FAILED.stop else []
    london = [*repeated, out_of_order(rows, seed=100 + minute)]
    land(HERE, "london", f"{minute:02}", london)
    return new_york.num_rows, sum(each.num_rows for each in london)


def run_minutes(project: OpenProject) -> Iterator[Minute]:
    """Take in what lands, minute by minute."""
    project.apply()
    for minute in range(MINUTES):
        new_york, london = delivered(minute)
        project.run()
        written = (minute + 1) * minute_of_quotes(minute).num_rows
        yield Minute(clock_time(minute), new_york, london, project.scan("replicated").num_rows, written)


if __name__ == "__main__":
    with errata.open(HERE) as opened:
        print("until  New York  London  merged  written")
        for each in run_minutes(opened):
            print(f"{each.until}  {each.new_york:8}  {each.london:6}  {each.merged:6}  {each.written:7}")
        print("quotes by minute:", opened.results("per_minute")["quotes"].to_pylist())
