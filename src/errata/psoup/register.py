"""Registering queries: texts are read, checked and recorded together, by one commit; and unregistering them."""

from __future__ import annotations

import base64
import re
import secrets
from collections.abc import Sequence

from errata.catalog import registered, streams
from errata.catalog.answer_consumers import drop_consumers
from errata.catalog.registered import NewRegistration, StreamsConflict
from errata.catalog.transaction import give_up, optimistic
from errata.declare.site import Site
from errata.errors import ErrataError, UsageError
from errata.language.registered.read import read_registered
from errata.model.registered import HANDLE, RegisteredPlan, RegisteredQuery, ResultStrategy
from errata.psoup.windows import check_retention

HANDLE_BYTES = 10
"""Random bytes of a handle: 80 bits, written as 16 letters and digits."""

MAX_TEXTS = 100_000
"""Texts that one registration takes."""


_PIECE = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|`[^`]*`|--[^\n]*|/\*.*?\*/|;|[^'"`;/-]+|.""", re.DOTALL)
"""What a semicolon cannot end: strings, quoted names and comments."""


def split_texts(text: str) -> list[str]:
    """The queries of a text, each ended by a semicolon; the last one's may be missing."""
    texts, pieces = [], list[str]()
    for piece in [*_PIECE.findall(text), ";"]:
        if piece != ";":
            pieces.append(piece)
            continue
        if any(each.strip() and not each.startswith(("--", "/*")) for each in pieces):
            texts.append("".join(pieces).strip())
        pieces = []
    return texts


def new_handle() -> str:
    """A handle that nobody has or guesses."""
    return base64.b32encode(secrets.token_bytes(HANDLE_BYTES)).decode().lower()


def check_handle(text: str) -> str:
    """The handle that a text is; refuse what cannot be one."""
    handle = text.strip().lower()
    if HANDLE.fullmatch(handle) is None:
        raise UsageError(
            f"{text[:40]!r} is not a handle",
            why="a handle has 16 letters and digits from a to z and 2 to 7",
            how="`errata query list` shows the handles there are",
        )
    return handle


def register(
    site: Site, texts: Sequence[str], *, owner: str, strategy: ResultStrategy = ResultStrategy.PARTIAL
) -> list[RegisteredQuery]:
    """Register queries, all of them or none; they come back in the order of the texts."""
    if not texts:
        return []
    if len(texts) > MAX_TEXTS:
        raise UsageError(f"{len(texts):,} texts are too many for one registration", how=f"{MAX_TEXTS:,} are the most")
    return optimistic(
        lambda _: _register(site, texts, owner, strategy),
        give_up("run has changed the streams while the queries were being registered", "register them again"),
        on=StreamsConflict,
    )


def _register(site: Site, texts: Sequence[str], owner: str, strategy: ResultStrategy) -> list[RegisteredQuery]:
    states = {each.stream.name: each for each in streams.stream_states(site.catalog)}
    declared = {name: each.stream for name, each in states.items()}
    read: dict[str, RegisteredPlan] = {}
    for number, text in enumerate(texts, 1):
        if text in read:
            continue
        where = "the query" if len(texts) == 1 else f"query {number}"
        plan = read_registered(text, declared, where=where)
        check_retention(plan, [states[each.stream] for each in plan.sources], where)
        read[text] = plan
    used = {source.stream for plan in read.values() for source in plan.sources}
    wanted = [NewRegistration(new_handle(), text, read[text], strategy) for text in texts]
    numbers = registered.record_registrations(
        site.catalog, site.caused_by("register"), owner, wanted, {name: states[name].stream_id for name in used}
    )
    return registered.registrations_by_number(site.catalog, numbers)


def unregister(site: Site, handle: str, owner: str | None = None) -> int:
    """Unregister a query, and return the commit; with an owner only one of theirs."""
    given = check_handle(handle)
    commit_id = registered.record_unregistered(site.catalog, site.caused_by("unregister"), given, owner)
    if commit_id is None:
        raise unknown_handle_error(site, given)
    drop_consumers(site.catalog, given)  # after a kill in between, what they hold is let go at their deadlines
    return commit_id


def set_strategy(site: Site, handle: str, strategy: ResultStrategy, owner: str | None = None) -> int:
    """Change what is kept for a query, and return the commit; with an owner only one of theirs. Answers stay the
    same."""
    given = check_handle(handle)
    cause = site.caused_by("strategy")
    commit_id = optimistic(
        lambda _: registered.record_strategy(site.catalog, cause, given, strategy, owner),
        give_up("the query has been unregistered meanwhile", "`errata query list` shows the handles there are"),
        on=StreamsConflict,
    )
    if commit_id is None:
        raise unknown_handle_error(site, given)
    drop_consumers(site.catalog, given)  # after a kill in between, what they hold is let go at their deadlines
    return commit_id


def registered_queries(site: Site, owner: str | None = None) -> list[RegisteredQuery]:
    """The queries in force, in the order in which they were registered; of one owner only, if given."""
    return registered.live_registrations(site.catalog, owner)


def find_query(site: Site, handle: str) -> RegisteredQuery:
    """The query in force with a handle."""
    given = check_handle(handle)
    found = registered.registration(site.catalog, given)
    if found is None:
        raise unknown_handle_error(site, given)
    return found


def unknown_handle_error(site: Site, handle: str) -> ErrataError:
    """The error for a handle that no query in force has."""
    removed_in = registered.removed_since(site.catalog, handle)
    if removed_in is not None:
        what = f"the query with handle {handle} was unregistered in commit {removed_in}"
        return UsageError(what, how="register it again for a new handle")
    return UsageError(f"no query has handle {handle}", how="`errata query list` shows the handles there are")
