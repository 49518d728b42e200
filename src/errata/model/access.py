"""Who may ask over HTTP, and how much: names of users, their quotas, and tokens as they are listed."""

from __future__ import annotations

import re
from dataclasses import dataclass

from errata.errors import UsageError

DEFAULT_QUERIES = 10_000
"""Queries that a user may have registered at once, unless a token of theirs was made with another quota."""

DEFAULT_RATE = 1_000
"""Requests that a user may send in a second, unless a token of theirs was made with another quota."""

_ACCESS_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")


@dataclass(frozen=True, slots=True)
class UserQuota:
    """What a user may have and do at most."""

    queries: int = DEFAULT_QUERIES
    rate: int = DEFAULT_RATE
    """Requests in a second."""


@dataclass(frozen=True, slots=True)
class AccessUser:
    """A user whom a token has identified."""

    name: str
    quota: UserQuota


@dataclass(frozen=True, slots=True)
class AccessToken:
    """A token as it is listed: never the secret."""

    token_id: int
    user: AccessUser
    created_at: int
    revoked_at: int | None


@dataclass(frozen=True, slots=True)
class AnswerConsumer:
    """How far a named consumer has come with the answers of a registered query."""

    handle: str
    name: str
    acknowledged: int | None
    """The last commit whose change it has stored; None: none yet."""
    held_until: int
    """Until then that commit stays readable."""


def check_access_name(kind: str, name: str) -> None:
    """Refuse a name of a user or a consumer that could be mistaken in a log, an address or on the command line."""
    if not _ACCESS_NAME.fullmatch(name):
        raise UsageError(
            f"{name[:64]!r} cannot be the name of a {kind}",
            how="a name begins with a letter or digit and has letters, digits and . _ @ -, 64 at most",
        )
