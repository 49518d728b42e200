"""Following over HTTP: server-sent events, one for each commit that has changed the answer.

    retry: 1000                      after how many milliseconds a browser comes back
    event: held    {"consumer", …}   first, to a named consumer: what it has acknowledged, and until when that is held
    event: answer  id: 11            the whole answer: replaces what the client has
    event: change  id: 14            the rows added and gone
    event: position  id: 20          from time to time: nothing has changed up to this commit
    event: error                     a problem, and the end
    :                                a sign of life

The id is the commit. A client that comes back sends the last one as Last-Event-ID, and misses and repeats nothing:
see `psoup/following.py`. A stream ends when the token is revoked or the query is gone.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus

from errata.errors import ErrataError
from errata.model.access import AccessUser, AnswerConsumer
from errata.model.time import format_instant
from errata.psoup.answer_text import json_change
from errata.psoup.following import Answer, AnswerChange, AnswerFollower
from errata.psoup.http.problems import RequestError, problem_of
from errata.psoup.http.service import QueryService, unknown_handle

ALIVE_SECONDS = 15.0
"""Seconds without a change after which a sign of life is sent, and the token and the query are looked at again."""

RETRY = b"retry: 1000\n\n"


@dataclass(frozen=True, slots=True)
class SourceHistory:
    """The answers of one query as a follower reads them; those that others follow, too, are worked out once."""

    service: QueryService
    handle: str

    def newest_commit(self) -> int:
        return self.service.source.newest_commit()

    def next_commit(self, after: int, up_to: int) -> int | None:
        return self.service.source.next_commit(self.handle, after, up_to)

    def is_readable(self, commit_id: int) -> bool:
        return self.service.source.is_readable(self.handle, commit_id)

    def answer(self, commit_id: int) -> Answer:
        return self.service.followed_answer(self.handle, commit_id)


class FollowerCount:
    """How many followers there are, of each user and in all."""

    def __init__(self, service: QueryService) -> None:
        self._limits = service.limits
        self._of: Counter[str] = Counter()

    @contextmanager
    def one_more(self, user: AccessUser) -> Iterator[None]:
        """Count one until the block ends."""
        self.check(user)
        self._of[user.name] += 1
        try:
            yield
        finally:
            self._of[user.name] -= 1

    def check(self, user: AccessUser) -> None:
        """Raise if the user, or the service, has as many followers as it may."""
        if self._of[user.name] >= self._limits.user_followers or self._of.total() >= self._limits.followers:
            raise RequestError(
                HTTPStatus.TOO_MANY_REQUESTS,
                f"{user.name} follows {self._of[user.name]} answers, and {self._of.total()} are followed in all",
                headers={"Retry-After": "10"},
                why=f"a user may follow {self._limits.user_followers} at once, and all {self._limits.followers}",
                how="end one that is not needed",
            )


@dataclass(frozen=True, slots=True)
class FollowRequest:
    """Who follows which answer, from where on."""

    user: AccessUser
    handle: str
    after: int | None
    """The last commit whose change the client has; None: it has nothing yet."""
    consumer: AnswerConsumer | None
    admit: Callable[[], Awaitable[AccessUser]]
    """Raises once the token is revoked."""


async def follow_events(service: QueryService, asked: FollowRequest) -> AsyncIterator[bytes]:
    """The events, until the client goes."""
    follower = AnswerFollower(SourceHistory(service, asked.handle), asked.after)
    told = 0 if asked.after is None else asked.after
    yield RETRY
    if asked.consumer is not None:
        yield consumer_event(asked.consumer)
    try:
        while True:
            changes = follower.changes()
            while (event := await service.compute(partial(_next_event, changes))) is not None:
                told, text = event
                yield text
            if not await service.commits.wait_beyond(follower.position, ALIVE_SECONDS):
                yield b":\n\n" if told == follower.position else position_event(follower.position)
                told = follower.position
            await asked.admit()
            if await service.look(lambda: service.source.find(asked.handle)) is None:
                raise unknown_handle(asked.handle)
    except ErrataError as error:
        yield _event("error", bytes(problem_of(error).body))


def _next_event(changes: Iterator[AnswerChange]) -> tuple[int, bytes] | None:
    """The next change's commit and event; None if there is none now."""
    change = next(changes, None)
    return None if change is None else (change.answer.commit_id, change_event(change))


def change_event(change: AnswerChange) -> bytes:
    """A change as an event."""
    return _event("answer" if change.whole else "change", json_change(change), change.answer.commit_id)


def position_event(commit_id: int) -> bytes:
    """An event that nothing has changed up to the commit."""
    return _event("position", json.dumps({"commit": commit_id}).encode(), commit_id)


def consumer_event(consumer: AnswerConsumer) -> bytes:
    """What a consumer has acknowledged, and until when that is held."""
    return _event("held", json.dumps(consumer_record(consumer)).encode())


def consumer_record(consumer: AnswerConsumer) -> dict[str, object]:
    """A consumer as JSON has it."""
    return {
        "consumer": consumer.name,
        "acknowledged": consumer.acknowledged,
        "held_until": format_instant(consumer.held_until),
    }


def _event(name: str, data: bytes, commit_id: int | None = None) -> bytes:
    head = f"id: {commit_id}\nevent: {name}\n" if commit_id is not None else f"event: {name}\n"
    return head.encode() + b"data: " + data + b"\n\n"
