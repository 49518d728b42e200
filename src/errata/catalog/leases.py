"""Leases: who is at work on what, so that no two do the same work.

A lease is a courtesy: what keeps results right is that each commit looks whether its basis still stands. So a lease may
be taken from a holder that seems to be dead and is not; then one of the two works in vain.

Its life: a lease lasts TERM, and its holder renews it three times as often. It is free again when its holder gives it
back, when the term is over, or at once when the kernel says that the holder's process is dead, which only who runs
beside it can ask. Of any other holder nothing is known but whether it renews: who finds a lease held waits to see that,
for a term at most, and then has the lease or knows that its holder lives. Beside a clock that is wrong, that is looked
at by the time that passes here.

    taken ── renewed ── renewed ──────── given back        row deleted, word is sent to those who wait
      └───── renewed ── killed ── TERM ── taken by the next one, with a greater fence
                          └─ at once, on the same machine
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, delete, insert, select, update
from sqlalchemy.exc import IntegrityError

from errata.catalog import commits
from errata.catalog.database import Catalog
from errata.catalog.processes import Liveness, ProcessIdentity, this_process
from errata.catalog.tables import leases
from errata.errors import ErrataError
from errata.model.time import SECOND, format_instant

LEASE_MICROS = 30 * SECOND
"""Microseconds that a lease lasts unless it is renewed: as long as a holder that died elsewhere is waited for."""

LEASE_POLL_SECONDS = 0.5
"""Seconds between two looks at a lease that is waited for."""

WAIT_MESSAGE_SECONDS = 30.0
"""Seconds between two messages that a lease is still waited for."""

_RETRY_SECONDS = 1.0
"""Seconds between two tries to give a lease back to a catalog that does not answer."""


@dataclass(frozen=True, slots=True)
class LeaseHolder:
    """Who holds a lease."""

    name: str
    owner: str
    """The task for which it is held, as `Cause.owner` tells it; empty where somebody works by hand."""
    since: int
    until: int
    process: ProcessIdentity
    token: str
    """Tells this holding from every other one."""

    @property
    def life(self) -> Liveness:
        """Whether the holder is alive."""
        return self.process.life

    @property
    def words(self) -> str:
        """For a person: who it is, and since when."""
        who = f"{self.owner} ({self.process.words})" if self.owner else self.process.words
        return f"{who}, since {format_instant(self.since)[:19]}"


@dataclass(frozen=True, slots=True)
class WaitPolicy:
    """How long a lease is waited for whose holder is alive, and who is told."""

    seconds: float = 0.0
    tell: Callable[[str], None] = lambda _: None


@dataclass
class Lease:
    """A lease that was asked for: ours until the block ends, or somebody else's."""

    name: str
    by: LeaseHolder | None = None
    """Who has it instead."""
    lost: bool = False
    """Whether it has been taken from us since: what we do may be done by somebody else, too."""
    ends: float = 0.0
    """When it ends unless it is renewed, by this machine's monotonic clock."""
    token: str = field(default_factory=lambda: uuid.uuid4().hex)

    @property
    def ours(self) -> bool:
        """Whether it could be had."""
        return self.by is None


@contextmanager
def hold_lease(catalog: Catalog, name: str, owner: str = "", patience: WaitPolicy | None = None) -> Iterator[Lease]:
    """The lease, if it could be had; it is given back when the block ends, and renewed until then."""
    lease = Lease(name)
    lease.by = _wait_for_lease(catalog, lease, owner, patience or WaitPolicy())
    if not lease.ours:
        yield lease
        return
    with _renewal(catalog, [lease]):
        yield lease


@contextmanager
def hold_free_leases(catalog: Catalog, names: Sequence[str], owner: str = "") -> Iterator[Mapping[str, Lease]]:
    """Those of the leases that are free, by name, taken and given back in one transaction each. The others are left
    out: whoever wants to wait for one asks for it alone."""
    asked = [Lease(name) for name in sorted(names)]
    taken = time.monotonic()
    try:
        with catalog.writing() as connection:
            found = _take_free(connection, catalog, asked, owner)
    except IntegrityError:  # somebody else has just taken one
        yield {}
        return
    for each in found:
        each.ends = taken + LEASE_MICROS / SECOND
    with _renewal(catalog, found):
        yield {each.name: each for each in found}


