"""Techniques by which published results are corrected (replay-revisions-2008, sections 2.1 and 3.2)."""

from __future__ import annotations

from enum import StrEnum


class Technique(StrEnum):
    """How the results that revisions affect are computed again."""

    AUTO = "auto"
    """The one with the lowest estimated cost."""
    ALL = "all"
    """All rows of the affected groups are replayed."""
    MINIMAL = "minimal"
    """The rows that take part in affected results are replayed."""
    DIRECT = "direct"
    """Published results are adjusted, and nothing is replayed."""
    NONE = "none"
    """Nothing is corrected, as the query declares."""
