"""Statements behind the stable point that their own feed had given: they may repeat what is there, and change nothing.

The place of a change is the order field if a row comes, goes or gets another payload, and the lesser of the two ends if
only its end changes (logical merge, III-A: an adjust may move an end that is not frozen yet).
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from errata.archive.ingest.duplicates import rows_equal
from errata.archive.tables import match_rows
from errata.merge.elements import ELEMENT, FEED, GIVEN, OPEN, OWN_STABLE, POS, ElementKind
from errata.merge.outcome import refused_schema
from errata.merge.step import REASON
from errata.model.stream import Stream


class OwnVerdict(IntEnum):
    """What becomes of a statement behind its own feed's stable point."""

    REPEAT = 0
    REFUSED = 1
    TAKEN = 2
    """It changes an end that the feed has not frozen."""


_VERBS = {ElementKind.INSERT: "inserts", ElementKind.ADJUST: "changes", ElementKind.WITHDRAW: "withdraws"}


def check_own(stream: Stream, said: pa.Table, there: pa.Table) -> np.ndarray:
    """The verdict for each statement, given the rows that there are."""
    count, key = said.num_rows, list(stream.as_fed.key)
    verdict = np.full(count, int(OwnVerdict.REFUSED))
    if not count:
        return verdict
    kind = said[ELEMENT].to_numpy()
    mine, theirs = match_rows(said.select(key), there.select(key), key)
    present = np.zeros(count, dtype=bool)
    present[mine] = True
    verdict[~present & (kind == ElementKind.WITHDRAW)] = OwnVerdict.REPEAT
    keeps = mine[kind[mine] != ElementKind.WITHDRAW]
    at = theirs[kind[mine] != ElementKind.WITHDRAW]
    payload, end = _changes(stream, said, there, keeps, at)
    verdict[keeps[~payload & ~end]] = OwnVerdict.REPEAT
    only_end = end & ~payload
    if stream.merged.end is not None and only_end.any():
        ends = [
            rows[stream.merged.end].cast(pa.int64()).fill_null(OPEN).to_numpy()[index]
            for rows, index in ((said, keeps), (there, at))
        ]
        free = np.minimum(*ends) >= said[OWN_STABLE].to_numpy()[keeps]
        verdict[keeps[only_end & free]] = OwnVerdict.TAKEN
    return verdict


def _changes(
    stream: Stream, said: pa.Table, there: pa.Table, mine: np.ndarray, theirs: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Whether statements would change the payload of rows, and whether their end."""
    payload, end = np.zeros(len(mine), dtype=bool), np.zeros(len(mine), dtype=bool)
    listed = pc.binary_join_element_wise("", said[GIVEN].fill_null(",".join(stream.as_fed.names)), "", ",")
    for name in stream.as_fed.names:
        given = pc.match_substring(listed, f",{name},").to_numpy()[mine]
        both = pa.concat_tables([said.select([name]), there.select([name])])
        differs = given & ~rows_equal(both, mine, said.num_rows + theirs)
        if name == stream.merged.end:
            end |= differs
        else:
            payload |= differs
    return payload, end


def refused_rows(said: pa.Table) -> pa.Table:
    """Statements that contradict their feed, as those of a merge step."""
    verbs = [_VERBS[ElementKind(kind)] for kind in said[ELEMENT].to_pylist()]
    reasons = [f"it {verb} a row behind the stable point that the feed itself had given" for verb in verbs]
    columns = {FEED: said[FEED], POS: said[POS], REASON: pa.array(reasons, pa.string())}
    schema = refused_schema()
    return pa.table([columns[name] for name in schema.names], schema=schema)
