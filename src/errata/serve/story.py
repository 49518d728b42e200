"""An answer's story: the values that it has had, why it had each, and the rows behind it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from errata.model.commit import Commit
from errata.serve.said import Said


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch that came."""

    stream: str
    batch_id: str
    commit_id: int
    brings: bool
    """Whether it can have brought rows that the result is made of; otherwise it took the stream's time on."""


@dataclass(frozen=True, slots=True)
class Correction:
    """A revision of a row; or, without a number, a version of a relation that came behind what had been answered."""

    stream: str
    revision: int | None
    batch_id: str
    file: str
    """Empty where no file said it, as in an undo."""
    line: int
    undoes: str | None
    was: Said | None
    """The row before; None where there was none."""
    now: Said | None


@dataclass(frozen=True, slots=True)
class Edit:
    """The query reads otherwise than before, or was worked out anew."""

    anew: bool = False
    """Somebody asked for it."""
    dropped: bool = False
    """It is no longer there, or has another key."""
    reads: str | None = None
    """A query that it reads: the results of that one have been replaced."""


@dataclass(frozen=True, slots=True)
class Redeclared:
    """A stream that the query reads is declared otherwise, and so the query means something else."""

    stream: str


@dataclass(frozen=True, slots=True)
class Replayed:
    """A range of the results was worked out again, because somebody asked for it."""


@dataclass(frozen=True, slots=True)
class Swept:
    """Revisions that were taken up together, where it cannot be told any more which of them it was."""

    source: str
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class ResultChanged:
    """A correction of another query's result, with its own causes."""

    query: str
    key: Said
    vs: int
    timed: bool
    commit_id: int
    was: Said | None
    now: Said | None
    causes: Causes


Cause = Batch | Correction | Edit | Redeclared | Replayed | Swept | ResultChanged


@dataclass(frozen=True, slots=True)
class Causes:
    """Some of the causes, and how many more there are."""

    told: Sequence[Cause] = ()
    more: int = 0


@dataclass(frozen=True, slots=True)
class Value:
    """What the answer was from a commit on."""

    commit: Commit
    """The one that published it."""
    values: Said | None
    """None: from then on there was no such result."""
    vs: int
    """When the result began that counted; of one that is gone, when the last one had."""
    ve: int
    """When it ends, as far as is known."""
    causes: Causes
    cut: bool = False
    """It may have had others before, which are no longer kept."""


class Fate(StrEnum):
    """What has become of a row behind a result."""

    SAME = "same"
    CHANGED = "changed"
    CAME = "came"
    GONE = "gone"


@dataclass(frozen=True, slots=True)
class Row:
    """A row behind a result, as it was and as it is."""

    fate: Fate
    was: Said | None
    now: Said | None


@dataclass(frozen=True, slots=True)
class State:
    """The rows of a source that made a result at one time."""

    commit_id: int
    """The state of the source that was read."""
    rows: int | None
    """How many they were; None where no state is there any more that could be told of."""
    lost: str = ""
    """Why it is not the state in which the result was published first, if that is no longer there."""


@dataclass(frozen=True, slots=True)
class Behind:
    """The rows of one source behind a result."""

    source: str
    noun: str
    then: State
    now: State
    rows: Sequence[Row]
    """Some of them, those that differ before others."""
    differing: int
    """How many differ."""
    aged: int = 0
    """How many of those that made it have been aged out since."""


@dataclass(frozen=True, slots=True)
class Story:
    """All of it."""

    query: str
    key: Said
    at: int
    timed: bool
    values: Sequence[Value]
    """Oldest first."""
    behind: Sequence[Behind]
    notes: Sequence[str] = ()
    """What a reader has to know beside."""
