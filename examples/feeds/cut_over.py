"""Cut-over: a query is replaced by another version while somebody reads its answers. The results of both are feeds of
one stream. For three minutes the old version runs alone, for three both run side by side, then the new one runs alone.
Whoever reads the stream gets each answer once, and never notices which version it came from.

Run `python cut_over.py` in this folder.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow.compute as pc
from market import HERE, clock_time, land, minute_of_quotes, out_of_order

import errata
from errata.flows.open_project import OpenProject

MINUTES = 9
BOTH = range(3, 6)
"""The minutes in which both versions feed the stream."""


@dataclass(frozen=True)
class Minute:
    """How the streams stand after a minute."""

    until: str
    feeding: str
    """The versions whose results are merged."""
    answers: int
    """Rows of the merged stream."""
    corrected: int
    """Results that a reader was told, and that changed afterwards."""


def run_minutes(project: OpenProject) -> Iterator[Minute]:
    """Take in what lands, minute by minute."""
    project.apply()
    project.detach("highs", "new")
    for minute in range(MINUTES):
        if minute == BOTH.start:
            project.attach("highs", "new")
        if minute == BOTH.stop:
            project.detach("highs", "old")
        land(HERE, "ticks", f"{minute:02}", out_of_order(minute_of_quotes(minute), seed=minute))
        project.run()
        changes = project.changes("two_minutes")
        corrected = pc.sum(pc.not_equal(changes["op"], "insert")).as_py() or 0
        feeding = "old" if minute < BOTH.start else "old, new" if minute in BOTH else "new"
        yield Minute(clock_time(minute), feeding, project.scan("highs").num_rows, corrected)


if __name__ == "__main__":
    with errata.open(HERE) as opened:
        print("until  versions  answers  corrected for the reader")
        for each in run_minutes(opened):
            print(f"{each.until}  {each.feeding:8}  {each.answers:7}  {each.corrected:24}")
