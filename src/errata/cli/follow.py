"""`errata invoke --follow`: the changes of an answer, a line of JSON each, until Ctrl-C.

A line is written out before its commit is acknowledged for a named consumer. A consumer that is killed between the two
gets that line again, with the same commit: who stores the commit with the rows sees that, and has each change once.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass

from errata.cli.console import print_message
from errata.declare.site import Site
from errata.errors import UsageError
from errata.model.access import check_access_name
from errata.model.time import format_instant
from errata.psoup.answer_text import json_change
from errata.psoup.following import Answer, AnswerFollower
from errata.psoup.query_source import QuerySource
from errata.psoup.reader import RegisteredReader
from errata.psoup.register import find_query
from errata.psoup.site_source import SiteSource

POLL_SECONDS = 0.5
"""Seconds between two looks for new commits."""


@dataclass(frozen=True, slots=True)
class SourceAnswers:
    """The answers of one query as a follower reads them."""

    source: QuerySource
    handle: str

    def newest_commit(self) -> int:
        return self.source.newest_commit()

    def next_commit(self, after: int, up_to: int) -> int | None:
        return self.source.next_commit(self.handle, after, up_to)

    def is_readable(self, commit_id: int) -> bool:
        return self.source.is_readable(self.handle, commit_id)

    def answer(self, commit_id: int) -> Answer:
        return self.source.invoke(self.handle, None, commit_id)


def follow_answer(site: Site, handle: str, after: int | None, consumer: str | None) -> None:
    """Write the changes behind a commit, or behind what the consumer has acknowledged, and those to come."""
    handle = find_query(site, handle).handle
    with RegisteredReader(site) as reader:
        source = SiteSource(site, reader)
        if after is not None and after > (newest := source.newest_commit()):
            raise UsageError(f"there is no commit {after}", how=f"commits are 1 to {newest}")
        if consumer is not None:
            check_access_name("consumer", consumer)
            opened = source.open_consumer(handle, consumer)
            after = opened.acknowledged if after is None else after
            print_message(f"{consumer}: what it has still to read is held until {format_instant(opened.held_until)}")
        _follow(source, handle, AnswerFollower(SourceAnswers(source, handle), after), consumer)


def _follow(source: SiteSource, handle: str, follower: AnswerFollower, consumer: str | None) -> None:
    while True:
        for change in follower.changes():
            sys.stdout.write(json_change(change).decode() + "\n")
            sys.stdout.flush()
            if consumer is not None:
                source.acknowledge(handle, consumer, change.answer.commit_id)
        if consumer is not None and follower.position:  # commits that have changed nothing need not be held either
            source.acknowledge(handle, consumer, follower.position)
        while source.newest_commit() <= follower.position:
            _pause()
        if source.find(handle) is None:
            raise UsageError(f"the query with handle {handle} was unregistered", how="register it again")


def _pause() -> None:
    """Wait before the next look."""
    time.sleep(POLL_SECONDS)
