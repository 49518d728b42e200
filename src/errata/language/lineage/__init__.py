"""Lineage as a function of the plan (replay-revisions, 2008, section 3): the door to all that there is of it.

Answers may be wider than need be, never narrower. A change that gives a row new values is two, one with the old values
and one with the new: what it touches, and what has to be read for it, is the union of both.
"""

from __future__ import annotations

from errata.language.lineage.chains import Path, forward_through, through
from errata.language.lineage.reach import Axis, Region
from errata.language.lineage.replays import Change, Reads, Replay, backward, forward, replay
from errata.language.lineage.width import Wide, stored_is_advised, too_wide
from errata.language.lineage.words import in_words
from errata.language.nodes import scans
from errata.language.plan import Plan


def stored_columns(plan: Plan) -> tuple[str, ...]:
    """The columns of stored lineage: for each scan from which to which vs the rows lie that an output was made of."""
    return tuple(f"_{side}_{place}" for place in range(len(scans(plan))) for side in ("from", "to"))


__all__ = [
    "Axis",
    "Change",
    "Path",
    "Reads",
    "Region",
    "Replay",
    "Wide",
    "backward",
    "forward",
    "forward_through",
    "in_words",
    "replay",
    "stored_columns",
    "stored_is_advised",
    "through",
    "too_wide",
]
