"""What the oracle answers to those who append, revise and undo."""

from __future__ import annotations

from dataclasses import dataclass

from errata.model.batch import Counts
from errata.model.record import Record
from errata.model.revision import Decision, Key, Revision


@dataclass(frozen=True, slots=True)
class Taken:
    """What came of an append."""

    commit: int
    counts: Counts
    quarantined: tuple[tuple[Record, str], ...]
    """The records that did not go in, with the reason."""


@dataclass(frozen=True, slots=True)
class Revised:
    """What came of applying what was pending."""

    commit: int | None
    """None: there was nothing that could be settled, and nothing was done."""
    outcomes: tuple[Decision, ...]
    """What became of each revision that was claimed, by number."""


@dataclass(frozen=True, slots=True)
class Undone:
    """What came of undoing a batch."""

    commit: int
    batch_id: str
    """The batch that the undo is itself."""
    outcomes: tuple[Decision, ...]
    later: tuple[Key, ...]
    """Rows left as they are, because of what came later."""
    aged: tuple[Key, ...]
    """Rows left as they are, because they have been aged out."""
    withdrawn: tuple[Revision, ...]
    """Revisions of the batch that were still waiting, and now will never be applied."""
