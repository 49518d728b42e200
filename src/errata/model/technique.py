"""The techniques by which results that revisions touch are recomputed (replay-revisions, 2008, sections 2.1 and 3.2).

They are a module of their own, and light, since the command line, jobs and the Airflow page name them."""

from __future__ import annotations

from enum import StrEnum


class Technique(StrEnum):
    """How results that revisions touch are recomputed."""

    AUTO = "auto"
    """The one with the least expected cost."""
    ALL = "all"
    """All rows of the touched groups are replayed."""
    MINIMAL = "minimal"
    """Only rows that make touched results are replayed."""
    DIRECT = "direct"
    """Published results are adjusted by the revisions, and no row is replayed."""
    NONE = "none"
    """Nothing is corrected, as the query declares."""
