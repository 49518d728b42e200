"""Which revisions are in place: the row stays in the results that it was in, and only what these say may change."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa

from errata.evaluate.sameness import Flags, lanes, steps
from errata.language.lineage.membership import membership
from errata.language.nodes import scans
from errata.language.plan import Plan
from errata.model.results import VE, VS
from errata.revise.revised import GONE, REVISION, Revised


def parted(plan: Plan, revised: Revised) -> tuple[Revised | None, Revised | None]:
    """Of what has been revised of a source what a plan that reads it has in place, and the rest."""
    same = _in_place(plan, revised)
    if same.all():
        return revised, None
    if not same.any():
        return None, revised
    return _only(revised, same), _only(revised, ~same)


def _only(revised: Revised, which: Flags) -> Revised:
    return replace(revised, rows=revised.rows.filter(pa.array(which)))


def _in_place(plan: Plan, revised: Revised) -> Flags:
    """Which of the versions are one of two, the one that was and the one that is, that agree in what has a say."""
    rows = revised.rows
    if revised.came_late:
        return np.zeros(rows.num_rows, np.bool_)
    read = zip(scans(plan), membership(plan), strict=True)
    names = {name for scan, some in read if scan.source.name == revised.source for name in some}
    if revised.gives is not None:
        # The row is as it was in all that the revision does not say.
        stays = {number for number, given in revised.gives.items() if not given & names}
        return np.isin(rows[REVISION].to_numpy(), sorted(stays))
    told = lanes(rows, [REVISION, VS, VE, *sorted(names)])
    order = np.lexsort(told[::-1])
    number = np.empty(rows.num_rows, np.int64)
    number[order] = np.cumsum(steps([lane[order] for lane in told], rows.num_rows)) - 1
    gone = rows[GONE].to_numpy()
    pairs = np.bincount(number, gone) == 1
    pairs &= np.bincount(number, ~gone) == 1
    same: Flags = pairs[number]
    return same
