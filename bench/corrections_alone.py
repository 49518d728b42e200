"""The first half of `bench archive` alone: corrections, scans through them and compaction, without the layouts."""

from __future__ import annotations

from pathlib import Path

from bench.archive import REVISIONS
from bench.archive_revisions import revision_figures
from bench.measure import Outcome, Scale
from errata.engine.session import open_session


def measure(scale: Scale, folder: Path) -> Outcome:
    """The figures at a scale."""
    found = revision_figures(REVISIONS[scale], folder)
    open_session(None, None, {}, "bench").stop()
    return found
