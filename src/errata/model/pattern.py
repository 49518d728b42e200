"""How results come and go: the update patterns of Golab and Özsu (2005, 3.1), and one more."""

from __future__ import annotations

from enum import StrEnum


class Pattern(StrEnum):
    """The update pattern of an edge in a plan, the simplest first."""

    MONOTONIC = "MON"
    """Results are only ever added."""
    WEAKEST = "WKS"
    """Results expire in the order in which they came, each after the same span."""
    WEAK = "WK"
    """Each result's end is known when it comes, but they do not expire in the order in which they came."""
    KEYED = "KEYED"
    """A result ends when the next one of its key comes; nobody knows yet when that will be."""
    STRICT = "STR"
    """Some results end at moments that nobody can foretell."""

    @property
    def shown(self) -> str:
        """As the paper abbreviates it; keyed results are its weak ones (rule 4)."""
        return "WK" if self is Pattern.KEYED else self.value

    @property
    def rank(self) -> int:
        """How complex it is, from 0."""
        return list(Pattern).index(self)
