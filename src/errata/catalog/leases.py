"""Leases: claims on work with a time limit, so that two runners do not do the same work.

A lease only saves work: results stay correct because each commit checks its basis. So a lease may be taken from a
holder that seems to be dead and is not; one of the two then works in vain.

A lease lasts LEASE_MICROS, and its holder renews it three times in that time. It is free again when the holder returns
it, when it expires, or at once when the kernel says that the holder's process is dead, which only a process on the same
machine can ask. Of other holders only the renewals are known: a runner that finds a lease held waits for a renewal, for
one term at most, and then has the lease or knows that the holder is alive. The wait is measured by the runner's own
monotonic clock, so a wrong wall clock does no harm.

    taken ── renewed ── renewed ──────── returned          row deleted, waiting runners are notified
      └───── renewed ── killed ── term ── taken by the next runner, with a greater fence
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
"""Microseconds that a lease lasts unless it is renewed. Runners on other machines wait this long for a dead holder."""

LEASE_POLL_SECONDS = 0.5
"""Seconds between two reads of a lease that is waited for."""

WAIT_MESSAGE_SECONDS = 30.0
"""Seconds between two messages that a lease is still waited for."""

_RETRY_SECONDS = 1.0
"""Seconds between two tries to return a lease to a catalog that does not answer."""


@dataclass(frozen=True, slots=True)
class LeaseHolder:
    """The holder of a lease."""

    name: str
    owner: str
    """The task for which it is held, as in `Cause.owner`; empty for work by hand."""
    since: int
    until: int
    process: ProcessIdentity
    token: str
    """Identifies this holding."""

    @property
    def life(self) -> Liveness:
        """Whether the holder is alive."""
        return self.process.life

    @property
    def description(self) -> str:
        """For a person: who it is, and since when."""
        who = f"{self.owner} ({self.process.description})" if self.owner else self.process.description
        return f"{who}, since {format_instant(self.since)[:19]}"


@dataclass(frozen=True, slots=True)
class WaitPolicy:
    """How long a runner waits for a lease whose holder is alive, and how it reports that."""

    seconds: float = 0.0
    tell: Callable[[str], None] = lambda _: None


@dataclass
class Lease:
    """A lease that was asked for: held by this process until the block ends, or by another one."""

    name: str
    other_holder: LeaseHolder | None = None
    """The other holder; None when the lease could be had."""
    lost: bool = False
    """Whether another process has taken it since: the same work may then be done twice."""
    ends: float = 0.0
    """When it expires unless it is renewed, in seconds of this machine's monotonic clock."""
    token: str = field(default_factory=lambda: uuid.uuid4().hex)

    @property
    def is_held(self) -> bool:
        """Whether it could be had."""
        return self.other_holder is None


@contextmanager
def hold_lease(catalog: Catalog, name: str, owner: str = "", patience: WaitPolicy | None = None) -> Iterator[Lease]:
    """The lease, if it could be had: renewed until the block ends, and then returned."""
    lease = Lease(name)
    lease.other_holder = _wait_for_lease(catalog, lease, owner, patience or WaitPolicy())
    if not lease.is_held:
        yield lease
        return
    with _renewal(catalog, [lease]):
        yield lease


@contextmanager
def hold_free_leases(catalog: Catalog, names: Sequence[str], owner: str = "") -> Iterator[Mapping[str, Lease]]:
    """Take those of the leases that are free in one transaction, and return them in one; by name. The others are left
    out: `hold_lease` waits for a single one."""
    asked = [Lease(name) for name in sorted(names)]
    taken = time.monotonic()
    try:
        with catalog.writing(durable=False) as connection:
            found = _take_free(connection, catalog, asked, owner)
    except IntegrityError:  # another process has just taken one
        yield {}
        return
    for each in found:
        each.ends = taken + LEASE_MICROS / SECOND
    with _renewal(catalog, found):
        yield {each.name: each for each in found}


def _take_free(connection: Connection, catalog: Catalog, asked: Sequence[Lease], owner: str) -> list[Lease]:
    """Take those that have no row yet, all at once, and those that are free again."""
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
    """Renew leases until the block ends, and return them then."""
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
        # The thread may wait for a catalog that does not answer; the rows that it would renew are deleted by then.
        heart.join(LEASE_POLL_SECONDS)
        _return_own(catalog, held)


