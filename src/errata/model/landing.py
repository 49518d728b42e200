"""Landing folders: where the files of a stream or of a feed arrive."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any


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


def landing_to_record(landing: LandingFolder | None) -> dict[str, Any] | None:
    """The folder as a JSON object, which `landing_from_record` reads."""
    return None if landing is None else {"path": landing.path, "settle": landing.settle, "then": landing.then.value}


def landing_from_record(record: dict[str, Any] | None) -> LandingFolder | None:
    if record is None:
        return None
    return LandingFolder(record["path"], record["settle"], LandedFileAction(record["then"]))
