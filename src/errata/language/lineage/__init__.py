"""Lineage as a function of the plan (replay-revisions, 2008, section 3). Other rooms import it from here.

Lineage maps extents (an interval of time and constants of columns) of one node's rows to extents of another's. An
answer may be wider than necessary, never narrower. A change that gives a row new values is two changes, one with the
old values and one with the new; what it touches and what has to be read for it is the union of both.
"""

from __future__ import annotations

from errata.language.lineage.distances import UnboundedInput, lineage_sentences, should_store_lineage, unbounded_inputs
from errata.language.lineage.replays import (
    InputChange,
    QueryPath,
    ReplayScope,
    ScanExtents,
    backward,
    forward,
    forward_through_queries,
    reads_through_queries,
    replay_scope,
)
from errata.language.nodes import scans_of
from errata.language.plan import Plan
from errata.model.extent import Extent, ExtentAxis


def stored_columns(plan: Plan) -> tuple[str, ...]:
    """The columns of stored lineage: for each scan the first and last vs of the rows that a result was made of."""
    return tuple(f"_{side}_{place}" for place in range(len(scans_of(plan))) for side in ("from", "to"))


__all__ = [
    "Extent",
    "ExtentAxis",
    "InputChange",
    "QueryPath",
    "ReplayScope",
    "ScanExtents",
    "UnboundedInput",
    "backward",
    "forward",
    "forward_through_queries",
    "lineage_sentences",
    "reads_through_queries",
    "replay_scope",
    "should_store_lineage",
    "stored_columns",
    "unbounded_inputs",
]
