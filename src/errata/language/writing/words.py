"""Names as the text of a query writes them."""

from __future__ import annotations

import re
from collections.abc import Iterable

from sqlglot.dialects.spark import Spark

_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
_KEYWORDS = frozenset(word.lower() for word in Spark.Tokenizer.KEYWORDS) | frozenset(("window", "event_time"))
_HARMLESS = frozenset(("time", "date", "timestamp", "source", "key", "value", "first", "last", "name", "n", "number"))
"""Words that mean something to SQL, and are names wherever a name can be."""


def quoted(name: str) -> str:
    """A name, in backticks if it would be read as something else."""
    folded = name.lower()
    if _PLAIN.fullmatch(name) and (folded in _HARMLESS or folded not in _KEYWORDS):
        return name
    return f"`{name.replace('`', '``')}`"


def is_name(name: str) -> bool:
    """Whether it is a name that a column can have in a query's result."""
    return _PLAIN.fullmatch(name) is not None and len(name) <= 63


def distinct_name(wanted: str, taken: Iterable[str]) -> str:
    """A valid name like the wanted one that is not taken."""
    used = {each.lower() for each in taken}
    base = re.sub(r"\W+", "_", wanted, flags=re.ASCII).strip("_")[:50]
    base = base if _PLAIN.fullmatch(base) else f"c_{base}".rstrip("_")
    name, number = base, 1
    while name.lower() in used:
        number += 1
        name = f"{base}_{number}"
    return name
