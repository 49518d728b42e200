"""By which technique results are corrected (replay-revisions, 2008, sections 2.1 and 3.2)."""

from __future__ import annotations

from enum import StrEnum


class Technique(StrEnum):
    """How the results that revisions touch are worked out again."""

    AUTO = "auto"
    """Whichever is expected to cost least."""
    ALL = "all"
    """All rows that there are of the groups that are touched are replayed."""
    MINIMAL = "minimal"
    """Those are replayed that take part in results which are touched."""
    DIRECT = "direct"
    """What is published is adjusted, and nothing is replayed."""
    NONE = "none"
    """Nothing is corrected, as the query declares."""
