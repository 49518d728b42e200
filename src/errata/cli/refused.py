"""Corrections that results cannot take up, in words."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from errata.model.evaluation import Refusal
from errata.serve.words import counted


def refusals_of(name: str, refused: Iterable[Refusal]) -> Iterator[str]:
    """Corrections that a query cannot take up, in words."""
    for each in refused:
        numbers = str(each.first) if each.first == each.last else f"{each.first} to {each.last}"
        some = f"{counted(each.count, 'correction')} of {each.source} ({numbers})"
        yield f"{name}: {some} cannot be taken up: {each.reason}"
