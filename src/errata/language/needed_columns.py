"""A plan over sources that have no columns but those that it reads.

It tells the forms of a query apart. A column that is added to a stream, or moved within its declaration, changes the
plan of who reads it or lists `*`, and of nobody else.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

from errata.language.nodes import Scan, scans
from errata.language.plan import Plan, Source, fact, rebuild
from errata.language.rewrite.prune_columns import prune_columns


@fact
def over_needed_columns(plan: Plan) -> Plan:
    """The plan without the columns that no operator needs; the columns of its sources are sorted by name. Queries that
    are read through others are narrowed likewise."""
    pruned = prune_columns(plan)
    needed: dict[str, set[str]] = defaultdict(set)
    for scan in scans(pruned):
        needed[scan.source.name].update(scan.of_source(each.name) for each in scan.fields)
    sources = {scan.source.name: _narrowed(scan.source, needed[scan.source.name]) for scan in scans(pruned)}
    return rebuild(pruned, lambda node: _over(node, sources[node.source.name]) if isinstance(node, Scan) else node)


def _narrowed(source: Source, needed: set[str]) -> Source:
    fields = sorted((each for each in source.fields if each.name in needed), key=lambda each: each.name)
    inner = None if source.plan is None else over_needed_columns(source.plan)
    return replace(source, fields=tuple(fields), plan=inner)


def _over(scan: Scan, source: Source) -> Scan:
    """The scan of a narrowed source; two scans of one source may need different columns of it."""
    own = {scan.of_source(each.name) for each in scan.fields}
    kept = tuple(each.name for each in source.fields if each.name in own)
    return Scan(source, scan.alias, None if len(kept) == len(source.fields) else kept)
