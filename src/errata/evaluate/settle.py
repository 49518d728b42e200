"""Laying what a strategy has worked out against what is published: which rows are now final, which stay open, and what
a reader of the changes has to be told."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from errata.archive.result_rows import result_schema
from errata.evaluate.publishing import (
    DELETE,
    INSERT,
    NONE,
    REPLACE,
    Said,
    Standing,
    conform,
    in_roles,
    instants,
    records,
    refuse,
)
from errata.evaluate.sameness import Flags, Ints, Lane, alike, lanes, steps
from errata.model.results import RUN, VE, VS, Shape


@dataclass(frozen=True, slots=True)
class Told:
    """Which evaluation it is, and what its strategy's rows are."""

    since: int
    until: int
    """The last instant that is answered; what is said of it is provisional."""
    run: int
    covering: bool
    """Whether the rows are the whole answer from `since` on, but for what closes; otherwise they only add to it."""
    closes: tuple[str, int] | None = None
    """A column that tells when something begins, and how long it lasts: what is said of it is final after that, whether
    it has an end or not."""


@dataclass(frozen=True, slots=True)
class Settled:
    """What is to be kept of the results, and the change records that they do not tell themselves."""

    base: pa.Table
    """Rows that ended before the last instant, or whose end is certain; to be added to those of before."""
    open: pa.Table
    """Rows that began before the last instant and may yet change their end; instead of those of before."""
    tip: pa.Table
    """Rows that begin at the last instant; instead of those of before."""
    feed: pa.Table


def settle(new: pa.Table, before: pa.Table, told: Told, shape: Shape) -> Settled:
    """What becomes of the published rows that were open or at the tip, and of the new ones.

    The records of the feed are for a reader who holds results by key and vs, and for whom a result lasts until its
    `_ve` or until the next result of its key begins, whichever comes first. Of rows that are only added the reader
    knows by the rows themselves; the feed then holds what has become of the tip of before.
    """
    rows = _gather(new, before, told, shape)
    answer = _covered(rows, told) if told.covering else _added(rows)
    alone = answer.old == NONE
    other = np.flatnonzero(~alone & (answer.old != answer.first))
    changed = np.zeros(len(alone), np.bool_)
    changed[other] = ~alike(rows.table, shape.payload, answer.first[other], answer.old[other])
    stays = ~alone & ~changed
    run = np.full(len(alone), told.run)
    run[stays] = rows.run[answer.old[stays]]
    feed = _feed(rows, answer, changed, told, shape)
    results = Standing(answer.first, rows.vs[answer.first], answer.ve, run)
    return Settled(*in_roles(rows.table, results, told, shape), feed)


@dataclass(frozen=True, slots=True)
class _Rows:
    """The published rows and, behind them, the new ones as far as they count."""

    table: pa.Table
    names: list[str]
    """The columns of the key."""
    payload: list[str]
    published: int
    """How many rows are published ones."""
    vs: Ints
    ve: Ints
    run: Ints
    tip: Flags
    """Whether a row is of the tip of before."""


@dataclass(frozen=True, slots=True)
class _Answer:
    """The results that there are now, in the order of key and vs."""

    first: Ints
    """The row that a result is, or begins with."""
    ve: Ints
    old: Ints
    """The row that was published of it before: the same, or one of the tip."""
    followed: Flags
    """Whether the next result of the key begins where it ends."""
    was_followed: Flags
    """Whether it was so before. Then a reader may hold any later end."""
    gone: Ints
    """Rows of the tip that are no results any more."""
    place: Ints
    """Of each row its place in the order of key and vs, as far as there is something to say of it."""


def _gather(new: pa.Table, before: pa.Table, told: Told, shape: Shape) -> _Rows:
    schema = result_schema(shape)
    before = conform(before, schema)
    new = conform(new, schema.remove(schema.get_field_index(RUN)))
    vs, ve = instants(new, VS), instants(new, VE)
    if told.covering:
        vs = np.maximum(vs, told.since)
    counts = (vs >= told.since) & (vs <= told.until) & (ve > vs)
    if not counts.all():
        new, vs, ve = new.filter(pa.array(counts)), vs[counts], ve[counts]
    was = instants(before, VS)
    table = pa.concat_tables([before.select(shape.names), new.select(shape.names)]).combine_chunks()
    return _Rows(
        table,
        shape.key,
        shape.payload,
        len(was),
        np.concatenate([was, vs]),
        np.concatenate([instants(before, VE), ve]),
        instants(before, RUN),
        np.concatenate([was >= told.since, np.zeros(len(vs), np.bool_)]),
    )


