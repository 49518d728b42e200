"""Who asks: the user of a request's token, remembered for a second, so that a token costs a look-up once a second.

A token that is revoked is therefore refused within a second. Tokens are remembered by their digests alone.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from http import HTTPStatus

from errata.clock import Clock
from errata.model.access import AccessUser
from errata.model.time import SECOND
from errata.psoup.http.limits import RequestAllowance
from errata.psoup.http.problems import RequestError

REMEMBERED_MICROS = SECOND
"""Microseconds for which the user of a token, or that there is none, is remembered."""

REMEMBERED_TOKENS = 10_000
MAX_TOKEN_LETTERS = 200

FindUser = Callable[[str], Awaitable[AccessUser | None]]


class AccessControl:
    """Identifies the users of requests and counts their requests. Used by one thread: the server's event loop."""

    def __init__(self, clock: Clock, find: FindUser) -> None:
        self._clock = clock
        self._find = find
        self._known: OrderedDict[bytes, tuple[AccessUser | None, int]] = OrderedDict()
        self._allowance = RequestAllowance(clock)

    async def admit(self, authorization: str | None) -> AccessUser:
        """The user of the request, whose allowance it is counted in."""
        user = await self.identify(authorization)
        if (seconds := self._allowance.take(user)) is not None:
            raise RequestError(
                HTTPStatus.TOO_MANY_REQUESTS,
                f"{user.name} has sent more than {user.quota.rate} requests in a second",
                headers={"Retry-After": str(seconds)},
                why="that is the user's quota",
                how="send it again after the seconds in Retry-After, or ask for a token with a higher quota",
            )
        return user

    async def identify(self, authorization: str | None) -> AccessUser:
        """The user of the token in the header, without counting."""
        scheme, _, token = (authorization or "").partition(" ")
        token = token.strip()
        if scheme.lower() != "bearer" or not token or len(token) > MAX_TOKEN_LETTERS:
            raise _unauthorized("the request has no token")
        user = await self._user(token)
        if user is None:
            raise _unauthorized("the token is unknown or revoked")
        return user

    async def _user(self, token: str) -> AccessUser | None:
        key, now = hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest(), self._clock.now()
        found = self._known.get(key)
        if found is not None and 0 <= now - found[1] < REMEMBERED_MICROS:
            return found[0]
        user = await self._find(token)
        self._known[key] = (user, now)
        self._known.move_to_end(key)
        if len(self._known) > REMEMBERED_TOKENS:
            self._known.popitem(last=False)
        return user


def _unauthorized(what: str) -> RequestError:
    return RequestError(
        HTTPStatus.UNAUTHORIZED,
        what,
        where="the header Authorization",
        headers={"WWW-Authenticate": "Bearer"},
        how="`errata token create USER` makes one; send it as `Authorization: Bearer errata_…`",
    )
