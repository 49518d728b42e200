"""Landed files: which are to be taken, and what becomes of them afterwards."""

from __future__ import annotations

from collections.abc import Iterable

from upath import UPath

from errata.errors import UsageError
from errata.intake.find import TAKEN, landed, unchanged
from errata.model.batch import SourceFile
from errata.model.stream import Landing, Stream, Then


def waiting(stream: Stream, now: int) -> list[UPath]:
    """The files that have landed and settled."""
    return landed(_landing(stream), now)


def clear(stream: Stream, files: Iterable[SourceFile]) -> None:
    """Move, delete or leave files whose rows are committed. Done again after a crash, it does what is left."""
    landing = _landing(stream)
    if landing.then is Then.KEEP:
        return
    for file in files:
        # A file that has been written anew under its old name has not been taken in: it stays, and is taken next.
        if not unchanged(file):
            continue
        path = UPath(file.name)
        try:
            if landing.then is Then.DELETE:
                path.unlink()
            else:
                target = _free_name(UPath(landing.path) / TAKEN / path.name, file.sha256)
                target.parent.mkdir(parents=True, exist_ok=True)
                path.rename(target)
        except FileNotFoundError:
            continue  # another run, which has found it taken in too, was quicker


def any_gone(files: Iterable[SourceFile]) -> bool:
    """Whether somebody has taken files away."""
    return not all(UPath(file.name).exists() for file in files)


def _free_name(target: UPath, sha256: str) -> UPath:
    """The name, or one that tells it from an earlier file of the same name and other content."""
    return target if not target.exists() else target.with_name(f"{sha256[:12]}-{target.name}")


def _landing(stream: Stream) -> Landing:
    if stream.landing is None:
        raise UsageError(
            f"stream {stream.name} has no landing folder",
            how=f"declare one (`landing:` under streams.{stream.name} in errata.yaml), or name the files",
        )
    return stream.landing
