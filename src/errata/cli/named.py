"""Columns and their values in one argument: 'symbol=IBM,venue=NYSE'."""

from __future__ import annotations

import re

from errata.errors import UsageError

_NEXT_NAME = re.compile(r",(?=\s*[A-Za-z_][A-Za-z0-9_.]*=)")


def named_values(text: str, what: str, example: str) -> dict[str, str]:
    """The values by column; a value may have commas that no other name follows."""
    values: dict[str, str] = {}
    for part in _NEXT_NAME.split(text):
        name, equals, value = part.partition("=")
        name = name.strip()
        if not equals or not name:
            raise UsageError(f"{text!r} names no {what}", how=f"write {example}")
        if name in values:
            raise UsageError(f"{text!r} names {name} twice", how=f"write {example}")
        values[name] = value
    return values
