"""How many of a thing, in words, for messages of every room."""

from __future__ import annotations


def count_text(count: int, thing: str, things: str | None = None) -> str:
    """'1 row', '2,000 rows', 'no rows'."""
    return f"{count:,} {thing if count == 1 else things or thing + 's'}" if count else f"no {things or thing + 's'}"