def _take_free(connection: Connection, catalog: Catalog, asked: Sequence[Lease], owner: str) -> list[Lease]:
    """Take those that nobody has had, all at once, and those that are free again."""
    names = [each.name for each in asked]
    known = set(connection.execute(select(leases.c.name).where(leases.c.name.in_(names))).scalars())
    new = [each for each in asked if each.name not in known]
    if new:
        connection.execute(insert(leases), [_lease_values(catalog, each, owner) | {"fence": 1} for each in new])
    return [
        *new,
        *(each for each in asked if each.name in known and not _take_within(connection, catalog, each, owner, "")),
    ]


@contextmanager
def _renewal(catalog: Catalog, held: Sequence[Lease]) -> Iterator[None]:
    """Renew leases until the block ends, and give them back then."""
    if not held:
        yield
        return
    done = threading.Event()
    name = f"lease {held[0].name}" + ("" if len(held) == 1 else f" and {len(held) - 1} more")
    heart = threading.Thread(target=_renew_until_done, args=(catalog, held, done), name=name, daemon=True)
    heart.start()
    try:
        yield
    finally:
        done.set()
        # It may be waiting for a catalog that is away; what it would renew then is not there any more.
        heart.join(LEASE_POLL_SECONDS)
        _return_own(catalog, held)


def return_lease(catalog: Catalog, lease: Lease) -> None:
    """Give one of several leases that are held together back before the others."""
    lease.lost = True
    _return_own(catalog, [lease])


def release_owned(catalog: Catalog, owner: str) -> list[str]:
    """Give back all that is held for a task that has been killed; what nobody told the owner of stays. The names of the
    leases."""
    return [] if not owner else _return_where(catalog, leases.c.owner == owner)


def revoke_lease(catalog: Catalog, holder: LeaseHolder) -> bool:
    """Give back a lease for its holder; whether it still had it."""
    return bool(_return_where(catalog, (leases.c.name == holder.name) & (leases.c.holder == holder.token)))


def list_holders(catalog: Catalog) -> list[LeaseHolder]:
    """All leases that last, by name, also those of dead holders that nobody has asked for since."""
    query = select(leases).where(leases.c.expires_at > catalog.clock.now()).order_by(leases.c.name)
    with catalog.reading() as connection:
        return [_holder_from_row(row) for row in connection.execute(query)]


def living_lease_names(catalog: Catalog) -> set[str]:
    """The names of the leases that keep others from the work."""
    return {each.name for each in list_holders(catalog) if each.life is not Liveness.DEAD}


def _holder_from_row(row: Row[Any]) -> LeaseHolder:
    return LeaseHolder(row.name, row.owner, row.since, row.expires_at, ProcessIdentity.of(row.process), row.holder)


def _wait_for_lease(catalog: Catalog, lease: Lease, owner: str, patience: WaitPolicy) -> LeaseHolder | None:
    """Take the lease, now or when it has been waited for; else who has it and is alive."""
    began = heard = time.monotonic()
    told = -WAIT_MESSAGE_SECONDS
    seen: LeaseHolder | None = None
    alive = False
    while True:
        silent = seen.token if seen is not None and time.monotonic() - heard >= LEASE_MICROS / SECOND else ""
        other = _try_lease(catalog, lease, owner, silent)
        if other is None:
            return None
        now = time.monotonic()
        if seen is None or (other.token, other.until) != (seen.token, seen.until):
            alive = seen is not None or other.life is Liveness.LIVING
            seen, heard = other, now
        waited = now - began
        if alive and waited >= patience.seconds:
            return other
        if waited - told >= WAIT_MESSAGE_SECONDS:
            told = waited
            patience.tell(_wait_message(other, alive=alive))
        time.sleep(LEASE_POLL_SECONDS if alive else min(LEASE_POLL_SECONDS, LEASE_MICROS / SECOND / 10))


def _wait_message(holder: LeaseHolder, *, alive: bool) -> str:
    if alive:
        return f"{holder.name}: waiting for {holder.words}"
    return (
        f"{holder.name}: held by {holder.words}; waiting up to {LEASE_MICROS // SECOND} seconds to see "
        "whether that is alive"
    )


