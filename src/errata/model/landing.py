"""Landing folders: where the files of a stream or of a feed arrive."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class LandedFileAction(StrEnum):
    """What is done with a landed file that has been taken in."""

    MOVE = "move"
    DELETE = "delete"
    KEEP = "keep"


@dataclass(frozen=True, slots=True)
class LandingFolder:
    """The folder in which files land."""

    path: str
    settle: int
    then: LandedFileAction