def _added(rows: _Rows) -> _Answer:
    """Results that only ever come: the rows themselves, some of which may have been published at the tip."""
    mine = np.flatnonzero(~rows.tip)
    old = np.full(len(rows.vs), NONE)
    old[: rows.published] = np.arange(rows.published)
    place = np.zeros(len(rows.vs), np.int64)
    gone = np.flatnonzero(rows.tip)
    if len(gone):
        since = rows.vs[gone[0]]
        again = np.flatnonzero(rows.vs == since)
        order, fresh = _by_key(rows, again)
        place[order] = np.arange(len(order))
        met = _met(rows, order, fresh)
        old[order[met]] = order[met - 1]
        gone = np.setdiff1d(gone, order[met - 1])
    never = np.zeros(len(mine), np.bool_)
    return _Answer(mine, rows.ve[mine], old[mine], never, never, gone, place)


def _covered(rows: _Rows, told: Told) -> _Answer:
    """Results that are the whole answer from `since` on: what is open ends there, unless it goes on as it was."""
    order, fresh = _by_key(rows, np.arange(len(rows.vs)))
    ends = rows.ve.copy()
    ends[: rows.published] = np.minimum(ends[: rows.published], told.since)
    old = np.full(len(rows.vs), NONE)
    old[: rows.published] = np.arange(rows.published)
    met = _met(rows, order, fresh)
    old[order[met]] = order[met - 1]
    was_followed = np.zeros(len(rows.vs), np.bool_)
    behind = np.flatnonzero(rows.tip[order[1:]] & ~fresh[1:])
    was_followed[order[behind]] = True

    stays = ~rows.tip[order]
    live, keys = order[stays], np.cumsum(fresh)[stays]
    joined, touching = _touching(rows, live, keys, ends)
    heads = np.flatnonzero(~joined)
    lasts = np.append(heads[1:], len(live))[: len(heads)] - 1
    first = live[heads]
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    return _Answer(
        first,
        ends[live[lasts]],
        old[first],
        np.append(touching, False)[lasts + 1],
        was_followed[first],
        np.setdiff1d(np.flatnonzero(rows.tip), old[first]),
        place,
    )


def _by_key(rows: _Rows, which: Ints) -> tuple[Ints, Flags]:
    """Some rows in the order of key and vs, those of the tip of before first, and which of them begin a key."""
    told = lanes(rows.table if len(which) == len(rows.vs) else rows.table.take(pa.array(which)), rows.names)
    # The sort keeps published rows before new ones of the same key and vs.
    order = np.lexsort((rows.vs[which], *reversed(told)))
    return which[order], steps([lane[order] for lane in told], len(which))


def _met(rows: _Rows, order: Ints, fresh: Flags) -> Ints:
    """The places in the order where a row stands behind one of the tip of before, with its key and its vs."""
    vs, tip = rows.vs[order], rows.tip[order]
    behind: Ints = 1 + np.flatnonzero(tip[:-1] & ~tip[1:] & ~fresh[1:] & (vs[1:] == vs[:-1]))
    return behind


def _touching(rows: _Rows, live: Ints, keys: Lane, ends: Ints) -> tuple[Flags, Flags]:
    """Which rows go on with what the row before them said, and which begin where that row of their key ends."""
    together = np.zeros(len(live), np.bool_)
    together[1:] = keys[1:] == keys[:-1]
    until, begins = ends[live[:-1]], rows.vs[live[1:]]
    if (clash := np.flatnonzero(together[1:] & (until > begins))).size:
        second = int(live[clash[0] + 1])
        refuse(rows.table, rows.names, second, int(rows.vs[second]))
    touching = together.copy()
    touching[1:] &= until == begins
    joined, at = touching.copy(), np.flatnonzero(touching)
    joined[at] = alike(rows.table, rows.payload, live[at - 1], live[at])
    return joined, touching


def _feed(rows: _Rows, answer: _Answer, changed: Flags, told: Told, shape: Shape) -> pa.Table:
    ended = rows.ve[answer.old]
    moved = (answer.ve != ended) & ~(answer.followed & (ended >= answer.ve))
    # Where the next result is gone that a reader has taken the end from, the end must be said.
    loose = (answer.ve == ended) & answer.was_followed & ~answer.followed
    published = answer.old != NONE
    replaced = published & (changed | moved | loose)
    said = np.flatnonzero(replaced | (~published & told.covering))
    gone = answer.gone
    row, past = np.concatenate([answer.first[said], gone]), np.concatenate([answer.old[said], gone])
    op = np.concatenate([np.where(published[said], REPLACE, INSERT), np.full(len(gone), DELETE)])
    ve = np.concatenate([answer.ve[said], rows.vs[gone]])
    said_of = Said(op, row, past, rows.vs[row], ve, rows.ve[past], answer.place[row])
    return records(rows.table, said_of, told.run, shape)
