"""Why a job ended, from what it said."""

from __future__ import annotations

import re
from collections.abc import Iterable

TAIL = 40
"""Lines of a job's output in which its reason is looked for."""

_DETAIL = re.compile(r"\s*(why|where|how to mend)\b.*")


def reason(lines: Iterable[str]) -> str:
    """Of a job's output the sentence that it ended with, and what goes with it: why, where, how to mend."""
    found: list[str] = []
    for line in reversed([each for each in lines if each.strip()]):
        found.append(line.strip())
        if not _DETAIL.match(line):
            break
    return "\n".join(reversed(found))
