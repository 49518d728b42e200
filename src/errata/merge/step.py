"""What goes into a merge step and what comes out of it: the state between batches, the progress of the feeds, and the
rows, corrections and findings of one batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from errata.model.feed import FeedProperties, MergeAlgorithm
from errata.model.time import LOWEST

BATCH = "_batch"
"""The number of the batch in which a row was first said; NULL means the batch that is being merged."""
OP = "_op"
"""Of a correction: `replace` or `delete`."""
REASON = "_reason"
CHOSEN = "_chosen"
"""Of a value in a disagreement: whether it is the one that counts."""


@dataclass(frozen=True, slots=True)
class FeedProgress:
    """Where a feed stands in a step. Feeds are numbered by their place in the declaration."""

    name: str
    before: int = LOWEST
    """Its stable point before the batch."""
    stable: int = LOWEST
    """And after it."""
    attached: bool = True
    leads: bool = True
    """Whether its stable point counts: it is attached, has joined and is not suspect."""
    complete: bool = False


@dataclass(frozen=True, slots=True)
class MergeProgress:
    """What is decided once for all keys: how far the merged stream is stable, and whom it follows."""

    feeds: tuple[FeedProgress, ...]
    before: int
    """The merged stable point before the batch."""
    stable: int
    """And after it: never less."""
    ranked: tuple[int, ...]
    """The numbers of all feeds, the leader first: those that lead by falling stable point, then the others; among
    equals as declared."""

    @property
    def leader(self) -> int | None:
        """The feed that the merge follows; None if none can lead."""
        first = self.ranked[0] if self.ranked else None
        return first if first is not None and self.feeds[first].leads else None


@dataclass(frozen=True, slots=True)
class FeedTop:
    """The last instant of a feed's ordered rows."""

    order: int = LOWEST
    rows: int = 0
    """How many of its rows have this order field."""


@dataclass(frozen=True, slots=True)
class MergeState:
    """What a merge remembers between batches: of the rows that are not frozen, which feed has which and what was
    published. A row is stored once, whatever the number of feeds that have it; feeds that disagree about a key have
    rows of their own."""

    rows: pa.Table
    """The payload columns, then `_batch` and `_pos` of the first statement."""
    ends: np.ndarray
    """For each row and feed the end of the lifetime; ABSENT if the feed does not have the row."""
    published: np.ndarray
    """For each row the end that was published; ABSENT if it was not."""
    tops: Mapping[int, FeedTop] = field(default_factory=dict)
    """Of R0 to R2: the last instant of each feed, by its number."""


@dataclass(frozen=True, slots=True)
class BrokenGuarantee:
    """An element that breaks what its feed guarantees."""

    feed: int
    guarantee: str
    """In words, such as `order: strict`."""
    pos: int
    what: str
    """Such as `at 10:04 after 10:07`."""
    left: FeedProperties
    """What the feed still guarantees."""


@dataclass(frozen=True, slots=True)
class MergeCounts:
    """What became of the elements of one batch, by feed number where it is a mapping."""

    repeats: Mapping[int, int] = field(default_factory=dict)
    """Statements that say what the feed, another feed or the merged stream had said already."""
    held: int = 0
    """Rows that are remembered and not published yet, more than before the batch; negative if fewer."""
    filled: Mapping[int, int] = field(default_factory=dict)
    """Rows that a feed lacked when its stable point passed them, and that another feed had: gaps that were filled."""


@dataclass(frozen=True, slots=True)
class MergeStep:
    """The outcome of a merge of one batch, or of one part of its keys."""

    algorithm: MergeAlgorithm
    inserts: pa.Table
    """New rows of the merged stream: the stream's columns, `_batch` and `_pos`."""
    corrections: pa.Table
    """Changes of rows published earlier: `_op`, `_given` (the columns that change, with the key; NULL means all), the
    stream's columns (of the whole new row, or of the row that goes), `_batch` and `_pos`."""
    behind: pa.Table
    """Elements of rows that the state does not know, and that the merged stable point has passed: what the archive has
    decides about them."""
    refused: pa.Table
    """Elements that contradict what their own feed had frozen: `_feed`, `_pos`, `_reason`."""
    disagreements: pa.Table
    """Keys about which feeds have different values, one row for each feed: `_feed`, `_chosen`, `_batch`, `_pos`, the
    stream's columns."""
    agreed: pa.Table
    """Keys (the key's columns) about which feeds disagreed before the batch, and agree now."""
    state: MergeState
    counts: MergeCounts = field(default_factory=MergeCounts)
    broken: Sequence[BrokenGuarantee] = ()
