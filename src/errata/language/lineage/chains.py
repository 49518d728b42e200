"""Lineage through queries that read queries, down to streams and relations."""

from __future__ import annotations

from dataclasses import replace

from errata.language.lineage.reach import Region
from errata.language.lineage.replays import Change, Reads, backward, forward, trail
from errata.language.nodes import scans
from errata.language.plan import Plan, PlanError

Path = tuple[int, ...]
"""The place of a scan; if it reads a query, then the place of a scan in that query's plan, and so on."""


def through(plan: Plan, reads: Reads) -> dict[Path, Region]:
    """What reads come to, down to streams and relations: what a query has said is made of what the query reads."""
    found: dict[Path, Region] = {}
    for place, scan in enumerate(scans(plan)):
        if place not in reads:
            continue
        region, inner = reads[place], scan.source.plan
        if inner is None:
            found[place,] = region
            continue
        values = {scan.of_source(name): value for name, value in region.values.items()}
        below = backward(inner, replace(region, values=values))
        found |= {(place, *path): each for path, each in through(inner, below).items()}
    return found


def forward_through(plan: Plan, path: Path, change: Change) -> Region | None:
    """The outputs that a change can touch through all queries on a path, at whose end the changed rows are read."""
    place, *rest = path
    if not rest:
        return forward(plan, replace(change, scan=place))
    scan = scans(plan)[place]
    if scan.source.plan is None:
        raise PlanError(f"{scan.source.name} is not a query", how="a path ends at a stream or a relation")
    region = forward_through(scan.source.plan, tuple(rest), change)
    if region is None:
        return None
    values = {scan.column(name): value for name, value in region.values.items()}
    return trail(plan, place, replace(region, values=values))[0]
