"""Limits of the HTTP interface, and the allowance of requests that each user has.

An allowance is a bucket of tokens: a request takes one, and `rate` come back in a second, up to a second's worth. It is
kept in this process: two servers of one project give a user two allowances.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from errata.clock import Clock
from errata.model.access import AccessUser
from errata.model.time import SECOND

MAX_PAGE_ROWS = 10_000
DEFAULT_PAGE_ROWS = 1_000
"""Rows of an answer in one page, at most and unless another number is asked for."""

MAX_LISTED = 1_000
DEFAULT_LISTED = 100
"""Queries in one page of a list, at most and unless another number is asked for."""


@dataclass(frozen=True, slots=True)
class ServiceLimits:
    """What a request, and what the service as a whole, may have at most."""

    body_bytes: int = 8 << 20
    text_letters: int = 20_000
    texts: int = 10_000
    """Queries that one request may register."""
    followers: int = 1_000
    user_followers: int = 100
    invoking_threads: int = 2
    """Answers that are worked out at the same time."""
    stale_seconds: float = 1.0
    """Seconds after a commit for which an answer as of the one before may still be sent, while the new one is worked
    out. A request with `Cache-Control: no-cache` waits for the new one."""
    cache_bytes: int = 64 << 20
    """Bytes of answers and pages that are kept while no commit changes them."""


class RequestAllowance:
    """How many requests each user may still send. Used by one thread: the server's event loop."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._left: dict[str, tuple[float, int]] = {}
        """Of each user, the requests that were left, and when."""

    def take(self, user: AccessUser) -> int | None:
        """Take one request; None if there was one, else the whole seconds until there is one."""
        rate, now = user.quota.rate, self._clock.now()
        left, since = self._left.get(user.name, (float(rate), now))
        left = min(float(rate), left + max(0, now - since) * rate / SECOND)
        if left < 1.0:
            self._left[user.name] = (left, now)
            return math.ceil((1.0 - left) / rate)
        self._left[user.name] = (left - 1.0, now)
        return None