def return_lease(catalog: Catalog, lease: Lease) -> None:
    """Return one of several leases that are held together before the others."""
    lease.lost = True
    _return_own(catalog, [lease])


def release_owned(catalog: Catalog, owner: str) -> list[str]:
    """Return all leases that are held for a task that has been killed, and return their names. Leases without an owner
    stay."""
    return [] if not owner else _return_where(catalog, leases.c.owner == owner)


def revoke_lease(catalog: Catalog, holder: LeaseHolder) -> bool:
    """Return a lease in place of its holder; whether the holder still had it."""
    return bool(_return_where(catalog, (leases.c.name == holder.name) & (leases.c.holder == holder.token)))


def list_holders(catalog: Catalog) -> list[LeaseHolder]:
    """The holders of all leases that have not expired, by name; also dead ones whose lease has not been taken since."""
    query = select(leases).where(leases.c.expires_at > catalog.clock.now()).order_by(leases.c.name)
    with catalog.reading() as connection:
        return [_holder_from_row(row) for row in connection.execute(query)]


def living_lease_names(catalog: Catalog) -> set[str]:
    """The names of the leases whose holders are not known to be dead."""
    return {each.name for each in list_holders(catalog) if each.life is not Liveness.DEAD}


def _holder_from_row(row: Row[Any]) -> LeaseHolder:
    return LeaseHolder(row.name, row.owner, row.since, row.expires_at, ProcessIdentity.of(row.process), row.holder)


def _wait_for_lease(catalog: Catalog, lease: Lease, owner: str, patience: WaitPolicy) -> LeaseHolder | None:
    """Take the lease, at once or after waiting; else the holder, which is alive."""
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
        return f"{holder.name}: waiting for {holder.description}"
    return (
        f"{holder.name}: held by {holder.description}; waiting up to {LEASE_MICROS // SECOND} seconds to see "
        "whether that is alive"
    )


def _try_lease(catalog: Catalog, lease: Lease, owner: str, silent: str) -> LeaseHolder | None:
    """Take the lease if it is free; else its holder. `silent`: the token of a holder without renewals for a term."""
    with catalog.reading() as connection:
        row = connection.execute(select(leases).where(leases.c.name == lease.name)).first()
    if row is not None and not _is_free(catalog, row, silent):
        return _holder_from_row(row)
    taken = time.monotonic()
    try:
        found = _take_lease(catalog, lease, owner, silent)
    except IntegrityError:  # another process has just taken it
        return _try_lease(catalog, lease, owner, silent)
    lease.ends = taken + LEASE_MICROS / SECOND
    return found


def _is_free(catalog: Catalog, row: Row[Any], silent: str) -> bool:
    return row.expires_at <= catalog.clock.now() or row.holder == silent or _holder_from_row(row).life is Liveness.DEAD


def _take_lease(catalog: Catalog, lease: Lease, owner: str, silent: str) -> LeaseHolder | None:
    with catalog.writing(durable=False) as connection:
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
    """Return leases. If the catalog does not answer, try again until they have expired by themselves."""
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
    with catalog.writing(durable=False) as connection:
        gone: Iterable[str] = connection.execute(delete(leases).where(which).returning(leases.c.name)).scalars().all()
        if gone:
            # Wakes processes that wait for these leases.
            commits.notify(connection, "")
        return sorted(gone)


def _renew_until_done(catalog: Catalog, held: Sequence[Lease], done: threading.Event) -> None:
    """Renew leases while they are held. An outage of the catalog may last any time: a lease that has expired meanwhile
    and has not been taken is renewed. A lease that another process has taken is lost, and is not taken back."""
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
    """Renew the leases with these tokens; the tokens of those that are still held."""
    mine = leases.c.holder.in_(tokens)
    with catalog.writing(durable=False) as connection:
        later = (
            update(leases).where(mine).values(expires_at=catalog.clock.now() + LEASE_MICROS).returning(leases.c.holder)
        )
        return set(connection.execute(later).scalars())
