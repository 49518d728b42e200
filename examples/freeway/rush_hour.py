"""This morning's rush hour, as it comes: every quarter of an hour its passes are taken in, and the load of the freeway
is asked exactly and from a sample; at the end, how many commuters there were.

Run `python traffic.py` before, then `python rush_hour.py`, both in this folder.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import errata
from errata.flows.open_project import REMARKS, OpenProject

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Load:
    """How many more cars have come at Ashby than left over the bridge, since the rush hour began."""

    until: str
    exact: int
    estimate: int
    low: int
    high: int
    read: str
    """What was read for the estimate, in words."""


def query(name: str) -> str:
    """The text of one of the queries."""
    return (HERE / "queries" / f"{name}.sql").read_text()


def take_in_week(project: OpenProject, feed: Path) -> None:
    """The seven days before."""
    project.apply()
    for file in sorted(feed.glob("day-*.parquet")):
        project.ingest("passes", file)


def rush_hour(project: OpenProject, feed: Path) -> Iterator[Load]:
    """Take in each quarter of an hour, and ask for the load."""
    for file in sorted(feed.glob("today-*.parquet")):
        project.ingest("passes", file)
        (exact,) = project.ask(query("load")).to_pylist()
        reduced = project.ask(query("load_reduced"), with_error=True)
        (found,) = reduced.to_pylist()
        remarks = (reduced.schema.metadata or {}).get(REMARKS.encode(), b"").decode()
        yield Load(
            f"{file.stem[-4:-2]}:{file.stem[-2:]}",
            exact["more_cars"],
            round(found["more_cars"]),
            round(found["more_cars_low"]),
            round(found["more_cars_high"]),
            remarks.splitlines()[0].rpartition("; read ")[2],
        )


def commuters(project: OpenProject, name: str) -> dict[str, int]:
    """The answer of one of the queries for commuters, by exit."""
    return {row["exit"]: row["commuters"] for row in project.ask(query(name)).to_pylist()}


if __name__ == "__main__":
    with errata.open(HERE) as opened:
        take_in_week(opened, HERE / "feed")
        print("until  exact  estimate  95% interval  read for the estimate")
        for load in rush_hour(opened, HERE / "feed"):
            interval = f"{load.low} to {load.high}"
            print(f"{load.until}  {load.exact:5}  {load.estimate:8}  {interval:12}  {load.read}")
        print("commuters, from all passes of the week:", commuters(opened, "commuters"))
        print("commuters, from its summary by hour:   ", commuters(opened, "commuters_reduced"))