def _try_lease(catalog: Catalog, lease: Lease, owner: str, silent: str) -> LeaseHolder | None:
    """Take the lease if it is free; else who has it. `silent`: the token of one who has not renewed it for a term."""
    with catalog.reading() as connection:
        row = connection.execute(select(leases).where(leases.c.name == lease.name)).first()
    if row is not None and not _is_free(catalog, row, silent):
        return _holder_from_row(row)
    taken = time.monotonic()
    try:
        found = _take_lease(catalog, lease, owner, silent)
    except IntegrityError:  # somebody else has just taken it
        return _try_lease(catalog, lease, owner, silent)
    lease.ends = taken + LEASE_MICROS / SECOND
    return found


def _is_free(catalog: Catalog, row: Row[Any], silent: str) -> bool:
    return row.expires_at <= catalog.clock.now() or row.holder == silent or _holder_from_row(row).life is Liveness.DEAD


def _take_lease(catalog: Catalog, lease: Lease, owner: str, silent: str) -> LeaseHolder | None:
    with catalog.writing() as connection:
        return _take_within(connection, catalog, lease, owner, silent)


def _take_within(connection: Connection, catalog: Catalog, lease: Lease, owner: str, silent: str) -> LeaseHolder | None:
    row = connection.execute(select(leases).where(leases.c.name == lease.name).with_for_update()).first()
    if row is not None and not _is_free(catalog, row, silent):
        return _holder_from_row(row)
    values = _lease_values(catalog, lease, owner)
    if row is None:
        connection.execute(insert(leases).values(values | {"fence": 1}))
    else:
        more = values | {"fence": row.fence + 1}
        connection.execute(update(leases).where(leases.c.name == lease.name).values(more))
    return None


def _lease_values(catalog: Catalog, lease: Lease, owner: str) -> dict[str, Any]:
    now = catalog.clock.now()
    return {
        "name": lease.name,
        "holder": lease.token,
        "expires_at": now + LEASE_MICROS,
        "since": now,
        "owner": owner,
        "process": this_process().record(),
    }


def _return_own(catalog: Catalog, held: Sequence[Lease]) -> None:
    """Give leases back; a catalog that is away is asked again until they have run out by themselves."""
    while True:
        try:
            _return_where(catalog, leases.c.holder.in_([each.token for each in held]))
        except ErrataError:
            if time.monotonic() >= max(each.ends for each in held):
                return
            time.sleep(min(_RETRY_SECONDS, LEASE_MICROS / SECOND / 10))
        else:
            return


def _return_where(catalog: Catalog, which: ColumnElement[bool]) -> list[str]:
    with catalog.writing() as connection:
        gone: Iterable[str] = connection.execute(delete(leases).where(which).returning(leases.c.name)).scalars().all()
        if gone:
            # Who waits for the work that they kept others from.
            commits.notify(connection, "")
        return sorted(gone)


def _renew_until_done(catalog: Catalog, held: Sequence[Lease], done: threading.Event) -> None:
    """Renew leases while they are held. An outage of the catalog is outlasted, however long: a lease that has run out
    meanwhile and that nobody has taken is ours again. It is not taken again once somebody else has it."""
    usual = pause = LEASE_MICROS / SECOND / 3
    while not done.wait(pause):
        asked = time.monotonic()
        try:
            renewed = _renew_tokens(catalog, [each.token for each in held if not each.lost])
        except ErrataError:
            pause = usual / 10
            continue
        for each in held:
            if each.token in renewed:
                each.ends = asked + LEASE_MICROS / SECOND
            else:
                each.lost = True
        if not renewed:
            return
        pause = usual


def _renew_tokens(catalog: Catalog, tokens: Sequence[str]) -> set[str]:
    """The tokens of those leases that are still held."""
    mine = leases.c.holder.in_(tokens)
    with catalog.writing() as connection:
        later = (
            update(leases).where(mine).values(expires_at=catalog.clock.now() + LEASE_MICROS).returning(leases.c.holder)
        )
        return set(connection.execute(later).scalars())
