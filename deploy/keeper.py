"""Keeps services at work: one that ends is started again after a pause, and it is told; within bounds, beyond which all
ends.

Most of Airflow's services end when their database has been away for some seconds. They are started again as soon as it
answers, and such an end does not count: only a service that ends again and again although its database answers is given
up.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable

from deploy.database import NAME as DATABASE
from deploy.processes import Children, ProcessEnded

TRIES = 5
"""A service that ends more often than this, each time soon after its start, is given up."""

SOON_SECONDS = 60.0
"""A service that has run for so long was well, and what came before is forgotten."""

AWAY_SECONDS = 600.0
"""When the database has not answered for so long, all is given up."""


class Keeper:
    """What has ended, and when it is to be started again. The pauses are of 1, 2, 4, 8 and 16 seconds."""

    def __init__(
        self,
        children: Children,
        database_answers: Callable[[], bool],
        say: Callable[[str], None],
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._children, self._database_answers, self._say, self._now = children, database_answers, say, now
        self._due: dict[str, float] = {}
        self._started: dict[str, float] = {}
        self._soon: Counter[str] = Counter()
        """How often a service has ended soon after its start, one time after the other."""
        self._away: float | None = None
        """Since when the database has not answered."""

    def keep(self) -> None:
        """Start again what has ended and is due; fail when something keeps ending, or the database stays away."""
        ended = self._children.take_ended()
        if not ended and not self._due and self._away is None:
            return
        answers = self._look_for_database()
        for name, reason in ended.items():
            self._due[name] = self._now() + self._pause(name, reason, answers=answers)
        due = [name for name, moment in self._due.items() if moment <= self._now() and (answers or name == DATABASE)]
        for name in due:
            self._children.start_again(name)
            del self._due[name]
            self._started[name] = self._now()
            self._say(f"{name} is started again")

    def forget(self, name: str) -> None:
        """Do not start a service again, since somebody stops it or starts it himself."""
        self._due.pop(name, None)

    def _pause(self, name: str, reason: ProcessEnded, *, answers: bool) -> float:
        """How long to wait before a service is started again, told to whoever looks on."""
        ended = reason.what.splitlines()[0]
        if not answers and name != DATABASE:
            self._say(f"{ended}; it is started again when PostgreSQL answers")
            return 0
        lived = self._now() - self._started.get(name, float("-inf"))
        self._soon[name] = self._soon[name] + 1 if lived < SOON_SECONDS else 1
        if self._soon[name] > TRIES:
            raise ProcessEnded(f"{name} ends again and again, {TRIES} times since it was well. {reason.what}")
        pause = 2.0 ** (self._soon[name] - 1)
        self._say(f"{ended}; it is started again in {pause:g} s")
        return pause

    def _look_for_database(self) -> bool:
        if self._database_answers():
            if self._away is not None:
                self._say(f"PostgreSQL answers again, after {self._now() - self._away:.0f} s")
            self._away = None
            return True
        if self._away is None:
            self._away = self._now()
            self._say("PostgreSQL does not answer")
        if self._now() - self._away > AWAY_SECONDS:
            raise ProcessEnded(f"PostgreSQL has not answered for {AWAY_SECONDS / 60:.0f} minutes")
        return False
