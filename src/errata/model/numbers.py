"""Whole numbers as people write them: of a length that everything behind can hold."""

from __future__ import annotations

from errata.errors import UsageError

DIGITS = 18
"""Digits of the longest whole number that is read from a declaration, a query or the command line: any number of so
many is within a bigint, and in Python far from what it refuses to read."""

SHOWN = 40
"""Letters of a text that is no number which a message repeats."""


def whole(digits: str) -> int:
    """The number that a run of digits is, leading zeros aside."""
    kept = digits.lstrip("0")
    if len(kept) > DIGITS:
        raise UsageError(
            f"{digits[:SHOWN]}{'…' if len(digits) > SHOWN else ''} has {len(kept):,} digits",
            how=f"a number has {DIGITS} digits at most",
        )
    return int(kept or "0")
